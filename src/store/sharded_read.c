// Entries and documents of a sharded store by their numbers among all.
#include "store/sharded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

size_t kn_store_shards(const kn_store *s) {
    return s->sharded ? s->sharded->shards.count : 0;
}

kn_store_shard kn_store_shard_at(const kn_store *s, size_t number) {
    const kn_shard *one = &s->sharded->list[number];
    return (kn_store_shard){one->path, s->sharded->shards.places[number].host, one->rank, &one->info,
                            one->note};
}

// ---------------------------------------------------------------- numbers

// The last document that begins at or before an entry; those without entries begin where the next does.
static const kn_shard_document *find_document(const kn_sharded *s, uint64_t id) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->documents[middle].start <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return &s->documents[low - 1];
}

// The same among the documents of one shard, whose numbers are ascending by start.
static size_t find_in_shard(const kn_sharded *s, const kn_shard *shard, uint64_t id) {
    size_t low = 0, high = shard->info.documents;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const kn_shard_document *d = &s->documents[shard->numbers[middle]];
        if (!d->damaged && d->start > id)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t kn_store_shard_from(const kn_store *store, size_t shard, uint64_t id) {
    const kn_sharded *s = store->sharded;
    const kn_shard *one = &s->list[shard];
    size_t at = find_in_shard(s, one, id);
    for (; at > 0; at--) {
        const kn_shard_document *d = &s->documents[one->numbers[at - 1]];
        if (d->count) return d->first + kn_min((size_t)(id - d->start), (size_t)d->count);
    }
    return 0;
}

uint64_t kn_store_shard_start(const kn_store *store, size_t shard, uint64_t document) {
    const kn_sharded *s = store->sharded;
    return s->documents[s->list[shard].numbers[document]].start;
}

void kn_store_shard_document(const kn_store *store, uint64_t number, size_t *shard, uint64_t *local) {
    *shard = store->sharded->documents[number].shard;
    *local = store->sharded->documents[number].number;
}

uint32_t kn_store_last_order(const kn_store *store) {
    const kn_sharded *s = store->sharded;
    return s->count ? s->documents[s->count - 1].order : 0;
}

// ---------------------------------------------------------------- documents

knnlm_status kn_sharded_document_at(const kn_store *store, uint64_t number, kn_store_document *out) {
    const kn_sharded *s = store->sharded;
    if (number >= s->count)
        return kn_fail(KNNLM_EINVAL, "%s: no document %" PRIu64 ": there are %zu", store->path, number,
                       s->count);
    const kn_shard_document *d = &s->documents[number];
    const kn_shard *shard = &s->list[d->shard];
    if (d->damaged && !shard->local)
        return kn_fail(KNNLM_EDATA, "%s: the record of document %" PRIu32 " is damaged", shard->path,
                       d->number);
    if (shard->local)
        KN_TRY(kn_store_document_at(shard->local, d->number, out));
    else
        *out = shard->documents[d->number];
    out->first = d->start;
    return KNNLM_OK;
}

bool kn_sharded_document_removed(const kn_store *store, uint64_t number) {
    return number < store->sharded->count && store->sharded->documents[number].removed;
}

bool kn_sharded_entry_removed(const kn_store *store, uint64_t id) {
    return id >= store->info.entries || find_document(store->sharded, id)->removed;
}

bool kn_sharded_is_current(const kn_store *store) {
    const kn_sharded *s = store->sharded;
    bool current = true;
    for (size_t i = 0; i < s->shards.count && current; i++) {
        const kn_shard *one = &s->list[i];
        kn_call call = {.rank = one->rank, .service = &kn_service_store_current};
        if (one->local) {
            current = kn_store_is_current(one->local);
            continue;
        }
        kn_message_put_number(&call.in, one->handle);
        // Of a rank that does not answer there is no newer state to be had.
        current = kn_ranks_call(&call, 1, NULL) != KNNLM_OK || kn_message_take_number(&call.out);
        kn_calls_free(&call, 1);
    }
    return current;
}

// That of a shard at hand: all have the same.
knnlm_status kn_sharded_attachment(const kn_store *store, const char *name, char **out) {
    const kn_sharded *s = store->sharded;
    *out = NULL;
    for (size_t i = 0; i < s->shards.count; i++)
        if (s->list[i].local) return kn_store_attachment(s->list[i].local, name, out);
    return kn_fail(KNNLM_ENOTSUP, "%s: none of its shards is on the host of rank %d, which needs %s of one",
                   store->path, kn_rank(), name);
}

const char *kn_sharded_note(const kn_store *store) {
    for (size_t i = 0; i < store->sharded->shards.count; i++)
        if (store->sharded->list[i].note) return store->sharded->list[i].note;
    return NULL;
}

// ---------------------------------------------------------------- entries

static knnlm_status ask_entry(const kn_shard *s, uint64_t id, kn_store_entry *out) {
    kn_call call = {.rank = s->rank, .service = &kn_service_store_entry};
    if (s->local) return kn_store_entry_at(s->local, id, out);
    kn_message_put_number(&call.in, s->handle);
    kn_message_put_number(&call.in, id);
    knnlm_status status = kn_ranks_call(&call, 1, NULL);
    if (status == KNNLM_OK) kn_message_take(&call.out, out, sizeof *out);
    if (status == KNNLM_OK) status = kn_message_read(&call.out);
    kn_calls_free(&call, 1);
    return status;
}

static knnlm_status check_range(const kn_store *store, uint64_t first, size_t count) {
    uint64_t all = store->info.entries;
    if (first <= all && count <= all - first) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: no entries %" PRIu64 " to %" PRIu64 ": there are %" PRIu64, store->path,
                   first, first + count, all);
}

knnlm_status kn_sharded_entry_at(const kn_store *store, uint64_t id, kn_store_entry *out) {
    const kn_sharded *s = store->sharded;
    KN_TRY(check_range(store, id, 1));
    const kn_shard_document *d = find_document(s, id);
    KN_TRY(ask_entry(&s->list[d->shard], d->first + (id - d->start), out));
    out->id = id;
    out->document = (uint32_t)(d - s->documents);
    return KNNLM_OK;
}

static knnlm_status ask_range(const kn_shard *s, kn_range_kind kind, uint64_t first, size_t count, void *out,
                              size_t item) {
    kn_call call = {.rank = s->rank, .service = &kn_service_store_range};
    if (s->local) return kn_store_read_range(s->local, kind, first, count, out);
    kn_message_put_number(&call.in, s->handle);
    kn_message_put_number(&call.in, kind);
    kn_message_put_number(&call.in, first);
    kn_message_put_number(&call.in, count);
    knnlm_status status = kn_ranks_call(&call, 1, NULL);
    if (status == KNNLM_OK) kn_message_take(&call.out, out, count * item);
    if (status == KNNLM_OK) status = kn_message_read(&call.out);
    kn_calls_free(&call, 1);
    return status;
}

knnlm_status kn_sharded_range(const kn_store *store, kn_range_kind kind, uint64_t first, size_t count,
                              void *out) {
    const kn_sharded *s = store->sharded;
    size_t item = kn_range_item(&store->info.settings, kind);
    KN_TRY(check_range(store, first, count));
    for (size_t done = 0, n; done < count; done += n) {
        const kn_shard_document *d = find_document(s, first + done);
        uint64_t in = first + done - d->start;
        n = kn_min(count - done, (size_t)(d->count - in));
        KN_TRY(ask_range(&s->list[d->shard], kind, d->first + in, n, (char *)out + done * item, item));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- single keys

// Those of each shard in one call; `of`: which shard has each.
static knnlm_status call_for_keys(const kn_sharded *s, const uint64_t *ids, size_t count, uint32_t *of,
                                  kn_call *calls) {
    for (size_t i = 0; i < s->shards.count; i++) {
        calls[i] = (kn_call){.rank = s->list[i].rank, .service = &kn_service_store_keys};
        kn_message_put_text(&calls[i].in, s->list[i].path);
    }
    for (size_t i = 0; i < count; i++) {
        const kn_shard_document *d = find_document(s, ids[i]);
        of[i] = d->shard;
        kn_message_put_number(&calls[of[i]].in, d->first + (ids[i] - d->start));
    }
    return kn_ranks_call(calls, s->shards.count, NULL);
}

static knnlm_status keys_of_shards(const kn_store *store, const uint64_t *ids, size_t count, float *out) {
    const kn_sharded *s = store->sharded;
    size_t row = (size_t)store->info.settings.dimension;
    uint32_t *of = kn_alloc(count, sizeof *of);
    kn_call *calls = kn_alloc(s->shards.count, sizeof *calls);
    knnlm_status status = of && calls ? call_for_keys(s, ids, count, of, calls) : KNNLM_ENOMEM;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) {
        kn_message_take(&calls[of[i]].out, out + i * row, row * sizeof *out);
        status = kn_message_read(&calls[of[i]].out);
    }
    kn_calls_free(calls, calls ? s->shards.count : 0);
    free(calls);
    free(of);
    return status;
}

knnlm_status kn_store_keys_of(const kn_store *store, const uint64_t *ids, size_t count, float *out) {
    size_t row = (size_t)store->info.settings.dimension;
    if (store->sharded) return keys_of_shards(store, ids, count, out);
    for (size_t i = 0; i < count; i++) KN_TRY(kn_store_keys(store, ids[i], 1, out + i * row));
    return KNNLM_OK;
}
