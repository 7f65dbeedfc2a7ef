// Distances between queries and stored rows: loading rows for a product, turning products into distances, and
// distances straight from a row.
#include "math/isa/isa.h"

#include "base/convert.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// ---------------------------------------------------------------- elements of rows

#if defined(__AVX512F__)
static inline kn_vec widen_f16(const uint16_t *x) {
    return (kn_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}
static inline kn_vec widen_int8(const int8_t *x) {
    return (kn_vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)x)));
}
#elif defined(__AVX2__)
static inline kn_vec widen_f16(const uint16_t *x) {
    return (kn_vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
}
static inline kn_vec widen_int8(const int8_t *x) {
    return (kn_vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)x)));
}
#else
static inline kn_vec widen_f16(const uint16_t *x) {
    kn_vec v;
    for (int i = 0; i < KN_LANES; i++) v[i] = kn_f16_to_f32(x[i]);
    return v;
}
static inline kn_vec widen_int8(const int8_t *x) {
    kn_vec v;
    for (int i = 0; i < KN_LANES; i++) v[i] = (float)x[i];
    return v;
}
#endif

static inline kn_vec widen(const void *row, size_t at, kn_row_type type, float scale) {
    if (type == KN_ROWS_F16) return widen_f16((const uint16_t *)row + at);
    if (type == KN_ROWS_INT8) return scale * widen_int8((const int8_t *)row + at);
    return *(const kn_vec *)((const float *)row + at);
}

static inline float widen_one(const void *row, size_t at, kn_row_type type, float scale) {
    if (type == KN_ROWS_F16) return kn_f16_to_f32(((const uint16_t *)row)[at]);
    if (type == KN_ROWS_INT8) return scale * (float)((const int8_t *)row)[at];
    return ((const float *)row)[at];
}

static inline float sum_lanes(kn_vec v) {
    float sum = 0;
    for (int i = 0; i < KN_LANES; i++) sum += v[i];
    return sum;
}

static inline size_t row_bytes(kn_row_type type, size_t d) {
    return type == KN_ROWS_F16 ? 2 * d : type == KN_ROWS_INT8 ? d : 4 * d;
}

// ---------------------------------------------------------------- loading

// block (32,32) = rows [0,n) less the centre, columns [k, k+32) of d; zeros elsewhere. Adds to the norms.
static inline void load_block(float *block, kn_vec *norms, const uint8_t *rows, size_t stride,
                              kn_row_type type, const float *scales, const float *centre, size_t n, size_t k,
                              size_t d) {
    for (size_t r = 0; r < n; r++) {
        const uint8_t *row = rows + r * stride;
        float scale = scales ? scales[r] : 1, *out = block + r * KN_CELL;
        size_t j = 0, width = kn_least(KN_CELL, d - k);
        for (; j + KN_LANES <= width; j += KN_LANES) {
            kn_vec v = widen(row, k + j, type, scale) - *(const kn_vec *)(centre + k + j);
            *(kn_vec *)(out + j) = v;
            norms[r] += v * v;
        }
        for (; j < width; j++) {
            out[j] = widen_one(row, k + j, type, scale) - centre[k + j];
            norms[r][0] += out[j] * out[j];
        }
        for (; j < KN_CELL; j++) out[j] = 0;
    }
    memset(block + n * KN_CELL, 0, (KN_CELL - n) * KN_CELL * sizeof *block);
}

float kn_isa(load_row)(float *cells, const float *row, const float *centre, size_t d) {
    kn_vec sum = {0};
    float rest = 0;
    for (size_t k = 0; k < d; k += KN_CELL, cells += KN_CELL_SIZE) {
        size_t j = 0, width = kn_least(KN_CELL, d - k);
        for (; j + KN_LANES <= width; j += KN_LANES) {
            kn_vec v = *(const kn_vec *)(row + k + j) - *(const kn_vec *)(centre + k + j);
            *(kn_vec *)(cells + j) = v;
            sum += v * v;
        }
        for (; j < width; j++) {
            cells[j] = row[k + j] - centre[k + j];
            rest += cells[j] * cells[j];
        }
        for (; j < KN_CELL; j++) cells[j] = 0;
    }
    return sum_lanes(sum) + rest;
}

void kn_isa(load_columns)(float *panel, float *norms, const void *rows, kn_row_type type, const float *scales,
                          const float *centre, size_t n, size_t d) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    kn_vec sums[KN_CELL] = {0};
    size_t stride = row_bytes(type, d);
    for (size_t k = 0; k < d; k += KN_CELL, panel += KN_CELL_SIZE) {
        // Constants for the type, so that each case is a loop of its own.
        if (type == KN_ROWS_F16)
            load_block(block, sums, rows, stride, KN_ROWS_F16, NULL, centre, n, k, d);
        else if (type == KN_ROWS_INT8)
            load_block(block, sums, rows, stride, KN_ROWS_INT8, scales, centre, n, k, d);
        else
            load_block(block, sums, rows, stride, KN_ROWS_F32, NULL, centre, n, k, d);
        kn_isa(transpose)(panel, block);
    }
    for (size_t r = 0; r < KN_CELL; r++) norms[r] = sum_lanes(sums[r]);
}

static inline float widen_row(float *out, const void *row, kn_row_type type, float scale, const float *centre,
                              size_t d) {
    kn_vec sum = {0};
    float rest = 0;
    size_t j = 0;
    for (; j + KN_LANES <= d; j += KN_LANES) {
        kn_vec v = widen(row, j, type, scale) - *(const kn_vec *)(centre + j);
        *(kn_vec *)(out + j) = v;
        sum += v * v;
    }
    for (; j < d; j++) {
        out[j] = widen_one(row, j, type, scale) - centre[j];
        rest += out[j] * out[j];
    }
    return sum_lanes(sum) + rest;
}

void kn_isa(widen_rows)(float *out, float *norms, const void *rows, kn_row_type type, const float *scales,
                        const float *centre, size_t n, size_t d) {
    size_t stride = row_bytes(type, d);
    for (size_t r = 0; r < n; r++) {
        const uint8_t *row = (const uint8_t *)rows + r * stride;
        if (type == KN_ROWS_F16)
            norms[r] = widen_row(out + r * d, row, KN_ROWS_F16, 1, centre, d);
        else if (type == KN_ROWS_INT8)
            norms[r] = widen_row(out + r * d, row, KN_ROWS_INT8, scales[r], centre, d);
        else
            norms[r] = widen_row(out + r * d, row, KN_ROWS_F32, 1, centre, d);
    }
}

// ---------------------------------------------------------------- products to distances

void kn_isa(near)(float *block, const float *row_terms, const float *query_terms, float factor,
                  const float *limits, size_t queries, size_t rows, uint32_t *masks) {
    uint32_t all = rows == KN_CELL ? UINT32_MAX : ((uint32_t)1 << rows) - 1;
    for (size_t q = 0; q < queries; q++) {
        float *line = block + q * KN_CELL, base = query_terms[q], limit = limits[q];
        uint32_t mask = 0;
#if defined(__AVX512F__)
        __m512 f = _mm512_set1_ps(factor), b = _mm512_set1_ps(base), l = _mm512_set1_ps(limit);
        for (int h = 0; h < 2; h++) {
            __m512 d = _mm512_add_ps(_mm512_loadu_ps(row_terms + 16 * h), b);
            d = _mm512_fmadd_ps(f, _mm512_load_ps(line + 16 * h), d);
            _mm512_store_ps(line + 16 * h, d);
            mask |= (uint32_t)_mm512_cmp_ps_mask(d, l, _CMP_LE_OQ) << (16 * h);
        }
#else
        for (size_t r = 0; r < KN_CELL; r++) line[r] = factor * line[r] + (row_terms[r] + base);
        for (size_t r = 0; r < KN_CELL; r++) mask |= (uint32_t)(line[r] <= limit) << r;
#endif
        masks[q] = mask & all;
    }
}

// ---------------------------------------------------------------- straight from a row

static inline float squared_l2(const float *q, const void *row, kn_row_type type, float scale, size_t d) {
    kn_vec sums[2] = {0};
    size_t i = 0;
    for (; i + 2 * KN_LANES <= d; i += 2 * KN_LANES) {
        kn_vec a = widen(row, i, type, scale) - *(const kn_vec *)(q + i);
        kn_vec b = widen(row, i + KN_LANES, type, scale) - *(const kn_vec *)(q + i + KN_LANES);
        sums[0] += a * a;
        sums[1] += b * b;
    }
    float rest = 0;
    for (; i < d; i++) {
        float x = widen_one(row, i, type, scale) - q[i];
        rest += x * x;
    }
    return sum_lanes(sums[0] + sums[1]) + rest;
}

static inline float inner(const float *q, const void *row, kn_row_type type, float scale, size_t d) {
    kn_vec sums[2] = {0};
    size_t i = 0;
    for (; i + 2 * KN_LANES <= d; i += 2 * KN_LANES) {
        sums[0] += widen(row, i, type, scale) * *(const kn_vec *)(q + i);
        sums[1] += widen(row, i + KN_LANES, type, scale) * *(const kn_vec *)(q + i + KN_LANES);
    }
    float rest = 0;
    for (; i < d; i++) rest += widen_one(row, i, type, scale) * q[i];
    return sum_lanes(sums[0] + sums[1]) + rest;
}

static inline void each_row(float *out, const float *q, const uint8_t *rows, kn_row_type type,
                            const float *scales, size_t n, size_t d, bool product) {
    size_t stride = row_bytes(type, d);
    for (size_t r = 0; r < n; r++) {
        float scale = scales ? scales[r] : 1;
        const uint8_t *row = rows + r * stride;
        out[r] = product ? inner(q, row, type, scale, d) : squared_l2(q, row, type, scale, d);
    }
}

void kn_isa(row_distances)(float *out, const float *q, const void *rows, kn_row_type type,
                           const float *scales, size_t n, size_t d, bool product) {
    if (type == KN_ROWS_F16 && product)
        each_row(out, q, rows, KN_ROWS_F16, NULL, n, d, true);
    else if (type == KN_ROWS_F16)
        each_row(out, q, rows, KN_ROWS_F16, NULL, n, d, false);
    else if (type == KN_ROWS_INT8)
        each_row(out, q, rows, KN_ROWS_INT8, scales, n, d, product);
    else
        each_row(out, q, rows, KN_ROWS_F32, NULL, n, d, product);
}
