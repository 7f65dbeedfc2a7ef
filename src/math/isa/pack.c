// Packing f32 matrices into panels of cells (math.h has the layouts).
#include "math/isa/block.h"
#include "math/isa/isa.h"
#include "math/isa/transpose.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifdef KN_ISA_BF16
typedef uint16_t element;

// To nearest, ties to even, as the CPU's own conversion.
static inline element to_element(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#else
typedef float element;
static inline element to_element(float x) {
    return x;
}
#endif

// One cell row of 32 elements from `n` <= 32 floats.
static inline void convert_row(element *out, const float *src, size_t n) {
    if (n == KN_CELL) {
#if defined(KN_ISA_BF16)
        __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(src + 16), _mm512_loadu_ps(src));
        _mm512_store_si512(out, (__m512i)both);
#else
        for (size_t i = 0; i < KN_CELL; i++) out[i] = to_element(src[i]);
#endif
        return;
    }
    for (size_t i = 0; i < n; i++) out[i] = to_element(src[i]);
    memset(out + n, 0, (KN_CELL - n) * sizeof *out);
}

void kn_isa(pack_lhs)(void *panel, const float *src, size_t ld, size_t rows, size_t depth) {
    element *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell += KN_CELL_SIZE) {
        for (size_t r = 0; r < rows; r++)
            convert_row(cell + r * KN_CELL, src + r * ld + k, kn_min(KN_CELL, depth - k));
        memset(cell + rows * KN_CELL, 0, (KN_CELL - rows) * KN_CELL * sizeof *cell);
    }
}

static void transpose_block(float *out, const float *in, size_t ld) {
    for (size_t i = 0; i < KN_CELL; i += 16)
        for (size_t j = 0; j < KN_CELL; j += 16)
            transpose16((uint32_t *)(void *)(out + j * KN_CELL + i), KN_CELL,
                        (const uint32_t *)(const void *)(in + i * ld + j), ld);
}

void kn_isa(transpose)(float *out, const float *block) {
    transpose_block(out, block, KN_CELL);
}

void kn_isa(load_cell)(float *cell, const float *rows, size_t ld) {
    for (size_t c = 0; c < KN_CELL; c += KN_HALF)
        for (size_t k = 0; k < KN_CELL; k += 16)
            transpose16((uint32_t *)(void *)(cell + c / KN_HALF * KN_HALF_SIZE + k * KN_HALF), KN_HALF,
                        (const uint32_t *)(const void *)(rows + c * ld + k), ld);
}

// Rows of a wide matrix lie a page or more apart, where no CPU guesses the next one.
static inline void fetch_rows(const float *src, size_t ld, size_t rows) {
    for (size_t r = 0; r < rows; r++) {
        __builtin_prefetch(src + r * ld);
        __builtin_prefetch(src + r * ld + 16);
    }
}

void kn_isa(pack_lhs_t)(void *panel, const float *src, size_t ld, size_t rows, size_t depth) {
    float in[KN_CELL_SIZE] __attribute__((aligned(64))), out[KN_CELL_SIZE] __attribute__((aligned(64)));
    element *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell += KN_CELL_SIZE) {
        float *turned = sizeof *cell == sizeof *out ? (float *)(void *)cell : out;
        if (rows == KN_CELL && depth - k >= KN_CELL) {
            if (depth - k >= 2 * KN_CELL) fetch_rows(src + (k + KN_CELL) * ld, ld, KN_CELL);
            transpose_block(turned, src + k * ld, ld);
        } else {
            load_block(in, src + k * ld, ld, kn_min(KN_CELL, depth - k), rows);
            transpose_block(turned, in, KN_CELL);
        }
        for (size_t r = 0; r < KN_CELL && turned == out; r++)
            convert_row(cell + r * KN_CELL, out + r * KN_CELL, KN_CELL);
    }
}

#ifdef KN_ISA_BF16
// A right cell from 32 rows (columns of the product) of 32 depth each: pairs of depth, transposed.
static void rhs_cell(element *cell, const float *block, size_t ld) {
    element rows[KN_CELL_SIZE] __attribute__((aligned(64)));
    for (size_t c = 0; c < KN_CELL; c++) convert_row(rows + c * KN_CELL, block + c * ld, KN_CELL);
    for (size_t half = 0; half < 2; half++)
        transpose16((uint32_t *)(void *)(cell + half * 512), 16,
                    (const uint32_t *)(const void *)(rows + half * 512), 16);
}

// A right cell from 32 rows of depth: two rows interleaved at a time.
static void rhs_cell_t(element *cell, const float *block, size_t ld) {
    for (size_t pair = 0; pair < 16; pair++) {
        const float *even = block + 2 * pair * ld, *odd = even + ld;
        for (size_t half = 0; half < 2; half++) {
            __m512bh both =
                _mm512_cvtne2ps_pbh(_mm512_loadu_ps(odd + 16 * half), _mm512_loadu_ps(even + 16 * half));
            __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256((__m512i)both));
            __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64((__m512i)both, 1));
            _mm512_store_si512(cell + half * 512 + pair * 32,
                               _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    }
}
#else
static void rhs_cell(element *cell, const float *block, size_t ld) {
    kn_isa(load_cell)(cell, block, ld);
}
static void rhs_cell_t(element *cell, const float *block, size_t ld) {
    for (size_t k = 0; k < KN_CELL; k++)
        for (size_t half = 0; half < 2; half++)
            memcpy(cell + half * KN_HALF_SIZE + k * KN_HALF, block + k * ld + half * KN_HALF,
                   KN_HALF * sizeof *cell);
}
#endif

void kn_isa(pack_rhs)(void *panel, const float *src, size_t ld, size_t columns, size_t depth) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    element *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell += KN_CELL_SIZE) {
        if (columns == KN_CELL && depth - k >= KN_CELL) {
            rhs_cell(cell, src + k, ld);
        } else {
            load_block(block, src + k, ld, columns, kn_min(KN_CELL, depth - k));
            rhs_cell(cell, block, KN_CELL);
        }
    }
}

void kn_isa(pack_rhs_t)(void *panel, const float *src, size_t ld, size_t columns, size_t depth) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    element *cell = panel;
    for (size_t k = 0; k < depth; k += KN_CELL, cell += KN_CELL_SIZE) {
        if (columns == KN_CELL && depth - k >= KN_CELL) {
            if (depth - k >= 2 * KN_CELL) fetch_rows(src + (k + KN_CELL) * ld, ld, KN_CELL);
            rhs_cell_t(cell, src + k * ld, ld);
        } else {
            load_block(block, src + k * ld, ld, kn_min(KN_CELL, depth - k), columns);
            rhs_cell_t(cell, block, KN_CELL);
        }
    }
}
