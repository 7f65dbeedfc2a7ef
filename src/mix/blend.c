// The mixture itself: log of lambda p_kNN + (1 - lambda) p_LM, over several stores; lambda by bins.
#include "mix/mix.h"

#include <math.h>

// log(e^a + e^b)
static double add_logs(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    return isinf(low) ? high : high + log1p(exp(low - high));
}

// Weights in sum 1 leave the model nothing, although .2 + .1 + .7 is a little less than 1.
#define NOTHING 1e-12

double kn_mix(double lm, const double *parts, const double *weights, size_t count) {
    double rest = 1, sum = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (weights[i] > 0) sum = add_logs(sum, parts[i] + log(weights[i]));
        rest -= weights[i];
    }
    return rest > NOTHING ? add_logs(sum, lm + log(rest)) : sum;
}

static size_t bin_of(const double *edges, size_t bins, double x) {
    size_t b = 0;
    while (b + 1 < bins && x >= edges[b]) b++;
    return b;
}

size_t kn_bins_place(const kn_bins *b, double nearest, double entropy) {
    return bin_of(b->distance_edges, b->distances, nearest) * b->entropies +
           bin_of(b->entropy_edges, b->entropies, entropy);
}

double kn_bins_lambda(const kn_bins *b, double nearest, double entropy) {
    return b->lambdas[kn_bins_place(b, nearest, entropy)];
}
