// Transposing 16 by 16 elements of 32 bits.
#ifndef KN_MATH_TRANSPOSE_H
#define KN_MATH_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
// out (16,16) = in (16,16) transposed, elements of 32 bits, strides in elements.
static inline void transpose16(uint32_t *out, size_t ldo, const uint32_t *in, size_t ldi) {
    __m512i r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(in + (size_t)i * ldi);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(out + (size_t)i * ldo, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
        _mm512_storeu_si512(out + (size_t)(i + 8) * ldo, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
        _mm512_storeu_si512(out + (size_t)(i + 4) * ldo, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
        _mm512_storeu_si512(out + (size_t)(i + 12) * ldo, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
    }
}
#elif defined(__AVX2__)
// out (8,8) = in (8,8) transposed: pairs, then fours of 32 bits within halves, then the halves.
static inline void transpose8(float *out, size_t ldo, const float *in, size_t ldi) {
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(in + i * ldi);
#pragma GCC unroll 4
    for (size_t i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * ldo, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * ldo, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static inline void transpose16(uint32_t *out, size_t ldo, const uint32_t *in, size_t ldi) {
    for (size_t i = 0; i < 16; i += 8)
        for (size_t j = 0; j < 16; j += 8)
            transpose8((float *)(void *)(out + j * ldo + i), ldo,
                       (const float *)(const void *)(in + i * ldi + j), ldi);
}
#else
static inline void transpose16(uint32_t *out, size_t ldo, const uint32_t *in, size_t ldi) {
    for (size_t i = 0; i < 16; i++)
        for (size_t j = 0; j < 16; j++) out[j * ldo + i] = in[i * ldi + j];
}
#endif

#endif
