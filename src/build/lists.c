// Keeping the index of a store in step with its entries.
#include "build/build.h"

// Below this many entries an exact search takes no longer than one by lists.
enum { WORTH_LISTS = 50000 };

knnlm_status kn_build_index(const char *path, const kn_recipe *recipe, bool wanted,
                            const kn_progress *progress, bool *done, kn_index_result *out) {
    kn_store *store;
    kn_index *index;
    *done = false;
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_index_open(store, &index);
    if (status != KNNLM_OK) {
        kn_store_close(store);
        return status;
    }
    kn_index_info info = *kn_index_describe(index);
    uint64_t entries = kn_store_describe(store)->entries;
    kn_index_close(index);
    kn_store_close(store);
    if (!info.has_keys || !entries) return KNNLM_OK;
    if (info.lists && !wanted) {
        *done = info.flat > 0;
        return info.flat ? kn_index_extend(path, progress, out) : KNNLM_OK;
    }
    if (!wanted && entries < WORTH_LISTS) return KNNLM_OK;
    *done = true;
    return kn_index_build(path, recipe, progress, out);
}
