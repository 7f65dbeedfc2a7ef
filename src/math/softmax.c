// Joins the softmaxes of blocks (largest, sum, moment) into one, and the log-sum-exp of a row.
#include "math/math.h"

#include <math.h>

void kn_softmax_join(const float *largest, const float *sum, const float *moment, size_t parts, float best,
                     double *total, double *weighted) {
    for (size_t i = 0; i < parts; i++) {
        float below = largest[i] - best;
        double power = (double)expf(below);
        if (power == 0) continue; // so far below that the product would not be finite
        *total += (double)sum[i] * power;
        if (moment) *weighted += ((double)moment[i] + (double)below * (double)sum[i]) * power;
    }
}

float kn_logsum(const kn_kernels *k, const float *x, size_t n, float *entropy) {
    float best = k->max(x, n), largest[KN_CELL], sum[KN_CELL], moment[KN_CELL];
    double total = 0, weighted = 0;
    for (size_t at = 0; at < n;) {
        size_t rows = kn_min((n - at) / KN_CELL, KN_CELL), columns = rows ? KN_CELL : n - at;
        if (rows == 0) rows = 1;
        k->block_softmax(x + at, rows, columns, largest, sum, entropy ? moment : NULL, 1);
        kn_softmax_join(largest, sum, entropy ? moment : NULL, rows, best, &total, &weighted);
        at += rows * columns;
    }
    if (entropy) *entropy = (float)(log(total) - weighted / total);
    return best + (float)log(total);
}
