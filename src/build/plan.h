// Before the work: the settings it will have, and what it will cost. Not a door: only this room includes it.
#ifndef KN_BUILD_PLAN_H
#define KN_BUILD_PLAN_H

#include "build/build.h"
#include "math/pca.h"

// Everything that follows from the model, the options and, where there is one, the store.
typedef struct kn_plan {
    kn_lm *lm;
    kn_read_options read;
    kn_store_settings settings; // strings are those below, the tokenizer's and constants
    char *model_path;
    char tokenizer_fingerprint[KN_FINGERPRINT], tap[KN_TAP_TEXT];
    int32_t project;
    uint64_t memory;
    bool force;
} kn_plan;

knnlm_status kn_plan_build(kn_lm *lm, const kn_build_options *options, kn_plan *out);
// By the settings of a store.
knnlm_status kn_plan_add(kn_lm *lm, const kn_store *store, const kn_build_options *options, kn_plan *out);
void kn_plan_free(kn_plan *plan);
// KNNLM_EINVAL naming the first difference between the plan and the store.
knnlm_status kn_plan_check(const kn_plan *plan, const kn_store *store, bool segment_given);

// From a sample of the texts; the model runs for about a second, unless the store (or NULL) has all of it.
knnlm_status kn_plan_estimate(const kn_plan *plan, const char *path, const kn_store *store,
                              const char *const *texts, size_t count, knnlm_build_estimate *out);
// KNNLM_EIO or KNNLM_ENOMEM when disk or memory cannot hold it.
knnlm_status kn_plan_afford(const kn_plan *plan, const char *path, const knnlm_build_estimate *estimate);
// Bytes of memory that a document of `bytes` takes while it is read.
uint64_t kn_plan_document_memory(uint64_t bytes);

// KNNLM_EINVAL when the plan's projection cannot be learnt from these texts: before anything is written.
knnlm_status kn_plan_check_texts(const kn_plan *plan, const char *const *texts, size_t count);
// Principal components of the keys of a sample.
knnlm_status kn_plan_learn(const kn_plan *plan, const char *const *texts, size_t count,
                           const kn_progress *progress, kn_pca *out);

#endif
