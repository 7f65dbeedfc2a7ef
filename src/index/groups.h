// The nearest of thousands of lists, nearly always: lists lie in groups of about 64, and a vector is measured
// against the lists of the few groups whose centres are nearest to it. Where entries go may be decided so:
// about one in some hundred goes to a list that is a little farther than the nearest. Where queries look may
// not (quantizer.h).
#ifndef KN_INDEX_GROUPS_H
#define KN_INDEX_GROUPS_H

#include "index/quantizer.h"

// From this many lists on it is several times quicker than asking all.
enum { KN_GROUPS_FROM = 8192 };

// Immutable; any number of threads may ask.
typedef struct kn_groups kn_groups;

// Of the quantizer's centroids (L2), which outlives it. The same for the same seed. KNNLM_ENOMEM.
knnlm_status kn_groups_make(const kn_quantizer *q, uint64_t seed, kn_groups **out);
void kn_groups_free(kn_groups *g); // NULL is allowed

// A near list of each vector of x (n, d) and its squared distance, as kn_quantizer_measure gives it. Depends
// neither on the threads nor on the other vectors. KNNLM_ENOMEM.
knnlm_status kn_groups_assign(const kn_groups *g, const float *x, size_t n, uint32_t *lists,
                              float *distances);

#endif
