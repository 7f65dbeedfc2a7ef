// Opens the shards of a store, and puts their documents into one order.
#include "store/sharded.h"

#include <stdlib.h>
#include <string.h>

static const char *const no_text = "";

// ---------------------------------------------------------------- what another rank tells

static void take_settings(kn_message *m, kn_store_settings *s) {
    const char **strings[] = {
        &s->model, &s->model_fingerprint, &s->tokenizer, &s->tokenizer_fingerprint, &s->tap, &s->split};
    kn_message_take(m, s, sizeof *s);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        const char *text = kn_message_take_text(m);
        *strings[i] = text ? text : no_text;
    }
}

static void take_document(kn_message *m, kn_store_document *d) {
    kn_message_take(m, d, sizeof *d);
    d->name = kn_message_take_bytes(m, &d->name_size);
    d->path = kn_message_take_bytes(m, &d->path_size);
}

static knnlm_status take_told(kn_shard *s) {
    kn_message *m = &s->told;
    s->handle = kn_message_take_number(m);
    kn_message_take(m, &s->info, sizeof s->info);
    s->info.path = kn_message_take_text(m);
    take_settings(m, &s->info.settings);
    s->note = kn_message_take_text(m);
    KN_TRY(kn_message_read(m));
    s->documents = kn_alloc(s->info.documents, sizeof *s->documents);
    if (!s->documents) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < s->info.documents; i++) take_document(m, &s->documents[i]);
    return kn_message_read(m);
}

// ---------------------------------------------------------------- opening each

knnlm_status kn_shard_check(const char *path) {
    return kn_shards_exist(path) ? kn_fail(KNNLM_EDATA, "%s: a shard cannot be made of shards", path)
                                 : KNNLM_OK;
}

static knnlm_status open_local(kn_shard *s) {
    KN_TRY(kn_shard_check(s->path));
    KN_TRY(kn_store_open(s->path, &s->local));
    s->info = *kn_store_describe(s->local);
    s->note = kn_store_annex_note(s->local);
    return KNNLM_OK;
}

// Those of this rank are not called for: what they have is in reach.
static knnlm_status open_others(kn_sharded *s) {
    size_t count = 0;
    kn_call *calls = kn_alloc(s->shards.count, sizeof *calls);
    if (!calls) return KNNLM_ENOMEM;
    for (size_t i = 0; i < s->shards.count; i++) {
        if (s->list[i].rank == kn_rank()) continue;
        calls[count] = (kn_call){.rank = s->list[i].rank, .service = &kn_service_store_open};
        kn_message_put_text(&calls[count++].in, s->list[i].path);
    }
    knnlm_status status = kn_ranks_call(calls, count, NULL);
    for (size_t i = 0, n = 0; i < s->shards.count && status == KNNLM_OK; i++) {
        if (s->list[i].rank == kn_rank()) continue;
        s->list[i].told = calls[n].out;
        calls[n++].out = (kn_message){0};
        status = take_told(&s->list[i]);
    }
    kn_calls_free(calls, count);
    free(calls);
    return status;
}

static knnlm_status open_each(kn_sharded *s) {
    s->list = kn_alloc(s->shards.count, sizeof *s->list);
    if (!s->list) return KNNLM_ENOMEM;
    for (size_t i = 0; i < s->shards.count; i++) {
        KN_TRY(kn_shards_rank(&s->shards, i, &s->list[i].rank));
        KN_TRY(kn_shards_path(&s->shards, i, &s->list[i].path));
        if (s->list[i].rank == kn_rank()) KN_TRY(open_local(&s->list[i]));
    }
    return kn_rank_count() > 1 ? open_others(s) : KNNLM_OK;
}

static knnlm_status differ(const kn_sharded *s, size_t i, const char *what) {
    return kn_fail(KNNLM_EINVAL, "%s: its shards do not belong together: %s has another %s than %s",
                   s->shards.path, s->list[i].path, what, s->list[0].path);
}

static knnlm_status check_settings(const kn_sharded *s) {
    const kn_store_settings *a = &s->list[0].info.settings;
    for (size_t i = 1; i < s->shards.count; i++) {
        const kn_store_settings *b = &s->list[i].info.settings;
        if (strcmp(a->model_fingerprint, b->model_fingerprint) != 0) return differ(s, i, "model");
        if (strcmp(a->tokenizer_fingerprint, b->tokenizer_fingerprint) != 0) return differ(s, i, "tokenizer");
        if (strcmp(a->tap, b->tap) != 0) return differ(s, i, "tap");
        if (a->key_type != b->key_type || a->dimension != b->dimension) return differ(s, i, "form of keys");
        if (a->distance != b->distance) return differ(s, i, "distance");
        if (strcmp(a->split, b->split) != 0) return differ(s, i, "split");
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- one order

// One whose record is damaged has no entries that could be asked for.
static kn_shard_document document_of(const kn_shard *s, uint32_t shard, uint64_t number) {
    kn_store_document d = {0};
    bool damaged = false;
    if (s->local)
        damaged = kn_store_document_at(s->local, number, &d) != KNNLM_OK;
    else
        d = s->documents[number];
    bool removed = s->local ? kn_store_document_removed(s->local, number) : d.removed;
    return (kn_shard_document){.first = d.first,
                               .count = d.count,
                               .shard = shard,
                               .number = (uint32_t)number,
                               .order = d.order,
                               .removed = removed,
                               .damaged = damaged || (!s->local && !d.name)};
}

static int by_order(const void *a, const void *b) {
    const kn_shard_document *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

// What was added to a shard by itself has no order: it comes after what is before it there. So the order of a
// shard's documents is always that of their numbers.
static knnlm_status gather(kn_sharded *s) {
    for (size_t i = 0; i < s->shards.count; i++) s->count += s->list[i].info.documents;
    if (s->count > UINT32_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%s: more than %u documents", s->shards.path, UINT32_MAX);
    s->documents = kn_alloc(s->count, sizeof *s->documents);
    if (!s->documents) return KNNLM_ENOMEM;
    for (size_t i = 0, at = 0; i < s->shards.count; i++) {
        uint32_t last = 0;
        for (uint64_t n = 0; n < s->list[i].info.documents; n++) {
            kn_shard_document d = document_of(&s->list[i], (uint32_t)i, n);
            last = d.order = d.order > last ? d.order : last;
            s->documents[at++] = d;
        }
    }
    if (s->count) qsort(s->documents, s->count, sizeof *s->documents, by_order);
    return KNNLM_OK;
}

static knnlm_status number(kn_sharded *s) {
    uint64_t start = 0;
    for (size_t i = 0; i < s->shards.count; i++) {
        s->list[i].numbers = kn_alloc(s->list[i].info.documents, sizeof *s->list[i].numbers);
        if (!s->list[i].numbers) return KNNLM_ENOMEM;
    }
    for (size_t i = 0; i < s->count; i++) {
        kn_shard_document *d = &s->documents[i];
        s->list[d->shard].numbers[d->number] = (uint32_t)i;
        d->start = start;
        start += d->count;
    }
    return KNNLM_OK;
}

// Tuned settings are every shard's.
static void describe(kn_store *s) {
    kn_sharded *x = s->sharded;
    kn_store_info all = x->list[0].info;
    for (size_t i = 1; i < x->shards.count; i++) {
        const kn_store_info *one = &x->list[i].info;
        all.complete &= one->complete;
        all.generation += one->generation;
        all.created = one->created < all.created ? one->created : all.created;
        all.entries += one->entries;
        all.documents += one->documents;
        all.removed_entries += one->removed_entries;
        all.removed_documents += one->removed_documents;
        all.arranged += one->arranged;
        all.bytes += one->bytes;
    }
    all.path = x->shards.path;
    all.segments = 0; // those are the shards' own
    s->info = all;
}

static knnlm_status open_all(kn_store *s, const char *path) {
    kn_sharded *x = s->sharded;
    KN_TRY(kn_shards_read(path, &x->shards));
    KN_TRY(open_each(x));
    KN_TRY(check_settings(x));
    KN_TRY(gather(x));
    KN_TRY(number(x));
    describe(s);
    return KNNLM_OK;
}

knnlm_status kn_sharded_open(const char *path, kn_store **out) {
    kn_store *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->path = kn_strdup(path);
    s->sharded = kn_alloc(1, sizeof *s->sharded);
    knnlm_status status = s->path && s->sharded ? open_all(s, path) : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_store_close(s);
    return status;
}

static void close_other(const kn_shard *s) {
    kn_call call = {.rank = s->rank, .service = &kn_service_store_close};
    kn_message_put_number(&call.in, s->handle);
    kn_ranks_call(&call, 1, NULL); // a rank that is gone has closed it
    kn_calls_free(&call, 1);
}

void kn_sharded_close(kn_sharded *s) {
    if (!s) return;
    for (size_t i = 0; s->list && i < s->shards.count; i++) {
        kn_shard *one = &s->list[i];
        if (one->documents) close_other(one);
        kn_store_close(one->local);
        kn_message_free(&one->told);
        free(one->documents);
        free(one->path);
        free(one->numbers);
    }
    free(s->list);
    free(s->documents);
    kn_shards_free(&s->shards);
    free(s);
}
