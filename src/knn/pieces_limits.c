// A limit for each row that the k nearest of all ranks are within, so that little else has to be sent.
#include "knn/pieces_parts.h"

#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

// Of a rank, by the number of its neighbours: distances that so many are within. Mostly a rank has its share
// of the k, so that numbers about that are told more closely.
enum { SAMPLES = 16, BUCKETS = 256 };
static const double shares[SAMPLES] = {.25, .5, .75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 12, 1e9};

typedef struct limiting {
    kn_pieces_work *w;
    uint32_t numbers[SAMPLES]; // of neighbours
    uint32_t *told;            // (n, SAMPLES): what this rank tells; UINT32_MAX: it has fewer
    const uint32_t **heard;    // (ranks): of own rows; NULL: a rank without shards
    uint8_t *next;             // (threads, ranks)
} limiting;

static void choose_numbers(limiting *l) {
    const kn_pieces_question *q = &l->w->q;
    size_t searchers = 0;
    for (size_t r = 0; r < q->ranks; r++) searchers += l->w->searches[r];
    for (size_t i = 0; i < SAMPLES; i++) {
        double number = shares[i] * (double)q->o.k / (double)kn_max(1, searchers);
        l->numbers[i] = number < (double)q->o.k ? (uint32_t)number + 1 : (uint32_t)q->o.k;
        if (l->numbers[i] > q->o.k) l->numbers[i] = (uint32_t)q->o.k;
    }
}

// ---------------------------------------------------------------- what a rank tells

static void range_of(const kn_found_row *found, size_t pieces, uint32_t *min, uint32_t *max) {
    *min = UINT32_MAX;
    *max = 0;
    for (size_t p = 0; p < pieces; p++)
        for (size_t i = 0; i < found[p].count; i++) {
            uint32_t x = kn_ordered(found[p].distances[i]);
            *min = x < *min ? x : *min;
            *max = x > *max ? x : *max;
        }
}

// Counts by buckets: the end of a bucket is a little too far, which is only a looser limit.
static void sample_row(void *context, size_t row, int worker) {
    const limiting *l = context;
    size_t pieces = l->w->q.pieces, next = 0;
    const kn_found_row *found = l->w->found + row * pieces;
    uint32_t counts[BUCKETS] = {0}, min, max, *told = l->told + row * SAMPLES, seen = 0;
    int shift = 0;
    (void)worker;
    range_of(found, pieces, &min, &max);
    while (max >= min && (max - min) >> shift >= BUCKETS) shift++;
    for (size_t p = 0; p < pieces; p++)
        for (size_t i = 0; i < found[p].count; i++)
            counts[(kn_ordered(found[p].distances[i]) - min) >> shift]++;
    for (size_t b = 0; b < BUCKETS && max >= min; b++) {
        uint64_t end = min + ((uint64_t)(b + 1) << shift) - 1;
        seen += counts[b];
        for (; next < SAMPLES && l->numbers[next] <= seen; next++)
            told[next] = end < max ? (uint32_t)end : max;
    }
    for (; next < SAMPLES; next++) told[next] = UINT32_MAX;
}

// ---------------------------------------------------------------- what an owner makes of it

// By the ranks' next distances, the nearest first, until k are within.
static void limit_row(void *context, size_t row, int worker) {
    const limiting *l = context;
    const kn_pieces_work *w = l->w;
    uint8_t *next = l->next + (size_t)worker * w->q.ranks;
    uint32_t limit = 0;
    memset(next, 0, w->q.ranks);
    for (uint64_t within = 0; within < w->q.o.k;) {
        size_t nearest = SIZE_MAX;
        uint32_t distance = UINT32_MAX;
        for (size_t r = 0; r < w->q.ranks; r++) {
            if (!l->heard[r] || next[r] == SAMPLES) continue;
            uint32_t x = l->heard[r][row * SAMPLES + next[r]];
            if (x >= distance) continue;
            distance = x;
            nearest = r;
        }
        if (nearest == SIZE_MAX) {
            limit = UINT32_MAX; // fewer than k in all
            break;
        }
        limit = distance;
        within += l->numbers[next[nearest]] - (next[nearest] ? l->numbers[next[nearest] - 1] : 0);
        next[nearest]++;
    }
    w->limits[w->first + row] = limit;
}

// ---------------------------------------------------------------- the rounds

static knnlm_status tell(limiting *l, knnlm_status status) {
    kn_pieces_work *w = l->w;
    for (size_t r = 0; r < w->q.ranks && status == KNNLM_OK; r++) {
        size_t first = (size_t)w->q.owners[r], rows = (size_t)w->q.owners[r + 1] - first;
        kn_message_clear(&w->out[r]);
        if (w->q.pieces && r != w->self)
            kn_message_put(&w->out[r], l->told + first * SAMPLES, rows * SAMPLES * sizeof *l->told);
        status = kn_message_sent(&w->out[r]);
    }
    return kn_pieces_round(w, KN_TO_OWNERS, false, status);
}

static knnlm_status hear(limiting *l) {
    kn_pieces_work *w = l->w;
    for (size_t r = 0; r < w->q.ranks; r++) {
        if (!w->searches[r]) continue;
        l->heard[r] = r == w->self ? l->told + w->first * SAMPLES
                                   : kn_message_view(&w->in[r], w->own * SAMPLES * sizeof *l->told);
        KN_TRY(kn_message_read(&w->in[r]));
    }
    kn_parallel(w->own, limit_row, l);
    return KNNLM_OK;
}

static knnlm_status settle(limiting *l, knnlm_status status) {
    kn_pieces_work *w = l->w;
    kn_message_clear(&w->out[0]);
    kn_message_put(&w->out[0], w->limits + w->first, w->own * sizeof *w->limits);
    if (status == KNNLM_OK) status = kn_message_sent(&w->out[0]);
    KN_TRY(kn_pieces_round(w, KN_TO_SEARCHERS, true, status));
    for (size_t r = 0; r < w->q.ranks && w->q.pieces; r++) {
        size_t first = (size_t)w->q.owners[r], rows = (size_t)w->q.owners[r + 1] - first;
        if (r != w->self && rows) kn_message_take(&w->in[r], w->limits + first, rows * sizeof *w->limits);
        if (r != w->self && rows) KN_TRY(kn_message_read(&w->in[r]));
    }
    return KNNLM_OK;
}

static knnlm_status limit_all(limiting *l, knnlm_status status) {
    kn_pieces_work *w = l->w;
    if (status == KNNLM_OK && w->q.pieces) kn_parallel(w->q.n, sample_row, l);
    KN_TRY(tell(l, status));
    return settle(l, w->own ? hear(l) : KNNLM_OK);
}

knnlm_status kn_pieces_limit(kn_pieces_work *w, knnlm_status status) {
    limiting l = {.w = w};
    w->limits = kn_room_make(&w->room_limits, w->q.n, sizeof *w->limits);
    if (!w->limits && status == KNNLM_OK) status = KNNLM_ENOMEM;
    if (!w->q.limited) {
        if (status == KNNLM_OK) memset(w->limits, 0xff, w->q.n * sizeof *w->limits);
        return status;
    }
    choose_numbers(&l);
    l.told = kn_room_make(&w->room_kept, w->q.n * SAMPLES, sizeof *l.told);
    l.heard = kn_alloc(w->q.ranks, sizeof *l.heard);
    l.next = kn_alloc((size_t)kn_threads(), w->q.ranks);
    if ((!l.told || !l.heard || !l.next) && status == KNNLM_OK) status = KNNLM_ENOMEM;
    status = limit_all(&l, status);
    free(l.heard);
    free(l.next);
    return status;
}
