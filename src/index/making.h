// An index in the making. Not a door: only this room includes it.
#ifndef KN_INDEX_MAKING_H
#define KN_INDEX_MAKING_H

#include "index/arrange.h"

typedef struct kn_making {
    const kn_recipe *recipe;
    kn_index_note note;
    kn_store_writer *w;    // NULL while lists are learnt for others
    const kn_store *store; // may be of shards while lists are learnt
    size_t d;
    float *centroids;
    uint32_t *group_ends;    // (groups + 1): of lists; NULL: no groups
    kn_quantizer *quantizer; // squared L2, also where searches use another
    kn_groups *groups;
    kn_pq pq;
    bool has_pq;
    const kn_progress *progress;
    kn_index_result *out;
    const kn_index *before; // what the next run is merged with; NULL: nothing
    size_t kept;            // its runs that stay as they are
} kn_making;

// Settles what the recipe leaves open, by the entries of the store.
knnlm_status kn_making_resolve(kn_making *m);
// Learns lists, and codes where they are wanted, from a sample of the store's keys.
knnlm_status kn_making_learn(kn_making *m);
// Opens the store at `path` to be indexed; to be freed whatever the status.
knnlm_status kn_making_begin(kn_making *m, const char *path, const kn_recipe *recipe,
                             const kn_progress *progress, kn_index_result *out);
// Whether the disk has room for it.
knnlm_status kn_making_check_space(const kn_making *m);
// Puts entries from `first` on into the lists that were learnt, and publishes them.
knnlm_status kn_making_write(kn_making *m, uint64_t first);
void kn_making_free(kn_making *m);
// What the store at `path` has now.
knnlm_status kn_making_describe(const char *path, kn_index_result *out);
// The lists and codes of an index that is open, for the store at hand.
knnlm_status kn_making_reuse(kn_making *m, const kn_index *x);

#endif
