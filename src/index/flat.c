// What lies outside lists, or all of it for an exhaustive search: the keys of the store as they lie.
#include "index/open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 1024 };

static kn_row_type row_type(knnlm_keys type) {
    switch (type) {
    case KNNLM_KEYS_F16:
        return KN_ROWS_F16;
    case KNNLM_KEYS_F32:
        return KN_ROWS_F32;
    case KNNLM_KEYS_INT8:
        return KN_ROWS_INT8;
    case KNNLM_KEYS_NONE: // there are no rows
        return KN_ROWS_F16;
    }
    return KN_ROWS_F16;
}

knnlm_status kn_index_make(const kn_store *store, kn_index **out) {
    const kn_store_settings *s = &kn_store_describe(store)->settings;
    kn_index *x = kn_alloc(1, sizeof *x);
    *out = x;
    if (!x) return KNNLM_ENOMEM;
    x->store = store;
    x->k = kn_math_kernels(KNNLM_PRECISION_F32);
    if (s->key_type == KNNLM_KEYS_INT8) x->integers = kn_math_kernels(KNNLM_PRECISION_AUTO);
    x->distance = s->distance;
    x->form = kn_distance_form_of(s->distance);
    x->type = row_type(s->key_type);
    x->d = (size_t)s->dimension;
    x->entries = kn_store_describe(store)->entries;
    x->row_bytes = kn_key_row_bytes(s->key_type, x->d);
    x->info.has_keys = s->key_type != KNNLM_KEYS_NONE;
    x->zero = kn_alloc(x->d, sizeof *x->zero);
    x->flat_centre = kn_alloc(x->d, sizeof *x->flat_centre);
    return x->zero && x->flat_centre ? KNNLM_OK : KNNLM_ENOMEM;
}

// The mean of some rows: near enough to the middle for its purpose.
static knnlm_status find_centre(kn_index *x, uint64_t first) {
    uint64_t total = kn_store_describe(x->store)->entries, n = total - first;
    float *key = kn_alloc(x->d, sizeof *key);
    if (!key) return KNNLM_ENOMEM;
    uint64_t count = n < SAMPLE ? n : SAMPLE;
    for (uint64_t i = 0; i < count; i++) {
        knnlm_status status = kn_store_keys(x->store, first + i * n / count, 1, key);
        if (status != KNNLM_OK) {
            free(key);
            return status;
        }
        for (size_t j = 0; j < x->d; j++) x->flat_centre[j] += key[j] / (float)count;
    }
    for (size_t j = 0; j < x->d; j++)
        if (!isfinite(x->flat_centre[j])) x->flat_centre[j] = 0; // a damaged key: any centre is right
    free(key);
    return KNNLM_OK;
}

// The rows of entries from `first` on.
static kn_run flat_run(const kn_index *x, const kn_store_key_run *g, uint64_t first) {
    uint64_t skip = g->first < first ? first - g->first : 0;
    return (kn_run){.first_id = (uint32_t)(g->first + skip),
                    .ids = g->ids,
                    .rows = g->keys + skip * x->row_bytes,
                    .scales = g->scales ? g->scales + skip : NULL,
                    .count = g->count - skip,
                    .rows_part = g->part,
                    .order_part = g->order_part,
                    .ids_at = g->ids_at};
}

knnlm_status kn_index_add_flat(kn_index *x, uint64_t first) {
    const kn_store_info *info = kn_store_describe(x->store);
    size_t runs = kn_store_key_runs(x->store);
    if (first == info->entries || !x->info.has_keys) return KNNLM_OK;
    if (first < info->arranged && kn_store_annex_fault(x->store))
        return kn_fail(KNNLM_EDATA, "%s", kn_store_annex_fault(x->store));
    x->flat = kn_alloc(runs, sizeof *x->flat);
    if (!x->flat) return KNNLM_ENOMEM;
    for (size_t i = 0; i < runs; i++) {
        kn_store_key_run g = kn_store_key_run_at(x->store, i);
        if (g.first + g.count > first && g.count) x->flat[x->flat_count++] = flat_run(x, &g, first);
    }
    x->info.flat = info->entries - first;
    return find_centre(x, first);
}

static knnlm_status mark(kn_index *x, uint64_t first, uint64_t count) {
    if (!x->removed) x->removed = kn_alloc(x->entries / 64 + 1, sizeof *x->removed);
    if (!x->removed) return KNNLM_ENOMEM;
    for (uint64_t id = first; id < first + count; id++) x->removed[id / 64] |= (uint64_t)1 << id % 64;
    return KNNLM_OK;
}

static void count_lost(void *context, uint64_t first, uint64_t count) {
    (void)first;
    *(uint64_t *)context += count;
}

static void mark_lost(void *context, uint64_t first, uint64_t count) {
    mark(context, first, count); // its memory is there already
}

knnlm_status kn_index_mark_removed(kn_index *x) {
    const kn_store_info *info = kn_store_describe(x->store);
    uint64_t lost = 0;
    kn_store_find_lost(x->store, count_lost, &lost);
    if (lost || info->removed_documents) KN_TRY(mark(x, 0, 0));
    if (lost) kn_store_find_lost(x->store, mark_lost, x);
    for (uint64_t i = 0; info->removed_documents && i < info->documents; i++) {
        kn_store_document d;
        if (!kn_store_document_removed(x->store, i)) continue;
        knnlm_status status = kn_store_document_at(x->store, i, &d);
        if (status == KNNLM_EDATA) continue; // its entries are lost: marked above
        KN_TRY(status);
        KN_TRY(mark(x, d.first, d.count));
    }
    return KNNLM_OK;
}
