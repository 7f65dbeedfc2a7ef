// The public functions that keep stores in order: remove, compact, verify, repair, and measure recall.
#include "api/api.h"

#include <stdlib.h>

// ---------------------------------------------------------------- removing

API_DEFAULTS(knnlm_remove_options)

// Marks the documents that a pattern means.
static knnlm_status mark_matching(const kn_store *store, const char *pattern, bool *marked) {
    uint64_t found = 0, total = kn_store_describe(store)->documents;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: nobody knows its name, but its number is
        KN_TRY(status);
        if (d.removed || !kn_store_document_matches(&d, pattern)) continue;
        marked[i] = true;
        found++;
    }
    if (found) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: no document is called \"%s\": nothing was removed",
                   kn_store_describe(store)->path, pattern);
}

static knnlm_status mark_numbered(const kn_store *store, uint64_t number, bool *marked) {
    const kn_store_info *info = kn_store_describe(store);
    if (number >= info->documents)
        return kn_fail(KNNLM_EINVAL, "%s: no document has the number %llu", info->path,
                       (unsigned long long)number);
    if (kn_store_document_removed(store, number))
        return kn_fail(KNNLM_EINVAL, "%s: document %llu is removed already", info->path,
                       (unsigned long long)number);
    marked[number] = true;
    return KNNLM_OK;
}

// All are looked at first: one that means nothing removes nothing, and a document meant by two goes once.
static knnlm_status mark_all(const kn_store *store, const knnlm_remove_options *o, bool *marked) {
    for (size_t i = 0; i < o->pattern_count; i++) KN_TRY(mark_matching(store, o->patterns[i], marked));
    for (size_t i = 0; i < o->document_count; i++) KN_TRY(mark_numbered(store, o->documents[i], marked));
    return KNNLM_OK;
}

// Without a writer nothing is removed.
static knnlm_status remove_one(const kn_store *store, kn_store_writer *w, uint64_t number,
                               const knnlm_remove_options *o, knnlm_remove_result *out) {
    kn_store_document d = {0};
    knnlm_document told;
    knnlm_status status = kn_store_document_at(store, number, &d);
    if (status != KNNLM_OK && status != KNNLM_EDATA) return status;
    if (w) KN_TRY(kn_store_writer_remove(w, number));
    out->documents++;
    out->entries += status == KNNLM_OK ? d.count : 0;
    told = api_document(&d);
    if (o->removed) o->removed(o->context, number, status == KNNLM_OK ? &told : NULL);
    return KNNLM_OK;
}

static knnlm_status remove_from(const kn_store *store, kn_store_writer *w, const knnlm_remove_options *o,
                                knnlm_remove_result *out) {
    uint64_t total = kn_store_describe(store)->documents;
    bool *marked = kn_alloc(total, sizeof *marked);
    knnlm_status status = marked ? mark_all(store, o, marked) : KNNLM_ENOMEM;
    for (uint64_t i = 0; i < total && status == KNNLM_OK; i++)
        if (marked[i]) status = remove_one(store, w, i, o, out);
    free(marked);
    return status == KNNLM_OK && w ? kn_store_writer_amend(w) : status;
}

static knnlm_status try_remove(const char *path, const knnlm_remove_options *o, knnlm_remove_result *out) {
    kn_store *store;
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = remove_from(store, NULL, o, out);
    kn_store_close(store);
    return status;
}

static knnlm_status do_remove(const char *path, const knnlm_remove_options *o, knnlm_remove_result *out) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(path, &w));
    knnlm_status status = remove_from(kn_store_writer_base(w), w, o, out);
    kn_store_writer_close(w);
    return status;
}

knnlm_status knnlm_store_remove(const char *path, const knnlm_remove_options *options,
                                knnlm_remove_result *result) {
    knnlm_remove_options o;
    knnlm_remove_result r = {0};
    KN_TRY(API_TAKE(knnlm_remove_options, options, &o));
    KN_TRY(o.dry_run ? try_remove(path, &o, &r) : do_remove(path, &o, &r));
    if (result) *result = r;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- compacting

API_DEFAULTS(knnlm_compact_options)

knnlm_status knnlm_store_compact(const char *path, const knnlm_compact_options *options,
                                 knnlm_compact_result *result) {
    knnlm_compact_options o;
    knnlm_compact_result r;
    KN_TRY(API_TAKE(knnlm_compact_options, options, &o));
    KN_TRY(kn_build_compact(path, o.force, &o.progress, &r));
    if (result) *result = r;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- verifying

API_DEFAULTS(knnlm_verify_options)

static void hear_nothing(void *context, const knnlm_problem *problem) {
    (void)context;
    (void)problem;
}

knnlm_status knnlm_store_verify(const knnlm_store *store, const knnlm_verify_options *options,
                                knnlm_verify_result *result) {
    knnlm_verify_options o;
    double start = kn_seconds();
    KN_TRY(API_TAKE(knnlm_verify_options, options, &o));
    KN_TRY(kn_store_verify(store->store, &o.progress, o.found ? o.found : hear_nothing, o.context, result));
    result->seconds = kn_seconds() - start;
    return KNNLM_OK;
}

void knnlm_verify_result_free(knnlm_verify_result *result) {
    free(result->document_damaged);
    result->document_damaged = NULL;
}

knnlm_status knnlm_store_repair(const char *path, const knnlm_verify_result *verified,
                                const knnlm_progress *progress, knnlm_repair_result *result) {
    knnlm_repair_result r;
    KN_TRY(kn_build_repair(path, verified, progress, &r));
    if (result) *result = r;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- recall

API_DEFAULTS(knnlm_recall_options, .queries = 200, .k = 1024, .seed = 1)

knnlm_status knnlm_store_recall(const knnlm_store *store, const knnlm_recall_options *options,
                                knnlm_recall *rows, size_t *count) {
    knnlm_recall_options o;
    KN_TRY(API_TAKE(knnlm_recall_options, options, &o));
    kn_recall_options how = {
        .queries = o.queries, .k = o.k, .seed = o.seed, .memory = o.memory, .progress = &o.progress};
    return kn_index_recall(store->store, &how, rows, count);
}
