// Sharded stores: many stores that are read as one, whose entries may lie on many machines.
//
// A sharded store is a directory with a file SHARDS (docs/format.md): a line "knnlm-shards VERSION CHECKSUM",
// then JSON that tells where the shards are. Each is an ordinary store. Documents have an order among those
// of all shards, the one in which a store without shards would have them: entries are numbered by it, so
// numbers, and what ties of distances go by, are the same however many shards there are.
//
// kn_store_open opens it as any store. Shards that another rank has (ranks/ranks.h) are read through it.
#ifndef KN_STORE_SHARDS_H
#define KN_STORE_SHARDS_H

#include "ranks/ranks.h"
#include "store/store.h"

#define KN_SHARDS_MAGIC "knnlm-shards"
#define KN_SHARDS_FILE "SHARDS"
enum { KN_SHARDS_VERSION = 1, KN_SHARDS_MAX = 4096, KN_SHARDS_LINE = 64 };

typedef struct kn_shard_place {
    char *path; // below the sharded store, or absolute
    char *host; // whose disk it is on; NULL: every rank sees it
} kn_shard_place;

typedef struct kn_shards {
    char *path; // of the sharded store
    kn_shard_place *places;
    size_t count;
} kn_shards;

// Whether a directory at `path` holds a sharded store.
bool kn_shards_exist(const char *path);
// KNNLM_EDATA: malformed, or a shard is listed twice. To be freed whatever the status.
knnlm_status kn_shards_read(const char *path, kn_shards *out);
// The same from the bytes of SHARDS; `file` is used in messages.
knnlm_status kn_shards_parse(const char *path, const char *file, const char *data, size_t size,
                             kn_shards *out);
// `count` shards in a new sharded store; `local`: their directory on the disk of the rank that has each, or
// NULL: below the store. Nothing is written. To be freed whatever the status.
knnlm_status kn_shards_plan(const char *path, size_t count, const char *local, kn_shards *out);
// Replaces SHARDS, in a directory that is made where there is none.
knnlm_status kn_shards_write(const kn_shards *s);
void kn_shards_free(kn_shards *s);
// Where a shard is for the rank that has it; released with free().
knnlm_status kn_shards_path(const kn_shards *s, size_t number, char **out);
// The rank that has a shard: one on its host, if it has one. KNNLM_EINVAL: no rank is there.
knnlm_status kn_shards_rank(const kn_shards *s, size_t number, int *rank);

// A service that is called once per shard, all at the same time: `in` begins with the shard's path, to which
// `put` (or NULL) adds; `take` (or NULL) is then given the answers, shard by shard.
typedef void kn_shard_put(void *context, size_t shard, kn_message *in);
typedef knnlm_status kn_shard_take(void *context, size_t shard, kn_message *out);
typedef struct kn_shard_job {
    const kn_service *service;
    kn_shard_put *put;
    kn_shard_take *take;
    void *context;
} kn_shard_job;
knnlm_status kn_shards_call(const kn_shards *s, const kn_shard_job *job, const kn_progress *progress);
// The same for the sharded store at `path`.
knnlm_status kn_shards_call_at(const char *path, const kn_shard_job *job, const kn_progress *progress);

// ---------------------------------------------------------------- of an open one

// Number of shards; 0: an ordinary store.
size_t kn_store_shards(const kn_store *store);

typedef struct kn_store_shard {
    const char *path;
    const char *host; // NULL: every rank sees it
    int rank;         // that has it
    const kn_store_info *info;
    const char *note; // of its index; NULL: none
} kn_store_shard;
kn_store_shard kn_store_shard_at(const kn_store *store, size_t number);
// The first entry of a shard whose number among all is `id` or above.
uint64_t kn_store_shard_from(const kn_store *store, size_t shard, uint64_t id);
// The number among all of the first entry of a document, by its number in its shard.
uint64_t kn_store_shard_start(const kn_store *store, size_t shard, uint64_t document);
// The shard that has a document, and its number there.
void kn_store_shard_document(const kn_store *store, uint64_t number, size_t *shard, uint64_t *local);
// The highest order of a document, of any shard.
uint32_t kn_store_last_order(const kn_store *store);

// Keys (count, dimension) of single entries, of a sharded store or another.
knnlm_status kn_store_keys_of(const kn_store *store, const uint64_t *ids, size_t count, float *out);

// What ranks do with the stores that they have.
extern const kn_service kn_service_store_open, kn_service_store_close, kn_service_store_entry,
    kn_service_store_range, kn_service_store_keys, kn_service_store_current, kn_service_store_tune,
    kn_service_store_remove, kn_service_store_verify;
// The tuned settings into every shard.
knnlm_status kn_shards_tune(const char *path, const kn_store_tuned *tuned);
// Removes the documents that are marked, (documents) of an open store of shards.
knnlm_status kn_shards_remove(const kn_store *store, const bool *documents);
// As kn_store_verify.
knnlm_status kn_shards_verify(const kn_store *store, const kn_progress *progress,
                              void (*found)(void *context, const knnlm_problem *problem), void *context,
                              knnlm_verify_result *out);

#endif
