// One token after another, with llama.cpp's memory of those before.
//
// Where a session outgrows its room, or forgets a part that the model cannot forget (states of recurrent
// ones), its tokens are read again.
#include "lm/llama/engine.h"

#include <stdlib.h>
#include <string.h>

knnlm_status kn_llama_session_open(kn_lm *lm, kn_session **out) {
    kn_llama *m = (kn_llama *)lm;
    kn_llama_session *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->session.lm = lm;
    s->next = m->open;
    m->open = s;
    *out = &s->session;
    return KNNLM_OK;
}

void kn_llama_session_close(kn_session *session) {
    kn_llama_session *s = (kn_llama_session *)session, **at = &((kn_llama *)session->lm)->open;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    kn_llama_slots_leave(s);
    free(s->tokens);
    free(s);
}

size_t kn_llama_session_length(const kn_session *session) {
    return ((const kn_llama_session *)session)->length;
}

void kn_llama_session_cut(kn_session *session, size_t length) {
    kn_llama_session *s = (kn_llama_session *)session;
    if (length >= s->length) return;
    s->length = length;
    kn_llama_slots_forget(s, length);
}

// Tokens that are to be read, and room for them.
static knnlm_status append(kn_llama_session *s, const int32_t *tokens, size_t count) {
    size_t length = s->length + count;
    KN_TRY(kn_grow(&s->tokens, &s->capacity, length, sizeof *s->tokens));
    memcpy(s->tokens + s->length, tokens, count * sizeof *tokens);
    return kn_llama_slots_enter(s, length);
}

// Reads what the memory does not hold yet, up to `length`; the results are those of the tokens from `from`
// on, which have `targets`, or (NULL) one.
static knnlm_status read_on(kn_llama_session *s, size_t length, size_t from, kn_tap tap,
                            const int32_t *targets, const kn_lm_output *out) {
    kn_llama_context *c = s->slots->c;
    static const kn_lm_output nothing = {0};
    while (s->held < length) {
        size_t end = s->held + kn_min(length - s->held, c->rows);
        kn_llama_begin(c);
        for (size_t i = s->held; i < end; i++)
            kn_llama_push(c, s->tokens[i], s->slot, i, i >= from ? (int64_t)(i - from) : KN_LLAMA_UNWANTED);
        KN_TRY(kn_llama_run(c, tap, targets, true, end > from ? out : &nothing));
        s->held = end;
    }
    return KNNLM_OK;
}

knnlm_status kn_llama_session_feed(kn_session *session, const int32_t *tokens, const int32_t *targets,
                                   size_t count, kn_tap tap, const kn_lm_output *out) {
    kn_llama_session *s = (kn_llama_session *)session;
    kn_lm_output wanted = *out;
    size_t length = s->length + count;
    if (!targets) wanted.logprobs = NULL;
    KN_TRY(append(s, tokens, count));
    knnlm_status status = read_on(s, length, targets ? s->length : length - 1, tap, targets, &wanted);
    if (status == KNNLM_OK)
        s->length = length;
    else
        kn_llama_slots_forget(s, 0); // what failed half way is as if it had not been read
    return status;
}

// ---------------------------------------------------------------- several

typedef struct step {
    kn_llama_session *session;
    size_t row; // of the results
} step;

// Context by context, and in each by the number of the sequence.
static int by_place(const void *a, const void *b) {
    const kn_llama_session *x = ((const step *)a)->session, *y = ((const step *)b)->session;
    if (x->slots != y->slots) return (uintptr_t)x->slots < (uintptr_t)y->slots ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}

// One more token of each, all of one context.
static knnlm_status run_steps(const step *steps, size_t count, kn_tap tap, const kn_lm_output *out) {
    kn_llama_context *c = steps->session->slots->c;
    kn_llama_begin(c);
    for (size_t i = 0; i < count; i++) {
        const kn_llama_session *s = steps[i].session;
        kn_llama_push(c, s->tokens[s->length], s->slot, s->length, (int64_t)steps[i].row);
    }
    knnlm_status status = kn_llama_run(c, tap, NULL, true, out);
    for (size_t i = 0; i < count; i++) {
        kn_llama_session *s = steps[i].session;
        if (status == KNNLM_OK)
            s->held = ++s->length;
        else
            kn_llama_slots_forget(s, 0);
    }
    return status;
}

// Those whose memory lacks more than the last token (they grew, or forgot) read that first.
static knnlm_status prepare(kn_session *const *sessions, size_t count, const int32_t *tokens, kn_tap tap,
                            step *steps) {
    static const kn_lm_output nothing = {0};
    for (size_t i = 0; i < count; i++) {
        kn_llama_session *s = (kn_llama_session *)sessions[i];
        KN_TRY(append(s, tokens + i, 1));
        KN_TRY(read_on(s, s->length, s->length, tap, NULL, &nothing));
        steps[i] = (step){s, i};
    }
    return KNNLM_OK;
}

knnlm_status kn_llama_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                    kn_tap tap, const kn_lm_output *out) {
    kn_lm_output wanted = *out;
    wanted.logprobs = NULL; // there are no targets
    step *steps = kn_alloc(count, sizeof *steps);
    if (!steps) return KNNLM_ENOMEM;
    knnlm_status status = prepare(sessions, count, tokens, tap, steps);
    if (status == KNNLM_OK) qsort(steps, count, sizeof *steps, by_place);
    for (size_t done = 0, n; status == KNNLM_OK && done < count; done += n) {
        for (n = 1; done + n < count && steps[done + n].session->slots == steps[done].session->slots;) n++;
        status = run_steps(steps + done, n, tap, &wanted);
    }
    free(steps);
    return status;
}
