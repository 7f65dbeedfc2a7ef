// Distances from a query to codes.
#include "index/pq.h"
#include "math/math.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const kn_kernels *kernels(void) {
    return kn_math_kernels(KNNLM_PRECISION_AUTO);
}

void kn_pq_tables(const kn_pq *p, const float *query, bool inner_product, float *tables) {
    const kn_kernels *k = kernels();
    for (size_t j = 0; j < p->m; j++)
        k->column_distances(tables + j * p->count, query + j * p->part, p->columns + j * p->count * p->part,
                            p->part, p->count, inner_product);
}

// ---------------------------------------------------------------- any codes

// Four codes side by side: their sums do not wait for each other.
enum { ABREAST = 4 };

static inline void sum_bytes(const kn_pq *p, const float *tables, const uint8_t *const *columns,
                             size_t abreast, float *out) {
    float sums[ABREAST] = {0};
    for (size_t j = 0; j < p->m; j++, tables += 256)
        for (size_t a = 0; a < abreast; a++) sums[a] += tables[columns[a][j * KN_PQ_BLOCK]];
    memcpy(out, sums, abreast * sizeof *sums);
}

static inline void sum_halves(const kn_pq *p, const float *tables, const uint8_t *const *columns,
                              size_t abreast, float *out) {
    size_t pairs = p->m / 2;
    float sums[ABREAST] = {0};
    for (size_t j = 0; j < pairs; j++, tables += 32)
        for (size_t a = 0; a < abreast; a++) {
            uint8_t pair = columns[a][j * KN_PQ_BLOCK];
            sums[a] += tables[pair & 15];
            sums[a] += tables[16 + (pair >> 4)];
        }
    for (size_t a = 0; p->m % 2 && a < abreast; a++) sums[a] += tables[columns[a][pairs * KN_PQ_BLOCK] & 15];
    memcpy(out, sums, abreast * sizeof *sums);
}

static inline void sum_some(const kn_pq *p, const float *tables, const uint8_t *blocks, const size_t *places,
                            size_t abreast, float *out) {
    size_t block_bytes = kn_pq_code_bytes(p) * KN_PQ_BLOCK;
    const uint8_t *columns[ABREAST];
    for (size_t a = 0; a < abreast; a++)
        columns[a] = blocks + places[a] / KN_PQ_BLOCK * block_bytes + places[a] % KN_PQ_BLOCK;
    if (p->bits == 8)
        sum_bytes(p, tables, columns, abreast, out);
    else
        sum_halves(p, tables, columns, abreast, out);
}

void kn_pq_sum(const kn_pq *p, const float *tables, const uint8_t *blocks, const size_t *places, size_t n,
               float *sums) {
    size_t i = 0;
    for (; i + ABREAST <= n; i += ABREAST) sum_some(p, tables, blocks, places + i, ABREAST, sums + i);
    for (; i < n; i++) sum_some(p, tables, blocks, places + i, 1, sums + i);
}

// ---------------------------------------------------------------- blocks

size_t kn_pq_small_bytes(const kn_pq *p) {
    return p->bits == 8 ? p->m * 256 : (p->m + 1) / 2 * 32; // an odd last half byte has a table of zeros
}

// The widest table decides the step: with one step for all, sums of steps are sums of distances. One number
// that takes a sum beyond the farthest is as good as another.
static float find_step(const kn_pq *p, const kn_kernels *k, const float *tables, float farthest,
                       double *offset) {
    float widest = 0, low, high;
    *offset = 0;
    for (size_t j = 0; j < p->m; j++) {
        k->range(tables + j * p->count, p->count, &low, &high);
        *offset += (double)low;
        widest = fmaxf(widest, high - low);
    }
    size_t levels = kn_min(UINT8_MAX, UINT16_MAX / p->m); // sums of 16 bits
    float reach = fmaxf(0, farthest - (float)*offset);
    // With fewer levels than a byte has, what is beyond them would make sums overflow.
    return (levels == UINT8_MAX ? fminf(widest, reach) : widest) / (float)levels;
}

kn_pq_scale kn_pq_quantize(const kn_pq *p, const float *tables, float farthest, uint8_t *small) {
    const kn_kernels *k = kernels();
    double offset, away = 0;
    float step = find_step(p, k, tables, farthest, &offset);
    memset(small, 0, kn_pq_small_bytes(p));
    // A table that is not finite makes the offset so.
    if (!isfinite(step) || !isfinite((float)offset)) return (kn_pq_scale){0, 0, INFINITY};
    float low, high, largest = 0, inverse = 1 / step;
    if (!isfinite(inverse)) step = inverse = 0; // nothing between the values of any table, or next to nothing
    for (size_t j = 0; j < p->m; j++) {
        const float *table = tables + j * p->count;
        k->range(table, p->count, &low, &high);
        float worst = k->quantize(small + j * p->count, table, p->count, low, step, inverse);
        away += (double)fminf(worst, step / 2); // more only of what is too far
        largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
    }
    // Rounding: of `away` itself (a few ulp of each table's values), and of offset + scale * sum in f32.
    double slop = FLT_EPSILON * (4.0 * (double)p->m * (double)largest + 2.0 * fabs(offset));
    return (kn_pq_scale){step, (float)offset, (float)((away + slop) * (1 + (double)FLT_EPSILON))};
}

void kn_pq_scan(const kn_pq *p, const uint8_t *small, const uint8_t *blocks, size_t count, uint16_t *sums) {
    const kn_kernels *k = kernels();
    (p->bits == 8 ? k->scan_bytes : k->scan_halves)(sums, blocks, small, kn_pq_code_bytes(p), count);
}
