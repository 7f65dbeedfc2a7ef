// Finds where a smooth function of some dozens of numbers is least: limited-memory BFGS.
//
// Debian has libraries for it (liblbfgs, GSL); what they have beyond this (box constraints, L1 terms) is not
// needed, and two pages are less than a dependency.
#ifndef KN_MATH_LBFGS_H
#define KN_MATH_LBFGS_H

#include "base/status.h"

// The value at x (n), and its gradient there.
typedef double kn_lbfgs_function(void *context, const double *x, double *gradient);

typedef struct kn_lbfgs_options {
    size_t iterations; // at most
    double tolerance;  // ends when a step changes the value by less
} kn_lbfgs_options;

// From x on to the best that was found, which is never worse. *value is of it. KNNLM_ENOMEM.
knnlm_status kn_lbfgs(kn_lbfgs_function *f, void *context, size_t n, const kn_lbfgs_options *options,
                      double *x, double *value);

#endif
