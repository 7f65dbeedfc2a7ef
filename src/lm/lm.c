// Checks what callers ask of a model, passes it to the engine, and checks what comes out.
#include "lm/lm.h"

#include "lm/engine.h"
#include "lm/shared.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kn_lm_close(kn_lm *lm) {
    if (!lm) return;
    kn_lm_unshare(lm);
    lm->engine->close(lm);
}

const kn_lm_info *kn_lm_describe(const kn_lm *lm) {
    return &lm->info;
}
const kn_tokenizer *kn_lm_tokenizer(const kn_lm *lm) {
    return lm->tokenizer;
}

bool kn_lm_ends(const kn_lm *lm, int32_t token) {
    return token == kn_tokenizer_start(lm->tokenizer) || (lm->engine->ends && lm->engine->ends(lm, token));
}

const char *kn_lm_chat_template(const kn_lm *lm) {
    return lm->engine->chat_template ? lm->engine->chat_template(lm) : NULL;
}

knnlm_status kn_lm_chat(const kn_lm *lm, const kn_chat_message *messages, size_t count, kn_tokens *out) {
    if (kn_lm_chat_template(lm)) return lm->engine->chat(lm, messages, count, out);
    return kn_fail(KNNLM_ENOTSUP, "%s: has no template of conversations", lm->info.path);
}

// ---------------------------------------------------------------- taps

static const char *const tap_names[] = {"ffn",           "ffn-raw",     "attention",
                                        "attention-raw", "output-norm", "output"};
enum { TAPS = sizeof tap_names / sizeof *tap_names };

const char *kn_tap_name(kn_tap_point point) {
    return tap_names[point];
}

knnlm_status kn_tap_parse(const char *text, kn_tap *out) {
    size_t n = strcspn(text, "@");
    *out = KN_TAP_DEFAULT;
    if (text[n] == '@') {
        char *end;
        long layer = strtol(text + n + 1, &end, 10);
        bool digits = text[n + 1] == '-' || (text[n + 1] >= '0' && text[n + 1] <= '9');
        if (!digits || end == text + n + 1 || *end || layer < -100000 || layer > 100000)
            return kn_fail(KNNLM_EINVAL, "`tap` %s: the layer after @ is no number", text);
        out->layer = (int32_t)layer;
    }
    for (size_t i = 0; i < TAPS; i++) {
        if (strlen(tap_names[i]) != n || strncmp(text, tap_names[i], n) != 0) continue;
        out->point = (kn_tap_point)i;
        return KNNLM_OK;
    }
    return kn_fail(KNNLM_EINVAL,
                   "`tap` %s: one of ffn, ffn-raw, attention, attention-raw, output-norm, output", text);
}

// A tap with its layer counted from the start, checked.
static knnlm_status resolve_tap(const kn_lm *lm, kn_tap *tap) {
    int32_t given = tap->layer;
    if (tap->layer < 0) tap->layer += lm->info.layers;
    if (tap->layer < 0 || tap->layer >= lm->info.layers)
        return kn_fail(KNNLM_EINVAL, "tap at layer %d: the model has %d layers", given, lm->info.layers);
    return KNNLM_OK;
}

knnlm_status kn_tap_print(const kn_lm *lm, kn_tap tap, char out[KN_TAP_TEXT]) {
    KN_TRY(resolve_tap(lm, &tap));
    snprintf(out, KN_TAP_TEXT, "%s@%d", kn_tap_name(tap.point), tap.layer);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- windows

static knnlm_status check_tokens(const kn_lm *lm, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= lm->info.vocabulary)
            return kn_fail(KNNLM_EINVAL, "token %d at position %zu: the vocabulary has %d", tokens[i], i,
                           lm->info.vocabulary);
    return KNNLM_OK;
}

// A model that reads streams has no longest context: a piece of a stream may be longer than it was trained
// on.
static knnlm_status check_window(const kn_lm *lm, const kn_window *w, const kn_lm_output *out) {
    int32_t longest = lm->info.stream > lm->info.context ? lm->info.stream : lm->info.context;
    if (w->length < 1 || (!w->past && w->length > longest))
        return kn_fail(KNNLM_EINVAL, "a window of %d tokens: the model takes 1 to %d", w->length, longest);
    if (w->past && (w->past->lm != lm || w->length > lm->info.stream))
        return kn_fail(KNNLM_EINVAL, "a window of %d tokens with a past: 1 to %d of the past's own model",
                       w->length, lm->info.stream);
    if (w->first < 0 || w->first >= w->length)
        return kn_fail(KNNLM_EINVAL, "a window of %d tokens scored from %d on", w->length, w->first);
    if (out->logprobs && !w->targets)
        return kn_fail(KNNLM_EINVAL, "log-probabilities are asked for without targets");
    KN_TRY(check_tokens(lm, w->inputs, (size_t)w->length));
    return w->targets ? check_tokens(lm, w->targets + w->first, (size_t)(w->length - w->first)) : KNNLM_OK;
}

// ---------------------------------------------------------------- what comes out

// A probability of 0 is -infinity as a logarithm, and right as such.
static bool are_logs(const float *x, size_t n) {
    bool good = true;
    for (size_t i = 0; i < n && x; i++) good &= x[i] <= FLT_MAX;
    return good;
}

static bool are_finite(const float *x, size_t n) {
    bool good = true;
    for (size_t i = 0; i < n && x; i++) good &= fabsf(x[i]) <= FLT_MAX;
    return good;
}

// No number that is none may leave the model: sums, weights and stores would all be spoilt by one of them.
static knnlm_status check_output(const kn_lm *lm, const kn_lm_output *out, size_t rows) {
    if (are_logs(out->logprobs, rows) && are_finite(out->entropies, rows) &&
        are_logs(out->distribution, rows * (size_t)lm->info.vocabulary) &&
        are_finite(out->keys, rows * (size_t)lm->info.key_width))
        return KNNLM_OK;
    return kn_fail(KNNLM_EDATA,
                   "%s: the model computes numbers that are not finite: its weights are damaged or too large",
                   lm->info.path);
}

knnlm_status kn_lm_run(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                       const kn_lm_output *out) {
    KN_TRY(resolve_tap(lm, &tap));
    for (size_t i = 0; i < count; i++) KN_TRY(check_window(lm, &windows[i], out));
    if (!count) return KNNLM_OK;
    KN_TRY(kn_lm_is_dealt(lm, windows, count) ? kn_lm_deal(lm, windows, count, tap, out)
                                              : lm->engine->run(lm, windows, count, tap, out));
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) rows += (size_t)(windows[i].length - windows[i].first);
    return check_output(lm, out, rows);
}

static knnlm_status check_piece(const kn_lm *lm, const kn_stream_piece *p, const kn_lm_output *out) {
    if (!lm->info.stream || p->from % (size_t)lm->info.stream || p->from >= p->to)
        return kn_fail(KNNLM_EINVAL, "positions %zu to %zu of a stream: not from a multiple of %d on",
                       p->from, p->to, lm->info.stream);
    if (out->logprobs && !p->targets)
        return kn_fail(KNNLM_EINVAL, "log-probabilities are asked for without targets");
    KN_TRY(check_tokens(lm, p->inputs, p->to));
    return p->targets ? check_tokens(lm, p->targets, p->to) : KNNLM_OK;
}

knnlm_status kn_lm_read_pieces(kn_lm *lm, const kn_stream_piece *pieces, size_t count, kn_tap tap,
                               const kn_lm_output *out, const kn_progress *progress) {
    size_t rows = 0;
    KN_TRY(resolve_tap(lm, &tap));
    for (size_t i = 0; i < count; i++) {
        KN_TRY(check_piece(lm, &pieces[i], out));
        rows += pieces[i].to - pieces[i].from;
    }
    KN_TRY(kn_lm_deal_pieces(lm, pieces, count, tap, out, progress));
    return check_output(lm, out, rows);
}

knnlm_status kn_past_open(kn_lm *lm, kn_past **out) {
    return kn_past_open_at(lm, 0, out);
}

knnlm_status kn_past_open_at(kn_lm *lm, size_t position, kn_past **out) {
    if (!lm->info.stream)
        return kn_fail(KNNLM_ENOTSUP, "%s: its attention has no sliding window: texts are read in windows",
                       lm->info.path);
    if (position % (size_t)lm->info.stream)
        return kn_fail(KNNLM_EINVAL, "a past from position %zu: not a multiple of %d", position,
                       lm->info.stream);
    return lm->engine->past_open(lm, position, out);
}

void kn_past_close(kn_past *past) {
    if (past) past->lm->engine->past_close(past);
}

uint64_t kn_lm_afford(const kn_lm *lm, uint64_t count) {
    const uint64_t light = 250000000, parameters = lm->info.parameters;
    return parameters > light ? (uint64_t)((unsigned __int128)count * light / parameters) : count;
}

// ---------------------------------------------------------------- sessions

size_t kn_session_room(const kn_lm *lm) {
    return lm->info.stream ? SIZE_MAX : (size_t)lm->info.context;
}

knnlm_status kn_session_open(kn_lm *lm, kn_session **out) {
    return lm->engine->session_open(lm, out);
}

void kn_session_close(kn_session *s) {
    if (s) s->lm->engine->session_close(s);
}

size_t kn_session_length(const kn_session *s) {
    return s->lm->engine->session_length(s);
}

void kn_session_cut(kn_session *s, size_t length) {
    s->lm->engine->session_cut(s, length);
}

static knnlm_status check_feed(const kn_session *s, const int32_t *tokens, size_t count) {
    size_t total;
    if (count == 0) return kn_fail(KNNLM_EINVAL, "no tokens to read");
    if (!kn_add(kn_session_length(s), count, &total) || total > kn_session_room(s->lm))
        return kn_fail(KNNLM_EINVAL, "%zu tokens after %zu: the model's context is %d", count,
                       kn_session_length(s), s->lm->info.context);
    return check_tokens(s->lm, tokens, count);
}

knnlm_status kn_session_feed(kn_session *s, const int32_t *tokens, size_t count, kn_tap tap,
                             const kn_lm_output *out) {
    KN_TRY(resolve_tap(s->lm, &tap));
    KN_TRY(check_feed(s, tokens, count));
    KN_TRY(s->lm->engine->session_feed(s, tokens, NULL, count, tap, out));
    return check_output(s->lm, out, 1);
}

knnlm_status kn_session_score(kn_session *s, const int32_t *tokens, const int32_t *targets, size_t count,
                              kn_tap tap, const kn_lm_output *out) {
    KN_TRY(resolve_tap(s->lm, &tap));
    KN_TRY(check_feed(s, tokens, count));
    KN_TRY(check_tokens(s->lm, targets, count));
    KN_TRY(s->lm->engine->session_feed(s, tokens, targets, count, tap, out));
    return check_output(s->lm, out, count);
}

knnlm_status kn_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens, kn_tap tap,
                              const kn_lm_output *out) {
    if (count == 0) return KNNLM_OK;
    kn_lm *lm = sessions[0]->lm;
    kn_lm_output rest = *out;
    KN_TRY(resolve_tap(lm, &tap));
    for (size_t i = 0; i < count; i++) KN_TRY(check_feed(sessions[i], tokens + i, 1));
    if (lm->engine->sessions_feed) KN_TRY(lm->engine->sessions_feed(sessions, count, tokens, tap, out));
    for (size_t i = 0; i < count && !lm->engine->sessions_feed; i++) {
        KN_TRY(lm->engine->session_feed(sessions[i], tokens + i, NULL, 1, tap, &rest));
        kn_lm_output_advance(lm, &rest, 1);
    }
    return check_output(lm, out, count);
}
