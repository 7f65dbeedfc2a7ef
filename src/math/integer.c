// Queries as integers, for products with int8 keys.
#include "math/math.h"

#include <math.h>
#include <string.h>

// Rows are at least -128, and sums of products are to stay below 2^31.
#define MAGNITUDES ((double)(1 << 24) - 1)

// The nearest whole number, of one below 2^51: beside 1.5 * 2^52 a double has no digits after the point. (A
// call of nearbyint for every element took 3% of a search.)
static inline int32_t nearest(double x) {
    const double whole = 0x1.8p52;
    return (int32_t)((x + whole) - whole);
}

float kn_integers_make(const float *query, size_t d, int16_t *out) {
    float largest = 0;
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        float magnitude = fabsf(query[i]);
        largest = magnitude > largest ? magnitude : largest;
        sum += (double)magnitude;
    }
    // Rounding adds at most a half to each magnitude, and the step itself is rounded.
    double coarse = sum / (MAGNITUDES - (double)d);
    float step = (float)fmax((double)largest / INT16_MAX, coarse);
    memset(out, 0, kn_integer_cells(d) * KN_INTEGER_DEPTH * sizeof *out);
    for (size_t i = 0; i < d && step > 0; i++) {
        int32_t n = nearest((double)query[i] / (double)step);
        out[i] = (int16_t)(n > INT16_MAX ? INT16_MAX : n < -INT16_MAX ? -INT16_MAX : n);
    }
    return step;
}

kn_integer_query kn_integers_terms(const int16_t *query, size_t d, float step, kn_integer_form form,
                                   float beside) {
    int64_t square = 0;
    double s = (double)step;
    for (size_t i = 0; i < d; i++) square += query[i] * query[i];
    if (form == KN_INTEGER_L2) return (kn_integer_query){s * s * (double)square, 2 * s, 0};
    if (form == KN_INTEGER_COSINE) s = square ? 1 / sqrt((double)square) : 0;
    return (kn_integer_query){(double)beside, s, -INFINITY};
}
