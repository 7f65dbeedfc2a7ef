// What comes after a context, by the model and by its neighbours: the whole distribution.
#ifndef KN_KNN_DISTRIBUTION_H
#define KN_KNN_DISTRIBUTION_H

#include "knn/predict.h"

// p_LM and p_kNN of one context, mixed. Its memory serves one context after another.
typedef struct kn_distribution {
    size_t vocabulary;
    const float *lm; // (vocabulary): log p_LM; the caller's
    double *knn;     // (vocabulary): p_kNN of all stores together, each by its part of lambda
    int32_t *values; // tokens that some neighbour has, each once: knn is 0 for all others
    size_t value_count;
    double lambda;            // of all stores together, and of what was joined
    double entropy, nearest;  // of the model's distribution; distance (NAN: there is no neighbour)
    kn_prediction prediction; // the stores' lambdas, before anything was joined
    size_t stores;
    bool mixed;                      // something is mixed in: stores, or what was joined
    double *shares;                  // of the neighbours of each store, and room for as many
    size_t shares_of[KN_STORES_MAX]; // where in `shares` those of a store begin
    size_t values_capacity, shares_capacity;
} kn_distribution;

// To be freed only after KNNLM_OK. KNNLM_ENOMEM.
knnlm_status kn_distribution_init(kn_distribution *g, const kn_lm *lm);
void kn_distribution_free(kn_distribution *g);
// `found` of each of the mixture's stores; `lm` must last as long as the distribution is asked; `history` of
// the text, or NULL: nothing is known of it. KNNLM_ENOMEM.
knnlm_status kn_distribution_mix(kn_distribution *g, const kn_mixture *m, const kn_row_neighbors *found,
                                 const float *lm, double entropy, kn_history *history);
// Mixes in what others than the stores say: shares (count), in sum 1, of values, which may be there twice.
// They get `weight` of all, or what is left; what the stores had becomes `keep` times as much, and the rest
// is the model's. KNNLM_ENOMEM.
typedef struct kn_distribution_part {
    double keep, weight;
    const int32_t *values;
    const double *shares;
    size_t count;
} kn_distribution_part;
knnlm_status kn_distribution_join(kn_distribution *g, const kn_distribution_part *part);
// Of p_kNN of a store that has neighbours: the share of each that it was mixed with. Until the next mix.
const double *kn_distribution_shares(const kn_distribution *g, size_t store);
// log p, and p, of a token.
double kn_distribution_logprob(const kn_distribution *g, int32_t token);
double kn_distribution_probability(const kn_distribution *g, int32_t token);
// The `max` most probable tokens, by kn_distribution_logprob, the most probable first, of equals the lower
// id; returns how many, KN_DISTRIBUTION_TOP at most.
enum { KN_DISTRIBUTION_TOP = 1024 };
size_t kn_distribution_top(const kn_distribution *g, size_t max, int32_t *tokens);

#endif
