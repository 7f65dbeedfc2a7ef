// What a coarse quantizer is made of. Not a door: others include quantizer.h.
//
// Everything is ranked by score = x . c - |c|^2 / 2 (L2) or x . c (inner product), largest first. For L2 both
// sides are moved by the centroids' mean first: distances stay, lengths and with them rounding errors shrink.
#ifndef KN_INDEX_QUANTIZER_PARTS_H
#define KN_INDEX_QUANTIZER_PARTS_H

#include "index/quantizer.h"
#include "math/math.h"

#include <math.h>

// Lengths that bound the rounding of a product, rounded up: of a vector (or the largest of a panel of
// centroids), and of what packing takes away from it.
typedef struct kn_quantizer_size {
    float norm, rounding;
} kn_quantizer_size;

struct kn_quantizer {
    const kn_kernels *k;
    kn_quantizer_distance distance;
    size_t count, d, panels;
    float *centroids; // (count, d)
    float *mean;      // (d); NULL: nothing is moved
    kn_rhs rhs;
    float *bias;              // a column, -infinity in the padding of the last panel
    kn_quantizer_size *sizes; // a panel
};

// With kernels of the caller's choice (tests): of bf16 or f32, whose rounding is bounded.
knnlm_status kn_quantizer_make_with(const kn_kernels *k, const float *centroids, size_t count, size_t d,
                                    kn_quantizer_distance distance, kn_quantizer **out);

// Packs up to 32 rows of x into one panel. `moved`: scratch of 32 x d floats.
void kn_quantizer_pack(const kn_quantizer *q, const float *x, size_t rows, void *panel, float *moved,
                       kn_quantizer_size *sizes);

// Rows of one product: they stay in the L2 cache while the centroids pass by, a few panels at a time.
enum { KN_QUANTIZER_ROWS = 256 };

// Hands the product of up to KN_QUANTIZER_ROWS packed rows with all centroids to `store`, block by block:
// from left to right, in the calling thread alone (kn_multiply would spread the blocks of a row over
// threads).
void kn_quantizer_multiply(const kn_quantizer *q, const void *lhs, size_t rows, kn_emit *store,
                           void *context);

// Rows of a task, for n in all: whole products, or a panel when there are few.
static inline size_t kn_quantizer_task_rows(size_t n) {
    return n < 4 * KN_QUANTIZER_ROWS ? KN_CELL : KN_QUANTIZER_ROWS;
}

// How far a score can be from the one that kn_quantizer_measure stands for: not finite when there is no
// telling. The terms: rounding of either side to bf16 (by Cauchy and Schwarz), of the f32 sums of the
// product, of the bias and the move, of the measure, and what is lost where products become subnormal.
static inline float kn_quantizer_error(const kn_quantizer *q, kn_quantizer_size x, size_t panel) {
    kn_quantizer_size c = q->sizes[panel];
    float d = (float)q->d, both = x.norm + c.norm;
    return x.rounding * (c.norm + c.rounding) + x.norm * c.rounding + (d + 16) * 0x1p-24f * x.norm * c.norm +
           (d / 16 + 32) * 0x1p-24f * both * both + d * 0x1p-124f * (1 + both);
}

// A measure as a rank: smaller is nearer, never NaN.
static inline float kn_quantizer_rank(const kn_quantizer *q, const float *x, size_t list) {
    float distance = kn_quantizer_measure(q, x, list);
    float rank = q->distance == KN_QUANTIZER_L2 ? distance : -distance;
    return isnan(rank) ? INFINITY : rank;
}

#endif
