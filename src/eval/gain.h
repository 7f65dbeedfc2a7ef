// What each document did for a text: the text's gain, log p - log p_LM in nats, shared out to the documents.
//
//   p - p_LM = sum over stores s and their neighbours i of  lambda_s w_i ([v_i = y] - p_LM)
//
// A neighbour brings its share of p where it has the token y, and takes its share from the model in any case.
// Divided by the logarithmic mean of p and p_LM, which is (p - p_LM) / (log p - log p_LM), these terms add up
// to the token's gain, and nothing is lost where p and p_LM are nearly the same.
#ifndef KN_EVAL_GAIN_H
#define KN_EVAL_GAIN_H

#include "knn/predict.h"

typedef struct kn_document_gain {
    size_t store;      // its number in the mixture
    uint64_t document; // its number in the store
    double gain;       // in nats, of all tokens
    uint64_t entry;    // of its neighbours, the one that had the largest part in that
} kn_document_gain;

// Sums of one text.
typedef struct kn_gains kn_gains;
// The mixture outlives it. KNNLM_ENOMEM.
knnlm_status kn_gains_open(const kn_mixture *m, kn_gains **out);
void kn_gains_close(kn_gains *g); // NULL is allowed
// A token with its neighbours, and what was made of them; `lm` is log p_LM. A token that has no probability,
// by the model or by the mixture, gains nothing that could be shared. KNNLM_ENOMEM; KNNLM_EDATA: a store is
// damaged.
knnlm_status kn_gains_add(kn_gains *g, const kn_row_neighbors *found, const kn_prediction *prediction,
                          int32_t token, double lm);
// The documents that had a part in it, *count of them, those of the largest gain or loss first; *out is
// released with free(). KNNLM_ENOMEM.
knnlm_status kn_gains_list(const kn_gains *g, kn_document_gain **out, size_t *count);

#endif
