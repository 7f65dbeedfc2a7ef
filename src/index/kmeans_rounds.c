// One round of k-means: points to centroids, centroids to the means of their points.
#include "index/kmeans_parts.h"

#include "base/threads.h"
#include "index/quantizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

knnlm_status kn_clustering_open(kn_clustering *c) {
    c->lists = kn_alloc(c->n, sizeof *c->lists);
    c->distances = kn_alloc(c->n, sizeof *c->distances);
    c->order = kn_alloc(c->n, sizeof *c->order);
    c->starts = kn_alloc(c->clusters + 1, sizeof *c->starts);
    c->tallies = kn_alloc(c->clusters, sizeof *c->tallies);
    if (!c->lists || !c->distances || !c->order || !c->starts || !c->tallies) return KNNLM_ENOMEM;
    memset(c->lists, 0xff, c->n * sizeof *c->lists);
    return KNNLM_OK;
}

void kn_clustering_close(kn_clustering *c) {
    free(c->lists);
    free(c->distances);
    free(c->order);
    free(c->starts);
    free(c->tallies);
}

knnlm_status kn_clustering_assign(kn_clustering *c) {
    kn_quantizer *q;
    uint32_t *lists = kn_alloc(c->n, sizeof *lists);
    if (!lists) return KNNLM_ENOMEM;
    knnlm_status status = kn_quantizer_make(c->centroids, c->clusters, c->d, KN_QUANTIZER_L2, &q);
    if (status == KNNLM_OK) status = kn_quantizer_assign(q, c->x, c->n, lists, c->distances);
    c->changed = 0;
    if (status == KNNLM_OK)
        for (size_t i = 0; i < c->n; i++) c->changed += lists[i] != c->lists[i];
    if (status == KNNLM_OK) memcpy(c->lists, lists, c->n * sizeof *lists);
    kn_quantizer_free(q);
    free(lists);
    return status;
}

// ---------------------------------------------------------------- means

static void sort_by_list(kn_clustering *c) {
    memset(c->starts, 0, (c->clusters + 1) * sizeof *c->starts);
    for (size_t i = 0; i < c->n; i++) c->starts[c->lists[i] + 1]++;
    for (size_t l = 0; l < c->clusters; l++) c->starts[l + 1] += c->starts[l];
    for (size_t i = 0; i < c->n; i++) c->order[c->starts[c->lists[i]]++] = (uint32_t)i;
    for (size_t l = c->clusters; l > 0; l--) c->starts[l] = c->starts[l - 1];
    c->starts[0] = 0;
}

typedef struct averaging {
    kn_clustering *c;
    double *sums; // d a worker
} averaging;

// Moves the centroid a to the mean m, or to m's direction u. The squared distances of its n points then sum
// to what they did about a, less n |m - a|^2, plus n |u - m|^2.
static double move_centroid(kn_clustering *c, float *centroid, double *mean, size_t n) {
    double length = 0, change = 0;
    for (size_t i = 0; i < c->d; i++) {
        mean[i] /= (double)n;
        length += mean[i] * mean[i];
    }
    double scale = c->spherical && length > 0 ? 1 / sqrt(length) : 1;
    for (size_t i = 0; i < c->d; i++) {
        double before = mean[i] - (double)centroid[i];
        centroid[i] = (float)(mean[i] * scale);
        double after = mean[i] - (double)centroid[i];
        change += after * after - before * before;
    }
    return change * (double)n;
}

// Points are summed in the order of their numbers: the same sum whatever the threads.
static void average(void *context, size_t list, int worker) {
    const averaging *a = context;
    kn_clustering *c = a->c;
    double *sums = a->sums + (size_t)worker * c->d, distances = 0;
    size_t first = c->starts[list], last = c->starts[list + 1];
    c->tallies[list] = 0;
    if (first == last) return;
    memset(sums, 0, c->d * sizeof *sums);
    for (size_t p = first; p < last; p++) {
        const float *x = c->x + c->order[p] * c->d;
        for (size_t i = 0; i < c->d; i++) sums[i] += (double)x[i];
        distances += (double)c->distances[c->order[p]];
    }
    c->tallies[list] = distances + move_centroid(c, c->centroids + list * c->d, sums, last - first);
}

// ---------------------------------------------------------------- empty clusters

size_t kn_kmeans_find(const double *sums, size_t n, double target) {
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sums[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// A point is taken with a probability in proportion to its squared distance, as in k-means++: rather where
// the error is than at an outlier. When two take the same one, the loser is empty again in the next round.
static knnlm_status reseed(kn_clustering *c) {
    size_t empty = 0;
    for (size_t l = 0; l < c->clusters; l++) empty += c->starts[l] == c->starts[l + 1];
    if (!empty) return KNNLM_OK;
    double *sums = kn_alloc(c->n, sizeof *sums), sum = 0;
    if (!sums) return KNNLM_ENOMEM;
    for (size_t i = 0; i < c->n; i++) sums[i] = sum += (double)c->distances[i];
    for (size_t l = 0; l < c->clusters && sum > 0; l++) {
        if (c->starts[l] < c->starts[l + 1]) continue;
        size_t point = kn_kmeans_find(sums, c->n, kn_random_unit(&c->random) * sum);
        memcpy(c->centroids + l * c->d, c->x + point * c->d, c->d * sizeof *c->centroids);
        c->reseeded++;
        c->changed++; // not at rest yet
    }
    free(sums);
    return KNNLM_OK;
}

knnlm_status kn_clustering_update(kn_clustering *c) {
    averaging a = {c, kn_alloc_aligned((size_t)kn_threads(), c->d * sizeof *a.sums)};
    if (!a.sums) return KNNLM_ENOMEM;
    sort_by_list(c);
    kn_parallel(c->clusters, average, &a);
    kn_free_aligned(a.sums);
    c->objective = 0;
    for (size_t l = 0; l < c->clusters; l++) c->objective += c->tallies[l];
    c->objective = fmax(c->objective, 0);
    return reseed(c);
}
