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

// The same in two steps, for several temperatures and targets: what all neighbours have in sum, which is of a
// temperature alone, and then the log-probabilities of a target at `count` temperatures, whose sums these
// are.
double kn_neighborhood_sum(const kn_neighborhood *n, double temperature);
void kn_neighborhood_logprobs(const kn_neighborhood *n, const double *temperatures, const double *sums,
                              size_t count, int32_t target, double *out);

// Each neighbour's share of what p_kNN is made of: shares (count), in sum 1.
void kn_neighborhood_shares(const kn_neighborhood *n, double temperature, double *shares);

// What the neighbours of one value have together: scratch memory of the entropy.
typedef struct kn_value_share {
    double share;
    int32_t value;
} kn_value_share;

// The entropy of p_kNN in nats: 0 where all neighbours have one value, at most the log of their number. NAN
// when there is none. scratch (2 count).
double kn_neighborhood_entropy(const kn_neighborhood *n, double temperature, kn_value_share *scratch);

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

// What a weight is multiplied by as some measure of doubt grows: 1 up to `from`, 0 beyond it from `to` on,
// and a straight line between them. 1 for a measure of NAN, and of a fade whose ends are NAN.
typedef struct kn_fade {
    double from, to;
} kn_fade;

double kn_fade_weight(const kn_fade *fade, double x);

// ---------------------------------------------------------------- lambda

// How the weight of a store follows from what is known of a token.
typedef struct kn_lambda_rule {
    double lambda;     // of all tokens, where there are no bins
    double max;        // what bins may give at most: what the cache leaves
    kn_bins bins;      // no distances: none
    bool fallback;     // lambda falls where neighbours are unusually far, or p_kNN unusually uncertain:
    kn_fade far;       // by the nearest distance; ends NAN: never
    kn_fade uncertain; // by the entropy of p_kNN; ends NAN: from half of the most that it can be to all of it
} kn_lambda_rule;

typedef struct kn_lambda_facts {
    size_t neighbors;
    double nearest;     // distance
    double entropy;     // of the model's distribution
    double knn_entropy; // of p_kNN; needed where the rule falls back
    bool begins;        // the nearest neighbour begins a document. Before that there is nothing but the start
                 // token: all texts begin at distance 0 from each other, which says nothing of how alike they
                 // are
} kn_lambda_facts;

// 0 without neighbours.
double kn_lambda(const kn_lambda_rule *rule, const kn_lambda_facts *facts);

#endif
