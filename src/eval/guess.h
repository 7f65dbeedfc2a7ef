// What comes after a context, by the model and by its neighbours: the whole distribution.
#ifndef KN_EVAL_GUESS_H
#define KN_EVAL_GUESS_H

#include "eval/mixture.h"

// p_LM and p_kNN of one context, mixed. Its memory serves one context after another.
typedef struct kn_guess {
    size_t vocabulary;
    const float *lm; // (vocabulary): log p_LM; the caller's
    double *knn;     // (vocabulary): p_kNN of all stores together, each by its part of lambda
    int32_t *values; // tokens that some neighbour has, each once: knn is 0 for all others
    size_t value_count;
    double lambda;           // of all stores together
    double entropy, nearest; // of the model's distribution; distance (NAN: there is no neighbour)
    kn_mixed mixed;          // the stores' lambdas
    size_t stores;
    double *shares; // of the neighbours of one store
    size_t values_capacity, shares_capacity;
} kn_guess;

// To be freed only after KNNLM_OK. KNNLM_ENOMEM.
knnlm_status kn_guess_init(kn_guess *g, const kn_lm *lm);
void kn_guess_free(kn_guess *g);
// `found` (m->count) at `query`; `lm` must last as long as the guess is asked. KNNLM_ENOMEM.
knnlm_status kn_guess_mix(kn_guess *g, const kn_mixture *m, const kn_found *found, size_t query,
                          const float *lm, double entropy);
// log p, and p, of a token.
double kn_guess_logprob(const kn_guess *g, int32_t token);
double kn_guess_probability(const kn_guess *g, int32_t token);
// The `most` most probable tokens, by kn_guess_logprob, the most probable first, of equals the lower id;
// returns how many, KN_GUESS_TOP at most.
enum { KN_GUESS_TOP = 1024 };
size_t kn_guess_top(const kn_guess *g, size_t most, int32_t *tokens);

// ---------------------------------------------------------------- one context

typedef struct kn_next {
    kn_guess guess;
    size_t tokens; // of the context that the model read
    bool cut;      // there were more than its own context holds
    kn_found found[KN_STORES_MOST];
    size_t stores;
    float *lm;
} kn_next;

// The tokens of one document's beginning, and how they are mixed.
typedef struct kn_context {
    const int32_t *tokens;
    size_t count;
    const kn_mixture *mixture;
} kn_context;

// What comes after each of the contexts, which the model reads together; their mixtures have one tap, or no
// stores. The caches of mixtures are not used. `out` (count) is to be freed only after KNNLM_OK.
// KNNLM_EINVAL: a token out of range; KNNLM_ENOMEM.
knnlm_status kn_next_guess_all(kn_lm *lm, const kn_context *contexts, size_t count, kn_next *out);
// After one.
knnlm_status kn_next_guess(kn_lm *lm, const kn_mixture *mixture, const int32_t *tokens, size_t count,
                           kn_next *out);
void kn_next_free(kn_next *next);

#endif
