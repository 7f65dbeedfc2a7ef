// Opens the shards of a datastore for searching, each by the rank that has it.
#include "knn/datastore_parts.h"
#include "knn/numbering.h"
#include "knn/pieces.h"

#include "lm/shared.h"

#include <stdlib.h>
#include <string.h>

static void put_request(kn_message *in, const kn_store *store, size_t shard, const char *path,
                        const kn_lm *lm, const kn_datastore_options *o) {
    kn_message_put_text(in, path);
    kn_message_put_number(in, kn_lm_key(lm));
    kn_message_put_number(in, (uint64_t)(int64_t)o->distance);
    kn_message_put_number(in, o->warn != NULL);
    kn_message_put_texts(in, o->filter.only, o->filter.only_count);
    kn_message_put_texts(in, o->filter.except, o->filter.except_count);
    kn_message_put_real(in, o->filter.fraction);
    kn_numbering_put(store, shard, in);
}

// What damage each found is told by who opened all of them.
static knnlm_status take_reply(kn_piece *p, kn_message *out, const kn_datastore_options *o) {
    const char **warnings;
    size_t count;
    p->handle = kn_message_take_number(out);
    p->opened = true;
    p->empty = kn_message_take_number(out);
    kn_message_take(out, &p->index, sizeof p->index);
    p->lists = kn_message_take_number(out);
    KN_TRY(kn_message_take_texts(out, &warnings, &count));
    for (size_t i = 0; i < count; i++) o->warn(warnings[i]);
    free(warnings);
    return KNNLM_OK;
}

static knnlm_status open_each(kn_datastore *s, const kn_lm *lm, const kn_datastore_options *o,
                              kn_call *calls) {
    size_t count = kn_store_shards(s->store);
    for (size_t i = 0; i < count; i++) {
        kn_store_shard shard = kn_store_shard_at(s->store, i);
        s->pieces[i].rank = shard.rank;
        calls[i] = (kn_call){.rank = shard.rank, .service = &kn_service_knn_open};
        put_request(&calls[i].in, s->store, i, shard.path, lm, o);
    }
    knnlm_status status = kn_ranks_call(calls, count, NULL);
    for (size_t i = 0; i < count; i++)
        if (calls[i].status == KNNLM_OK && calls[i].out.size &&
            take_reply(&s->pieces[i], &calls[i].out, o) != KNNLM_OK)
            status = KNNLM_EDATA;
    return status;
}

// Lists mean the same in all shards: they were learnt together.
static knnlm_status join_indexes(kn_datastore *s) {
    const kn_piece *first = NULL;
    double weighed = 0;
    for (size_t i = 0; i < kn_store_shards(s->store); i++) {
        const kn_piece *p = &s->pieces[i];
        if (p->empty) continue;
        if (!first) {
            s->all = (first = p)->index;
            s->same_lists = p->lists != 0;
        }
        s->same_lists &= p->lists == first->lists;
        if (p->index.lists != first->index.lists || p->index.probes != first->index.probes ||
            p->index.code_bytes != first->index.code_bytes)
            return kn_fail(KNNLM_EINVAL,
                           "%s: its shards are not indexed alike: `knnlm_index` indexes all of them",
                           s->info.store->path);
        weighed += p->index.imbalance * (double)p->index.listed;
        if (p == first) continue;
        s->all.listed += p->index.listed;
        s->all.flat += p->index.flat;
        s->all.bytes += p->index.bytes;
        s->all.drift = p->index.drift > s->all.drift ? p->index.drift : s->all.drift;
    }
    if (s->all.listed) s->all.imbalance = weighed / (double)s->all.listed;
    s->info.index = &s->all;
    if (first) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: `only`, `except` or `fraction` leave none of its documents",
                   s->info.store->path);
}

knnlm_status kn_pieces_open(kn_datastore *s, const kn_lm *lm, const kn_datastore_options *o) {
    size_t count = kn_store_shards(s->store);
    kn_call *calls = kn_alloc(count, sizeof *calls);
    knnlm_distance own = kn_store_describe(s->store)->settings.distance;
    s->info.distance = o->distance < 0 ? own : (knnlm_distance)o->distance;
    s->pieces = kn_alloc(count, sizeof *s->pieces);
    knnlm_status status = calls && s->pieces ? open_each(s, lm, o, calls) : KNNLM_ENOMEM;
    kn_calls_free(calls, calls ? count : 0);
    free(calls);
    return status == KNNLM_OK ? join_indexes(s) : status;
}

void kn_pieces_close(kn_datastore *s) {
    for (size_t i = 0; s->pieces && i < kn_store_shards(s->store); i++) {
        kn_call call = {.rank = s->pieces[i].rank, .service = &kn_service_knn_close};
        if (!s->pieces[i].opened) continue;
        kn_message_put_number(&call.in, s->pieces[i].handle);
        kn_ranks_call(&call, 1, NULL); // one that is gone has closed it
        kn_calls_free(&call, 1);
    }
    free(s->pieces);
}
