// Scores tokens by the continuous cache: all queries of a block against the rows before them as one product.
#include "mix/cache.h"

#include "base/threads.h"
#include "mix/mix.h"

#include <math.h>
#include <stdlib.h>

enum { QUERIES = 256 }; // that meet the rows before them as one product

typedef struct scoring {
    const kn_cache *c;
    const kn_kernels *k;
    const double *temperatures;
    size_t temperature_count, first, count; // rows that are scored; all of them
    size_t from;                            // first row that any of the queries sees
    size_t begin, queries;                  // the queries at hand
    float *products;                        // (queries, seen): become distances
    float *norms;                           // of rows from `from` on
    size_t seen;
    double *out;
} scoring;

static size_t min_row(const kn_cache *c, size_t row) {
    size_t start = c->starts[row];
    return row - start > c->size ? row - c->size : start;
}

static void score_query(void *context, size_t q, int worker) {
    const scoring *s = context;
    size_t row = s->begin + q, low = min_row(s->c, row), count = row - low, nearest = 0;
    float *distances = s->products + q * s->seen + (low - s->from);
    const float *norms = s->norms + (low - s->from);
    const kn_distance_form *form = kn_distance_form_of(s->c->distance);
    (void)worker;
    for (size_t i = 0; i < count; i++) {
        distances[i] = kn_distance_of_product(form, distances[i], s->norms[row - s->from], norms[i]);
        if (distances[i] < distances[nearest]) nearest = i;
    }
    kn_neighborhood n = {distances, s->c->values + low, NULL, count, nearest};
    for (size_t t = 0; t < s->temperature_count; t++)
        s->out[t * s->count + (row - s->first)] =
            count ? kn_neighborhood_logprob(&n, s->temperatures[t], s->c->values[row]) : NAN;
}

static knnlm_status multiply(scoring *s) {
    const kn_cache *c = s->c;
    const float *rows = c->keys + s->from * c->d;
    kn_rhs rhs;
    void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(s->k, s->queries, c->d));
    knnlm_status status = lhs ? kn_rhs_init(s->k, &rhs, s->seen, c->d) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_emit_matrix store = {s->k, s->products, s->seen, NULL};
        kn_rhs_pack(s->k, &rhs, rows, c->d, false);
        kn_lhs_pack(s->k, lhs, c->keys + s->begin * c->d, c->d, s->queries, c->d, false);
        kn_multiply(s->k, lhs, s->queries, &rhs, kn_emit_set, &store);
        for (size_t i = 0; i < s->seen; i++) s->norms[i] = (float)s->k->sum_squares(rows + i * c->d, c->d);
        kn_rhs_free(&rhs);
    }
    kn_free_aligned(lhs);
    return status;
}

static knnlm_status score_some(scoring *s) {
    s->from = min_row(s->c, s->begin);
    for (size_t q = 1; q < s->queries; q++) s->from = kn_min(s->from, min_row(s->c, s->begin + q));
    s->seen = s->begin + s->queries - s->from;
    s->products = kn_alloc_aligned(s->queries * s->seen, sizeof *s->products);
    s->norms = kn_alloc(s->seen, sizeof *s->norms);
    knnlm_status status = s->products && s->norms ? multiply(s) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_parallel(s->queries, score_query, s);
    kn_free_aligned(s->products);
    free(s->norms);
    return status;
}

knnlm_status kn_cache_score(const kn_cache *c, size_t first, size_t count, const double *temperatures,
                            size_t temperature_count, double *out) {
    scoring s = {.c = c,
                 .k = kn_math_kernels(KNNLM_PRECISION_F32),
                 .temperatures = temperatures,
                 .temperature_count = temperature_count,
                 .first = first,
                 .count = count,
                 .out = out};
    for (s.begin = first; s.begin < first + count; s.begin += s.queries) {
        s.queries = kn_min(QUERIES, first + count - s.begin);
        KN_TRY(score_some(&s));
    }
    return KNNLM_OK;
}
