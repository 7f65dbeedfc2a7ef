// The coarse quantizer against a brute-force one in double precision, and k-means against what defines it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/threads.h"
#include "index/quantizer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                             \
    do {                                                                                                     \
        knnlm_status status_ = (call);                                                                       \
        if (status_ != KNNLM_OK) fail_msg("%s: %s", #call, knnlm_message());                                 \
    } while (0)
#define FAILS(status, text, call)                                                                            \
    do {                                                                                                     \
        assert_int_equal(call, status);                                                                      \
        if (!strstr(knnlm_message(), text)) fail_msg("\"%s\" is not in \"%s\"", text, knnlm_message());      \
    } while (0)

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

static double reference(kn_quantizer_metric metric, const float *x, const float *c, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        double difference = (double)x[i] - (double)c[i];
        sum += metric == KN_QUANTIZER_L2 ? difference * difference : -(double)x[i] * (double)c[i];
    }
    return sum;
}

static double length(const float *x, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// What kn_quantizer_measure may be off by.
static double allowed(kn_quantizer_metric metric, const float *x, const float *c, size_t d) {
    double size = metric == KN_QUANTIZER_L2 ? reference(metric, x, c, d) : length(x, d) * length(c, d);
    return ((double)d / 16 + 8) * 0x1p-24 * size + 1e-37;
}

// The p-th probe is as near as the p-th nearest, but for what rounding decides; no list comes twice.
static void check_probes(const kn_quantizer *q, kn_quantizer_metric metric, const float *x, size_t probes,
                         const uint32_t *lists, const float *distances) {
    size_t count = kn_quantizer_count(q), d = kn_quantizer_dimension(q);
    const float *c = kn_quantizer_centroids(q);
    char *taken = memory(count, 1);
    for (size_t p = 0; p < probes; p++) {
        assert_true(lists[p] < count);
        assert_false(taken[lists[p]]);
        const float *own = c + lists[p] * d;
        double mine = reference(metric, x, own, d), sign = metric == KN_QUANTIZER_L2 ? 1 : -1;
        assert_true(fabs(sign * (double)distances[p] - mine) <= allowed(metric, x, own, d));
        assert_true(distances[p] == kn_quantizer_measure(q, x, lists[p]));
        for (size_t i = 0; i < count; i++) {
            if (taken[i] || i == lists[p]) continue;
            float measure = kn_quantizer_measure(q, x, i);
            double other = reference(metric, x, c + i * d, d);
            assert_true(mine <= other + allowed(metric, x, own, d) + allowed(metric, x, c + i * d, d));
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

static void check_quantizer(const kn_kernels *k, kn_quantizer_metric metric, shape s) {
    kn_quantizer *q;
    float *c = make_points(s.count, s.d, s.offset, s.noise, 1),
          *x = make_points(s.n, s.d, s.offset, s.noise, 2);
    uint32_t *lists = memory(s.n, sizeof *lists), *probed = memory(s.n * s.probes, sizeof *probed);
    float *distances = memory(s.n, sizeof *distances), *far = memory(s.n * s.probes, sizeof *far);
    for (size_t i = 0; i < s.count / 3; i++) // some centroids twice: ties
        memcpy(c + (s.count - 1 - i) * s.d, c + i * s.d, s.d * sizeof *c);
    memcpy(x, c, s.d * sizeof *x);
    OK(kn_quantizer_make_with(k, c, s.count, s.d, metric, &q));
    OK(kn_quantizer_assign(q, x, s.n, lists, distances));
    OK(kn_quantizer_probe(q, x, s.n, s.probes, probed, far));
    for (size_t r = 0; r < s.n; r++) {
        check_probes(q, metric, x + r * s.d, s.probes, probed + r * s.probes, far + r * s.probes);
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
    for (size_t i = 0; i < kernels * 3; i++) {
        kn_quantizer *q;
        OK(kn_threads_set((int)(i % 3) + 1));
        OK(kn_quantizer_make_with(all[i / 3], c, COUNT, D, KN_QUANTIZER_L2, &q));
        OK(kn_quantizer_assign(q, x, N, lists, distances));
        OK(kn_quantizer_probe(q, x, N, PROBES, probes, NULL));
        if (i == 0) {
            memcpy(first, lists, N * 4), memcpy(first_probes, probes, N * PROBES * 4);
            memcpy(first_distances, distances, N * 4);
        }
        for (size_t done = 0, step = 1; done < N; done += step, step = kn_least(step * 3, N - done)) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizers_are_exact),
        cmocka_unit_test(quantizers_repeat),
        cmocka_unit_test(vectors_without_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
