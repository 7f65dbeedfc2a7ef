// The cache: what the states before a token, of the same document, make of it, for every distance; against
// the formula of the header, written here as plain loops in long double.
#include "mix_kit.h"

#include "base/random.h"
#include "base/threads.h"
#include "mix/cache.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 620, VOCABULARY = 20 };

static const size_t documents[] = {0, 1, 2, 40, 333, 334, 600};

typedef struct text {
    size_t d;
    float *keys;
    int32_t values[ROWS];
    size_t starts[ROWS];
    long double *distances; // (ROWS, ROWS), of one kind
} text;

static text text_of(size_t d, double scale) {
    text x = {.d = d,
              .keys = test_alloc(ROWS * d, sizeof(float)),
              .distances = test_alloc(ROWS * ROWS, sizeof(long double))};
    kn_random random = {37 + d};
    for (size_t i = 0; i < ROWS * d; i++) x.keys[i] = (float)(scale * (0.3 + kn_random_normal(&random)));
    for (size_t row = 0; row < ROWS; row++) {
        x.values[row] = (int32_t)kn_random_below(&random, VOCABULARY);
        for (size_t i = 0; i < COUNT(documents) && documents[i] <= row; i++) x.starts[row] = documents[i];
    }
    for (size_t j = 0; j < d; j++) x.keys[50 * d + j] = x.keys[45 * d + j]; // the same state
    for (size_t j = 0; j < d; j++) x.keys[60 * d + j] = 0;                  // none at all
    return x;
}

static void text_free(text *x) {
    free(x->keys);
    free(x->distances);
}

static void measure(text *x, knnlm_distance how) {
    for (size_t a = 0; a < ROWS; a++)
        for (size_t b = 0; b < a; b++) {
            long double product = 0, apart = 0, aa = 0, bb = 0;
            for (size_t j = 0; j < x->d; j++) {
                long double u = (long double)x->keys[a * x->d + j], v = (long double)x->keys[b * x->d + j];
                product += u * v, aa += u * u, bb += v * v, apart += (u - v) * (u - v);
            }
            x->distances[a * ROWS + b] = how == KNNLM_DISTANCE_L2   ? apart
                                         : how == KNNLM_DISTANCE_IP ? -product
                                         : aa > 0 && bb > 0         ? 1 - product / sqrtl(aa * bb)
                                                                    : 1;
        }
}

// NAN: the row sees no other.
static long double cached(const text *x, size_t row, size_t size, double temperature) {
    static long double exponents[ROWS], ones[ROWS], hits[ROWS];
    size_t n = 0;
    for (size_t i = x->starts[row]; i < row; i++) {
        if (row - i > size) continue;
        exponents[n] = -x->distances[row * ROWS + i] / (long double)temperature;
        hits[n] = x->values[i] == x->values[row];
        ones[n++] = 1;
    }
    return n ? log_sum(exponents, hits, n) - log_sum(exponents, ones, n) : NAN;
}

enum { TEMPERATURES = 3 };

static double *scored(const text *x, knnlm_distance how, size_t size, size_t first, size_t count,
                      const double *temperatures) {
    kn_cache cache = {x->keys, x->values, x->starts, x->d, size, how};
    double *out = test_alloc(TEMPERATURES * count, sizeof *out);
    OK(kn_cache_score(&cache, first, count, temperatures, TEMPERATURES, out));
    return out;
}

static void check_cache(const text *x, knnlm_distance how, size_t size, size_t first, size_t count,
                        const double *temperatures) {
    double *got = scored(x, how, size, first, count, temperatures);
    for (size_t t = 0; t < TEMPERATURES; t++)
        for (size_t i = 0; i < count; i++) {
            long double wanted = cached(x, first + i, size, temperatures[t]);
            double p = got[t * count + i];
            if (isnan(wanted) ? !isnan(p) : isinf(wanted) ? p != -INFINITY : !(fabsl(p - wanted) <= 1e-4L))
                fail_msg("distance %d, size %zu, row %zu of [%zu, + %zu), temperature %g: %.9g, not %.9Lg",
                         how, size, first + i, first, count, temperatures[t], p, wanted);
        }
    free(got);
}

static void check_text(text *x, const double temperatures[3][TEMPERATURES]) {
    static const size_t sizes[] = {0, 1, 90, 100000};
    for (int how = KNNLM_DISTANCE_L2; how <= KNNLM_DISTANCE_COSINE; how++) {
        measure(x, (knnlm_distance)how);
        for (size_t i = 0; i < COUNT(sizes); i++) {
            check_cache(x, (knnlm_distance)how, sizes[i], 0, ROWS, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 310, 40, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 30, 257, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], ROWS - 1, 1, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 100, 0, temperatures[how]);
        }
    }
}

static void the_cache_sees_its_rows(void **state) {
    (void)state;
    static const double temperatures[][TEMPERATURES] = {{1, 8, 300}, {1, 4, 1e4}, {0.005, 0.3, 5}};
    text x = text_of(24, 1);
    check_text(&x, temperatures);
    text_free(&x);
    x = text_of(67, 0.2);
    check_text(&x, temperatures);
    text_free(&x);
}

// A cosine is of directions: how long the states are does not matter.
static void cosines_of_all_sizes(void **state) {
    (void)state;
    static const double scales[] = {1e-15, 1e-7, 1e7, 1e15}, temperatures[TEMPERATURES] = {0.005, 0.3, 5};
    for (size_t i = 0; i < COUNT(scales); i++) {
        text x = text_of(16, scales[i]);
        measure(&x, KNNLM_DISTANCE_COSINE);
        check_cache(&x, KNNLM_DISTANCE_COSINE, 290, 280, 80, temperatures);
        text_free(&x);
    }
}

static void the_cache_repeats(void **state) {
    (void)state;
    static const double temperatures[TEMPERATURES] = {1, 8, 300};
    text x = text_of(40, 1);
    double *got[3];
    for (int i = 0; i < 3; i++) {
        OK(kn_threads_set(1 << i));
        got[i] = scored(&x, KNNLM_DISTANCE_L2, 200, 10, ROWS - 10, temperatures);
    }
    OK(kn_threads_set(2));
    for (int i = 1; i < 3; i++)
        assert_memory_equal(got[i], got[0], TEMPERATURES * (ROWS - 10) * sizeof *got[0]);
    for (int i = 0; i < 3; i++) free(got[i]);
    text_free(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_sees_its_rows),
        cmocka_unit_test(cosines_of_all_sizes),
        cmocka_unit_test(the_cache_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
