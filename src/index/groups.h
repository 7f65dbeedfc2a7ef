// The nearest of thousands of lists, nearly always: lists lie in groups of about 64 (kn_kmeans_learn_groups),
// and a vector is measured against the lists of the few groups whose middles are nearest to it. About one in
// some hundred goes to a list that is a little farther than the nearest.
#ifndef KN_INDEX_GROUPS_H
#define KN_INDEX_GROUPS_H

#include "index/quantizer.h"

enum {
    KN_GROUPS_FROM = 8192, // from this many lists on they lie in groups
    KN_GROUP_LISTS = 64,   // of a group, about
};

// Immutable; any number of threads may ask.
typedef struct kn_groups kn_groups;

// Of the quantizer's centroids (L2), which outlives it as `ends` (groups + 1) do: group g has lists [ends[g],
// ends[g + 1]). KNNLM_ENOMEM.
knnlm_status kn_groups_make(const kn_quantizer *q, const uint32_t *ends, size_t groups, kn_groups **out);
void kn_groups_free(kn_groups *g); // NULL is allowed
// The middle of each group (groups, d), of the lists that it has.
void kn_groups_middles(const float *centroids, size_t d, const uint32_t *ends, size_t groups, float *out);

// A near list of each vector of x (n, d) and its squared distance, as kn_quantizer_measure gives it. Depends
// neither on the threads nor on the other vectors. KNNLM_ENOMEM.
knnlm_status kn_groups_assign(const kn_groups *g, const float *x, size_t n, uint32_t *lists,
                              float *distances);

#endif
