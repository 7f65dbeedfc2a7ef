// What comes next, with a store: predict MODEL STORE "CONTEXT"
#include <knnlm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(void) {
    fprintf(stderr, "predict: %s\n", knnlm_message());
    return 1;
}

// The five most probable tokens, with what the model alone and the neighbours say of them.
static int show(const knnlm_model *model, const double *p, const double *lm, const double *knn,
                int32_t vocabulary) {
    int32_t shown[5];
    for (int n = 0; n < 5 && n < vocabulary; n++) {
        int32_t best = -1;
        for (int32_t i = 0; i < vocabulary; i++) {
            int seen = 0;
            for (int j = 0; j < n; j++) seen |= shown[j] == i;
            if (!seen && (best < 0 || p[i] > p[best])) best = i;
        }
        char *text;
        size_t size;
        shown[n] = best;
        if (knnlm_model_decode(model, &best, 1, &text, &size) != KNNLM_OK) return fail();
        printf("%.4f  (model %.4f, neighbours %.4f)  \"%s\"\n", p[best], lm[best], knn[best], text);
        knnlm_free(text);
    }
    return 0;
}

static int predict(knnlm_model *model, const char *store, const char *context) {
    knnlm_mixture_options options = knnlm_mixture_options_default();
    knnlm_model_info info;
    knnlm_mixture *mixture;
    knnlm_next next;
    int32_t *tokens;
    size_t count;
    options.stores = &store;
    options.store_count = 1;
    knnlm_model_describe(model, &info);
    if (knnlm_mixture_open(model, &options, &mixture) != KNNLM_OK) return fail();
    if (knnlm_model_encode(model, context, strlen(context), &tokens, &count) != KNNLM_OK) {
        knnlm_mixture_close(mixture);
        return fail();
    }
    double *p = calloc(3 * (size_t)info.vocabulary, sizeof *p), *lm = p + info.vocabulary,
           *knn = lm + info.vocabulary;
    int code = 1;
    if (p && knnlm_mixture_next(mixture, tokens, count, p, lm, knn, &next) == KNNLM_OK) {
        printf("lambda %.3f, nearest distance %.3g, entropy %.2f nats\n", next.lambda, next.nearest,
               next.entropy);
        code = show(model, p, lm, knn, info.vocabulary);
    } else {
        fail();
    }
    free(p);
    knnlm_free(tokens);
    knnlm_mixture_close(mixture);
    return code;
}

int main(int argc, char **argv) {
    knnlm_model *model;
    if (argc != 4) {
        fprintf(stderr, "usage: predict MODEL STORE \"CONTEXT\"\n");
        return 2;
    }
    if (knnlm_model_open(argv[1], NULL, &model) != KNNLM_OK) return fail();
    int code = predict(model, argv[2], argv[3]);
    knnlm_model_close(model);
    return code;
}
