// Searches all shards of a datastore, and merges what they found.
//
// Every rank gets the states, searches its shards and answers with the k nearest of each; the k nearest of
// all are merged from those by distance, ties to the lower number. That is what one index of all entries
// finds.
#include "knn/datastore_parts.h"
#include "knn/pieces.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 1 << 24 }; // neighbours that shards answer with at a time

// What a shard found: of query q, places [starts[q], starts[q + 1]).
typedef struct answer {
    size_t shard;
    const uint32_t *counts; // (n)
    const uint8_t *begins;  // (n)
    const float *distances;
    const int32_t *values;
    const uint32_t *ids;
    size_t *starts; // (n + 1)
} answer;

// Where the merging is in a shard's answer.
typedef struct cursor {
    const answer *a;
    size_t at, end;
} cursor;

typedef struct merging {
    const kn_datastore *s;
    const kn_retrieve_options *o;
    answer *answers;
    size_t count, first, n; // first: number of the first query
    cursor *cursors;        // (threads, count)
    float *distances;       // (threads, k), where neighbours are told one by one
    int32_t *values;
    kn_value_share *scratch; // (threads, 2 k); NULL: entropies are not wanted
    kn_retrieved *out;       // NULL: told to
    kn_retrieved_sink *sink;
    void *context;
} merging;

// ---------------------------------------------------------------- asking

// Entries that do not count, as the shard numbers them.
static void put_exclude(kn_message *in, const kn_datastore *s, size_t shard, const kn_retrieve_options *o,
                        size_t first, size_t n) {
    size_t each = o->excludes ? o->excludes : 1;
    kn_message_put_number(in, o->exclude ? each : 0);
    for (size_t i = first * each; o->exclude && i < (first + n) * each; i++) {
        const kn_entry_range *r = &o->exclude[i];
        bool any = r->first < r->end;
        kn_message_put_number(in, any ? kn_store_shard_from(s->store, shard, r->first) : 0);
        kn_message_put_number(in, any ? kn_store_shard_from(s->store, shard, r->end) : 0);
    }
}

static void put_request(kn_message *in, const kn_datastore *s, size_t shard, const float *states,
                        size_t first, size_t n, const kn_retrieve_options *o) {
    kn_message_put_number(in, s->pieces[shard].handle);
    kn_message_put_number(in, n);
    kn_message_put_number(in, o->k);
    kn_message_put_number(in, o->probes);
    kn_message_put_number(in, (uint64_t)(o->codes ? 1 : 0) | (o->singly ? 2 : 0));
    kn_message_put_number(in, o->memory);
    put_exclude(in, s, shard, o, first, n);
    kn_message_put(in, states + first * s->width, n * s->width * sizeof *states);
}

static knnlm_status take_answer(answer *a, kn_message *out, size_t n) {
    a->counts = kn_message_view(out, n * sizeof *a->counts);
    a->begins = kn_message_view(out, n);
    KN_TRY(kn_message_read(out));
    a->starts = kn_alloc(n + 1, sizeof *a->starts);
    if (!a->starts) return KNNLM_ENOMEM;
    for (size_t q = 0; q < n; q++) a->starts[q + 1] = a->starts[q] + a->counts[q];
    size_t padding = (8 - out->taken % 8) % 8, all = a->starts[n];
    kn_message_view(out, padding);
    a->distances = kn_message_view(out, all * sizeof *a->distances);
    a->values = kn_message_view(out, all * sizeof *a->values);
    a->ids = kn_message_view(out, all * sizeof *a->ids);
    return kn_message_read(out);
}

// ---------------------------------------------------------------- merging

static bool is_before(const kn_datastore *s, const cursor *a, const cursor *b) {
    float x = a->a->distances[a->at], y = b->a->distances[b->at];
    if (x != y) return x < y;
    return kn_store_shard_entry(s->store, a->a->shard, a->a->ids[a->at]) <
           kn_store_shard_entry(s->store, b->a->shard, b->a->ids[b->at]);
}

// A heap whose first is the nearest.
static void sift(const kn_datastore *s, cursor *heap, size_t count, size_t at) {
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (is_before(s, &heap[child], &heap[least])) least = child;
        if (least == at) return;
        cursor swapped = heap[at];
        heap[at] = heap[least];
        heap[least] = swapped;
        at = least;
    }
}

// The k nearest of a query; `ids` NULL: not wanted. Returns how many; *begins: the nearest begins a document.
static size_t merge(const merging *m, size_t q, cursor *heap, float *distances, int32_t *values,
                    uint64_t *ids, bool *begins) {
    const kn_datastore *s = m->s;
    size_t live = 0, found = 0;
    for (size_t i = 0; i < m->count; i++)
        if (m->answers[i].counts[q])
            heap[live++] = (cursor){&m->answers[i], m->answers[i].starts[q], m->answers[i].starts[q + 1]};
    for (size_t i = live / 2; i-- > 0;) sift(s, heap, live, i);
    *begins = live && heap->a->begins[q];
    for (; live && found < m->o->k; found++) {
        const answer *a = heap->a;
        distances[found] = a->distances[heap->at];
        values[found] = a->values[heap->at];
        if (ids) ids[found] = kn_store_shard_entry(s->store, a->shard, a->ids[heap->at]);
        if (++heap->at == heap->end) *heap = heap[--live];
        sift(s, heap, live, 0);
    }
    return found;
}

static double entropy_of(const merging *m, const kn_neighborhood *n, int worker) {
    if (!m->scratch) return NAN;
    return kn_neighborhood_entropy(n, m->o->temperature, m->scratch + (size_t)worker * 2 * m->o->k);
}

static void merge_query(void *context, size_t q, int worker) {
    const merging *m = context;
    size_t k = m->o->k, row = (m->first + q) * k;
    cursor *heap = m->cursors + (size_t)worker * m->count;
    float *distances = m->out ? m->out->distances + row : m->distances + (size_t)worker * k;
    int32_t *values = m->out ? m->out->values + row : m->values + (size_t)worker * k;
    kn_row_neighbors found = {.near = {distances, values, NULL, 0, 0}};
    found.near.count = merge(m, q, heap, distances, values, m->out ? m->out->ids + row : NULL, &found.begins);
    found.entropy = entropy_of(m, &found.near, worker);
    if (!m->out) {
        m->sink(m->context, m->first + q, &found);
        return;
    }
    for (size_t i = found.near.count; i < k; i++) {
        m->out->ids[row + i] = UINT32_MAX;
        distances[i] = INFINITY;
    }
    m->out->counts[m->first + q] = (uint32_t)found.near.count;
    m->out->begins[m->first + q] = found.begins;
    if (m->scratch) m->out->entropies[m->first + q] = found.entropy;
}

// ---------------------------------------------------------------- the whole

static struct { _Atomic uint64_t queries, bytes; } asked_so_far;

void kn_pieces_asked(uint64_t *queries, uint64_t *bytes) {
    *queries = asked_so_far.queries;
    *bytes = asked_so_far.bytes;
}

static knnlm_status search_stretch(merging *m, const float *states) {
    const kn_datastore *s = m->s;
    size_t shards = kn_store_shards(s->store), asked = 0;
    kn_call *calls = kn_alloc(shards, sizeof *calls);
    if (!calls) return KNNLM_ENOMEM;
    for (size_t i = 0; i < shards; i++) {
        if (s->pieces[i].empty) continue;
        m->answers[asked] = (answer){.shard = i};
        calls[asked] = (kn_call){.rank = s->pieces[i].rank, .service = &kn_service_knn_search};
        put_request(&calls[asked++].in, s, i, states, m->first, m->n, m->o);
    }
    m->count = asked;
    knnlm_status status = kn_ranks_call(calls, asked, NULL);
    for (size_t i = 0; i < asked && status == KNNLM_OK; i++) {
        asked_so_far.queries += m->n;
        asked_so_far.bytes += calls[i].in.size + calls[i].out.size;
        status = take_answer(&m->answers[i], &calls[i].out, m->n);
    }
    if (status == KNNLM_OK) kn_parallel(m->n, merge_query, m);
    for (size_t i = 0; i < asked; i++) free(m->answers[i].starts);
    kn_calls_free(calls, asked);
    free(calls);
    return status;
}

static knnlm_status make_room(merging *m) {
    size_t shards = kn_store_shards(m->s->store), threads = (size_t)kn_threads(), k = m->o->k;
    m->answers = kn_alloc(shards, sizeof *m->answers);
    m->cursors = kn_alloc(threads * shards, sizeof *m->cursors);
    if (!m->answers || !m->cursors) return KNNLM_ENOMEM;
    if (!m->out) {
        m->distances = kn_alloc(threads * k, sizeof *m->distances);
        m->values = kn_alloc(threads * k, sizeof *m->values);
        if (!m->distances || !m->values) return KNNLM_ENOMEM;
    }
    if (isnan(m->o->temperature)) return KNNLM_OK;
    m->scratch = kn_alloc(threads * 2 * k, sizeof *m->scratch);
    return m->scratch ? KNNLM_OK : KNNLM_ENOMEM;
}

// A search for nothing is made too: it tells what cannot be searched.
static knnlm_status search_all(merging *m, const float *states, size_t n) {
    size_t most = kn_max(1, CELLS / kn_store_shards(m->s->store) / kn_max(1, m->o->k));
    knnlm_status status = make_room(m);
    do {
        m->n = kn_min(most, n - m->first);
        if (status == KNNLM_OK) status = search_stretch(m, states);
        m->first += m->n;
    } while (status == KNNLM_OK && m->first < n);
    free(m->answers);
    free(m->cursors);
    free(m->distances);
    free(m->values);
    free(m->scratch);
    return status;
}

knnlm_status kn_pieces_search(const kn_datastore *s, const float *states, size_t n,
                              const kn_retrieve_options *o, kn_retrieved *out) {
    return search_all(&(merging){.s = s, .o = o, .out = out}, states, n);
}

knnlm_status kn_pieces_search_each(const kn_datastore *s, const float *states, size_t n,
                                   const kn_retrieve_options *o, kn_retrieved_sink *sink, void *context) {
    return search_all(&(merging){.s = s, .o = o, .sink = sink, .context = context}, states, n);
}
