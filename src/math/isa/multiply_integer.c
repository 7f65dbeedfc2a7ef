// The inner product of two panels of 16-bit integers: one 32x32 block of 32-bit sums, which are exact. A lane
// is a pair of integers.
#include "math/isa/isa.h"

#if defined(__AVX2__)

#include "math/isa/multiply_pairs.h"
#define STRIP_LINE 128
#include "math/isa/strips.h"

void kn_isa(multiply_integers)(int32_t *block, const int16_t *lhs, const int16_t *rhs, size_t cells,
                               size_t rows) {
    multiply_strips(block, lhs, rhs, cells, rows, false, NULL);
}

#else

void kn_isa(multiply_integers)(int32_t *block, const int16_t *lhs, const int16_t *rhs, size_t cells,
                               size_t rows) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < KN_CELL; c++) {
            const int16_t *a = lhs + r * KN_INTEGER_DEPTH;
            const int16_t *b = rhs + c / KN_HALF * 2 * KN_HALF_SIZE + c % KN_HALF * 2;
            int32_t sum = 0;
            for (size_t s = 0; s < cells; s++, a += KN_INTEGER_CELL, b += KN_INTEGER_CELL)
                for (size_t k = 0; k < KN_INTEGER_DEPTH; k += 2)
                    sum += a[k] * b[k * KN_HALF] + a[k + 1] * b[k * KN_HALF + 1];
            block[r * KN_CELL + c] = sum;
        }
}

#endif
