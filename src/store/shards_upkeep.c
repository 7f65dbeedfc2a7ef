// Removing from the shards of a store, and verifying them.
#include "store/shards.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- removing

static knnlm_status remove_all(kn_store_writer *w, kn_message *in) {
    while (in->taken < in->size) KN_TRY(kn_store_writer_remove(w, kn_message_take_number(in)));
    return kn_store_writer_amend(w);
}

static knnlm_status run_remove(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store_writer *w;
    (void)out;
    (void)progress;
    KN_TRY(kn_message_read(in));
    if (in->taken == in->size) return KNNLM_OK; // none of this shard
    KN_TRY(kn_store_write(path, &w));
    knnlm_status status = remove_all(w, in);
    kn_store_writer_close(w);
    return status;
}
const kn_service kn_service_store_remove = {"store remove", run_remove};

typedef struct marked {
    const kn_store *store;
    const bool *documents;
} marked;

// Ascending, as removal likes it: the order of all is the order of each.
static void put_marked(void *context, size_t shard, kn_message *in) {
    const marked *m = context;
    for (uint64_t i = 0; i < kn_store_describe(m->store)->documents; i++) {
        size_t of;
        uint64_t local;
        if (!m->documents[i]) continue;
        kn_store_shard_document(m->store, i, &of, &local);
        if (of == shard) kn_message_put_number(in, local);
    }
}

knnlm_status kn_shards_remove(const kn_store *store, const bool *documents) {
    marked m = {store, documents};
    return kn_shards_call_at(kn_store_describe(store)->path,
                             &(kn_shard_job){&kn_service_store_remove, put_marked, NULL, &m}, NULL);
}

// ---------------------------------------------------------------- verifying

typedef struct problems {
    kn_message list;
    uint64_t count;
} problems;

static void keep_problem(void *context, const knnlm_problem *p) {
    problems *all = context;
    kn_message_put(&all->list, p, sizeof *p);
    kn_message_put_text(&all->list, p->file);
    kn_message_put_text(&all->list, p->what);
    all->count++;
}

static knnlm_status run_verify(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store *store;
    knnlm_verify_result r = {0};
    problems all = {0};
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_store_verify(store, progress, keep_problem, &all, &r);
    if (status == KNNLM_OK) {
        kn_message_put(out, &r, sizeof r);
        kn_message_put_number(out, all.count);
        kn_message_put(out, all.list.data, all.list.size);
        kn_message_put(out, r.document_damaged, kn_store_describe(store)->documents);
        out->failed |= all.list.failed;
    }
    free(r.document_damaged);
    kn_message_free(&all.list);
    kn_store_close(store);
    return status;
}
const kn_service kn_service_store_verify = {"store verify", run_verify};

// Files are told with the shard that has them, documents and entries by their numbers there.
static void tell(kn_message *m, const char *path, void (*found)(void *context, const knnlm_problem *problem),
                 void *context) {
    knnlm_problem p;
    char file[512], *copy = kn_strdup(path);
    kn_message_take(m, &p, sizeof p);
    const char *name = kn_message_take_text(m);
    p.what = kn_message_take_text(m);
    snprintf(file, sizeof file, "%s/%s", copy ? basename(copy) : path, name ? name : "");
    p.file = file;
    if (p.what) found(context, &p);
    free(copy);
}

typedef struct verifying {
    const kn_store *store;
    void (*found)(void *context, const knnlm_problem *problem);
    void *context;
    knnlm_verify_result *all;
} verifying;

static knnlm_status take_verified(void *context, size_t shard, kn_message *m) {
    const verifying *v = context;
    const kn_store *store = v->store;
    knnlm_verify_result *all = v->all;
    kn_store_shard at = kn_store_shard_at(store, shard);
    knnlm_verify_result r;
    kn_message_take(m, &r, sizeof r);
    uint64_t count = kn_message_take_number(m);
    for (uint64_t i = 0; i < count && !m->failed; i++) tell(m, at.path, v->found, v->context);
    const bool *damaged = kn_message_view(m, at.info->documents);
    KN_TRY(kn_message_read(m));
    for (uint64_t i = 0; i < kn_store_describe(store)->documents; i++) {
        size_t of;
        uint64_t local;
        kn_store_shard_document(store, i, &of, &local);
        if (of == shard) all->document_damaged[i] = damaged[local];
    }
    all->problems += r.problems;
    all->bytes += r.bytes;
    all->entries += r.entries;
    all->documents += r.documents;
    all->damaged_entries += r.damaged_entries;
    all->damaged_documents += r.damaged_documents;
    all->index_damaged |= r.index_damaged;
    return KNNLM_OK;
}

knnlm_status kn_shards_verify(const kn_store *store, const kn_progress *progress,
                              void (*found)(void *context, const knnlm_problem *problem), void *context,
                              knnlm_verify_result *out) {
    verifying v = {store, found, context, out};
    *out = (knnlm_verify_result){0};
    out->document_damaged = kn_alloc(kn_store_describe(store)->documents + 1, sizeof(bool));
    if (!out->document_damaged) return KNNLM_ENOMEM;
    knnlm_status status =
        kn_shards_call_at(kn_store_describe(store)->path,
                          &(kn_shard_job){&kn_service_store_verify, NULL, take_verified, &v}, progress);
    if (status != KNNLM_OK) {
        free(out->document_damaged);
        out->document_damaged = NULL;
    }
    return status;
}
