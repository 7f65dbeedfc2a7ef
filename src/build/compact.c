// Compaction of a store that has an index: it stays; only one that cannot be used is made anew.
#include "build/shards.h"

// The recipe of the index that the store has; no lists: it has none.
static knnlm_status recall_recipe(const char *path, kn_recipe *out) {
    kn_store *store;
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_recipe_of(store, out);
    kn_store_close(store);
    return status;
}

static bool has_index(const char *path) {
    kn_store *store;
    if (kn_store_open(path, &store) != KNNLM_OK) return false;
    bool has = kn_store_annex_note(store) != NULL;
    kn_store_close(store);
    return has;
}

// Without an index searches are right, only slower.
knnlm_status kn_build_compact(const char *path, bool force, const kn_progress *progress,
                              knnlm_compact_result *out) {
    kn_recipe recipe;
    kn_index_result index;
    bool done;
    if (kn_shards_exist(path)) return kn_shards_compact(path, force, progress, out);
    KN_TRY(recall_recipe(path, &recipe));
    recipe.force = force;
    KN_TRY(kn_store_compact(path, force, kn_index_rearrange, progress, out));
    if (!recipe.lists || out->segments_after == 0 || has_index(path)) return KNNLM_OK;
    return kn_build_index(path, &recipe, true, NULL, progress, &done, &index);
}
