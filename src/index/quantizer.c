// Makes the coarse quantizer: packs its centroids and multiplies vectors with them.
#include "index/quantizer_parts.h"

#include "base/convert.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

// Lengths are computed in f64 and rounded; a little more makes them upper bounds.
#define ROUND_UP (1 + 0x1p-22)

// ---------------------------------------------------------------- measuring

float kn_quantizer_measure(const kn_quantizer *q, const float *x, size_t list) {
    const float *c = q->centroids + list * q->d;
    return q->distance == KN_QUANTIZER_L2 ? q->k->fixed_distance(x, c, q->d)
                                          : q->k->fixed_product(x, c, q->d);
}

// ---------------------------------------------------------------- packing

static kn_quantizer_size size_of(const kn_quantizer *q, const float *x) {
    double sum = 0;
    if (q->k->precision == KNNLM_PRECISION_BF16)
        for (size_t i = 0; i < q->d; i++) {
            float lost = x[i] - kn_bf16_to_f32(kn_f32_to_bf16(x[i]));
            sum += (double)(lost * lost);
        }
    return (kn_quantizer_size){(float)(sqrt(q->k->sum_squares(x, q->d)) * ROUND_UP),
                               (float)(sqrt(sum) * ROUND_UP)};
}

// Up to 32 rows, moved by the mean.
static const float *move(const kn_quantizer *q, const float *x, size_t rows, float *moved) {
    if (!q->mean) return x;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < q->d; i++) moved[r * q->d + i] = x[r * q->d + i] - q->mean[i];
    return moved;
}

void kn_quantizer_pack(const kn_quantizer *q, const float *x, size_t rows, void *panel, float *moved,
                       kn_quantizer_size *sizes) {
    x = move(q, x, rows, moved);
    q->k->pack_lhs(panel, x, q->d, rows, q->d);
    for (size_t r = 0; r < rows; r++) sizes[r] = size_of(q, x + r * q->d);
}

// ---------------------------------------------------------------- products

enum { PANELS = KN_QUANTIZER_ROWS / KN_CELL, STEP = 4 };

// blocks (r, c) = panels [0, row panels) . panels [column, column + columns)
static void multiply_panels(const kn_quantizer *q, const char *lhs, size_t rows, size_t column,
                            size_t columns, float (*blocks)[KN_CELL_SIZE]) {
    const kn_kernels *k = q->k;
    size_t cells = kn_cells(q->d), panel = kn_panel_bytes(k, q->d), cell = k->cell;
    const char *rhs = (const char *)q->rhs.data + column * panel;
    for (size_t done = 0; done < cells; done += k->chunk_cells)
        for (size_t c = 0; c < columns; c++)
            for (size_t r = 0; r < kn_cells(rows); r++)
                k->multiply(blocks[r * STEP + c], lhs + r * panel + done * cell,
                            rhs + c * panel + done * cell, kn_min(k->chunk_cells, cells - done),
                            kn_min(KN_CELL, rows - r * KN_CELL), done > 0);
}

void kn_quantizer_multiply(const kn_quantizer *q, const void *lhs, size_t rows, kn_emit *store,
                           void *context) {
    float blocks[PANELS * STEP][KN_CELL_SIZE] __attribute__((aligned(64)));
    for (size_t column = 0; column < q->panels; column += STEP) {
        size_t columns = kn_min(STEP, q->panels - column);
        multiply_panels(q, lhs, rows, column, columns, blocks);
        for (size_t r = 0; r < kn_cells(rows); r++)
            for (size_t c = 0; c < columns; c++)
                store(context, blocks[r * STEP + c], r * KN_CELL, (column + c) * KN_CELL,
                      kn_min(KN_CELL, rows - r * KN_CELL),
                      kn_min(KN_CELL, q->count - (column + c) * KN_CELL));
    }
}

// ---------------------------------------------------------------- making

static knnlm_status find_mean(kn_quantizer *q) {
    double *sums = kn_alloc(q->d, sizeof *sums);
    if (!sums) return KNNLM_ENOMEM;
    for (size_t c = 0; c < q->count; c++)
        for (size_t i = 0; i < q->d; i++) sums[i] += (double)q->centroids[c * q->d + i];
    for (size_t i = 0; i < q->d; i++) q->mean[i] = (float)(sums[i] / (double)q->count);
    free(sums);
    return KNNLM_OK;
}

typedef struct making {
    kn_quantizer *q;
    float *moved; // 32 x d a worker
} making;

static void make_panel(void *context, size_t panel, int worker) {
    const making *m = context;
    kn_quantizer *q = m->q;
    size_t first = panel * KN_CELL, columns = kn_min(KN_CELL, q->count - first);
    kn_quantizer_size largest = {0, 0};
    const float *c =
        move(q, q->centroids + first * q->d, columns, m->moved + (size_t)worker * KN_CELL * q->d);
    q->k->pack_rhs((char *)q->rhs.data + panel * kn_panel_bytes(q->k, q->d), c, q->d, columns, q->d);
    for (size_t i = 0; i < KN_CELL; i++) {
        if (i >= columns) {
            q->bias[first + i] = -INFINITY;
            continue;
        }
        kn_quantizer_size size = size_of(q, c + i * q->d);
        double square = q->k->sum_squares(c + i * q->d, q->d);
        q->bias[first + i] = q->distance == KN_QUANTIZER_L2 ? (float)(-square / 2) : 0;
        largest.norm = fmaxf(largest.norm, size.norm);
        largest.rounding = fmaxf(largest.rounding, size.rounding);
    }
    q->sizes[panel] = largest;
}

static knnlm_status make_panels(kn_quantizer *q) {
    making m = {q, kn_alloc_aligned((size_t)kn_threads() * KN_CELL, q->d * sizeof(float))};
    if (!m.moved) return KNNLM_ENOMEM;
    kn_parallel(q->panels, make_panel, &m);
    kn_free_aligned(m.moved);
    return KNNLM_OK;
}

static knnlm_status fill(kn_quantizer *q, const float *centroids) {
    if (q->distance == KN_QUANTIZER_L2) q->mean = kn_alloc(q->d, sizeof *q->mean);
    q->centroids = kn_alloc_aligned(q->count, q->d * sizeof *q->centroids);
    q->bias = kn_alloc(q->panels * KN_CELL, sizeof *q->bias);
    q->sizes = kn_alloc(q->panels, sizeof *q->sizes);
    if (!q->centroids || !q->bias || !q->sizes || (q->distance == KN_QUANTIZER_L2 && !q->mean))
        return KNNLM_ENOMEM;
    KN_TRY(kn_rhs_init(q->k, &q->rhs, q->count, q->d));
    memcpy(q->centroids, centroids, q->count * q->d * sizeof *centroids);
    if (q->mean) KN_TRY(find_mean(q));
    return make_panels(q);
}

knnlm_status kn_quantizer_make_with(const kn_kernels *k, const float *centroids, size_t count, size_t d,
                                    kn_quantizer_distance distance, kn_quantizer **out) {
    size_t elements;
    *out = NULL;
    if (!count || !d || count > INT32_MAX || !kn_mul(count, d, &elements))
        return kn_fail(KNNLM_EINVAL, "a quantizer of %zu lists in %zu dimensions is not possible", count, d);
    for (size_t i = 0; i < elements; i++)
        if (!isfinite(centroids[i]))
            return kn_fail(KNNLM_EDATA, "centroid %zu is not finite in dimension %zu", i / d, i % d);
    kn_quantizer *q = kn_alloc(1, sizeof *q);
    if (!q) return KNNLM_ENOMEM;
    *q = (kn_quantizer){.k = k, .distance = distance, .count = count, .d = d, .panels = kn_cells(count)};
    knnlm_status status = fill(q, centroids);
    if (status == KNNLM_OK)
        *out = q;
    else
        kn_quantizer_free(q);
    return status;
}

knnlm_status kn_quantizer_make(const float *centroids, size_t count, size_t d, kn_quantizer_distance distance,
                               kn_quantizer **out) {
    return kn_quantizer_make_with(kn_math_kernels(KNNLM_PRECISION_BF16), centroids, count, d, distance, out);
}

void kn_quantizer_free(kn_quantizer *q) {
    if (!q) return;
    kn_free_aligned(q->centroids);
    free(q->mean);
    free(q->bias);
    free(q->sizes);
    kn_rhs_free(&q->rhs);
    free(q);
}

const float *kn_quantizer_centroids(const kn_quantizer *q) {
    return q->centroids;
}

size_t kn_quantizer_count(const kn_quantizer *q) {
    return q->count;
}

size_t kn_quantizer_dimension(const kn_quantizer *q) {
    return q->d;
}
