// The tables of kernels of one instruction set.
#include "math/isa/int16.h"

#define KN_TEXT_(x) #x
#define KN_TEXT(x) KN_TEXT_(x)

const kn_kernels kn_isa(kernels) = {
    .name = KN_TEXT(KN_ISA),
#ifdef KN_ISA_BF16
    .precision = KNNLM_PRECISION_BF16,
    .cell = KN_CELL_SIZE * sizeof(uint16_t),
    .chunk_cells = 16,
#else
    .precision = KNNLM_PRECISION_F32,
    .cell = KN_CELL_SIZE * sizeof(float),
    .chunk_cells = 8, // a right panel of 32 KB, and a strip of the left one
#endif
    .pack_lhs = kn_isa(pack_lhs),
    .pack_lhs_t = kn_isa(pack_lhs_t),
    .pack_rhs = kn_isa(pack_rhs),
    .pack_rhs_t = kn_isa(pack_rhs_t),
    .multiply = kn_isa(multiply),
    .multiply_ahead = kn_isa(multiply_ahead),
#include "math/isa/table_shared.h"
};

#ifdef KN_ISA_INT16
const kn_kernels kn_isa(kernels_int16) = {
    .name = KN_TEXT(KN_ISA) "int16",
    .precision = KNNLM_PRECISION_INT16,
    .cell = sizeof(kn_int16_cell),
    .chunk_cells = 16,
    .pack_lhs = kn_isa(pack_lhs_int16),
    .pack_lhs_t = kn_isa(pack_lhs_t_int16),
    .pack_rhs = kn_isa(pack_rhs_int16),
    .pack_rhs_t = kn_isa(pack_rhs_t_int16),
    .multiply = kn_isa(multiply_int16),
    .multiply_ahead = kn_isa(multiply_ahead_int16),
#include "math/isa/table_shared.h"
};
#endif
