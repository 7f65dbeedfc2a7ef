// Kernels against plain loops in double, for every instruction set of this CPU; and AMX's kernel everywhere,
// with its tile instructions emulated.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "math/math.h"
#include "math/top.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *random_floats(size_t n, uint64_t seed) {
    kn_random random = {seed};
    float *x = kn_alloc_aligned(n ? n : 1, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)kn_random_normal(&random);
    return x;
}

// bf16 keeps 8 bits: two operands of about 1 give products within 2^-8 of the exact ones, and sums of n
// within sqrt(n). int16 keeps steps of 1/8191 of the largest of 32: operands of at most 6 are off by 4e-4.
static double tolerance(const kn_kernels *k, size_t depth) {
    double product = k->precision == KNNLM_PRECISION_BF16    ? 0.02
                     : k->precision == KNNLM_PRECISION_INT16 ? 2e-3
                                                             : 1e-5;
    return product * sqrt((double)depth) + 1e-6;
}

static void each_kernel(void (*check)(const kn_kernels *k)) {
    size_t n;
    const kn_kernels *const *all = kn_math_available(&n);
    assert_true(n >= 1);
    assert_string_equal(all[n - 1]->name, "portable");
    for (size_t i = 0; i < n; i++) check(all[i]);
}

// ---------------------------------------------------------------- products

static void check_product(const kn_kernels *k, size_t rows, size_t columns, size_t depth, bool lhs_t,
                          bool rhs_t) {
    float *a = random_floats(rows * depth, 1), *b = random_floats(columns * depth, 2);
    float *c = random_floats(rows * columns, 3), *bias = random_floats(columns, 4);
    float *before = kn_alloc_aligned(rows * columns, sizeof *before);
    memcpy(before, c, rows * columns * sizeof *c);
    void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, rows, depth));
    kn_rhs rhs;
    assert_int_equal(kn_rhs_init(k, &rhs, columns, depth), KNNLM_OK);
    kn_lhs_pack(k, lhs, a, lhs_t ? rows : depth, rows, depth, lhs_t);
    kn_rhs_pack(k, &rhs, b, rhs_t ? columns : depth, rhs_t);
    kn_emit_matrix out = {k, c, columns, bias};
    kn_multiply(k, lhs, rows, &rhs, kn_emit_add, &out);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = (double)before[i * columns + j] + (double)bias[j];
            for (size_t d = 0; d < depth; d++)
                sum += (double)a[lhs_t ? d * rows + i : i * depth + d] *
                       (double)b[rhs_t ? d * columns + j : j * depth + d];
            if (fabs(sum - (double)c[i * columns + j]) > tolerance(k, depth))
                fail_msg("%s: %zu x %zu x %zu at (%zu, %zu): %g, not %g", k->name, rows, columns, depth, i, j,
                         (double)c[i * columns + j], sum);
        }
    kn_rhs_free(&rhs);
    kn_free_aligned(lhs);
    kn_free_aligned(a);
    kn_free_aligned(b);
    kn_free_aligned(c);
    kn_free_aligned(bias);
    kn_free_aligned(before);
}

static void check_products(const kn_kernels *k) {
    static const size_t shapes[][3] = {{1, 1, 1},     {32, 32, 32},  {33, 31, 65},  {5, 100, 7},
                                       {64, 96, 640}, {300, 40, 17}, {17, 200, 96}, {40, 33, 600}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 4; form++)
            check_product(k, shapes[i][0], shapes[i][1], shapes[i][2], form & 1, form & 2);
}

static void products_are_right(void **state) {
    (void)state;
    each_kernel(check_products);
}

// block (rows, 32) of one pair of panels, each number held against a plain sum in double, which `before`
// begins.
static void check_block(const kn_kernels *k, const float *a, const float *b, size_t rows, size_t depth,
                        bool accumulate) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), ahead[KN_CELL_SIZE] __attribute__((aligned(64)));
    char *lhs = kn_alloc_aligned(1, kn_panel_bytes(k, depth)),
         *rhs = kn_alloc_aligned(1, kn_panel_bytes(k, depth));
    for (size_t i = 0; i < KN_CELL_SIZE; i++) block[i] = ahead[i] = (float)(i % 7) - 3;
    k->pack_lhs(lhs, a, depth, rows, depth);
    k->pack_rhs(rhs, b, depth, KN_CELL, depth);
    k->multiply(block, lhs, rhs, kn_cells(depth), rows, accumulate);
    k->multiply_ahead(ahead, lhs, rhs, kn_cells(depth), rows, accumulate, rhs);
    assert_memory_equal(block, ahead, rows * KN_CELL * sizeof *block);
    for (size_t i = 0; i < rows * KN_CELL; i++) {
        double sum = accumulate ? (double)(i % 7) - 3 : 0;
        for (size_t d = 0; d < depth; d++)
            sum += (double)a[i / KN_CELL * depth + d] * (double)b[i % KN_CELL * depth + d];
        if (fabs(sum - (double)block[i]) > tolerance(k, depth))
            fail_msg("%s: %zu rows, depth %zu, at (%zu, %zu): %g, not %g", k->name, rows, depth, i / KN_CELL,
                     i % KN_CELL, (double)block[i], sum);
    }
    kn_free_aligned(lhs);
    kn_free_aligned(rhs);
}

// Every number of rows that a block can have, so every strip that the kernels are made of; depths around the
// edges of cells and of what kn_multiply passes at once.
static void check_blocks(const kn_kernels *k) {
    static const size_t depths[] = {1, 31, 32, 33, 97, 257};
    float *a = random_floats((size_t)KN_CELL * 257, 9), *b = random_floats((size_t)KN_CELL * 257, 10);
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        for (size_t rows = 1; rows <= KN_CELL; rows++)
            for (int accumulate = 0; accumulate < 2; accumulate++)
                check_block(k, a, b, rows, depths[i], accumulate);
    check_product(k, 33, 33, 255, false, false);
    check_product(k, 31, 65, 513, true, true);
    kn_free_aligned(a);
    kn_free_aligned(b);
}

static void blocks_are_right(void **state) {
    (void)state;
    each_kernel(check_blocks);
}

// Rows of zeros, of numbers too small to count, very large and very small, and with one that is not finite,
// which spoils its own row and no other.
enum { SCALED_ROWS = 5, SCALED_DEPTH = 40, SPOILED = 4 };
static const float scaled_sizes[SCALED_ROWS] = {0, 1e-35f, 1e30f, 1e-25f, 1};

static void check_scaled(const kn_kernels *k, size_t row, double got, const float *a, const float *b) {
    double sum = 0, size = (double)scaled_sizes[row];
    for (size_t d = 0; d < SCALED_DEPTH; d++) sum += (double)a[d] * (double)b[d];
    if (row == SPOILED)
        assert_true(isnan(got));
    else if (size < 1e-30)
        assert_true(got == 0);
    else if (!(fabs(got - sum) <= size * tolerance(k, SCALED_DEPTH)))
        fail_msg("%s: row %zu of size %g: %g, not %g", k->name, row, size, got, sum);
}

// x (rows, depth), packed as it is or turned.
static void pack_scaled(const kn_kernels *k, void *panel, const float *x, size_t rows, bool left,
                        bool turned) {
    float *t = test_alloc(rows * SCALED_DEPTH, sizeof *t);
    for (size_t i = 0; i < rows * SCALED_DEPTH; i++) t[i % SCALED_DEPTH * rows + i / SCALED_DEPTH] = x[i];
    if (turned)
        (left ? k->pack_lhs_t : k->pack_rhs_t)(panel, t, rows, rows, SCALED_DEPTH);
    else
        (left ? k->pack_lhs : k->pack_rhs)(panel, x, SCALED_DEPTH, rows, SCALED_DEPTH);
    free(t);
}

// Scales of int16, on either side of a product and in either form.
static void check_scales(const kn_kernels *k) {
    if (k->precision != KNNLM_PRECISION_INT16) return;
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    float *a = random_floats(SCALED_ROWS * SCALED_DEPTH, 11), *b = random_floats(KN_CELL * SCALED_DEPTH, 12);
    char *lhs = kn_alloc_aligned(1, kn_panel_bytes(k, SCALED_DEPTH)),
         *rhs = kn_alloc_aligned(1, kn_panel_bytes(k, SCALED_DEPTH));
    for (size_t i = 0; i < SCALED_ROWS * SCALED_DEPTH; i++) a[i] *= scaled_sizes[i / SCALED_DEPTH];
    a[SPOILED * SCALED_DEPTH + 35] = INFINITY;
    for (int form = 0; form < 4; form++) {
        bool left = form & 1, turned = form & 2;
        pack_scaled(k, lhs, left ? a : b, left ? SCALED_ROWS : KN_CELL, true, turned);
        pack_scaled(k, rhs, left ? b : a, left ? KN_CELL : SCALED_ROWS, false, turned);
        k->multiply(block, lhs, rhs, kn_cells(SCALED_DEPTH), left ? SCALED_ROWS : KN_CELL, false);
        for (size_t i = 0; i < SCALED_ROWS; i++)
            for (size_t j = 0; j < KN_CELL; j++)
                check_scaled(k, i, (double)block[left ? i * KN_CELL + j : j * KN_CELL + i],
                             a + i * SCALED_DEPTH, b + j * SCALED_DEPTH);
    }
    kn_free_aligned(a);
    kn_free_aligned(b);
    kn_free_aligned(lhs);
    kn_free_aligned(rhs);
}

static void scales_are_right(void **state) {
    (void)state;
    each_kernel(check_scales);
}

// A row's product does not depend on the rows beside it nor on the threads.
static void products_repeat(void **state) {
    (void)state;
    size_t n, rows = 70, columns = 50, depth = 130;
    const kn_kernels *const *all = kn_math_available(&n);
    float *a = random_floats(rows * depth, 5), *b = random_floats(columns * depth, 6);
    float *whole = random_floats(rows * columns, 0), *one = random_floats(columns, 0);
    for (size_t i = 0; i < n; i++) {
        const kn_kernels *k = all[i];
        void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, rows, depth));
        kn_rhs rhs;
        assert_int_equal(kn_rhs_init(k, &rhs, columns, depth), KNNLM_OK);
        kn_rhs_pack(k, &rhs, b, depth, false);
        kn_emit_matrix out = {k, whole, columns, NULL}, single = {k, one, columns, NULL};
        kn_lhs_pack(k, lhs, a, depth, rows, depth, false);
        assert_int_equal(kn_threads_set(3), KNNLM_OK);
        kn_multiply(k, lhs, rows, &rhs, kn_emit_set, &out);
        assert_int_equal(kn_threads_set(1), KNNLM_OK);
        for (size_t r = 0; r < rows; r++) {
            kn_lhs_pack(k, lhs, a + r * depth, depth, 1, depth, false);
            kn_multiply(k, lhs, 1, &rhs, kn_emit_set, &single);
            assert_memory_equal(one, whole + r * columns, columns * sizeof *one);
        }
        kn_rhs_free(&rhs);
        kn_free_aligned(lhs);
    }
    kn_free_aligned(a);
    kn_free_aligned(b);
    kn_free_aligned(whole);
    kn_free_aligned(one);
}

// ---------------------------------------------------------------- rows

enum { N = 77 };

static void near(const kn_kernels *k, const char *what, double got, double wanted, double relative) {
    if (!(fabs(got - wanted) <= relative * (fabs(wanted) + 1e-3)))
        fail_msg("%s: %s gives %.9g, not %.9g", k->name, what, got, wanted);
}

static void check_sums(const kn_kernels *k) {
    float *x = random_floats(N, 7), *y = random_floats(N, 8), *z = random_floats(N, 8),
          *e = random_floats(N, 7);
    double dot = 0, squares = 0, largest = -INFINITY, exps = 0;
    for (size_t i = 0; i < N; i++) {
        dot += (double)x[i] * (double)y[i];
        squares += (double)x[i] * (double)x[i];
        largest = fmax(largest, (double)x[i]);
    }
    near(k, "dot", (double)k->dot(x, y, N), dot, 1e-5);
    near(k, "sum_squares", k->sum_squares(x, N), squares, 1e-6);
    near(k, "max", (double)k->max(x, N), largest, 0);
    k->axpy(z, 0.5f, x, N);
    for (size_t i = 0; i < N; i++) near(k, "axpy", (double)z[i], (double)y[i] + 0.5 * (double)x[i], 1e-6);
    for (size_t i = 0; i < N; i++) exps += exp((double)x[i] - 2.5);
    near(k, "exp_shift", (double)k->exp_shift(e, N, 2.5f), exps, 1e-6);
    for (size_t i = 0; i < N; i++) near(k, "exp", (double)e[i], exp((double)x[i] - 2.5), 1e-6);
    kn_free_aligned(x);
    kn_free_aligned(y);
    kn_free_aligned(z);
    kn_free_aligned(e);
}

// One vector against rows of every length up to two cache lines and more, longer apart than they are.
static void check_strided_rows(const kn_kernels *k) {
    enum { ROWS = 37, APART = 150 };
    float *rows = random_floats(ROWS * APART, 9), *x = random_floats(APART, 10), *w = random_floats(ROWS, 11);
    for (size_t d = 1; d <= 140; d += d < 70 ? 1 : 23) {
        float dots[ROWS], sum[APART], before[APART];
        for (size_t i = 0; i < d; i++) before[i] = sum[i] = x[i];
        k->dots(dots, x, rows, APART, ROWS, d);
        k->add_rows(sum, w, rows, APART, ROWS, d);
        for (size_t r = 0; r < ROWS; r++) {
            double dot = 0, size = 0;
            for (size_t i = 0; i < d; i++) dot += (double)x[i] * (double)rows[r * APART + i];
            for (size_t i = 0; i < d; i++) size += fabs((double)x[i] * (double)rows[r * APART + i]);
            assert_true(fabs((double)dots[r] - dot) <= size * (double)d * 0x1p-23);
        }
        for (size_t i = 0; i < d; i++) {
            double wanted = (double)before[i], size = fabs(wanted);
            for (size_t r = 0; r < ROWS; r++) wanted += (double)w[r] * (double)rows[r * APART + i];
            for (size_t r = 0; r < ROWS; r++) size += fabs((double)w[r] * (double)rows[r * APART + i]);
            assert_true(fabs((double)sum[i] - wanted) <= size * (ROWS + 1) * 0x1p-23);
        }
    }
    kn_free_aligned(rows);
    kn_free_aligned(x);
    kn_free_aligned(w);
}

// The same bits by all kernels: as the portable ones have them.
static void check_fixed_sums(const kn_kernels *k) {
    size_t count;
    const kn_kernels *const *all = kn_math_available(&count), *plain = all[count - 1];
    float *x = random_floats(N, 7), *y = random_floats(N, 8);
    double distance = 0, product = 0;
    assert_string_equal(plain->name, "portable");
    for (size_t n = 0; n <= N; n++) {
        float a = k->fixed_distance(x, y, n), b = k->fixed_product(x, y, n);
        near(k, "fixed_distance", (double)a, distance, 1e-5);
        near(k, "fixed_product", (double)b, product, 1e-4);
        assert_true(a == plain->fixed_distance(x, y, n) && b == plain->fixed_product(x, y, n));
        if (n == N) break;
        distance += ((double)x[n] - (double)y[n]) * ((double)x[n] - (double)y[n]);
        product += (double)x[n] * (double)y[n];
    }
    kn_free_aligned(x);
    kn_free_aligned(y);
}

static void check_row_distances(const kn_kernels *k) {
    float *q = random_floats(4 * N, 3), *rows = random_floats(3 * 4 * N, 4), out[3];
    for (size_t d = 1; d <= 4 * N; d += d < 40 ? 1 : 29)
        for (int product = 0; product < 2; product++) {
            k->row_distances(out, q, rows, KN_ROWS_F32, 3, d, product);
            for (size_t r = 0; r < 3; r++) {
                double sum = 0, sizes = 0;
                for (size_t i = 0; i < d; i++) {
                    double a = (double)q[i], b = (double)rows[r * d + i];
                    double term = product ? a * b : (a - b) * (a - b);
                    sum += term;
                    sizes += fabs(term);
                }
                near(k, "row_distances", ((double)out[r] - sum) / sizes + 1, 1, 2e-6);
            }
        }
    kn_free_aligned(q);
    kn_free_aligned(rows);
}

// Of products: distances, those near enough, those that are small for their terms; then as sortable numbers.
static void check_near_and_rank(const kn_kernels *k) {
    float *products = random_floats(KN_CELL_SIZE, 5), *terms = random_floats(2 * KN_CELL, 6), limits[KN_CELL];
    float before[KN_CELL_SIZE], small = 0.5f;
    uint32_t masks[KN_CELL], smalls[KN_CELL], ids[KN_CELL];
    uint64_t items[KN_CELL + 8];
    memcpy(before, products, sizeof before);
    for (size_t i = 0; i < 2 * KN_CELL; i++) terms[i] = fabsf(terms[i]);
    for (size_t i = 0; i < KN_CELL; i++) limits[i] = 0.1f * (float)i - 1;
    for (size_t i = 0; i < KN_CELL; i++) ids[i] = (uint32_t)(1000 - 7 * i);
    k->near(products, terms, terms + KN_CELL, -2, limits, small, 29, 21, masks, smalls);
    for (size_t q = 0; q < 29; q++) {
        size_t n = 0, count = k->rank(items, products + q * KN_CELL, masks[q], q % 2 ? ids : NULL, 50, 900);
        for (size_t r = 0; r < KN_CELL; r++) {
            float d = products[q * KN_CELL + r], both = terms[r] + terms[KN_CELL + q];
            near(k, "near", (double)d, (double)both - 2 * (double)before[q * KN_CELL + r], 1e-5);
            assert_int_equal(masks[q] >> r & 1, r < 21 && d <= limits[q]);
            assert_int_equal(smalls[q] >> r & 1, r < 21 && d <= limits[q] && d < small * both);
            uint32_t id = q % 2 ? ids[r] : (uint32_t)(50 + r);
            if (!(masks[q] >> r & 1) || id >= 900) continue;
            assert_true(items[n] == kn_item_make(d, id));
            n++;
        }
        assert_int_equal(count, n);
    }
    // What overflows is not known to be far, unless nobody would look again.
    terms[3] = INFINITY;
    products[5] = NAN;
    k->near(products, terms, terms + KN_CELL, -2, limits, small, 1, KN_CELL, masks, smalls);
    assert_true(masks[0] >> 3 & smalls[0] >> 3 & masks[0] >> 5 & smalls[0] >> 5 & 1);
    k->near(products, terms, terms + KN_CELL, -2, limits, -INFINITY, 1, KN_CELL, masks, smalls);
    assert_int_equal(smalls[0], 0);
    assert_int_equal((masks[0] >> 3 | masks[0] >> 5) & 1, 0);
    kn_free_aligned(products);
    kn_free_aligned(terms);
}

static void check_exp_range(const kn_kernels *k) {
    float x[64];
    for (float base = -100; base < 80; base += 7.3f) {
        for (size_t i = 0; i < 64; i++) x[i] = base + 0.11f * (float)i;
        float y[64];
        memcpy(y, x, sizeof y);
        k->exp_shift(y, 64, 0);
        for (size_t i = 0; i < 64; i++)
            if (x[i] > -87)
                near(k, "exp", (double)y[i] / exp((double)x[i]), 1, 5e-7);
            else
                assert_true(y[i] >= 0 && (double)y[i] < 2e-38);
    }
}

// Distances as a search gives them, far from 0 and close together, at temperatures at which all weigh the
// same or none weighs much; `shift` below all of them, so that no term is 1.
static void check_exp_scale_sum(const kn_kernels *k) {
    static const size_t counts[] = {0, 1, 15, 16, 17, 1024};
    static const float scales[] = {-0.001f, -0.1f, -1, -7.3f, 0.2f};
    float *x = random_floats(1024, 15), shift = 992;
    for (size_t i = 0; i < 1024; i++) x[i] = 1000 + x[i];
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            size_t n = counts[c];
            double sum = 0;
            for (size_t i = 0; i < n; i++) sum += exp((double)scales[s] * ((double)x[i] - (double)shift));
            float got = k->exp_scale_sum(x, n, scales[s], shift);
            if (!(fabs((double)got - sum) <= 1e-6 * sum))
                fail_msg("%s: exp_scale_sum of %zu, scale %g, gives %.9g, not %.9g", k->name, n,
                         (double)scales[s], (double)got, sum);
        }
    assert_true(k->exp_scale_sum(x, 1, -0.3f, x[0]) == 1);
    x[1] = x[2] = x[0];
    x[3] = INFINITY; // no such neighbour
    assert_true(k->exp_scale_sum(x, 4, -0.3f, x[0]) == 3);
    assert_true(k->exp_scale_sum(x, 1024, -1000, 0) == 0);
    assert_true(k->exp_scale_sum(x, 1024, -0.1f, 0) == 0); // every term is about e^-100
    kn_free_aligned(x);
}

// One term at a time, down to where it counts as 0: a large exponent keeps its digits.
static void check_exp_scale_range(const kn_kernels *k) {
    for (float distance = 0; distance < 300; distance += 0.37f) {
        float x = 1000 + distance, got = k->exp_scale_sum(&x, 1, -0.3f, 1000);
        double wanted = exp(-(double)0.3f * ((double)x - 1000));
        if (wanted < exp(-87))
            assert_true(got == 0);
        else
            near(k, "exp_scale_sum", (double)got / wanted, 1, 1e-6);
    }
}

// The exponent is the same double on both sides: 4 ulp are the function's, 1 libm's, 1 the quotient's, and
// those are doubled by where in its binade a value lies.
static void check_exp_scale(const kn_kernels *k) {
    static const size_t counts[] = {0, 1, 7, 8, 17, 1024};
    static const double scales[] = {-1e-9, -0.013, -1, -7.3, -80};
    float *x = random_floats(1024, 16);
    double out[1025];
    for (size_t i = 0; i < 1024; i++) x[i] = 1000 + fabsf(x[i]);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            size_t n = counts[c];
            out[n] = 42;
            k->exp_scale(out, x, n, scales[s], 1000);
            assert_true(out[n] == 42);
            for (size_t i = 0; i < n; i++) {
                double exponent = scales[s] * ((double)x[i] - 1000), wanted = exp(exponent);
                if (exponent > -708)
                    near(k, "exp_scale", out[i] / wanted, 1, 16 * DBL_EPSILON);
                else
                    assert_true(out[i] >= 0 && out[i] < 4e-308);
            }
        }
    float far = FLT_MAX, near0 = 3;
    k->exp_scale(out, &far, 1, -1, 0);
    assert_true(out[0] == 0);
    k->exp_scale(out, &near0, 1, -1e30, 3);
    assert_true(out[0] == 1);
    kn_free_aligned(x);
}

static void check_norm(const kn_kernels *k) {
    float *x = random_floats(N, 9), *w = random_floats(N, 10), *b = random_floats(N, 11),
          *dy = random_floats(N, 12);
    float y[N], dx[N], dw[N] = {0}, db[N] = {0}, mean, inverse;
    double mu = 0, var = 0;
    for (size_t i = 0; i < N; i++) mu += (double)x[i] / N;
    for (size_t i = 0; i < N; i++) var += ((double)x[i] - mu) * ((double)x[i] - mu) / N;
    k->norm(y, &mean, &inverse, x, w, b, N, 1e-5f);
    for (size_t i = 0; i < N; i++)
        near(k, "norm", (double)y[i], ((double)x[i] - mu) / sqrt(var + 1e-5) * (double)w[i] + (double)b[i],
             1e-5);
    // The gradient of sum(dy * y) along x[j], by differences in double.
    memset(dx, 0, sizeof dx);
    k->norm_backward(dx, dy, x, w, mean, inverse, N);
    k->norm_sums(dw, db, dy, x, mean, inverse, N);
    for (size_t j = 0; j < N; j += 7) {
        double sums[2];
        for (int side = 0; side < 2; side++) {
            double step = side ? 1e-5 : -1e-5, m = mu + step / N, v = 0;
            for (size_t i = 0; i < N; i++) {
                double xi = (double)x[i] + (i == j ? step : 0);
                v += (xi - m) * (xi - m) / N;
            }
            sums[side] = 0;
            for (size_t i = 0; i < N; i++) {
                double xi = (double)x[i] + (i == j ? step : 0);
                sums[side] += (double)dy[i] * (xi - m) / sqrt(v + 1e-5) * (double)w[i];
            }
        }
        near(k, "norm_backward", (double)dx[j], (sums[1] - sums[0]) / 2e-5, 1e-3);
        near(k, "norm_sums weight", (double)dw[j], (double)dy[j] * ((double)x[j] - mu) / sqrt(var + 1e-5),
             1e-4);
        near(k, "norm_sums bias", (double)db[j], (double)dy[j], 1e-6);
    }
    kn_free_aligned(x);
    kn_free_aligned(w);
    kn_free_aligned(b);
    kn_free_aligned(dy);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void check_activations(const kn_kernels *k) {
    float x[N], y[N], d[N];
    for (size_t i = 0; i < N; i++) x[i] = -6 + 12 * (float)i / N;
    k->gelu(y, x, N);
    for (size_t i = 0; i < N; i++) assert_true(fabs((double)y[i] - gelu((double)x[i])) < 2e-6);
    for (size_t i = 0; i < N; i++) d[i] = 1;
    k->gelu_backward(d, x, N);
    for (size_t i = 0; i < N; i++) {
        double slope = (gelu((double)x[i] + 1e-5) - gelu((double)x[i] - 1e-5)) / 2e-5;
        assert_true(fabs((double)d[i] - slope) < 1e-5);
    }
    k->relu(y, x, N);
    for (size_t i = 0; i < N; i++) assert_true(y[i] == (x[i] > 0 ? x[i] : 0));
}

static void check_later_activations(const kn_kernels *k) {
    float x[N], up[N], y[N], d[N], du[N], ones[N];
    for (size_t i = 0; i < N; i++) {
        x[i] = -6 + 12 * (float)i / N;
        up[i] = 2 - 3 * (float)i / N;
        d[i] = ones[i] = 1;
    }
    k->relu2(y, x, N);
    k->relu2_backward(d, x, N);
    for (size_t i = 0; i < N; i++) {
        assert_true(y[i] == (x[i] > 0 ? x[i] * x[i] : 0));
        assert_true(d[i] == (x[i] > 0 ? 2 * x[i] : 0));
    }
    k->swiglu(y, x, up, N);
    k->swiglu_backward(d, du, ones, x, up, N);
    for (size_t i = 0; i < N; i++) {
        double g = (double)x[i], u = (double)up[i], s = 1 / (1 + exp(-g));
        near(k, "swiglu", (double)y[i], g * s * u, 1e-5);
        near(k, "swiglu by its gate", (double)d[i], u * (s + g * s * (1 - s)), 1e-5);
        near(k, "swiglu by up", (double)du[i], g * s, 1e-5);
    }
}

static void check_rotation(const kn_kernels *k) {
    enum { HALF = 19 };
    float x[2 * HALF], kept[2 * HALF], cosines[HALF], sines[HALF];
    for (size_t i = 0; i < HALF; i++) {
        cosines[i] = (float)cos(0.3 * (double)i);
        sines[i] = (float)sin(0.3 * (double)i);
    }
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        for (size_t i = 0; i < 2 * HALF; i++) x[i] = kept[i] = (float)i - 7.5f;
        k->rotate(x, cosines, sines, HALF, adjacent, 1);
        for (size_t i = 0; i < HALF; i++) {
            size_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : HALF + i;
            double c = (double)cosines[i], s = (double)sines[i];
            // Two products and a sum, each rounded: 3 units of 2^-24 of the pair's length.
            double bound = 3 * 0x1p-24 * hypot((double)kept[a], (double)kept[b]) * 1.5;
            assert_true(fabs((double)x[a] - ((double)kept[a] * c - (double)kept[b] * s)) <= bound);
            assert_true(fabs((double)x[b] - ((double)kept[a] * s + (double)kept[b] * c)) <= bound);
        }
        k->rotate(x, cosines, sines, HALF, adjacent, -1);
        for (size_t i = 0; i < 2 * HALF; i++) assert_true(fabsf(x[i] - kept[i]) < 1e-4f);
    }
}

// Blocks of scores laid [block][row][32]; row r sees the last `window` of its VISIBLE + r keys.
static void check_causal_window(const kn_kernels *k, size_t window) {
    enum { BLOCKS = 3, ROWS = 20, VISIBLE = 50 };
    float *s = random_floats(BLOCKS * KN_CELL_SIZE, 13), *again = random_floats(BLOCKS * KN_CELL_SIZE, 13);
    float *original = random_floats(BLOCKS * KN_CELL_SIZE, 13), logs[ROWS];
    k->causal_softmax(s, BLOCKS, ROWS, VISIBLE, window, logs);
    k->causal_exp(again, BLOCKS, ROWS, VISIBLE, window, logs);
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0;
        size_t end = VISIBLE + r, from = end > window ? end - window : 0;
        for (size_t c = from; c < end; c++)
            sum += exp((double)original[c / 32 * KN_CELL_SIZE + r * 32 + c % 32]);
        near(k, "causal_softmax log", (double)logs[r], log(sum), 1e-5);
        for (size_t c = 0; c < BLOCKS * 32; c++) {
            size_t at = c / 32 * KN_CELL_SIZE + r * 32 + c % 32;
            double wanted = c >= from && c < end ? exp((double)original[at]) / sum : 0;
            near(k, "causal_softmax", (double)s[at], wanted, 1e-5);
            near(k, "causal_exp", (double)again[at], wanted, 1e-5);
        }
    }
    kn_free_aligned(s);
    kn_free_aligned(again);
    kn_free_aligned(original);
}

static void check_causal_softmax(const kn_kernels *k) {
    const size_t windows[] = {SIZE_MAX, 1, 31, 32, 33, 50, 60};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) check_causal_window(k, windows[i]);
}

static void check_block_softmax(const kn_kernels *k) {
    float *block = random_floats(KN_CELL_SIZE, 14), largest[KN_CELL * 2], sum[KN_CELL * 2],
          moment[KN_CELL * 2], alone[KN_CELL * 2];
    for (size_t columns = 1; columns <= KN_CELL; columns++) {
        k->block_softmax(block, 9, columns, largest, sum, moment, 2);
        k->block_softmax(block, 9, columns, largest, alone, NULL, 2);
        for (size_t r = 0; r < 9; r++) {
            const float *x = block + r * KN_CELL;
            double best = -INFINITY, total = 0, weighted = 0;
            for (size_t c = 0; c < columns; c++) best = fmax(best, (double)x[c]);
            for (size_t c = 0; c < columns; c++) {
                total += exp((double)x[c] - best);
                weighted += ((double)x[c] - best) * exp((double)x[c] - best);
            }
            assert_true((double)largest[2 * r] == best);
            near(k, "block_softmax", (double)sum[2 * r], total, 1e-6);
            near(k, "block_softmax moment", (double)moment[2 * r], weighted, 1e-6);
            assert_true(alone[2 * r] == sum[2 * r]);
        }
    }
    kn_free_aligned(block);
}

// Rows of any length, with values far below the others (which some models give to words that must not come).
static void check_logsum(const kn_kernels *k) {
    const size_t max = 3 * KN_CELL_SIZE + 77;
    float *x = random_floats(max, 15);
    x[5] = x[40] = -3e38f;
    for (size_t n = 1; n <= max; n += n < 100 ? 1 : 331) {
        double best = -INFINITY, total = 0, spread = 0;
        float entropy, logsum = kn_logsum(k, x, n, &entropy);
        for (size_t i = 0; i < n; i++) best = fmax(best, (double)x[i]);
        for (size_t i = 0; i < n; i++) total += exp((double)x[i] - best);
        for (size_t i = 0; i < n; i++) {
            double p = exp((double)x[i] - best) / total;
            spread -= p > 0 ? p * log(p) : 0;
        }
        near(k, "logsum", (double)logsum, best + log(total), 1e-6);
        near(k, "logsum entropy", (double)entropy, spread, 1e-5);
        assert_true(kn_logsum(k, x, n, NULL) == logsum);
    }
    kn_free_aligned(x);
}

static void check_updates(const kn_kernels *k) {
    float w[N], m[N], v[N], g[N];
    for (size_t i = 0; i < N; i++)
        w[i] = m[i] = 0.1f * (float)i, v[i] = 0.01f * (float)i, g[i] = 1 - 0.02f * (float)i;
    kn_adam p = {0.5f, 0.01f, 0.9f, 0.99f, 1e-8f, 0.1f, 0.3f, 0.2f};
    k->adam(w, m, v, g, N, &p);
    for (size_t i = 0; i < N; i++) {
        double gradient = 0.5 * (1 - 0.02 * (double)i), m1 = 0.9 * 0.1 * (double)i + 0.1 * gradient;
        double v1 = 0.99 * 0.01 * (double)i + 0.01 * gradient * gradient;
        near(k, "adam", (double)w[i],
             0.1 * (double)i * (1 - 0.001) - 0.01 * (m1 / 0.3) / (sqrt(v1 / 0.2) + 1e-8), 1e-4);
    }
    for (size_t i = 0; i < N; i++) w[i] = m[i] = 0.1f * (float)i;
    kn_nesterov q = {0.5f, 0.2f, 0.9f, 2.0f, 0.0f};
    k->nesterov(w, m, g, N, &q);
    for (size_t i = 0; i < N; i++) {
        double step = -0.2 * 0.5 * (double)g[i], m1 = 0.9 * 2.0 * 0.1 * (double)i + step;
        near(k, "nesterov", (double)w[i], 0.1 * (double)i + 0.9 * m1 + step, 1e-4);
    }
}

static void check_rows(const kn_kernels *k) {
    check_sums(k);
    check_strided_rows(k);
    check_fixed_sums(k);
    check_row_distances(k);
    check_near_and_rank(k);
    check_exp_range(k);
    check_exp_scale_sum(k);
    check_exp_scale(k);
    check_exp_scale_range(k);
    check_norm(k);
    check_activations(k);
    check_causal_softmax(k);
    check_later_activations(k);
    check_rotation(k);
    check_block_softmax(k);
    check_logsum(k);
    check_updates(k);
}

static void rows_are_right(void **state) {
    (void)state;
    each_kernel(check_rows);
}

// ---------------------------------------------------------------- AMX, emulated

#if defined(__x86_64__)
#include <immintrin.h>

static uint8_t tiles[8][16][64];

static void tile_load(int t, const void *base, size_t stride) {
    for (size_t r = 0; r < 16; r++) memcpy(tiles[t][r], (const char *)base + r * stride, 64);
}

static void tile_store(int t, void *base, size_t stride) {
    for (size_t r = 0; r < 16; r++) memcpy((char *)base + r * stride, tiles[t][r], 64);
}

static float from_bf16(const uint8_t *bytes) {
    uint16_t half;
    uint32_t bits;
    float x;
    memcpy(&half, bytes, 2);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return x;
}

// TDPBF16PS as Intel's manual defines it.
static void tile_dot(int c, int a, int b) {
    for (size_t m = 0; m < 16; m++)
        for (size_t n = 0; n < 16; n++) {
            float sum;
            memcpy(&sum, &tiles[c][m][4 * n], 4);
            for (size_t k = 0; k < 32; k++)
                sum += from_bf16(&tiles[a][m][2 * k]) * from_bf16(&tiles[b][k / 2][4 * n + 2 * (k % 2)]);
            memcpy(&tiles[c][m][4 * n], &sum, 4);
        }
}

static bool tile_configured;

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadd(t, base, stride) tile_load(t, base, stride)
#define _tile_stored(t, base, stride) tile_store(t, base, stride)
#define _tile_zero(t) memset(tiles[t], 0, sizeof tiles[t])
#define _tile_dpbf16ps(c, a, b) tile_dot(c, a, b)
#define _tile_loadconfig(config) (tile_configured = ((const uint8_t *)(config))[0] == 1)
#define KN_ISA emulated
#define KN_ISA_amx 1
#include "math/isa/multiply.c"

static void emulated_amx_is_right(void **state) {
    size_t n;
    const kn_kernels *const *all = kn_math_available(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        if (all[i]->precision != KNNLM_PRECISION_BF16) continue;
        kn_kernels k = *all[i]; // its packing is AMX's too
        k.name = "emulated amx";
        k.multiply = kn_isa_multiply_emulated;
        k.multiply_ahead = kn_isa_multiply_ahead_emulated;
        assert_int_equal(kn_threads_set(1), KNNLM_OK); // one set of emulated tiles
        check_product(&k, 70, 45, 600, false, false);
        check_product(&k, 5, 100, 40, true, true);
        assert_true(tile_configured);
        return;
    }
    print_message("no bf16 kernels on this CPU: their packing cannot run here\n");
    skip();
}
#else
static void emulated_amx_is_right(void **state) {
    (void)state;
    skip();
}
#endif

// ---------------------------------------------------------------- selection

// Of `n` items, many of them equal, the parts below two pivots, judged one by one.
static void check_cut(const kn_kernels *k, size_t n, uint64_t kinds, kn_random *random) {
    uint64_t items[400], before[400], middle[400 + 8], min, max, low, high;
    size_t below_low = 0, below_high = 0, met = 0, kept = 0;
    for (size_t i = 0; i < n; i++) before[i] = items[i] = kn_random_below(random, kinds) << 40;
    low = before[kn_random_below(random, n)];
    high = low + (kn_random_below(random, kinds) << 40);
    k->item_range(items, n, &min, &max);
    for (size_t i = 0; i < n; i++) {
        assert_true(min <= items[i] && items[i] <= max);
        below_low += items[i] < low;
        below_high += items[i] < high;
    }
    assert_int_equal(k->count_below(items, n, low), below_low);
    assert_int_equal(k->count_below(items, n, high), below_high);
    assert_int_equal(k->cut_items(items, n, low, high, middle), below_low);
    for (size_t i = 0; i < n; i++) {
        if (before[i] < low) assert_true(items[kept++] == before[i]);
        if (before[i] >= low && before[i] < high) assert_true(middle[met++] == before[i]);
    }
    assert_int_equal(met, below_high - below_low);
}

static void check_find(const kn_kernels *k, size_t n, kn_random *random) {
    int32_t values[400];
    uint32_t places[400 + 16];
    size_t expected = 0;
    for (size_t i = 0; i < n; i++) values[i] = (int32_t)kn_random_below(random, 9) - 4;
    size_t found = k->find_equal(places, values, n, -3);
    for (size_t i = 0; i < n; i++)
        if (values[i] == -3) assert_int_equal(places[expected++], i);
    assert_int_equal(found, expected);
}

static void check_selection(const kn_kernels *k) {
    kn_random random = {77};
    for (size_t n = 1; n <= 400; n++) {
        check_cut(k, n, n % 3 ? 1 << 20 : 5, &random);
        check_find(k, n, &random);
    }
    assert_int_equal(k->find_equal(NULL, NULL, 0, 1), 0);
}

static void selection(void **state) {
    (void)state;
    each_kernel(check_selection);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection),
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(blocks_are_right),
        cmocka_unit_test(scales_are_right),
        cmocka_unit_test(products_repeat),
        cmocka_unit_test(rows_are_right),
        cmocka_unit_test(emulated_amx_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
