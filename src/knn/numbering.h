// Numbers of a shard's entries among those of all shards. Not a door: only this room includes it.
#ifndef KN_KNN_NUMBERING_H
#define KN_KNN_NUMBERING_H

#include "ranks/message.h"
#include "store/store.h"

// Documents lie in a shard in their order among all, so that entries of one document differ from their
// numbers by the same. A table of every 64th entry's document makes it a short look-up.
typedef struct kn_numbering {
    uint64_t *firsts;  // (count): first entry of each document that has any, here
    uint64_t *offsets; // (count): number among all less number here, modulo 2^64
    uint32_t *blocks;  // document of entries 0, 64, 128, ...
    size_t count, entries;
} kn_numbering;

// What rank 0 knows of the documents of a shard, and what the shard makes of it. KNNLM_EBUSY: the shard has
// changed meanwhile.
void kn_numbering_put(const kn_store *all, size_t shard, kn_message *out);
knnlm_status kn_numbering_take(kn_message *in, const kn_store *shard, kn_numbering *out);
void kn_numbering_free(kn_numbering *n);

static inline uint64_t kn_numbering_of(const kn_numbering *n, uint32_t entry) {
    uint32_t document = n->blocks[entry / 64];
    while (document + 1 < n->count && n->firsts[document + 1] <= entry) document++;
    return entry + n->offsets[document];
}

#endif
