// One query at a time: the lists nearest to it, row by row, by one thread and without allocating.
#include "index/view.h"

#include "index/top.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 256, // rows measured before they are looked at: some whole blocks of codes
    // Codes come first when there are this many times more candidates than neighbours wanted; this many times
    // the neighbours are then measured exactly.
    CODES_FROM = 16,
    CODES_KEEP = 4,
};

struct kn_searcher {
    const kn_index *x;
    size_t k_most;
    float *query, *residual, *tables, *rows; // rows: CHUNK of them, decoded
    uint8_t *small;                          // the tables in 8 bits
    uint32_t *lists;
    float *near; // distances of lists
    void *probe; // memory of the quantizer
    kn_item *items, *candidates;
    kn_top top;
};

// Memory for codes, where there are any.
static bool make_tables(kn_searcher *s) {
    const kn_index *x = s->x;
    if (!x->has_pq) return true;
    s->residual = kn_alloc_aligned(x->d, sizeof *s->residual);
    s->tables = kn_alloc_aligned(x->pq.m * x->pq.count, sizeof *s->tables);
    s->small = kn_alloc_aligned(kn_pq_small_bytes(&x->pq), sizeof *s->small);
    s->rows = kn_alloc_aligned(CHUNK * x->d, sizeof *s->rows);
    s->candidates = kn_alloc_aligned(kn_top_capacity(CODES_KEEP * s->k_most), sizeof *s->candidates);
    return s->residual && s->tables && s->small && s->rows && s->candidates;
}

knnlm_status kn_searcher_open(const kn_index *x, size_t k_most, kn_searcher **out) {
    kn_searcher *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->x = x;
    s->k_most = k_most;
    s->query = kn_alloc_aligned(x->d, sizeof *s->query);
    s->lists = kn_alloc(x->info.lists, sizeof *s->lists);
    s->near = kn_alloc(x->info.lists, sizeof *s->near);
    s->probe = kn_alloc_aligned(1, x->quantizer ? kn_quantizer_scratch_bytes(x->quantizer) : 1);
    s->items = kn_alloc_aligned(kn_top_capacity(k_most), sizeof *s->items);
    if (s->query && s->lists && s->near && s->probe && s->items && make_tables(s)) {
        *out = s;
        return KNNLM_OK;
    }
    kn_searcher_close(s);
    return KNNLM_ENOMEM;
}

void kn_searcher_close(kn_searcher *s) {
    if (!s) return;
    kn_free_aligned(s->query);
    kn_free_aligned(s->residual);
    kn_free_aligned(s->tables);
    kn_free_aligned(s->small);
    kn_free_aligned(s->rows);
    kn_free_aligned(s->probe);
    kn_free_aligned(s->items);
    kn_free_aligned(s->candidates);
    free(s->lists);
    free(s->near);
    free(s);
}

// ---------------------------------------------------------------- distances

static void measure(const kn_index *x, const float *query, const void *rows, kn_row_type type,
                    const float *scales, size_t n, float *distances) {
    float norms[CHUNK];
    x->k->row_distances(distances, query, rows, type, scales, n, x->d, x->distance != KN_DISTANCE_L2);
    if (x->distance == KN_DISTANCE_IP)
        for (size_t i = 0; i < n; i++) distances[i] = -distances[i];
    if (x->distance != KN_DISTANCE_COSINE) return;
    x->k->row_distances(norms, x->zero, rows, type, scales, n, x->d, false);
    for (size_t i = 0; i < n; i++) distances[i] = 1 - (norms[i] > 0 ? distances[i] / sqrtf(norms[i]) : 0);
}

static void measure_rows(const kn_searcher *s, const kn_run *r, size_t place, size_t n, float *distances) {
    measure(s->x, s->query, r->rows + place * s->x->row_bytes, s->x->type,
            r->scales ? r->scales + place : NULL, n, distances);
}

// Tables of a list, and what its distances have beside them.
static float make_list_tables(kn_searcher *s, size_t list) {
    const kn_index *x = s->x;
    const float *home = x->centres + list * x->d;
    bool l2 = x->distance == KN_DISTANCE_L2;
    float beside = 0;
    memcpy(s->residual, s->query, x->d * sizeof *s->residual);
    if (l2 && !x->plain_codes)
        for (size_t j = 0; j < x->d; j++) s->residual[j] -= home[j];
    if (!l2 && !x->plain_codes) beside = -x->k->dot(s->query, home, x->d);
    kn_pq_tables(&x->pq, s->residual, !l2, s->tables);
    return beside + (x->distance == KN_DISTANCE_COSINE ? 1 : 0);
}

// Without keys, cosine is of the decoded vector, whose length is not 1.
static void measure_decoded(kn_searcher *s, const kn_run *r, size_t list, size_t place, size_t n,
                            float *distances) {
    kn_index_decode(s->x, r, list, s->x->zero, place, n, s->rows);
    measure(s->x, s->query, s->rows, KN_ROWS_F32, NULL, n, distances);
}

// ---------------------------------------------------------------- a list

// How rows are measured: by their keys, by their codes (as well as 8-bit tables can: roughly), or by what the
// codes stand for.
typedef enum by { BY_KEYS, BY_CODES, BY_CODES_ROUGHLY, BY_DECODED } by;

// Places [from, to) of a run, which are a list of it, and what is looked for there.
typedef struct look {
    const kn_search_options *o;
    const kn_run *run;
    size_t list, from, to;
    uint64_t base; // NO_BASE: items name entries; else places, counted from it
    kn_top *top;
} look;
#define NO_BASE UINT64_MAX

// How many items the entry at `place` makes: one or none.
static size_t admit(const kn_index *x, const look *l, size_t place, float distance, kn_item *item) {
    if (!(distance <= l->top->limit)) return 0;
    uint32_t id = kn_run_id(l->run, place);
    if (!kn_index_admits(x, l->o, 0, id)) return 0;
    *item = kn_item_make(distance, l->base == NO_BASE ? id : (uint32_t)(l->base + place));
    return 1;
}

static void scan_rows(kn_searcher *s, const look *l, bool decoded) {
    float distances[CHUNK];
    kn_item items[CHUNK];
    for (size_t place = l->from; place < l->to; place += CHUNK) {
        size_t n = kn_least(CHUNK, l->to - place), found = 0;
        if (decoded)
            measure_decoded(s, l->run, l->list, place, n, distances);
        else
            measure_rows(s, l->run, place, n, distances);
        for (size_t i = 0; i < n; i++) found += admit(s->x, l, place + i, distances[i], items + found);
        kn_top_put(l->top, items, found);
    }
}

// ---------------------------------------------------------------- its codes, one by one

// At places (n), n <= CHUNK.
typedef struct chosen {
    size_t n, places[CHUNK];
    uint16_t sums[CHUNK]; // of a scan
    float distances[CHUNK];
} chosen;

static void measure_codes(const kn_searcher *s, const look *l, float beside, chosen *c) {
    kn_pq_sum(&s->x->pq, s->tables, l->run->codes, c->places, c->n, c->distances);
    for (size_t i = 0; i < c->n; i++) c->distances[i] += beside;
}

static void put_chosen(const kn_searcher *s, const look *l, const chosen *c) {
    kn_item items[CHUNK];
    size_t found = 0;
    for (size_t i = 0; i < c->n; i++) found += admit(s->x, l, c->places[i], c->distances[i], items + found);
    kn_top_put(l->top, items, found);
}

static bool has_limit(kn_top *top) {
    return isfinite(top->limit) || isfinite(kn_top_limit(top));
}

// Until there is a limit, or to the end; where it stopped.
static size_t sum_codes(const kn_searcher *s, const look *l, float beside, bool until_limit) {
    size_t from = l->from;
    chosen c;
    while (from < l->to && !(until_limit && has_limit(l->top))) {
        c.n = kn_least(CHUNK, l->to - from);
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
static void choose(const look *l, size_t first, size_t n, const uint16_t *sums, uint16_t largest, chosen *c) {
    c->n = 0;
    for (size_t block = first; block < first + n; block += KN_PQ_BLOCK, sums += KN_PQ_BLOCK) {
        size_t from = kn_most(block, l->from), to = kn_least(block + KN_PQ_BLOCK, l->to);
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
static void scan_some(const kn_searcher *s, const look *l, size_t first, size_t end, uint16_t largest,
                      chosen *c) {
    const kn_pq *pq = &s->x->pq;
    size_t bytes = kn_pq_code_bytes(pq), n = kn_least(CHUNK, end - first);
    const uint8_t *codes = l->run->codes + first * bytes;
    uint16_t sums[CHUNK];
    fetch(codes + n * bytes, kn_least(CHUNK, end - first - n) * bytes);
    kn_pq_scan(pq, s->small, codes, n / KN_PQ_BLOCK, sums);
    choose(l, first, n, sums, largest, c);
}

static void measure_sums(const meaning *m, chosen *c) {
    for (size_t i = 0; i < c->n; i++)
        c->distances[i] = m->scale.offset + m->scale.scale * (float)c->sums[i] + m->beside;
}

static void scan_blocks(kn_searcher *s, const look *l, meaning *m) {
    chosen c;
    size_t end = (l->to + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK * KN_PQ_BLOCK;
    for (size_t first = l->from / KN_PQ_BLOCK * KN_PQ_BLOCK; first < end; first += CHUNK) {
        float limit = l->top->limit;
        if (2 * room(m, limit) < room(m, m->limit)) make_small_tables(s, m, limit);
        double largest = largest_sum(m, limit);
        if (largest < 0) return; // the limit only falls
        uint16_t most = largest < UINT16_MAX ? (uint16_t)largest : UINT16_MAX;
        scan_some(s, l, first, end, most, &c);
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
static void scan_codes(kn_searcher *s, const look *l, bool roughly) {
    look rest = *l;
    meaning m = {.beside = make_list_tables(s, l->list),
                 .exactly = !roughly || s->x->distance != KN_DISTANCE_L2};
    rest.from = sum_codes(s, l, m.beside, true);
    bool few = rest.to - rest.from < s->x->pq.count;
    if (!few) make_small_tables(s, &m, l->top->limit);
    if (few || !isfinite(m.scale.bound))
        sum_codes(s, &rest, m.beside, false);
    else
        scan_blocks(s, &rest, &m);
}

// ---------------------------------------------------------------- lists

static void scan(kn_searcher *s, const look *l, by how) {
    if (l->from == l->to) return;
    if (how == BY_CODES || how == BY_CODES_ROUGHLY)
        scan_codes(s, l, how == BY_CODES_ROUGHLY);
    else
        scan_rows(s, l, how == BY_DECODED);
}

static void scan_lists(kn_searcher *s, const kn_search_options *o, uint32_t probes, by how, bool places,
                       kn_top *top) {
    const kn_index *x = s->x;
    uint64_t base = 0;
    for (size_t i = 0; i < x->listed_count; i++) {
        const kn_run *r = &x->listed[i];
        for (uint32_t p = 0; p < probes; p++) {
            size_t list = s->lists[p];
            look l = {o, r, list, r->ends[list], r->ends[list + 1], places ? base : NO_BASE, top};
            scan(s, &l, how);
        }
        base += r->count;
    }
}

static uint64_t count_candidates(const kn_searcher *s, uint32_t probes) {
    uint64_t count = 0;
    for (size_t i = 0; i < s->x->listed_count; i++)
        for (uint32_t p = 0; p < probes; p++)
            count += s->x->listed[i].ends[s->lists[p] + 1] - s->x->listed[i].ends[s->lists[p]];
    return count;
}

// The nearest by their codes, then those by their keys, in the order in which they lie.
static void scan_codes_first(kn_searcher *s, const kn_search_options *o, uint32_t probes, size_t k) {
    const kn_index *x = s->x;
    kn_top best;
    kn_top_init(&best, s->candidates, CODES_KEEP * k);
    scan_lists(s, o, probes, BY_CODES_ROUGHLY, true, &best);
    size_t n = kn_top_finish(&best, s->candidates + CODES_KEEP * k), run = 0;
    for (size_t i = 0; i < n; i++) s->candidates[i] = kn_item_id(s->candidates[i]);
    kn_items_sort(s->candidates, n, s->candidates + CODES_KEEP * k);
    uint64_t base = 0;
    for (size_t i = 0; i < n; i++) {
        float distance;
        while (s->candidates[i] >= base + x->listed[run].count) base += x->listed[run++].count;
        const kn_run *r = &x->listed[run];
        size_t place = (size_t)(s->candidates[i] - base);
        measure_rows(s, r, place, 1, &distance);
        kn_item item = kn_item_make(distance, kn_run_id(r, place));
        if (distance <= s->top.limit) kn_top_put(&s->top, &item, 1);
    }
}

static void scan_all(kn_searcher *s, const kn_search_options *o, size_t k, uint32_t probes) {
    const kn_index *x = s->x;
    if (probes) kn_quantizer_probe_one(x->quantizer, s->query, probes, s->lists, s->near, s->probe);
    if (!x->info.has_keys && x->has_pq)
        scan_lists(s, o, probes, x->distance == KN_DISTANCE_COSINE ? BY_DECODED : BY_CODES, false, &s->top);
    else if (x->has_pq && count_candidates(s, probes) > CODES_FROM * (uint64_t)k)
        scan_codes_first(s, o, probes, k);
    else
        scan_lists(s, o, probes, BY_KEYS, false, &s->top);
    for (size_t i = 0; i < x->flat_count; i++) {
        look l = {o, &x->flat[i], 0, 0, x->flat[i].count, NO_BASE, &s->top};
        scan(s, &l, BY_KEYS);
    }
}

knnlm_status kn_searcher_find(kn_searcher *s, const float *query, const kn_search_options *o,
                              kn_neighbors *out) {
    size_t k;
    uint32_t probes;
    KN_TRY(kn_index_resolve(s->x, o, &k, &probes));
    if (k > s->k_most)
        return kn_fail(KNNLM_EINVAL, "%zu neighbours asked of a searcher of %zu", k, s->k_most);
    for (size_t i = 0; i < s->x->d; i++)
        if (!isfinite(query[i])) return kn_fail(KNNLM_EDATA, "the query is not finite");
    kn_index_query(s->x, query, s->query);
    kn_top_init(&s->top, s->items, k);
    scan_all(s, o, k, probes);
    size_t count = kn_top_finish(&s->top, s->items + k);
    for (size_t i = 0; i < k; i++) {
        out->ids[i] = i < count ? kn_item_id(s->items[i]) : UINT32_MAX;
        out->distances[i] = i < count ? kn_item_distance(s->items[i]) : INFINITY;
    }
    out->counts[0] = (uint32_t)count;
    return KNNLM_OK;
}
