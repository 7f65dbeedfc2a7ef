// Distances between queries and stored rows: loading rows for a product, turning products into distances, and
// distances straight from a row.
#include "math/isa/isa.h"

#include "base/convert.h"

#include <float.h>
#include <math.h>
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

#if defined(__AVX512F__)
static inline float sum_lanes(kn_vec v) {
    return _mm512_reduce_add_ps((__m512)v);
}
#else
static inline float sum_lanes(kn_vec v) {
    float sum = 0;
    for (int i = 0; i < KN_LANES; i++) sum += v[i];
    return sum;
}
#endif

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
        size_t j = 0, width = kn_min(KN_CELL, d - k);
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
        size_t j = 0, width = kn_min(KN_CELL, d - k);
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
        kn_isa(load_cell)(panel, block, KN_CELL);
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
                  const float *limits, float small, size_t queries, size_t rows, uint32_t *masks,
                  uint32_t *smalls) {
    uint32_t all = rows == KN_CELL ? UINT32_MAX : ((uint32_t)1 << rows) - 1;
    bool wanted = small > -INFINITY;
    for (size_t q = 0; q < queries; q++) {
        float *line = block + q * KN_CELL, base = query_terms[q], limit = limits[q];
        uint32_t mask = 0, little = 0, lost = 0;
#if defined(__AVX512F__)
        __m512 f = _mm512_set1_ps(factor), b = _mm512_set1_ps(base), l = _mm512_set1_ps(limit);
        for (int h = 0; h < 2; h++) {
            __m512 terms = _mm512_add_ps(_mm512_loadu_ps(row_terms + 16 * h), b);
            __m512 d = _mm512_fmadd_ps(f, _mm512_load_ps(line + 16 * h), terms);
            __m512 min = _mm512_mul_ps(_mm512_set1_ps(small), terms);
            _mm512_store_ps(line + 16 * h, d);
            mask |= (uint32_t)_mm512_cmp_ps_mask(d, l, _CMP_LE_OQ) << (16 * h);
            little |= (uint32_t)_mm512_cmp_ps_mask(d, min, _CMP_LT_OQ) << (16 * h);
            lost |= (uint32_t)_mm512_cmp_ps_mask(d, _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ) << (16 * h);
        }
#else
        for (size_t r = 0; r < KN_CELL; r++) line[r] = factor * line[r] + (row_terms[r] + base);
        for (size_t r = 0; r < KN_CELL; r++) mask |= (uint32_t)(line[r] <= limit) << r;
        for (size_t r = 0; r < KN_CELL; r++)
            little |= (uint32_t)(line[r] < small * (row_terms[r] + base)) << r;
        for (size_t r = 0; r < KN_CELL; r++) lost |= (uint32_t) !(line[r] <= FLT_MAX) << r;
#endif
        if (!wanted) lost = 0;
        masks[q] = (mask | lost) & all;
        smalls[q] = wanted ? ((little & mask) | lost) & all : 0;
    }
}

#if defined(__AVX512F__)
// Floats become whole numbers of the same order: the sign bit set, or for negative ones all bits turned.
static inline __m512i ordered(__m512 x) {
    __m512i bits = _mm512_castps_si512(x), negative = _mm512_srai_epi32(bits, 31);
    return _mm512_xor_si512(bits, _mm512_or_si512(negative, _mm512_set1_epi32(INT32_MIN)));
}

static inline size_t rank8(uint64_t *out, __m256i high, __m256i low, __mmask8 mask) {
    __m512i items =
        _mm512_or_si512(_mm512_slli_epi64(_mm512_cvtepu32_epi64(high), 32), _mm512_cvtepu32_epi64(low));
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi64(mask, items));
    return (size_t)__builtin_popcount(mask);
}

size_t kn_isa(rank)(uint64_t *out, const float *distances, uint32_t mask, const uint32_t *ids, uint32_t first,
                    uint32_t end) {
    const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    size_t n = 0;
    for (uint32_t h = 0; h < KN_CELL; h += 16) {
        __mmask16 half = (__mmask16)(mask >> h);
        __m512i id = ids ? _mm512_maskz_loadu_epi32(half, ids + h)
                         : _mm512_add_epi32(_mm512_set1_epi32((int)(first + h)), count);
        __m512i bits = ordered(_mm512_loadu_ps(distances + h));
        half &= _mm512_cmplt_epu32_mask(id, _mm512_set1_epi32((int)end));
        n += rank8(out + n, _mm512_castsi512_si256(bits), _mm512_castsi512_si256(id), (__mmask8)half);
        n += rank8(out + n, _mm512_extracti64x4_epi64(bits, 1), _mm512_extracti64x4_epi64(id, 1),
                   (__mmask8)(half >> 8));
    }
    return n;
}
#else
size_t kn_isa(rank)(uint64_t *out, const float *distances, uint32_t mask, const uint32_t *ids, uint32_t first,
                    uint32_t end) {
    size_t n = 0;
    for (; mask; mask &= mask - 1) {
        unsigned r = (unsigned)__builtin_ctz(mask);
        uint32_t id = ids ? ids[r] : first + r, bits = kn_f32_bits(distances[r]);
        bits ^= bits >> 31 ? UINT32_MAX : 0x80000000u;
        out[n] = (uint64_t)bits << 32 | id;
        n += id < end;
    }
    return n;
}
#endif

// ---------------------------------------------------------------- straight from a row

// Four sums side by side: an addition waits for the one before.
enum { SUMS = 4 };

static inline float squared_l2(const float *q, const void *row, kn_row_type type, size_t d) {
    kn_vec sums[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS * KN_LANES <= d; i += SUMS * KN_LANES)
#pragma GCC unroll 4
        for (size_t s = 0; s < SUMS; s++) {
            size_t at = i + s * KN_LANES;
            kn_vec a = widen(row, at, type, 1) - *(const kn_vec *)(q + at);
            sums[s] += a * a;
        }
    for (; i + KN_LANES <= d; i += KN_LANES) {
        kn_vec a = widen(row, i, type, 1) - *(const kn_vec *)(q + i);
        sums[0] += a * a;
    }
    float rest = 0;
    for (; i < d; i++) {
        float x = widen_one(row, i, type, 1) - q[i];
        rest += x * x;
    }
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static inline float inner(const float *q, const void *row, kn_row_type type, size_t d) {
    kn_vec sums[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS * KN_LANES <= d; i += SUMS * KN_LANES)
#pragma GCC unroll 4
        for (size_t s = 0; s < SUMS; s++) {
            size_t at = i + s * KN_LANES;
            sums[s] += widen(row, at, type, 1) * *(const kn_vec *)(q + at);
        }
    for (; i + KN_LANES <= d; i += KN_LANES) sums[0] += widen(row, i, type, 1) * *(const kn_vec *)(q + i);
    float rest = 0;
    for (; i < d; i++) rest += widen_one(row, i, type, 1) * q[i];
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static inline void each_row(float *out, const float *q, const uint8_t *rows, kn_row_type type, size_t n,
                            size_t d, bool product) {
    enum { AHEAD = 4096 }; // bytes: the CPU itself looks ahead to the end of a page
    size_t stride = row_bytes(type, d);
    for (size_t r = 0; r < n; r++) {
        const uint8_t *row = rows + r * stride;
        for (size_t i = 0; n > 1 && i < stride; i += 64) __builtin_prefetch(row + AHEAD + i);
        out[r] = product ? inner(q, row, type, d) : squared_l2(q, row, type, d);
    }
}

void kn_isa(row_distances)(float *out, const float *q, const void *rows, kn_row_type type, size_t n, size_t d,
                           bool product) {
    if (type == KN_ROWS_F16 && product)
        each_row(out, q, rows, KN_ROWS_F16, n, d, true);
    else if (type == KN_ROWS_F16)
        each_row(out, q, rows, KN_ROWS_F16, n, d, false);
    else
        each_row(out, q, rows, KN_ROWS_F32, n, d, product);
}
