// Distances between queries of 16-bit integers and rows of 8-bit ones: sums of integers are exact, and what
// is made of them is made in double precision, so that every CPU, and every way of looking at a row, gives
// the same bits. This file is compiled without contraction: no multiplication is fused with an addition.
#include "math/isa/isa.h"
#include "math/isa/transpose.h"

#include "base/convert.h"

#include <math.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// ---------------------------------------------------------------- loading

// The halves of 16 fours of bytes: pairs of 16 bits, signs extended.
#if defined(__AVX512F__)
static inline __m512i widen_half(__m512i fours, int half) {
    const __m512i first = _mm512_set1_epi32(0x01800080), second = _mm512_set1_epi32(0x03800280);
    const __m512i lanes = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c000c00, 0x08000800, 0x04000400, 0));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(fours, _mm512_add_epi8(half ? second : first, lanes)), 8);
}

// 16 fours of each of 16 rows -> 32 steps of depth, 16 pairs each; squares (16) grow by theirs.
static inline void widen_fours(int16_t *out, const uint32_t *fours, int32_t *squares) {
    __m512i sums = _mm512_loadu_si512(squares);
    for (size_t i = 0; i < 16; i++) {
        __m512i four = _mm512_loadu_si512(fours + 16 * i);
        __m512i a = widen_half(four, 0), b = widen_half(four, 1);
        _mm512_storeu_si512(out + 64 * i, a);
        _mm512_storeu_si512(out + 64 * i + 32, b);
        sums = _mm512_add_epi32(sums, _mm512_add_epi32(_mm512_madd_epi16(a, a), _mm512_madd_epi16(b, b)));
    }
    _mm512_storeu_si512(squares, sums);
}
#elif defined(__AVX2__)
static inline __m256i widen_half(__m256i fours, int half) {
    const __m256i first = _mm256_set1_epi32(0x01800080), second = _mm256_set1_epi32(0x03800280);
    const __m256i lanes = _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c000c00, 0x08000800, 0x04000400, 0));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(fours, _mm256_add_epi8(half ? second : first, lanes)), 8);
}

static inline void widen_fours(int16_t *out, const uint32_t *fours, int32_t *squares) {
    for (size_t r = 0; r < 16; r += 8) {
        __m256i sums = _mm256_loadu_si256((const void *)(squares + r));
        for (size_t i = 0; i < 16; i++) {
            __m256i four = _mm256_loadu_si256((const void *)(fours + 16 * i + r));
            __m256i a = widen_half(four, 0), b = widen_half(four, 1);
            _mm256_storeu_si256((void *)(out + 64 * i + 2 * r), a);
            _mm256_storeu_si256((void *)(out + 64 * i + 32 + 2 * r), b);
            sums = _mm256_add_epi32(sums, _mm256_add_epi32(_mm256_madd_epi16(a, a), _mm256_madd_epi16(b, b)));
        }
        _mm256_storeu_si256((void *)(squares + r), sums);
    }
}
#else
static inline void widen_fours(int16_t *out, const uint32_t *fours, int32_t *squares) {
    for (size_t i = 0; i < 16; i++)
        for (size_t r = 0; r < 16; r++) {
            int8_t x[4];
            memcpy(x, fours + 16 * i + r, sizeof x);
            for (size_t j = 0; j < 4; j++) {
                out[64 * i + j / 2 * 32 + 2 * r + j % 2] = x[j];
                squares[r] += x[j] * x[j];
            }
        }
}
#endif

// Rows are turned as fours of bytes, and widened after: half as many to turn.
void kn_isa(load_integers)(int16_t *panel, int32_t *squares, const int8_t *const *rows, size_t n, size_t d) {
    uint32_t in[16 * 16] __attribute__((aligned(64))), out[16 * 16] __attribute__((aligned(64)));
    memset(squares, 0, KN_CELL * sizeof *squares);
    for (size_t k = 0; k < d; k += KN_INTEGER_DEPTH, panel += KN_INTEGER_CELL)
        for (size_t half = 0; half < KN_CELL; half += KN_HALF) {
            size_t count = n > half ? kn_min(KN_HALF, n - half) : 0, width = kn_min(KN_INTEGER_DEPTH, d - k);
            if (count < KN_HALF || width < KN_INTEGER_DEPTH) memset(in, 0, sizeof in);
            for (size_t r = 0; r < count; r++)
                if (width == KN_INTEGER_DEPTH)
                    memcpy(in + 16 * r, rows[half + r] + k, KN_INTEGER_DEPTH);
                else
                    memcpy(in + 16 * r, rows[half + r] + k, width);
            transpose16(out, 16, in, 16);
            widen_fours(panel + half / KN_HALF * 2 * KN_HALF_SIZE, out, squares + half);
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
        double scale = (double)scales[r];
        out->bases[r] = scale * scale * squares[r];
        out->factors[r] = scale;
    }
    for (size_t r = 0; r < n && form == KN_INTEGER_COSINE; r++)
        out->factors[r] = squares[r] ? 1 / sqrt((double)squares[r]) : 0;
    for (size_t r = 0; r < n && form != KN_INTEGER_L2; r++) out->bases[r] = 0;
    for (size_t r = n; r < KN_CELL; r++) out->bases[r] = out->factors[r] = 0;
    for (size_t r = 0; r < KN_CELL; r++) out->rough_bases[r] = (float)out->bases[r];
    for (size_t r = 0; r < KN_CELL; r++) out->rough_factors[r] = (float)out->factors[r];
    out->largest = kn_isa(max)(out->rough_bases, KN_CELL);
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
        __m256 near =
            _mm256_cmp_ps(_mm256_sub_ps(b, _mm256_mul_ps(f, p)), _mm256_set1_ps(limit), _CMP_NGT_UQ);
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
