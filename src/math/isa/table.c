#include "math/isa/isa.h"

#define KN_TEXT_(x) #x
#define KN_TEXT(x) KN_TEXT_(x)

const kn_kernels kn_isa(kernels) = {
    .name = KN_TEXT(KN_ISA),
#ifdef KN_ISA_BF16
    .element = 2,
#else
    .element = 4,
#endif
    .chunk_cells = 16,
    .pack_lhs = kn_isa(pack_lhs),
    .pack_lhs_t = kn_isa(pack_lhs_t),
    .pack_rhs = kn_isa(pack_rhs),
    .pack_rhs_t = kn_isa(pack_rhs_t),
    .transpose = kn_isa(transpose),
    .multiply = kn_isa(multiply),
    .store = kn_isa(store),
    .dot = kn_isa(dot),
    .axpy = kn_isa(axpy),
    .scale = kn_isa(scale),
    .sum_squares = kn_isa(sum_squares),
    .max = kn_isa(max),
    .exp_shift = kn_isa(exp_shift),
    .exp_shift_sum = kn_isa(exp_shift_sum),
    .block_softmax = kn_isa(block_softmax),
    .causal_softmax = kn_isa(causal_softmax),
    .causal_exp = kn_isa(causal_exp),
    .softmax_backward = kn_isa(softmax_backward),
    .relu = kn_isa(relu),
    .relu_backward = kn_isa(relu_backward),
    .norm = kn_isa(norm),
    .norm_backward = kn_isa(norm_backward),
    .norm_sums = kn_isa(norm_sums),
    .gelu = kn_isa(gelu),
    .gelu_backward = kn_isa(gelu_backward),
    .dropout = kn_isa(dropout),
    .adam = kn_isa(adam),
    .nesterov = kn_isa(nesterov),
    .nearest = kn_isa(nearest),
    .column_distances = kn_isa(column_distances),
    .range = kn_isa(range),
    .quantize = kn_isa(quantize),
    .scan_bytes = kn_isa(scan_bytes),
    .scan_halves = kn_isa(scan_halves),
    .load_row = kn_isa(load_row),
    .load_columns = kn_isa(load_columns),
    .widen_rows = kn_isa(widen_rows),
    .near = kn_isa(near),
    .rank = kn_isa(rank),
    .row_distances = kn_isa(row_distances),
};
