// Building, indexing and compacting stores of shards: work that all ranks share. Not a door, but for the
// services: only this room includes it.
#ifndef KN_BUILD_SHARDS_H
#define KN_BUILD_SHARDS_H

#include "build/build.h"
#include "store/shards.h"

// What is done to a store of shards.
typedef enum kn_shards_job { KN_SHARDS_CREATE, KN_SHARDS_BUILD, KN_SHARDS_ADD, KN_SHARDS_SYNC } kn_shards_job;

knnlm_status kn_shards_build(kn_shards_job job, kn_lm *lm, const char *path, const char *const *texts,
                             size_t count, const kn_build_options *o, const kn_progress *progress,
                             kn_build_result *out);
// As kn_build_index (`wanted`) and kn_build_reindex (`anew`, or what was added goes into the lists).
knnlm_status kn_shards_index(const char *path, const kn_recipe *recipe, bool wanted, bool anew,
                             const kn_progress *progress, bool *done, kn_index_result *out);
knnlm_status kn_shards_compact(const char *path, bool force, const kn_progress *progress,
                               knnlm_compact_result *out);

// ---------------------------------------------------------------- dealing

// A document of the texts, in reading order: whose it is, and what the store calls it.
typedef struct kn_dealt_document {
    uint32_t shard;
    char *name;
} kn_dealt_document;

// Which shard gets which documents. It is kept in the store while the job lasts, so that a job that was
// interrupted is gone on with as it was dealt.
typedef struct kn_deal_plan {
    uint64_t fingerprint; // of the documents: names, sizes and contents
    uint32_t base;        // order of the first
    kn_dealt_document *documents;
    size_t count, capacity;
} kn_deal_plan;

// Reads the texts, and deals them as the plan in the store says, or anew: what a shard has stays in it, the
// largest of the others go first, each to the shard that has least. `store`: as it is. To be freed whatever
// the status.
knnlm_status kn_deal_texts(const kn_store *store, const char *const *texts, size_t count,
                           const kn_text_options *options, const kn_progress *progress, kn_deal_plan *out);
// The job is done.
void kn_deal_end(const char *path);
void kn_deal_free(kn_deal_plan *plan);

#endif
