// Opens the index of a store, or none, where searches are exhaustive; settles the settings of a search.
#include "index/open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void kn_index_query(const kn_index *x, const float *query, float *out) {
    double sum = 0;
    memcpy(out, query, x->d * sizeof *out);
    if (!x->form->unit) return;
    for (size_t i = 0; i < x->d; i++) sum += (double)query[i] * query[i];
    float inverse = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
    for (size_t i = 0; i < x->d; i++) out[i] *= inverse;
}

knnlm_status kn_index_resolve(const kn_index *x, const kn_search_options *o, size_t *k, uint32_t *probes) {
    if (o->k == 0 || o->k > KN_STORE_ENTRIES_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu neighbours asked for", o->k);
    const char *path = kn_store_describe(x->store)->path;
    if (!x->info.has_keys && !x->info.lists && kn_store_annex_note(x->store))
        return kn_fail(KNNLM_ENOTSUP, "%s: keeps no keys: no exact search, only one by its codes", path);
    if (!x->info.has_keys && !x->info.lists)
        return kn_fail(KNNLM_ENOTSUP, "%s: keeps no keys and has no index: index it with its model first",
                       path);
    if (o->codes && !x->has_pq)
        return kn_fail(KNNLM_EINVAL,
                       "%s: has no codes to measure by (`knnlm_index` with `codes` pq64 makes them)", path);
    *k = o->k;
    *probes = o->probes ? o->probes : x->info.probes;
    if (*probes > x->info.lists) *probes = x->info.lists;
    return KNNLM_OK;
}

knnlm_status kn_index_open_as(const kn_store *store, knnlm_distance distance, bool lists, kn_index **out) {
    kn_index *x;
    knnlm_status status = kn_index_make(store, &x);
    if (status == KNNLM_OK) {
        x->distance = distance;
        x->form = kn_distance_form_of(distance);
    }
    if (status == KNNLM_OK && lists) status = kn_index_add_lists(x);
    if (status == KNNLM_OK) status = kn_index_add_flat(x, x->info.listed);
    if (status == KNNLM_OK) status = kn_index_mark_removed(x);
    if (status != KNNLM_OK)
        kn_index_close(x);
    else
        *out = x;
    return status;
}

knnlm_status kn_index_open(const kn_store *store, kn_index **out) {
    return kn_index_open_as(store, kn_store_describe(store)->settings.distance, true, out);
}

knnlm_status kn_index_open_flat(const kn_store *store, kn_index **out) {
    return kn_index_open_as(store, kn_store_describe(store)->settings.distance, false, out);
}

void kn_index_close(kn_index *x) {
    if (!x) return;
    kn_quantizer_free(x->quantizer);
    kn_free_aligned(x->centres);
    free(x->flat_centre);
    free(x->zero);
    free(x->listed);
    free(x->flat);
    free(x->removed);
    if (x->has_pq) kn_pq_free(&x->pq);
    free(x);
}

const kn_index_info *kn_index_describe(const kn_index *x) {
    return &x->info;
}
