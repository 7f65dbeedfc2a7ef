// What a rank finds in its own shards.
#include "knn/pieces_parts.h"

#include "base/threads.h"

#include <math.h>
#include <string.h>

void *kn_room_make(kn_room *r, size_t count, size_t size) {
    size_t bytes;
    if (!kn_mul(count, size, &bytes)) {
        kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
        return NULL;
    }
    if (r->memory && bytes <= r->bytes) return r->memory;
    kn_free_aligned(r->memory);
    r->memory = kn_alloc_aligned(bytes + 1, 1);
    r->bytes = r->memory ? bytes : 0;
    return r->memory;
}

knnlm_status kn_pieces_round(kn_pieces_work *w, kn_pieces_way way, bool same, knnlm_status status) {
    bool own = w->own > 0, search = w->q.pieces > 0, out = way == KN_TO_SEARCHERS ? own : search,
         in = way == KN_TO_SEARCHERS ? search : own;
    const bool *to = way == KN_TO_SEARCHERS ? w->searches : w->owns,
               *from = way == KN_TO_SEARCHERS ? w->owns : w->searches;
    for (size_t r = 0; r < w->q.ranks; r++) {
        w->sent_to[r] = &w->out[same ? 0 : r];
        if (out && to[r] && r != w->self) w->sent += w->sent_to[r]->size;
    }
    kn_round round = {.meeting = w->q.meeting,
                      .to = out ? to : w->none,
                      .from = in ? from : w->none,
                      .out = w->sent_to,
                      .in = w->in};
    return kn_ranks_exchange(&round, status, w->progress);
}

// ---------------------------------------------------------------- states

// Every owner sends its rows to all who search.
knnlm_status kn_pieces_share(kn_pieces_work *w) {
    kn_pieces_question *q = &w->q;
    size_t row = q->width * sizeof(float);
    if (!q->shared) return KNNLM_OK;
    char *states = kn_room_make(&w->room_states, q->n, row);
    kn_message_clear(&w->out[0]);
    kn_message_put(&w->out[0], q->states, w->own * row);
    knnlm_status status = states ? kn_message_sent(&w->out[0]) : KNNLM_ENOMEM;
    KN_TRY(kn_pieces_round(w, KN_TO_SEARCHERS, true, status));
    for (size_t r = 0; r < q->ranks && q->pieces; r++) {
        size_t bytes = (size_t)(q->owners[r + 1] - q->owners[r]) * row;
        const void *from = r == w->self ? q->states : kn_message_view(&w->in[r], bytes);
        if (!from) return kn_message_read(&w->in[r]);
        memcpy(states + (size_t)q->owners[r] * row, from, bytes);
    }
    q->states = (const float *)(const void *)states;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- searching

typedef struct keeping {
    kn_pieces_work *w;
    size_t piece;
} keeping;

static void keep(void *context, size_t query, const uint32_t *ids, const float *distances, size_t count,
                 int worker) {
    const keeping *x = context;
    kn_pieces_work *w = x->w;
    size_t place = query * w->q.pieces + x->piece, at = place * w->q.o.k;
    (void)worker;
    memcpy(w->distances + at, distances, count * sizeof *distances);
    memcpy(w->ids + at, ids, count * sizeof *ids);
    w->counts[place] = (uint32_t)count;
}

static knnlm_status find_singly(keeping *x, const kn_datastore *s, const kn_retrieve_options *o) {
    size_t n = x->w->q.n;
    kn_retrieved found;
    KN_TRY(kn_retrieved_init(&found, n, o->k));
    knnlm_status status = kn_datastore_search(s, x->w->q.states, n, o, &found);
    for (size_t q = 0; q < n && status == KNNLM_OK; q++)
        keep(x, q, found.found + q * o->k, found.distances + q * o->k, found.counts[q], 0);
    kn_retrieved_free(&found);
    return status;
}

static knnlm_status find_many(keeping *x, const kn_datastore *s, const kn_retrieve_options *o) {
    const kn_pieces_question *q = &x->w->q;
    float *projected;
    KN_TRY(kn_datastore_project(s, q->states, q->n, &projected));
    knnlm_status status = kn_datastore_search_as(s, projected ? projected : q->states, q->n, o,
                                                 &(kn_search_telling){keep, x, true});
    kn_free_aligned(projected);
    return status;
}

static knnlm_status find_in(kn_pieces_work *w, size_t piece) {
    kn_retrieve_options o = w->q.o;
    keeping x = {w, piece};
    bool lent = false;
    KN_TRY(kn_open_piece_borrow(w->q.handles[piece], &w->pieces[piece], &lent));
    kn_search_scratch scratch = w->pieces[piece].scratch;
    o.scratch = &scratch;
    o.exclude = w->q.exclude ? w->q.exclude + piece * w->q.n * o.excludes : NULL;
    o.temperature = NAN; // entropies are of all shards together
    knnlm_status status =
        o.singly ? find_singly(&x, w->pieces[piece].store, &o) : find_many(&x, w->pieces[piece].store, &o);
    kn_open_piece_give_back(w->q.handles[piece], &scratch, lent);
    return status;
}

knnlm_status kn_pieces_find(kn_pieces_work *w) {
    size_t places = w->q.n * w->q.pieces, cells;
    if (!kn_mul(places, w->q.o.k, &cells)) return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    w->distances = kn_room_make(&w->room_distances, cells, sizeof *w->distances);
    w->ids = kn_room_make(&w->room_ids, cells, sizeof *w->ids);
    w->counts = kn_room_make(&w->room_counts, places, sizeof *w->counts);
    if (!w->distances || !w->ids || !w->counts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < w->q.pieces; i++) KN_TRY(find_in(w, i));
    return KNNLM_OK;
}
