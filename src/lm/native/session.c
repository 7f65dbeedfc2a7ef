// Incremental decoding: keys and values of every layer are kept.
#include "lm/native/native.h"

#include <stdlib.h>
#include <string.h>

typedef struct native_session {
    kn_session session;
    float **caches; // a layer: (room, 2 width)
    size_t room;    // rows of them
    size_t length;
    size_t cached_from; // position of the first row; with a sliding window it moves on
    kn_workspace ws;
} native_session;

// Tokens read in one pass; longer input is read in pieces.
enum { PIECE = 512 };

static knnlm_status init(native_session *s, const kn_native *m) {
    const kn_config *c = &m->w.config;
    s->caches = kn_alloc((size_t)c->layers, sizeof *s->caches);
    if (!s->caches) return KNNLM_ENOMEM;
    // Room for as much again as is kept: what is kept then moves seldom.
    s->room = c->window ? 2 * kn_past_max(c) + PIECE : (size_t)c->context;
    size_t cells;
    if (!kn_mul(s->room, 2 * (size_t)c->width, &cells))
        return kn_fail(KNNLM_ENOMEM, "a context of %d tokens does not fit into memory", c->context);
    for (int32_t n = 0; n < c->layers; n++) {
        s->caches[n] = kn_alloc_aligned(cells, sizeof(float));
        if (!s->caches[n]) return KNNLM_ENOMEM;
    }
    return kn_workspace_init(&s->ws, c, m->w.k, kn_min(s->room, PIECE), s->room);
}

// Forgets what no position to come sees, when there is no room for `rows` more.
static void make_room(native_session *s, size_t rows) {
    const kn_config *c = &((const kn_native *)s->session.lm)->w.config;
    size_t first = c->window ? kn_past_first(c, s->length) : 0, width = 2 * (size_t)c->width;
    if (s->length - s->cached_from + rows <= s->room || first <= s->cached_from) return;
    for (int32_t n = 0; n < c->layers; n++)
        memmove(s->caches[n], s->caches[n] + (first - s->cached_from) * width,
                (s->length - first) * width * sizeof(float));
    s->cached_from = first;
}

knnlm_status kn_native_session_open(kn_lm *lm, kn_session **out) {
    native_session *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->session.lm = lm;
    knnlm_status status = init(s, (const kn_native *)lm);
    if (status == KNNLM_OK)
        *out = &s->session;
    else
        kn_native_session_close(&s->session);
    return status;
}

void kn_native_session_close(kn_session *session) {
    native_session *s = (native_session *)session;
    for (int32_t n = 0; s->caches && n < session->lm->info.layers; n++) kn_free_aligned(s->caches[n]);
    free(s->caches);
    kn_workspace_free(&s->ws);
    free(s);
}

size_t kn_native_session_length(const kn_session *session) {
    return ((const native_session *)session)->length;
}

void kn_native_session_cut(kn_session *session, size_t length) {
    native_session *s = (native_session *)session;
    if (length < s->length) s->length = length;
    if (s->length < s->cached_from) s->length = 0; // what is before that is gone
    if (s->length == 0) s->cached_from = 0;
}

knnlm_status kn_native_session_feed(kn_session *session, const int32_t *tokens, const int32_t *targets,
                                    size_t count, kn_tap tap, const kn_lm_output *out) {
    native_session *s = (native_session *)session;
    const kn_native *m = (const kn_native *)session->lm;
    kn_lm_output rest = *out;
    if (!targets) rest.logprobs = NULL;
    for (size_t done = 0; done < count;) {
        size_t n = count - done < s->ws.rows ? count - done : s->ws.rows, start[2] = {0, n};
        size_t first = targets ? 0 : n - 1;
        make_room(s, n);
        kn_pass p = {.w = &m->w,
                     .ws = &s->ws,
                     .batch = {.tokens = tokens + done,
                               .start = start,
                               .count = 1,
                               .rows = n,
                               .positions = &s->length},
                     .first = &first,
                     .scored = n - first,
                     .targets = targets ? targets + done : NULL,
                     .tap = tap,
                     .caches = (float *const *const *)&s->caches,
                     .cached_from = &s->cached_from};
        if (targets || done + n == count) p.out = rest;
        KN_TRY(kn_pass_run(&p));
        s->length += n;
        done += n;
        if (targets) kn_lm_output_advance(session->lm, &rest, n);
    }
    return KNNLM_OK;
}

// One row a session: the weights are read once for all of them.
static knnlm_status feed_together(native_session *const *sessions, size_t count, const int32_t *tokens,
                                  kn_tap tap, const kn_lm_output *out) {
    size_t start[PIECE + 1], first[PIECE] = {0}, positions[PIECE], cached_from[PIECE];
    float *const *caches[PIECE];
    for (size_t i = 0; i < count; i++) {
        make_room(sessions[i], 1);
        start[i] = i;
        cached_from[i] = sessions[i]->cached_from;
        positions[i] = sessions[i]->length;
        caches[i] = sessions[i]->caches;
    }
    start[count] = count;
    kn_pass p = {
        .w = &((const kn_native *)sessions[0]->session.lm)->w,
        .ws = &sessions[0]->ws,
        .batch = {.tokens = tokens, .start = start, .count = count, .rows = count, .positions = positions},
        .first = first,
        .scored = count,
        .tap = tap,
        .out = *out,
        .caches = caches,
        .cached_from = cached_from};
    p.out.logprobs = NULL; // there are no targets
    KN_TRY(kn_pass_run(&p));
    for (size_t i = 0; i < count; i++) sessions[i]->length++;
    return KNNLM_OK;
}

knnlm_status kn_native_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                     kn_tap tap, const kn_lm_output *out) {
    native_session *const *mine = (native_session *const *)sessions;
    kn_lm_output rest = *out;
    for (size_t done = 0; done < count;) {
        size_t n = kn_min(count - done, mine[0]->ws.rows);
        KN_TRY(feed_together(mine + done, n, tokens + done, tap, &rest));
        kn_lm_output_advance(sessions[0]->lm, &rest, n);
        done += n;
    }
    return KNNLM_OK;
}
