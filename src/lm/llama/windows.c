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

// Results of a batch, before they go to their windows' rows.
typedef struct gathered {
    int32_t *targets;
    kn_lm_output out;
} gathered;

static void gathered_free(gathered *g) {
    free(g->targets);
    free(g->out.logprobs);
    free(g->out.entropies);
    free(g->out.distribution);
    free(g->out.keys);
}

static bool room(float **array, const float *wanted, size_t rows, size_t width) {
    size_t n;
    if (!wanted) return true;
    if (!kn_mul(rows, width, &n)) return false;
    *array = kn_alloc(n, sizeof **array);
    return *array != NULL;
}

static knnlm_status gathered_init(gathered *g, const kn_llama_context *c, const kn_lm_output *out) {
    const kn_lm_info *info = &c->m->lm.info;
    *g = (gathered){.targets = kn_alloc(c->rows, sizeof *g->targets)};
    bool made = g->targets && room(&g->out.logprobs, out->logprobs, c->rows, 1) &&
                room(&g->out.entropies, out->entropies, c->rows, 1) &&
                room(&g->out.distribution, out->distribution, c->rows, (size_t)info->vocabulary) &&
                room(&g->out.keys, out->keys, c->rows, (size_t)info->key_width);
    if (made) return KNNLM_OK;
    gathered_free(g);
    return kn_fail(KNNLM_ENOMEM, "out of memory for %zu rows of results", c->rows);
}

static void copy(float *to, const float *from, size_t to_row, size_t from_row, size_t rows, size_t width) {
    if (to) memcpy(to + to_row * width, from + from_row * width, rows * width * sizeof *to);
}

// The part of a window that lies in positions [from, to), scored positions only.
static size_t scored_in(const kn_window *w, size_t from, size_t to, size_t *first) {
    *first = kn_max((size_t)w->first, from);
    size_t end = kn_min((size_t)w->length, to);
    return end > *first ? end - *first : 0;
}

static void scatter(const kn_llama *m, const placed *group, size_t count, size_t from, size_t to,
                    const gathered *g, const kn_lm_output *out) {
    size_t vocabulary = (size_t)m->lm.info.vocabulary, width = (size_t)m->lm.info.key_width, at = 0;
    for (size_t s = 0; s < count; s++) {
        size_t first, n = scored_in(group[s].window, from, to, &first),
                      row = group[s].row + first - (size_t)group[s].window->first;
        if (n == 0) continue;
        copy(out->logprobs, g->out.logprobs, row, at, n, 1);
        copy(out->entropies, g->out.entropies, row, at, n, 1);
        copy(out->distribution, g->out.distribution, row, at, n, vocabulary);
        copy(out->keys, g->out.keys, row, at, n, width);
        at += n;
    }
}

static void fill_batch(kn_llama_context *c, const placed *group, size_t count, size_t from, size_t to,
                       gathered *g) {
    int32_t filler = kn_tokenizer_start(c->m->lm.tokenizer);
    kn_llama_begin(c);
    for (size_t s = 0; s < count; s++) {
        const kn_window *w = group[s].window;
        for (size_t p = from; p < to; p++) {
            bool inside = p < (size_t)w->length, wanted = inside && p >= (size_t)w->first;
            if (wanted && w->targets) g->targets[c->count] = w->targets[p];
            kn_llama_push(c, inside ? w->inputs[p] : filler, s, p, wanted);
        }
    }
}

// The length to which a window is filled up: whole cells, but no position that the model does not have.
static size_t filled_length(const kn_llama *m, const kn_window *longest) {
    size_t length = (size_t)longest->length,
           cells = (length + KN_LLAMA_CELL - 1) / KN_LLAMA_CELL * KN_LLAMA_CELL;
    return kn_min(cells, kn_max((size_t)m->lm.info.context, length));
}

static knnlm_status run_group(kn_llama_context *c, const placed *group, size_t count, kn_tap tap, gathered *g,
                              const kn_lm_output *out) {
    size_t length = filled_length(c->m, group->window), step = kn_min(length, c->rows / count);
    kn_llama_clear(c);
    for (size_t from = 0; from < length; from += step) {
        size_t to = kn_min(from + step, length);
        fill_batch(c, group, count, from, to, g);
        KN_TRY(kn_llama_run(c, tap, g->targets, to < length, &g->out));
        scatter(c->m, group, count, from, to, g, out);
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
                               const kn_lm_output *out) {
    gathered g;
    knnlm_status status = gathered_init(&g, c, out);
    if (status != KNNLM_OK) return status;
    for (size_t done = 0, n; status == KNNLM_OK && done < count; done += n) {
        n = group_size(c, windows + done, count - done);
        status = run_group(c, windows + done, n, tap, &g, out);
    }
    gathered_free(&g);
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

knnlm_status kn_llama_run_windows(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                                  const kn_lm_output *out) {
    kn_llama *m = (kn_llama *)lm;
    placed *p = kn_alloc(count, sizeof *p);
    size_t row = 0;
    if (!p) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        p[i] = (placed){&windows[i], row};
        row += (size_t)(windows[i].length - windows[i].first);
    }
    qsort(p, count, sizeof *p, by_length);
    knnlm_status status = make_room(m, (size_t)p->window->length);
    if (status == KNNLM_OK) status = run_placed(m->shared, p, count, tap, out);
    free(p);
    return status;
}
