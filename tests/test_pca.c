// Eigenvectors, principal components and projections on disk: against numpy, against what defines them, and
// against damaged files.
#include "expect.h"

#include "base/file.h"
#include "base/gguf.h"
#include "base/random.h"
#include "base/threads.h"
#include "index/projection.h"
#include "math/eigen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char PATH[] = "test_pca.tmp.gguf";

static void *memory(size_t count, size_t size) {
    void *result = calloc(count ? count : 1, size); // exact sizes, so that sanitizers see any step outside
    assert_non_null(result);
    return result;
}

// ---------------------------------------------------------------- eigenvectors

typedef struct problem {
    size_t n;
    double *matrix, *values, *vectors;
} problem;

static problem solved(const double *matrix, size_t n) {
    problem p = {n, memory(n * n, sizeof(double)), memory(n, sizeof(double)), memory(n * n, sizeof(double))};
    memcpy(p.matrix, matrix, n * n * sizeof *matrix);
    OK(kn_eigen_symmetric(p.matrix, n, p.values, p.vectors));
    memcpy(p.matrix, matrix, n * n * sizeof *matrix);
    return p;
}

static void release(problem *p) {
    free(p->matrix);
    free(p->values);
    free(p->vectors);
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double largest_entry(const double *x, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

// A v = lambda v, the v orthonormal, the values descending: to rounding in proportion to the matrix's size.
static void check_solution(const char *what, const problem *p) {
    size_t n = p->n;
    double size = largest_entry(p->matrix, n * n), allowed = 1e-14 * sqrt((double)n) + 1e-15;
    for (size_t i = 0; i < n; i++) {
        const double *v = p->vectors + i * n;
        if (i > 0) assert_true(p->values[i] <= p->values[i - 1]);
        for (size_t j = 0; j < n; j++) {
            double residual = dot(p->matrix + j * n, v, n) - p->values[i] * v[j];
            if (!(fabs(residual) <= size * allowed * sqrt((double)n)))
                fail_msg("%s of %zu: vector %zu is off by %g at %zu", what, n, i, residual, j);
        }
        for (size_t j = 0; j <= i; j++)
            if (!(fabs(dot(v, p->vectors + j * n, n) - (i == j)) <= allowed))
                fail_msg("%s of %zu: vectors %zu and %zu: %g", what, n, i, j, dot(v, p->vectors + j * n, n));
    }
}

static void check_matrix(const char *what, const double *matrix, size_t n) {
    problem p = solved(matrix, n);
    check_solution(what, &p);
    release(&p);
}

static void fill_random(double *matrix, size_t n, uint64_t seed) {
    kn_random random = {seed};
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) matrix[i * n + j] = matrix[j * n + i] = kn_random_normal(&random);
}

static void random_matrices(void **state) {
    (void)state;
    for (size_t n = 1; n <= 200; n++) {
        double *matrix = memory(n * n, sizeof *matrix);
        fill_random(matrix, n, n);
        check_matrix("random", matrix, n);
        free(matrix);
    }
}

// matrix = sum over i of values[i] q_i q_i', the q being the eigenvectors of another matrix.
static void fill_with_values(double *matrix, const double *values, size_t n) {
    fill_random(matrix, n, 11 * n);
    problem q = solved(matrix, n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++) sum += values[k] * q.vectors[k * n + i] * q.vectors[k * n + j];
            matrix[i * n + j] = matrix[j * n + i] = sum;
        }
    release(&q);
}

static void check_values(const char *what, const double *matrix, const double *wanted, size_t n) {
    problem p = solved(matrix, n);
    check_solution(what, &p);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(p.values[i] - wanted[i]) <= 1e-13 * (1 + fabs(wanted[0]))))
            fail_msg("%s of %zu: value %zu is %g, not %g", what, n, i, p.values[i], wanted[i]);
    release(&p);
}

// The cases in which naive code divides by zero, does not converge, or gives vectors that are not orthogonal.
static void check_degenerate(size_t n) {
    double *matrix = memory(n * n, sizeof *matrix), *values = memory(n, sizeof *values);
    check_values("zero", matrix, values, n);
    for (size_t i = 0; i < n; i++) values[i] = matrix[i * n + i] = 1;
    check_values("identity", matrix, values, n);
    for (size_t i = 0; i < n; i++) values[n - 1 - i] = matrix[i * n + i] = (double)i;
    check_values("diagonal", matrix, values, n);
    for (size_t i = 0; i < n; i++) values[i] = i < n / 3 ? 5 : i < 2 * n / 3 ? 2 : -1;
    fill_with_values(matrix, values, n);
    check_values("repeated values", matrix, values, n);
    for (size_t i = 0; i < n; i++) values[i] = i == 0 ? 3 : 0;
    fill_with_values(matrix, values, n);
    check_values("rank one", matrix, values, n);
    for (size_t i = 0; i < n * n; i++) matrix[i] = 1;
    values[0] = (double)n;
    check_values("ones", matrix, values, n);
    for (size_t i = 0; i < n; i++) values[i] = pow(10, -(double)i / 4);
    fill_with_values(matrix, values, n);
    check_values("graded", matrix, values, n);
    free(matrix);
    free(values);
}

static void degenerate_matrices(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 7, 31, 32, 33, 65, 130};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_degenerate(sizes[i]);
}

// Tridiagonal matrices: 2 beside -1 has known values, Wilkinson's has pairs that agree to 14 digits.
static void tridiagonal_matrices(void **state) {
    (void)state;
    enum { N = 41 };
    double matrix[N * N] = {0}, values[N];
    for (size_t i = 0; i < N; i++) {
        matrix[i * N + i] = 2;
        if (i + 1 < N) matrix[i * N + i + 1] = matrix[(i + 1) * N + i] = -1;
        values[i] = 2 + 2 * cos(3.14159265358979323846 * (double)(i + 1) / (N + 1));
    }
    check_values("second differences", matrix, values, N);
    for (size_t i = 0; i < N; i++) {
        matrix[i * N + i] = fabs((double)i - N / 2);
        if (i + 1 < N) matrix[i * N + i + 1] = matrix[(i + 1) * N + i] = 1;
    }
    check_matrix("Wilkinson", matrix, N);
}

// Entries whose squares are subnormal: a reflection made of them would not keep lengths.
static void nearly_diagonal_matrices(void **state) {
    (void)state;
    enum { N = 9 };
    double matrix[N * N];
    for (double small = 1e-150; small > 1e-170; small *= 0.3) {
        fill_random(matrix, N, 13);
        for (size_t i = 0; i < N; i++)
            for (size_t j = 0; j < N; j++)
                if (i != j) matrix[i * N + j] *= i + j == 1 ? 0 : small;
        check_matrix("nearly diagonal", matrix, N);
    }
}

static void sizes_of_all_orders(void **state) {
    (void)state;
    enum { N = 40 };
    static const double scales[] = {1e-320, 1e-310, 1e-200, 1e-30, 1e30, 1e200, 1e305};
    double matrix[N * N], scaled[N * N];
    fill_random(matrix, N, 3);
    problem one = solved(matrix, N);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (size_t i = 0; i < N * N; i++) scaled[i] = matrix[i] * scales[s];
        problem p = solved(scaled, N);
        double precision = scales[s] < 1e-300 ? 1e-2 : 1e-13; // subnormals have few digits
        for (size_t i = 0; i < N; i++)
            assert_true(fabs(p.values[i] / scales[s] - one.values[i]) <= precision * one.values[0]);
        for (size_t i = 0; i < N; i++)
            for (size_t j = 0; j <= i; j++)
                assert_true(fabs(dot(p.vectors + i * N, p.vectors + j * N, N) - (i == j)) <= 1e-13);
        release(&p);
    }
    release(&one);
    scaled[5 * N + 7] = NAN;
    FAILS(KNNLM_EDATA, "row 5, column 7", kn_eigen_symmetric(scaled, N, matrix, matrix));
    scaled[5 * N + 7] = -INFINITY;
    FAILS(KNNLM_EDATA, "row 5, column 7", kn_eigen_symmetric(scaled, N, matrix, matrix));
    OK(kn_eigen_symmetric(NULL, 0, NULL, NULL));
}

static void eigenvectors_repeat(void **state) {
    (void)state;
    size_t n = 170;
    double *matrix = memory(n * n, sizeof *matrix);
    fill_random(matrix, n, 5);
    OK(kn_threads_set(1));
    problem one = solved(matrix, n);
    OK(kn_threads_set(3));
    problem three = solved(matrix, n);
    assert_memory_equal(one.values, three.values, n * sizeof *one.values);
    assert_memory_equal(one.vectors, three.vectors, n * n * sizeof *one.vectors);
    release(&one);
    release(&three);
    free(matrix);
}

// ---------------------------------------------------------------- numpy's answers

static const float *golden(const kn_gguf *file, const char *name, const char *part, size_t *rows,
                           size_t *columns) {
    char full[KN_GGUF_NAME_MAX];
    snprintf(full, sizeof full, "%s.%s", name, part);
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, full);
    if (!t) fail_msg("no golden tensor %s", full);
    if (columns) *columns = (size_t)t->dims[0];
    if (rows) *rows = (size_t)t->dims[1];
    return (const float *)(const void *)t->data;
}

static void assert_near(const char *what, const float *got, const float *wanted, size_t n, double tolerance) {
    double size = 0;
    for (size_t i = 0; i < n; i++) size = fmax(size, fabs((double)wanted[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)wanted[i]) <= tolerance * size))
            fail_msg("%s: %g at %zu, not %g", what, (double)got[i], i, (double)wanted[i]);
}

static void check_golden(const kn_gguf *file, const char *name) {
    size_t count, in, out;
    bool found;
    double total;
    char key[64];
    kn_pca p;
    const float *samples = golden(file, name, "samples", &count, &in);
    const float *components = golden(file, name, "components", &out, NULL);
    OK(kn_pca_learn(samples, count, in, out, &p));
    assert_near("mean", p.mean, golden(file, name, "mean", NULL, NULL), in, 1e-6);
    assert_near("variances", p.variances, golden(file, name, "variances", NULL, NULL), out, 1e-6);
    assert_near("components", p.components, components, in * out, 3e-6);
    snprintf(key, sizeof key, "%s.total", name);
    OK(kn_gguf_get_f64(file, key, &total, &found));
    assert_true(found && fabs(p.total - total) <= 1e-6 * total);
    float *y = memory(count * out, sizeof *y);
    kn_pca_apply(&p, samples, count, y);
    assert_near("projected", y, golden(file, name, "projected", NULL, NULL), count * out, 5e-6);
    free(y);
    kn_pca_free(&p);
}

static void as_numpy(void **state) {
    (void)state;
    kn_gguf *file;
    size_t n;
    OK(kn_gguf_open(KN_SOURCE_DIR "/tests/golden/pca.golden.gguf", &file));
    check_golden(file, "tall");
    check_golden(file, "wide");
    const float *given = golden(file, "eigen", "matrix", &n, NULL);
    double *matrix = memory(n * n, sizeof *matrix);
    for (size_t i = 0; i < n * n; i++) matrix[i] = (double)given[i];
    problem p = solved(matrix, n);
    for (size_t i = 0; i < n; i++) {
        double value;
        OK(kn_gguf_array_f64(file, "eigen.values", i, &value));
        assert_true(fabs(p.values[i] - value) < 1e-13);
    }
    release(&p);
    free(matrix);
    kn_gguf_close(file);
}

// ---------------------------------------------------------------- principal components

// Samples of falling variance, mixed by neighbours, far from the origin.
static float *make_samples(size_t count, size_t in, uint64_t seed) {
    kn_random random = {seed};
    float *x = memory(count * in, sizeof *x);
    for (size_t r = 0; r < count; r++) {
        double before = 0;
        for (size_t i = 0; i < in; i++) {
            double now = kn_random_normal(&random) / (1 + 0.1 * (double)i);
            x[r * in + i] = (float)(now + 0.5 * before + 10 * sin((double)i));
            before = now;
        }
    }
    return x;
}

// What is lost by going to the components and back is the variance that they leave out.
static void check_loss(size_t count, size_t in, size_t out) {
    float *x = make_samples(count, in, in), *y = memory(count * out, sizeof *y);
    double lost = 0, kept = 0;
    kn_pca p;
    OK(kn_pca_learn(x, count, in, out, &p));
    kn_pca_apply(&p, x, count, y);
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < in; i++) {
            double back = (double)p.mean[i];
            for (size_t c = 0; c < out; c++)
                back += (double)y[r * out + c] * (double)p.components[c * in + i];
            lost += ((double)x[r * in + i] - back) * ((double)x[r * in + i] - back) / (double)(count - 1);
        }
    for (size_t c = 0; c < out; c++) kept += (double)p.variances[c];
    if (!(fabs(p.total - kept - lost) <= 1e-6 * p.total))
        fail_msg("%zu of %zu: %g lost, not %g - %g", out, in, lost, p.total, kept);
    kn_pca_free(&p);
    free(x);
    free(y);
}

static void loss_is_what_was_left_out(void **state) {
    (void)state;
    check_loss(500, 40, 1);
    check_loss(500, 40, 13);
    check_loss(500, 40, 40);
    check_loss(2100, 67, 33); // more than a batch, and no whole number of cells
    check_loss(20, 50, 10);   // fewer samples than dimensions
    check_loss(2, 5, 5);
}

static void check_components(const kn_pca *p) {
    for (size_t c = 0; c < p->out; c++) {
        const float *row = p->components + c * p->in;
        size_t largest = 0;
        for (size_t i = 0; i < p->in; i++)
            if (fabsf(row[i]) > fabsf(row[largest])) largest = i;
        assert_true(row[largest] > 0);
        assert_true(p->variances[c] >= 0 && (c == 0 || p->variances[c] <= p->variances[c - 1]));
        for (size_t o = 0; o <= c; o++) {
            double sum = 0;
            for (size_t i = 0; i < p->in; i++) sum += (double)row[i] * (double)p->components[o * p->in + i];
            assert_true(fabs(sum - (o == c)) < 1e-6);
        }
    }
}

// Samples all alike, in one dimension, in fewer samples than dimensions: the components are still
// orthonormal.
static void poor_samples(void **state) {
    (void)state;
    kn_pca p;
    float same[4 * 3] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, line[3 * 2] = {0, 0, 3, 4, 6, 8},
                   one[2] = {1, 5};
    OK(kn_pca_learn(same, 4, 3, 3, &p));
    check_components(&p);
    assert_true(p.total == 0 && p.variances[0] == 0);
    kn_pca_free(&p);
    OK(kn_pca_learn(line, 3, 2, 2, &p));
    check_components(&p);
    assert_true(fabsf(p.components[0] - 0.6f) < 1e-6f && fabsf(p.components[1] - 0.8f) < 1e-6f);
    assert_true(fabsf(p.variances[0] - 25) < 1e-4f && p.variances[1] < 1e-4f);
    kn_pca_free(&p);
    OK(kn_pca_learn(one, 2, 1, 1, &p));
    assert_true(p.components[0] == 1 && p.mean[0] == 3 && p.variances[0] == 8 && p.total == 8);
    kn_pca_free(&p);
    float *few = make_samples(9, 60, 1);
    OK(kn_pca_learn(few, 9, 60, 60, &p));
    check_components(&p);
    kn_pca_free(&p);
    free(few);
}

static void wrong_arguments(void **state) {
    (void)state;
    kn_pca p;
    float *x = make_samples(30, 8, 2);
    FAILS(KNNLM_EINVAL, "9 principal components of 8 dimensions", kn_pca_learn(x, 30, 8, 9, &p));
    FAILS(KNNLM_EINVAL, "0 principal components", kn_pca_learn(x, 30, 8, 0, &p));
    FAILS(KNNLM_EINVAL, "0 principal components", kn_pca_learn(x, 30, 0, 0, &p));
    FAILS(KNNLM_EINVAL, "1 samples: at least 2", kn_pca_learn(x, 1, 8, 2, &p));
    FAILS(KNNLM_EINVAL, "0 samples: at least 2", kn_pca_learn(x, 0, 8, 2, &p));
    FAILS(KNNLM_EINVAL, "65536 are possible", kn_pca_learn(x, 2, SIZE_MAX, 2, &p));
    x[17 * 8 + 3] = NAN;
    FAILS(KNNLM_EDATA, "sample 17 is not finite in dimension 3", kn_pca_learn(x, 30, 8, 2, &p));
    x[17 * 8 + 3] = INFINITY, x[18 * 8 + 3] = -INFINITY;
    FAILS(KNNLM_EDATA, "sample 17 is not finite in dimension 3", kn_pca_learn(x, 30, 8, 2, &p));
    x[17 * 8 + 3] = 1e30f, x[18 * 8 + 3] = 0;
    FAILS(KNNLM_EDATA, "dimension 3 are too large", kn_pca_learn(x, 30, 8, 2, &p));
    for (size_t r = 0; r < 30; r++) x[r * 8 + 3] = r ? 1e19f : -1e19f;
    FAILS(KNNLM_EDATA, "too large", kn_pca_learn(x, 30, 8, 2, &p));
    assert_null(p.components); // nothing to free
    free(x);
}

// Against sums in double, for shapes that fill and that do not fill cells, pieces and groups.
static void check_apply(size_t rows, size_t in, size_t out) {
    kn_pca p;
    kn_random random = {rows + in};
    float *x = make_samples(rows, in, 4), *y = memory(rows * out, sizeof *y);
    OK(kn_pca_init(&p, in, out));
    for (size_t i = 0; i < in; i++) p.mean[i] = (float)(10 * sin((double)i));
    for (size_t i = 0; i < in * out; i++)
        p.components[i] = (float)(kn_random_normal(&random) / sqrt((double)in));
    kn_pca_pack(&p);
    kn_pca_apply(&p, x, rows, y);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < out; c++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)(x[r * in + i] - p.mean[i]) * (double)p.components[c * in + i];
            if (!(fabs(sum - (double)y[r * out + c]) <= 1e-5))
                fail_msg("%zu x %zu -> %zu at (%zu, %zu): %g, not %g", rows, in, out, r, c,
                         (double)y[r * out + c], sum);
        }
    kn_pca_free(&p);
    free(x);
    free(y);
}

static void applying_is_right(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},     {1, 64, 32},   {32, 32, 32},   {33, 65, 31},
                                       {5, 512, 256}, {40, 600, 17}, {7, 1030, 257}, {70, 300, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_apply(shapes[i][0], shapes[i][1], shapes[i][2]);
    kn_pca p;
    OK(kn_pca_init(&p, 3, 2));
    kn_pca_pack(&p);
    kn_pca_apply(&p, NULL, 0, NULL);
    kn_pca_free(&p);
}

// The same bits whatever the threads; of a row, whatever rows stand beside it.
static void components_repeat(void **state) {
    (void)state;
    size_t count = 5000, in = 170, out = 40;
    float *x = make_samples(count, in, 6), *y = memory(count * out, sizeof *y),
          *z = memory(count * out, sizeof *z);
    kn_pca one, three;
    OK(kn_threads_set(1));
    OK(kn_pca_learn(x, count, in, out, &one));
    OK(kn_threads_set(3));
    OK(kn_pca_learn(x, count, in, out, &three));
    assert_memory_equal(one.mean, three.mean, in * sizeof *one.mean);
    assert_memory_equal(one.components, three.components, in * out * sizeof *one.components);
    assert_memory_equal(one.variances, three.variances, out * sizeof *one.variances);
    assert_true(one.total == three.total);
    kn_pca_apply(&three, x, count, y);
    OK(kn_threads_set(1));
    kn_pca_apply(&one, x, count, z);
    assert_memory_equal(y, z, count * out * sizeof *y);
    for (size_t r = 0; r < count; r += 37) {
        kn_pca_apply(&one, x + r * in, 1, z);
        assert_memory_equal(z, y + r * out, out * sizeof *z);
        x[r * in + r % in] = NAN; // spoils its own row alone
    }
    kn_pca_apply(&one, x, count, z);
    for (size_t r = 0; r < count; r++)
        if (r % 37) assert_memory_equal(z + r * out, y + r * out, out * sizeof *z);
    kn_pca_free(&one);
    kn_pca_free(&three);
    free(x);
    free(y);
    free(z);
}

// ---------------------------------------------------------------- on disk

static kn_pca learned(size_t count, size_t in, size_t out) {
    kn_pca p;
    float *x = make_samples(count, in, 8);
    OK(kn_pca_learn(x, count, in, out, &p));
    free(x);
    return p;
}

static void saved_is_opened(void **state) {
    (void)state;
    kn_pca p = learned(300, 70, 37), q;
    float *x = make_samples(5, 70, 9), y[5 * 37], z[5 * 37];
    OK(kn_projection_save(PATH, &p));
    OK(kn_projection_open(PATH, &q));
    assert_true(q.in == 70 && q.out == 37 && q.total == p.total);
    assert_memory_equal(q.mean, p.mean, 70 * sizeof *p.mean);
    assert_memory_equal(q.components, p.components, 70 * 37 * sizeof *p.components);
    assert_memory_equal(q.variances, p.variances, 37 * sizeof *p.variances);
    kn_pca_apply(&p, x, 5, y);
    kn_pca_apply(&q, x, 5, z);
    assert_memory_equal(y, z, sizeof y);
    kn_pca_free(&p);
    kn_pca_free(&q);
    free(x);
    unlink(PATH);
    FAILS(KNNLM_EIO, PATH, kn_projection_open(PATH, &q));
    assert_null(q.components);
    kn_pca_free(&q); // harmless
}

// Saves `p` and expects opening it to be refused.
static void refused(const kn_pca *p, const char *text) {
    kn_pca q;
    OK(kn_projection_save(PATH, p));
    FAILS(KNNLM_EDATA, text, kn_projection_open(PATH, &q));
    assert_true(strncmp(knnlm_message(), PATH, strlen(PATH)) == 0);
    assert_null(q.components);
    unlink(PATH);
}

static void wrong_numbers_are_refused(void **state) {
    (void)state;
    kn_pca p = learned(50, 6, 4);
    float *places[] = {&p.mean[2],      &p.components[7], &p.variances[1], &p.components[9],
                       &p.variances[3], &p.variances[0],  &p.variances[3]};
    const float bad[] = {NAN, INFINITY, NAN, p.components[9] + 0.01f, -1, 0, p.variances[2] * 2};
    static const char *const texts[] = {"\"projection.mean\" is not finite at (0, 2)",
                                        "\"projection.components\" is not finite at (1, 1)",
                                        "\"projection.variances\" is not finite at (0, 1)",
                                        "not orthonormal",
                                        "variance 3 is negative",
                                        "variance 1 is negative, or larger",
                                        "variance 3 is negative, or larger"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        float good = *places[i];
        *places[i] = bad[i];
        refused(&p, texts[i]);
        *places[i] = good;
    }
    double total = p.total;
    p.total = NAN, refused(&p, "total variance");
    p.total = -total, refused(&p, "total variance");
    p.total = (double)p.variances[0], refused(&p, "total variance");
    p.total = total;
    for (size_t i = 0; i < 6; i++) p.components[6 + i] = p.components[i]; // unit length, but twice
    refused(&p, "not orthonormal");
    kn_pca_free(&p);
}

typedef struct form {
    const char *type, *total, *tensors[3];
    kn_gguf_type storage;
    int64_t in, out, means, variances;
} form;

static void refused_form(form f, const char *text) {
    kn_gguf_writer *w;
    kn_pca q;
    const int64_t dims[3][2] = {{f.means, 1}, {f.in, f.out}, {f.variances, 1}};
    OK(kn_gguf_writer_open(PATH, &w));
    if (f.type) OK(kn_gguf_put_string(w, "general.type", f.type));
    if (f.total) OK(kn_gguf_put_f64(w, f.total, 3));
    for (size_t t = 0; t < 3; t++)
        OK(kn_gguf_put_tensor(w, f.tensors[t], t == 1 ? f.storage : KN_GGUF_F32, t == 1 ? 2 : 1, dims[t]));
    for (size_t t = 0; t < 3; t++)
        for (int64_t i = 0; i < dims[t][0] * dims[t][1]; i++) OK(kn_gguf_put_data_f32(w, &(float){1}, 1));
    OK(kn_gguf_writer_commit(w));
    FAILS(KNNLM_EDATA, text, kn_projection_open(PATH, &q));
    assert_true(strncmp(knnlm_message(), PATH, strlen(PATH)) == 0);
    unlink(PATH);
}

static void wrong_forms_are_refused(void **state) {
    (void)state;
#define NAMES .tensors = {"projection.mean", "projection.components", "projection.variances"}
#define KEYS .type = "knnlm projection", .total = "projection.total"
#define SHAPE .in = 3, .out = 1, .means = 3, .variances = 1
    refused_form((form){NAMES, SHAPE, .total = "projection.total"}, "general.type");
    refused_form((form){NAMES, SHAPE, .type = "model", .total = "projection.total"}, "general.type");
    refused_form((form){NAMES, SHAPE, .type = "knnlm projection"}, "no key \"projection.total\"");
    refused_form((form){KEYS, SHAPE, .tensors = {"mean", "projection.components", "projection.variances"}},
                 "no tensor \"projection.mean\"");
    refused_form((form){KEYS, SHAPE, .tensors = {"projection.mean", "components", "projection.variances"}},
                 "no tensor \"projection.components\"");
    refused_form((form){KEYS, NAMES, SHAPE, .storage = KN_GGUF_F16}, "type 1, not f32");
    refused_form((form){KEYS, NAMES, .in = 3, .out = 4, .means = 3, .variances = 4}, "4 components of 3");
    refused_form((form){KEYS, NAMES, .in = 3, .out = 1, .means = 2, .variances = 1}, "mean\" is 1 x 2");
    refused_form((form){KEYS, NAMES, .in = 3, .out = 1, .means = 3, .variances = 2}, "variances\" is 1 x 2");
    refused_form((form){KEYS, NAMES, .in = 70000, .out = 1, .means = 70000, .variances = 1}, "too many");
    refused_form((form){KEYS, NAMES, SHAPE}, "not orthonormal"); // all that is wrong: ones
}

static void write_bytes(const char *data, size_t size) {
    FILE *file = fopen(PATH, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// An error that names the file, or a projection of the same shape; true when it opened.
static bool open_damaged(const char *data, size_t size) {
    kn_pca p;
    write_bytes(data, size);
    knnlm_status status = kn_projection_open(PATH, &p);
    if (status != KNNLM_OK) {
        assert_true(status == KNNLM_EDATA || status == KNNLM_ENOTSUP);
        assert_true(strncmp(knnlm_message(), PATH, strlen(PATH)) == 0);
        return false;
    }
    assert_true(p.in == 5 && p.out == 3);
    kn_pca_free(&p);
    return true;
}

static void damaged_files(void **state) {
    (void)state;
    static const unsigned char masks[] = {0xff, 1, 2, 4, 8, 16, 32, 64, 128};
    kn_pca p = learned(40, 5, 3);
    char *data;
    size_t size;
    OK(kn_projection_save(PATH, &p));
    OK(kn_file_read(PATH, &data, &size));
    assert_true(open_damaged(data, size));
    for (size_t i = 0; i < size; i++)
        for (size_t m = 0; m < sizeof masks; m++) {
            char good = data[i];
            data[i] = (char)(good ^ masks[m]);
            open_damaged(data, size);
            data[i] = good;
        }
    for (size_t i = 0; i + 32 < size; i++) assert_false(open_damaged(data, i)); // the last 32 hold padding
    free(data);
    kn_pca_free(&p);
    unlink(PATH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_matrices),
        cmocka_unit_test(degenerate_matrices),
        cmocka_unit_test(tridiagonal_matrices),
        cmocka_unit_test(nearly_diagonal_matrices),
        cmocka_unit_test(sizes_of_all_orders),
        cmocka_unit_test(eigenvectors_repeat),
        cmocka_unit_test(as_numpy),
        cmocka_unit_test(loss_is_what_was_left_out),
        cmocka_unit_test(poor_samples),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(applying_is_right),
        cmocka_unit_test(components_repeat),
        cmocka_unit_test(saved_is_opened),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(wrong_forms_are_refused),
        cmocka_unit_test(damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
