// Speed of byte-level BPE: `bench_tokenize encode TOKENIZER FILE [repeats]`, `bench_tokenize train FILE
// SIZE`. The last line printed is a JSON object.
#include "base/progress.h"
#include "text/documents.h"
#include "text/tokenizer.h"
#include "text/tokenizer_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 7, REPEATS_MAX = 1001 };

static knnlm_status read_all(kn_documents *d, kn_buffer *out) {
    for (bool found = true; found;) {
        kn_document document;
        KN_TRY(kn_documents_next(d, &document, &found));
        if (found) KN_TRY(kn_buffer_put(out, document.text, document.size));
    }
    return KNNLM_OK;
}

static knnlm_status read_text(const char *path, kn_buffer *out) {
    kn_documents *d;
    KN_TRY(kn_documents_open(&path, 1, NULL, &d));
    knnlm_status status = read_all(d, out);
    kn_documents_close(d);
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static knnlm_status time_encode(const kn_tokenizer *t, const kn_buffer *text, int repeats) {
    double seconds[REPEATS_MAX];
    size_t count = 0;
    for (int i = 0; i < repeats; i++) {
        kn_tokens tokens = {0};
        double start = kn_seconds();
        KN_TRY(kn_tokenizer_encode(t, text->data, text->size, &tokens));
        seconds[i] = kn_seconds() - start;
        count = tokens.count;
        printf("run %d: %.1f MB/s\n", i + 1, (double)text->size * 1e-6 / seconds[i]);
        kn_tokens_free(&tokens);
    }
    qsort(seconds, (size_t)repeats, sizeof *seconds, by_value);
    double median = seconds[repeats / 2];
    printf("{\"bench\": \"tokenize\", \"bytes\": %zu, \"tokens\": %zu, \"repeats\": %d, \"seconds\": %.6f, "
           "\"mb_per_second\": %.2f}\n",
           text->size, count, repeats, median, (double)text->size * 1e-6 / median);
    return KNNLM_OK;
}

static knnlm_status bench_encode(const char *tokenizer, const char *path, int repeats) {
    kn_tokenizer *t;
    kn_buffer text = {0};
    KN_TRY(kn_tokenizer_open(tokenizer, &t));
    knnlm_status status = read_text(path, &text);
    if (status == KNNLM_OK) status = time_encode(t, &text, repeats);
    free(text.data);
    kn_tokenizer_free(t);
    return status;
}

static knnlm_status bench_train(const char *path, int32_t size) {
    kn_buffer text = {0};
    kn_tokenizer *t = NULL;
    knnlm_status status = read_text(path, &text);
    double start = kn_seconds();
    if (status == KNNLM_OK)
        status = kn_tokenizer_train(KNNLM_TOKENIZER_BPE, size, text.data, text.size, NULL, &t);
    double seconds = kn_seconds() - start;
    if (status == KNNLM_OK)
        printf("{\"bench\": \"tokenizer_train\", \"bytes\": %zu, \"size\": %d, \"seconds\": %.3f}\n",
               text.size, kn_tokenizer_size(t), seconds);
    free(text.data);
    kn_tokenizer_free(t);
    return status;
}

int main(int argc, char **argv) {
    knnlm_status status;
    int repeats = argc == 5 ? atoi(argv[4]) : REPEATS;
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "encode") == 0 && repeats > 0 && repeats <= REPEATS_MAX) {
        status = bench_encode(argv[2], argv[3], repeats);
    } else if (argc == 4 && strcmp(argv[1], "train") == 0) {
        status = bench_train(argv[2], (int32_t)atoi(argv[3]));
    } else {
        fprintf(stderr, "usage: bench_tokenize encode TOKENIZER FILE [repeats]\n"
                        "       bench_tokenize train FILE SIZE\n");
        return 2;
    }
    if (status != KNNLM_OK) fprintf(stderr, "bench_tokenize: %s\n", knnlm_message());
    return status == KNNLM_OK ? 0 : 1;
}
