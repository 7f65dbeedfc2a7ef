// Packed cells of 16-bit integers (block fixed point): every 32 numbers along depth share a scale, the
// largest of them becoming KN_INT16_MAX, whose square 32 times over just fits a sum of 32 bits. A product is
// off by half a step of either factor: with numbers of about one size, a fifth of what bf16 loses. (Right
// operands beyond 1e33 give infinities before the left scale can bring them back.)
#ifndef KN_MATH_INT16_H
#define KN_MATH_INT16_H

#include "math/isa/isa.h"

enum { KN_INT16_MAX = 8191 };

// left   numbers[32 rows][32 depth], a scale a row
// right  numbers[2 halves][16 depth pairs][16 columns][2], a scale a column
typedef struct kn_int16_cell {
    int16_t numbers[KN_CELL_SIZE];
    float scales[KN_CELL];
} __attribute__((aligned(64))) kn_int16_cell;

void kn_isa(pack_lhs_int16)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
void kn_isa(pack_lhs_t_int16)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
void kn_isa(pack_rhs_int16)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
void kn_isa(pack_rhs_t_int16)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
void kn_isa(multiply_int16)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate);
void kn_isa(multiply_ahead_int16)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                                  bool accumulate, const void *ahead);
#endif
