// The public functions that index and search.
#include "api/api.h"

#include <assert.h>
#include <stdlib.h>

// ---------------------------------------------------------------- indexing

API_DEFAULTS(knnlm_index_options, .seed = 1)

static knnlm_status read_recipe(const knnlm_index_options *o, kn_recipe *out) {
    *out = (kn_recipe){.lists = o->lists,
                       .train = o->train,
                       .probes = o->probes,
                       .iterations = o->iterations,
                       .seed = o->seed,
                       .memory = o->memory,
                       .force = o->force};
    return kn_recipe_parse_codes(o->codes, out);
}

static knnlm_index_info info_of(const kn_index_info *i) {
    return (knnlm_index_info){.lists = i->lists,
                              .probes = i->probes,
                              .listed = i->listed,
                              .outside = i->flat,
                              .code_bytes = i->code_bytes,
                              .code_bits = i->code_bits,
                              .bytes = i->bytes,
                              .imbalance = i->imbalance,
                              .drift = i->drift};
}

static knnlm_index_result result_of(const kn_index_result *r, bool done) {
    return (knnlm_index_result){.done = done,
                                .index = info_of(&r->info),
                                .objective = r->objective,
                                .train_seconds = r->train_seconds,
                                .assign_seconds = r->assign_seconds,
                                .write_seconds = r->write_seconds,
                                .seconds = r->train_seconds + r->assign_seconds + r->write_seconds};
}

knnlm_status knnlm_index(knnlm_model *model, const char *path, const knnlm_index_options *options,
                         knnlm_index_result *result) {
    knnlm_index_options given;
    kn_recipe recipe;
    kn_index_result made;
    KN_TRY(API_TAKE(knnlm_index_options, options, &given));
    KN_TRY(read_recipe(&given, &recipe));
    KN_TRY(kn_build_reindex(path, &recipe, given.extend, (kn_lm *)model, &given.progress, &made));
    if (result) *result = result_of(&made, true);
    return KNNLM_OK;
}

knnlm_status knnlm_index_update(knnlm_model *model, const char *path, const knnlm_index_options *options,
                                knnlm_index_result *result) {
    knnlm_index_options given;
    kn_recipe recipe;
    kn_index_result made = {0};
    bool done;
    KN_TRY(API_TAKE(knnlm_index_options, options, &given));
    KN_TRY(read_recipe(&given, &recipe));
    KN_TRY(kn_build_index(path, &recipe, given.always, (kn_lm *)model, &given.progress, &done, &made));
    if (result) *result = result_of(&made, done);
    return KNNLM_OK;
}

knnlm_status knnlm_index_options_check(const knnlm_index_options *options) {
    knnlm_index_options given;
    kn_recipe recipe;
    KN_TRY(API_TAKE(knnlm_index_options, options, &given));
    return read_recipe(&given, &recipe);
}

// ---------------------------------------------------------------- searching

// Without lists both are the same, and one is enough.
static knnlm_status index_of(const knnlm_store *constant, bool exact, const kn_index **out) {
    knnlm_store *s = api_lock(constant);
    bool flat = exact && kn_store_annex_note(s->store);
    kn_index **kept = flat ? &s->flat : &s->index;
    knnlm_status status = KNNLM_OK;
    if (!*kept) status = flat ? kn_index_open_flat(s->store, kept) : kn_index_open(s->store, kept);
    *out = *kept;
    api_unlock(s);
    return status;
}

knnlm_status knnlm_store_index_describe(const knnlm_store *s, knnlm_index_info *out) {
    const kn_index *x;
    KN_TRY(index_of(s, false, &x));
    *out = info_of(kn_index_describe(x));
    return KNNLM_OK;
}

API_DEFAULTS(knnlm_search_options, .k = 1024)

// *bits: one per entry, set for those of the documents; NULL when all are wanted. Released with free().
static knnlm_status allow(const kn_store *store, const knnlm_search_options *o, uint64_t **bits) {
    kn_name_filter names = {o->only, o->except, o->only_count, o->except_count, 0};
    *bits = NULL;
    if (!o->documents) return kn_store_select(store, &names, bits);
    if (o->only_count || o->except_count)
        return kn_fail(KNNLM_EINVAL, "documents by number and by name (`only`, `except`): one at a time");
    *bits = kn_alloc((size_t)(kn_store_describe(store)->entries / 64 + 1), sizeof **bits);
    if (!*bits) return KNNLM_ENOMEM;
    for (size_t i = 0; i < o->document_count; i++) {
        kn_store_document d;
        KN_TRY(kn_store_document_at(store, o->documents[i], &d));
        for (uint64_t id = d.first; id < d.first + d.count; id++) (*bits)[id / 64] |= (uint64_t)1 << id % 64;
    }
    return KNNLM_OK;
}

static_assert(sizeof(kn_entry_range) == 2 * sizeof(uint64_t), "two numbers, as the public header has them");

// A searcher of the pool, or a new one: it belongs to one thread at a time. Those for more neighbours serve
// for fewer.
static knnlm_status borrow(const knnlm_store *constant, const kn_index *x, size_t k, api_searcher *out) {
    knnlm_store *s = api_lock(constant);
    *out = (api_searcher){NULL, x, k};
    for (size_t i = 0; i < s->idle && !out->searcher; i++) {
        if (s->pool[i].index != x || s->pool[i].k < k) continue;
        *out = s->pool[i];
        s->pool[i] = s->pool[--s->idle];
    }
    api_unlock(s);
    return out->searcher ? KNNLM_OK : kn_searcher_open(x, k, &out->searcher);
}

static void give_back(const knnlm_store *constant, const api_searcher *searcher) {
    knnlm_store *s = api_lock(constant);
    bool room = s->idle < API_SEARCHERS;
    if (room) s->pool[s->idle++] = *searcher;
    api_unlock(s);
    if (!room) kn_searcher_close(searcher->searcher);
}

// Each query by itself. Rows that a failure leaves are as they were.
static knnlm_status search_singly(const knnlm_store *s, const kn_index *x, const float *queries, size_t n,
                                  const kn_search_options *options, const kn_neighbors *out) {
    size_t d = (size_t)kn_store_describe(s->store)->settings.dimension, k = options->k;
    kn_search_options o = *options;
    api_searcher searcher;
    if (k == 0 || k > KN_STORE_ENTRIES_MAX) return kn_fail(KNNLM_EINVAL, "%zu neighbours asked for", k);
    KN_TRY(borrow(s, x, k, &searcher));
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < n && status == KNNLM_OK; i++) {
        kn_neighbors row = {out->ids + i * k, out->distances + i * k, out->counts + i};
        if (options->exclude) o.exclude = options->exclude + i;
        status = kn_searcher_find(searcher.searcher, queries + i * d, &o, &row);
    }
    give_back(s, &searcher);
    return status;
}

knnlm_status knnlm_store_search(const knnlm_store *s, const float *queries, size_t n,
                                const knnlm_search_options *options, uint32_t *ids, float *distances,
                                uint32_t *counts) {
    knnlm_search_options given;
    const kn_index *x;
    uint64_t *allowed;
    KN_TRY(API_TAKE(knnlm_search_options, options, &given));
    KN_TRY(index_of(s, given.exact, &x));
    knnlm_status status = allow(s->store, &given, &allowed);
    kn_search_options o = {.k = given.k,
                           .probes = given.probes,
                           .exclude = (const kn_entry_range *)(const void *)given.exclude,
                           .allowed = allowed,
                           .memory = given.memory,
                           .progress = &given.progress};
    kn_neighbors out = {ids, distances, counts};
    if (status == KNNLM_OK)
        status = given.singly ? search_singly(s, x, queries, n, &o, &out)
                              : kn_index_search(x, queries, n, &o, &out);
    free(allowed);
    return status;
}
