// Searches all shards of a datastore, by the ranks that have them (pieces_parts.h tells how).
#include "knn/pieces.h"
#include "knn/pieces_parts.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CELLS = 1 << 24, // neighbours that a rank finds at a time
    FEW = 64,        // rows a rank: fewer are not worth several rounds
    MANY_RANKS = 8,  // more than those send too much to one owner without limits
};

// ---------------------------------------------------------------- what a rank does

// The memory of a search, kept for the next one.
static struct {
    pthread_mutex_t lock;
    kn_pieces_work *kept;
} works = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void work_free(kn_pieces_work *w) {
    if (!w) return;
    kn_room *rooms[] = {&w->room_states, &w->room_found, &w->room_first,  &w->room_again,
                        &w->room_limits, &w->room_kept,  &w->room_scratch};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) kn_free_aligned(rooms[i]->memory);
    for (size_t r = 0; r < w->room_ranks; r++) {
        kn_message_free(&w->out[r]);
        kn_message_free(&w->in[r]);
    }
    free(w->owns);
    free(w->searches);
    free(w->none);
    free(w->out);
    free(w->in);
    free(w->sent_to);
    free(w->pieces);
    free(w->lists);
    kn_search_scratch_free(&w->scratch);
    free(w);
}

static knnlm_status work_open(kn_pieces_work **out) {
    size_t ranks = (size_t)kn_rank_count();
    kn_pieces_work *w = *out = kn_alloc(1, sizeof *w);
    if (!w) return KNNLM_ENOMEM;
    w->owns = kn_alloc(ranks, sizeof *w->owns);
    w->searches = kn_alloc(ranks, sizeof *w->searches);
    w->none = kn_alloc(ranks, sizeof *w->none);
    w->out = kn_alloc(ranks, sizeof *w->out);
    w->in = kn_alloc(ranks, sizeof *w->in);
    w->sent_to = kn_alloc(ranks, sizeof *w->sent_to);
    if (!w->owns || !w->searches || !w->none || !w->out || !w->in || !w->sent_to) return KNNLM_ENOMEM;
    w->room_ranks = ranks;
    return KNNLM_OK;
}

static knnlm_status work_borrow(kn_pieces_work **out) {
    pthread_mutex_lock(&works.lock);
    *out = works.kept;
    works.kept = NULL;
    pthread_mutex_unlock(&works.lock);
    return *out ? KNNLM_OK : work_open(out);
}

static void work_give_back(kn_pieces_work *w) {
    pthread_mutex_lock(&works.lock);
    kn_pieces_work *before = works.kept;
    works.kept = w;
    pthread_mutex_unlock(&works.lock);
    work_free(before);
}

void kn_pieces_forget(void) {
    work_give_back(NULL);
}

static knnlm_status prepare(kn_pieces_work *w, kn_message *in, const kn_progress *progress) {
    w->self = (size_t)kn_rank();
    w->progress = progress;
    w->sent = 0;
    free(w->lists);
    w->lists = NULL;
    KN_TRY(kn_pieces_take_question(in, w->self, &w->q));
    if (w->q.ranks != w->room_ranks) return kn_fail(KNNLM_EINVAL, "a search by %zu ranks", w->q.ranks);
    w->first = (size_t)w->q.owners[w->self];
    w->own = (size_t)w->q.owners[w->self + 1] - w->first;
    for (size_t r = 0; r < w->q.ranks; r++) {
        w->owns[r] = w->q.owners[r] < w->q.owners[r + 1];
        w->searches[r] = w->q.searchers[r];
    }
    KN_TRY(kn_grow(&w->pieces, &w->room_pieces, w->q.pieces + 1, sizeof *w->pieces));
    for (size_t i = 0; i < w->q.pieces; i++) KN_TRY(kn_open_piece_find(w->q.handles[i], &w->pieces[i]));
    return KNNLM_OK;
}

// Where limits are told, a failure is known to all then; else the owners hear of it at the end.
static knnlm_status work_together(kn_pieces_work *w, kn_message *out) {
    KN_TRY(kn_pieces_share(w));
    knnlm_status status = kn_pieces_limit(w, kn_pieces_find(w));
    if (w->q.limited) KN_TRY(status);
    if (status == KNNLM_OK) status = kn_pieces_find_again(w);
    KN_TRY(kn_pieces_hand_over(w, status));
    kn_message_put_number(out, w->sent);
    return w->own ? kn_pieces_merge(w, out) : KNNLM_OK;
}

static knnlm_status run_search(kn_message *in, kn_message *out, const kn_progress *progress) {
    kn_pieces_work *w;
    knnlm_status status = work_borrow(&w);
    if (status == KNNLM_OK) status = prepare(w, in, progress);
    if (status == KNNLM_OK) status = work_together(w, out);
    if (status == KNNLM_OK)
        work_give_back(w);
    else
        work_free(w);
    return status;
}
const kn_service kn_service_knn_search = {"knn search", run_search};

// ---------------------------------------------------------------- asking

typedef struct asking {
    const kn_datastore *s;
    const kn_retrieve_options *o;
    const float *states;
    const kn_measuring *what;         // NULL: neighbours are wanted,
    kn_retrieved *out;                // which come here;
    kn_row_facts *facts;              // else facts do
    size_t first, n;                  // rows of this search
    size_t ranks, searchers, fullest; // fullest: shards of the rank that has most
    uint64_t *owners, *searches, *handles;
    size_t *shards; // by rank, those of one after those of another
    size_t *starts; // (ranks + 1): first of each rank's there
    kn_entry_range *exclude;
    kn_call *calls;
} asking;

static struct { _Atomic uint64_t queries, bytes; } asked_so_far;

void kn_pieces_asked(uint64_t *queries, uint64_t *bytes) {
    *queries = asked_so_far.queries;
    *bytes = asked_so_far.bytes;
}

static bool is_few(const asking *a) {
    return a->o->singly || a->n < FEW * a->ranks;
}

// Shards that have nothing to be found are not asked.
static void list_shards(asking *a) {
    size_t all = kn_store_shards(a->s->store), n = 0;
    for (size_t r = 0; r < a->ranks; r++) {
        a->starts[r] = n;
        for (size_t i = 0; i < all; i++) {
            if ((size_t)a->s->pieces[i].rank != r || a->s->pieces[i].empty) continue;
            a->handles[n] = a->s->pieces[i].handle;
            a->shards[n++] = i;
        }
        a->searches[r] = n > a->starts[r];
        a->searchers += n > a->starts[r];
        a->fullest = kn_max(a->fullest, n - a->starts[r]);
    }
    a->starts[a->ranks] = n;
}

static void choose_owners(asking *a) {
    bool few = is_few(a);
    for (size_t r = 0; r <= a->ranks; r++) a->owners[r] = few ? (r ? a->n : 0) : a->n * r / a->ranks;
}

// Entries that do not count, as the shards of a rank number them: (shards, n, excludes).
static knnlm_status choose_exclude(asking *a, size_t rank) {
    size_t each = a->o->excludes ? a->o->excludes : 1, shards = a->starts[rank + 1] - a->starts[rank];
    free(a->exclude);
    a->exclude = NULL;
    if (!a->o->exclude) return KNNLM_OK;
    kn_entry_range *at = a->exclude = kn_alloc(shards * a->n * each + 1, sizeof *a->exclude);
    if (!at) return KNNLM_ENOMEM;
    for (size_t s = a->starts[rank]; s < a->starts[rank + 1]; s++)
        for (size_t i = a->first * each; i < (a->first + a->n) * each; i++, at++) {
            const kn_entry_range *r = &a->o->exclude[i];
            if (r->first >= r->end) continue; // what is not filled in is empty
            at->first = kn_store_shard_from(a->s->store, a->shards[s], r->first);
            at->end = kn_store_shard_from(a->s->store, a->shards[s], r->end);
        }
    return KNNLM_OK;
}

static bool is_limited(const asking *a) {
    return a->searchers == 1 ? a->fullest > 1 && !a->o->singly : !is_few(a) || a->searchers > MANY_RANKS;
}

// Half as many again as a shard's share of the k, as shards are not alike, and the spread of small numbers.
// (Of 1024 neighbours in 2 shards of 312,000 entries one search in 1300 was made again, of 85,000 one in 60.)
static size_t share_of(const asking *a) {
    size_t shards = kn_max(1, a->starts[a->ranks]);
    if (!is_limited(a) || a->o->singly) return a->o->k;
    double mean = (double)a->o->k / (double)shards;
    return kn_min(a->o->k, (size_t)(1.5 * mean + 3 * sqrt(mean)) + 8);
}

static kn_pieces_question question_for(const asking *a, size_t rank, uint64_t meeting) {
    size_t each = a->o->excludes ? a->o->excludes : 1;
    bool few = is_few(a);
    kn_pieces_question q = {.meeting = meeting,
                            .ranks = a->ranks,
                            .n = a->n,
                            .width = a->s->width,
                            .o = *a->o,
                            .shared = !few && a->ranks > 1,
                            .limited = is_limited(a),
                            .share = share_of(a),
                            .same_lists = a->s->same_lists,
                            .owners = a->owners,
                            .searchers = a->searches,
                            .pieces = a->starts[rank + 1] - a->starts[rank],
                            .handles = a->handles + a->starts[rank],
                            .exclude = a->exclude,
                            .states = a->states + a->first * a->s->width};
    q.o.excludes = each;
    if (!a->what) return q;
    q.what = *a->what;
    q.what.which += a->first;
    q.what.targets += a->first;
    return q;
}

// Ranks without shards or rows of their own have nothing to do.
static knnlm_status call_all(asking *a) {
    size_t made = 0;
    uint64_t meeting = kn_ranks_meeting();
    knnlm_status status = KNNLM_OK;
    for (size_t r = 0; r < a->ranks && status == KNNLM_OK; r++) {
        if (!a->searches[r] && a->owners[r] == a->owners[r + 1]) continue;
        a->calls[made] = (kn_call){.rank = (int)r, .service = &kn_service_knn_search};
        status = choose_exclude(a, r);
        kn_pieces_question q = question_for(a, r, meeting);
        if (status == KNNLM_OK) kn_pieces_put_question(&a->calls[made].in, &q, r);
        made++;
    }
    if (status == KNNLM_OK) status = kn_ranks_call(a->calls, made, NULL);
    return status;
}

// ---------------------------------------------------------------- what comes back

static void take_row(const asking *a, const kn_letter *l, size_t i, size_t at, size_t row, double entropy) {
    kn_retrieved *out = a->out;
    size_t k = a->o->k, place = row * k, count = l->counts[i];
    memcpy(out->distances + place, l->distances + at, count * sizeof *out->distances);
    memcpy(out->values + place, l->values + at, count * sizeof *out->values);
    memcpy(out->ids + place, l->numbers + at, count * sizeof *out->ids);
    for (size_t j = count; j < k; j++) {
        out->ids[place + j] = UINT32_MAX;
        out->distances[place + j] = INFINITY;
    }
    out->counts[row] = (uint32_t)count;
    out->begins[row] = l->begins[i];
    if (!isnan(a->o->temperature)) out->entropies[row] = entropy;
}

static knnlm_status take_neighbors(const asking *a, kn_message *m, size_t first, size_t rows) {
    const double *entropies = kn_message_view(m, rows * sizeof *entropies);
    kn_letter l;
    KN_TRY(kn_letter_take(m, rows, &l));
    for (size_t i = 0, at = 0; i < rows; at += l.counts[i++]) take_row(a, &l, i, at, first + i, entropies[i]);
    return KNNLM_OK;
}

static knnlm_status take_answer(const asking *a, kn_call *call) {
    size_t first = (size_t)a->owners[call->rank], rows = (size_t)a->owners[call->rank + 1] - first;
    asked_so_far.bytes += kn_message_take_number(&call->out);
    if (call->rank != kn_rank()) asked_so_far.bytes += call->in.size + call->out.size;
    if (!rows) return kn_message_read(&call->out);
    if (!a->what) return take_neighbors(a, &call->out, a->first + first, rows);
    kn_message_take(&call->out, a->facts + a->first + first, rows * sizeof *a->facts);
    return kn_message_read(&call->out);
}

// ---------------------------------------------------------------- the whole

static knnlm_status search_stretch(asking *a) {
    choose_owners(a);
    knnlm_status status = call_all(a);
    asked_so_far.queries += a->n * a->starts[a->ranks];
    for (size_t i = 0; i < a->ranks && a->calls[i].service && status == KNNLM_OK; i++)
        status = take_answer(a, &a->calls[i]);
    kn_calls_free(a->calls, a->ranks);
    memset(a->calls, 0, a->ranks * sizeof *a->calls);
    return status;
}

// A search for nothing is made too: it tells what cannot be searched.
static knnlm_status search_stretches(asking *a, size_t n) {
    a->n = n;
    size_t most = kn_max(1, CELLS / kn_max(1, a->fullest) / kn_max(1, share_of(a)));
    size_t parts = kn_max(1, (n + most - 1) / most), each = (n + parts - 1) / parts;
    do {
        a->n = kn_min(each, n - a->first);
        KN_TRY(search_stretch(a));
        a->first += a->n;
    } while (a->first < n);
    return KNNLM_OK;
}

static knnlm_status search_all(asking *a, size_t n) {
    size_t shards = kn_store_shards(a->s->store);
    a->ranks = (size_t)kn_rank_count();
    a->owners = kn_alloc(a->ranks + 1, sizeof *a->owners);
    a->searches = kn_alloc(a->ranks, sizeof *a->searches);
    a->starts = kn_alloc(a->ranks + 1, sizeof *a->starts);
    a->handles = kn_alloc(shards, sizeof *a->handles);
    a->shards = kn_alloc(shards, sizeof *a->shards);
    a->calls = kn_alloc(a->ranks, sizeof *a->calls);
    bool had = a->owners && a->searches && a->starts && a->handles && a->shards && a->calls;
    if (had) list_shards(a);
    knnlm_status status = had ? search_stretches(a, n) : KNNLM_ENOMEM;
    free(a->owners);
    free(a->searches);
    free(a->starts);
    free(a->handles);
    free(a->shards);
    free(a->calls);
    free(a->exclude);
    return status;
}

knnlm_status kn_pieces_search(const kn_datastore *s, const float *states, size_t n,
                              const kn_retrieve_options *o, kn_retrieved *out) {
    return search_all(&(asking){.s = s, .o = o, .states = states, .out = out}, n);
}

knnlm_status kn_pieces_measure(const kn_datastore *s, const float *states, size_t n,
                               const kn_retrieve_options *o, const kn_measuring *what, kn_row_facts *out) {
    return search_all(&(asking){.s = s, .o = o, .states = states, .what = what, .facts = out}, n);
}
