// Distances between queries of 16-bit integers and rows of 8-bit ones: sums of integers are exact, and what
// is made of them is made in double precision, so that every CPU, and every way of looking at a row, gives
// the same bits. This file is compiled without contraction: no multiplication is fused with an addition.
#include "math/isa/isa.h"

#include "base/convert.h"

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
    out->largest = 0;
    for (size_t r = 0; r < n; r++) {
        double square = squares[r], scale = (double)scales[r];
        out->bases[r] = form == KN_INTEGER_L2 ? scale * scale * square : 0;
        out->factors[r] = form != KN_INTEGER_COSINE ? scale : squares[r] ? 1 / sqrt(square) : 0;
        out->rough_bases[r] = (float)out->bases[r];
        out->rough_factors[r] = (float)out->factors[r];
        out->largest = out->rough_bases[r] > out->largest ? out->rough_bases[r] : out->largest;
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

// ---------------------------------------------------------------- those near enough

// Five roundings to f32, of numbers no larger than both bases and the distance itself.
#define ROUNDING 1e-6f

// A limit for distances in f32 of rows whose bases are at most `largest`.
static inline float rough_limit(const kn_integer_query *q, float limit, float largest) {
    return limit + ROUNDING * ((float)q->base + largest + fabsf(limit));
}

// Which of 16 rows from r on may be within the limit, by f32.
#if defined(__AVX512F__)
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    __m512 p = _mm512_cvtepi32_ps(_mm512_loadu_si512(products + r));
    __m512 b = _mm512_add_ps(_mm512_loadu_ps(t->rough_bases + r), _mm512_set1_ps((float)q->base));
    __m512 f = _mm512_mul_ps(_mm512_loadu_ps(t->rough_factors + r), _mm512_set1_ps((float)q->factor));
    return _mm512_cmp_ps_mask(_mm512_sub_ps(b, _mm512_mul_ps(f, p)), _mm512_set1_ps(limit), _CMP_NGT_UQ);
}
#elif defined(__AVX2__)
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i += 8) {
        __m256 p = _mm256_cvtepi32_ps(_mm256_loadu_si256((const void *)(products + r + i)));
        __m256 b = _mm256_add_ps(_mm256_loadu_ps(t->rough_bases + r + i), _mm256_set1_ps((float)q->base));
        __m256 f = _mm256_mul_ps(_mm256_loadu_ps(t->rough_factors + r + i), _mm256_set1_ps((float)q->factor));
        __m256 near = _mm256_cmp_ps(_mm256_sub_ps(b, _mm256_mul_ps(f, p)), _mm256_set1_ps(limit), _CMP_NGT_UQ);
        mask |= (uint32_t)_mm256_movemask_ps(near) << i;
    }
    return mask;
}
#else
static inline uint32_t near_rough(const int32_t *products, const kn_integer_terms *t, size_t r,
                                  const kn_integer_query *q, float limit) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 16; i++) {
        float factor = (float)q->factor * t->rough_factors[r + i];
        float rough = (float)q->base + t->rough_bases[r + i] - factor * (float)products[r + i];
        mask |= (uint32_t) !(rough > limit) << i;
    }
    return mask;
}
#endif

// Those of 8 rows from r on that the mask names, are within the limit and have ids below `end`.
#if defined(__AVX512F__)
static inline size_t rank8(uint64_t *out, const int32_t *products, const kn_integer_terms *t, size_t r,
                           const kn_integer_query *q, float limit, __m256i ids, uint32_t end, __mmask8 mask) {
    __m512d p = _mm512_cvtepi32_pd(_mm256_loadu_si256((const void *)(products + r)));
    __m512d b = _mm512_add_pd(_mm512_set1_pd(q->base), _mm512_loadu_pd(t->bases + r));
    __m512d f = _mm512_mul_pd(_mm512_set1_pd(q->factor), _mm512_loadu_pd(t->factors + r));
    __m512d exact = _mm512_max_pd(_mm512_sub_pd(b, _mm512_mul_pd(f, p)), _mm512_set1_pd(q->min));
    __m256 distances = _mm512_cvtpd_ps(exact);
    __m256i bits = _mm256_castps_si256(distances), negative = _mm256_srai_epi32(bits, 31);
    bits = _mm256_xor_si256(bits, _mm256_or_si256(negative, _mm256_set1_epi32(INT32_MIN)));
    mask &= _mm256_cmp_ps_mask(distances, _mm256_set1_ps(limit), _CMP_LE_OQ);
    mask &= _mm256_cmplt_epu32_mask(ids, _mm256_set1_epi32((int)end));
    __m512i items = _mm512_slli_epi64(_mm512_cvtepu32_epi64(bits), 32);
    items = _mm512_or_si512(items, _mm512_cvtepu32_epi64(ids));
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi64(mask, items));
    return (size_t)__builtin_popcount(mask);
}

size_t kn_isa(rank_integers)(uint64_t *out, const int32_t *products, const kn_integer_terms *rows,
                             const kn_integer_query *query, float limit, const uint32_t *ids, uint32_t first,
                             uint32_t end, size_t n) {
    const __m256i count = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    float rough = rough_limit(query, limit, rows->largest);
    size_t found = 0;
    for (size_t h = 0; h < n; h += 16) {
        uint32_t mask = near_rough(products, rows, h, query, rough);
        if (n - h < 16) mask &= ((uint32_t)1 << (n - h)) - 1;
        for (size_t r = h; mask; r += 8, mask >>= 8) {
            __m256i id = ids ? _mm256_maskz_loadu_epi32((__mmask8)mask, ids + r)
                             : _mm256_add_epi32(_mm256_set1_epi32((int)(first + r)), count);
            if ((uint8_t)mask)
                found += rank8(out + found, products, rows, r, query, limit, id, end, (__mmask8)mask);
        }
    }
    return found;
}
#else
size_t kn_isa(rank_integers)(uint64_t *out, const int32_t *products, const kn_integer_terms *rows,
                             const kn_integer_query *query, float limit, const uint32_t *ids, uint32_t first,
                             uint32_t end, size_t n) {
    float rough = rough_limit(query, limit, rows->largest);
    size_t found = 0;
    for (size_t h = 0; h < n; h += 16) {
        uint32_t mask = near_rough(products, rows, h, query, rough);
        if (n - h < 16) mask &= ((uint32_t)1 << (n - h)) - 1;
        for (; mask; mask &= mask - 1) {
            size_t r = h + (size_t)__builtin_ctz(mask);
            float distance = distance_of(query, rows, r, products[r]);
            uint32_t id = ids ? ids[r] : first + (uint32_t)r, bits = kn_f32_bits(distance);
            bits ^= bits >> 31 ? UINT32_MAX : 0x80000000u;
            out[found] = (uint64_t)bits << 32 | id;
            found += distance <= limit && id < end;
        }
    }
    return found;
}
#endif
