// The settings that make a text most probable, from neighbours that were searched once.
//
// Of every token of the text its k nearest distances are kept, and which of the neighbours have the token as
// their value: that is all that any temperature and any smaller k need. For given ones the best weights are a
// convex problem with one answer.
#ifndef KN_MIX_TUNE_H
#define KN_MIX_TUNE_H

#include "mix/mix.h"

// ---------------------------------------------------------------- weights

enum { KN_PARTS_MAX = 16 };

// The weights (parts; at least 0, in sum 1) that maximise the mean of log(sum over c of weights[c] p[c][i])
// over n tokens: p (parts, n) are probabilities, of which one at least is above 0 for every token. *mean is
// that mean, within 1e-9 of the highest: by concavity no weights exceed it by more than (max over c of the
// mean of p[c][i] / mixture) - 1. Of no tokens: equal weights, and 0. KNNLM_ENOMEM.
knnlm_status kn_fit_weights(const float *const *p, size_t parts, size_t n, double *weights, double *mean);
// The same beginning at `weights`, all above 0, which are expected to be near.
knnlm_status kn_fit_weights_from(const float *const *p, size_t parts, size_t n, double *weights,
                                 double *mean);

// The mean at given weights: -infinity when a token's mixture is 0. KNNLM_ENOMEM.
knnlm_status kn_mean_log(const float *const *p, size_t parts, size_t n, const double *weights, double *mean);

// Some tokens of a text, for a weight of their own.
typedef struct kn_lambda_fit {
    const float *lm, *knn; // probabilities
    const float *fixed;    // what is added to their mixture (the cache's part); NULL: nothing
    const uint32_t *tokens;
    size_t n;
    double max;             // what is left for both: above 0
    double believed, prior; // so many tokens' worth of belief in a weight of 0 to `max`
} kn_lambda_fit;

// The weight between 0 and `max` that maximises the sum of log(fixed + (most - w) lm + w knn) over the
// tokens, and the belief's prior (believed / most log w + (1 - believed / most) log(most - w)), which alone
// is highest at `believed`. Tokens of whose parts none is above 0 say nothing.
double kn_fit_lambda(const kn_lambda_fit *fit);

// ---------------------------------------------------------------- weights by bins

// Tokens to fit on: probabilities, and what the bins are of (no NAN among those that count).
typedef struct kn_bin_data {
    const float *lm, *knn, *fixed; // as of kn_lambda_fit
    const float *nearest, *entropies;
    const uint32_t *tokens; // those that count
    size_t n;
    double max, believed;
} kn_bin_data;

// Room for up to `distances` and `entropies` bins; how many there are afterwards.
typedef struct kn_bin_room {
    size_t distances, entropies;
    double *distance_edges, *entropy_edges, *lambdas;
} kn_bin_room;

// Bins of equal numbers of tokens (fewer, where values repeat), each with its own weight, drawn to `believed`
// as much as KN_BIN_PRIOR tokens would. KNNLM_ENOMEM.
enum { KN_BIN_PRIOR = 32 };
knnlm_status kn_fit_bins(const kn_bin_data *data, kn_bin_room *bins);
static inline kn_bins kn_bin_room_view(const kn_bin_room *r) {
    return (kn_bins){r->distances, r->entropies, r->distance_edges, r->entropy_edges, r->lambdas};
}

// ---------------------------------------------------------------- neighbours kept

typedef struct kn_kept {
    size_t n, capacity, k; // tokens; neighbours of each
    float *distances;      // (n, k), nearest first
    uint32_t *counts;      // (n)
    uint64_t *hits;        // (n, ceil(k / 64)): a bit per neighbour whose value is the token
    uint64_t *agree;       // likewise: whose value is the nearest's
} kn_kept;

// Bytes that n tokens take.
size_t kn_kept_bytes(size_t n, size_t k);
knnlm_status kn_kept_init(kn_kept *kept, size_t tokens, size_t k);
void kn_kept_free(kn_kept *kept);
// The next token's neighbours, nearest first, of which the first k are kept; weights are not. KNNLM_EINVAL:
// more tokens than it was made for.
knnlm_status kn_kept_add(kn_kept *kept, const kn_neighborhood *neighbors, int32_t token);

// p_kNN of every token at each of the temperatures, for each of the ascending `ks` (at most KN_KEPT_KS): out
// (temperatures, ks, n). 0 where there are no neighbours, and where those that hit are below e^-87 of the
// nearest. KNNLM_EINVAL: too many ks; KNNLM_ENOMEM.
enum { KN_KEPT_KS = 32 };
// The powers of two below `max` (at most 2^30), and `max`; how many.
size_t kn_kept_ks(size_t max, size_t ks[KN_KEPT_KS]);
knnlm_status kn_kept_probabilities(const kn_kept *kept, const double *temperatures, size_t temperature_count,
                                   const size_t *ks, size_t count, float *out);
// What the nearest neighbour's value has of p_kNN at a temperature and k: out (n). As above.
knnlm_status kn_kept_agreement(const kn_kept *kept, double temperature, size_t k, float *out);

#endif
