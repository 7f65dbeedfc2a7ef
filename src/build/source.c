// Computes the keys of entries again by running the model over their windows.
#include "build/source.h"

#include "index/projection.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 8192 }; // window tokens that the model reads at a time

struct kn_model_source {
    kn_lm *lm;
    const kn_store *store;
    kn_plan plan;
    kn_pca pca;
    size_t width;
    // Windows that wait: their inputs, and which of their states go where.
    int32_t *inputs;
    kn_window *windows;
    struct wanted {
        size_t from, count; // rows of the window's own targets
        float *out;
    } * wanted;
    kn_past **pasts; // of the documents in those windows that are read as a stream
    size_t past_count, past_capacity;
    size_t tokens, tokens_capacity, count, windows_capacity, wanted_capacity;
    float *states;
    size_t states_capacity;
};

knnlm_status kn_model_source_open(kn_lm *lm, const kn_store *store, kn_model_source **out) {
    kn_build_options o = kn_build_options_default();
    kn_model_source *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->lm = lm;
    s->store = store;
    s->width = (size_t)kn_lm_describe(lm)->key_width;
    knnlm_status status = kn_plan_add(lm, store, &o, &s->plan);
    if (status == KNNLM_OK) status = kn_projection_of(s->store, &s->pca);
    if (status != KNNLM_OK)
        kn_model_source_close(s);
    else
        *out = s;
    return status;
}

static void close_pasts(kn_model_source *s) {
    for (size_t i = 0; i < s->past_count; i++) kn_past_close(s->pasts[i]);
    s->past_count = 0;
}

void kn_model_source_close(kn_model_source *s) {
    if (!s) return;
    close_pasts(s);
    free(s->pasts);
    kn_plan_free(&s->plan);
    kn_pca_free(&s->pca);
    free(s->inputs);
    free(s->windows);
    free(s->wanted);
    free(s->states);
    free(s);
}

// ---------------------------------------------------------------- windows

static knnlm_status put_out(const kn_model_source *s, const struct wanted *w, const float *states) {
    if (w->count == 0) return KNNLM_OK;
    if (s->pca.in)
        kn_pca_apply(&s->pca, states + w->from * s->width, w->count, w->out);
    else
        memcpy(w->out, states + w->from * s->width, w->count * s->width * sizeof *states);
    return KNNLM_OK;
}

static knnlm_status run(kn_model_source *s) {
    size_t rows = 0, at = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->windows[i].inputs = s->inputs + at; // the array may have moved
        at += (size_t)s->windows[i].length;
        rows += (size_t)(s->windows[i].length - s->windows[i].first);
    }
    KN_TRY(kn_grow(&s->states, &s->states_capacity, rows * s->width, sizeof *s->states));
    KN_TRY(kn_lm_run(s->lm, s->windows, s->count, s->plan.read.tap, &(kn_lm_output){.keys = s->states}));
    const float *states = s->states;
    for (size_t i = 0; i < s->count; i++) {
        KN_TRY(put_out(s, &s->wanted[i], states));
        states += (size_t)(s->windows[i].length - s->windows[i].first) * s->width;
    }
    s->count = s->tokens = 0;
    // The last document may still go on.
    if (s->past_count) {
        kn_past *last = s->pasts[--s->past_count];
        close_pasts(s);
        s->pasts[s->past_count++] = last;
    }
    return KNNLM_OK;
}

// The window of targets [done, done + n) of a document whose first entry is `first`, as the reader cuts it.
static knnlm_status add_window(kn_model_source *s, uint64_t first, size_t done, size_t n, kn_past *past,
                               struct wanted wanted) {
    size_t before = kn_min(done, (size_t)s->plan.read.context), length = before + n, start = done - before;
    KN_TRY(kn_grow(&s->inputs, &s->tokens_capacity, s->tokens + length, sizeof *s->inputs));
    KN_TRY(kn_grow(&s->windows, &s->windows_capacity, s->count + 1, sizeof *s->windows));
    KN_TRY(kn_grow(&s->wanted, &s->wanted_capacity, s->count + 1, sizeof *s->wanted));
    int32_t *inputs = s->inputs + s->tokens;
    // Input 0 of a document is the start token, input i its token i - 1.
    size_t skip = start == 0;
    if (skip) inputs[0] = kn_tokenizer_start(kn_lm_tokenizer(s->lm));
    KN_TRY(kn_store_tokens(s->store, first + start + skip - 1, length - skip, inputs + skip));
    s->windows[s->count] = (kn_window){.length = (int32_t)length, .first = (int32_t)before, .past = past};
    s->wanted[s->count++] = wanted;
    s->tokens += length;
    return s->tokens >= BATCH ? run(s) : KNNLM_OK;
}

static knnlm_status open_past(kn_model_source *s, kn_past **out) {
    KN_TRY(kn_grow(&s->pasts, &s->past_capacity, s->past_count + 1, sizeof *s->pasts));
    KN_TRY(kn_past_open(s->lm, out));
    s->pasts[s->past_count++] = *out;
    return KNNLM_OK;
}

// Entries [from, to) of one document, by their positions in it.
static knnlm_status add_document(kn_model_source *s, const kn_store_document *d, uint64_t from, uint64_t to,
                                 float *out) {
    size_t score = (size_t)s->plan.read.score, whole = score + (size_t)s->plan.read.context;
    size_t dimension = s->pca.in ? s->pca.out : s->width;
    kn_past *past = NULL;
    if (s->plan.read.stream && d->count > score) KN_TRY(open_past(s, &past));
    for (size_t done = 0, n; done < to; done += n) {
        n = kn_min((size_t)d->count - done, done ? score : whole);
        if (done + n <= from && !past) continue;
        size_t first = from > done ? kn_min(n, (size_t)from - done) : 0, last = kn_min(n, (size_t)to - done);
        struct wanted w = {first, last - first, NULL};
        if (w.count) w.out = out + (done + first - from) * dimension; // none: read for what comes after it
        KN_TRY(add_window(s, d->first, done, n, past, w));
    }
    return KNNLM_OK;
}

static knnlm_status read_keys(void *context, uint64_t first, size_t n, float *out) {
    kn_model_source *s = context;
    size_t dimension = s->pca.in ? s->pca.out : s->width;
    for (size_t done = 0; done < n;) {
        kn_store_entry e;
        kn_store_document d;
        KN_TRY(kn_store_entry_at(s->store, first + done, &e));
        KN_TRY(kn_store_document_at(s->store, e.document, &d));
        uint64_t to = e.position + kn_min(n - done, (size_t)(d.count - e.position));
        KN_TRY(add_document(s, &d, e.position, to, out + done * dimension));
        done += (size_t)(to - e.position);
    }
    return s->count ? run(s) : KNNLM_OK;
}

kn_key_source kn_model_source_keys(kn_model_source *s) {
    return (kn_key_source){read_keys, s, (size_t)s->plan.read.score};
}
