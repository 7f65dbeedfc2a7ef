// Why a word is probable, and which passages say so: explain MODEL STORE "CONTEXT" WORD
#include <knnlm.h>

#include <stdio.h>

static int fail(void) {
    fprintf(stderr, "explain: %s\n", knnlm_message());
    return 1;
}

static int show(const knnlm_model *model, const knnlm_explanation *e) {
    for (size_t i = 0; i < e->word_count; i++) {
        const knnlm_word *w = &e->words[i];
        char *text;
        size_t size;
        if (knnlm_model_decode(model, &w->token, 1, &text, &size) != KNNLM_OK) return fail();
        printf("%.4f  (model %.4f, neighbours %.4f)  \"%s\"%s\n", w->p, w->lm, w->knn, text,
               w->token == e->target ? "  <" : "");
        knnlm_free(text);
    }
    for (size_t i = 0; i < e->neighbor_count; i++) {
        const knnlm_origin *o = &e->neighbors[i].origin;
        printf("%4.1f%%  %s[%s]%s  (%.*s, token %llu)\n", 100 * e->neighbors[i].share, o->before, o->word,
               o->after, (int)o->document.name_size, o->document.name, (unsigned long long)o->entry.position);
    }
    return 0;
}

static int explain(knnlm_model *model, const char *store, const char *context, const char *word) {
    knnlm_mixture_options mixed = knnlm_mixture_options_default();
    knnlm_explain_options options = knnlm_explain_options_default();
    knnlm_mixture *mixture;
    knnlm_explanation e;
    mixed.stores = &store;
    mixed.store_count = 1;
    options.target = word;
    options.words = options.neighbors = 5;
    if (knnlm_mixture_open(model, &mixed, &mixture) != KNNLM_OK) return fail();
    int code = knnlm_explain(mixture, context, &options, &e) == KNNLM_OK ? show(model, &e) : fail();
    knnlm_explanation_free(&e);
    knnlm_mixture_close(mixture);
    return code;
}

int main(int argc, char **argv) {
    knnlm_model *model;
    if (argc != 5) {
        fprintf(stderr, "usage: explain MODEL STORE \"CONTEXT\" WORD\n");
        return 2;
    }
    if (knnlm_model_open(argv[1], NULL, &model) != KNNLM_OK) return fail();
    int code = explain(model, argv[2], argv[3], argv[4]);
    knnlm_model_close(model);
    return code;
}
