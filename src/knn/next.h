// What comes after contexts that the model reads together.
#ifndef KN_KNN_NEXT_H
#define KN_KNN_NEXT_H

#include "knn/distribution.h"

// The tokens of one document's beginning, and how they are mixed.
typedef struct kn_context {
    const int32_t *tokens;
    size_t count;
    const kn_mixture *mixture;
} kn_context;

typedef struct kn_next {
    kn_distribution distribution;
    size_t tokens;                         // of the context that the model read
    bool cut;                              // there were more than its own context holds
    const float *state;                    // of the model, from which the neighbours were searched
    kn_row_neighbors found[KN_STORES_MAX]; // in each of the mixture's stores
} kn_next;

// Those of some contexts. One thread at a time.
typedef struct kn_nexts kn_nexts;

// Mixtures have one tap, or no stores, and must stay open as long; their caches are not used. KNNLM_EINVAL: a
// token out of range; KNNLM_ENOMEM; else as kn_datastore_search.
knnlm_status kn_nexts_open(kn_lm *lm, const kn_context *contexts, size_t count, kn_nexts **out);
void kn_nexts_close(kn_nexts *nexts); // NULL is allowed
const kn_next *kn_nexts_at(const kn_nexts *nexts, size_t number);

#endif
