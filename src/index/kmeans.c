// The rounds of k-means.
//
// What large problems do instead of n x clusters x d products a round (SAMPLE and the rest were chosen by the
// objective reached in a given time, on one mixture and one set of real keys, one seed each):
//   1. They start on a sample, SAMPLE points a cluster. A good start is worth more than many rounds after a
//      poor one, and fewer points a cluster make a poor one.
//   2. All points are assigned once. In the rounds that follow a point looks only at the centroids nearest to
//      its present one (kmeans_near.c): points hardly ever change to a far cluster.
//   3. All this in the SUBSPACE directions of largest spread; only the LAST rounds are made in all
//   dimensions.
#include "index/kmeans_parts.h"

#include "base/threads.h"
#include "math/math.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUBSPACE = 128, SAMPLE = 16, LAST = 3 };

// With fewer clusters the short cuts gain little.
enum { CLUSTERS_LARGE = 512 };

kn_kmeans_options kn_kmeans_defaults(size_t clusters) {
    return (kn_kmeans_options){.clusters = clusters, .iterations = 10, .seed = 1, .plusplus = true};
}

// ---------------------------------------------------------------- checking

enum { CHECK_ROWS = 1024 };

typedef struct checking {
    const float *x;
    size_t n, d;
    size_t *bad; // a task: its first bad row, or n
} checking;

static bool usable(const float *x, size_t d) {
    return kn_math_kernels(KNNLM_PRECISION_F32)->sum_squares(x, d) < (double)FLT_MAX / 16;
}

static void check_rows(void *context, size_t task, int worker) {
    const checking *c = context;
    size_t row = task * CHECK_ROWS, last = kn_min(row + CHECK_ROWS, c->n);
    (void)worker;
    while (row < last && usable(c->x + row * c->d, c->d)) row++;
    c->bad[task] = row < last ? row : c->n;
}

static knnlm_status check_points(const float *x, size_t n, size_t d) {
    size_t tasks = (n + CHECK_ROWS - 1) / CHECK_ROWS, bad = n;
    checking c = {x, n, d, kn_alloc(tasks, sizeof *c.bad)};
    if (!c.bad) return KNNLM_ENOMEM;
    kn_parallel(tasks, check_rows, &c);
    for (size_t t = 0; t < tasks; t++) bad = kn_min(bad, c.bad[t]);
    free(c.bad);
    if (bad == n) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "k-means: point %zu is not finite, or too large to be squared", bad);
}

static knnlm_status check(const float *x, size_t n, size_t d, const kn_kmeans_options *o) {
    if (!n || !d || !o->clusters || o->iterations < 1 || n >= UINT32_MAX || o->clusters > INT32_MAX)
        return kn_fail(KNNLM_EINVAL, "k-means: %d rounds of %zu clusters of %zu points in %zu dimensions",
                       o->iterations, o->clusters, n, d);
    return check_points(x, n, d);
}

// ---------------------------------------------------------------- rounds

typedef struct rounds {
    const kn_kmeans_options *o;
    const kn_progress *progress;
    int made;
} rounds;

static knnlm_status report(const rounds *r, int done) {
    uint64_t total = (uint64_t)r->o->iterations;
    if (kn_progress_report(r->progress, "k-means", (uint64_t)done, total, "rounds")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "k-means: stopped after %d of %d rounds", done, r->o->iterations);
}

typedef knnlm_status assign_function(kn_clustering *c);

// Until `count` are made or no point changes.
static knnlm_status make_rounds(kn_clustering *c, rounds *r, int count, assign_function *assign) {
    for (int i = 0; i < count; i++) {
        KN_TRY(report(r, r->made));
        KN_TRY(assign(c));
        KN_TRY(kn_clustering_update(c));
        r->made++;
        if (!c->changed) break;
    }
    return KNNLM_OK;
}

static knnlm_status learn_exactly(kn_clustering *c, rounds *r) {
    KN_TRY(kn_clustering_start(c, r->o->plusplus));
    return make_rounds(c, r, r->o->iterations, kn_clustering_assign);
}

// ---------------------------------------------------------------- short cuts

// The centroids of c, from a sample of its points.
static knnlm_status learn_sample(kn_clustering *c, const rounds *r) {
    size_t count = kn_min(c->n, c->clusters * SAMPLE);
    uint32_t *numbers = kn_alloc(count, sizeof *numbers);
    float *sample = kn_alloc_aligned(count, c->d * sizeof *sample);
    kn_clustering few = {.x = sample, .n = count, .d = c->d, .clusters = c->clusters};
    knnlm_status status = numbers && sample ? kn_kmeans_draw(&c->random, c->n, count, numbers) : KNNLM_ENOMEM;
    few.spherical = c->spherical;
    few.centroids = c->centroids;
    few.random = c->random;
    if (status == KNNLM_OK) {
        kn_kmeans_gather(c->x, c->d, numbers, count, sample);
        status = kn_clustering_open(&few);
    }
    if (status == KNNLM_OK) status = kn_clustering_start(&few, r->o->plusplus);
    if (status == KNNLM_OK) status = kn_clustering_assign(&few);
    if (status == KNNLM_OK) status = kn_clustering_update(&few);
    kn_clustering_close(&few);
    kn_free_aligned(sample);
    free(numbers);
    return status;
}

static knnlm_status learn_near(kn_clustering *c, rounds *r, int count) {
    KN_TRY(report(r, 0));
    KN_TRY(learn_sample(c, r));
    KN_TRY(kn_clustering_assign(c));
    KN_TRY(kn_clustering_update(c));
    return make_rounds(c, r, count, kn_clustering_assign_near);
}

// The lists of c, learned in a subspace.
static knnlm_status learn_low(kn_clustering *c, rounds *r, int count) {
    kn_clustering low = *c;
    float *y = kn_alloc_aligned(c->n, SUBSPACE * sizeof *y);
    low.x = y;
    low.d = SUBSPACE;
    low.spherical = false;
    low.centroids = kn_alloc_aligned(c->clusters, SUBSPACE * sizeof *low.centroids);
    knnlm_status status = y && low.centroids ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = kn_kmeans_project(c->x, c->n, c->d, SUBSPACE, &low.random, y);
    if (status == KNNLM_OK) status = learn_near(&low, r, count);
    c->random = low.random;
    c->reseeded = low.reseeded;
    kn_free_aligned(y);
    kn_free_aligned(low.centroids);
    return status;
}

static knnlm_status learn_quickly(kn_clustering *c, rounds *r) {
    int last = r->o->iterations < LAST ? r->o->iterations : LAST;
    if (c->d < 2 * SUBSPACE) return learn_near(c, r, r->o->iterations);
    KN_TRY(learn_low(c, r, r->o->iterations - last));
    memset(c->centroids, 0, c->clusters * c->d * sizeof *c->centroids);
    KN_TRY(kn_clustering_update(c));
    return make_rounds(c, r, last, kn_clustering_assign_near);
}

// ---------------------------------------------------------------- learning

static void make_unit(float *x, size_t d) {
    double length = 0;
    for (size_t i = 0; i < d; i++) length += (double)x[i] * (double)x[i];
    if (length == 0) return;
    for (size_t i = 0; i < d; i++) x[i] = (float)((double)x[i] / sqrt(length));
}

// No more points than clusters.
static double repeat_points(const float *x, size_t n, size_t d, const kn_kmeans_options *o,
                            float *centroids) {
    double objective = 0;
    for (size_t c = 0; c < o->clusters; c++) {
        const float *point = x + c % n * d;
        float *own = centroids + c * d;
        memcpy(own, point, d * sizeof *own);
        if (!o->spherical) continue;
        make_unit(own, d);
        for (size_t i = 0; i < d && c < n; i++)
            objective += ((double)point[i] - (double)own[i]) * ((double)point[i] - (double)own[i]);
    }
    return objective;
}

knnlm_status kn_kmeans_learn(const float *points, size_t count, size_t d, const kn_kmeans_options *o,
                             const kn_progress *progress, float *centroids, kn_kmeans_result *result) {
    kn_kmeans_result ignored;
    double start = kn_seconds();
    if (!result) result = &ignored;
    *result = (kn_kmeans_result){0};
    KN_TRY(check(points, count, d, o));
    if (count <= o->clusters) {
        result->objective = repeat_points(points, count, d, o, centroids);
        result->seconds = kn_seconds() - start;
        return KNNLM_OK;
    }
    rounds r = {o, progress, 0};
    bool small = o->clusters < CLUSTERS_LARGE;
    kn_clustering c = {.x = points, .n = count, .d = d, .clusters = o->clusters, .centroids = centroids};
    c.spherical = o->spherical;
    c.random.state = kn_mix64(o->seed);
    knnlm_status status = kn_clustering_open(&c);
    if (status == KNNLM_OK) status = (o->exact || small ? learn_exactly : learn_quickly)(&c, &r);
    if (status == KNNLM_OK) status = report(&r, o->iterations);
    *result = (kn_kmeans_result){c.objective, r.made, c.reseeded, kn_seconds() - start};
    kn_clustering_close(&c);
    return status;
}
