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

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    (void)ahead;
    kn_isa(multiply)(block, lhs, rhs, cells, rows, accumulate);
}

#else

#define STRIP_LINE 64
#define MULTIPLY_ADD(right, left, sum, spare) "vdpbf16ps " right ", " left ", " sum "\n"
#include "math/isa/strips.h"

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    multiply_strips(block, lhs, rhs, cells, rows, accumulate, ahead);
}

void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    kn_isa(multiply_ahead)(block, lhs, rhs, cells, rows, accumulate, NULL);
}

#endif
#endif
