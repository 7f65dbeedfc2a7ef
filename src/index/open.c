// Opens the index of a store, or none, where searches are exhaustive; settles the settings of a search.
#include "index/open.h"

#include "store/shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void make_unit(float *v, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) sum += (double)v[i] * v[i];
    float inverse = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
    for (size_t i = 0; i < d; i++) v[i] *= inverse;
}

void kn_index_query(const kn_index *x, const float *query, float *out, int16_t *whole,
                    kn_integer_query *terms) {
    memcpy(out, query, x->d * sizeof *out);
    if (x->form->unit) make_unit(out, x->d);
    if (!x->integers) return;
    float step = kn_integers_make(out, x->d, whole);
    *terms = kn_integers_terms(whole, x->d, step, kn_index_integer_form(x), x->form->beside);
    for (size_t i = 0; i < x->d; i++) out[i] = step * whole[i];
}

void kn_index_measure_integers(const kn_index *x, const int16_t *whole, const kn_integer_query *terms,
                               const uint8_t *rows, const float *scales, size_t n, float *distances) {
    for (size_t first = 0; first < n; first += KN_CELL) {
        size_t m = kn_min(KN_CELL, n - first);
        int32_t products[KN_CELL], squares[KN_CELL];
        kn_integer_terms t;
        x->integers->row_integers(products, squares, whole, (const int8_t *)rows + first * x->d, m, x->d);
        x->integers->integer_terms(&t, squares, scales + first, m, kn_index_integer_form(x));
        x->integers->integer_distances(distances + first, products, &t, terms, m);
    }
}

knnlm_status kn_index_resolve(const kn_index *x, const kn_search_options *o, size_t *k, uint32_t *probes) {
    if (o->k == 0 || o->k > KN_STORE_ENTRIES_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu neighbours asked for", o->k);
    const char *path = x->store ? kn_store_describe(x->store)->path : "";
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
    if (kn_store_shards(store))
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: is made of shards, each with an index of its own: name one, such as %s",
                       kn_store_describe(store)->path, kn_store_shard_at(store, 0).path);
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
    kn_index_close(x->coarse);
    free(x->own.ends);
    kn_free_aligned(x->own.rows);
    free(x->own.scales);
    kn_free_aligned(x->centres);
    free(x->flat_centre);
    free(x->zero);
    free(x->listed);
    free(x->flat);
    free(x->removed);
    if (x->has_pq) kn_pq_free(&x->pq);
    free(x);
}

uint64_t kn_index_lists(const kn_index *x) {
    return x->info.lists ? XXH3_64bits(x->centres, x->info.lists * x->d * sizeof *x->centres) : 0;
}

const kn_index_info *kn_index_describe(const kn_index *x) {
    return &x->info;
}
