// Numbers of a shard's entries among those of all shards. Not a door: only this room includes it.
#ifndef KN_KNN_NUMBERING_H
#define KN_KNN_NUMBERING_H

#include "ranks/message.h"
#include "store/store.h"

// Four bytes per entry: looking for its document cost more than all else that is done with a neighbour.
// Numbers of a shard ascend with its entries, so that there are few at which the upper half changes.
typedef struct kn_numbering {
    uint32_t *low;   // (entries): the lower half of each number
    uint32_t *turns; // (count): entries from which on the upper half is one more, once for each such step
    size_t count, capacity;
} kn_numbering;

// What rank 0 knows of the documents of a shard, and what the shard makes of it. KNNLM_EBUSY: the shard has
// changed meanwhile. To be freed whatever the status.
void kn_numbering_put(const kn_store *all, size_t shard, kn_message *out);
knnlm_status kn_numbering_take(kn_message *in, const kn_store *shard, kn_numbering *out);
void kn_numbering_free(kn_numbering *n);

static inline uint64_t kn_numbering_of(const kn_numbering *n, uint32_t entry) {
    uint64_t high = 0;
    while (high < n->count && n->turns[high] <= entry) high++;
    return high << 32 | n->low[entry];
}

#endif
