// The neighbours by the definition: every entry, in double precision, sorted.
#include "index/index.h"

#include <stdlib.h>

typedef struct found {
    double distance;
    uint32_t id;
} found;

static int by_distance(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool admitted(const kn_store *store, uint64_t id, const kn_entry_range *exclude,
                     const uint64_t *allowed) {
    if (kn_store_entry_removed(store, id)) return false;
    if (exclude && id >= exclude->first && id < exclude->end) return false;
    return !allowed || (allowed[id / 64] >> id % 64 & 1);
}

knnlm_status kn_index_brute_force(const kn_store *store, const float *query, size_t k,
                                  const kn_entry_range *exclude, const uint64_t *allowed, uint32_t *ids,
                                  double *distances, size_t *count) {
    const kn_store_info *info = kn_store_describe(store);
    const kn_distance_form *form = kn_distance_form_of(info->settings.distance);
    size_t d = (size_t)info->settings.dimension, n = 0;
    found *all = kn_alloc(info->entries, sizeof *all);
    float *key = kn_alloc(d, sizeof *key);
    knnlm_status status = all && key ? KNNLM_OK : KNNLM_ENOMEM;
    for (uint64_t id = 0; id < info->entries && status == KNNLM_OK; id++) {
        if (!admitted(store, id, exclude, allowed)) continue;
        status = kn_store_keys(store, id, 1, key);
        all[n++] = (found){kn_distance_exact(form, query, key, d), (uint32_t)id};
    }
    if (status == KNNLM_OK) {
        qsort(all, n, sizeof *all, by_distance);
        *count = kn_min(k, n);
        for (size_t i = 0; i < *count; i++) {
            ids[i] = all[i].id;
            distances[i] = all[i].distance;
        }
    }
    free(all);
    free(key);
    return status;
}
