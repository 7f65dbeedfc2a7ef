// The public functions about stores.
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- reading

knnlm_status knnlm_store_open(const char *path, knnlm_store **out) {
    knnlm_store *s = kn_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) return KNNLM_ENOMEM;
    knnlm_status status = kn_store_open(path, &s->store);
    if (status != KNNLM_OK) {
        free(s);
        return status;
    }
    pthread_mutex_init(&s->mutex, NULL);
    *out = s;
    return KNNLM_OK;
}

bool knnlm_store_exists(const char *path) {
    return kn_store_exists(path);
}

void knnlm_store_close(knnlm_store *s) {
    if (!s) return;
    kn_tokenizer_free(s->tokenizer);
    for (size_t i = 0; i < s->idle; i++) kn_searcher_close(s->pool[i].searcher);
    kn_index_close(s->index);
    kn_index_close(s->flat);
    kn_store_close(s->store);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

knnlm_tuned api_tuned(const kn_store_tuned *t) {
    return (knnlm_tuned){.known = t->known,
                         .lambda = t->lambda,
                         .temperature = t->temperature,
                         .k = t->k,
                         .probes = t->probes,
                         .codes = t->codes,
                         .cache = t->cache.size,
                         .cache_lambda = t->cache.lambda,
                         .cache_temperature = t->cache.temperature,
                         .distance_bins = t->bins.distances,
                         .entropy_bins = t->bins.entropies,
                         .tokens = t->tokens,
                         .seen = t->seen.known,
                         .seen_distance = {t->seen.distance.median, t->seen.distance.high},
                         .seen_entropy = {t->seen.entropy.median, t->seen.entropy.high},
                         .gate = t->gate.known,
                         .quick = t->quick,
                         .entries = t->entries};
}

static void describe_settings(const kn_store_settings *s, knnlm_store_info *out) {
    out->model = s->model;
    out->model_fingerprint = s->model_fingerprint;
    out->tokenizer = s->tokenizer;
    out->tokenizer_fingerprint = s->tokenizer_fingerprint;
    out->tap = s->tap;
    out->split = s->split;
    out->segment = s->segment;
    out->dimension = s->dimension;
    out->model_dimension = s->model_dimension;
    out->vocabulary = s->vocabulary;
    out->window = s->window;
    out->min_context = s->min_context;
    out->keys = s->key_type;
    out->distance = s->distance;
}

void knnlm_store_describe(const knnlm_store *s, knnlm_store_info *out) {
    const kn_store_info *i = kn_store_describe(s->store);
    *out = (knnlm_store_info){.path = i->path,
                              .entries = i->entries,
                              .documents = i->documents,
                              .removed_entries = i->removed_entries,
                              .removed_documents = i->removed_documents,
                              .bytes = i->bytes,
                              .commits = i->generation,
                              .created = i->created,
                              .format = KN_STORE_VERSION,
                              .segments = i->segments,
                              .complete = i->complete,
                              .has_tokenizer = i->has_tokenizer,
                              .has_projection = i->has_projection,
                              .has_index = kn_store_annex_note(s->store) != NULL,
                              .tuned = api_tuned(&i->tuned)};
    describe_settings(&i->settings, out);
}

bool knnlm_store_is_current(const knnlm_store *s) {
    return kn_store_is_current(s->store);
}

knnlm_status knnlm_store_check_model(const knnlm_store *s, const knnlm_model *model) {
    return kn_build_check_model(s->store, (const kn_lm *)model);
}

knnlm_status knnlm_store_segment(const knnlm_store *s, size_t number, knnlm_segment *out) {
    size_t count = kn_store_describe(s->store)->segments;
    if (number >= count)
        return kn_fail(KNNLM_EINVAL, "%s: segment %zu: there are %zu", kn_store_describe(s->store)->path,
                       number, count);
    kn_store_segment g = kn_store_segment_at(s->store, number);
    *out = (knnlm_segment){.file = g.file,
                           .first = g.first,
                           .entries = g.count,
                           .first_document = g.first_document,
                           .documents = g.document_count,
                           .bytes = g.bytes,
                           .text_checksum = g.text_seal,
                           .keys_checksum = g.keys ? g.keys_seal : 0,
                           .has_keys = g.keys != NULL};
    return KNNLM_OK;
}

knnlm_document api_document(const kn_store_document *d) {
    return (knnlm_document){.name = d->name,
                            .path = d->path,
                            .name_size = d->name_size,
                            .path_size = d->path_size,
                            .source_offset = d->source_offset,
                            .bytes = d->bytes,
                            .tokens = d->tokens,
                            .hash = {d->hash[0], d->hash[1]},
                            .added = d->added,
                            .first = d->first,
                            .entries = d->count,
                            .has_offsets = d->has_offsets,
                            .removed = d->removed};
}

knnlm_status knnlm_store_document(const knnlm_store *s, uint64_t number, knnlm_document *out) {
    kn_store_document d;
    knnlm_status status = kn_store_document_at(s->store, number, &d);
    if (status == KNNLM_OK) *out = api_document(&d);
    if (status == KNNLM_EDATA)
        *out = (knnlm_document){.removed = kn_store_document_removed(s->store, number)};
    return status;
}

knnlm_entry api_entry(const kn_store_entry *e) {
    return (knnlm_entry){.id = e->id,
                         .token = e->token,
                         .document = e->document,
                         .position = e->position,
                         .offset = e->offset,
                         .removed = e->removed};
}

knnlm_status knnlm_store_entry(const knnlm_store *s, uint64_t id, knnlm_entry *out) {
    kn_store_entry e;
    KN_TRY(kn_store_entry_at(s->store, id, &e));
    *out = api_entry(&e);
    return KNNLM_OK;
}

knnlm_status knnlm_store_next(const knnlm_store *s, uint64_t id, knnlm_entry *out, bool *found) {
    uint64_t total = kn_store_describe(s->store)->entries;
    *found = false;
    while (id < total) {
        kn_store_document d;
        KN_TRY(knnlm_store_entry(s, id, out));
        if (!out->removed) {
            *found = true;
            return KNNLM_OK;
        }
        KN_TRY(kn_store_document_at(s->store, out->document, &d));
        id = d.first + d.count; // beyond the removed document
    }
    return KNNLM_OK;
}

knnlm_status knnlm_store_tokens(const knnlm_store *s, uint64_t first, size_t count, int32_t *out) {
    return kn_store_tokens(s->store, first, count, out);
}

knnlm_status knnlm_store_keys(const knnlm_store *s, uint64_t first, size_t count, float *out) {
    return kn_store_keys(s->store, first, count, out);
}

static knnlm_status tokenizer_of(const knnlm_store *constant, const kn_tokenizer **out) {
    knnlm_store *s = api_lock(constant);
    knnlm_status status = s->tokenizer ? KNNLM_OK : kn_origin_open_tokenizer(s->store, &s->tokenizer);
    *out = s->tokenizer;
    api_unlock(s);
    return status;
}

knnlm_status knnlm_store_text(const knnlm_store *s, uint64_t first, size_t count, char **text, size_t *size) {
    const kn_tokenizer *t;
    KN_TRY(tokenizer_of(s, &t));
    int32_t *tokens = kn_alloc(count, sizeof *tokens);
    if (!tokens) return KNNLM_ENOMEM;
    knnlm_status status = kn_store_tokens(s->store, first, count, tokens);
    if (status == KNNLM_OK) status = kn_tokenizer_decode(t, tokens, count, text, size);
    free(tokens);
    return status;
}

knnlm_status knnlm_store_encode(const knnlm_store *s, const char *text, size_t size, int32_t **tokens,
                                size_t *count) {
    const kn_tokenizer *t;
    KN_TRY(tokenizer_of(s, &t));
    return api_encode(t, text, size, tokens, count);
}

knnlm_status knnlm_store_decode(const knnlm_store *s, const int32_t *tokens, size_t count, char **text,
                                size_t *size) {
    const kn_tokenizer *t;
    KN_TRY(tokenizer_of(s, &t));
    return kn_tokenizer_decode(t, tokens, count, text, size);
}

knnlm_origin api_origin(const kn_origin *o) {
    return (knnlm_origin){.entry = api_entry(&o->entry),
                          .document = api_document(&o->document),
                          .before = o->before,
                          .word = o->word,
                          .after = o->after,
                          .before_size = o->before_size,
                          .word_size = o->word_size,
                          .after_size = o->after_size};
}

knnlm_status knnlm_store_origin(const knnlm_store *s, uint64_t id, size_t around, knnlm_origin *out) {
    const kn_tokenizer *t;
    kn_origin o;
    KN_TRY(tokenizer_of(s, &t));
    KN_TRY(kn_origin_read(s->store, t, id, around, &o));
    *out = api_origin(&o);
    return KNNLM_OK;
}

void knnlm_origin_free(knnlm_origin *o) {
    free(o->before);
    free(o->word);
    free(o->after);
    *o = (knnlm_origin){0};
}

// ---------------------------------------------------------------- writing

// A public writer is a kn_store_writer under another name.
static kn_store_writer *writer_of(knnlm_writer *writer) {
    return (kn_store_writer *)writer;
}

static knnlm_status attach_tokenizer(kn_store_writer *w, const knnlm_model *model) {
    return model ? kn_build_attach_tokenizer(w, kn_lm_tokenizer((const kn_lm *)model)) : KNNLM_OK;
}

API_DEFAULTS(knnlm_store_settings)

knnlm_status knnlm_writer_create(const char *path, const knnlm_store_settings *settings, knnlm_writer **out) {
    char fingerprint[KN_FINGERPRINT] = "";
    knnlm_store_settings given;
    *out = NULL;
    KN_TRY(API_TAKE(knnlm_store_settings, settings, &given));
    const kn_lm *lm = (const kn_lm *)given.model;
    kn_store_settings s = {.vocabulary = given.vocabulary,
                           .key_type = given.keys,
                           .dimension = given.dimension,
                           .model_dimension = given.dimension,
                           .distance = given.distance,
                           .segment = given.segment ? given.segment : KN_STORE_SEGMENT_DEFAULT};
    if (lm) {
        const kn_lm_info *info = kn_lm_describe(lm);
        kn_tokenizer_fingerprint(kn_lm_tokenizer(lm), fingerprint);
        s.model = info->path;
        s.model_fingerprint = info->fingerprint;
        s.tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(kn_lm_tokenizer(lm)));
        s.tokenizer_fingerprint = fingerprint;
        s.model_dimension = info->key_width;
        if (!s.dimension) s.dimension = info->key_width;
        if (!s.vocabulary) s.vocabulary = info->vocabulary;
    }
    kn_store_writer *w;
    KN_TRY(kn_store_create(path, &s, &w));
    knnlm_status status = attach_tokenizer(w, given.model);
    if (status != KNNLM_OK)
        kn_store_writer_close(w);
    else
        *out = (knnlm_writer *)w;
    return status;
}

knnlm_status knnlm_writer_open(const char *path, knnlm_writer **out) {
    kn_store_writer *w;
    *out = NULL;
    KN_TRY(kn_store_write(path, &w));
    *out = (knnlm_writer *)w;
    return KNNLM_OK;
}

void knnlm_writer_close(knnlm_writer *writer) {
    kn_store_writer_close(writer_of(writer));
}

knnlm_status knnlm_writer_begin(knnlm_writer *writer, const knnlm_document *d) {
    return kn_store_writer_document(writer_of(writer), &(kn_store_document){.name = d->name,
                                                                            .path = d->path,
                                                                            .name_size = d->name_size,
                                                                            .path_size = d->path_size,
                                                                            .source_offset = d->source_offset,
                                                                            .bytes = d->bytes,
                                                                            .tokens = d->tokens,
                                                                            .hash = {d->hash[0], d->hash[1]},
                                                                            .added = d->added,
                                                                            .has_offsets = d->has_offsets});
}

knnlm_status knnlm_writer_append(knnlm_writer *writer, const int32_t *tokens, const uint64_t *offsets,
                                 const float *keys, size_t count) {
    return kn_store_writer_append(writer_of(writer), tokens, offsets, keys, count);
}

knnlm_status knnlm_writer_remove(knnlm_writer *writer, const char *pattern, uint64_t *removed) {
    const kn_store *base = kn_store_writer_base(writer_of(writer));
    uint64_t total = base ? kn_store_describe(base)->documents : 0;
    *removed = 0;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(base, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: its name is not known
        KN_TRY(status);
        if (d.removed || !kn_store_document_matches(&d, pattern)) continue;
        KN_TRY(kn_store_writer_remove(writer_of(writer), i));
        ++*removed;
    }
    return KNNLM_OK;
}

knnlm_status knnlm_writer_commit(knnlm_writer *writer) {
    return kn_store_writer_commit(writer_of(writer));
}
