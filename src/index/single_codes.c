// The codes of a list against one query: one by one until there is a limit, then block by block.
#include "index/single_parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = KN_SINGLE_CHUNK };

// Tables of a list, and what its distances have beside them.
static float make_list_tables(kn_searcher *s, size_t list) {
    const kn_index *x = s->x;
    const float *home = x->centres + list * x->d;
    bool l2 = x->form->norms;
    float beside = 0;
    memcpy(s->residual, s->query, x->d * sizeof *s->residual);
    if (l2 && !x->plain_codes)
        for (size_t j = 0; j < x->d; j++) s->residual[j] -= home[j];
    if (!l2 && !x->plain_codes) beside = -x->k->dot(s->query, home, x->d);
    kn_pq_tables(&x->pq, s->residual, !l2, s->tables);
    return beside + x->form->beside;
}

// ---------------------------------------------------------------- its codes, one by one

// At places (n), n <= CHUNK.
typedef struct chosen {
    size_t n, places[CHUNK];
    uint16_t sums[CHUNK]; // of a scan
    float distances[CHUNK];
} chosen;

static void measure_codes(const kn_searcher *s, const kn_look *l, float beside, chosen *c) {
    kn_pq_sum(&s->x->pq, s->tables, l->run->codes, c->places, c->n, c->distances);
    for (size_t i = 0; i < c->n; i++) c->distances[i] += beside;
}

static void put_chosen(const kn_searcher *s, const kn_look *l, const chosen *c) {
    kn_item items[CHUNK];
    size_t found = 0;
    for (size_t i = 0; i < c->n; i++)
        found += kn_look_admit(s->x, l, c->places[i], c->distances[i], items + found);
    kn_top_put(l->top, items, found);
}

static bool has_limit(kn_top *top) {
    return isfinite(top->limit) || isfinite(kn_top_limit(top));
}

// Until there is a limit, or to the end; where it stopped.
static size_t sum_codes(const kn_searcher *s, const kn_look *l, float beside, bool until_limit) {
    size_t from = l->from;
    chosen c;
    while (from < l->to && !(until_limit && has_limit(l->top))) {
        c.n = kn_min(CHUNK, l->to - from);
        for (size_t i = 0; i < c.n; i++) c.places[i] = from++;
        measure_codes(s, l, beside, &c);
        put_chosen(s, l, &c);
    }
    return from;
}

// ---------------------------------------------------------------- its codes, block by block

// What sums of the 8-bit tables mean.
typedef struct meaning {
    kn_pq_scale scale;
    float beside, limit; // limit: what the tables were made for
    bool exactly;        // they only tell which codes are to be measured
} meaning;

static void make_small_tables(kn_searcher *s, meaning *m, float limit) {
    m->scale = kn_pq_quantize(&s->x->pq, s->tables, limit - m->beside, s->small);
    m->limit = limit;
}

// How far a limit is from the nearest that a code of the list could be.
static double room(const meaning *m, float limit) {
    return (double)limit - (double)m->scale.offset - (double)m->beside;
}

// The largest sum of a code that may be within the limit, rounding included; below 0: there is none.
static double largest_sum(const meaning *m, float limit) {
    float size = fabsf(limit) + fabsf(m->scale.offset) + fabsf(m->beside);
    double slack = 4 * (double)FLT_EPSILON * (double)size + (m->exactly ? (double)m->scale.bound : 0);
    return (room(m, limit) + slack) / (double)m->scale.scale;
}

// Most blocks of a long list have nothing near.
static bool any_within(const uint16_t *sums, uint16_t largest) {
    uint16_t any = 0;
    for (size_t i = 0; i < KN_PQ_BLOCK; i++) any |= (uint16_t)(sums[i] <= largest);
    return any;
}

// Of [first, first + n), places of the list (others may lie in its first and last block) that are near
// enough.
static void choose(const kn_look *l, size_t first, size_t n, const uint16_t *sums, uint16_t largest,
                   chosen *c) {
    c->n = 0;
    for (size_t block = first; block < first + n; block += KN_PQ_BLOCK, sums += KN_PQ_BLOCK) {
        size_t from = kn_max(block, l->from), to = kn_min(block + KN_PQ_BLOCK, l->to);
        if (!any_within(sums, largest)) continue;
        for (size_t place = from; place < to; place++) {
            c->places[c->n] = place;
            c->sums[c->n] = sums[place - block];
            c->n += sums[place - block] <= largest;
        }
    }
}

// The CPU foresees reading that goes on and on, but blocks are read side by side, and each is short.
static void fetch(const uint8_t *codes, size_t size) {
    for (size_t i = 0; i < size; i += 64) __builtin_prefetch(codes + i);
}

// Of [first, end), whole blocks, the first CHUNK places.
static void scan_some(const kn_searcher *s, const kn_look *l, size_t first, size_t end, uint16_t largest,
                      chosen *c) {
    const kn_pq *pq = &s->x->pq;
    size_t bytes = kn_pq_code_bytes(pq), n = kn_min(CHUNK, end - first);
    const uint8_t *codes = l->run->codes + first * bytes;
    uint16_t sums[CHUNK];
    fetch(codes + n * bytes, kn_min(CHUNK, end - first - n) * bytes);
    kn_pq_scan(pq, s->small, codes, n / KN_PQ_BLOCK, sums);
    choose(l, first, n, sums, largest, c);
}

static void measure_sums(const meaning *m, chosen *c) {
    for (size_t i = 0; i < c->n; i++)
        c->distances[i] = m->scale.offset + m->scale.scale * (float)c->sums[i] + m->beside;
}

static void scan_blocks(kn_searcher *s, const kn_look *l, meaning *m) {
    chosen c;
    size_t end = (l->to + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK * KN_PQ_BLOCK;
    for (size_t first = l->from / KN_PQ_BLOCK * KN_PQ_BLOCK; first < end; first += CHUNK) {
        float limit = l->top->limit;
        if (2 * room(m, limit) < room(m, m->limit)) make_small_tables(s, m, limit);
        double largest = largest_sum(m, limit);
        if (largest < 0) return; // the limit only falls
        uint16_t max = largest < UINT16_MAX ? (uint16_t)largest : UINT16_MAX;
        scan_some(s, l, first, end, max, &c);
        if (m->exactly)
            measure_codes(s, l, m->beside, &c);
        else
            measure_sums(m, &c);
        put_chosen(s, l, &c);
    }
}

// Blocks are scanned once there is a limit: without one, 8-bit tables are as coarse as the list is wide. To
// make them takes about as long as to sum as many codes as a table has numbers.
// Roughly is by squared distances alone: the least that a code could have of a product is so far from what
// codes have that the steps of 8 bits are too coarse to tell neighbours apart.
void kn_searcher_scan_codes(kn_searcher *s, const kn_look *l, bool roughly) {
    kn_look rest = *l;
    meaning m = {.beside = make_list_tables(s, l->list), .exactly = !roughly || !s->x->form->norms};
    rest.from = sum_codes(s, l, m.beside, true);
    bool few = rest.to - rest.from < s->x->pq.count;
    if (!few) make_small_tables(s, &m, l->top->limit);
    if (few || !isfinite(m.scale.bound))
        sum_codes(s, &rest, m.beside, false);
    else
        scan_blocks(s, &rest, &m);
}
