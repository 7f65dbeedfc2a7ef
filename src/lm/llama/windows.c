// Windows as sequences of a batch.
//
// Windows of about one length run side by side, the shorter ones filled up at their ends (what comes after a
// token does not change what is predicted from it). Windows longer than a batch go through in pieces, with
// what they have read kept in llama.cpp's memory.
#include "lm/llama/engine.h"

#include <stdlib.h>
#include <string.h>

// A window and the row at which its results begin.
typedef struct placed {
    const kn_window *window;
    size_t row;
} placed;

static int by_length(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->window->length != y->window->length) return x->window->length < y->window->length ? 1 : -1;
    return x->row < y->row ? -1 : 1;
}

static void fill_batch(kn_llama_context *c, const placed *group, size_t count, size_t from, size_t to) {
    int32_t filler = kn_tokenizer_start(c->m->lm.tokenizer);
    kn_llama_begin(c);
    for (size_t s = 0; s < count; s++) {
        const kn_window *w = group[s].window;
        size_t first = (size_t)w->first, length = (size_t)w->length;
        for (size_t p = from; p < to; p++)
            kn_llama_push(c, p < length ? w->inputs[p] : filler, s, p,
                          p >= first && p < length ? (int64_t)(group[s].row + p - first) : KN_LLAMA_UNWANTED);
    }
}

// The length to which a window is filled up: whole cells, but no position that the model does not have.
static size_t filled_length(const kn_llama *m, const kn_window *longest) {
    size_t length = (size_t)longest->length,
           cells = (length + KN_LLAMA_CELL - 1) / KN_LLAMA_CELL * KN_LLAMA_CELL;
    return kn_min(cells, kn_max((size_t)m->lm.info.context, length));
}

static knnlm_status run_group(kn_llama_context *c, const placed *group, size_t count, kn_tap tap,
                              const int32_t *targets, const kn_lm_output *out) {
    size_t length = filled_length(c->m, group->window), step = kn_min(length, c->rows / count);
    kn_llama_clear(c);
    for (size_t from = 0; from < length; from += step) {
        size_t to = kn_min(from + step, length);
        fill_batch(c, group, count, from, to);
        KN_TRY(kn_llama_run(c, tap, targets, to < length, out));
    }
    return KNNLM_OK;
}

// Flash attention has two ways, with other rounding, by the number of a sequence's rows.
static bool is_tiled(size_t length) {
    enum { TILE = 64 };
    return length >= TILE;
}

// How many of the windows, longest first, run side by side: filling them up must not cost an eighth, nor send
// them another way than they would go alone.
static size_t group_size(const kn_llama_context *c, const placed *windows, size_t count) {
    size_t longest = filled_length(c->m, windows->window), n = 1;
    size_t max = kn_min(c->sequences, kn_max(c->rows / longest, 1));
    for (; n < count && n < max; n++) {
        size_t length = filled_length(c->m, windows[n].window);
        if (length * 8 <= longest * 7 || is_tiled(length) != is_tiled(longest)) break;
    }
    return n;
}

static knnlm_status run_placed(kn_llama_context *c, const placed *windows, size_t count, kn_tap tap,
                               const int32_t *targets, const kn_lm_output *out) {
    knnlm_status status = KNNLM_OK;
    for (size_t done = 0, n; status == KNNLM_OK && done < count; done += n) {
        n = group_size(c, windows + done, count - done);
        status = run_group(c, windows + done, n, tap, targets, out);
    }
    return status;
}

// A context for windows up to `longest`, as many side by side as fill a batch.
static knnlm_status make_room(kn_llama *m, size_t longest) {
    enum { SEQUENCES_MAX = 16 };
    if (m->shared && m->shared->length >= longest) return KNNLM_OK;
    kn_llama_context_close(m->shared);
    m->shared = NULL;
    size_t sequences = kn_min(kn_max(KN_LLAMA_ROWS / longest, 1), SEQUENCES_MAX);
    return kn_llama_context_open(m, m->sequential ? 1 : sequences, longest, false, &m->shared);
}

// Windows and the rows of their results; *targets is one for each row, where log-probabilities are wanted.
static knnlm_status place(const kn_window *windows, size_t count, const kn_lm_output *out, placed *p,
                          int32_t **targets) {
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        p[i] = (placed){&windows[i], rows};
        rows += (size_t)(windows[i].length - windows[i].first);
    }
    if (!out->logprobs) return KNNLM_OK;
    *targets = kn_alloc(rows, sizeof **targets);
    if (!*targets) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++)
        memcpy(*targets + p[i].row, windows[i].targets + windows[i].first,
               (size_t)(windows[i].length - windows[i].first) * sizeof **targets);
    return KNNLM_OK;
}

knnlm_status kn_llama_run_windows(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                                  const kn_lm_output *out) {
    kn_llama *m = (kn_llama *)lm;
    placed *p = kn_alloc(count, sizeof *p);
    int32_t *targets = NULL;
    if (!p) return KNNLM_ENOMEM;
    knnlm_status status = place(windows, count, out, p, &targets);
    qsort(p, count, sizeof *p, by_length);
    if (status == KNNLM_OK) status = make_room(m, (size_t)p->window->length);
    if (status == KNNLM_OK) status = run_placed(m->shared, p, count, tap, targets, out);
    free(targets);
    free(p);
    return status;
}
