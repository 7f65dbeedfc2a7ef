#include "serve/json.h"
#include "serve/shelf_parts.h"

#include "knn/origin.h"

#include <stdlib.h>
#include <string.h>

static json_t *index_json(const kn_book_state *state) {
    if (!state->mixture) return json_null();
    const kn_index_info *info = kn_datastore_describe(kn_mixture_datastore(state->mixture, 0))->index;
    if (!info->lists) return json_null();
    return json_pack("{s:I, s:b}", "lists", (json_int_t)info->lists, "codes", info->code_bytes > 0);
}

static json_t *tuned_json(const kn_store_tuned *t) {
    if (!t->known) return json_null();
    return json_pack("{s:f, s:f, s:I, s:b}", "lambda", t->lambda, "temperature", t->temperature, "k",
                     (json_int_t)t->k, "adaptive", t->bins.distances > 0);
}

static json_t *book_json(const kn_shelf *s, const kn_book *b) {
    const kn_store_info *info = kn_store_describe(b->state.store);
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:s, s:o, s:o, s:o, s:b}", "object", "store",
                     "name", kn_json_text(b->name, strlen(b->name)), "entries",
                     (json_int_t)(info->entries - info->removed_entries), "documents",
                     (json_int_t)(info->documents - info->removed_documents), "removed_entries",
                     (json_int_t)info->removed_entries, "bytes", (json_int_t)info->bytes, "dimensions",
                     info->settings.dimension, "distance", kn_distance_names[info->settings.distance], "keys",
                     kn_key_type_names[info->settings.key_type], "tap",
                     kn_json_text(info->settings.tap, strlen(info->settings.tap)), "index",
                     index_json(&b->state), "tuned", tuned_json(&info->tuned), "writable", s->writable);
}

json_t *kn_shelf_list(kn_shelf *s) {
    json_t *list = json_array();
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->count; i++) json_array_append_new(list, book_json(s, &s->books[i]));
    pthread_rwlock_unlock(&s->lock);
    return json_pack("{s:s, s:o}", "object", "list", "data", list);
}

json_t *kn_shelf_describe(kn_shelf *s, const char *store, kn_complaint *c) {
    const kn_book *b = kn_shelf_find(s, store, c);
    if (!b) return NULL;
    pthread_rwlock_rdlock(&s->lock);
    json_t *json = book_json(s, b);
    pthread_rwlock_unlock(&s->lock);
    return json;
}

// ---------------------------------------------------------------- documents

static bool like_of(const kn_store_document *d, const char *like) {
    return !*like || memmem(d->name, d->name_size, like, strlen(like)) != NULL;
}

// A half that an interrupted addition left is no document.
static bool is_whole(const kn_store_document *d) {
    return !d->removed && d->count == d->tokens;
}

static json_t *list_documents(const kn_store *store, uint64_t offset, size_t limit, const char *like,
                              kn_complaint *c) {
    uint64_t documents = kn_store_describe(store)->documents, total = 0;
    json_t *list = json_array();
    for (uint64_t i = 0; i < documents; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: knnlm verify tells of it
        if (status != KNNLM_OK) {
            kn_complain_status(c, KNNLM_EIO, knnlm_message());
            json_decref(list);
            return NULL;
        }
        if (!is_whole(&d) || !like_of(&d, like)) continue;
        if (total >= offset && total - offset < limit)
            json_array_append_new(list,
                                  json_pack("{s:o, s:I, s:I}", "name", kn_json_text(d.name, d.name_size),
                                            "tokens", (json_int_t)d.tokens, "bytes", (json_int_t)d.bytes));
        total++;
    }
    return json_pack("{s:s, s:I, s:o}", "object", "list", "total", (json_int_t)total, "data", list);
}

json_t *kn_shelf_documents(kn_shelf *s, const char *store, uint64_t offset, size_t limit, const char *like,
                           kn_complaint *c) {
    const kn_book *b = kn_shelf_find(s, store, c);
    if (!b) return NULL;
    pthread_rwlock_rdlock(&s->lock);
    json_t *json = list_documents(b->state.store, offset, limit, like, c);
    pthread_rwlock_unlock(&s->lock);
    return json;
}

// ---------------------------------------------------------------- a passage

static json_t *read_passage(const kn_book *b, uint64_t entry, size_t around, kn_complaint *c) {
    const kn_mixture *m = b->state.mixture;
    const kn_tokenizer *t = m ? kn_datastore_tokenizer(kn_mixture_datastore(m, 0)) : NULL;
    kn_origin o;
    bool gone = kn_store_entry_removed(b->state.store, entry);
    knnlm_status status = gone ? KNNLM_EINVAL : kn_origin_read(b->state.store, t, entry, around, &o);
    if (status != KNNLM_OK) {
        if (status == KNNLM_EINVAL)
            kn_complain(c, 404, "not_found", NULL, "the store '%.100s' has no entry %llu", b->name,
                        (unsigned long long)entry);
        else
            kn_complain_status(c, KNNLM_EIO, knnlm_message());
        return NULL;
    }
    json_t *json =
        json_pack("{s:o, s:I, s:o, s:I, s:I, s:o, s:o, s:o}", "store", kn_json_text(b->name, strlen(b->name)),
                  "entry", (json_int_t)entry, "document", kn_json_text(o.document.name, o.document.name_size),
                  "position", (json_int_t)o.entry.position, "offset", (json_int_t)o.entry.offset, "before",
                  kn_json_text(o.before, o.before_size), "text", kn_json_text(o.word, o.word_size), "after",
                  kn_json_text(o.after, o.after_size));
    kn_origin_free(&o);
    return json;
}

json_t *kn_shelf_passage(kn_shelf *s, const char *store, uint64_t entry, size_t around, kn_complaint *c) {
    const kn_book *b = kn_shelf_find(s, store, c);
    if (!b) return NULL;
    pthread_rwlock_rdlock(&s->lock);
    json_t *json = read_passage(b, entry, around, c);
    pthread_rwlock_unlock(&s->lock);
    return json;
}
