// Which context of llama.cpp's a session lives in.
//
// Sessions step in one batch when they are sequences of one context, and what a context holds cannot be moved
// into one of another number of sequences. So a context is made for as many sessions as there are when the
// first of them needs it; who comes when all of it is taken gets a larger one, and so does everybody after
// him: of clients that come and go all are soon in one. Nobody is moved but by growing: contexts have room
// for 1024 tokens a sequence, and twice as many each time that this is too little (models of long contexts
// would take gigabytes for all of it at once); the tokens are then read again.
//
// Sequences that run side by side have numbers that follow each other (llama.cpp would cut the batch
// otherwise): when one ends, the last takes its place.
#include "lm/llama/engine.h"

#include <stdlib.h>

enum { ROOM_AT_FIRST = 1024, SLOTS_MAX = 64 };

static size_t room_at_first(const kn_llama *m) {
    return kn_min((size_t)m->lm.info.context, ROOM_AT_FIRST);
}

// Sessions that a context of such a room is for: those that have outgrown half of the room before it.
static size_t count_candidates(const kn_llama *m, size_t room) {
    size_t least = room > room_at_first(m) ? room / 4 : 0, n = 0;
    for (const kn_llama_session *s = m->open; s; s = s->next) n += s->length >= least;
    return n;
}

static knnlm_status slots_open(kn_llama *m, size_t sequences, size_t room, kn_llama_slots **out) {
    kn_llama_slots *slots = kn_alloc(1, sizeof *slots);
    if (!slots) return KNNLM_ENOMEM;
    slots->sessions = kn_alloc(sequences, sizeof *slots->sessions);
    knnlm_status status =
        slots->sessions ? kn_llama_context_open(m, sequences, room, true, &slots->c) : KNNLM_ENOMEM;
    if (status != KNNLM_OK) {
        free(slots->sessions);
        free(slots);
        return status;
    }
    slots->next = m->slots;
    m->slots = *out = slots;
    return KNNLM_OK;
}

static void slots_close(kn_llama *m, kn_llama_slots *slots) {
    kn_llama_slots **at = &m->slots;
    while (*at != slots) at = &(*at)->next;
    *at = slots->next;
    kn_llama_context_close(slots->c);
    free(slots->sessions);
    free(slots);
}

// The one with most sequences that has a free one, with room for `length` tokens, but not far more.
static kn_llama_slots *find_free(const kn_llama *m, size_t length, size_t room) {
    kn_llama_slots *best = NULL;
    for (kn_llama_slots *s = m->slots; s; s = s->next)
        if (s->count < s->c->sequences && s->c->length >= length && s->c->length < 2 * kn_max(room, 256) &&
            (!best || s->c->sequences > best->c->sequences))
            best = s;
    return best;
}

// Fewer sequences where there is no memory for all.
static knnlm_status open_for(kn_llama *m, size_t room, kn_llama_slots **out) {
    size_t wanted = m->sequential ? 1 : kn_min(count_candidates(m, room), SLOTS_MAX), sequences = 1;
    while (sequences < wanted) sequences *= 2;
    knnlm_status status;
    do status = slots_open(m, sequences, room, out);
    while (status == KNNLM_ENOMEM && (sequences /= 2) > 0);
    return status;
}

knnlm_status kn_llama_slots_enter(kn_llama_session *s, size_t length) {
    kn_llama *m = (kn_llama *)s->session.lm;
    size_t before = s->slots ? s->slots->c->length : 0;
    if (length <= before) return KNNLM_OK;
    size_t room = before ? kn_min(2 * before, (size_t)m->lm.info.context) : room_at_first(m);
    room = kn_max(room, length);
    kn_llama_slots *slots = find_free(m, length, room);
    if (!slots) KN_TRY(open_for(m, room, &slots));
    kn_llama_slots_leave(s);
    s->slots = slots;
    s->slot = slots->count;
    slots->sessions[slots->count++] = s;
    return KNNLM_OK;
}

static void remove_all(const kn_llama_slots *slots, size_t slot) {
    const kn_llama_library *api = slots->c->m->api;
    api->llama_memory_seq_rm(api->llama_get_memory(slots->c->ctx), (llama_seq_id)slot, -1, -1);
}

void kn_llama_slots_leave(kn_llama_session *s) {
    kn_llama_slots *slots = s->slots;
    s->slots = NULL;
    s->held = 0;
    if (!slots) return;
    if (slots->count == 1) {
        slots_close(slots->c->m, slots);
        return;
    }
    const kn_llama_library *api = slots->c->m->api;
    kn_llama_session *last = slots->sessions[--slots->count];
    remove_all(slots, s->slot);
    if (last == s) return;
    api->llama_memory_seq_cp(api->llama_get_memory(slots->c->ctx), (llama_seq_id)last->slot,
                             (llama_seq_id)s->slot, -1, -1);
    remove_all(slots, last->slot);
    last->slot = s->slot;
    slots->sessions[s->slot] = last;
}

void kn_llama_slots_forget(kn_llama_session *s, size_t from) {
    if (!s->slots || from >= s->held) return;
    const kn_llama_library *api = s->slots->c->m->api;
    struct llama_memory_i *memory = api->llama_get_memory(s->slots->c->ctx);
    s->held = from;
    if (api->llama_memory_seq_rm(memory, (llama_seq_id)s->slot, (llama_pos)from, -1)) return;
    remove_all(s->slots, s->slot);
    s->held = 0;
}
