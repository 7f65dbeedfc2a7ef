// Measures the rows that a mask names, and gathers those near enough.
#include "index/search_parts.h"

static uint32_t number_of(const kn_gathering *g, size_t q) {
    return g->queries ? g->queries[q] : (uint32_t)(g->first + q);
}

// ---------------------------------------------------------------- measuring

static float measure(const kn_search_batch *b, const kn_run *run, size_t place, uint32_t query) {
    const kn_index *x = b->x;
    const uint8_t *row = run->rows + place * x->row_bytes;
    float distance;
    if (b->whole)
        kn_index_measure_integers(x, b->whole + query * kn_index_stride(x), &b->terms[query], row,
                                  run->scales + place, 1, &distance);
    else
        x->k->row_distances(&distance, b->queries + query * x->d, row, x->type, 1, x->d, false);
    return distance;
}

// Rows that survive lie far apart: the CPU has to be told of them.
static void prefetch(const kn_index *x, const kn_run *run, size_t place) {
    const uint8_t *row = run->rows + place * x->row_bytes;
    for (size_t i = 0; i < x->row_bytes; i += 64) __builtin_prefetch(row + i);
}

// Bounds and places become distances and entries.
static void measure_items(const kn_search_batch *b, kn_gathering *g, size_t q) {
    enum { AHEAD = 2 };
    kn_item *items = g->items[q];
    uint32_t query = number_of(g, q), kept = 0;
    for (uint32_t i = 0; i < g->counts[q]; i++) {
        uint32_t place = kn_item_id(items[i]);
        if (i + AHEAD < g->counts[q]) prefetch(b->x, g->run, kn_item_id(items[i + AHEAD]));
        float distance = measure(b, g->run, place, query);
        items[kept] = kn_item_make(distance, kn_run_id(g->run, place));
        kept += distance <= g->limits[q];
    }
    g->counts[q] = kept;
}

// Those of the rows that the mask names which are near enough.
static uint32_t measure_rows(const kn_search_batch *b, const kn_gathering *g, size_t q, size_t place,
                             float *distances, uint32_t mask) {
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned r = (unsigned)__builtin_ctz(rest);
        distances[r] = measure(b, g->run, place + r, number_of(g, q));
        if (!(distances[r] <= g->limits[q])) mask &= ~((uint32_t)1 << r);
    }
    return mask;
}

// ---------------------------------------------------------------- gathering

static void hand_over(kn_search_batch *b, kn_gathering *g, size_t q) {
    kn_top *t = &b->tops[number_of(g, q)];
    if (g->rough && g->stride <= 1) measure_items(b, g, q);
    if (g->counts[q]) {
        kn_top_put_shared(t, g->items[q], g->counts[q]);
        g->counts[q] = 0;
    }
    g->limits[q] = atomic_load_explicit(&t->limit, memory_order_relaxed);
}

void kn_gather_begin(kn_search_batch *b, kn_gathering *g) {
    for (size_t q = 0; q < g->n; q++) {
        g->counts[q] = 0;
        hand_over(b, g, q);
    }
}

void kn_gather_end(kn_search_batch *b, kn_gathering *g) {
    for (size_t q = 0; q < g->n; q++)
        if (g->counts[q]) hand_over(b, g, q);
}

static bool is_filtered(const kn_search_batch *b) {
    return b->x->removed || b->o->allowed || b->o->exclude;
}

// Of the rows that the mask names, those which the query may find.
static uint32_t admitted(const kn_search_batch *b, const kn_gathering *g, size_t place, uint32_t query,
                         uint32_t mask) {
    if (!is_filtered(b)) return mask;
    size_t number = kn_batch_number(b, query), stride = kn_max(1, g->stride);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned r = (unsigned)__builtin_ctz(rest);
        if (!kn_index_admits(b->x, b->o, number, kn_run_id(g->run, place + r * stride)))
            mask &= ~((uint32_t)1 << r);
    }
    return mask;
}

void kn_gather(kn_search_batch *b, kn_gathering *g, size_t q, size_t place, float *distances, uint32_t mask,
               uint32_t doubted) {
    const kn_run *run = g->run;
    kn_item *room = g->items[q] + g->counts[q];
    mask = admitted(b, g, place, number_of(g, q), mask);
    doubted &= mask;
    if (doubted) mask = (mask & ~doubted) | measure_rows(b, g, q, place, distances, doubted);
    if (g->rough || g->stride > 1)
        g->counts[q] += (uint32_t)b->x->k->rank(room, distances, mask, NULL, (uint32_t)place, UINT32_MAX);
    else
        g->counts[q] += (uint32_t)b->x->k->rank(room, distances, mask, run->ids ? run->ids + place : NULL,
                                                run->first_id + (uint32_t)place, (uint32_t)b->x->entries);
    if (g->counts[q] >= KN_GATHERED) hand_over(b, g, q);
}

void kn_gather_ranked(kn_search_batch *b, kn_gathering *g, size_t q, size_t count) {
    kn_item *items = g->items[q] + g->counts[q];
    size_t kept = is_filtered(b) ? 0 : count;
    for (size_t i = 0, number = kn_batch_number(b, number_of(g, q)); i < count && is_filtered(b); i++) {
        items[kept] = items[i];
        kept += kn_index_admits(b->x, b->o, number, kn_item_id(items[i]));
    }
    g->counts[q] += (uint32_t)kept;
    if (g->counts[q] >= KN_GATHERED) hand_over(b, g, q);
}
