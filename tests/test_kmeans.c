// The coarse quantizer against a brute-force one in double precision, and k-means against what defines it.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "index/groups.h"
#include "index/kmeans.h"
#include "index/quantizer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *memory(size_t count, size_t size) {
    void *result = calloc(count ? count : 1, size); // exact sizes, so that sanitizers see any step outside
    assert_non_null(result);
    return result;
}

// A few dense places, far from the origin: what makes rounding matter.
static float *make_points(size_t n, size_t d, double offset, double noise, uint64_t seed) {
    enum { PLACES = 40 };
    kn_random random = {seed};
    float *places = memory(PLACES * d, sizeof *places), *x = memory(n * d, sizeof *x);
    for (size_t i = 0; i < PLACES * d; i++) places[i] = (float)(offset + kn_random_normal(&random));
    for (size_t r = 0; r < n; r++) {
        const float *place = places + kn_random_below(&random, PLACES) * d;
        for (size_t i = 0; i < d; i++) x[r * d + i] = place[i] + (float)(noise * kn_random_normal(&random));
    }
    free(places);
    return x;
}

// ---------------------------------------------------------------- the quantizer

static double reference(kn_quantizer_distance distance, const float *x, const float *c, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        double difference = (double)x[i] - (double)c[i];
        sum += distance == KN_QUANTIZER_L2 ? difference * difference : -(double)x[i] * (double)c[i];
    }
    return sum;
}

static double length(const float *x, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// What kn_quantizer_measure may be off by.
static double allowed(kn_quantizer_distance distance, const float *x, const float *c, size_t d) {
    double size = distance == KN_QUANTIZER_L2 ? reference(distance, x, c, d) : length(x, d) * length(c, d);
    return ((double)d / 16 + 8) * 0x1p-24 * size + 1e-37;
}

// The p-th probe is as near as the p-th nearest, but for what rounding decides; no list comes twice.
static void check_probes(const kn_quantizer *q, kn_quantizer_distance distance, const float *x, size_t probes,
                         const uint32_t *lists, const float *distances) {
    size_t count = kn_quantizer_count(q), d = kn_quantizer_dimension(q);
    const float *c = kn_quantizer_centroids(q);
    char *taken = memory(count, 1);
    for (size_t p = 0; p < probes; p++) {
        assert_true(lists[p] < count);
        assert_false(taken[lists[p]]);
        const float *own = c + lists[p] * d;
        double mine = reference(distance, x, own, d), sign = distance == KN_QUANTIZER_L2 ? 1 : -1;
        assert_true(fabs(sign * (double)distances[p] - mine) <= allowed(distance, x, own, d));
        assert_true(distances[p] == kn_quantizer_measure(q, x, lists[p]));
        for (size_t i = 0; i < count; i++) {
            if (taken[i] || i == lists[p]) continue;
            float measure = kn_quantizer_measure(q, x, i);
            double other = reference(distance, x, c + i * d, d);
            assert_true(mine <= other + allowed(distance, x, own, d) + allowed(distance, x, c + i * d, d));
            assert_true(sign * (double)distances[p] <= sign * (double)measure);
            if (measure == distances[p]) assert_true(lists[p] < i); // ties: the lower number
        }
        taken[lists[p]] = 1;
    }
    free(taken);
}

typedef struct shape {
    size_t n, count, d, probes;
    double offset, noise;
} shape;

static void check_quantizer(const kn_kernels *k, kn_quantizer_distance distance, shape s) {
    kn_quantizer *q;
    float *c = make_points(s.count, s.d, s.offset, s.noise, 1),
          *x = make_points(s.n, s.d, s.offset, s.noise, 2);
    uint32_t *lists = memory(s.n, sizeof *lists), *probed = memory(s.n * s.probes, sizeof *probed);
    float *distances = memory(s.n, sizeof *distances), *far = memory(s.n * s.probes, sizeof *far);
    for (size_t i = 0; i < s.count / 3; i++) // some centroids twice: ties
        memcpy(c + (s.count - 1 - i) * s.d, c + i * s.d, s.d * sizeof *c);
    memcpy(x, c, s.d * sizeof *x);
    OK(kn_quantizer_make_with(k, c, s.count, s.d, distance, &q));
    OK(kn_quantizer_assign(q, x, s.n, lists, distances));
    OK(kn_quantizer_probe(q, x, s.n, s.probes, probed, far));
    for (size_t r = 0; r < s.n; r++) {
        check_probes(q, distance, x + r * s.d, s.probes, probed + r * s.probes, far + r * s.probes);
        assert_true(lists[r] == probed[r * s.probes] && distances[r] == far[r * s.probes]);
    }
    uint32_t *again = memory(s.n, sizeof *again);
    OK(kn_quantizer_assign(q, x, s.n, again, NULL));
    assert_memory_equal(again, lists, s.n * sizeof *lists);
    kn_quantizer_free(q);
    free(again);
    free(c), free(x), free(lists), free(probed), free(distances), free(far);
}

static void quantizers_are_exact(void **state) {
    (void)state;
    static const shape shapes[] = {
        {70, 200, 64, 7, 0, 0.1},  {70, 200, 64, 7, 30, 0.1},  {33, 31, 100, 31, 3, 0.001},
        {5, 1, 3, 1, 0, 1},        {40, 300, 1, 200, 0, 1},    {40, 300, 3, 9, 0, 1e-4},
        {1, 1000, 257, 32, 1, 1},  {300, 129, 33, 5, -2, 0.5}, {20, 100, 48, 10, 1e-20, 1e-21},
        {20, 40, 16, 10, 1e21, 1},
    };
    size_t n;
    const kn_kernels *const *all = kn_math_available(&n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            if (all[i]->precision == KNNLM_PRECISION_INT16) continue; // quantizers have none
            check_quantizer(all[i], KN_QUANTIZER_L2, shapes[j]);
            if (fabs(shapes[j].offset) < 1e20) check_quantizer(all[i], KN_QUANTIZER_IP, shapes[j]);
        }
}

// The same bits from every kernel, number of threads and cut of the batch.
static void quantizers_repeat(void **state) {
    (void)state;
    enum { N = 2500, COUNT = 300, D = 80, PROBES = 12 };
    float *c = make_points(COUNT, D, 1, 0.3, 3), *x = make_points(N, D, 1, 0.3, 4);
    uint32_t *first = memory(N, 4), *lists = memory(N, 4), *first_probes = memory(N * PROBES, 4),
             *probes = memory(N * PROBES, 4);
    float *distances = memory(N, 4), *first_distances = memory(N, 4);
    size_t kernels;
    const kn_kernels *const *all = kn_math_available(&kernels);
    bool begun = false;
    for (size_t i = 0; i < kernels * 3; i++) {
        if (all[i / 3]->precision == KNNLM_PRECISION_INT16) continue;
        kn_quantizer *q;
        OK(kn_threads_set((int)(i % 3) + 1));
        OK(kn_quantizer_make_with(all[i / 3], c, COUNT, D, KN_QUANTIZER_L2, &q));
        OK(kn_quantizer_assign(q, x, N, lists, distances));
        OK(kn_quantizer_probe(q, x, N, PROBES, probes, NULL));
        if (!begun) {
            begun = true;
            memcpy(first, lists, N * 4), memcpy(first_probes, probes, N * PROBES * 4);
            memcpy(first_distances, distances, N * 4);
        }
        for (size_t done = 0, step = 1; done < N; done += step, step = kn_min(step * 3, N - done)) {
            OK(kn_quantizer_assign(q, x + done * D, step, lists + done, NULL));
            OK(kn_quantizer_probe(q, x + done * D, step, PROBES, probes + done * PROBES, NULL));
        }
        assert_memory_equal(lists, first, N * 4);
        assert_memory_equal(distances, first_distances, N * 4);
        assert_memory_equal(probes, first_probes, N * PROBES * 4);
        void *scratch = kn_alloc_aligned(1, kn_quantizer_scratch_bytes(q));
        for (size_t r = 0; r < 50; r++) {
            OK(kn_quantizer_probe_one(q, x + r * D, PROBES, probes, distances, scratch));
            assert_memory_equal(probes, first_probes + r * PROBES, PROBES * 4);
        }
        kn_free_aligned(scratch);
        kn_quantizer_free(q);
    }
    OK(kn_threads_set(0));
    free(c), free(x), free(first), free(lists), free(first_probes), free(probes), free(distances);
    free(first_distances);
}

static void vectors_without_a_place(void **state) {
    (void)state;
    enum { COUNT = 50, D = 5 };
    float *c = make_points(COUNT, D, 0, 1, 5);
    float x[4][D] = {{NAN, 0, 0, 0, 0}, {0, INFINITY, 0, 0, 0}, {3e38f, 3e38f, -3e38f, 0, 0}, {0}};
    uint32_t lists[4], probes[4][COUNT];
    float distances[4];
    kn_quantizer *q;
    OK(kn_quantizer_make(c, COUNT, D, KN_QUANTIZER_L2, &q));
    OK(kn_quantizer_assign(q, x[0], 4, lists, distances));
    OK(kn_quantizer_probe(q, x[0], 4, COUNT, probes[0], NULL));
    for (size_t r = 0; r < 3; r++) {
        assert_int_equal(lists[r], 0);
        assert_false(distances[r] < INFINITY);
        for (uint32_t i = 0; i < COUNT; i++) assert_int_equal(probes[r][i], i);
    }
    assert_int_equal(lists[3], probes[3][0]);
    OK(kn_quantizer_assign(q, x[0], 0, lists, distances));
    FAILS(KNNLM_EINVAL, "0 probes", kn_quantizer_probe(q, x[0], 1, 0, lists, NULL));
    FAILS(KNNLM_EINVAL, "51 probes into 50", kn_quantizer_probe(q, x[0], 1, COUNT + 1, lists, NULL));
    kn_quantizer_free(q);
    c[7] = NAN;
    FAILS(KNNLM_EDATA, "centroid 1 is not finite in dimension 2",
          kn_quantizer_make(c, COUNT, D, KN_QUANTIZER_L2, &q));
    assert_null(q);
    FAILS(KNNLM_EINVAL, "0 lists", kn_quantizer_make(c, 0, D, KN_QUANTIZER_L2, &q));
    FAILS(KNNLM_EINVAL, "0 dimensions", kn_quantizer_make(c, 1, 0, KN_QUANTIZER_L2, &q));
    kn_quantizer_free(NULL);
    free(c);
}

// ---------------------------------------------------------------- k-means

// The sum of squared distances from points to their nearest centroids, in double precision.
static double objective(const float *x, size_t n, size_t d, const float *centroids, size_t clusters) {
    double sum = 0;
    for (size_t r = 0; r < n; r++) {
        double best = INFINITY;
        for (size_t c = 0; c < clusters; c++)
            best = fmin(best, reference(KN_QUANTIZER_L2, x + r * d, centroids + c * d, d));
        sum += best;
    }
    return sum;
}

typedef struct learned {
    float *centroids;
    kn_kmeans_result result;
    double objective;
} learned;

static learned learn(const float *x, size_t n, size_t d, kn_kmeans_options o) {
    learned l = {.centroids = memory(o.clusters * d, sizeof(float))};
    OK(kn_kmeans_learn(x, n, d, &o, NULL, l.centroids, &l.result));
    for (size_t i = 0; i < o.clusters * d; i++) assert_true(isfinite(l.centroids[i]));
    l.objective = objective(x, n, d, l.centroids, o.clusters);
    // What is reported is of lists that need not be the nearest any more.
    assert_true(l.objective <= l.result.objective * (1 + 1e-5) + 1e-9);
    return l;
}

static void rounds_never_raise_the_objective(void **state) {
    (void)state;
    static const shape shapes[] = {{900, 20, 40, 0, 0, 0.8}, {600, 50, 3, 0, 5, 0.5}, {300, 7, 1, 0, 0, 1}};
    for (size_t i = 0; i < 6; i++) {
        shape s = shapes[i / 2];
        float *x = make_points(s.n, s.d, s.offset, s.noise, i + 10);
        double before = INFINITY, spread = objective(x, s.n, s.d, x, 1);
        for (int rounds = 1; rounds < 9; rounds++) {
            kn_kmeans_options o = kn_kmeans_defaults(s.count);
            o.iterations = rounds, o.exact = true, o.plusplus = i % 2;
            learned l = learn(x, s.n, s.d, o);
            assert_true(l.result.objective <= before * (1 + 1e-6));
            assert_true(l.objective < spread && l.result.iterations <= rounds);
            before = l.result.objective;
            free(l.centroids);
        }
        free(x);
    }
}

static void separate_clusters_are_found(void **state) {
    (void)state;
    enum { N = 2000, PLACES = 40 }; // as in make_points
    static const size_t sizes[] = {2, 3, 33, 100};
    for (size_t i = 0; i < 4; i++) {
        size_t d = sizes[i];
        float *x = make_points(N, d, 2, 1e-3, 20 + i);
        kn_kmeans_options o = kn_kmeans_defaults(PLACES);
        o.iterations = 30;
        double best = INFINITY;
        for (o.seed = 1; o.seed <= 5; o.seed++) { // one start in five is lucky
            learned l = learn(x, N, d, o);
            best = fmin(best, l.objective);
            free(l.centroids);
        }
        assert_true(best < 1.1e-6 * N * (double)d);
        free(x);
    }
}

static void means_are_means(void **state) {
    (void)state;
    enum { N = 500, D = 37 };
    float *x = make_points(N, D, 3, 1, 30);
    learned l = learn(x, N, D, kn_kmeans_defaults(1));
    for (size_t i = 0; i < D; i++) {
        double sum = 0;
        for (size_t r = 0; r < N; r++) sum += (double)x[r * D + i];
        assert_true(fabs(sum / N - (double)l.centroids[i]) < 1e-6);
    }
    assert_true(fabs(l.objective - l.result.objective) < 1e-6 * l.objective);
    assert_true(l.result.iterations <= 2 && l.result.reseeded == 0);
    free(l.centroids);
    free(x);
}

// Every point has a centroid on it, whatever the clusters beyond do.
static void few_points(void **state) {
    (void)state;
    enum { D = 6 };
    static const size_t cases[][3] = {// points, different ones, clusters
                                      {10, 10, 16}, {10, 10, 10}, {1, 1, 3},
                                      {500, 9, 30}, {500, 1, 4},  {64, 9, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = cases[i][0], different = cases[i][1];
        float *x = make_points(n, D, 1, 1, 40 + i);
        for (size_t r = different; r < n; r++) memcpy(x + r * D, x + r % different * D, D * sizeof *x);
        for (int random = 0; random < 2; random++) {
            kn_kmeans_options o = kn_kmeans_defaults(cases[i][2]);
            o.plusplus = !random;
            o.iterations = 30; // time for the empty ones to find what was left
            learned l = learn(x, n, D, o);
            assert_true(l.objective < 1e-9);
            if (n <= o.clusters)
                for (size_t c = 0; c < o.clusters; c++)
                    assert_memory_equal(l.centroids + c * D, x + c % n * D, D * sizeof *x);
            free(l.centroids);
        }
        free(x);
    }
}

static void spherical_centroids(void **state) {
    (void)state;
    enum { N = 800, D = 21, CLUSTERS = 12 };
    float *x = make_points(N, D, 0.2, 0.3, 50);
    for (size_t r = 0; r < N; r++) {
        double size = length(x + r * D, D);
        for (size_t i = 0; i < D; i++) x[r * D + i] = (float)((double)x[r * D + i] / size);
    }
    double before = INFINITY;
    for (int rounds = 1; rounds < 6; rounds++) {
        kn_kmeans_options o = kn_kmeans_defaults(CLUSTERS);
        o.spherical = true, o.iterations = rounds;
        learned l = learn(x, N, D, o);
        for (size_t c = 0; c < CLUSTERS; c++) assert_true(fabs(length(l.centroids + c * D, D) - 1) < 1e-6);
        assert_true(l.result.objective <= before * (1 + 1e-6));
        before = l.result.objective;
        free(l.centroids);
    }
    kn_kmeans_options few = kn_kmeans_defaults(N);
    few.spherical = true;
    float *centroids = memory(N * D, sizeof *centroids);
    OK(kn_kmeans_learn(x, N / 2, D, &few, NULL, centroids, NULL));
    for (size_t c = 0; c < N; c++) assert_true(fabs(length(centroids + c * D, D) - 1) < 1e-6);
    free(centroids);
    free(x);
}

// Large enough for the short cuts: as good as without them, and the same bits with any number of threads.
static void short_cuts_cost_little(void **state) {
    (void)state;
    static const shape shapes[] = {{2500, 512, 90, 0, 0.5, 0.7}, {2500, 520, 270, 0, 0.5, 0.7}};
    for (size_t i = 0; i < 2; i++) {
        size_t n = shapes[i].n, d = shapes[i].d, clusters = shapes[i].count;
        float *x = make_points(n, d, 0.5, 0.7, 60 + i);
        kn_kmeans_options o = kn_kmeans_defaults(clusters);
        float *one = memory(clusters * d, sizeof *one), *other = memory(clusters * d, sizeof *other);
        kn_kmeans_result quick, exact;
        OK(kn_threads_set(1));
        OK(kn_kmeans_learn(x, n, d, &o, NULL, one, &quick));
        for (int threads = 2; threads < 4; threads++) {
            OK(kn_threads_set(threads));
            OK(kn_kmeans_learn(x, n, d, &o, NULL, other, &quick));
            assert_memory_equal(one, other, clusters * d * sizeof *one);
        }
        OK(kn_threads_set(0));
        o.exact = true;
        OK(kn_kmeans_learn(x, n, d, &o, NULL, other, &exact));
        assert_true(quick.objective <= exact.objective * 1.01);
        free(x), free(one), free(other);
    }
}

static bool stop_at(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    assert_true(done <= total && strcmp(what, "k-means") == 0 && strcmp(unit, "rounds") == 0);
    return done < *(uint64_t *)context;
}

static void wrong_arguments(void **state) {
    (void)state;
    enum { N = 300, D = 4 };
    float *x = make_points(N, D, 0, 1, 70), centroids[20 * D];
    kn_kmeans_options o = kn_kmeans_defaults(20);
    uint64_t limit = 2;
    kn_progress progress = {stop_at, &limit};
    FAILS(KNNLM_ESTOPPED, "stopped after 2 of 10 rounds",
          kn_kmeans_learn(x, N, D, &o, &progress, centroids, NULL));
    limit = 100;
    OK(kn_kmeans_learn(x, N, D, &o, &progress, centroids, NULL));
    FAILS(KNNLM_EINVAL, "0 points", kn_kmeans_learn(x, 0, D, &o, NULL, centroids, NULL));
    FAILS(KNNLM_EINVAL, "0 dimensions", kn_kmeans_learn(x, N, 0, &o, NULL, centroids, NULL));
    o.iterations = 0;
    FAILS(KNNLM_EINVAL, "0 rounds", kn_kmeans_learn(x, N, D, &o, NULL, centroids, NULL));
    o = kn_kmeans_defaults(0);
    FAILS(KNNLM_EINVAL, "0 clusters", kn_kmeans_learn(x, N, D, &o, NULL, centroids, NULL));
    o = kn_kmeans_defaults(20);
    const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (size_t i = 0; i < 4; i++) {
        x[123 * D + i] = bad[i];
        FAILS(KNNLM_EDATA, "point 123 is not finite", kn_kmeans_learn(x, N, D, &o, NULL, centroids, NULL));
        x[123 * D + i] = 0;
    }
    free(x);
}

// ---------------------------------------------------------------- groups

enum { FEW = 5, MANY = 2048, VECTORS = 9000, WIDTH = 40 };

// Lists of groups against those of the quantizer: mostly the same, never much farther, distances exact.
static void compare_groups(const kn_quantizer *q, const kn_groups *g, const float *x, double same_min) {
    uint32_t *near = memory(VECTORS, 4), *nearest = memory(VECTORS, 4);
    float *distances = memory(VECTORS, 4), *min = memory(VECTORS, 4);
    double same = 0, sum = 0, sum_min = 0;
    OK(kn_groups_assign(g, x, VECTORS, near, distances));
    OK(kn_quantizer_assign(q, x, VECTORS, nearest, min));
    for (size_t i = 0; i < VECTORS; i++) {
        assert_true(distances[i] == kn_quantizer_measure(q, x + i * WIDTH, near[i]));
        assert_true(distances[i] >= min[i]);
        same += near[i] == nearest[i];
        sum += (double)distances[i];
        sum_min += (double)min[i];
    }
    if (same < same_min * VECTORS) fail_msg("%.4f of the lists are the nearest", same / VECTORS);
    if (sum > 1.01 * sum_min) fail_msg("%.4f times as far", sum / sum_min);
    free(near);
    free(nearest);
    free(distances);
    free(min);
}

// Lists learnt in groups, and what assigns to them.
typedef struct grouped {
    float *centroids;
    uint32_t *ends;
    kn_quantizer *q;
    kn_groups *g;
} grouped;

static grouped grouped_make(const float *x, size_t lists, size_t groups) {
    grouped t = {memory(lists * WIDTH, sizeof(float)), memory(groups + 1, sizeof(uint32_t)), NULL, NULL};
    kn_kmeans_options o = kn_kmeans_defaults(lists);
    OK(kn_kmeans_learn_groups(x, VECTORS, WIDTH, groups, &o, NULL, t.centroids, t.ends));
    OK(kn_quantizer_make(t.centroids, lists, WIDTH, KN_QUANTIZER_L2, &t.q));
    OK(kn_groups_make(t.q, t.ends, groups, &t.g));
    return t;
}

static void grouped_free(grouped *t) {
    kn_groups_free(t->g);
    kn_quantizer_free(t->q);
    free(t->centroids);
    free(t->ends);
}

static void groups_find_near_lists(void **state) {
    float *x = make_points(VECTORS, WIDTH, 3, 0.7, 80);
    (void)state;
    grouped t = grouped_make(x, MANY, MANY / KN_GROUP_LISTS);
    compare_groups(t.q, t.g, x, 0.97);
    grouped_free(&t);
    t = grouped_make(x, FEW, 1); // one group: all lists
    compare_groups(t.q, t.g, x, 0.995);
    grouped_free(&t);
    free(x);
}

// Far outliers have groups of their own, with fewer points than a list has on the average: none may be
// without a list, and every vector finds one that is near.
static void groups_of_outliers_have_lists(void **state) {
    enum { LISTS = 128, GROUPS = 40, OUTLIERS = 30 };
    float *x = make_points(VECTORS, WIDTH, 3, 0.7, 81);
    (void)state;
    for (size_t i = 0; i < OUTLIERS; i++)
        for (size_t j = 0; j < WIDTH; j++)
            x[i * 7 * WIDTH + j] = (float)(j == i % WIDTH ? 1e4 * (double)(i + 1) : 0);
    grouped t = grouped_make(x, LISTS, GROUPS);
    for (size_t g = 0; g < GROUPS; g++) assert_true(t.ends[g] < t.ends[g + 1]);
    assert_int_equal(t.ends[GROUPS], LISTS);
    for (size_t i = 0; i < LISTS * WIDTH; i++) assert_true(isfinite(t.centroids[i]));
    compare_groups(t.q, t.g, x, 0.9);
    grouped_free(&t);
    free(x);
}

static double objective_of(const float *x, const float *centroids, size_t lists) {
    uint32_t *list = memory(VECTORS, sizeof *list);
    float *distances = memory(VECTORS, sizeof *distances);
    kn_quantizer *q;
    double sum = 0;
    OK(kn_quantizer_make(centroids, lists, WIDTH, KN_QUANTIZER_L2, &q));
    OK(kn_quantizer_assign(q, x, VECTORS, list, distances));
    for (size_t i = 0; i < VECTORS; i++) sum += (double)distances[i];
    kn_quantizer_free(q);
    free(list);
    free(distances);
    return sum;
}

// In two levels nearly as good as in one; every list is in one group; the same again, whatever the threads.
static void groups_are_learnt(void **state) {
    enum { LISTS = 300, GROUPS = 11 };
    float *x = make_points(VECTORS, WIDTH, 3, 0.7, 82), *flat = memory(LISTS * WIDTH, sizeof *flat);
    kn_kmeans_options o = kn_kmeans_defaults(LISTS);
    (void)state;
    OK(kn_kmeans_learn(x, VECTORS, WIDTH, &o, NULL, flat, NULL));
    grouped t = grouped_make(x, LISTS, GROUPS);
    assert_int_equal(t.ends[0], 0);
    assert_int_equal(t.ends[GROUPS], LISTS);
    for (size_t g = 0; g < GROUPS; g++) assert_true(t.ends[g] < t.ends[g + 1]);
    double one = objective_of(x, flat, LISTS), two = objective_of(x, t.centroids, LISTS);
    if (two > 1.15 * one) fail_msg("%.4f times the objective of one level", two / one);
    OK(kn_threads_set(5));
    grouped again = grouped_make(x, LISTS, GROUPS);
    OK(kn_threads_set(0));
    assert_memory_equal(t.centroids, again.centroids, LISTS * WIDTH * sizeof *flat);
    assert_memory_equal(t.ends, again.ends, (GROUPS + 1) * sizeof *t.ends);
    grouped_free(&t);
    grouped_free(&again);
    free(x);
    free(flat);
}

// Whatever the threads and what else is asked; a vector without a place has the first list.
static void groups_repeat(void **state) {
    float *x = make_points(VECTORS, WIDTH, 3, 0.7, 81), one;
    uint32_t *a = memory(VECTORS, 4), *b = memory(VECTORS, 4), list;
    float *da = memory(VECTORS, 4), *db = memory(VECTORS, 4);
    (void)state;
    grouped t = grouped_make(x, MANY, MANY / KN_GROUP_LISTS);
    const kn_groups *g = t.g;
    OK(kn_threads_set(1));
    OK(kn_groups_assign(g, x, VECTORS, a, da));
    OK(kn_threads_set(5));
    OK(kn_groups_assign(g, x, VECTORS, b, db));
    OK(kn_threads_set(0));
    assert_memory_equal(a, b, VECTORS * 4);
    assert_memory_equal(da, db, VECTORS * 4);
    for (size_t i = 0; i < VECTORS; i += 1000) {
        OK(kn_groups_assign(g, x + i * WIDTH, 1, &list, &one));
        assert_true(list == a[i] && one == da[i]);
    }
    x[3] = NAN;
    OK(kn_groups_assign(g, x, 1, &list, &one));
    assert_int_equal(list, 0);
    assert_true(isinf(one));
    grouped_free(&t);
    free(x);
    free(a);
    free(b);
    free(da);
    free(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizers_are_exact),
        cmocka_unit_test(quantizers_repeat),
        cmocka_unit_test(vectors_without_a_place),
        cmocka_unit_test(rounds_never_raise_the_objective),
        cmocka_unit_test(separate_clusters_are_found),
        cmocka_unit_test(means_are_means),
        cmocka_unit_test(few_points),
        cmocka_unit_test(spherical_centroids),
        cmocka_unit_test(short_cuts_cost_little),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(groups_find_near_lists),
        cmocka_unit_test(groups_of_outliers_have_lists),
        cmocka_unit_test(groups_are_learnt),
        cmocka_unit_test(groups_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
