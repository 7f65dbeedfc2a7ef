// What comes after a context, by the model and by its neighbours: the whole distribution.
#ifndef KN_EVAL_GUESS_H
#define KN_EVAL_GUESS_H

#include "eval/mixture.h"

typedef struct kn_guess {
    size_t tokens; // of the context that the model read
    bool cut;      // there were more than its own context holds
    float *lm;     // (vocabulary): log p_LM
    double *knn;   // (vocabulary): p_kNN of all stores together, each by its part of lambda; NULL: no stores
    double lambda; // of all stores together
    double entropy, nearest;        // nearest: distance; NAN: there is none
    kn_found found[KN_STORES_MOST]; // of this one query
    kn_mixed mixed;                 // the stores' lambdas
    size_t stores;
} kn_guess;

// After the tokens of one document's beginning. The mixture's cache is not used. To be freed only after
// KNNLM_OK. KNNLM_EINVAL: a token out of range; KNNLM_ENOMEM.
knnlm_status kn_guess_next(kn_lm *lm, const kn_mixture *mixture, const int32_t *tokens, size_t count,
                           kn_guess *out);
void kn_guess_free(kn_guess *guess);
// p of a token.
double kn_guess_probability(const kn_guess *guess, int32_t token);

#endif
