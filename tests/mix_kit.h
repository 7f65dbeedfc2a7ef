// What the tests of mixing share: logarithms of sums in long double, and where a concave function is highest.
#ifndef KN_TESTS_MIX_KIT_H
#define KN_TESTS_MIX_KIT_H

#include "expect.h"

#include <math.h>

static inline long double exponent(long double x, long double w) {
    return w == 1 ? x : w > 0 ? x + logl(w) : -INFINITY;
}

// log of the sum of w[i] e^x[i], but for what is below 1e-43 of the largest.
static inline long double log_sum(const long double *x, const long double *w, size_t n) {
    long double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = fmaxl(max, exponent(x[i], w[i]));
    if (isinf(max)) return max;
    for (size_t i = 0; i < n; i++)
        if (exponent(x[i], w[i]) - max > -100) sum += expl(exponent(x[i], w[i]) - max);
    return max + logl(sum);
}

typedef long double objective(const void *context, double x);

// Where a concave function is highest, by golden sections.
static inline double highest(objective *f, const void *context, double low, double high) {
    const double cut = (sqrt(5) - 1) / 2;
    double a = high - cut * (high - low), b = low + cut * (high - low);
    long double fa = f(context, a), fb = f(context, b);
    while (high - low > 1e-12) {
        if (fa > fb) {
            high = b, b = a, fb = fa;
            fa = f(context, a = high - cut * (high - low));
        } else {
            low = a, a = b, fa = fb;
            fb = f(context, b = low + cut * (high - low));
        }
    }
    return (low + high) / 2;
}

#endif
