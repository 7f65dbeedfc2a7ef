// What a rank finds in its own shards.
#include "knn/pieces_parts.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
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

// By the lists of the first shard here, which are those of all.
static knnlm_status find_lists(kn_pieces_work *w, const float *states, size_t n, uint32_t **out) {
    const kn_datastore *s = w->pieces[0].store;
    float *projected;
    *out = NULL;
    KN_TRY(kn_datastore_project(s, states, n, &projected));
    knnlm_status status = kn_datastore_probe(s, projected ? projected : states, n, &w->q.o, out, &w->probes);
    kn_free_aligned(projected);
    return status;
}

// Where every rank has a shard, it finds the lists of its own rows.
static bool share_lists(const kn_pieces_work *w) {
    bool all = w->q.same_lists && w->q.shared;
    for (size_t r = 0; r < w->q.ranks; r++) all &= w->searches[r];
    return all;
}

static knnlm_status put_own(kn_pieces_work *w) {
    uint32_t *lists = NULL;
    knnlm_status status = share_lists(w) ? find_lists(w, w->q.states, w->own, &lists) : KNNLM_OK;
    kn_message_clear(&w->out[0]);
    kn_message_put_padded(&w->out[0], w->q.states, w->own * w->q.width * sizeof *w->q.states);
    if (lists) kn_message_put(&w->out[0], lists, w->own * w->probes * sizeof *lists);
    free(lists);
    return status == KNNLM_OK ? kn_message_sent(&w->out[0]) : status;
}

static knnlm_status take_shared(kn_pieces_work *w, float *states) {
    const kn_pieces_question *q = &w->q;
    bool lists = share_lists(w) && w->probes;
    if (lists && !(w->lists = kn_alloc(q->n * w->probes, sizeof *w->lists))) return KNNLM_ENOMEM;
    for (size_t r = 0; r < q->ranks; r++) {
        kn_message *from = r == w->self ? &w->out[0] : &w->in[r];
        size_t first = (size_t)q->owners[r], rows = (size_t)q->owners[r + 1] - first;
        if (!rows) continue;
        const void *view = kn_message_view_padded(from, rows * q->width * sizeof *states);
        if (view) memcpy(states + first * q->width, view, rows * q->width * sizeof *states);
        if (lists) kn_message_take(from, w->lists + first * w->probes, rows * w->probes * sizeof *w->lists);
        KN_TRY(kn_message_read(from));
    }
    return KNNLM_OK;
}

// Every owner sends its rows to all who search.
knnlm_status kn_pieces_share(kn_pieces_work *w) {
    kn_pieces_question *q = &w->q;
    if (!q->shared) return KNNLM_OK;
    float *states = kn_room_make(&w->room_states, q->n * q->width, sizeof *states);
    KN_TRY(kn_pieces_round(w, KN_TO_SEARCHERS, true, states ? put_own(w) : KNNLM_ENOMEM));
    if (q->pieces) KN_TRY(take_shared(w, states));
    q->states = states;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- searching

// A search of one shard, for all rows or some of them.
typedef struct keeping {
    kn_pieces_work *w;
    size_t piece, k;
    const uint32_t *rows; // numbers of the queries' rows; NULL: all of them
    float *distances;     // where results go: (queries, k)
    uint32_t *ids;
} keeping;

static size_t row_of(const keeping *x, size_t query) {
    return x->rows ? x->rows[query] : query;
}

static void keep(void *context, size_t query, const uint32_t *ids, const float *distances, size_t count,
                 int worker) {
    const keeping *x = context;
    float *to = x->distances + query * x->k;
    uint32_t *ids_to = x->ids + query * x->k;
    (void)worker;
    memcpy(to, distances, count * sizeof *distances);
    memcpy(ids_to, ids, count * sizeof *ids);
    x->w->found[row_of(x, query) * x->w->q.pieces + x->piece] = (kn_found_row){to, ids_to, (uint32_t)count};
}

static knnlm_status find_singly(keeping *x, const kn_datastore *s, const float *states, size_t n,
                                const kn_retrieve_options *o) {
    kn_retrieved found;
    KN_TRY(kn_retrieved_init(&found, n, o->k));
    knnlm_status status = kn_datastore_search(s, states, n, o, &found);
    for (size_t q = 0; q < n && status == KNNLM_OK; q++)
        keep(x, q, found.found + q * o->k, found.distances + q * o->k, found.counts[q], 0);
    kn_retrieved_free(&found);
    return status;
}

static knnlm_status find_many(keeping *x, const kn_datastore *s, const float *states, size_t n,
                              const kn_retrieve_options *o, const uint32_t *lists) {
    float *projected;
    KN_TRY(kn_datastore_project(s, states, n, &projected));
    knnlm_status status = kn_datastore_search_as(s, projected ? projected : states, n, o,
                                                 &(kn_search_telling){keep, x, true, lists});
    kn_free_aligned(projected);
    return status;
}

// `exclude` and `lists` are of these n rows.
static knnlm_status find_in(keeping *x, const float *states, size_t n, const kn_entry_range *exclude,
                            const uint32_t *lists) {
    kn_retrieve_options o = x->w->q.o;
    const kn_datastore *s = x->w->pieces[x->piece].store;
    o.k = x->k;
    o.scratch = &x->w->scratch;
    o.exclude = exclude;
    o.temperature = NAN; // entropies are of all shards together
    return o.singly ? find_singly(x, s, states, n, &o) : find_many(x, s, states, n, &o, lists);
}

// Distances and ids of so many searches, in one piece of memory.
static knnlm_status results_room(kn_room *room, size_t cells, keeping *x) {
    x->distances = kn_room_make(room, cells, sizeof *x->distances + sizeof *x->ids);
    x->ids = x->distances ? (uint32_t *)(void *)(x->distances + cells) : NULL;
    return x->distances ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_pieces_find(kn_pieces_work *w) {
    const kn_pieces_question *q = &w->q;
    keeping x = {.w = w, .k = q->share};
    size_t cells, one;
    if (!kn_mul(q->n, q->share, &one) || !kn_mul(one, q->pieces, &cells))
        return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    w->found = kn_room_make(&w->room_found, q->n * q->pieces, sizeof *w->found);
    if (!w->found) return KNNLM_ENOMEM;
    KN_TRY(results_room(&w->room_first, cells, &x));
    if (q->same_lists && !w->lists && q->pieces > 1 && !q->o.singly)
        KN_TRY(find_lists(w, q->states, q->n, &w->lists));
    for (x.piece = 0; x.piece < q->pieces; x.piece++, x.distances += one, x.ids += one)
        KN_TRY(find_in(&x, q->states, q->n, q->exclude ? q->exclude + x.piece * q->n * q->o.excludes : NULL,
                       w->lists));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- once more

// Whether a shard may have more within the limit than it was searched for.
static bool is_cut_off(const kn_pieces_work *w, size_t row, size_t piece) {
    const kn_found_row *found = &w->found[row * w->q.pieces + piece];
    uint32_t farthest = 0;
    if (found->count < w->q.share) return false;
    for (size_t i = 0; i < found->count; i++) {
        uint32_t x = kn_ordered(found->distances[i]);
        farthest = x > farthest ? x : farthest;
    }
    return farthest <= w->limits[row];
}

typedef struct cutting {
    kn_pieces_work *w;
    bool *cut_off; // (n, pieces)
} cutting;

static void mark_row(void *context, size_t row, int worker) {
    const cutting *c = context;
    size_t pieces = c->w->q.pieces;
    (void)worker;
    for (size_t p = 0; p < pieces; p++) c->cut_off[row * pieces + p] = is_cut_off(c->w, row, p);
}

// Some rows of an array of all.
static void *pick_rows(const uint32_t *rows, size_t n, const void *all, size_t size) {
    char *out = all ? kn_alloc(n, size) : NULL;
    for (size_t i = 0; out && i < n; i++) memcpy(out + i * size, (const char *)all + rows[i] * size, size);
    return out;
}

static knnlm_status find_rows(keeping *x, size_t n) {
    const kn_pieces_question *q = &x->w->q;
    const kn_entry_range *exclude = q->exclude ? q->exclude + x->piece * q->n * q->o.excludes : NULL;
    float *states = pick_rows(x->rows, n, q->states, q->width * sizeof *states);
    kn_entry_range *some = pick_rows(x->rows, n, exclude, q->o.excludes * sizeof *some);
    uint32_t *lists = pick_rows(x->rows, n, x->w->lists, x->w->probes * sizeof *lists);
    bool had = states && (some || !exclude) && (lists || !x->w->lists);
    knnlm_status status = had ? find_in(x, states, n, some, lists) : KNNLM_ENOMEM;
    free(states);
    free(some);
    free(lists);
    return status;
}

static knnlm_status find_marked(kn_pieces_work *w, const bool *cut_off, size_t marked, uint32_t *rows) {
    keeping x = {.w = w, .k = w->q.o.k, .rows = rows};
    KN_TRY(results_room(&w->room_again, marked * x.k, &x));
    for (; x.piece < w->q.pieces; x.piece++) {
        size_t n = 0;
        for (size_t row = 0; row < w->q.n; row++)
            if (cut_off[row * w->q.pieces + x.piece]) rows[n++] = (uint32_t)row;
        if (n) KN_TRY(find_rows(&x, n));
        x.distances += n * x.k;
        x.ids += n * x.k;
    }
    return KNNLM_OK;
}

knnlm_status kn_pieces_find_again(kn_pieces_work *w) {
    size_t places = w->q.n * w->q.pieces, marked = 0;
    if (w->q.share >= w->q.o.k || !places) return KNNLM_OK;
    cutting c = {w, kn_alloc(places, sizeof *c.cut_off)};
    uint32_t *rows = kn_alloc(w->q.n, sizeof *rows);
    knnlm_status status = c.cut_off && rows ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_parallel(w->q.n, mark_row, &c);
    for (size_t i = 0; i < places && status == KNNLM_OK; i++) marked += c.cut_off[i];
    if (marked) status = find_marked(w, c.cut_off, marked, rows);
    free(c.cut_off);
    free(rows);
    return status;
}
