// The steps of opening an index. Not a door: only this room includes it.
#ifndef KN_INDEX_OPEN_H
#define KN_INDEX_OPEN_H

#include "index/view.h"

// An index of nothing yet, by the store's settings; *out is to be closed, also after a failure.
knnlm_status kn_index_make(const kn_store *store, kn_index **out);
// The lists that the store has, if any.
knnlm_status kn_index_add_lists(kn_index *x);
// Entries from `first` on are outside the lists.
knnlm_status kn_index_add_flat(kn_index *x, uint64_t first);
knnlm_status kn_index_mark_removed(kn_index *x);
// An index of the lists' own centroids (lists, d): list l is its entry l. Group g has lists [ends[g], ends[g
// + 1]).
knnlm_status kn_coarse_make(const float *centres, size_t lists, size_t d, const uint32_t *ends, size_t groups,
                            const kn_distance_form *form, kn_index **out);

#endif
