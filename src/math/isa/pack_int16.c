// Packing f32 matrices into cells of 16-bit integers with scales (int16.h).
#include "math/isa/int16.h"

#ifdef KN_ISA_INT16

#include "math/isa/block.h"
#include "math/isa/transpose.h"

#include <math.h>
#include <string.h>

// Below this magnitude numbers count as 0, lest the factor that brings them to integers overflow.
#define TINY 0x1p-100f

// A step, and by how much numbers are multiplied to become steps; `bits` are those of the largest magnitude.
// With a number that is not finite every product of the row is not a number.
typedef struct steps {
    float scale, inverse;
} steps;

static inline steps steps_of(uint32_t bits) {
    float max;
    memcpy(&max, &bits, sizeof max);
    if (max < TINY) return (steps){0, 0};
    if (!(max <= 0x1.fffffep127f)) return (steps){NAN, 0};
    return (steps){max * (1.0f / KN_INT16_MAX), KN_INT16_MAX / max};
}

// Magnitudes compare as their bits do, and what is not a number is above all.
static inline __m256i magnitudes(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

static inline uint32_t largest(__m256i bits) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

// 32 numbers as integers; returns their scale.
static inline float quantize_row(int16_t *out, const float *src) {
    __m256 x[4];
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_loadu_ps(src + 8 * i);
        max = _mm256_max_epi32(max, magnitudes(x[i]));
    }
    steps s = steps_of(largest(max));
    __m256 inverse = _mm256_set1_ps(s.inverse);
    for (int i = 0; i < 4; i += 2) {
        __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
        __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(x[i + 1], inverse));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(out + 8 * i), both);
    }
    return s.scale;
}

// `n` <= 32 floats, zeros beyond.
static inline float quantize_part(int16_t *out, const float *src, size_t n) {
    if (n == KN_CELL) return quantize_row(out, src);
    float row[KN_CELL] = {0};
    memcpy(row, src, n * sizeof *row);
    return quantize_row(out, row);
}

static void clear_rows(kn_int16_cell *cell, size_t rows) {
    memset(cell->numbers + rows * KN_CELL, 0, (KN_CELL - rows) * KN_CELL * sizeof *cell->numbers);
    memset(cell->scales + rows, 0, (KN_CELL - rows) * sizeof *cell->scales);
}

void kn_isa(pack_lhs_int16)(void *panel, const float *src, size_t ld, size_t rows, size_t depth) {
    kn_int16_cell *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell++) {
        for (size_t r = 0; r < rows; r++)
            cell->scales[r] =
                quantize_part(cell->numbers + r * KN_CELL, src + r * ld + k, kn_min(KN_CELL, depth - k));
        clear_rows(cell, rows);
    }
}

void kn_isa(pack_lhs_t_int16)(void *panel, const float *src, size_t ld, size_t rows, size_t depth) {
    float in[KN_CELL_SIZE] __attribute__((aligned(64))), out[KN_CELL_SIZE] __attribute__((aligned(64)));
    kn_int16_cell *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell++) {
        load_block(in, src + k * ld, ld, kn_min(KN_CELL, depth - k), rows);
        kn_isa(transpose)(out, in);
        for (size_t r = 0; r < KN_CELL; r++)
            cell->scales[r] = quantize_row(cell->numbers + r * KN_CELL, out + r * KN_CELL);
    }
}

void kn_isa(pack_rhs_int16)(void *panel, const float *src, size_t ld, size_t columns, size_t depth) {
    kn_int16_cell rows, *cell = panel; // rows: as the left operand lies
    clear_rows(&rows, columns);
    for (size_t k = 0; k < depth; k += KN_CELL, cell++) {
        for (size_t c = 0; c < columns; c++)
            rows.scales[c] =
                quantize_part(rows.numbers + c * KN_CELL, src + c * ld + k, kn_min(KN_CELL, depth - k));
        for (size_t half = 0; half < 2; half++)
            transpose16((uint32_t *)(void *)(cell->numbers + half * KN_HALF_SIZE), KN_HALF,
                        (const uint32_t *)(const void *)(rows.numbers + half * KN_HALF_SIZE), KN_HALF);
        memcpy(cell->scales, rows.scales, sizeof rows.scales);
    }
}

// 8 columns of 32 rows of depth: their scales, and pairs of integers, a row of pairs 16 columns apart.
static void quantize_columns(int16_t *out, float *scales, const float *block, size_t ld) {
    __m256i max = _mm256_setzero_si256();
    float inverses[8];
    uint32_t bits[8];
    for (size_t r = 0; r < KN_CELL; r++)
        max = _mm256_max_epi32(max, magnitudes(_mm256_loadu_ps(block + r * ld)));
    _mm256_storeu_si256((__m256i *)(void *)bits, max);
    for (int i = 0; i < 8; i++) {
        steps s = steps_of(bits[i]);
        scales[i] = s.scale;
        inverses[i] = s.inverse;
    }
    __m256 inverse = _mm256_loadu_ps(inverses);
    for (size_t r = 0; r < KN_CELL; r += 2) {
        __m256i even = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(block + r * ld), inverse));
        __m256i odd = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(block + (r + 1) * ld), inverse));
        __m256i pairs = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
        _mm256_storeu_si256((__m256i *)(void *)(out + r / 2 * KN_CELL), pairs);
    }
}

void kn_isa(pack_rhs_t_int16)(void *panel, const float *src, size_t ld, size_t columns, size_t depth) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    kn_int16_cell *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell++) {
        bool whole = columns == KN_CELL && depth - k >= KN_CELL;
        if (!whole) load_block(block, src + k * ld, ld, kn_min(KN_CELL, depth - k), columns);
        const float *from = whole ? src + k * ld : block;
        for (size_t c = 0; c < KN_CELL; c += 8)
            quantize_columns(cell->numbers + c / KN_HALF * KN_HALF_SIZE + c % KN_HALF * 2, cell->scales + c,
                             from + c, whole ? ld : KN_CELL);
    }
}

#endif
