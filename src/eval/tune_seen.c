// What is usual for the neighbours of a text: beyond it they are trusted less (mixture.c).
#include "eval/tune_parts.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Between the two of the ascending values that are nearest to `part` of them.
static double quantile(const double *values, size_t n, double part) {
    double at = part * (double)(n - 1);
    size_t below = (size_t)at, above = kn_min(below + 1, n - 1);
    return values[below] + (at - (double)below) * (values[above] - values[below]);
}

static kn_store_range range_of(double *values, size_t n) {
    qsort(values, n, sizeof *values, ascending);
    return (kn_store_range){quantile(values, n, 0.5), quantile(values, n, 0.95)};
}

// A token's neighbours, as a search for k would have found them.
static kn_neighborhood neighbors_of(const kn_tuning *t, size_t store, size_t sample, size_t k) {
    const kn_kept *kept = &t->kept[store];
    size_t token = sample * t->seen_step;
    return (kn_neighborhood){kept->distances + token * kept->k, t->values[store] + sample * kept->k, NULL,
                             kn_min(k, kept->counts[token]), 0};
}

knnlm_status kn_tune_see(const kn_tuning *t, size_t store, double temperature, size_t k, kn_store_seen *out) {
    size_t samples = (t->n + t->seen_step - 1) / t->seen_step, n = 0;
    double *distances = kn_alloc(samples, sizeof *distances),
           *entropies = kn_alloc(samples, sizeof *entropies);
    kn_value_share *scratch = kn_alloc(2 * k, sizeof *scratch);
    bool room = distances && entropies && scratch;
    *out = (kn_store_seen){0};
    for (size_t i = 0; room && i < samples; i++) {
        kn_neighborhood near = neighbors_of(t, store, i, k);
        if (near.count == 0) continue;
        distances[n] = (double)near.distances[0];
        entropies[n++] = kn_neighborhood_entropy(&near, temperature, scratch);
    }
    if (n) *out = (kn_store_seen){true, range_of(distances, n), range_of(entropies, n)};
    free(distances);
    free(entropies);
    free(scratch);
    return room ? KNNLM_OK : KNNLM_ENOMEM;
}
