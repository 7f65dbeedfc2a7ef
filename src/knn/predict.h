// The paper's equation: states to neighbours, and neighbours and p_LM to one probability.
//
//   p(y) = (1 - sum of lambdas) p_LM(y) + sum over stores and cache of lambda p_kNN(y)
//
// A predictor searches for many rows at once, each with a mixture of its own: searches that are alike are
// one.
#ifndef KN_KNN_PREDICT_H
#define KN_KNN_PREDICT_H

#include "knn/measure.h"
#include "knn/mixture.h"

// ---------------------------------------------------------------- one token

// What a text so far has shown of a mixture whose stores have gates: what the neighbours of each were worth,
// and the odds of a Bayesian switch between the mixture and the model alone, which begin as equal. So a
// text's probability is never below that of the better of the two by more than a factor of 2. Of several
// stores each has a switch of its own too, so that one that knows nothing of the text is soon left out. Zero
// at the text's beginning.
typedef struct kn_history {
    kn_gate_past pasts[KN_STORES_MAX];
    double odds;                      // log
    double odds_alone[KN_STORES_MAX]; // of each store beside the model, without the others
} kn_history;

// One token, mixed.
typedef struct kn_prediction {
    double knn[KN_STORES_MAX];         // log p_kNN of each store
    double lambdas[KN_STORES_MAX + 1]; // of each store, then of the cache
    double p;                          // log p
    // Of stores with a gate: what it knows, log p_kNN of each expert, and the sharp one's part in p_kNN.
    kn_gate_features features[KN_STORES_MAX];
    double experts[KN_STORES_MAX][KN_GATE_EXPERTS];
    double sharp[KN_STORES_MAX];
    double opened[KN_STORES_MAX]; // exp(z) of both experts, in sum
    bool found[KN_STORES_MAX];
} kn_prediction;

// `found`: its neighbours in each of the mixture's stores; `entropy` of the model's distribution; `cache` is
// log p_cache (NAN: there is none, and its weight is the model's); `history` of its text, which learns of the
// token (NULL: nothing is known of it; a negative target: nothing is learnt).
void kn_predict_one(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double lm,
                    double entropy, double cache, kn_history *history, kn_prediction *out);
// The same in two steps: what each store has to say, in any order; then all of it together.
void kn_predict_parts(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double entropy,
                      kn_prediction *out);
// What one store has to say by what was measured of its neighbours, and what has to be for that.
void kn_predict_part(const kn_mixture *m, size_t store, const kn_row_facts *facts, double entropy,
                     kn_prediction *out);
kn_measure kn_predict_measure(const kn_mixture *m, size_t store);
// Tokens of one text in their order, where there is a history.
void kn_predict_join(const kn_mixture *m, int32_t target, double lm, double cache, kn_history *history,
                     kn_prediction *out);
// Each neighbour's share of a store's p_kNN: shares (count), in sum 1. scratch (count).
void kn_prediction_shares(const kn_mixture *m, size_t store, const kn_prediction *prediction,
                          const kn_neighborhood *near, double *shares, double *scratch);
// A token has come after what was predicted without a target, from the same neighbours.
void kn_history_learn(const kn_mixture *m, const kn_row_neighbors *found, int32_t token, double lm,
                      kn_prediction *prediction, kn_history *history);
// Of all stores together: log of the sum of lambda p_kNN over the sum of lambdas (of equal parts, where those
// are 0). NAN without stores.
double kn_prediction_knn(const kn_mixture *m, const kn_prediction *prediction);
// Lambda of all stores together.
double kn_prediction_lambda(const kn_mixture *m, const kn_prediction *prediction);
// A store's part in that.
double kn_prediction_part(const kn_mixture *m, const kn_prediction *prediction, size_t store);
// The nearest neighbour's distance; NAN: there is none.
double kn_nearest(const kn_mixture *m, const kn_row_neighbors *found);

// ---------------------------------------------------------------- many

// The memory of predictions, for one batch after another. One thread at a time.
typedef struct kn_predictor kn_predictor;

knnlm_status kn_predictor_open(kn_predictor **out);
void kn_predictor_close(kn_predictor *predictor); // NULL is allowed

typedef struct kn_predict_rows {
    size_t count;
    const kn_mixture *mixture;         // of all rows, or NULL:
    const kn_mixture *const *mixtures; // (count): of each. All are of one model
    const float *states;               // (count, width); not read without stores
    // (count, excludes) per store of the one mixture, or NULL: entries that do not count.
    const kn_entry_range *const *exclude;
    size_t excludes;
    bool singly;            // as of kn_retrieve_options
    bool predictions_alone; // of one mixture: kn_predictor_neighbors will not be asked; not with `singly`
    // What predictions are made of, each (count): targets, log p_LM, entropies of the model (NULL: 0) and log
    // p_cache (NULL: none).
    const int32_t *targets;
    // Rows whose entropy is below their mixture's skip_entropy are not searched for: they have no neighbours,
    // and the model's own probability (but for the cache). Without entropies there are none.
    const float *lm, *entropies;
    const double *cache;
    kn_history *history; // of the texts that the rows are, one after another; NULL: nothing is known of them
    const bool *first;   // (count): begins a text, whose history is empty
} kn_predict_rows;

// Searches, then mixes: out (count), or NULL: neighbours alone are wanted. What each row gets does not depend
// on the others. As kn_datastore_search fails.
knnlm_status kn_predict(kn_predictor *predictor, const kn_predict_rows *rows, kn_prediction *out);
// Neighbours of a row, in each of its mixture's stores: out (KN_STORES_MAX). Valid until the next batch. Any
// thread.
void kn_predictor_neighbors(const kn_predictor *predictor, size_t row, kn_row_neighbors *out);
// Rows that were not searched for, in all batches.
uint64_t kn_predictor_skipped(const kn_predictor *predictor);
// Seconds spent on a store of the rows' mixture, by its place there, in all batches.
double kn_predictor_seconds(const kn_predictor *predictor, size_t store);

#endif
