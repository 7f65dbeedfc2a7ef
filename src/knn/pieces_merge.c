// The k nearest of what all ranks found, for the rows that a rank owns.
#include "knn/pieces_parts.h"

#include "base/threads.h"
#include "index/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct merging {
    kn_pieces_work *w;
    kn_letter *letters; // (count): what came
    size_t **starts;    // (count): of each row's first neighbour there
    size_t count, most; // most: neighbours of a row in all letters
    bool sorted;
    // What a worker needs.
    size_t stride;
    char *scratch;
    // Where it goes: facts, or neighbours with their entropies.
    kn_row_facts *facts;
    kn_letter out;
    size_t *out_starts;
    double *entropies;
} merging;

// A row's neighbours, put together in a worker's memory.
typedef struct gathered {
    kn_item *items, *sorted; // (most): distance, and place in what follows
    float *distances;        // (most)
    int32_t *values;
    uint64_t *numbers;
    float *near; // (k): the nearest k
    int32_t *near_values;
    uint64_t *near_numbers;
    kn_value_share *shares; // (2 k)
} gathered;

static size_t lay_out(const merging *m, char *base, gathered *g) {
    size_t used = 0, most = m->most, k = m->w->q.o.k;
    g->items = kn_take(base, &used, most * sizeof *g->items);
    g->sorted = kn_take(base, &used, most * sizeof *g->sorted);
    g->distances = kn_take(base, &used, most * sizeof *g->distances);
    g->values = kn_take(base, &used, most * sizeof *g->values);
    g->numbers = kn_take(base, &used, most * sizeof *g->numbers);
    g->near = kn_take(base, &used, k * sizeof *g->near);
    g->near_values = kn_take(base, &used, k * sizeof *g->near_values);
    g->near_numbers = kn_take(base, &used, k * sizeof *g->near_numbers);
    g->shares = kn_take(base, &used, 2 * k * sizeof *g->shares);
    return used;
}

// ---------------------------------------------------------------- the k nearest

static size_t gather(const merging *m, size_t row, gathered *g) {
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++) {
        const kn_letter *l = &m->letters[i];
        size_t at = m->starts[i][row], count = l->counts[row];
        memcpy(g->distances + n, l->distances + at, count * sizeof *g->distances);
        memcpy(g->values + n, l->values + at, count * sizeof *g->values);
        memcpy(g->numbers + n, l->numbers + at, count * sizeof *g->numbers);
        n += count;
    }
    for (size_t i = 0; i < n; i++) g->items[i] = kn_item_make(g->distances[i], (uint32_t)i);
    return n;
}

static bool is_before(const gathered *g, kn_item a, kn_item b) {
    if (a >> 32 != b >> 32) return a < b;
    return g->numbers[kn_item_id(a)] < g->numbers[kn_item_id(b)];
}

static int by_number(const void *a, const void *b, void *context) {
    const gathered *g = context;
    uint64_t x = g->numbers[kn_item_id(*(const kn_item *)a)], y = g->numbers[kn_item_id(*(const kn_item *)b)];
    return (x > y) - (x < y);
}

// The items say nothing of numbers: of those as far as the farthest that was selected, the lowest stay.
static void settle_ties(const gathered *g, size_t n, size_t k, kn_item *selected, kn_item *scratch) {
    uint64_t farthest = 0;
    size_t ties = 0, inside = 0, kept = 0;
    for (size_t i = 0; i < k; i++) farthest = selected[i] >> 32 > farthest ? selected[i] >> 32 : farthest;
    for (size_t i = 0; i < n; i++)
        if (kn_ordered(g->distances[i]) == farthest)
            scratch[ties++] = kn_item_make(g->distances[i], (uint32_t)i);
    for (size_t i = 0; i < k; i++) inside += selected[i] >> 32 == farthest;
    if (inside == ties) return;
    qsort_r(scratch, ties, sizeof *scratch, by_number, (void *)(uintptr_t)g);
    for (size_t i = 0; i < k; i++)
        if (selected[i] >> 32 != farthest) selected[kept++] = selected[i];
    memcpy(selected + kept, scratch, inside * sizeof *selected);
}

// Equal distances by their numbers.
static void sort_all(const gathered *g, size_t n) {
    kn_items_sort(g->items, n, g->sorted);
    for (size_t from = 0, to = 1; to <= n; to++) {
        if (to < n && g->items[to] >> 32 == g->items[from] >> 32) continue;
        if (to - from > 1)
            qsort_r(g->items + from, to - from, sizeof *g->items, by_number, (void *)(uintptr_t)g);
        from = to;
    }
}

static void nearest_first(const gathered *g, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (is_before(g, g->items[i], g->items[best])) best = i;
    kn_item item = g->items[best];
    g->items[best] = g->items[0];
    g->items[0] = item;
}

static size_t select_nearest(const merging *m, size_t n, gathered *g) {
    size_t k = m->w->q.o.k;
    if (n > k) {
        kn_items_select(g->items, n, k);
        settle_ties(g, n, k, g->items, g->sorted);
        n = k;
    }
    if (m->sorted)
        sort_all(g, n);
    else if (n)
        nearest_first(g, n);
    return n;
}

// ---------------------------------------------------------------- a row

static bool begins(const merging *m, size_t row, const gathered *g) {
    for (size_t i = 0; i < m->count; i++) {
        const kn_letter *l = &m->letters[i];
        if (l->counts[row] && l->numbers[m->starts[i][row]] == g->near_numbers[0]) return l->begins[row];
    }
    return false;
}

static void write_out(const merging *m, size_t row, const gathered *g, const kn_row_neighbors *found) {
    size_t at = m->out_starts[row], count = found->near.count;
    m->out.counts[row] = (uint32_t)count;
    m->out.begins[row] = found->begins;
    m->entropies[row] = found->entropy;
    memcpy(m->out.distances + at, g->near, count * sizeof *g->near);
    memcpy(m->out.values + at, g->near_values, count * sizeof *g->near_values);
    memcpy(m->out.numbers + at, g->near_numbers, count * sizeof *g->near_numbers);
}

static void merge_row(void *context, size_t row, int worker) {
    const merging *m = context;
    const kn_measuring *what = &m->w->q.what;
    gathered g;
    lay_out(m, m->scratch + (size_t)worker * m->stride, &g);
    size_t count = select_nearest(m, gather(m, row, &g), &g);
    for (size_t i = 0; i < count; i++) {
        uint32_t place = kn_item_id(g.items[i]);
        g.near[i] = g.distances[place];
        g.near_values[i] = g.values[place];
        g.near_numbers[i] = g.numbers[place];
    }
    kn_row_neighbors found = {.near = {g.near, g.near_values, NULL, count, 0}, .entropy = NAN};
    found.begins = count && begins(m, row, &g);
    if (!isnan(m->w->q.o.temperature))
        found.entropy = kn_neighborhood_entropy(&found.near, m->w->q.o.temperature, g.shares);
    if (m->facts)
        kn_measure_take(&what->measures[what->which[row]], &found, what->targets[row], &m->facts[row]);
    else
        write_out(m, row, &g, &found);
}

// ---------------------------------------------------------------- all of them

// This rank's own letter was not sent.
static knnlm_status take_letters(merging *m) {
    kn_pieces_work *w = m->w;
    for (size_t r = 0; r < w->q.ranks; r++) {
        if (!w->searches[r]) continue;
        kn_message *from = r == w->self ? &w->out[r] : &w->in[r];
        kn_letter *l = &m->letters[m->count];
        size_t *starts = m->starts[m->count++] = kn_alloc(w->own + 1, sizeof *starts);
        if (!starts) return KNNLM_ENOMEM;
        KN_TRY(kn_letter_take(from, w->own, l));
        for (size_t i = 0; i < w->own; i++) starts[i + 1] = starts[i] + l->counts[i];
    }
    for (size_t i = 0; i < w->own; i++) {
        size_t all = 0;
        for (size_t j = 0; j < m->count; j++) all += m->letters[j].counts[i];
        m->most = kn_max(m->most, all);
    }
    return KNNLM_OK;
}

// How many neighbours a row will have is known before: room for all of them, in one piece.
static knnlm_status make_out(merging *m, kn_message *out) {
    const kn_pieces_work *w = m->w;
    size_t all = 0;
    if (w->q.what.count) {
        m->facts = kn_message_room(out, w->own * sizeof *m->facts);
        return kn_message_sent(out);
    }
    m->out_starts = kn_alloc(w->own + 1, sizeof *m->out_starts);
    if (!m->out_starts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < w->own; i++) {
        size_t n = 0;
        for (size_t j = 0; j < m->count; j++) n += m->letters[j].counts[i];
        m->out_starts[i] = all;
        all += kn_min(n, w->q.o.k);
    }
    size_t at = out->size, entropies = w->own * sizeof *m->entropies;
    kn_message_room(out, entropies);
    KN_TRY(kn_letter_make(out, w->own, all, &m->out));
    m->entropies = (double *)(void *)(out->data + at);
    return KNNLM_OK;
}

knnlm_status kn_pieces_merge(kn_pieces_work *w, kn_message *out) {
    merging m = {.w = w, .sorted = !w->q.what.count || !isnan(w->q.o.temperature)};
    m.letters = kn_alloc(w->q.ranks, sizeof *m.letters);
    m.starts = kn_alloc(w->q.ranks, sizeof *m.starts);
    knnlm_status status = m.letters && m.starts ? take_letters(&m) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = make_out(&m, out);
    gathered g;
    static char origin[1]; // only differences matter
    m.stride = lay_out(&m, origin, &g);
    m.scratch = kn_room_make(&w->room_scratch, (size_t)kn_threads(), m.stride);
    if (status == KNNLM_OK && !m.scratch) status = KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_parallel(w->own, merge_row, &m);
    for (size_t i = 0; m.starts && i < m.count; i++) free(m.starts[i]);
    free(m.starts);
    free(m.letters);
    free(m.out_starts);
    return status;
}
