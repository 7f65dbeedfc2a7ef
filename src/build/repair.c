// What verification advises, done: lost documents are removed, what is left is written anew without them, and
// a damaged index is made again.
#include "build/build.h"

#include <stdlib.h>

static knnlm_status remove_lost(const char *path, const knnlm_verify_result *v, knnlm_repair_result *out) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(path, &w));
    const kn_store *base = kn_store_writer_base(w);
    uint64_t total = kn_store_describe(base)->documents;
    knnlm_status status = KNNLM_OK;
    for (uint64_t i = 0; i < total && status == KNNLM_OK; i++) {
        if (!v->document_damaged[i] || kn_store_document_removed(base, i)) continue;
        status = kn_store_writer_remove(w, i);
        out->documents_removed++;
    }
    if (status == KNNLM_OK) status = kn_store_writer_amend(w);
    kn_store_writer_close(w);
    return status;
}

// Of a store without keys the index cannot be made from what is there.
static knnlm_status rewrite(const char *path, const kn_recipe *recipe, bool keys, const kn_progress *progress,
                            knnlm_repair_result *out) {
    knnlm_compact_result compacted;
    kn_index_result index;
    if (!keys) return KNNLM_OK;
    KN_TRY(kn_store_compact(path, false, kn_index_rearrange, progress, &compacted));
    if (!recipe->lists || !compacted.segments_after) return KNNLM_OK;
    return kn_build_index(path, recipe, true, NULL, progress, &out->indexed, &index);
}

knnlm_status kn_build_repair(const char *path, const knnlm_verify_result *v, const kn_progress *progress,
                             knnlm_repair_result *out) {
    kn_store *store;
    kn_recipe recipe;
    *out = (knnlm_repair_result){0};
    if (kn_shards_exist(path))
        return kn_fail(KNNLM_EINVAL, "%s: is made of shards: repair the one that is damaged", path);
    KN_TRY(kn_store_open(path, &store));
    bool keys = kn_store_describe(store)->settings.key_type != KNNLM_KEYS_NONE;
    knnlm_status status = kn_recipe_of(store, &recipe);
    kn_store_close(store);
    KN_TRY(status);
    if (v->damaged_documents) KN_TRY(remove_lost(path, v, out));
    return rewrite(path, &recipe, keys, progress, out);
}
