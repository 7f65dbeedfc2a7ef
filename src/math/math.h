// The math room: matrix products, normalisation, softmax and the rest of what costs time, by the kernel that
// suits the CPU this process finds itself on.
//
// Products work on packed operands. A packed operand is made of cells of 32x32 elements; 32 rows (of the left
// operand) or 32 columns (of the right one) by the whole depth, rounded up to 32 and filled with zeros, make
// a panel:
//   left   panel[depth/32][32 rows][32 depth]
//   right  panel[depth/32][2 halves][32 depth][16 columns]             f32 kernels
//          panel[depth/32][2 halves][16 depth pairs][16 columns][2]    bf16 kernels (what AMX and AVX512-BF16
//          read)
//          int16 kernels read cells as those of bf16, each followed by 32 scales (isa/int16.h)
// Elements are f32, bf16 or int16 as the kernel has it; sums are always f32.
#ifndef KN_MATH_H
#define KN_MATH_H

#include "base/memory.h"

enum { KN_CELL = 32, KN_CELL_SIZE = KN_CELL * KN_CELL };
enum { KN_POINTS = 64 }; // vectors, or codes of them, that are looked at side by side

// ---------------------------------------------------------------- kernels

// AdamW: g scaled, moments, bias corrections, decoupled decay.
typedef struct kn_adam {
    float scale, rate, beta1, beta2, epsilon, decay, correction1, correction2;
} kn_adam;

// Nesterov momentum in the form of Sutskever et al.: m' = momentum m - rate g; w += momentum m' - rate g.
// (rate_ratio = rate / previous rate: the buffer is in units of the previous rate, as in fairseq's NAG.)
typedef struct kn_nesterov {
    float scale, rate, momentum, rate_ratio, decay;
} kn_nesterov;

// How the numbers of a stored row lie: f16, f32, or int8 with a scale a row.
typedef enum kn_row_type { KN_ROWS_F16, KN_ROWS_F32, KN_ROWS_INT8 } kn_row_type;

// Integers against integers: rows of int8 keys as they are stored, queries as multiples of a step in 16 bits.
// Sums of their products are exact in 32 bits as long as the magnitudes of a query add up to less than 2^24
// (kn_integers_make sees to that). A cell is 32 rows by 64 integers, pairs of which stand where an f32 does.
enum { KN_INTEGER_DEPTH = 2 * KN_CELL, KN_INTEGER_CELL = KN_CELL * KN_INTEGER_DEPTH };
typedef enum kn_integer_form { KN_INTEGER_L2, KN_INTEGER_PRODUCT, KN_INTEGER_COSINE } kn_integer_form;

// What a query and 32 rows bring to their distances: base + bases - factor factors products, at least min.
// `rough`: the same in f32.
typedef struct kn_integer_query {
    double base, factor, min;
} kn_integer_query;
typedef struct kn_integer_terms {
    double bases[KN_CELL], factors[KN_CELL];
    float rough_bases[KN_CELL], rough_factors[KN_CELL], largest; // the largest base
} kn_integer_terms;

// What the kernels of one instruction set provide. All are safe to call from many threads.
typedef struct kn_kernels {
    const char *name;
    knnlm_precision precision; // of packed elements: f32, bf16 or int16
    size_t cell;               // bytes of a packed cell
    size_t chunk_cells; // depth, in cells, after which a product should move to the next panels (cache)

    // Those that attention multiplies by: these, or where elements share scales along depth, which there runs
    // over words, those of f32. A word must not depend on later ones.
    const struct kn_kernels *attention;

    // Packs one panel. lhs: `rows` (<= 32) rows of src (stride ld) by `depth`; _t: src is (depth, rows).
    void (*pack_lhs)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
    void (*pack_lhs_t)(void *panel, const float *src, size_t ld, size_t rows, size_t depth);
    // rhs: src is (columns, depth), as weights are kept; _t: src is (depth, columns).
    void (*pack_rhs)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
    void (*pack_rhs_t)(void *panel, const float *src, size_t ld, size_t columns, size_t depth);
    // out (32,32) = block (32,32) transposed.
    void (*transpose)(float *out, const float *block);
    // block (32,32) = [block +] lhs panel . rhs panel over `cells` cells of depth; only the first `rows` rows
    // count.
    void (*multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                     bool accumulate);
    // The same; meanwhile the L2 cache gets what lies at `ahead` (NULL: nothing), about as many cells of it.
    void (*multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                           bool accumulate, const void *ahead);

    // out (rows, columns), stride ld = [out +] block + bias; bias NULL: none.
    void (*store)(float *out, size_t ld, const float *block, const float *bias, size_t rows, size_t columns,
                  bool add);

    float (*dot)(const float *a, const float *b, size_t n);
    void (*axpy)(float *y, float a, const float *x, size_t n); // y += a x
    void (*scale)(float *x, float a, size_t n);                // x *= a
    // Of n rows (d), ld apart: out[r] = x . row r; out (d) += sum of weights[r] row r, in their order.
    void (*dots)(float *out, const float *x, const float *rows, size_t ld, size_t n, size_t d);
    void (*add_rows)(float *out, const float *weights, const float *rows, size_t ld, size_t n, size_t d);
    double (*sum_squares)(const float *x, size_t n);
    // Squared distance and inner product with the same bits on every CPU: sums in 16 lanes, in a fixed order.
    float (*fixed_distance)(const float *a, const float *b, size_t n);
    float (*fixed_product)(const float *a, const float *b, size_t n);
    // Softmax in pieces: the largest of x; then x = exp(x - shift), its sum returned.
    float (*max)(const float *x, size_t n);
    float (*exp_shift)(float *x, size_t n, float shift);
    // Sum of exp(scale * (x - shift)), to 1e-6 of it: terms below e^-87 count as 0, those above e^88 as e^88.
    float (*exp_scale_sum)(const float *x, size_t n, float scale, float shift);
    // out = exp(scale * (x - min)) in double precision, for x that are at least `min` and scale < 0; 0 below
    // e^-708.
    void (*exp_scale)(double *out, const float *x, size_t n, double scale, float min);
    // The sum of such exponentials, in fixed point: the same bits in whatever order x stand. Terms are at
    // most 1 and rounded to 2^-40.
    double (*exp_fixed_sum)(const float *x, size_t n, float scale, float min);
    // Of each row of a block (rows, columns), stride 32: its largest value, the sum of exp(x - largest) and,
    // unless `moment` is NULL, that of (x - largest) exp(x - largest). Sums do not depend on what is wanted.
    void (*block_softmax)(const float *block, size_t rows, size_t columns, float *largest, float *sum,
                          float *moment, size_t stride);
    // Causal softmax over `blocks` blocks of 32 keys side by side, in place: of the first `visible` + r keys
    // row r sees the last `window`, the others become 0. logs[r] = log of the sum of exp.
    void (*causal_softmax)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                           float *logs);
    // The same given the logs: scores become probabilities.
    void (*causal_exp)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                       const float *logs);
    // slopes = weights * (slopes - dots[row]) over blocks as above: the gradient of a softmax by its scores.
    void (*softmax_backward)(float *slopes, const float *weights, size_t blocks, size_t rows,
                             const float *dots);
    void (*relu)(float *y, const float *x, size_t n);
    void (*relu_backward)(float *dx, const float *x, size_t n); // dx = 0 where x <= 0
    // LayerNorm; bias NULL: there is none.
    void (*norm)(float *y, float *mean, float *inverse, const float *x, const float *weight,
                 const float *bias, size_t n, float epsilon);
    // dx += gradient of norm by x.
    void (*norm_backward)(float *dx, const float *dy, const float *x, const float *weight, float mean,
                          float inverse, size_t n);
    // dweight += dy * normalised x, dbias (NULL: there is none) += dy, over n columns of one row.
    void (*norm_sums)(float *dweight, float *dbias, const float *dy, const float *x, float mean,
                      float inverse, size_t n);
    // RMSNorm: y = x * inverse * weight, inverse = 1/sqrt(mean of squares + epsilon).
    void (*rms_norm)(float *y, float *inverse, const float *x, const float *weight, size_t n, float epsilon);
    // dx += gradient of rms_norm by x.
    void (*rms_backward)(float *dx, const float *dy, const float *x, const float *weight, float inverse,
                         size_t n);
    void (*gelu)(float *y, const float *x, size_t n);           // tanh form, as GPT-2
    void (*gelu_backward)(float *dx, const float *x, size_t n); // dx *= gelu'(x)
    void (*relu2)(float *y, const float *x, size_t n);          // squared ReLU
    void (*relu2_backward)(float *dx, const float *x, size_t n);
    // SwiGLU: y = gate s(gate) * up, s the logistic function; the gradients by gate and up from that by y.
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n);
    void (*swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                            size_t n);
    // Rotary positions: pairs (x[i], x[i + half]) turn by the angles whose cosines and sines are given, or,
    // adjacent, pairs (x[2i], x[2i + 1]). `sign` -1 turns back.
    void (*rotate)(float *x, const float *cosines, const float *sines, size_t half, bool adjacent,
                   float sign);
    // x[i] becomes 0 with probability p, else x[i]/(1-p); decided by (key, first + i) alone.
    void (*dropout)(float *x, size_t n, float p, uint64_t key, uint32_t first);
    void (*adam)(float *w, float *m, float *v, const float *g, size_t n, const kn_adam *p);
    void (*nesterov)(float *w, float *m, const float *g, size_t n, const kn_nesterov *p);

    // One row (d) less the centre (d) in a left panel (f32 layout) at `cells`, its place in the first cell;
    // returns its squared norm.
    float (*load_row)(float *cells, const float *row, const float *centre, size_t d);
    // A right panel (f32 layout) of n <= 32 stored rows (n, d) less the centre (d), and their squared norms.
    void (*load_columns)(float *panel, float *norms, const void *rows, kn_row_type type, const float *scales,
                         const float *centre, size_t n, size_t d);
    // The same rows as f32 (n, d), less the centre, for kernels of other elements to pack.
    void (*widen_rows)(float *out, float *norms, const void *rows, kn_row_type type, const float *scales,
                       const float *centre, size_t n, size_t d);
    // block (queries, 32) of products becomes distances: row_terms[r] + query_terms[q] + factor * product.
    // masks[q]: which of the first `rows` are at most limits[q]. `small` (-infinity: not wanted): smalls[q]
    // are those less than it times the sum of their terms, which are not negative; and those that overflowed
    // or are not numbers, which are then in masks[q] too.
    void (*near)(float *block, const float *row_terms, const float *query_terms, float factor,
                 const float *limits, float small, size_t queries, size_t rows, uint32_t *masks,
                 uint32_t *smalls);
    // Those of 32 distances that the mask names and whose ids are below `end`, as numbers that sort by
    // distance and then by id (math/top.h); returns how many. ids NULL: first, first + 1, ... Up to 8 more
    // of `out` are written.
    size_t (*rank)(uint64_t *out, const float *distances, uint32_t mask, const uint32_t *ids, uint32_t first,
                   uint32_t end);
    // out[r] = squared distance of q (d) to row r of f16 or f32, or their inner product.
    void (*row_distances)(float *out, const float *q, const void *rows, kn_row_type type, size_t n, size_t d,
                          bool product);

    // A right panel of n <= 32 rows (d), and the sums of their squares (32).
    void (*load_integers)(int16_t *panel, int32_t *squares, const int8_t *const *rows, size_t n, size_t d);
    // block (rows, 32) = lhs panel . rhs panel over `cells` cells of integers.
    void (*multiply_integers)(int32_t *block, const int16_t *lhs, const int16_t *rhs, size_t cells,
                              size_t rows);
    // Products of a query (d) with rows (n, d) as they lie, and the sums of the rows' squares.
    void (*row_integers)(int32_t *products, int32_t *squares, const int16_t *q, const int8_t *rows, size_t n,
                         size_t d);
    // Terms of n <= 32 rows, zeros beyond; distances of them from one query. The same bits on every CPU.
    void (*integer_terms)(kn_integer_terms *out, const int32_t *squares, const float *scales, size_t n,
                          kn_integer_form form);
    void (*integer_distances)(float *out, const int32_t *products, const kn_integer_terms *rows,
                              const kn_integer_query *query, size_t n);
    // Those of n <= 32 rows that are at most `limit` from a query, by their products (32), as `rank` gives
    // them; returns how many.
    size_t (*rank_integers)(uint64_t *out, const int32_t *products, const kn_integer_terms *rows,
                            const kn_integer_query *query, float limit, const uint32_t *ids, uint32_t first,
                            uint32_t end, size_t n);

    // Of items (math/top.h), n > 0: the least and the largest; how many are below a pivot.
    void (*item_range)(const uint64_t *items, size_t n, uint64_t *min, uint64_t *max);
    size_t (*count_below)(const uint64_t *items, size_t n, uint64_t pivot);
    // Moves the items below `low` to the front, and copies those from there to below `high` to `middle`,
    // which has room for 8 more; returns how many are in front.
    size_t (*cut_items)(uint64_t *items, size_t n, uint64_t low, uint64_t high, uint64_t *middle);
    // The places of a value, ascending; returns how many. `places` has room for n + 16.
    size_t (*find_equal)(uint32_t *places, const int32_t *values, size_t n, int32_t value);

    // nearest (KN_POINTS): which of `count` centroids (count, depth), a multiple of 4 up to 256, has the
    // least half square less product with each of the points (depth, KN_POINTS); the lower of equal ones.
    void (*nearest)(uint8_t *nearest, const float *points, size_t depth, const float *centroids,
                    const float *halves, size_t count);
    // out (count, a multiple of 16): squared distances of a query (depth) to columns (depth, count), or inner
    // products negated.
    void (*column_distances)(float *out, const float *query, const float *columns, size_t depth, size_t count,
                             bool inner_product);
    // The least and the largest of x; NaN when one is not finite.
    void (*range)(const float *x, size_t n, float *low, float *high);
    // out = (x - low) * inverse to the nearest, at most 255; the largest |x - low - step out| returned.
    float (*quantize)(uint8_t *out, const float *x, size_t n, float low, float step, float inverse);
    // sums (blocks, KN_POINTS) of what the columns of codes (blocks, columns, KN_POINTS) name in the tables
    // (columns, 256); _halves: two numbers a byte, low half first, tables (columns, 2, 16). Sums fit 16 bits.
    void (*scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                       size_t blocks);
    void (*scan_halves)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks);
} kn_kernels;

// The best kernels of this CPU for a precision: auto the fastest; bf16 and int16 those of f32 where the CPU
// has none of these. The environment variable KNNLM_CPU (amx, avx512bf16, avx512int16, avx512, avx2int16,
// avx2, portable) caps the choice.
const kn_kernels *kn_math_kernels(knnlm_precision precision);
// Every set of kernels that this CPU can run, best first; *count of them. For tests and benchmarks.
const kn_kernels *const *kn_math_available(size_t *count);
// Bytes of the L1 data cache; 0 when the system does not tell.
size_t kn_math_l1(void);

// ---------------------------------------------------------------- integers

// A query (d) as multiples of a step, which is returned; zeros from d on up to a multiple of 64. To a 32767th
// of its largest magnitude, or to a 2^24th of the sum of its magnitudes, whichever is coarser.
float kn_integers_make(const float *query, size_t d, int16_t *out);
// What it brings to distances; `beside` where those are of products.
kn_integer_query kn_integers_terms(const int16_t *query, size_t d, float step, kn_integer_form form,
                                   float beside);
static inline size_t kn_integer_cells(size_t d) {
    return (d + KN_INTEGER_DEPTH - 1) / KN_INTEGER_DEPTH;
}

// ---------------------------------------------------------------- softmax

// Joins parts of a row as block_softmax leaves them, whose largest value in all is `best`: adds to *total the
// sum of exp(x - best) and, unless `moment` is NULL, to *weighted that of (x - best) exp(x - best).
void kn_softmax_join(const float *largest, const float *sum, const float *moment, size_t parts, float best,
                     double *total, double *weighted);
// The logarithm of the sum of exp(x) over a row; *entropy, unless it is NULL, that of the softmax, in nats.
float kn_logsum(const kn_kernels *k, const float *x, size_t n, float *entropy);

// ---------------------------------------------------------------- products

// A packed right operand (a weight) of `columns` by `depth`.
typedef struct kn_rhs {
    void *data;
    size_t columns, depth;
} kn_rhs;

// Floats of a right cell (f32 layout) before its second half of columns.
enum { KN_HALF = KN_CELL / 2, KN_HALF_SIZE = KN_CELL * KN_HALF };

// Number of cells along a dimension; bytes of a packed panel.
static inline size_t kn_cells(size_t n) {
    return (n + KN_CELL - 1) / KN_CELL;
}
static inline size_t kn_panel_bytes(const kn_kernels *k, size_t depth) {
    return kn_cells(depth) * k->cell;
}

// Makes room for a packed operand; src is (columns, depth) unless `transposed`, then (depth, columns).
knnlm_status kn_rhs_init(const kn_kernels *k, kn_rhs *out, size_t columns, size_t depth);
void kn_rhs_pack(const kn_kernels *k, kn_rhs *out, const float *src, size_t ld, bool transposed);
void kn_rhs_free(kn_rhs *rhs);
// The left operand's packed bytes, and its packing; src is (rows, depth), or (depth, rows) when transposed.
size_t kn_lhs_bytes(const kn_kernels *k, size_t rows, size_t depth);
void kn_lhs_pack(const kn_kernels *k, void *out, const float *src, size_t ld, size_t rows, size_t depth,
                 bool transposed);

// Receives a finished block: rows [row, row+rows) by columns [column, column+columns) of the product, stride
// KN_CELL. Blocks come from many threads, each block once.
typedef void kn_emit(void *context, const float *block, size_t row, size_t column, size_t rows,
                     size_t columns);

// product (rows, rhs columns) = lhs . rhs, handed to `store` block by block.
void kn_multiply(const kn_kernels *k, const void *lhs, size_t rows, const kn_rhs *rhs, kn_emit *store,
                 void *context);

// Ready-made stores, with their context.
typedef struct kn_emit_matrix {
    const kn_kernels *k;
    float *out; // (rows, columns), stride ld
    size_t ld;
    const float *bias; // one a column, or NULL
} kn_emit_matrix;
kn_emit kn_emit_set; // out = product + bias
kn_emit kn_emit_add; // out += product + bias

// ---------------------------------------------------------------- helpers over rows

// Column sums: out[c] += sum over rows of x[r][c].
void kn_column_sums(const kn_kernels *k, float *out, const float *x, size_t ld, size_t rows, size_t columns);

#endif
