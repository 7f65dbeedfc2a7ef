// Distances from a query to codes.
#include "index/pq.h"
#include "math/math.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const kn_kernels *kernels(void) {
    return kn_math_kernels(KN_PRECISION_AUTO);
}

void kn_pq_tables(const kn_pq *p, const float *query, bool inner_product, float *tables) {
    const kn_kernels *k = kernels();
    for (size_t j = 0; j < p->m; j++)
        k->column_distances(tables + j * p->count, query + j * p->part, p->columns + j * p->count * p->part,
                            p->part, p->count, inner_product);
}

// ---------------------------------------------------------------- plain

// Four codes side by side: their sums do not wait for each other.
enum { ABREAST = 4 };

static inline void scan_bytes(const float *tables, const uint8_t *codes, size_t bytes, size_t codes_abreast,
                              float *distances) {
    float sums[ABREAST] = {0};
    for (size_t j = 0; j < bytes; j++, tables += 256)
        for (size_t a = 0; a < codes_abreast; a++) sums[a] += tables[codes[a * bytes + j]];
    memcpy(distances, sums, codes_abreast * sizeof *sums);
}

static inline void scan_halves(const float *tables, size_t m, const uint8_t *codes, size_t bytes,
                               size_t codes_abreast, float *distances) {
    float sums[ABREAST] = {0};
    for (size_t j = 0; j + 1 < m; j += 2, tables += 32)
        for (size_t a = 0; a < codes_abreast; a++) {
            uint8_t pair = codes[a * bytes + j / 2];
            sums[a] += tables[pair & 15];
            sums[a] += tables[16 + (pair >> 4)];
        }
    for (size_t a = 0; m % 2 && a < codes_abreast; a++) sums[a] += tables[codes[a * bytes + m / 2] & 15];
    memcpy(distances, sums, codes_abreast * sizeof *sums);
}

static inline void scan_some(const kn_pq *p, const float *tables, const uint8_t *codes, size_t codes_abreast,
                             float *distances) {
    size_t bytes = kn_pq_code_bytes(p);
    if (p->bits == 8)
        scan_bytes(tables, codes, bytes, codes_abreast, distances);
    else
        scan_halves(tables, p->m, codes, bytes, codes_abreast, distances);
}

void kn_pq_scan(const kn_pq *p, const float *tables, const uint8_t *codes, size_t n, float *distances) {
    size_t bytes = kn_pq_code_bytes(p), i = 0;
    for (; i + ABREAST <= n; i += ABREAST) scan_some(p, tables, codes + i * bytes, ABREAST, distances + i);
    for (; i < n; i++) scan_some(p, tables, codes + i * bytes, 1, distances + i);
}

// ---------------------------------------------------------------- blocks

size_t kn_pq_blocks_bytes(const kn_pq *p, size_t n) {
    return (n + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK * KN_PQ_BLOCK * kn_pq_code_bytes(p);
}

void kn_pq_interleave(const kn_pq *p, const uint8_t *codes, size_t n, uint8_t *blocks) {
    size_t bytes = kn_pq_code_bytes(p);
    for (size_t first = 0; first < n; first += KN_PQ_BLOCK, blocks += bytes * KN_PQ_BLOCK) {
        size_t rows = kn_least(KN_PQ_BLOCK, n - first);
        if (rows < KN_PQ_BLOCK) memset(blocks, 0, bytes * KN_PQ_BLOCK);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < bytes; j++) blocks[j * KN_PQ_BLOCK + r] = codes[(first + r) * bytes + j];
    }
}

void kn_pq_deinterleave(const kn_pq *p, const uint8_t *blocks, size_t n, uint8_t *codes) {
    size_t bytes = kn_pq_code_bytes(p);
    for (size_t first = 0; first < n; first += KN_PQ_BLOCK, blocks += bytes * KN_PQ_BLOCK) {
        size_t rows = kn_least(KN_PQ_BLOCK, n - first);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < bytes; j++) codes[(first + r) * bytes + j] = blocks[j * KN_PQ_BLOCK + r];
    }
}

// ---------------------------------------------------------------- fast

size_t kn_pq_small_bytes(const kn_pq *p) {
    return p->bits == 8 ? p->m * 256 : (p->m + 1) / 2 * 32; // an odd last half byte has a table of zeros
}

// The widest table decides the step: with one step for all, sums of steps are sums of distances.
static float find_step(const kn_pq *p, const kn_kernels *k, const float *tables, double *offset) {
    float widest = 0, low, high;
    *offset = 0;
    for (size_t j = 0; j < p->m; j++) {
        k->range(tables + j * p->count, p->count, &low, &high);
        *offset += (double)low;
        widest = fmaxf(widest, high - low);
    }
    size_t levels = kn_least(255, UINT16_MAX / p->m); // sums of 16 bits
    return widest / (float)levels;
}

kn_pq_scale kn_pq_quantize(const kn_pq *p, const float *tables, uint8_t *small) {
    const kn_kernels *k = kernels();
    double offset, away = 0;
    float step = find_step(p, k, tables, &offset);
    memset(small, 0, kn_pq_small_bytes(p));
    // A table that is not finite makes the offset so.
    if (!isfinite(step) || !isfinite((float)offset)) return (kn_pq_scale){0, 0, INFINITY};
    float low, high, largest = 0, inverse = 1 / step;
    if (!isfinite(inverse)) step = inverse = 0; // nothing between the values of any table, or next to nothing
    for (size_t j = 0; j < p->m; j++) {
        const float *table = tables + j * p->count;
        k->range(table, p->count, &low, &high);
        away += (double)k->quantize(small + j * p->count, table, p->count, low, step, inverse);
        largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
    }
    // Rounding: of `away` itself (a few ulp of each table's values), and of offset + scale * sum in f32.
    double slop = FLT_EPSILON * (4.0 * (double)p->m * (double)largest + 2.0 * fabs(offset));
    return (kn_pq_scale){step, (float)offset, (float)((away + slop) * (1 + (double)FLT_EPSILON))};
}

void kn_pq_scan_fast(const kn_pq *p, const uint8_t *small, const uint8_t *blocks, size_t n, uint16_t *sums) {
    const kn_kernels *k = kernels();
    size_t bytes = kn_pq_code_bytes(p), whole = n / KN_PQ_BLOCK, rest = n % KN_PQ_BLOCK;
    void (*scan)(uint16_t *, const uint8_t *, const uint8_t *, size_t, size_t) =
        p->bits == 8 ? k->scan_bytes : k->scan_halves;
    scan(sums, blocks, small, bytes, whole);
    if (!rest) return;
    uint16_t last[KN_PQ_BLOCK];
    scan(last, blocks + whole * bytes * KN_PQ_BLOCK, small, bytes, 1);
    memcpy(sums + whole * KN_PQ_BLOCK, last, rest * sizeof *last);
}
