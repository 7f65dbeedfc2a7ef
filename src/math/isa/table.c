// The table of kernels of one instruction set.
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
    .attention = &kn_isa(kernels),
    .pack_lhs = kn_isa(pack_lhs),
    .pack_lhs_t = kn_isa(pack_lhs_t),
    .pack_rhs = kn_isa(pack_rhs),
    .pack_rhs_t = kn_isa(pack_rhs_t),
    .transpose = kn_isa(transpose),
    .multiply = kn_isa(multiply),
    .multiply_ahead = kn_isa(multiply_ahead),
    .store = kn_isa(store),
    .dot = kn_isa(dot),
    .axpy = kn_isa(axpy),
    .scale = kn_isa(scale),
    .dots = kn_isa(dots),
    .add_rows = kn_isa(add_rows),
    .sum_squares = kn_isa(sum_squares),
    .max = kn_isa(max),
    .exp_shift = kn_isa(exp_shift),
    .exp_scale_sum = kn_isa(exp_scale_sum),
    .exp_scale = kn_isa(exp_scale),
    .exp_fixed_sum = kn_isa(exp_fixed_sum),
    .block_softmax = kn_isa(block_softmax),
    .causal_softmax = kn_isa(causal_softmax),
    .causal_exp = kn_isa(causal_exp),
    .softmax_backward = kn_isa(softmax_backward),
    .relu = kn_isa(relu),
    .relu_backward = kn_isa(relu_backward),
    .norm = kn_isa(norm),
    .norm_backward = kn_isa(norm_backward),
    .norm_sums = kn_isa(norm_sums),
    .rms_norm = kn_isa(rms_norm),
    .rms_backward = kn_isa(rms_backward),
    .relu2 = kn_isa(relu2),
    .relu2_backward = kn_isa(relu2_backward),
    .swiglu = kn_isa(swiglu),
    .swiglu_backward = kn_isa(swiglu_backward),
    .rotate = kn_isa(rotate),
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
    .fixed_distance = kn_isa(fixed_distance),
    .fixed_product = kn_isa(fixed_product),
    .rank = kn_isa(rank),
    .row_distances = kn_isa(row_distances),
    .load_integers = kn_isa(load_integers),
    .multiply_integers = kn_isa(multiply_integers),
    .row_integers = kn_isa(row_integers),
    .integer_terms = kn_isa(integer_terms),
    .integer_distances = kn_isa(integer_distances),
    .rank_integers = kn_isa(rank_integers),
    .item_range = kn_isa(item_range),
    .count_below = kn_isa(count_below),
    .cut_items = kn_isa(cut_items),
    .find_equal = kn_isa(find_equal),
};

#ifdef KN_ISA_INT16
kn_kernels kn_isa(kernels_int16)(void) {
    kn_kernels k = kn_isa(kernels);
    k.name = KN_TEXT(KN_ISA) "int16";
    k.precision = KNNLM_PRECISION_INT16;
    k.cell = sizeof(kn_int16_cell);
    k.chunk_cells = 16;
    k.pack_lhs = kn_isa(pack_lhs_int16);
    k.pack_lhs_t = kn_isa(pack_lhs_t_int16);
    k.pack_rhs = kn_isa(pack_rhs_int16);
    k.pack_rhs_t = kn_isa(pack_rhs_t_int16);
    k.multiply = kn_isa(multiply_int16);
    k.multiply_ahead = kn_isa(multiply_ahead_int16);
    return k;
}
#endif
