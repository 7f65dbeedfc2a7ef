// Temperatures, k and weights, from what was kept.
#include "eval/tune_parts.h"

#include <math.h>
#include <string.h>

enum { SAMPLE = 4096, REFINEMENTS = 6 };

// How far apart the neighbours of a token are, in the mean: what temperatures are measured by.
static double spread(const kn_kept *kept) {
    double sum = 0;
    size_t count = 0, step = kept->n / SAMPLE + 1;
    for (size_t i = 0; i < kept->n; i += step) {
        const float *d = kept->distances + i * kept->k;
        if (kept->counts[i] < 2) continue;
        double apart = (double)d[kept->counts[i] - 1] - (double)d[0];
        if (!isfinite(apart)) continue;
        sum += apart;
        count++;
    }
    return count && sum > 0 ? sum / (double)count : 1;
}

static size_t powers_of_two(size_t most, size_t *ks) {
    size_t count = 0;
    for (size_t k = 1; k < most; k *= 2) ks[count++] = k;
    ks[count++] = most;
    return count;
}

// Where a token has no neighbour, the model speaks.
static void fill_empty(const kn_tuning *t, size_t store, float *p) {
    for (size_t i = 0; i < t->n; i++)
        if (t->kept[store].counts[i] == 0) p[i] = t->lm[i];
}

// One setting: the best weights for it, noted, and whether it is the best so far.
static knnlm_status try_one(kn_tuning *t, size_t store, bool with_cache, double temperature, size_t k,
                            float *p) {
    const float *parts[3] = {t->lm, p, kn_tuning_cache(t)};
    kn_tune_result *out = t->out;
    double weights[3] = {0}, mean;
    fill_empty(t, store, p);
    KN_TRY(kn_fit_weights(parts, with_cache ? 3 : 2, t->n, weights, &mean));
    kn_tune_point point = {.store = store,
                           .probes = kn_mixed_store_probes(&t->m->stores[store]),
                           .temperature = temperature,
                           .k = k,
                           .lambda = weights[1],
                           .cache_lambda = weights[2],
                           .ppl = exp(-mean)};
    out->settings++;
    if (out->point_count < KN_TUNE_POINTS) out->points[out->point_count++] = point;
    if (point.ppl < out->stores[store].best.ppl) {
        out->stores[store].best = point;
        memcpy(t->knn[store], p, t->n * sizeof *p);
    }
    return KNNLM_OK;
}

static knnlm_status try_temperature(kn_tuning *t, size_t store, bool with_cache, double temperature,
                                    const size_t *ks, size_t count) {
    kn_kept_probabilities(&t->kept[store], temperature, ks, count, t->swept);
    for (size_t j = 0; j < count; j++)
        KN_TRY(try_one(t, store, with_cache, temperature, ks[j], t->swept + j * t->n));
    return KNNLM_OK;
}

// Between the neighbours of the best on the grid, at its k: by halves of what is left.
static knnlm_status refine(kn_tuning *t, size_t store, bool with_cache, double factor) {
    for (int i = 0; i < REFINEMENTS / 2; i++) {
        const kn_tune_point best = t->out->stores[store].best;
        factor = sqrt(factor);
        KN_TRY(try_temperature(t, store, with_cache, best.temperature * factor, &best.k, 1));
        KN_TRY(try_temperature(t, store, with_cache, best.temperature / factor, &best.k, 1));
    }
    return KNNLM_OK;
}

knnlm_status kn_tune_sweep(kn_tuning *t, size_t store, bool with_cache) {
    size_t ks[KN_TUNE_KS], count = powers_of_two(t->kept[store].k, ks);
    double unit = spread(&t->kept[store]);
    t->out->stores[store].best = (kn_tune_point){.ppl = INFINITY};
    if (!isnan(t->given_temperature))
        return try_temperature(t, store, with_cache, t->given_temperature, ks, count);
    // From a hundredth of the spread to all of it, in steps of a half.
    for (double part = 1.0 / 128; part <= 1; part *= 1.5)
        KN_TRY(try_temperature(t, store, with_cache, part * unit, ks, count));
    return refine(t, store, with_cache, 1.5);
}

knnlm_status kn_tune_cache(kn_tuning *t) {
    const float *parts[KN_PARTS_MOST] = {t->lm};
    size_t count = 1;
    double weights[KN_PARTS_MOST], mean, best = -INFINITY;
    for (size_t s = 0; s < t->m->count; s++)
        if (t->out->stores[s].best.ppl < INFINITY) parts[count++] = t->knn[s];
    for (size_t i = 0; i < t->cache_temperature_count; i++) {
        parts[count] = t->cache + i * t->capacity;
        KN_TRY(kn_fit_weights(parts, count + 1, t->n, weights, &mean));
        t->out->settings++;
        if (mean <= best) continue;
        best = mean;
        t->best_cache = i;
    }
    return KNNLM_OK;
}
