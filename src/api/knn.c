// The public functions that tell p_kNN of vectors and of neighbours, without a model.
#include "api/api.h"
#include "mix/mix.h"

#include <stdlib.h>

static knnlm_status check_knn(const knnlm_store *s, double temperature, bool whole) {
    const kn_store_info *info = kn_store_describe(s->store);
    if (!(temperature >= KN_TEMPERATURE_MIN && temperature <= KN_TEMPERATURE_MAX))
        return kn_fail(KNNLM_EINVAL, "a temperature of %g: not from %g to %g", temperature,
                       KN_TEMPERATURE_MIN, KN_TEMPERATURE_MAX);
    if (whole && info->settings.vocabulary <= 0)
        return kn_fail(KNNLM_EINVAL, "%s: does not know its vocabulary", info->path);
    return KNNLM_OK;
}

// Neighbours of some queries, with room for their values and shares.
typedef struct found {
    uint32_t *ids, *counts;
    float *distances;
    int32_t *values;
    double *shares;
} found;

static knnlm_status found_make(found *f, size_t n, size_t k) {
    size_t rows;
    *f = (found){0};
    if (!kn_mul(n, k, &rows)) return kn_fail(KNNLM_ENOMEM, "%zu neighbours of %zu queries", k, n);
    f->ids = kn_alloc(rows, sizeof *f->ids);
    f->distances = kn_alloc(rows, sizeof *f->distances);
    f->counts = kn_alloc(n, sizeof *f->counts);
    f->values = kn_alloc(k, sizeof *f->values);
    f->shares = kn_alloc(k, sizeof *f->shares);
    return f->ids && f->distances && f->counts && f->values && f->shares ? KNNLM_OK : KNNLM_ENOMEM;
}

static void found_free(found *f) {
    free(f->ids);
    free(f->distances);
    free(f->counts);
    free(f->values);
    free(f->shares);
}

static knnlm_status values_of(const knnlm_store *s, const uint32_t *ids, size_t count, int32_t *values) {
    for (size_t i = 0; i < count; i++) KN_TRY(kn_store_tokens(s->store, ids[i], 1, &values[i]));
    return KNNLM_OK;
}

knnlm_status knnlm_store_values(const knnlm_store *s, const uint32_t *ids, size_t count, int32_t *values) {
    for (size_t i = 0; i < count; i++) {
        values[i] = -1;
        if (ids[i] != UINT32_MAX) KN_TRY(values_of(s, &ids[i], 1, &values[i]));
    }
    return KNNLM_OK;
}

static kn_neighborhood neighborhood(const float *distances, const int32_t *values, size_t count) {
    kn_neighborhood n = {.distances = distances, .values = values, .count = count};
    for (size_t i = 1; i < count; i++)
        if (distances[i] < distances[n.nearest]) n.nearest = i;
    return n;
}

// p (vocabulary), of neighbours whose values are known.
static void spread(const kn_neighborhood *n, double temperature, int32_t vocabulary, double *shares,
                   double *p) {
    for (int32_t i = 0; i < vocabulary; i++) p[i] = 0;
    if (n->count == 0) return;
    kn_neighborhood_shares(n, temperature, shares);
    for (size_t i = 0; i < n->count; i++) p[n->values[i]] += shares[i];
}

// Of each query: `p` (n, vocabulary), or `logprobs` (n) of the targets.
typedef struct asking {
    const int32_t *targets;
    double temperature;
    double *p, *logprobs;
} asking;

static knnlm_status answer(const knnlm_store *s, const asking *a, const found *f, size_t query, size_t k) {
    int32_t vocabulary = kn_store_describe(s->store)->settings.vocabulary;
    KN_TRY(values_of(s, f->ids + query * k, f->counts[query], f->values));
    kn_neighborhood n = neighborhood(f->distances + query * k, f->values, f->counts[query]);
    if (a->targets)
        a->logprobs[query] = kn_neighborhood_logprob(&n, a->temperature, a->targets[query]);
    else
        spread(&n, a->temperature, vocabulary, f->shares, a->p + query * (size_t)vocabulary);
    return KNNLM_OK;
}

static knnlm_status ask(const knnlm_store *s, const float *queries, size_t n,
                        const knnlm_search_options *options, const asking *a) {
    knnlm_search_options o;
    found f;
    KN_TRY(API_TAKE(knnlm_search_options, options, &o));
    KN_TRY(check_knn(s, a->temperature, !a->targets));
    knnlm_status status = found_make(&f, n, o.k);
    if (status == KNNLM_OK) status = knnlm_store_search(s, queries, n, &o, f.ids, f.distances, f.counts);
    for (size_t i = 0; i < n && status == KNNLM_OK; i++) status = answer(s, a, &f, i, o.k);
    found_free(&f);
    return status;
}

knnlm_status knnlm_store_knn(const knnlm_store *s, const float *queries, size_t n,
                             const knnlm_search_options *options, double temperature, double *p) {
    return ask(s, queries, n, options, &(asking){.temperature = temperature, .p = p});
}

knnlm_status knnlm_store_knn_targets(const knnlm_store *s, const float *queries, size_t n,
                                     const int32_t *targets, const knnlm_search_options *options,
                                     double temperature, double *logprobs) {
    return ask(s, queries, n, options,
               &(asking){.targets = targets, .temperature = temperature, .logprobs = logprobs});
}

knnlm_status knnlm_store_knn_of(const knnlm_store *s, const uint32_t *ids, const float *distances,
                                size_t count, double temperature, double *p) {
    KN_TRY(check_knn(s, temperature, true));
    int32_t *values = kn_alloc(count, sizeof *values);
    double *shares = kn_alloc(count, sizeof *shares);
    knnlm_status status = values && shares ? values_of(s, ids, count, values) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_neighborhood n = neighborhood(distances, values, count);
        spread(&n, temperature, kn_store_describe(s->store)->settings.vocabulary, shares, p);
    }
    free(values);
    free(shares);
    return status;
}
