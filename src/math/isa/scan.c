// Sums of 8-bit tables over codes: see math.h for the layout.
#include "math/isa/isa.h"

#include <math.h>
#include <string.h>

void kn_isa(range)(const float *x, size_t n, float *low, float *high) {
    float least = INFINITY, most = -INFINITY, nought = 0;
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : nought)
    for (size_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        nought += x[i] * 0; // NaN for what is not finite
    }
    *low = least + nought;
    *high = most + nought;
}

float kn_isa(quantize)(uint8_t *out, const float *x, size_t n, float low, float step, float inverse) {
    float worst = 0;
#pragma omp simd reduction(max : worst)
    for (size_t i = 0; i < n; i++) {
        float away = x[i] - low, steps = away * inverse + 0.5f;
        int32_t whole = (int32_t)(steps < 255.0f ? steps : 255.0f);
        float error = fabsf(away - step * (float)whole);
        worst = error > worst ? error : worst;
        out[i] = (uint8_t)whole;
    }
    return worst;
}

// ---------------------------------------------------------------- scans

#if defined(__AVX512BW__)

#include <immintrin.h>

enum { BYTES = 64 };
typedef __m512i bytes;

static inline bytes load(const uint8_t *x) {
    return _mm512_loadu_si512(x);
}

static inline bytes load_table(const uint8_t *x) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline bytes low_halves(bytes x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

static inline bytes high_halves(bytes x) {
    return low_halves(_mm512_srli_epi16(x, 4));
}

// table[number], 16 entries.
static inline bytes look_up(bytes table, bytes number) {
    return _mm512_shuffle_epi8(table, number);
}

// Where bit `bit` of `code` is set, b, else a.
static inline bytes choose(bytes code, int bit, bytes a, bytes b) {
    return _mm512_mask_blend_epi8(_mm512_test_epi8_mask(code, _mm512_set1_epi8((char)(1 << bit))), a, b);
}

// Sums of even and odd bytes apart: the even ones have the odd ones, times 256, on top until the end.
static inline void add(bytes *even, bytes *odd, bytes x) {
    *even = _mm512_add_epi16(*even, x);
    *odd = _mm512_add_epi16(*odd, _mm512_srli_epi16(x, 8));
}

static inline void put_sums(uint16_t *sums, bytes even, bytes odd) {
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    even = _mm512_sub_epi16(even, _mm512_slli_epi16(odd, 8));
    __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    _mm512_storeu_si512(sums, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(sums + 32, _mm512_permutex2var_epi64(low, second, high));
}

#elif defined(__AVX2__)

#include <immintrin.h>

enum { BYTES = 32 };
typedef __m256i bytes;

static inline bytes load(const uint8_t *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

static inline bytes load_table(const uint8_t *x) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline bytes low_halves(bytes x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

static inline bytes high_halves(bytes x) {
    return low_halves(_mm256_srli_epi16(x, 4));
}

static inline bytes look_up(bytes table, bytes number) {
    return _mm256_shuffle_epi8(table, number);
}

// What decides is the top bit of each byte.
static inline bytes choose(bytes code, int bit, bytes a, bytes b) {
    return _mm256_blendv_epi8(a, b, _mm256_slli_epi16(code, 7 - bit));
}

static inline void add(bytes *even, bytes *odd, bytes x) {
    *even = _mm256_add_epi16(*even, x);
    *odd = _mm256_add_epi16(*odd, _mm256_srli_epi16(x, 8));
}

static inline void put_sums(uint16_t *sums, bytes even, bytes odd) {
    even = _mm256_sub_epi16(even, _mm256_slli_epi16(odd, 8));
    __m256i low = _mm256_unpacklo_epi16(even, odd), high = _mm256_unpackhi_epi16(even, odd);
    _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(sums + 16), _mm256_permute2x128_si256(low, high, 0x31));
}

#endif

#if defined(__AVX2__)

// table[code], 256 entries: what each sixteenth of the table has for the low half of the code, and then the
// high half decides in four rounds.
static inline bytes look_up_256(const uint8_t *table, bytes code) {
    bytes low = low_halves(code), kept[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const uint8_t *t = table + q * 64;
        bytes a = choose(code, 4, look_up(load_table(t), low), look_up(load_table(t + 16), low));
        bytes b = choose(code, 4, look_up(load_table(t + 32), low), look_up(load_table(t + 48), low));
        kept[q] = choose(code, 5, a, b);
    }
    return choose(code, 7, choose(code, 6, kept[0], kept[1]), choose(code, 6, kept[2], kept[3]));
}

static void scan_bytes_shuffled(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                                size_t blocks) {
    for (size_t b = 0; b < blocks; b++, codes += columns * KN_POINTS, sums += KN_POINTS)
        for (size_t part = 0; part < KN_POINTS; part += BYTES) {
            bytes even = {0}, odd = {0};
            for (size_t j = 0; j < columns; j++)
                add(&even, &odd, look_up_256(tables + j * 256, load(codes + j * KN_POINTS + part)));
            put_sums(sums + part, even, odd);
        }
}

void kn_isa(scan_halves)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                         size_t blocks) {
    for (size_t b = 0; b < blocks; b++, codes += columns * KN_POINTS, sums += KN_POINTS)
        for (size_t part = 0; part < KN_POINTS; part += BYTES) {
            bytes even = {0}, odd = {0};
            for (size_t j = 0; j < columns; j++) {
                bytes code = load(codes + j * KN_POINTS + part);
                add(&even, &odd, look_up(load_table(tables + j * 32), low_halves(code)));
                add(&even, &odd, look_up(load_table(tables + j * 32 + 16), high_halves(code)));
            }
            put_sums(sums + part, even, odd);
        }
}

#endif

#if defined(KN_ISA_BF16)

// VBMI looks up 128 entries at once. It is in no instruction set of the five, but in nearly all CPUs that
// have bf16; the plain AVX-512 copy does without, so that both ways can be tested on one machine.
#define VBMI __attribute__((target("avx512vbmi")))

// FOUR blocks share the loads of a table.
enum { FOUR = 4 };

VBMI static inline void scan_blocks(uint16_t *sums, const uint8_t *codes, const uint8_t *tables,
                                    size_t columns, size_t blocks) {
    bytes even[FOUR] = {{0}}, odd[FOUR] = {{0}};
    for (size_t j = 0; j < columns; j++, tables += 256, codes += KN_POINTS) {
        bytes t0 = load(tables), t1 = load(tables + 64), t2 = load(tables + 128), t3 = load(tables + 192);
#pragma GCC unroll 4
        for (size_t b = 0; b < blocks; b++) {
            bytes code = load(codes + b * columns * KN_POINTS);
            bytes low = _mm512_permutex2var_epi8(t0, code, t1), high = _mm512_permutex2var_epi8(t2, code, t3);
            add(&even[b], &odd[b], _mm512_mask_blend_epi8(_mm512_movepi8_mask(code), low, high));
        }
    }
    for (size_t b = 0; b < blocks; b++) put_sums(sums + b * KN_POINTS, even[b], odd[b]);
}

VBMI static void scan_bytes_permuted(uint16_t *sums, const uint8_t *codes, const uint8_t *tables,
                                     size_t columns, size_t blocks) {
    size_t b = 0;
    for (; b + FOUR <= blocks; b += FOUR)
        scan_blocks(sums + b * KN_POINTS, codes + b * columns * KN_POINTS, tables, columns, FOUR);
    for (; b < blocks; b++)
        scan_blocks(sums + b * KN_POINTS, codes + b * columns * KN_POINTS, tables, columns, 1);
}

void kn_isa(scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks) {
    if (__builtin_cpu_supports("avx512vbmi"))
        scan_bytes_permuted(sums, codes, tables, columns, blocks);
    else
        scan_bytes_shuffled(sums, codes, tables, columns, blocks);
}

#elif defined(__AVX2__)

void kn_isa(scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks) {
    scan_bytes_shuffled(sums, codes, tables, columns, blocks);
}

#else

void kn_isa(scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks) {
    for (size_t b = 0; b < blocks; b++, sums += KN_POINTS) {
        uint16_t sum[KN_POINTS] = {0};
        for (size_t j = 0; j < columns; j++, codes += KN_POINTS)
            for (size_t i = 0; i < KN_POINTS; i++) sum[i] = (uint16_t)(sum[i] + tables[j * 256 + codes[i]]);
        memcpy(sums, sum, sizeof sum);
    }
}

void kn_isa(scan_halves)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                         size_t blocks) {
    for (size_t b = 0; b < blocks; b++, sums += KN_POINTS) {
        uint16_t sum[KN_POINTS] = {0};
        for (size_t j = 0; j < columns; j++, codes += KN_POINTS)
            for (size_t i = 0; i < KN_POINTS; i++)
                sum[i] = (uint16_t)(sum[i] + tables[j * 32 + (codes[i] & 15)] +
                                    tables[j * 32 + 16 + (codes[i] >> 4)]);
        memcpy(sums, sum, sizeof sum);
    }
}

#endif
