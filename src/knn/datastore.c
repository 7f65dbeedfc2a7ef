// Opens a store for searching, and tells what is known of its entries.
#include "knn/datastore_parts.h"

#include "base/threads.h"
#include "build/build.h"
#include "index/projection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- opening

static knnlm_status open_index(kn_datastore *s, const kn_datastore_options *o) {
    knnlm_distance own = kn_store_describe(s->store)->settings.distance;
    s->info.distance = o->distance < 0 ? own : (knnlm_distance)o->distance;
    KN_TRY(kn_index_open_as(s->store, s->info.distance, true, &s->index));
    s->info.index = kn_index_describe(s->index);
    return KNNLM_OK;
}

// Imported stores may not know their vocabulary: no token may be beyond the model's.
static knnlm_status read_values(kn_datastore *s, const kn_lm *lm) {
    uint64_t entries = kn_store_describe(s->store)->entries;
    int32_t vocabulary = lm ? kn_lm_describe(lm)->vocabulary : INT32_MAX;
    s->values = kn_alloc((size_t)entries, sizeof *s->values);
    if (!s->values) return KNNLM_ENOMEM;
    KN_TRY(kn_store_tokens(s->store, 0, (size_t)entries, s->values));
    for (uint64_t i = 0; i < entries; i++)
        if (s->values[i] < 0 || s->values[i] >= vocabulary)
            return kn_fail(KNNLM_EINVAL, "%s: its entry %" PRIu64 " is token %d, but the model has %d",
                           kn_store_describe(s->store)->path, i, s->values[i], vocabulary);
    return KNNLM_OK;
}

static knnlm_status find_beginnings(kn_datastore *s) {
    const kn_store_info *info = kn_store_describe(s->store);
    s->beginnings = kn_alloc((size_t)(info->entries / 64 + 1), sizeof *s->beginnings);
    if (!s->beginnings) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < info->documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(s->store, i, &d) == KNNLM_OK && d.count) // one that is damaged is not found
            s->beginnings[d.first / 64] |= (uint64_t)1 << d.first % 64;
    }
    return KNNLM_OK;
}

typedef struct text_check {
    const kn_store *store;
    _Atomic size_t damaged; // a segment; SIZE_MAX: none
} text_check;

static void check_text(void *context, size_t segment, int worker) {
    text_check *c = context;
    (void)worker;
    if (kn_store_check_text(c->store, segment) != KNNLM_OK) c->damaged = segment;
}

// Neighbours are worth having although a few documents of a store are lost, but nobody may take the figures
// for those of the whole.
static void warn_damaged(const kn_datastore *s, void (*warn)(const char *message)) {
    text_check c = {.store = s->store, .damaged = SIZE_MAX};
    const kn_store_info *info = kn_store_describe(s->store);
    char text[1024];
    if (!warn) return;
    kn_parallel(info->segments, check_text, &c);
    if (c.damaged != SIZE_MAX && kn_store_check_text(s->store, c.damaged) != KNNLM_OK) warn(knnlm_message());
    if (!s->contents.damaged) return;
    snprintf(text, sizeof text,
             "%s: %" PRIu64 " of %" PRIu64 " documents %s damaged and left out (`knnlm_store_repair`)",
             info->path, s->contents.damaged, info->documents, s->contents.damaged == 1 ? "is" : "are");
    warn(text);
}

// What one index needs.
static knnlm_status open_one(kn_datastore *s, const kn_lm *lm, const kn_datastore_options *o) {
    KN_TRY(open_index(s, o));
    if (lm) KN_TRY(kn_projection_of(s->store, &s->pca)); // keys are projected already
    KN_TRY(read_values(s, lm));
    KN_TRY(find_beginnings(s));
    knnlm_status status = kn_store_select(s->store, &o->filter, &s->allowed);
    s->nothing = o->shard && status == KNNLM_EINVAL;
    return s->nothing ? KNNLM_OK : status;
}

static knnlm_status open_all(kn_datastore *s, const kn_lm *lm, const char *path,
                             const kn_datastore_options *o) {
    KN_TRY(kn_store_open(path, &s->store));
    if (lm) KN_TRY(kn_build_check_model(s->store, lm));
    const kn_store_info *info = s->info.store = kn_store_describe(s->store);
    s->width = (size_t)(lm ? kn_lm_describe(lm)->key_width : info->settings.dimension);
    if (info->entries == info->removed_entries && !o->shard)
        return kn_fail(KNNLM_EINVAL, "%s: the store is empty", path);
    KN_TRY(kn_store_shards(s->store) ? kn_pieces_open(s, lm, o) : open_one(s, lm, o));
    if (o->shard) warn_damaged(s, o->warn);
    if (o->shard) return KNNLM_OK; // what follows is for all of them together
    if (info->has_tokenizer) KN_TRY(kn_origin_open_tokenizer(s->store, &s->tokenizer));
    KN_TRY(kn_contents_load(&s->contents, s->store));
    warn_damaged(s, o->warn);
    return KNNLM_OK;
}

knnlm_status kn_datastore_open(const kn_lm *lm, const char *path, const kn_datastore_options *o,
                               kn_datastore **out) {
    kn_datastore *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    atomic_init(&s->holders, 1);
    pthread_mutex_init(&s->lock, NULL);
    knnlm_status status = open_all(s, lm, path, o);
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_datastore_release(s);
    return status;
}

kn_datastore *kn_datastore_hold(kn_datastore *s) {
    atomic_fetch_add(&s->holders, 1);
    return s;
}

void kn_datastore_release(kn_datastore *s) {
    if (!s || atomic_fetch_sub(&s->holders, 1) > 1) return;
    kn_pieces_close(s);
    kn_idle_searchers_free(&s->idle);
    kn_contents_free(&s->contents);
    kn_tokenizer_free(s->tokenizer);
    kn_pca_free(&s->pca);
    kn_index_close(s->index);
    kn_index_close(s->flat);
    if (s->store) kn_store_close(s->store);
    pthread_mutex_destroy(&s->lock);
    free(s->values);
    free(s->beginnings);
    free(s->allowed);
    free(s);
}

const kn_datastore_info *kn_datastore_describe(const kn_datastore *s) {
    return &s->info;
}

// ---------------------------------------------------------------- some of its documents

// All entries, where nobody has chosen yet.
static knnlm_status have_bits(const kn_datastore *s, uint64_t **bits) {
    size_t words = (size_t)(s->info.store->entries / 64 + 1);
    if (*bits) return KNNLM_OK;
    *bits = kn_alloc(words, sizeof **bits);
    if (*bits) memset(*bits, 0xff, words * sizeof **bits);
    return *bits ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status drop_content(const kn_datastore *s, const uint64_t hash[2], uint64_t **bits) {
    size_t count;
    const kn_content *same = kn_contents_find(&s->contents, hash, &count);
    if (!count) return KNNLM_OK;
    KN_TRY(have_bits(s, bits));
    for (size_t i = 0; i < count; i++) {
        kn_store_document d;
        KN_TRY(kn_store_document_at(s->store, same[i].number, &d));
        for (uint64_t id = d.first; id < d.first + d.count; id++)
            (*bits)[id / 64] &= ~((uint64_t)1 << id % 64);
    }
    return KNNLM_OK;
}

static knnlm_status narrow(const kn_datastore *s, uint64_t *bits) {
    uint64_t entries = s->info.store->entries, any = 0;
    for (uint64_t i = 0; i <= entries / 64; i++) {
        if (s->allowed) bits[i] &= s->allowed[i];
        any |= i < entries / 64 ? bits[i] : bits[i] & (((uint64_t)1 << entries % 64) - 1);
    }
    return any ? KNNLM_OK : kn_fail(KNNLM_EINVAL, "%s: none of its documents is left", s->info.store->path);
}

knnlm_status kn_datastore_select(const kn_datastore *s, const kn_name_filter *names, const uint64_t *content,
                                 uint64_t **bits) {
    KN_TRY(kn_store_select(s->store, names, bits));
    knnlm_status status = content ? drop_content(s, content, bits) : KNNLM_OK;
    if (status == KNNLM_OK && *bits) status = narrow(s, *bits);
    if (status == KNNLM_OK) return KNNLM_OK;
    free(*bits);
    *bits = NULL;
    return status;
}

// ---------------------------------------------------------------- its entries

knnlm_status kn_datastore_origin(const kn_datastore *s, uint64_t id, size_t count, size_t around,
                                 kn_origin *out) {
    return kn_origin_read_span(s->store, s->tokenizer, id, count, around, out);
}

const kn_tokenizer *kn_datastore_tokenizer(const kn_datastore *s) {
    return s->tokenizer;
}

knnlm_status kn_datastore_entry(const kn_datastore *s, uint64_t id, kn_store_entry *out) {
    return kn_store_entry_at(s->store, id, out);
}

knnlm_status kn_datastore_tokens(const kn_datastore *s, uint64_t first, size_t count, int32_t *out) {
    return kn_store_tokens(s->store, first, count, out);
}

knnlm_status kn_datastore_document(const kn_datastore *s, uint64_t number, kn_store_document *out) {
    return kn_store_document_at(s->store, number, out);
}

knnlm_status kn_datastore_find_content(const kn_datastore *s, const uint64_t hash[2], size_t room,
                                       kn_entry_range *out, size_t *count) {
    const kn_content *same = kn_contents_find(&s->contents, hash, count);
    for (size_t i = 0; i < kn_min(*count, room); i++) {
        kn_store_document d;
        KN_TRY(kn_store_document_at(s->store, same[i].number, &d));
        out[i] = (kn_entry_range){d.first, d.first + d.count};
    }
    return KNNLM_OK;
}
