// Distances to a few hundred centroids of few dimensions: too shallow for products of panels to pay.
#include "math/isa/isa.h"

#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef int32_t ivec __attribute__((vector_size(KN_LANES * 4), aligned(4), may_alias));

static inline kn_vec splat(float x) {
    return x - (kn_vec){0};
}

// best = score and which = number in the lanes where score is lower.
static inline void keep_lower(kn_vec *best, ivec *which, kn_vec score, ivec number) {
#if defined(__AVX512F__)
    __mmask16 lower = _mm512_cmp_ps_mask((__m512)score, (__m512)*best, _CMP_LT_OQ);
    *best = (kn_vec)_mm512_mask_mov_ps((__m512)*best, lower, (__m512)score);
    *which = (ivec)_mm512_mask_mov_epi32((__m512i)*which, lower, (__m512i)number);
#elif defined(__AVX2__)
    __m256 lower = _mm256_cmp_ps((__m256)score, (__m256)*best, _CMP_LT_OQ);
    *best = (kn_vec)_mm256_blendv_ps((__m256)*best, (__m256)score, lower);
    *which = (ivec)_mm256_blendv_epi8((__m256i)*which, (__m256i)number, _mm256_castps_si256(lower));
#else
    ivec lower = score < *best;
    *best = (kn_vec)(((ivec)score & lower) | ((ivec)*best & ~lower));
    *which = (number & lower) | (*which & ~lower);
#endif
}

// VECTORS x FOUR scores beside the best of VECTORS fill the registers.
#if defined(__AVX512F__)
enum { VECTORS = 4 };
#else
enum { VECTORS = 2 };
#endif
enum { FOUR = 4, STRIP = VECTORS * KN_LANES };

// Points are the lanes: their minima need no shuffling, and broadcasts of a centroid serve VECTORS of them.
static inline void nearest_strip(uint8_t *nearest, const float *points, size_t depth, const float *centroids,
                                 const float *halves, size_t count) {
    kn_vec best[VECTORS];
    ivec which[VECTORS], number = {0};
    for (int v = 0; v < VECTORS; v++) {
        best[v] = splat(INFINITY);
        which[v] = (ivec){0};
    }
    for (size_t c = 0; c < count; c += FOUR) {
        kn_vec score[FOUR][VECTORS];
        const float *centroid = centroids + c * depth;
#pragma GCC unroll 4
        for (int k = 0; k < FOUR; k++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) score[k][v] = splat(halves[c + (size_t)k]);
        for (size_t i = 0; i < depth; i++) {
            const float *x = points + i * KN_POINTS;
#pragma GCC unroll 4
            for (int k = 0; k < FOUR; k++)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++)
                    score[k][v] -= centroid[(size_t)k * depth + i] * *(const kn_vec *)(x + v * KN_LANES);
        }
#pragma GCC unroll 4
        for (int k = 0; k < FOUR; k++, number += 1)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) keep_lower(&best[v], &which[v], score[k][v], number);
    }
    for (int v = 0; v < VECTORS; v++)
        for (int l = 0; l < KN_LANES; l++) nearest[v * KN_LANES + l] = (uint8_t)which[v][l];
}

void kn_isa(nearest)(uint8_t *nearest, const float *points, size_t depth, const float *centroids,
                     const float *halves, size_t count) {
    for (size_t p = 0; p < KN_POINTS; p += STRIP)
        nearest_strip(nearest + p, points + p, depth, centroids, halves, count);
}

// `vectors` vectors of centroids, their sums in registers.
static inline void distances_strip(float *out, const float *query, const float *columns, size_t depth,
                                   size_t count, bool inner_product, int vectors) {
    kn_vec sum[4] = {0};
    if (inner_product)
        for (size_t i = 0; i < depth; i++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[v] -= query[i] * *(const kn_vec *)(columns + i * count + v * KN_LANES);
    else
        for (size_t i = 0; i < depth; i++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                kn_vec away = query[i] - *(const kn_vec *)(columns + i * count + v * KN_LANES);
                sum[v] += away * away;
            }
    for (int v = 0; v < vectors; v++) *(kn_vec *)(out + v * KN_LANES) = sum[v];
}

void kn_isa(column_distances)(float *out, const float *query, const float *columns, size_t depth,
                              size_t count, bool inner_product) {
    size_t c = 0;
    for (; c + 4 * KN_LANES <= count; c += 4 * KN_LANES)
        distances_strip(out + c, query, columns + c, depth, count, inner_product, 4);
    for (; c < count; c += KN_LANES)
        distances_strip(out + c, query, columns + c, depth, count, inner_product, 1);
}
