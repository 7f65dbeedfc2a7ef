// Blocks of matrices that packing begins with, filled up with zeros at the edges.
#ifndef KN_MATH_BLOCK_H
#define KN_MATH_BLOCK_H

#include "math/math.h"

#include <string.h>

// A 32x32 block of floats from `rows` rows of `columns`, zeros elsewhere.
static inline void load_block(float *block, const float *src, size_t ld, size_t rows, size_t columns) {
    for (size_t r = 0; r < KN_CELL; r++) {
        float *out = block + r * KN_CELL;
        size_t n = r < rows ? columns : 0;
        memcpy(out, src + (n ? r * ld : 0), n * sizeof *out);
        memset(out + n, 0, (KN_CELL - n) * sizeof *out);
    }
}

#endif
