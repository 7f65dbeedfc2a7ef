// The directions in which vectors spread most, roughly: where any subspace near the best one serves, and
// principal components (pca.h) would take too long.
#ifndef KN_MATH_SUBSPACE_H
#define KN_MATH_SUBSPACE_H

#include "base/random.h"
#include "math/math.h"

// basis (p, d): orthonormal rows, the widest spread first; p <= d. sample (rows, d): its mean taken away.
// Directions beyond those that the sample fills are zero. Products are in the kernels' precision, sums the
// same whatever the threads. KNNLM_ENOMEM.
knnlm_status kn_subspace_find(const kn_kernels *k, const float *sample, size_t rows, size_t d, size_t p,
                              kn_random *random, float *basis);

#endif
