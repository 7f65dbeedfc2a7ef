// Scores a text with a model, by the installed header alone: perplexity, and the words that surprised the
// model most.
//     cc score.c -o score $(pkg-config --cflags --libs knnlm)
//     ./score model.gguf text.txt
#include <knnlm.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
    fprintf(stderr, "score: %s\n", what);
    return 1;
}

// The whole file; the caller frees it.
static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long end;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0 && (text = malloc((size_t)end + 1))) {
        rewind(file);
        *size = fread(text, 1, (size_t)end, file);
    }
    fclose(file);
    return text;
}

static void print_worst(knnlm_model *model, const int32_t *tokens, const float *logprobs, size_t count) {
    size_t worst = 0, size;
    char *text;
    for (size_t i = 1; i < count; i++)
        if (logprobs[i] < logprobs[worst]) worst = i;
    size_t first = worst < 8 ? 0 : worst - 8;
    if (knnlm_model_decode(model, tokens + first, worst + 1 - first, &text, &size) != KNNLM_OK) return;
    printf("least expected (1 in %.0f), at the end of: %s\n", exp(-(double)logprobs[worst]), text);
    knnlm_free(text);
}

static int score(knnlm_model *model, const char *text, size_t size) {
    int32_t *tokens;
    size_t count;
    if (knnlm_model_encode(model, text, size, &tokens, &count) != KNNLM_OK) return fail(knnlm_message());
    float *logprobs = malloc((count ? count : 1) * sizeof *logprobs);
    int status = 1;
    if (!logprobs || count == 0) {
        fail(count ? "out of memory" : "no text");
    } else if (knnlm_model_score(model, tokens, count, NULL, logprobs) != KNNLM_OK) {
        fail(knnlm_message());
    } else {
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum -= (double)logprobs[i];
        printf("%zu tokens, perplexity %.2f\n", count, exp(sum / (double)count));
        print_worst(model, tokens, logprobs, count);
        status = 0;
    }
    free(logprobs);
    knnlm_free(tokens);
    return status;
}

int main(int argc, char **argv) {
    knnlm_model *model;
    size_t size = 0;
    if (argc != 3) return fail("usage: score MODEL TEXT"), 2;
    char *text = read_file(argv[2], &size);
    if (!text) return fail("the text cannot be read");
    int status = 1;
    if (knnlm_model_open(argv[1], NULL, &model) == KNNLM_OK) {
        status = score(model, text, size);
        knnlm_model_close(model);
    } else {
        fail(knnlm_message());
    }
    free(text);
    return status;
}
