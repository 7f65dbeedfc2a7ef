// Fits a mixing weight per bin of tokens, by the distance of the nearest neighbour and the entropy.
#include "mix/tune.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Edges that cut the values of the tokens into bins of equal numbers; *bins of them afterwards.
static knnlm_status cut(const kn_bin_data *d, const float *values, size_t *bins, double *edges) {
    float *sorted = kn_alloc(d->n, sizeof *sorted);
    size_t kept = 0;
    if (!sorted) return KNNLM_ENOMEM;
    for (size_t i = 0; i < d->n; i++) sorted[i] = values[d->tokens[i]];
    qsort(sorted, d->n, sizeof *sorted, ascending);
    for (size_t b = 1; b < *bins && d->n; b++) {
        double edge = (double)sorted[b * d->n / *bins];
        if (edge > (kept ? edges[kept - 1] : (double)sorted[0])) edges[kept++] = edge;
    }
    *bins = kept + 1;
    free(sorted);
    return KNNLM_OK;
}

// The tokens of each bin, bin after bin: members, and where each bin begins (bins + 1).
static void sort_into(const kn_bin_data *d, const kn_bins *bins, uint32_t *members, size_t *starts) {
    size_t count = bins->distances * bins->entropies;
    for (size_t i = 0; i < d->n; i++) {
        size_t t = d->tokens[i];
        starts[kn_bins_place(bins, (double)d->nearest[t], (double)d->entropies[t]) + 2]++;
    }
    for (size_t b = 0; b < count; b++) starts[b + 2] += starts[b + 1];
    for (size_t i = 0; i < d->n; i++) {
        size_t t = d->tokens[i];
        members[starts[kn_bins_place(bins, (double)d->nearest[t], (double)d->entropies[t]) + 1]++] =
            (uint32_t)t;
    }
}

static knnlm_status fit_each(const kn_bin_data *d, kn_bin_room *r) {
    kn_bins bins = kn_bin_room_view(r);
    size_t count = r->distances * r->entropies, *starts = kn_alloc(count + 2, sizeof *starts);
    uint32_t *members = kn_alloc(d->n, sizeof *members);
    if (starts && members) {
        sort_into(d, &bins, members, starts);
        for (size_t b = 0; b < count; b++)
            r->lambdas[b] = kn_fit_lambda(&(kn_lambda_fit){.lm = d->lm,
                                                           .knn = d->knn,
                                                           .fixed = d->fixed,
                                                           .tokens = members + starts[b],
                                                           .n = starts[b + 1] - starts[b],
                                                           .max = d->max,
                                                           .believed = d->believed,
                                                           .prior = KN_BIN_PRIOR});
    }
    bool made = starts && members;
    free(starts);
    free(members);
    return made ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_fit_bins(const kn_bin_data *d, kn_bin_room *r) {
    KN_TRY(cut(d, d->nearest, &r->distances, r->distance_edges));
    KN_TRY(cut(d, d->entropies, &r->entropies, r->entropy_edges));
    return fit_each(d, r);
}
