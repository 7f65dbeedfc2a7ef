// The one pass over texts that evaluation, tuning and explanation make.
#include "eval/pass.h"

#include "mix/cache.h"
#include "store/contents.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tokens that are searched together: the more, the less often the lists are read; the fewer, the less memory
// their neighbours take (12 bytes each).
enum { BATCH = 8192, BATCH_MIN = 16, NEIGHBORS = 1 << 24 };

// A document of the texts: where its own entries lie in the stores.
typedef struct own {
    kn_entry_range *ranges; // (stores, copies); NULL: in none
    size_t copies;          // at most, in any of them
} own;

typedef struct pass {
    kn_lm *lm;
    const kn_mixture *mixture;
    const kn_mixture_info *m; // of it
    const kn_pass_options *o;
    kn_scored_sink *sink;
    void *context;
    kn_pass_totals *totals;
    // Rows that gathered: first `carried` ones that were handed on, for the cache and as context, then
    // `fresh`.
    size_t carried, fresh, capacity, batch;
    kn_scored_token *tokens;
    int32_t *stream;
    float *lm_logs, *entropies, *keys;
    size_t *starts; // row at which the document of each begins
    kn_predictor *predictor;
    kn_prediction *predictions; // NULL: not wanted
    kn_history history;         // of the document under way
    bool *first;                // whether a fresh token begins a document
    double *cache;
    // by document
    char **names;
    own *own;
    size_t documents, names_capacity, own_capacity;
} pass;

// ---------------------------------------------------------------- documents

static void note_text(kn_pass_totals *t, uint64_t hash) {
    size_t at = t->text_count;
    while (at > 0 && t->texts[at - 1] >= hash) at--;
    if (at == KN_TUNED_TEXTS || (at < t->text_count && t->texts[at] == hash)) return;
    size_t keep = kn_min(t->text_count, KN_TUNED_TEXTS - 1);
    memmove(t->texts + at + 1, t->texts + at, (keep - at) * sizeof *t->texts);
    t->texts[at] = hash;
    t->text_count = keep + 1;
}

// A store remembers the smallest hashes of what it was tuned on.
static void note_tuned(pass *p, uint64_t hash) {
    for (size_t s = 0; s < p->m->count; s++) {
        const kn_store_tuned *t = &p->m->stores[s].store->tuned;
        for (size_t i = 0; i < t->text_count && !p->totals->tuned_on[s]; i++)
            p->totals->tuned_on[s] = t->texts[i] == hash;
    }
}

// How often this content is in the store that has it most often.
static knnlm_status max_copies(const pass *p, const uint64_t hash[2], size_t *out) {
    *out = 0;
    for (size_t s = 0; s < p->m->count; s++) {
        size_t count;
        KN_TRY(kn_datastore_find_content(kn_mixture_datastore(p->mixture, s), hash, 0, NULL, &count));
        *out = kn_max(*out, count);
    }
    return KNNLM_OK;
}

// The entries of this content in all stores: the first copy, the second, ...
static knnlm_status find_own(const pass *p, const uint64_t hash[2], own *out) {
    *out = (own){0};
    if (!p->m->include_self) KN_TRY(max_copies(p, hash, &out->copies));
    if (!out->copies) return KNNLM_OK;
    out->ranges = kn_alloc(p->m->count * out->copies, sizeof *out->ranges);
    if (!out->ranges) return KNNLM_ENOMEM;
    for (size_t s = 0; s < p->m->count; s++) {
        size_t count;
        KN_TRY(kn_datastore_find_content(kn_mixture_datastore(p->mixture, s), hash, out->copies,
                                         out->ranges + s * out->copies, &count));
    }
    return KNNLM_OK;
}

static knnlm_status begin_document(pass *p, const char *name, size_t number) {
    KN_TRY(kn_grow(&p->names, &p->names_capacity, number + 1, sizeof *p->names));
    KN_TRY(kn_grow(&p->own, &p->own_capacity, number + 1, sizeof *p->own));
    p->documents = number + 1;
    p->own[number] = (own){0};
    p->names[number] = kn_strdup(name);
    return p->names[number] ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status choose(void *context, const kn_document *d, size_t number, uint64_t *skip) {
    pass *p = context;
    uint64_t hash[2];
    *skip = 0;
    KN_TRY(begin_document(p, d->name, number));
    kn_content_hash(d->text, d->size, hash);
    note_text(p->totals, hash[0]);
    note_tuned(p, hash[0]);
    KN_TRY(find_own(p, hash, &p->own[number]));
    p->totals->own_documents += p->own[number].ranges != NULL;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- a batch

static const own *own_of(const pass *p, size_t fresh) {
    return &p->own[p->tokens[p->carried + fresh].document];
}

// Ranges of the fresh tokens that a store's search leaves out: *each a token, 0: none of any.
static knnlm_status leave_out(const pass *p, size_t number, kn_entry_range **out, size_t *each) {
    size_t cells;
    *out = NULL;
    *each = 0;
    for (size_t i = 0; i < p->fresh; i++) *each = kn_max(*each, own_of(p, i)->copies);
    if (!*each) return KNNLM_OK;
    if (!kn_mul(p->fresh, *each, &cells)) return kn_fail(KNNLM_ENOMEM, "too many copies of a document");
    *out = kn_alloc(cells, sizeof **out); // what is not filled in is empty
    if (!*out) return KNNLM_ENOMEM;
    for (size_t i = 0; i < p->fresh; i++) {
        const own *mine = own_of(p, i);
        for (size_t c = 0; c < mine->copies; c++)
            (*out)[i * *each + c] = mine->ranges[number * mine->copies + c];
    }
    return KNNLM_OK;
}

// Leaves out each document's own entries.
static knnlm_status predict(pass *p) {
    kn_entry_range *exclude[KN_STORES_MAX] = {0};
    size_t excludes = 0;
    knnlm_status status = KNNLM_OK;
    for (size_t s = 0; s < p->m->count && status == KNNLM_OK; s++)
        status = leave_out(p, s, &exclude[s], &excludes);
    kn_predict_rows rows = {.count = p->fresh,
                            .mixture = p->mixture,
                            .states = p->keys ? p->keys + p->carried * p->m->width : NULL,
                            .exclude = excludes ? (const kn_entry_range *const *)exclude : NULL,
                            .excludes = excludes,
                            .predictions_alone = p->o->predictions_alone && p->predictions,
                            .targets = p->stream + p->carried,
                            .lm = p->lm_logs,
                            .entropies = p->entropies,
                            .cache = p->m->cache.size ? p->cache : NULL,
                            .history = &p->history,
                            .first = p->first};
    if (status == KNNLM_OK) status = kn_predict(p->predictor, &rows, p->predictions);
    for (size_t s = 0; s < p->m->count; s++) free(exclude[s]);
    return status;
}

static knnlm_status score_cache(pass *p) {
    const kn_mixture_info *m = p->m;
    bool given = p->o->cache_temperatures;
    kn_cache c = {.keys = p->keys,
                  .values = p->stream,
                  .starts = p->starts,
                  .d = m->width,
                  .size = m->cache.size,
                  .distance = m->count ? m->stores[0].distance : KNNLM_DISTANCE_L2};
    return kn_cache_score(&c, p->carried, p->fresh, given ? p->o->cache_temperatures : &m->cache.temperature,
                          given ? p->o->cache_temperature_count : 1, p->cache);
}

// Keeps what the cache will need of the last document, and what is context of what comes.
static void carry(pass *p) {
    size_t rows = p->carried + p->fresh, width = p->m->width;
    size_t from = p->starts[rows - 1], want = kn_max(p->m->cache.size, KN_CONTEXT_KEPT);
    if (rows - from > want) from = rows - want;
    size_t kept = rows - from;
    memmove(p->tokens, p->tokens + from, kept * sizeof *p->tokens);
    memmove(p->stream, p->stream + from, kept * sizeof *p->stream);
    if (p->m->cache.size) memmove(p->keys, p->keys + from * width, kept * width * sizeof *p->keys);
    for (size_t i = 0; i < kept; i++) p->starts[i] = 0;
    p->carried = kept;
    p->fresh = 0;
}

static knnlm_status flush(pass *p) {
    if (p->fresh == 0) return KNNLM_OK;
    double begun = kn_seconds();
    if (p->m->cache.size) KN_TRY(score_cache(p));
    KN_TRY(predict(p));
    kn_scored scored = {.count = p->fresh,
                        .tokens = p->tokens + p->carried,
                        .stream = p->stream + p->carried,
                        .before = p->carried - p->starts[p->carried],
                        .lm = p->lm_logs,
                        .entropies = p->entropies,
                        .neighbors = p->predictor,
                        .predictions = p->predictions,
                        .cache = p->m->cache.size ? p->cache : NULL,
                        .names = p->names};
    KN_TRY(p->sink(p->context, &scored));
    p->totals->seconds_search += kn_seconds() - begun;
    carry(p);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- gathering

static void append(pass *p, const kn_records *r) {
    size_t width = p->m->width, at = p->carried + p->fresh;
    size_t start = r->position == 0 ? at : at ? p->starts[at - 1] : 0;
    for (size_t i = 0; i < r->count; i++) {
        p->tokens[at + i] =
            (kn_scored_token){r->tokens[i], (uint32_t)r->document, r->position + i, r->offsets[i]};
        p->stream[at + i] = r->tokens[i];
        p->starts[at + i] = start;
        p->first[p->fresh + i] = r->position + i == 0;
    }
    memcpy(p->lm_logs + p->fresh, r->logprobs, r->count * sizeof *p->lm_logs);
    if (p->entropies) memcpy(p->entropies + p->fresh, r->entropies, r->count * sizeof *p->entropies);
    if (p->keys) memcpy(p->keys + at * width, r->keys, r->count * width * sizeof *p->keys);
    p->fresh += r->count;
}

static knnlm_status take(void *context, const kn_records *r) {
    pass *p = context;
    append(p, r);
    return p->fresh >= p->batch ? flush(p) : KNNLM_OK;
}

static size_t batch_of(const kn_mixture_info *m) {
    return kn_max(BATCH_MIN, kn_min(BATCH, NEIGHBORS / (m->neighbors + 1) + 1));
}

static knnlm_status make_room(pass *p, const kn_read_options *read) {
    size_t width = p->m->width, fresh;
    p->batch = batch_of(p->m);
    fresh = p->batch + (size_t)read->score; // a window more than a batch
    size_t temperatures = p->o->cache_temperatures ? p->o->cache_temperature_count : 1;
    p->capacity = fresh + kn_max(p->m->cache.size, KN_CONTEXT_KEPT);
    p->tokens = kn_alloc(p->capacity, sizeof *p->tokens);
    p->stream = kn_alloc(p->capacity, sizeof *p->stream);
    p->starts = kn_alloc(p->capacity, sizeof *p->starts);
    p->lm_logs = kn_alloc(fresh, sizeof *p->lm_logs);
    p->first = kn_alloc(fresh, sizeof *p->first);
    if (!p->tokens || !p->stream || !p->starts || !p->lm_logs || !p->first) return KNNLM_ENOMEM;
    if (read->entropies && !(p->entropies = kn_alloc(fresh, sizeof *p->entropies))) return KNNLM_ENOMEM;
    if (read->keys && !(p->keys = kn_alloc_aligned(p->capacity, width * sizeof *p->keys)))
        return KNNLM_ENOMEM;
    if (p->m->cache.size && !(p->cache = kn_alloc(fresh * temperatures, sizeof *p->cache)))
        return KNNLM_ENOMEM;
    if (!p->o->neighbors_alone && !p->o->cache_temperatures &&
        !(p->predictions = kn_alloc(fresh, sizeof *p->predictions)))
        return KNNLM_ENOMEM;
    return kn_predictor_open(&p->predictor);
}

static void pass_free(pass *p) {
    for (size_t i = 0; i < p->documents; i++) {
        free(p->names[i]);
        free(p->own[i].ranges);
    }
    kn_predictor_close(p->predictor);
    free(p->predictions);
    free(p->names);
    free(p->own);
    free(p->tokens);
    free(p->stream);
    free(p->starts);
    free(p->lm_logs);
    free(p->first);
    free(p->entropies);
    kn_free_aligned(p->keys);
    free(p->cache);
}

static knnlm_status prepare(pass *p, kn_read_options *read) {
    *read = p->o->read;
    KN_TRY(kn_read_resolve(p->lm, read));
    read->tap = p->m->tap;
    read->logprobs = true;
    read->keys = p->m->any;
    read->entropies = p->o->entropies || p->m->adapts;
    return make_room(p, read);
}

static pass pass_of(kn_lm *lm, const kn_mixture *m, const kn_pass_options *o, kn_scored_sink *sink,
                    void *context, kn_pass_totals *totals) {
    return (pass){.lm = lm,
                  .mixture = m,
                  .m = kn_mixture_describe(m),
                  .o = o,
                  .sink = sink,
                  .context = context,
                  .totals = totals};
}

// Own documents are known by their content, so they must be cut as those of the store were.
static void warn_of_cuts(const pass *p) {
    knnlm_split split = p->o->read.texts.split;
    char text[1024];
    for (size_t s = 0; s < p->m->count && p->m->warn && !p->m->include_self; s++) {
        const kn_store_info *store = p->m->stores[s].store;
        if (kn_split_find(store->settings.split) == split) continue;
        snprintf(text, sizeof text,
                 "%.500s was cut into documents by `split` %s, this text by %s: where it is in the store it "
                 "finds itself",
                 store->path, kn_split_names[kn_split_find(store->settings.split)], kn_split_names[split]);
        p->m->warn(text);
    }
}

knnlm_status kn_pass_texts(kn_lm *lm, const kn_mixture *m, const char *const *paths, size_t count,
                           const kn_pass_options *o, const kn_progress *progress, kn_scored_sink *sink,
                           void *context, kn_pass_totals *totals) {
    pass p = pass_of(lm, m, o, sink, context, totals);
    kn_read_options read;
    *totals = (kn_pass_totals){0};
    knnlm_status status = prepare(&p, &read);
    warn_of_cuts(&p);
    if (status == KNNLM_OK)
        status = kn_read_texts(lm, paths, count, &read, progress, choose, take, &p, &totals->read);
    double begun = kn_seconds(); // the rest is searched after the last token was read
    if (status == KNNLM_OK) status = flush(&p);
    totals->read.seconds += kn_seconds() - begun;
    if (p.predictor) totals->skipped = kn_predictor_skipped(p.predictor);
    for (size_t s = 0; s < p.m->count && p.predictor; s++)
        totals->seconds_stores[s] = kn_predictor_seconds(p.predictor, s);
    pass_free(&p);
    return status;
}

// The text's own entries, the same in every store.
static knnlm_status own_given(const pass *p, const kn_pass_text *text, own *out) {
    size_t copies = text->own_count;
    if (!copies || !p->m->count) return KNNLM_OK;
    out->ranges = kn_alloc(p->m->count * copies, sizeof *out->ranges);
    if (!out->ranges) return KNNLM_ENOMEM;
    out->copies = copies;
    for (size_t s = 0; s < p->m->count; s++)
        memcpy(out->ranges + s * copies, text->own, copies * sizeof *out->ranges);
    return KNNLM_OK;
}

static knnlm_status pass_many(pass *p, const kn_pass_text *texts, size_t count, const kn_progress *progress) {
    kn_read_options read;
    kn_read_text *list = kn_alloc(count, sizeof *list);
    knnlm_status status = list ? prepare(p, &read) : KNNLM_ENOMEM;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) {
        list[i] = texts[i].text;
        status = begin_document(p, "", i);
        if (status == KNNLM_OK) status = own_given(p, &texts[i], &p->own[i]);
    }
    if (status == KNNLM_OK) status = kn_read_many(p->lm, list, count, &read, progress, take, p);
    if (status == KNNLM_OK) status = flush(p);
    free(list);
    return status;
}

knnlm_status kn_pass_many(kn_lm *lm, const kn_mixture *m, const kn_pass_text *texts, size_t count,
                          const kn_pass_options *o, const kn_progress *progress, kn_scored_sink *sink,
                          void *context) {
    kn_pass_totals totals = {0};
    pass p = pass_of(lm, m, o, sink, context, &totals);
    knnlm_status status = pass_many(&p, texts, count, progress);
    pass_free(&p);
    return status;
}

knnlm_status kn_pass_tokens(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count,
                            const kn_pass_options *o, kn_scored_sink *sink, void *context) {
    return kn_pass_many(lm, m, &(kn_pass_text){.text = {tokens, count}}, 1, o, NULL, sink, context);
}
