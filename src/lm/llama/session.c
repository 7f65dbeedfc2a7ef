// One token after another, with llama.cpp's memory of those before.
//
// The room for tokens grows as they come: models of long contexts would take gigabytes for all of it at once.
// Growing, and cutting where the model cannot forget a part (states of recurrent ones), read the tokens
// again.
#include "lm/llama/engine.h"

#include <stdlib.h>
#include <string.h>

typedef struct llama_session {
    kn_session session;
    kn_llama_context *c;
    int32_t *tokens; // read so far
    size_t length, capacity;
    size_t held; // of them, those that llama.cpp's memory holds
} llama_session;

enum { ROOM_AT_FIRST = 1024 };

knnlm_status kn_llama_session_open(kn_lm *lm, kn_session **out) {
    llama_session *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->session.lm = lm;
    size_t room = kn_min((size_t)lm->info.context, ROOM_AT_FIRST);
    knnlm_status status = kn_llama_context_open((kn_llama *)lm, 1, room, true, &s->c);
    if (status == KNNLM_OK)
        *out = &s->session;
    else
        kn_llama_session_close(&s->session);
    return status;
}

void kn_llama_session_close(kn_session *session) {
    llama_session *s = (llama_session *)session;
    kn_llama_context_close(s->c);
    free(s->tokens);
    free(s);
}

size_t kn_llama_session_length(const kn_session *session) {
    return ((const llama_session *)session)->length;
}

void kn_llama_session_cut(kn_session *session, size_t length) {
    llama_session *s = (llama_session *)session;
    const kn_llama_library *api = s->c->m->api;
    if (length >= s->length) return;
    s->length = length;
    if (length >= s->held) return;
    s->held = length;
    if (api->llama_memory_seq_rm(api->llama_get_memory(s->c->ctx), 0, (llama_pos)length, -1)) return;
    kn_llama_clear(s->c);
    s->held = 0;
}

static knnlm_status make_room(llama_session *s, size_t length) {
    kn_llama *m = s->c->m;
    if (length <= s->c->length) return KNNLM_OK;
    size_t room = kn_min(kn_max(2 * s->c->length, length), kn_max((size_t)m->lm.info.context, length));
    kn_llama_context *larger;
    KN_TRY(kn_llama_context_open(m, 1, room, true, &larger));
    kn_llama_context_close(s->c);
    s->c = larger;
    s->held = 0;
    return KNNLM_OK;
}

// Reads what the memory does not hold yet; the results are those of the tokens from `from` on, which have
// `targets`, or (NULL) one.
static knnlm_status read_on(llama_session *s, size_t length, size_t from, kn_tap tap, const int32_t *targets,
                            const kn_lm_output *out) {
    static const kn_lm_output nothing = {0};
    kn_lm_output rest = *out;
    while (s->held < length) {
        size_t n = kn_min(length - s->held, s->c->rows), end = s->held + n;
        size_t wanted = end > from ? end - kn_max(from, s->held) : 0;
        kn_llama_begin(s->c);
        for (size_t i = s->held; i < end; i++) kn_llama_push(s->c, s->tokens[i], 0, i, i >= from);
        KN_TRY(kn_llama_run(s->c, tap, targets, true, wanted ? &rest : &nothing));
        s->held = end;
        if (!targets) continue;
        targets += wanted;
        kn_lm_output_advance(s->session.lm, &rest, wanted);
    }
    return KNNLM_OK;
}

knnlm_status kn_llama_session_feed(kn_session *session, const int32_t *tokens, const int32_t *targets,
                                   size_t count, kn_tap tap, const kn_lm_output *out) {
    llama_session *s = (llama_session *)session;
    kn_lm_output wanted = *out;
    size_t length = s->length + count;
    if (!targets) wanted.logprobs = NULL;
    KN_TRY(kn_grow(&s->tokens, &s->capacity, length, sizeof *s->tokens));
    memcpy(s->tokens + s->length, tokens, count * sizeof *tokens);
    KN_TRY(make_room(s, length));
    knnlm_status status = read_on(s, length, targets ? s->length : length - 1, tap, targets, &wanted);
    if (status == KNNLM_OK) s->length = length;
    // What failed half way is as if it had not been read.
    if (status != KNNLM_OK) {
        kn_llama_clear(s->c);
        s->held = 0;
    }
    return status;
}
