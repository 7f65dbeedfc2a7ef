// The inner product of two panels of bf16: one 32x32 block of the result. (multiply_f32.c has those of f32.)
#include "math/isa/isa.h"

#ifdef KN_ISA_BF16

#if defined(KN_ISA_amx)

#include <immintrin.h>
#include <string.h>

// Palette 1: eight tiles of 16 rows of 64 bytes. Fixed here: CPUID's description of it reads zero on some
// virtual machines. Set by each thread before its first product (see kn_isa_amx_ready).
static _Thread_local bool configured;

static void configure(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64)));
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
    configured = true;
}

// Tiles 0..3: the four 16x16 quarters of the block; 4, 5: upper and lower half of the left cell; 6, 7: left
// and right half of the right cell.
void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    const uint16_t *a = lhs, *b = rhs;
    (void)rows; // a tile product costs the same for one row as for sixteen
    if (!configured) configure();
    if (accumulate) {
        _tile_loadd(0, block, 128);
        _tile_loadd(1, block + 16, 128);
        _tile_loadd(2, block + 512, 128);
        _tile_loadd(3, block + 528, 128);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t s = 0; s < cells; s++, a += KN_CELL_SIZE, b += KN_CELL_SIZE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + 512, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 512, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, block, 128);
    _tile_stored(1, block + 16, 128);
    _tile_stored(2, block + 512, 128);
    _tile_stored(3, block + 528, 128);
}

#elif defined(KN_ISA_BF16)

#include <immintrin.h>

// 8 rows by 32 columns in 16 registers: each pair of depth costs 2 loads of the right cell and 8 broadcasts
// of the left one for 16 products. Fewer rows for what is left of a panel: a single vector is a product too.
// `n` is a constant where this is inlined.
static inline __attribute__((always_inline)) void few_rows(float *block, const uint16_t *a, const uint16_t *b,
                                                           size_t cells, bool accumulate, int n) {
    __m512 sum[8][2];
#pragma GCC unroll 8
    for (int r = 0; r < n; r++)
        for (int h = 0; h < 2; h++)
            sum[r][h] = accumulate ? _mm512_loadu_ps(block + r * KN_CELL + h * 16) : _mm512_setzero_ps();
    for (size_t s = 0; s < cells; s++, a += KN_CELL_SIZE, b += KN_CELL_SIZE) {
        const uint32_t *pairs = (const uint32_t *)(const void *)a;
        for (int k = 0; k < 16; k++) {
            __m512bh left = (__m512bh)_mm512_load_si512(b + k * 32);
            __m512bh right = (__m512bh)_mm512_load_si512(b + 512 + k * 32);
#pragma GCC unroll 8
            for (int r = 0; r < n; r++) {
                __m512bh x = (__m512bh)_mm512_set1_epi32((int)pairs[r * 16 + k]);
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, left);
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, right);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < n; r++)
        for (int h = 0; h < 2; h++) _mm512_storeu_ps(block + r * KN_CELL + h * 16, sum[r][h]);
}

void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    size_t r = 0;
    for (; r + 4 < rows; r += 8)
        few_rows(block + r * KN_CELL, (const uint16_t *)lhs + r * KN_CELL, rhs, cells, accumulate, 8);
    for (; r + 1 < rows; r += 4)
        few_rows(block + r * KN_CELL, (const uint16_t *)lhs + r * KN_CELL, rhs, cells, accumulate, 4);
    if (r < rows)
        few_rows(block + r * KN_CELL, (const uint16_t *)lhs + r * KN_CELL, rhs, cells, accumulate, 1);
}

#endif

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    (void)ahead;
    kn_isa(multiply)(block, lhs, rhs, cells, rows, accumulate);
}

#endif
