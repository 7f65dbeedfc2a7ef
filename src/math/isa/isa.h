// Inside the kernels: what each instruction set's copy of these sources is called, and its vector type.
#ifndef KN_MATH_ISA_H
#define KN_MATH_ISA_H

#include "math/math.h"

#define KN_JOIN_(a, b) a##_##b
#define KN_JOIN(a, b) KN_JOIN_(a, b)
// kn_isa(multiply) is kn_isa_multiply_avx2 in the AVX2 copy.
#define kn_isa(name) KN_JOIN(kn_isa_##name, KN_ISA)

#if defined(KN_ISA_avx512bf16) || defined(KN_ISA_amx)
#define KN_ISA_BF16 1
#elif defined(__AVX2__)
#define KN_ISA_INT16 1 // products of 16-bit integers with scales, beside those of f32 (int16.h)
#endif

#if defined(__AVX512F__)
enum { KN_LANES = 16 };
#elif defined(__AVX2__)
enum { KN_LANES = 8 };
#else
enum { KN_LANES = 4 };
#endif

typedef float kn_vec __attribute__((vector_size(KN_LANES * 4), aligned(4), may_alias));

void kn_isa(pack_lhs)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
void kn_isa(pack_lhs_t)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
void kn_isa(pack_rhs)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
void kn_isa(pack_rhs_t)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
void kn_isa(transpose)(float *out, const float *block);
// A right cell (f32 layout) of 32 rows of 32 depth, stride ld.
void kn_isa(load_cell)(float *cell, const float *rows, size_t ld);
void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate);
void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead);
void kn_isa(store)(float *out, size_t ld, const float *block, const float *bias, size_t rows, size_t columns,
                   bool add);
float kn_isa(dot)(const float *a, const float *b, size_t n);
void kn_isa(axpy)(float *y, float a, const float *x, size_t n);
void kn_isa(scale)(float *x, float a, size_t n);
void kn_isa(dots)(float *out, const float *x, const float *rows, size_t ld, size_t n, size_t d);
void kn_isa(add_rows)(float *out, const float *weights, const float *rows, size_t ld, size_t n, size_t d);
double kn_isa(sum_squares)(const float *x, size_t n);
float kn_isa(max)(const float *x, size_t n);
float kn_isa(exp_shift)(float *x, size_t n, float shift);
float kn_isa(exp_scale_sum)(const float *x, size_t n, float scale, float shift);
void kn_isa(exp_scale)(double *out, const float *x, size_t n, double scale, float min);
double kn_isa(exp_fixed_sum)(const float *x, size_t n, float scale, float min);
void kn_isa(block_softmax)(const float *block, size_t rows, size_t columns, float *largest, float *sum,
                           float *moment, size_t stride);
void kn_isa(causal_softmax)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                            float *logs);
void kn_isa(causal_exp)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                        const float *logs);
void kn_isa(softmax_backward)(float *slopes, const float *weights, size_t blocks, size_t rows,
                              const float *dots);
void kn_isa(relu)(float *y, const float *x, size_t n);
void kn_isa(relu_backward)(float *dx, const float *x, size_t n);
void kn_isa(norm)(float *y, float *mean, float *inverse, const float *x, const float *weight,
                  const float *bias, size_t n, float epsilon);
void kn_isa(norm_backward)(float *dx, const float *dy, const float *x, const float *weight, float mean,
                           float inverse, size_t n);
void kn_isa(norm_sums)(float *dweight, float *dbias, const float *dy, const float *x, float mean,
                       float inverse, size_t n);
void kn_isa(rms_norm)(float *y, float *inverse, const float *x, const float *weight, size_t n, float epsilon);
void kn_isa(rms_backward)(float *dx, const float *dy, const float *x, const float *weight, float inverse,
                          size_t n);
void kn_isa(relu2)(float *y, const float *x, size_t n);
void kn_isa(relu2_backward)(float *dx, const float *x, size_t n);
void kn_isa(swiglu)(float *y, const float *gate, const float *up, size_t n);
void kn_isa(swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                             size_t n);
void kn_isa(rotate)(float *x, const float *cosines, const float *sines, size_t half, bool adjacent,
                    float sign);
void kn_isa(gelu)(float *y, const float *x, size_t n);
void kn_isa(gelu_backward)(float *dx, const float *x, size_t n);
void kn_isa(dropout)(float *x, size_t n, float p, uint64_t key, uint32_t first);
void kn_isa(adam)(float *w, float *m, float *v, const float *g, size_t n, const kn_adam *p);
void kn_isa(nesterov)(float *w, float *m, const float *g, size_t n, const kn_nesterov *p);
void kn_isa(nearest)(uint8_t *nearest, const float *points, size_t depth, const float *centroids,
                     const float *halves, size_t count);
void kn_isa(column_distances)(float *out, const float *query, const float *columns, size_t depth,
                              size_t count, bool inner_product);
void kn_isa(range)(const float *x, size_t n, float *low, float *high);
float kn_isa(quantize)(uint8_t *out, const float *x, size_t n, float low, float step, float inverse);
void kn_isa(scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks);
void kn_isa(scan_halves)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                         size_t blocks);
float kn_isa(load_row)(float *cells, const float *row, const float *centre, size_t d);
void kn_isa(load_columns)(float *panel, float *norms, const void *rows, kn_row_type type, const float *scales,
                          const float *centre, size_t n, size_t d);
void kn_isa(widen_rows)(float *out, float *norms, const void *rows, kn_row_type type, const float *scales,
                        const float *centre, size_t n, size_t d);
void kn_isa(near)(float *block, const float *row_terms, const float *query_terms, float factor,
                  const float *limits, float small, size_t queries, size_t rows, uint32_t *masks,
                  uint32_t *smalls);
float kn_isa(fixed_distance)(const float *a, const float *b, size_t d);
float kn_isa(fixed_product)(const float *a, const float *b, size_t d);
size_t kn_isa(rank)(uint64_t *out, const float *distances, uint32_t mask, const uint32_t *ids, uint32_t first,
                    uint32_t end);
void kn_isa(row_distances)(float *out, const float *q, const void *rows, kn_row_type type, size_t n, size_t d,
                           bool product);
void kn_isa(load_integers)(int16_t *panel, int32_t *squares, const int8_t *const *rows, size_t n, size_t d);
void kn_isa(multiply_integers)(int32_t *block, const int16_t *lhs, const int16_t *rhs, size_t cells,
                               size_t rows);
void kn_isa(row_integers)(int32_t *products, int32_t *squares, const int16_t *q, const int8_t *rows, size_t n,
                          size_t d);
void kn_isa(integer_terms)(kn_integer_terms *out, const int32_t *squares, const float *scales, size_t n,
                           kn_integer_form form);
void kn_isa(integer_distances)(float *out, const int32_t *products, const kn_integer_terms *rows,
                               const kn_integer_query *query, size_t n);
size_t kn_isa(rank_integers)(uint64_t *out, const int32_t *products, const kn_integer_terms *rows,
                             const kn_integer_query *query, float limit, const uint32_t *ids, uint32_t first,
                             uint32_t end, size_t n);
void kn_isa(item_range)(const uint64_t *items, size_t n, uint64_t *min, uint64_t *max);
size_t kn_isa(count_below)(const uint64_t *items, size_t n, uint64_t pivot);
size_t kn_isa(cut_items)(uint64_t *items, size_t n, uint64_t low, uint64_t high, uint64_t *middle);
size_t kn_isa(find_equal)(uint32_t *places, const int32_t *values, size_t n, int32_t value);

#endif
