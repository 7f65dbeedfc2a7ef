// Sums that have the same bits on every CPU: in 16 lanes, in a fixed order. This file is compiled without
// contraction, so that no multiplication is fused with an addition.
#include "math/isa/isa.h"

enum { LANES = 16 };

static inline float add_lanes(float *lanes) {
    for (size_t n = LANES / 2; n; n /= 2)
        for (size_t i = 0; i < n; i++) lanes[i] += lanes[i + n];
    return lanes[0];
}

float kn_isa(fixed_distance)(const float *a, const float *b, size_t d) {
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            float difference = a[i + l] - b[i + l];
            float square = difference * difference;
            lanes[l] += square;
        }
    for (size_t l = 0; i + l < d; l++) {
        float difference = a[i + l] - b[i + l];
        float square = difference * difference;
        lanes[l] += square;
    }
    return add_lanes(lanes);
}

float kn_isa(fixed_product)(const float *a, const float *b, size_t d) {
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            float product = a[i + l] * b[i + l];
            lanes[l] += product;
        }
    for (size_t l = 0; i + l < d; l++) {
        float product = a[i + l] * b[i + l];
        lanes[l] += product;
    }
    return add_lanes(lanes);
}
