// What the benchmark programs share. Each prints one line a repeat, a rate; bench/run takes medians and
// ratios.
#ifndef KN_BENCH_HARNESS_H
#define KN_BENCH_HARNESS_H

#include "base/progress.h"
#include "base/random.h"
#include "lm/native/config.h"
#include "math/math.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A benchmark has nothing to rescue: it says what failed and ends.
static inline void bench_check(knnlm_status status) {
    if (status == KNNLM_OK) return;
    fprintf(stderr, "bench: %s\n", knnlm_message());
    exit(1);
}

static inline void *bench_need(void *memory) {
    if (!memory) bench_check(KNNLM_ENOMEM);
    return memory;
}

static inline int bench_usage(const char *text) {
    fputs(text, stderr);
    return 2;
}

// The kernels that this CPU can run (KNNLM_CPU caps them), best first, a line each.
static inline int bench_print_kernels(void) {
    static const char *const precisions[] = {
        [KNNLM_PRECISION_F32] = "f32", [KNNLM_PRECISION_BF16] = "bf16", [KNNLM_PRECISION_INT16] = "int16"};
    size_t count;
    const kn_kernels *const *list = kn_math_available(&count);
    for (size_t i = 0; i < count; i++) printf("%s %s\n", list[i]->name, precisions[list[i]->precision]);
    return 0;
}

// A tokenizer of `size` words that mean nothing: model files carry one.
static inline kn_tokenizer *bench_tokenizer(int32_t size) {
    enum { WORD = 16 };
    char *text = bench_need(kn_alloc((size_t)size, WORD));
    size_t used = 0;
    // <unk> and <eos> are always there.
    for (int32_t i = 0; i < size - 2; i++) used += (size_t)snprintf(text + used, WORD, "w%d ", i);
    kn_tokenizer *tokenizer;
    bench_check(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, text, used, NULL, &tokenizer));
    free(text);
    return tokenizer;
}

static inline int32_t *bench_tokens(size_t count, int32_t vocabulary) {
    int32_t *tokens = bench_need(kn_alloc(count, sizeof *tokens));
    kn_random random = {1};
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)kn_random_below(&random, (uint64_t)vocabulary);
    return tokens;
}

#endif
