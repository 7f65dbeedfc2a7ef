// Putting entries into list order. Not a door: only this room includes it.
#ifndef KN_INDEX_ARRANGE_H
#define KN_INDEX_ARRANGE_H

#include "base/scratch_file.h"
#include "index/groups.h"
#include "index/note.h"
#include "index/pq.h"
#include "index/quantizer.h"
#include "index/resident.h"
#include "index/view.h"

// A run being made: entries [first, first + count) of a store.
typedef struct kn_arrangement {
    const kn_store *store;
    const kn_quantizer *quantizer; // nearest by squared L2
    const kn_groups *groups;       // of very many lists; NULL: the quantizer is asked
    const kn_pq *pq;               // NULL: no codes
    uint64_t first;
    size_t count, lists;
    uint64_t memory;             // bytes: half for buffers, some of the rest for keys looked at
    const kn_key_source *source; // NULL: the store's keys
    const kn_progress *progress;
    // Runs of this index, from this one on, are merged into it: their entries stay in their lists.
    const kn_index *before; // NULL: none
    size_t merged;
    double merged_objective; // mean of theirs
    // Results:
    uint32_t *list; // of each entry
    uint8_t *codes; // of each entry: in room, or where memory is bounded in a file
    kn_scratch_file room;
    uint64_t *ends;   // (lists + 1)
    double objective; // mean squared distance to the centroid
    // Where the writing is:
    kn_resident resident;
    uint32_t entry;
    float scale;
    bool lost;        // a key was not found
    uint8_t *nothing; // in place of it
} kn_arrangement;

// Keys of entries [first, first + n) as the lists see them: of length 1 for cosine.
knnlm_status kn_arrange_keys(const kn_store *store, const kn_key_source *source, uint64_t first, size_t n,
                             float *out);
// Keys of the store become what its lists see of them.
void kn_arrange_keys_as_seen(const kn_store *store, size_t n, float *keys);
// Bytes that may be mapped by looking at keys that are `apart` entries from each other.
uint64_t kn_arrange_touched(const kn_store *store, uint64_t apart);
// Finds every entry's list and code.
knnlm_status kn_arrange_assign(kn_arrangement *a);
// Writes the run's parts: order, rows, codes.
knnlm_status kn_arrange_write(kn_arrangement *a, kn_annex_writer *w);
void kn_arrange_free(kn_arrangement *a);

#endif
