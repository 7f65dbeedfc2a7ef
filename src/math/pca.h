// Principal components: fewer dimensions that keep most of the variance.
#ifndef KN_MATH_PCA_H
#define KN_MATH_PCA_H

#include "math/math.h"

enum { KN_PCA_MAX = 1 << 16 }; // dimensions: the covariance has their square

typedef struct kn_pca {
    size_t in, out;
    float *mean;       // (in)
    float *components; // (out, in): orthonormal rows, largest variance first; the largest entry of each in
                       // magnitude is positive
    float *variances;  // (out): largest first
    double total;      // variance of all `in` dimensions
    kn_rhs packed;     // the components as products read them: kept, because packing them costs as much as
                       // projecting a few rows
} kn_pca;

// Learns from samples (count, in); variances are divided by count - 1. Results do not depend on the threads.
// KNNLM_EINVAL: out is 0 or above in, in is above KN_PCA_MAX, or count is below 2. KNNLM_EDATA: a sample that
// is not finite, or so large that its square is not. *result is to be freed only after KNNLM_OK.
knnlm_status kn_pca_learn(const float *samples, size_t count, size_t in, size_t out, kn_pca *result);

// y (rows, out) = (x (rows, in) - mean) . components. Spread over the threads; a row's result depends neither
// on them nor on the other rows. Any thread may call; x and y do not overlap.
void kn_pca_apply(const kn_pca *p, const float *x, size_t rows, float *y);

// For who has the numbers from elsewhere (a file): makes room, all zeros; in and out are not 0. After filling
// in, kn_pca_pack; only then kn_pca_apply.
knnlm_status kn_pca_init(kn_pca *p, size_t in, size_t out);
void kn_pca_pack(kn_pca *p);
void kn_pca_free(kn_pca *p);

#endif
