// Products of int8 keys with queries of 16 bits: every kernel of this CPU against sums in 64 bits, distances
// to the bit against the definition, at the ends of what integers hold.
#include "expect.h"

#include "base/random.h"
#include "math/math.h"
#include "math/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = KN_CELL, QUERIES = KN_CELL, D_MAX = 1100 };

static int8_t rows[ROWS * D_MAX];
static float queries[QUERIES][D_MAX], scales[ROWS], steps[QUERIES];
static int16_t whole[QUERIES][D_MAX + KN_INTEGER_DEPTH];

// Ordinary rows and queries; rows of -128 alone, queries of one sign, of one large number, of nothing.
static void draw(size_t d, uint64_t seed) {
    kn_random random = {seed};
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < d; i++)
            rows[r * d + i] = (int8_t)(r == 1   ? -128
                                       : r == 2 ? 127
                                                : (int)kn_random_below(&random, 256) - 128);
    for (size_t q = 0; q < QUERIES; q++) {
        for (size_t i = 0; i < d; i++) queries[q][i] = (float)kn_random_normal(&random);
        for (size_t i = 0; i < d && q < 3; i++)
            queries[q][i] = q == 0 ? 0.5f : q == 1 ? (i ? 1e-3f : -1e6f) : 0;
        steps[q] = kn_integers_make(queries[q], d, whole[q]);
    }
    for (size_t r = 0; r < ROWS; r++) scales[r] = r == 4 ? 0 : (float)(kn_random_unit(&random) * 0.01);
}

static int64_t product(size_t q, size_t r, size_t d) {
    int64_t sum = 0;
    for (size_t i = 0; i < d; i++) sum += (int64_t)whole[q][i] * rows[r * d + i];
    return sum;
}

static int64_t square(size_t r, size_t d) {
    int64_t sum = 0;
    for (size_t i = 0; i < d; i++) sum += (int64_t)rows[r * d + i] * rows[r * d + i];
    return sum;
}

// By the definition, each operation rounded by itself: volatile keeps the compiler from joining them.
static float distance(size_t q, size_t r, size_t d, kn_integer_form form) {
    kn_integer_query t = kn_integers_terms(whole[q], d, steps[q], form, form == KN_INTEGER_COSINE);
    double scale = (double)scales[r], length = sqrt((double)square(r, d));
    volatile double base = form == KN_INTEGER_L2 ? scale * scale * (double)square(r, d) : 0;
    volatile double factor = form != KN_INTEGER_COSINE ? scale : length > 0 ? 1 / length : 0;
    volatile double bases = t.base + base, factors = t.factor * factor;
    volatile double all = factors * (double)product(q, r, d);
    double result = bases - all;
    return (float)(result > t.min ? result : t.min);
}

// ---------------------------------------------------------------- queries

static void test_queries(void **state) {
    (void)state;
    for (size_t d = 1; d <= D_MAX; d += d < 70 ? 1 : 113) {
        draw(d, d);
        for (size_t q = 0; q < QUERIES; q++) {
            int64_t magnitudes = 0;
            for (size_t i = 0; i < d; i++) {
                double off = (double)queries[q][i] - (double)steps[q] * whole[q][i];
                assert_true(fabs(off) <= 0.5001 * (double)steps[q]);
                magnitudes += abs(whole[q][i]);
            }
            assert_true(magnitudes < 1 << 24);
            for (size_t i = d; i % KN_INTEGER_DEPTH; i++) assert_int_equal(whole[q][i], 0);
        }
    }
}

// Of one magnitude and many dimensions: the sum bounds the step, and sums of products stay below 2^31.
static void test_wide_queries(void **state) {
    enum { WIDE = 65536 };
    float *query = calloc(WIDE, sizeof *query);
    int16_t *integers = calloc(WIDE, sizeof *integers);
    (void)state;
    assert_true(query && integers);
    for (size_t i = 0; i < WIDE; i++) query[i] = i % 2 ? 3 : -3;
    float step = kn_integers_make(query, WIDE, integers);
    int64_t sum = 0;
    for (size_t i = 0; i < WIDE; i++) sum += 128 * abs(integers[i]);
    assert_true(sum <= INT32_MAX && sum > INT32_MAX / 2);
    assert_true(fabs((double)step * integers[0] + 3) <= (double)step / 2 * 1.001);
    free(query);
    free(integers);
}

// ---------------------------------------------------------------- kernels

static void check_rows(const kn_kernels *k, size_t d) {
    int32_t products[ROWS], squares[ROWS];
    for (size_t q = 0; q < QUERIES; q++) {
        k->row_integers(products, squares, whole[q], rows, ROWS, d);
        for (size_t r = 0; r < ROWS; r++) {
            assert_int_equal(products[r], product(q, r, d));
            assert_int_equal(squares[r], square(r, d));
        }
    }
}

static void check_blocks(const kn_kernels *k, size_t d, size_t n, size_t m) {
    size_t cells = kn_integer_cells(d), size = cells * KN_INTEGER_CELL;
    int16_t *panel = kn_alloc_aligned(size, sizeof *panel), *lhs = kn_alloc_aligned(size, sizeof *lhs);
    int32_t squares[ROWS], block[KN_CELL_SIZE] __attribute__((aligned(64)));
    const int8_t *at[ROWS];
    assert_true(panel && lhs);
    for (size_t r = 0; r < n; r++) at[r] = rows + r * d;
    memset(lhs, 0, size * sizeof *lhs);
    for (size_t q = 0; q < m; q++)
        for (size_t i = 0; i < d; i++)
            lhs[i / KN_INTEGER_DEPTH * KN_INTEGER_CELL + q * KN_INTEGER_DEPTH + i % KN_INTEGER_DEPTH] =
                whole[q][i];
    k->load_integers(panel, squares, at, n, d);
    k->multiply_integers(block, lhs, panel, cells, m);
    for (size_t r = 0; r < n; r++) assert_int_equal(squares[r], square(r, d));
    for (size_t q = 0; q < m; q++)
        for (size_t r = 0; r < n; r++) assert_int_equal(block[q * KN_CELL + r], product(q, r, d));
    kn_free_aligned(panel);
    kn_free_aligned(lhs);
}

static void test_products(void **state) {
    size_t count;
    const kn_kernels *const *all = kn_math_available(&count);
    (void)state;
    for (size_t d = 1; d <= D_MAX; d += d < 140 ? 1 : 97) {
        draw(d, d);
        for (size_t i = 0; i < count; i++) {
            check_rows(all[i], d);
            check_blocks(all[i], d, 1 + d % ROWS, 1 + d * 7 % QUERIES);
        }
    }
}

// The same by `rank`: those within a limit, with their ids below an end, in the order of the rows.
static void check_ranks(const kn_kernels *k, size_t q, const int32_t *products, const kn_integer_terms *t,
                        const kn_integer_query *query, size_t n, const float *want) {
    uint32_t ids[ROWS], end = 1000;
    uint64_t items[ROWS + 8];
    float limit = q % 4 == 3 ? INFINITY : want[q % n]; // that of a row itself is within
    for (size_t r = 0; r < n; r++) ids[r] = (uint32_t)(r * 37 + q * 5);
    for (int named = 0; named < 2; named++) {
        size_t found = 0,
               got = k->rank_integers(items, products, t, query, limit, named ? ids : NULL, 990, end, n);
        for (size_t r = 0; r < n; r++) {
            uint32_t id = named ? ids[r] : 990 + (uint32_t)r;
            if (want[r] <= limit && id < end) assert_true(items[found++] == kn_item_make(want[r], id));
        }
        assert_int_equal(got, found);
    }
}

// Distances to the bit.
static void check_distances(const kn_kernels *k, size_t d, size_t n, kn_integer_form form) {
    int32_t squares[ROWS], products[ROWS];
    float one[ROWS], want[ROWS];
    kn_integer_terms t;
    for (size_t r = 0; r < n; r++) squares[r] = (int32_t)square(r, d);
    k->integer_terms(&t, squares, scales, n, form);
    for (size_t q = 0; q < QUERIES; q++) {
        kn_integer_query query = kn_integers_terms(whole[q], d, steps[q], form, form == KN_INTEGER_COSINE);
        for (size_t r = 0; r < n; r++) products[r] = (int32_t)product(q, r, d);
        for (size_t r = n; r < ROWS; r++) products[r] = INT32_MAX;
        for (size_t r = 0; r < n; r++) want[r] = distance(q, r, d, form);
        k->integer_distances(one, products, &t, &query, n);
        assert_memory_equal(one, want, n * sizeof *want);
        check_ranks(k, q, products, &t, &query, n, want);
    }
}

static void test_distances(void **state) {
    const kn_integer_form forms[] = {KN_INTEGER_L2, KN_INTEGER_PRODUCT, KN_INTEGER_COSINE};
    size_t count;
    const kn_kernels *const *all = kn_math_available(&count);
    (void)state;
    for (size_t d = 1; d <= D_MAX; d += d < 20 ? 1 : 163) {
        draw(d, d + 1);
        for (size_t i = 0; i < count; i++)
            for (size_t f = 0; f < 3; f++) check_distances(all[i], d, 1 + (d * 5 + 13 * f) % ROWS, forms[f]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_wide_queries),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
