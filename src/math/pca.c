// Learns principal components from a sample, and projects vectors onto them.
#include "math/pca.h"

#include "base/threads.h"
#include "math/eigen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const kn_kernels *kernels(void) {
    return kn_math_kernels(KNNLM_PRECISION_F32);
}

// ---------------------------------------------------------------- mean

enum { MEAN_COLUMNS = 64 };

typedef struct averaging {
    const float *samples;
    size_t count, in;
    double *mean;
} averaging;

static void average_columns(void *context, size_t task, int worker) {
    const averaging *a = context;
    size_t first = task * MEAN_COLUMNS, n = kn_min(MEAN_COLUMNS, a->in - first);
    double sums[MEAN_COLUMNS] = {0};
    (void)worker;
    for (size_t r = 0; r < a->count; r++) {
        const float *x = a->samples + r * a->in + first;
        for (size_t i = 0; i < n; i++) sums[i] += (double)x[i];
    }
    for (size_t i = 0; i < n; i++) a->mean[first + i] = sums[i] / (double)a->count;
}

// Finite floats cannot overflow a sum of doubles: a mean that is not finite tells of a sample that is not.
static knnlm_status find_mean(const float *samples, size_t count, size_t in, double *mean) {
    averaging a = {samples, count, in, mean};
    size_t bad = 0;
    kn_parallel((in + MEAN_COLUMNS - 1) / MEAN_COLUMNS, average_columns, &a);
    while (bad < in && isfinite(mean[bad])) bad++;
    for (size_t r = 0; r < count && bad < in; r++)
        if (!isfinite(samples[r * in + bad]))
            return kn_fail(KNNLM_EDATA, "principal components: sample %zu is not finite in dimension %zu", r,
                           bad);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- covariance

// Samples are taken in batches that are centred and packed, in both ways that a product wants. Products over
// SUM_CELLS x 32 samples are summed in f32, these sums in f64.
enum { BATCH = 2048, SUM_CELLS = 8, TILE = 4 };

typedef struct covariance {
    const kn_kernels *k;
    const float *samples; // of this batch
    size_t rows, in, tiles;
    const double *mean;
    float *centred;
    char *lhs;
    kn_rhs rhs;
    double *sums; // (in, in): the blocks from the diagonal on to the right
} covariance;

enum { CENTRE_ROWS = 64 };

static void centre_rows(void *context, size_t task, int worker) {
    const covariance *c = context;
    size_t first = task * CENTRE_ROWS, last = kn_min(first + CENTRE_ROWS, c->rows);
    (void)worker;
    for (size_t r = first; r < last; r++)
        for (size_t i = 0; i < c->in; i++)
            c->centred[r * c->in + i] = (float)((double)c->samples[r * c->in + i] - c->mean[i]);
}

static void add_block(double *sums, size_t ld, const float *block, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < columns; i++) sums[r * ld + i] += (double)block[r * KN_CELL + i];
}

// Panels row and column of the batch multiplied over some cells of samples.
static void multiply_panels(const covariance *c, size_t row, size_t column, size_t done, size_t cells) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    size_t panel = kn_panel_bytes(c->k, c->rows), cell = c->k->cell;
    size_t top = row * KN_CELL, left = column * KN_CELL, rows = kn_min(KN_CELL, c->in - top);
    c->k->multiply(block, c->lhs + row * panel + done * cell,
                   (const char *)c->rhs.data + column * panel + done * cell, cells, rows, false);
    add_block(c->sums + top * c->in + left, c->in, block, rows, kn_min(KN_CELL, c->in - left));
}

static void multiply_tile(void *context, size_t task, int worker) {
    const covariance *c = context;
    size_t top = task / c->tiles * TILE, left = task % c->tiles * TILE, panels = kn_cells(c->in),
           cells = kn_cells(c->rows);
    (void)worker;
    if (left < top) return; // the matrix is symmetric
    for (size_t done = 0; done < cells; done += SUM_CELLS)
        for (size_t row = top; row < kn_min(top + TILE, panels); row++)
            for (size_t column = kn_max(left, row); column < kn_min(left + TILE, panels); column++)
                multiply_panels(c, row, column, done, kn_min(SUM_CELLS, cells - done));
}

static void add_batch(covariance *c) {
    c->rhs.depth = c->rows;
    kn_parallel((c->rows + CENTRE_ROWS - 1) / CENTRE_ROWS, centre_rows, c);
    kn_lhs_pack(c->k, c->lhs, c->centred, c->in, c->in, c->rows, true);
    kn_rhs_pack(c->k, &c->rhs, c->centred, c->in, true);
    kn_parallel(c->tiles * c->tiles, multiply_tile, c);
}

// Divides, and fills in what is left of the diagonal.
static knnlm_status finish_covariance(const covariance *c, size_t count) {
    for (size_t i = 0; i < c->in; i++)
        for (size_t j = i; j < c->in; j++) {
            double value = c->sums[i * c->in + j] / (double)(count - 1);
            if (!isfinite(value))
                return kn_fail(KNNLM_EDATA,
                               "principal components: samples of dimension %zu are too large to be squared",
                               i);
            c->sums[i * c->in + j] = c->sums[j * c->in + i] = value;
        }
    return KNNLM_OK;
}

static knnlm_status find_covariance(const float *samples, size_t count, size_t in, const double *mean,
                                    double *sums) {
    const kn_kernels *k = kernels();
    size_t batch = kn_min(BATCH, count);
    covariance c = {.k = k, .in = in, .mean = mean, .sums = sums, .tiles = (kn_cells(in) + TILE - 1) / TILE};
    knnlm_status status = kn_rhs_init(k, &c.rhs, in, batch);
    c.centred = kn_alloc_aligned(batch, in * sizeof *c.centred);
    c.lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, in, batch));
    if (status == KNNLM_OK && c.centred && c.lhs) {
        for (size_t done = 0; done < count; done += batch) {
            c.samples = samples + done * in;
            c.rows = kn_min(batch, count - done);
            add_batch(&c);
        }
        status = finish_covariance(&c, count);
    } else {
        status = KNNLM_ENOMEM;
    }
    kn_rhs_free(&c.rhs);
    kn_free_aligned(c.centred);
    kn_free_aligned(c.lhs);
    return status;
}

// ---------------------------------------------------------------- learning

// Of two opposite vectors the one whose largest entry is positive: which of them the eigenvectors are is an
// accident of rounding.
static void set_component(float *out, const double *vector, size_t n) {
    size_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)vector[i];
        if (fabsf(out[i]) > fabsf(out[largest])) largest = i;
    }
    if (out[largest] < 0)
        for (size_t i = 0; i < n; i++) out[i] = -out[i];
}

static knnlm_status set_components(kn_pca *p, const double *values, const double *vectors) {
    for (size_t i = 0; i < p->out; i++) {
        p->variances[i] = (float)fmax(values[i], 0); // rounding leaves a zero on either side
        if (!isfinite(p->variances[i]))
            return kn_fail(KNNLM_EDATA, "principal components: a variance of %g is too large for f32",
                           values[i]);
        set_component(p->components + i * p->in, vectors + i * p->in, p->in);
    }
    kn_pca_pack(p);
    return KNNLM_OK;
}

// scratch: mean (in), values (in), covariance (in, in), vectors (in, in).
static knnlm_status learn(const float *samples, size_t count, kn_pca *p, double *scratch) {
    size_t in = p->in;
    double *mean = scratch, *values = mean + in, *matrix = values + in, *vectors = matrix + in * in;
    KN_TRY(find_mean(samples, count, in, mean));
    memset(matrix, 0, in * in * sizeof *matrix);
    KN_TRY(find_covariance(samples, count, in, mean, matrix));
    for (size_t i = 0; i < in; i++) {
        p->mean[i] = (float)mean[i];
        p->total += matrix[i * in + i];
    }
    KN_TRY(kn_eigen_symmetric(matrix, in, values, vectors));
    return set_components(p, values, vectors);
}

knnlm_status kn_pca_learn(const float *samples, size_t count, size_t in, size_t out, kn_pca *result) {
    *result = (kn_pca){0};
    if (in > KN_PCA_MAX)
        return kn_fail(KNNLM_EINVAL, "principal components of %zu dimensions: %d are possible", in,
                       KN_PCA_MAX);
    if (out == 0 || out > in)
        return kn_fail(KNNLM_EINVAL, "%zu principal components of %zu dimensions: 1 to %zu are possible", out,
                       in, in);
    if (count < 2)
        return kn_fail(KNNLM_EINVAL, "principal components of %zu samples: at least 2 are needed", count);
    double *scratch = kn_alloc_aligned(2 * in * (in + 1), sizeof *scratch);
    knnlm_status status = scratch ? kn_pca_init(result, in, out) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = learn(samples, count, result, scratch);
    if (status != KNNLM_OK) kn_pca_free(result);
    kn_free_aligned(scratch);
    return status;
}

// ---------------------------------------------------------------- applying

// A task is 32 rows by 8 x 32 components; its depth passes by in pieces small enough for the stack. Each row
// has a place of its own in the product, so that one row alone and one among a million come out alike.
enum { APPLY_PANELS = 8, APPLY_CELLS = 16 };

typedef struct projecting {
    const kn_kernels *k;
    const kn_pca *p;
    const float *x;
    size_t rows, row_groups;
    float *y;
} projecting;

// The left panel of rows minus mean, cells [first, first + cells) of its depth. The mean is taken off before
// the product rather than its projection after it: a mean far larger than the deviations would cancel badly.
static void centre_panel(float *panel, const kn_pca *p, const float *x, size_t rows, size_t first,
                         size_t cells) {
    memset(panel, 0, cells * KN_CELL_SIZE * sizeof *panel);
    for (size_t c = 0; c < cells; c++) {
        size_t begin = (first + c) * KN_CELL, n = kn_min(KN_CELL, p->in - begin);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < n; i++)
                panel[c * KN_CELL_SIZE + r * KN_CELL + i] = x[r * p->in + begin + i] - p->mean[begin + i];
    }
}

static void project_panel(void *context, size_t task, int worker) {
    const projecting *j = context;
    const kn_pca *p = j->p;
    float panel[APPLY_CELLS * KN_CELL_SIZE] __attribute__((aligned(64)));
    float blocks[APPLY_PANELS][KN_CELL_SIZE] __attribute__((aligned(64)));
    size_t top = task % j->row_groups * KN_CELL, rows = kn_min(KN_CELL, j->rows - top);
    size_t left = task / j->row_groups * APPLY_PANELS, right = kn_min(left + APPLY_PANELS, kn_cells(p->out));
    size_t cells = kn_cells(p->in), bytes = kn_panel_bytes(j->k, p->in);
    (void)worker;
    for (size_t done = 0; done < cells; done += APPLY_CELLS) {
        size_t now = kn_min(APPLY_CELLS, cells - done);
        centre_panel(panel, p, j->x + top * p->in, rows, done, now);
        for (size_t c = left; c < right; c++)
            j->k->multiply(blocks[c - left], panel,
                           (const char *)p->packed.data + c * bytes + done * j->k->cell, now, rows, done > 0);
    }
    for (size_t c = left; c < right; c++)
        j->k->store(j->y + top * p->out + c * KN_CELL, p->out, blocks[c - left], NULL, rows,
                    kn_min(KN_CELL, p->out - c * KN_CELL), false);
}

void kn_pca_apply(const kn_pca *p, const float *x, size_t rows, float *y) {
    projecting j = {kernels(), p, x, rows, kn_cells(rows), y};
    size_t column_groups = (kn_cells(p->out) + APPLY_PANELS - 1) / APPLY_PANELS;
    kn_parallel(j.row_groups * column_groups, project_panel, &j);
}

// ---------------------------------------------------------------- making and freeing

knnlm_status kn_pca_init(kn_pca *p, size_t in, size_t out) {
    size_t entries;
    *p = (kn_pca){.in = in, .out = out};
    if (!kn_mul(in, out, &entries))
        return kn_fail(KNNLM_ENOMEM, "a projection of %zu by %zu overflows", out, in);
    p->mean = kn_alloc(in, sizeof *p->mean);
    p->components = kn_alloc(entries, sizeof *p->components);
    p->variances = kn_alloc(out, sizeof *p->variances);
    knnlm_status status = p->mean && p->components && p->variances ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = kn_rhs_init(kernels(), &p->packed, out, in);
    if (status != KNNLM_OK) kn_pca_free(p);
    return status;
}

void kn_pca_pack(kn_pca *p) {
    kn_rhs_pack(kernels(), &p->packed, p->components, p->in, false);
}

void kn_pca_free(kn_pca *p) {
    free(p->mean);
    free(p->components);
    free(p->variances);
    kn_rhs_free(&p->packed);
    *p = (kn_pca){0};
}
