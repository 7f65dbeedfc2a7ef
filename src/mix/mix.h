// Neighbours and the model's own guess to one probability.
//
//   p_kNN(y) = sum over neighbours of value y of w exp(-d / T)  /  the same sum over all neighbours
//   p(y)     = (1 - sum of lambdas) p_LM(y) + sum over stores and cache of lambda p_kNN(y)
//
// Distances d are those of the index: squared L2, the negated inner product, or 1 - cosine, so the
// temperature T belongs to the distance. Everything is in logarithms, natural ones: a probability of 0 is
// -infinity, and is right as such. Sums are taken relative to the nearest neighbour, so that neither tiny nor
// huge distances lose anything.
#ifndef KN_MIX_H
#define KN_MIX_H

#include "math/math.h"

// ---------------------------------------------------------------- the kernel

// In any order, but `nearest` is the place of the nearest (0 as searches give them). Infinite distances are
// as far as f32 goes, so that the infinitely far are equally far. `weights`: how many entries each stands for
// (merged ones), above 0; NULL: one.
typedef struct kn_neighborhood {
    const float *distances;
    const int32_t *values;
    const float *weights;
    size_t count, nearest;
} kn_neighborhood;

// log p_kNN(target): -infinity when no neighbour has it, or there is none.
double kn_neighborhood_logprob(const kn_neighborhood *n, double temperature, int32_t target);

// Each neighbour's share of what p_kNN is made of: shares (count), in sum 1.
void kn_neighborhood_shares(const kn_neighborhood *n, double temperature, double *shares);

// ---------------------------------------------------------------- mixing

// log of (1 - sum of weights) e^lm + sum of weights[i] e^parts[i]. Weights are at least 0 and in sum at most
// 1; those of 0 count as nothing, whatever their part (so does the model, when less than
// 1e-12 is left for it: that is rounding).
double kn_mix(double lm, const double *parts, const double *weights, size_t count);

// A weight for each bin of the nearest distance and of the model's entropy: bin b of n has edges[b - 1] <= x
// < edges[b]; the first also has NAN.
typedef struct kn_bins {
    size_t distances, entropies;                  // bins of each; 0: no bins at all
    const double *distance_edges, *entropy_edges; // one fewer
    const double *lambdas;                        // (distances, entropies)
} kn_bins;

// Of bins: there must be some.
double kn_bins_lambda(const kn_bins *bins, double nearest, double entropy);
size_t kn_bins_place(const kn_bins *bins, double nearest, double entropy); // in lambdas

#endif
