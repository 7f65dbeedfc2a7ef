// Eigenvalues and eigenvectors of symmetric matrices, in f64.
//
// Written here rather than asked of LAPACK: Debian's gives bits that depend on which BLAS is installed and on
// how many threads it takes.
#ifndef KN_MATH_EIGEN_H
#define KN_MATH_EIGEN_H

#include "base/status.h"

// matrix (n,n): symmetric, both triangles filled, row after row; destroyed. values (n): largest first.
// vectors (n,n): row i is the unit eigenvector of values[i], of either sign; equal values have some
// orthonormal basis. Any thread may call; the result depends neither on the threads nor on the CPU's kernels.
// Takes memory for another n*n doubles. An entry that is not finite: KNNLM_EDATA; no memory: KNNLM_ENOMEM.
knnlm_status kn_eigen_symmetric(double *matrix, size_t n, double *values, double *vectors);

#endif
