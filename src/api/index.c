// The public functions that index and search.
#include "api/api.h"

#include <assert.h>
#include <stdlib.h>

// ---------------------------------------------------------------- indexing

knnlm_index_options knnlm_index_options_default(void) {
    return (knnlm_index_options){.size = sizeof(knnlm_index_options), .seed = 1};
}

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

knnlm_status knnlm_index(knnlm_model *model, const char *path, const knnlm_index_options *options,
                         knnlm_index_result *result) {
    knnlm_index_options given;
    kn_recipe recipe;
    kn_index_result made;
    KN_TRY(API_TAKE(knnlm_index_options, options, &given));
    KN_TRY(read_recipe(&given, &recipe));
    KN_TRY(kn_build_reindex(path, &recipe, given.extend, (kn_lm *)model, &given.progress, &made));
    if (result)
        *result =
            (knnlm_index_result){.index = info_of(&made.info),
                                 .objective = made.objective,
                                 .train_seconds = made.train_seconds,
                                 .assign_seconds = made.assign_seconds,
                                 .write_seconds = made.write_seconds,
                                 .seconds = made.train_seconds + made.assign_seconds + made.write_seconds};
    return KNNLM_OK;
}

// ---------------------------------------------------------------- searching

// One query goes the way of many. A kn_searcher answers it sooner, but belongs to one thread: it stays inside
// until callers are given one each.

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

knnlm_search_options knnlm_search_options_default(void) {
    return (knnlm_search_options){.size = sizeof(knnlm_search_options), .k = 1024};
}

// *bits: one an entry, set for those of the documents; NULL when all are wanted. Released with free().
static knnlm_status allow(const kn_store *store, const knnlm_search_options *o, uint64_t **bits) {
    *bits = NULL;
    if (!o->documents) return KNNLM_OK;
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
    if (status == KNNLM_OK) status = kn_index_search(x, queries, n, &o, &out);
    free(allowed);
    return status;
}
