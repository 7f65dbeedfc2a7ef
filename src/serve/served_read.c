// Reading of served stores: what they are, their documents, a passage.
#include "base/words.h"
#include "serve/served_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void describe(const kn_served_store *b, kn_served_info *out) {
    const kn_store_info *info = kn_store_describe(b->state.store);
    const kn_store_tuned *tuned = &info->tuned;
    *out = (kn_served_info){.name = b->name,
                            .entries = info->entries - info->removed_entries,
                            .documents = info->documents - info->removed_documents,
                            .removed_entries = info->removed_entries,
                            .bytes = info->bytes,
                            .dimension = info->settings.dimension,
                            .distance = info->settings.distance,
                            .key_type = info->settings.key_type,
                            .shards = kn_store_shards(b->state.store) > 0,
                            .tuned = {.known = tuned->known,
                                      .adaptive = tuned->bins.distances > 0,
                                      .lambda = tuned->lambda,
                                      .temperature = tuned->temperature,
                                      .k = tuned->k}};
    snprintf(out->tap, sizeof out->tap, "%s", info->settings.tap);
    if (!b->state.mixture) return;
    const kn_index_info *index = kn_datastore_describe(kn_mixture_datastore(b->state.mixture, 0))->index;
    out->index.lists = (uint64_t)index->lists;
    out->index.codes = index->code_bytes > 0;
}

// As a request without a word about neighbours has it: flags of the server, then what was tuned, then
// defaults.
static void describe_effect(const kn_served *s, size_t number, kn_served_info *out) {
    const kn_selection all = {
        .stores = (uint32_t)((1ull << s->count) - 1), .lambda = NAN, .temperature = NAN, .always = true};
    kn_chosen_entries chosen = {0};
    size_t numbers[KN_STORES_MAX];
    kn_mixture *m;
    if (kn_served_view(s, &all, &chosen, &m, numbers) != KNNLM_OK) return;
    const kn_mixture_info *info = kn_mixture_describe(m);
    for (size_t i = 0; i < info->count; i++) {
        const kn_mixture_store *x = &info->stores[i];
        if (numbers[i] != number) continue;
        out->effect.known = true;
        out->effect.lambda = x->lambda;
        out->effect.temperature = x->temperature;
        out->effect.k = x->k;
        out->effect.probes = x->looked;
        out->effect.adaptive = x->adaptive;
        out->effect.gated = x->gated;
        out->effect.codes = x->of_codes;
    }
    kn_mixture_close(m);
    kn_chosen_entries_free(&chosen);
}

void kn_served_describe(kn_served *s, size_t number, kn_served_info *out) {
    pthread_rwlock_rdlock(&s->lock);
    describe(&s->stores[number], out);
    describe_effect(s, number, out);
    pthread_rwlock_unlock(&s->lock);
}

// ---------------------------------------------------------------- documents

static bool like_of(const kn_store_document *d, const char *like) {
    return !*like || memmem(d->name, d->name_size, like, strlen(like)) != NULL;
}

// A half that an interrupted addition left is no document.
static bool is_whole(const kn_store_document *d) {
    return !d->removed && d->count == d->tokens;
}

static knnlm_status visit_documents(const kn_store *store, const kn_document_range *range,
                                    kn_document_visit *visit, void *context, uint64_t *total) {
    uint64_t documents = kn_store_describe(store)->documents;
    *total = 0;
    for (uint64_t i = 0; i < documents; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: knnlm verify tells of it
        KN_TRY(status);
        if (!is_whole(&d) || !like_of(&d, range->like)) continue;
        if (*total >= range->offset && *total - range->offset < range->limit) visit(context, &d);
        (*total)++;
    }
    return KNNLM_OK;
}

bool kn_served_documents(kn_served *s, const char *store, const kn_document_range *range,
                         kn_document_visit *visit, void *context, uint64_t *total, kn_http_error *err) {
    const kn_served_store *b = kn_served_named(s, store, err);
    if (!b) return false;
    pthread_rwlock_rdlock(&s->lock);
    knnlm_status status = visit_documents(b->state.store, range, visit, context, total);
    pthread_rwlock_unlock(&s->lock);
    return status == KNNLM_OK || kn_http_error_status(err, KNNLM_EIO, knnlm_message());
}

// ---------------------------------------------------------------- a document

// The newest of this name; KNNLM_EINVAL: none.
static knnlm_status find_document(const kn_store *store, const char *name, kn_store_document *out) {
    size_t size = strlen(name);
    for (uint64_t i = kn_store_describe(store)->documents; i-- > 0;) {
        knnlm_status status = kn_store_document_at(store, i, out);
        if (status == KNNLM_EDATA) continue;
        KN_TRY(status);
        if (is_whole(out) && out->name_size == size && memcmp(out->name, name, size) == 0) return KNNLM_OK;
    }
    return KNNLM_EINVAL;
}

static knnlm_status read_document(const kn_served_store *b, const char *name, const kn_document_span *span,
                                  kn_document_part *out) {
    const kn_mixture *m = b->state.mixture;
    kn_store_document d;
    kn_origin o;
    KN_TRY(find_document(b->state.store, name, &d));
    *out = (kn_document_part){.total = d.count, .bytes = d.bytes};
    out->position = kn_min((size_t)span->position, (size_t)d.count);
    out->tokens = kn_min(span->count, (size_t)(d.count - out->position));
    out->entry = d.first + out->position;
    if (!m || !out->tokens) return KNNLM_OK;
    KN_TRY(kn_origin_read_span(b->state.store, kn_datastore_tokenizer(kn_mixture_datastore(m, 0)), out->entry,
                               out->tokens, 0, &o));
    out->offset = o.entry.offset;
    out->text = o.word;
    out->size = o.word_size;
    o.word = NULL;
    kn_origin_free(&o);
    return KNNLM_OK;
}

bool kn_served_document(kn_served *s, const char *store, const char *name, const kn_document_span *span,
                        kn_document_part *out, kn_http_error *err) {
    const kn_served_store *b = kn_served_named(s, store, err);
    if (!b) return false;
    pthread_rwlock_rdlock(&s->lock);
    knnlm_status status = read_document(b, name, span, out);
    pthread_rwlock_unlock(&s->lock);
    if (status == KNNLM_EINVAL)
        return kn_http_error_set(err, 404, "not_found", NULL, "the store '%.100s' has no document '%.100s'",
                                 b->name, name);
    return status == KNNLM_OK || kn_http_error_status(err, KNNLM_EIO, knnlm_message());
}

// ---------------------------------------------------------------- a passage

// What is around it begins and ends between words, where the document does not: the first and the last, which
// may be half of one, are left out.
static void cut_words(const kn_entry_span *span, kn_passage *p) {
    kn_origin *o = &p->origin;
    p->begins = o->entry.position <= span->around;
    p->ends = o->document.count - o->entry.position <= (uint64_t)span->count + span->around;
    if (!p->begins && o->before_size) {
        size_t from = kn_word_border_after(o->before, o->before_size, 1);
        o->before_size -= from;
        memmove(o->before, o->before + from, o->before_size + 1);
    }
    if (p->ends || !o->after_size) return;
    o->after_size = kn_word_border_before(o->after, o->after_size, o->after_size - 1);
    o->after[o->after_size] = 0;
}

static knnlm_status read_passage(const kn_served_store *b, const kn_entry_span *span, kn_passage *out) {
    const kn_mixture *m = b->state.mixture;
    const kn_tokenizer *t = m ? kn_datastore_tokenizer(kn_mixture_datastore(m, 0)) : NULL;
    if (kn_store_entry_removed(b->state.store, span->entry)) return KNNLM_EINVAL;
    KN_TRY(kn_origin_read_span(b->state.store, t, span->entry, span->count, span->around, &out->origin));
    cut_words(span, out);
    kn_store_document *d = &out->origin.document;
    out->name = kn_strndup(d->name, d->name_size);
    d->name = out->name;
    if (out->name) return KNNLM_OK;
    kn_passage_free(out);
    return KNNLM_ENOMEM;
}

bool kn_served_passage(kn_served *s, const char *store, const kn_entry_span *span, kn_passage *out,
                       kn_http_error *err) {
    const kn_served_store *b = kn_served_named(s, store, err);
    *out = (kn_passage){0};
    if (!b) return false;
    pthread_rwlock_rdlock(&s->lock);
    knnlm_status status = read_passage(b, span, out);
    pthread_rwlock_unlock(&s->lock);
    if (status == KNNLM_EINVAL)
        return kn_http_error_set(err, 404, "not_found", NULL,
                                 "the store '%.100s' has no entry %llu, or its document has fewer tokens",
                                 b->name, (unsigned long long)span->entry);
    return status == KNNLM_OK || kn_http_error_status(err, KNNLM_EIO, knnlm_message());
}

void kn_passage_free(kn_passage *passage) {
    kn_origin_free(&passage->origin);
    free(passage->name);
    *passage = (kn_passage){0};
}
