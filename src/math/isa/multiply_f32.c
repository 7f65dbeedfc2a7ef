// The inner product of two panels of f32: one 32x32 block of the result, by strips of as many rows as the
// registers hold sums for.
#include "math/isa/isa.h"

#include <string.h>

#ifndef KN_ISA_BF16

#if defined(__AVX2__)

#define MULTIPLY_ADD(right, left, sum, spare) "vfmadd231ps " right ", " left ", " sum "\n"
#define STRIP_LINE 128
#include "math/isa/strips.h"

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    multiply_strips(block, lhs, rhs, cells, rows, accumulate, ahead);
}

void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    kn_isa(multiply_ahead)(block, lhs, rhs, cells, rows, accumulate, NULL);
}

#else

// The plain form: each sum adds in the order of depth.
void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    for (size_t r = 0; r < rows; r++)
        for (size_t half = 0; half < 2; half++) {
            const float *a = (const float *)lhs + r * KN_CELL, *b = (const float *)rhs + half * KN_HALF_SIZE;
            float sum[KN_HALF] = {0}, *out = block + r * KN_CELL + half * KN_HALF;
            if (accumulate) memcpy(sum, out, sizeof sum);
            for (size_t s = 0; s < cells; s++, a += KN_CELL_SIZE, b += KN_CELL_SIZE)
                for (size_t k = 0; k < KN_CELL; k++)
                    for (size_t c = 0; c < KN_HALF; c++) sum[c] += a[k] * b[k * KN_HALF + c];
            memcpy(out, sum, sizeof sum);
        }
}

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    (void)ahead;
    kn_isa(multiply)(block, lhs, rhs, cells, rows, accumulate);
}

#endif
#endif
