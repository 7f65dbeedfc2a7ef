// Cuts documents into windows, gathers windows into batches, and hands out the model's records in order.
#include "read/read.h"

#include "base/memory.h"
#include "lm/shared.h"

#include <stdlib.h>
#include <string.h>

// Tokens gathered before the model runs: several sub-batches of the native engine's. Of streams that several
// ranks read, more: who begins within a text reads what is before it again (2560 tokens of the bundled
// model's), so that parts have to be long; but results wait on rank 0, in at most so many bytes.
enum { GATHER = 8192, GATHER_FAR = 65536, FAR_BYTES = 1 << 29 };

// A window waiting for its turn; places are in the reader's arrays.
typedef struct pending {
    size_t document;    // in reader->documents
    size_t done, count; // targets of the document before its own, and its own
    size_t skip;        // targets that nobody wants, at its beginning
} pending;

// A document of which windows are waiting.
typedef struct held {
    size_t number, stream, tokens; // tokens: its first target is stream + 1
    char *name;
    kn_past *past; // of documents read as a stream in more than one window
} held;

typedef struct reader {
    kn_lm *lm;
    const kn_read_options *o;
    kn_record_choice *choose; // NULL: everything is wanted
    kn_record_sink *sink;
    void *context;
    // start token and tokens of the held documents, one after another, with offsets
    int32_t *stream;
    uint64_t *offsets;
    size_t used, stream_capacity, offset_capacity;
    held *documents;
    size_t document_count, document_capacity, next_document;
    pending *windows;
    size_t window_count, window_capacity, window_tokens;
    float *logprobs, *entropies, *keys;
    size_t logprob_capacity, entropy_capacity, key_capacity;
    kn_window *batch;
    size_t batch_capacity;
    bool far; // streams are read by several ranks
    kn_stream_piece *pieces;
    size_t piece_capacity;
} reader;

static void forget(reader *r) {
    for (size_t i = 0; i < r->document_count; i++) {
        free(r->documents[i].name);
        kn_past_close(r->documents[i].past);
    }
    r->used = r->document_count = r->window_count = r->window_tokens = 0;
}

static void reader_free(reader *r) {
    forget(r);
    free(r->stream);
    free(r->offsets);
    free(r->documents);
    free(r->windows);
    free(r->logprobs);
    free(r->entropies);
    free(r->keys);
    free(r->batch);
    free(r->pieces);
}

knnlm_status kn_read_resolve(const kn_lm *lm, kn_read_options *o) {
    int32_t context = kn_lm_describe(lm)->context, window = kn_lm_describe(lm)->window,
            stream = kn_lm_describe(lm)->stream;
    if (o->score == 0 && o->context < 0 && stream) o->stream = true;
    if (o->stream) {
        if (!stream) return kn_fail(KNNLM_EINVAL, "the model reads windows, not streams");
        o->score = stream;
        o->context = 0;
        return KNNLM_OK;
    }
    if (o->score == 0) o->score = window / 2 < 512 ? (window + 1) / 2 : 512;
    if (o->context < 0) o->context = window > o->score ? window - o->score : 0;
    if (o->score < 1 || o->score > context)
        return kn_fail(KNNLM_EINVAL, "`score` %d: the model's context is %d", o->score, context);
    if (o->context > context - o->score)
        return kn_fail(KNNLM_EINVAL, "`score` %d `context` %d: together above the model's context of %d",
                       o->score, o->context, context);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- running what has gathered

static knnlm_status make_room(reader *r, size_t scored) {
    size_t width = (size_t)kn_lm_describe(r->lm)->key_width, values;
    if (!kn_mul(scored, width, &values)) return kn_fail(KNNLM_ENOMEM, "too many keys at a time");
    if (r->o->logprobs) KN_TRY(kn_grow(&r->logprobs, &r->logprob_capacity, scored, sizeof(float)));
    if (r->o->entropies) KN_TRY(kn_grow(&r->entropies, &r->entropy_capacity, scored, sizeof(float)));
    if (r->o->keys) KN_TRY(kn_grow(&r->keys, &r->key_capacity, values, sizeof(float)));
    return kn_grow(&r->batch, &r->batch_capacity, r->window_count, sizeof *r->batch);
}

// With nothing wanted of the model, the records are the tokens alone.
static bool model_wanted(const reader *r) {
    return r->o->logprobs || r->o->entropies || r->o->keys;
}

// Windows that follow each other in a document are one piece of it.
static knnlm_status run_pieces(reader *r, const kn_lm_output *out, const kn_progress *progress) {
    size_t count = 0;
    KN_TRY(kn_grow(&r->pieces, &r->piece_capacity, r->window_count, sizeof *r->pieces));
    for (size_t i = 0; i < r->window_count; i++) {
        const pending *p = &r->windows[i];
        const int32_t *inputs = r->stream + r->documents[p->document].stream;
        if (i && p->document == p[-1].document)
            r->pieces[count - 1].to = p->done + p->count;
        else
            r->pieces[count++] = (kn_stream_piece){inputs, inputs + 1, p->done, p->done + p->count};
    }
    return kn_lm_read_pieces(r->lm, r->pieces, count, r->o->tap, out, progress);
}

static knnlm_status run_model(reader *r, const kn_progress *progress) {
    size_t scored = 0;
    if (!model_wanted(r)) return KNNLM_OK;
    for (size_t i = 0; i < r->window_count; i++) scored += r->windows[i].count;
    KN_TRY(make_room(r, scored));
    kn_lm_output out = {.logprobs = r->logprobs, .entropies = r->entropies, .keys = r->keys};
    if (r->far) return run_pieces(r, &out, progress);
    for (size_t i = 0; i < r->window_count; i++) {
        const pending *p = &r->windows[i];
        const held *d = &r->documents[p->document];
        r->batch[i] = kn_read_window(r->o, r->stream + d->stream, p->done, p->count, d->past);
        if (!r->o->logprobs) r->batch[i].targets = NULL;
    }
    return kn_lm_run(r->lm, r->batch, r->window_count, r->o->tap, &out);
}

static knnlm_status deliver(reader *r) {
    size_t width = (size_t)kn_lm_describe(r->lm)->key_width, row = 0;
    for (size_t i = 0; i < r->window_count; i++) {
        const pending *p = &r->windows[i];
        const held *d = &r->documents[p->document];
        size_t at = d->stream + p->done; // input before the first target
        size_t skip = p->skip, from = row + skip;
        kn_records records = {.document = d->number,
                              .name = d->name,
                              .tokens_in_document = d->tokens,
                              .position = at + skip - d->stream,
                              .count = p->count - skip,
                              .tokens = r->stream + at + skip + 1,
                              .offsets = r->offsets + at + skip + 1,
                              .logprobs = r->logprobs ? r->logprobs + from : NULL,
                              .entropies = r->entropies ? r->entropies + from : NULL,
                              .keys = r->keys ? r->keys + from * width : NULL};
        row += p->count;
        if (records.count) KN_TRY(r->sink(r->context, &records)); // none: read for what comes after it
    }
    return KNNLM_OK;
}

// How far the reading is: the file bytes behind the document at hand (from) and with it (to).
typedef struct reached {
    const kn_progress *progress; // NULL: nobody listens
    uint64_t from, to, total;
} reached;

// While other ranks read, what is behind stands.
static bool tell_standing(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    const reached *at = context;
    (void)done;
    (void)total;
    (void)unit;
    return kn_progress_report(at->progress, phase, at->from, at->total, "B");
}

static knnlm_status flush(reader *r, const reached *at) {
    reached standing = *at;
    if (r->window_count == 0) return KNNLM_OK;
    KN_TRY(run_model(r, at->progress ? &(kn_progress){tell_standing, &standing} : NULL));
    KN_TRY(deliver(r));
    r->window_count = r->window_tokens = 0;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- gathering

static knnlm_status hold_document(reader *r, const char *name, const int32_t *tokens, const uint64_t *offsets,
                                  size_t n) {
    KN_TRY(kn_grow(&r->stream, &r->stream_capacity, r->used + n + 1, sizeof *r->stream));
    KN_TRY(kn_grow(&r->offsets, &r->offset_capacity, r->used + n + 1, sizeof *r->offsets));
    KN_TRY(kn_grow(&r->documents, &r->document_capacity, r->document_count + 1, sizeof *r->documents));
    char *copy = kn_strdup(name);
    if (!copy) return KNNLM_ENOMEM;
    r->documents[r->document_count++] =
        (held){.number = r->next_document++, .stream = r->used, .tokens = n, .name = copy};
    r->stream[r->used] = kn_tokenizer_start(kn_lm_tokenizer(r->lm));
    r->offsets[r->used] = 0;
    if (n) memcpy(r->stream + r->used + 1, tokens, n * sizeof *tokens); // no tokens: no array either
    if (offsets && n)
        memcpy(r->offsets + r->used + 1, offsets, n * sizeof *offsets);
    else
        memset(r->offsets + r->used + 1, 0, n * sizeof *r->offsets);
    r->used += n + 1;
    return KNNLM_OK;
}

static knnlm_status report(const reached *at, size_t done, size_t tokens) {
    uint64_t bytes = at->from + (uint64_t)((double)(at->to - at->from) * (double)done / (double)tokens);
    if (kn_progress_report(at->progress, "reading", bytes, at->total, "B")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped while reading");
}

static size_t gather_of(const reader *r) {
    size_t ranks = kn_lm_readers(r->lm), width = r->o->keys ? (size_t)kn_lm_describe(r->lm)->key_width : 0;
    size_t each = r->far ? GATHER_FAR : GATHER, most = FAR_BYTES / ((width + 2) * sizeof(float));
    return r->o->gather ? r->o->gather : kn_max(GATHER, kn_min(ranks * each, most));
}

// Cuts the document held last into windows, running the model whenever enough have gathered. The windows are
// the same whatever is skipped: those of which nothing is wanted are left out, but for those of a stream,
// which the rest goes on from.
static knnlm_status cut_windows(reader *r, uint64_t skip, const reached *at) {
    size_t document = r->document_count - 1;
    bool streamed = r->o->stream && model_wanted(r);
    held d = r->documents[document];
    r->far = streamed && kn_lm_readers(r->lm) > 1;
    if (streamed && !r->far && d.tokens > (size_t)r->o->score)
        KN_TRY(kn_past_open(r->lm, &r->documents[document].past));
    for (size_t done = 0, n; done < d.tokens; done += n) {
        size_t before = kn_min(done, (size_t)r->o->context);
        n = kn_read_targets(r->o, d.tokens, done);
        if (done + n <= skip && (!streamed || r->far)) continue;
        size_t unwanted = skip > done ? kn_min(n, (size_t)(skip - done)) : 0;
        KN_TRY(kn_grow(&r->windows, &r->window_capacity, r->window_count + 1, sizeof *r->windows));
        r->windows[r->window_count++] = (pending){document, done, n, unwanted};
        r->window_tokens += before + n;
        if (r->window_tokens < gather_of(r)) continue;
        KN_TRY(flush(r, at));
        KN_TRY(report(at, done + n, d.tokens));
    }
    // A long document ends a batch: its tokens would be held along with those of every document after it.
    if (r->used >= gather_of(r)) KN_TRY(flush(r, at));
    if (r->window_count == 0) forget(r);
    return KNNLM_OK;
}

static void count_words(const char *text, size_t size, kn_read_totals *t) {
    bool inside = false;
    for (size_t i = 0; i < size; i++) {
        bool space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
        t->words += !space && !inside;
        t->lines += text[i] == '\n';
        inside = !space;
    }
}

// While the next document is waited for, as one that is typed (the total is not known then): what is behind
// it stands, and whoever listens may end the waiting.
typedef struct waiting {
    const kn_progress *progress;
    uint64_t done, total;
} waiting;

static bool still_waiting(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const waiting *w = context;
    (void)done; // blocks, which are read ahead
    (void)total;
    return kn_progress_report(w->progress, what, w->done, w->total, unit);
}

static knnlm_status wait_for_document(kn_documents *source, const reached *at, kn_document *d, bool *found) {
    waiting w = {at->progress, at->from, at->total};
    kn_progress asked = {still_waiting, &w};
    kn_documents_watch(source, at->progress && !at->total ? &asked : NULL);
    knnlm_status status = kn_documents_next(source, d, found);
    kn_documents_watch(source, NULL);
    return status;
}

static knnlm_status read_documents(reader *r, kn_documents *source, const kn_progress *progress,
                                   kn_tokens *tokens, kn_read_totals *totals) {
    for (;;) {
        kn_document d;
        bool found;
        uint64_t skip = 0;
        reached at = {
            .progress = progress, .from = kn_documents_done(source), .total = kn_documents_total(source)};
        KN_TRY(wait_for_document(source, &at, &d, &found));
        if (!found) return flush(r, &at);
        at.to = kn_documents_done(source);
        if (r->choose) KN_TRY(r->choose(r->context, &d, r->next_document, &skip));
        if (skip == UINT64_MAX) {
            r->next_document++;
            KN_TRY(report(&at, 1, 1));
            continue;
        }
        tokens->count = 0;
        KN_TRY(kn_tokenizer_encode(kn_lm_tokenizer(r->lm), d.text, d.size, tokens));
        totals->documents++;
        totals->tokens += tokens->count;
        totals->bytes += d.size;
        count_words(d.text, d.size, totals);
        KN_TRY(hold_document(r, d.name, tokens->ids, tokens->offsets, tokens->count));
        KN_TRY(cut_windows(r, skip, &at));
    }
}

knnlm_status kn_read_source(kn_lm *lm, kn_documents *source, const kn_read_options *options,
                            const kn_progress *progress, kn_record_choice *choose, kn_record_sink *sink,
                            void *context, kn_read_totals *totals) {
    kn_read_options o = *options;
    kn_tokens tokens = {.with_offsets = true};
    double started = kn_seconds();
    *totals = (kn_read_totals){0};
    KN_TRY(kn_read_resolve(lm, &o));
    reader r = {.lm = lm, .o = &o, .choose = choose, .sink = sink, .context = context};
    knnlm_status status = read_documents(&r, source, progress, &tokens, totals);
    reader_free(&r);
    kn_tokens_free(&tokens);
    totals->seconds = kn_seconds() - started;
    return status;
}

knnlm_status kn_read_texts(kn_lm *lm, const char *const *paths, size_t count, const kn_read_options *options,
                           const kn_progress *progress, kn_record_choice *choose, kn_record_sink *sink,
                           void *context, kn_read_totals *totals) {
    kn_documents *source;
    KN_TRY(kn_documents_open(paths, count, &options->texts, &source));
    knnlm_status status = kn_read_source(lm, source, options, progress, choose, sink, context, totals);
    kn_documents_close(source);
    return status;
}

static knnlm_status read_many(reader *r, const kn_read_text *texts, size_t count,
                              const kn_progress *progress) {
    reached at = {.progress = progress};
    for (size_t i = 0; i < count; i++) at.total += texts[i].count;
    for (size_t i = 0; i < count; i++) {
        at.to = at.from + texts[i].count;
        KN_TRY(hold_document(r, "", texts[i].tokens, NULL, texts[i].count));
        KN_TRY(cut_windows(r, 0, &at));
        at.from = at.to;
    }
    return flush(r, &at);
}

knnlm_status kn_read_many(kn_lm *lm, const kn_read_text *texts, size_t count, const kn_read_options *options,
                          const kn_progress *progress, kn_record_sink *sink, void *context) {
    kn_read_options o = *options;
    KN_TRY(kn_read_resolve(lm, &o));
    reader r = {.lm = lm, .o = &o, .sink = sink, .context = context};
    knnlm_status status = read_many(&r, texts, count, progress);
    reader_free(&r);
    return status;
}

knnlm_status kn_read_tokens(kn_lm *lm, const int32_t *tokens, size_t count, const kn_read_options *options,
                            kn_record_sink *sink, void *context) {
    return kn_read_many(lm, &(kn_read_text){tokens, count}, 1, options, NULL, sink, context);
}
