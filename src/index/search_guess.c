// Limits from a sample of the rows, and queries whose limit was too tight.
#include "index/search_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t kn_guess_rank(size_t k, double step, double deviations) {
    double share = (double)k / step;
    return (size_t)(share + deviations * sqrt(share) + 2);
}

// In the memory of the queries' own tops, which are empty.
knnlm_status kn_guess_begin(const kn_search_batch *b, size_t rank, kn_search_batch *sample) {
    *sample = *b;
    sample->k = rank;
    sample->tops = kn_alloc(b->n, sizeof *sample->tops);
    if (!sample->tops) return KNNLM_ENOMEM;
    for (size_t q = 0; q < b->n; q++) kn_top_init(&sample->tops[q], b->tops[q].items, rank);
    return KNNLM_OK;
}

enum { CHUNK = 64 }; // queries of a task

typedef struct ending {
    kn_search_batch *b, *sample;
} ending;

static void end_chunk(void *context, size_t task, int worker) {
    const ending *e = context;
    (void)worker;
    for (size_t q = task * CHUNK; q < kn_min((task + 1) * CHUNK, e->b->n); q++)
        e->b->tops[q].limit = e->b->tops[q].guess = kn_top_limit(&e->sample->tops[q]);
}

void kn_guess_end(kn_search_batch *b, kn_search_batch *sample) {
    kn_parallel((b->n + CHUNK - 1) / CHUNK, end_chunk, &(ending){b, sample});
}

// ---------------------------------------------------------------- once more

// Whether the query found fewer than it wants within its limit: beyond it, by a rounding, are some that were
// handed over and some that were not. Distances of integers are not rounded.
static bool is_missing(const kn_search_batch *b, const kn_top *t) {
    if (t->guess == INFINITY) return false;
    return b->whole ? t->count < t->k : !kn_top_has(t, t->guess);
}

static void count_chunk(void *context, size_t task, int worker) {
    kn_search_batch *b = context;
    (void)worker;
    for (size_t q = task * CHUNK; q < kn_min((task + 1) * CHUNK, b->n); q++)
        b->tops[q].missing = is_missing(b, &b->tops[q]);
}

size_t kn_guess_missing(kn_search_batch *b) {
    size_t missing = 0;
    kn_parallel((b->n + CHUNK - 1) / CHUNK, count_chunk, b);
    for (size_t q = 0; q < b->n; q++) missing += b->tops[q].missing;
    return missing;
}

knnlm_status kn_guess_again(kn_search_batch *b, size_t missing, kn_batch_search *search, uint32_t probes) {
    size_t d = b->x->d, n = 0;
    kn_search_batch again = *b;
    uint32_t *numbers = kn_alloc(missing, sizeof *numbers);
    float *queries = kn_alloc_aligned(missing, d * sizeof *queries);
    size_t stride = b->whole ? kn_index_stride(b->x) : 0;
    int16_t *whole = kn_alloc_aligned(missing, stride * sizeof *whole);
    kn_integer_query *terms = kn_alloc(missing, sizeof *terms);
    again.tops = kn_alloc(missing, sizeof *again.tops);
    knnlm_status status = numbers && queries && whole && terms && again.tops ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t q = 0; q < b->n && status == KNNLM_OK; q++) {
        if (!b->tops[q].missing) continue;
        memcpy(queries + n * d, b->queries + q * d, d * sizeof *queries);
        if (b->whole) {
            memcpy(whole + n * stride, b->whole + q * stride, stride * sizeof *whole);
            terms[n] = b->terms[q];
        }
        kn_top_init(&again.tops[n], b->tops[q].items, b->k);
        numbers[n++] = (uint32_t)(b->first + q);
    }
    again.n = n;
    again.numbers = numbers;
    again.queries = queries;
    if (b->whole) again.whole = whole;
    again.terms = terms;
    again.guessing = false;
    if (status == KNNLM_OK) status = search(&again, probes);
    for (size_t i = 0; i < n && status == KNNLM_OK; i++)
        b->tops[numbers[i] - b->first].count = again.tops[i].count;
    free(numbers);
    kn_free_aligned(queries);
    kn_free_aligned(whole);
    free(terms);
    free(again.tops);
    return status;
}
