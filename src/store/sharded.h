// What an open sharded store is made of. Not a door: only this room includes it.
#ifndef KN_STORE_SHARDED_H
#define KN_STORE_SHARDED_H

#include "store/shards.h"
#include "store/state.h"

typedef struct kn_shard {
    int rank;
    kn_store *local; // NULL: another rank has it, as number `handle`
    uint64_t handle;
    kn_message told;              // by that rank: strings of what follows are in it
    kn_store_info info;           // of another rank's; else the local one's
    const char *note;             // likewise
    kn_store_document *documents; // of another rank's
    char *path;
    uint32_t *numbers; // of its documents among all, by their own number
} kn_shard;

// A document of a shard. `start` is its first entry's number among all.
typedef struct kn_shard_document {
    uint64_t start, first, count;
    uint32_t shard, number, order;
    bool removed, damaged; // damaged: its record cannot be read, and it has no entries
} kn_shard_document;

typedef struct kn_sharded {
    kn_shards shards;
    kn_shard *list;
    kn_shard_document *documents; // by order, shard and number
    size_t count;
} kn_sharded;

// KNNLM_EDATA: it has shards itself.
knnlm_status kn_shard_check(const char *path);
knnlm_status kn_sharded_open(const char *path, kn_store **out);
void kn_sharded_close(kn_sharded *s);
knnlm_status kn_sharded_document_at(const kn_store *s, uint64_t number, kn_store_document *out);
knnlm_status kn_sharded_entry_at(const kn_store *s, uint64_t id, kn_store_entry *out);
bool kn_sharded_document_removed(const kn_store *s, uint64_t number);
bool kn_sharded_entry_removed(const kn_store *s, uint64_t id);
bool kn_sharded_is_current(const kn_store *s);
knnlm_status kn_sharded_attachment(const kn_store *s, const char *name, char **out);
const char *kn_sharded_note(const kn_store *s);

// What is asked of a range of entries.
typedef enum kn_range_kind { KN_RANGE_TOKENS, KN_RANGE_OFFSETS, KN_RANGE_KEYS } kn_range_kind;
knnlm_status kn_sharded_range(const kn_store *s, kn_range_kind kind, uint64_t first, size_t count, void *out);
// Of an ordinary store. KNNLM_EDATA: keys that are damaged, too.
knnlm_status kn_store_read_range(const kn_store *s, kn_range_kind kind, uint64_t first, size_t count,
                                 void *out);
// Bytes of an item of a range.
size_t kn_range_item(const kn_store_settings *settings, kn_range_kind kind);

#endif
