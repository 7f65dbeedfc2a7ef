// Keeping the index of a store in step with its entries.
#include "build/lists.h"

#include "build/shards.h"
#include "build/source.h"

enum {
    // Below this many entries an exact search takes no longer than one by lists.
    WORTH_LISTS = 50000,
    // So many entries beside the lists are looked at by every search rather than put into them: a search of
    // one
    // query reads some ten thousand rows anyway, and an addition is done sooner.
    WORTH_EXTENDING = 1024,
};

bool kn_lists_worth(uint64_t entries) {
    return entries >= WORTH_LISTS;
}

bool kn_lists_worth_extending(uint64_t outside) {
    return outside >= WORTH_EXTENDING;
}

static knnlm_status learn_or_extend(const kn_store *store, const char *path, const kn_recipe *recipe,
                                    bool wanted, const kn_progress *progress, bool *done,
                                    kn_index_result *out) {
    uint32_t lists = 0;
    uint64_t entries = kn_store_describe(store)->entries, listed = 0;
    knnlm_status status = kn_index_outline(store, &lists, &listed);
    if (status != KNNLM_OK && !wanted) return status; // made anew only when that is asked for
    // What a model has computed is not thrown away: it is gone on with. Without keys nothing is found beside
    // the lists.
    if (lists && (!wanted || recipe->source)) {
        *done = recipe->source ? listed < entries : kn_lists_worth_extending(entries - listed);
        return *done ? kn_index_extend(path, recipe, progress, out) : KNNLM_OK;
    }
    *done = wanted || kn_lists_worth(entries);
    return *done ? kn_index_build(path, recipe, progress, out) : KNNLM_OK;
}

static knnlm_status index_by_model(const kn_store *store, kn_lm *lm, const char *path,
                                   const kn_recipe *recipe, const kn_progress *progress, bool *done,
                                   kn_index_result *out) {
    kn_model_source *source;
    kn_recipe streamed = *recipe;
    KN_TRY(kn_model_source_open(lm, store, &source));
    kn_key_source keys = kn_model_source_keys(source);
    streamed.source = &keys;
    knnlm_status status = learn_or_extend(store, path, &streamed, true, progress, done, out);
    kn_model_source_close(source);
    return status;
}

knnlm_status kn_build_index(const char *path, const kn_recipe *recipe, bool wanted, kn_lm *lm,
                            const kn_progress *progress, bool *done, kn_index_result *out) {
    kn_store *store;
    knnlm_status status = KNNLM_OK;
    *done = false;
    if (kn_shards_exist(path)) return kn_shards_index(path, recipe, wanted, false, progress, done, out);
    KN_TRY(kn_store_open(path, &store));
    const kn_store_info *info = kn_store_describe(store);
    bool keys = info->settings.key_type != KNNLM_KEYS_NONE;
    // A store without keys has an index when it was given codes once.
    bool codes = recipe->code_parts || kn_store_annex_note(store);
    if (info->entries && keys)
        status = learn_or_extend(store, path, recipe, wanted, progress, done, out);
    else if (info->entries && lm && codes)
        status = index_by_model(store, lm, path, recipe, progress, done, out);
    kn_store_close(store);
    return status;
}

static knnlm_status check_keyless(const kn_store *store, const kn_recipe *recipe, bool extend,
                                  const kn_lm *lm) {
    const kn_store_info *info = kn_store_describe(store);
    bool indexed = kn_store_annex_note(store) != NULL;
    if (!info->entries) return kn_fail(KNNLM_EINVAL, "%s: has no entries to index", info->path);
    if (extend && !indexed) return kn_fail(KNNLM_EINVAL, "%s: has no index to extend", info->path);
    if (!indexed && !recipe->code_parts)
        return kn_fail(KNNLM_EINVAL, "%s: keeps no keys: say which codes to keep (such as pq64)", info->path);
    if (!lm)
        return kn_fail(KNNLM_EINVAL, "%s: keeps no keys: the model that made it is needed to index it",
                       info->path);
    return kn_build_check_model(store, lm);
}

static knnlm_status reindex_keyless(const kn_store *store, const kn_recipe *recipe, bool extend, kn_lm *lm,
                                    const kn_progress *progress, kn_index_result *out) {
    const char *path = kn_store_describe(store)->path;
    bool done;
    KN_TRY(check_keyless(store, recipe, extend, lm));
    KN_TRY(kn_build_index(path, recipe, true, lm, progress, &done, out));
    if (done) return KNNLM_OK;
    if (!extend) return kn_fail(KNNLM_EINVAL, "%s: is indexed already", path);
    return kn_index_extend(path, recipe, progress, out); // by nothing: describes what is there
}

static knnlm_status reindex_shards(const char *path, const kn_recipe *recipe, bool extend,
                                   const kn_progress *progress, kn_index_result *out) {
    bool done = true;
    KN_TRY(kn_shards_index(path, recipe, false, !extend, progress, &done, out));
    return done ? KNNLM_OK
                : kn_fail(KNNLM_EINVAL, "%s: has too few entries outside its lists to extend them", path);
}

knnlm_status kn_build_reindex(const char *path, const kn_recipe *recipe, bool extend, kn_lm *lm,
                              const kn_progress *progress, kn_index_result *out) {
    kn_store *store;
    knnlm_status status;
    if (kn_shards_exist(path)) return reindex_shards(path, recipe, extend, progress, out);
    KN_TRY(kn_store_open(path, &store));
    if (kn_store_describe(store)->settings.key_type == KNNLM_KEYS_NONE)
        status = reindex_keyless(store, recipe, extend, lm, progress, out);
    else if (extend)
        status = kn_index_extend(path, recipe, progress, out);
    else
        status = kn_index_build(path, recipe, progress, out);
    kn_store_close(store);
    return status;
}
