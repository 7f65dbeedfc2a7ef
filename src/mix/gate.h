// The gate: how much a store's neighbours weigh, from what is known before the token.
//
// A gated mixture of experts: the model, and of each store p_kNN at half the tuned temperature, which is
// sharp, and at twice of it, which is flat. Each of these two has a weight
//
//   exp(z) / (1 + sum of exp(z) over both experts of all stores),  z = weights . terms
//
// where the terms are 1, seven features and their products: how near the nearest neighbour is and how much
// farther the last, how uncertain the model is, how far the neighbours agree with the nearest, and how much
// they were worth over the last tokens of this text. The features have one scale for all stores (distances
// relative to what is usual for the store), so that a gate learnt from many stores (kn_gate_prior) serves a
// store of which little is known, and is what a fit on its own texts begins with.
#ifndef KN_MIX_GATE_H
#define KN_MIX_GATE_H

#include "base/distance.h"
#include "base/memory.h"

enum {
    KN_GATE_EXPERTS = 2,
    KN_GATE_FEATURES = 7,
    KN_GATE_TERMS = 1 + KN_GATE_FEATURES + KN_GATE_FEATURES * (KN_GATE_FEATURES + 1) / 2,
    KN_GATE_WEIGHTS = KN_GATE_EXPERTS * KN_GATE_TERMS,
};

// z is within this, so that what is left to the model is never nothing (kn_mix), whatever was fitted, and no
// token impossible.
#define KN_GATE_Z_MAX 20.0

typedef struct kn_gate {
    double unit;   // of distances that may be negative; 0: they are above 0, and their logarithms count
    double centre; // of the nearest distance, in units or logarithms
    double weights[KN_GATE_WEIGHTS]; // (experts, terms)
} kn_gate;

extern const double kn_gate_prior[KN_GATE_WEIGHTS];

// The gate of nothing but the prior, for a store whose nearest neighbours are usually at distance `median`,
// give or take `spread`.
kn_gate kn_gate_make(knnlm_distance distance, double median, double spread);

// The temperature of an expert.
double kn_gate_temperature(double temperature, size_t expert);

// What is known of a token's neighbours, of which there is one at least.
typedef struct kn_gate_features {
    double nearest, farthest; // distances
    double agreement;         // what the nearest's value has of p_kNN, sharp
    double entropy;           // of the model's distribution
    bool begins;              // the nearest begins a document, and is near for that reason alone
} kn_gate_features;

// What the neighbours of a text have been worth so far; zero at its beginning.
typedef struct kn_gate_past {
    double recent, lasting, last;
} kn_gate_past;

void kn_gate_terms(const kn_gate *gate, const kn_gate_features *features, const kn_gate_past *past,
                   double terms[KN_GATE_TERMS]);
// The z of each expert.
void kn_gate_open(const kn_gate *gate, const kn_gate_features *features, const kn_gate_past *past,
                  double z[KN_GATE_EXPERTS]);
// A token has come whose probability was so much by each expert and by the model.
void kn_gate_learn(kn_gate_past *past, const double knn[KN_GATE_EXPERTS], double lm);

// ---------------------------------------------------------------- fitting

// A token of a text, in order.
typedef struct kn_gate_row {
    kn_gate_features features;
    double lm, knn[KN_GATE_EXPERTS]; // probabilities of it
    double cache, cache_lambda;      // by a cache beside them, and its weight, below 1; 0: there is none
    bool first;                      // of its text
    bool found;                      // it has neighbours
} kn_gate_row;

// The weights that make the rows most probable, drawn to those that the gate has as strongly as
// KN_GATE_PRIOR_ROWS rows would; at most KN_GATE_ROWS rows, spread over all, are looked at. *mean: of the
// logarithms, before and after. KNNLM_ENOMEM.
enum { KN_GATE_PRIOR_ROWS = 30, KN_GATE_ROWS = 32768 };
knnlm_status kn_gate_fit(const kn_gate_row *rows, size_t n, kn_gate *gate, double mean[2]);
// The sum of the logarithms of the rows' probabilities: by the gate alone, as it is fitted; or with the
// switch between gate and model that predictions have (knn/predict.h).
double kn_gate_score(const kn_gate_row *rows, size_t n, const kn_gate *gate, bool switched);

#endif
