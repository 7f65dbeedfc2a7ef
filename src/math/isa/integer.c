// Distances between queries of 16-bit integers and rows of 8-bit ones: sums of integers are exact, and what
// is made of them is made in double precision, so that every CPU, and every way of looking at a row, gives
// the same bits. This file is compiled without contraction: no multiplication is fused with an addition.
#include "math/isa/isa.h"

#include <math.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// ---------------------------------------------------------------- loading

// out (64) = row (64) as 16 bits; *square += the sum of their squares.
#if defined(__AVX512F__)
static inline void widen_row(int16_t *out, const int8_t *row, int32_t *square) {
    __m512i a = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)row));
    __m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)(row + 32)));
    _mm512_storeu_si512(out, a);
    _mm512_storeu_si512(out + 32, b);
    *square += _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_madd_epi16(a, a), _mm512_madd_epi16(b, b)));
}
#else
static inline void widen_row(int16_t *out, const int8_t *row, int32_t *square) {
    int32_t sum = 0;
    for (size_t i = 0; i < KN_INTEGER_DEPTH; i++) out[i] = row[i];
    for (size_t i = 0; i < KN_INTEGER_DEPTH; i++) sum += row[i] * row[i];
    *square += sum;
}
#endif

void kn_isa(load_integers)(int16_t *panel, int32_t *squares, const int8_t *const *rows, size_t n, size_t d) {
    int16_t wide[KN_INTEGER_CELL] __attribute__((aligned(64)));
    int8_t rest[KN_INTEGER_DEPTH];
    memset(squares, 0, KN_CELL * sizeof *squares);
    memset(wide + n * KN_INTEGER_DEPTH, 0, (KN_CELL - n) * KN_INTEGER_DEPTH * sizeof *wide);
    for (size_t k = 0; k < d; k += KN_INTEGER_DEPTH, panel += KN_INTEGER_CELL) {
        bool whole = d - k >= KN_INTEGER_DEPTH;
        if (!whole) memset(rest, 0, sizeof rest);
        for (size_t r = 0; r < n; r++) {
            if (!whole) memcpy(rest, rows[r] + k, d - k);
            widen_row(wide + r * KN_INTEGER_DEPTH, whole ? rows[r] + k : rest, &squares[r]);
        }
        kn_isa(load_cell)((float *)(void *)panel, (const float *)(const void *)wide, KN_CELL); // pairs
    }
}

// ---------------------------------------------------------------- rows as they lie

#if defined(__AVX512F__)
static inline void add_products(const int16_t *q, const int8_t *row, __m512i *products, __m512i *squares) {
    __m512i x = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)row));
#if defined(__AVX512VNNI__)
    *products = _mm512_dpwssd_epi32(*products, x, _mm512_loadu_si512(q));
    *squares = _mm512_dpwssd_epi32(*squares, x, x);
#else
    *products = _mm512_add_epi32(*products, _mm512_madd_epi16(x, _mm512_loadu_si512(q)));
    *squares = _mm512_add_epi32(*squares, _mm512_madd_epi16(x, x));
#endif
}

// Sums over the multiple of 32 elements that a row has; the rest is the caller's.
static inline size_t sum_row(const int16_t *q, const int8_t *row, size_t d, int32_t *product,
                             int32_t *square) {
    __m512i products = _mm512_setzero_si512(), squares = products;
    size_t i = 0;
    for (; i + 32 <= d; i += 32) add_products(q + i, row + i, &products, &squares);
    *product = _mm512_reduce_add_epi32(products);
    *square = _mm512_reduce_add_epi32(squares);
    return i;
}
#elif defined(__AVX2__)
static inline int32_t sum_lanes(__m256i x) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

static inline size_t sum_row(const int16_t *q, const int8_t *row, size_t d, int32_t *product,
                             int32_t *square) {
    __m256i products = _mm256_setzero_si256(), squares = products;
    size_t i = 0;
    for (; i + 16 <= d; i += 16) {
        __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(row + i)));
        products =
            _mm256_add_epi32(products, _mm256_madd_epi16(x, _mm256_loadu_si256((const void *)(q + i))));
        squares = _mm256_add_epi32(squares, _mm256_madd_epi16(x, x));
    }
    *product = sum_lanes(products);
    *square = sum_lanes(squares);
    return i;
}
#else
static inline size_t sum_row(const int16_t *q, const int8_t *row, size_t d, int32_t *product,
                             int32_t *square) {
    (void)q;
    (void)row;
    (void)d;
    *product = *square = 0;
    return 0;
}
#endif

void kn_isa(row_integers)(int32_t *products, int32_t *squares, const int16_t *q, const int8_t *rows, size_t n,
                          size_t d) {
    enum { AHEAD = 4096 }; // bytes: the CPU itself looks ahead to the end of a page
    for (size_t r = 0; r < n; r++, rows += d) {
        for (size_t i = 0; n > 1 && i < d; i += 64) __builtin_prefetch(rows + AHEAD + i);
        size_t i = sum_row(q, rows, d, &products[r], &squares[r]);
        for (; i < d; i++) {
            products[r] += q[i] * rows[i];
            squares[r] += rows[i] * rows[i];
        }
    }
}

// ---------------------------------------------------------------- distances

void kn_isa(integer_terms)(kn_integer_terms *out, const int32_t *squares, const float *scales, size_t n,
                           kn_integer_form form) {
    for (size_t r = 0; r < n; r++) {
        double square = squares[r], scale = (double)scales[r];
        out->bases[r] = form == KN_INTEGER_L2 ? scale * scale * square : 0;
        out->factors[r] = form != KN_INTEGER_COSINE ? scale : squares[r] ? 1 / sqrt(square) : 0;
        out->rough_bases[r] = (float)out->bases[r];
        out->rough_factors[r] = (float)out->factors[r];
    }
    for (size_t r = n; r < KN_CELL; r++)
        out->bases[r] = out->factors[r] = out->rough_bases[r] = out->rough_factors[r] = 0;
}

static inline float distance_of(const kn_integer_query *q, const kn_integer_terms *t, size_t r,
                                int32_t product) {
    double distance = (q->base + t->bases[r]) - q->factor * t->factors[r] * product;
    return (float)(distance > q->min ? distance : q->min);
}

void kn_isa(integer_distances)(float *out, const int32_t *products, const kn_integer_terms *rows,
                               const kn_integer_query *query, size_t n) {
    for (size_t r = 0; r < n; r++) out[r] = distance_of(query, rows, r, products[r]);
}

// Which of 16 rows from r on may be within the limit, by f32; then their distances, and which of them are.
#if defined(__AVX512F__)
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    float base = (float)q->base, factor = (float)q->factor;
    __m512 p = _mm512_cvtepi32_ps(_mm512_loadu_si512(products + r));
    __m512 b = _mm512_add_ps(_mm512_loadu_ps(t->rough_bases + r), _mm512_set1_ps(base));
    __m512 f = _mm512_mul_ps(_mm512_loadu_ps(t->rough_factors + r), _mm512_set1_ps(factor));
    return _mm512_cmp_ps_mask(_mm512_sub_ps(b, _mm512_mul_ps(f, p)), _mm512_set1_ps(limit), _CMP_NGT_UQ);
}

static inline __m256 distances8(const int32_t *products, const kn_integer_terms *t, size_t r,
                                const kn_integer_query *q) {
    __m512d p = _mm512_cvtepi32_pd(_mm256_loadu_si256((const void *)(products + r)));
    __m512d b = _mm512_add_pd(_mm512_set1_pd(q->base), _mm512_loadu_pd(t->bases + r));
    __m512d f = _mm512_mul_pd(_mm512_set1_pd(q->factor), _mm512_loadu_pd(t->factors + r));
    __m512d distance = _mm512_sub_pd(b, _mm512_mul_pd(f, p));
    return _mm512_cvtpd_ps(_mm512_max_pd(distance, _mm512_set1_pd(q->min)));
}

static inline uint32_t near_exact(float *out, const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i += 8) {
        __m256 d = distances8(products, t, r + i, q);
        _mm256_storeu_ps(out + r + i, d);
        mask |= (uint32_t)_mm256_cmp_ps_mask(d, _mm256_set1_ps(limit), _CMP_LE_OQ) << i;
    }
    return mask;
}
#elif defined(__AVX2__)
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    float base = (float)q->base, factor = (float)q->factor;
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i += 8) {
        __m256 p = _mm256_cvtepi32_ps(_mm256_loadu_si256((const void *)(products + r + i)));
        __m256 b = _mm256_add_ps(_mm256_loadu_ps(t->rough_bases + r + i), _mm256_set1_ps(base));
        __m256 f = _mm256_mul_ps(_mm256_loadu_ps(t->rough_factors + r + i), _mm256_set1_ps(factor));
        __m256 far = _mm256_cmp_ps(_mm256_sub_ps(b, _mm256_mul_ps(f, p)), _mm256_set1_ps(limit), _CMP_NGT_UQ);
        mask |= (uint32_t)_mm256_movemask_ps(far) << i;
    }
    return mask;
}

static inline uint32_t near_exact(float *out, const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    uint32_t mask = 0;
    for (size_t i = r; i < r + 16; i += 4) {
        __m256d p = _mm256_cvtepi32_pd(_mm_loadu_si128((const void *)(products + i)));
        __m256d b = _mm256_add_pd(_mm256_set1_pd(q->base), _mm256_loadu_pd(t->bases + i));
        __m256d f = _mm256_mul_pd(_mm256_set1_pd(q->factor), _mm256_loadu_pd(t->factors + i));
        __m256d distance = _mm256_sub_pd(b, _mm256_mul_pd(f, p));
        __m128 d = _mm256_cvtpd_ps(_mm256_max_pd(distance, _mm256_set1_pd(q->min)));
        _mm_storeu_ps(out + i, d);
        mask |= (uint32_t)_mm_movemask_ps(_mm_cmp_ps(d, _mm_set1_ps(limit), _CMP_LE_OQ)) << (i - r);
    }
    return mask;
}
#else
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    float base = (float)q->base, factor = (float)q->factor;
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i++) {
        float f = factor * t->rough_factors[r + i];
        mask |= (uint32_t) !(base + t->rough_bases[r + i] - f * (float)products[r + i] > limit) << i;
    }
    return mask;
}

static inline uint32_t near_exact(float *out, const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i++) {
        out[r + i] = distance_of(q, t, r + i, products[r + i]);
        mask |= (uint32_t)(out[r + i] <= limit) << i;
    }
    return mask;
}
#endif

void kn_isa(near_integers)(float *block, const int32_t *products, const kn_integer_terms *rows,
                           const kn_integer_query *queries, const float *limits, size_t m, size_t n,
                           uint32_t *masks) {
    // Five roundings to f32, of numbers no larger than both bases and the distance itself.
    const float rounding = 1e-6f;
    uint32_t all = n == KN_CELL ? UINT32_MAX : ((uint32_t)1 << n) - 1;
    float largest = 0;
    for (size_t r = 0; r < n; r++) largest = fmaxf(largest, rows->rough_bases[r]);
    for (size_t q = 0; q < m; q++, products += KN_CELL, block += KN_CELL) {
        const kn_integer_query *query = &queries[q];
        float limit = limits[q] + rounding * ((float)query->base + largest + fabsf(limits[q]));
        masks[q] = 0;
        for (size_t r = 0; r < n; r += 16)
            if (near_rough(products, rows, r, query, limit))
                masks[q] |= near_exact(block, products, rows, r, query, limits[q]) << r;
        masks[q] &= all;
    }
}
