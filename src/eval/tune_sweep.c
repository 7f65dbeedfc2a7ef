// Temperatures, k and weights, from what was kept.
#include "eval/tune_parts.h"

#include <math.h>
#include <string.h>

enum { SAMPLE = 4096, REFINEMENTS = 3, HIGHEST = 16 };
#define STEP 1.5 // from temperature to temperature
#define MIN 1e-3 // a weight to begin with

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

// Where a token has no neighbour, the model speaks.
static void fill_empty(const kn_tuning *t, size_t store, float *p) {
    for (size_t i = 0; i < t->n; i++)
        if (t->kept[store].counts[i] == 0) p[i] = t->lm[i];
}

// Where the setting before this one ended: their best weights are not far apart.
static void begin_at(const kn_tuning *t, bool with_cache, double weights[3]) {
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        weights[i] = i == 2 && !with_cache ? 0 : fmax(MIN, t->near[i]);
        sum += weights[i];
    }
    for (int i = 0; i < 3; i++) weights[i] /= sum;
}

// One setting: the best weights for it, noted, and whether it is the best so far.
static knnlm_status try_one(kn_tuning *t, size_t store, bool with_cache, double temperature, size_t k,
                            float *p) {
    const float *parts[3] = {t->lm, p, kn_tuning_cache(t)};
    kn_tune_result *out = t->out;
    double weights[3], mean;
    begin_at(t, with_cache, weights);
    fill_empty(t, store, p);
    KN_TRY(kn_fit_weights_from(parts, with_cache ? 3 : 2, t->n, weights, &mean));
    memcpy(t->near, weights, sizeof t->near);
    knnlm_tune_point point = {.store = store,
                              .probes = t->m->stores[store].looked,
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

static knnlm_status try_temperatures(kn_tuning *t, size_t store, bool with_cache, const double *temperatures,
                                     size_t temperature_count, const size_t *ks, size_t count) {
    if (!kn_progress_report(t->progress, "tuning", t->out->settings, 0, "settings"))
        return kn_fail(KNNLM_ESTOPPED, "stopped while tuning");
    KN_TRY(kn_kept_probabilities(&t->kept[store], temperatures, temperature_count, ks, count, t->swept));
    for (size_t i = 0; i < temperature_count; i++)
        for (size_t j = 0; j < count; j++)
            KN_TRY(try_one(t, store, with_cache, temperatures[i], ks[j], t->swept + (i * count + j) * t->n));
    return KNNLM_OK;
}

// Between the neighbours of the best on the grid, at its k: by halves of what is left.
static knnlm_status refine(kn_tuning *t, size_t store, bool with_cache) {
    double factor = STEP;
    for (int i = 0; i < REFINEMENTS; i++) {
        const knnlm_tune_point best = t->out->stores[store].best;
        factor = sqrt(factor);
        const double both[2] = {best.temperature * factor, best.temperature / factor};
        KN_TRY(try_temperatures(t, store, with_cache, both, 2, &best.k, 1));
    }
    return KNNLM_OK;
}

// From a hundredth of the spread to all of it; and on, where the last was the best.
static knnlm_status try_grid(kn_tuning *t, size_t store, bool with_cache, const size_t *ks, size_t count) {
    const knnlm_tune_point *best = &t->out->stores[store].best;
    double unit = spread(&t->kept[store]), part = 1.0 / 128, last = 0;
    while (part <= 1 || (part < HIGHEST && best->temperature == last)) {
        double temperatures[KN_TUNE_GROUP];
        for (size_t i = 0; i < KN_TUNE_GROUP; i++, part *= STEP) temperatures[i] = part * unit;
        KN_TRY(try_temperatures(t, store, with_cache, temperatures, KN_TUNE_GROUP, ks, count));
        last = temperatures[KN_TUNE_GROUP - 1];
    }
    return KNNLM_OK;
}

knnlm_status kn_tune_sweep(kn_tuning *t, size_t store, bool with_cache) {
    size_t ks[KN_KEPT_KS], count = kn_kept_ks(t->kept[store].k, ks);
    t->out->stores[store].best = (knnlm_tune_point){.ppl = INFINITY};
    memcpy(t->near, (const double[]){0.8, 0.2, 0.2}, sizeof t->near);
    if (!isnan(t->given_temperature))
        return try_temperatures(t, store, with_cache, &t->given_temperature, 1, ks, count);
    KN_TRY(try_grid(t, store, with_cache, ks, count));
    return refine(t, store, with_cache);
}

knnlm_status kn_tune_cache(kn_tuning *t) {
    const float *parts[KN_PARTS_MAX] = {t->lm};
    size_t count = 1;
    double weights[KN_PARTS_MAX], mean, best = -INFINITY;
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
