// One query at a time: the lists nearest to it, row by row, by one thread or by all, without allocating.
#include "index/single_parts.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = KN_SINGLE_CHUNK,
    // Codes come first when there are this many times more candidates than neighbours wanted; this many times
    // the neighbours are then measured exactly.
    CODES_FROM = 16,
    CODES_KEEP = 4,
    CHECKED_BYTES = 256 << 10, // of rows at a time
};

// Items of a top, and what sorting them takes.
static size_t room_for(size_t k) {
    return kn_top_capacity(k) + kn_top_scratch(k);
}

// Memory for codes, where there are any.
static bool make_tables(kn_searcher *s) {
    const kn_index *x = s->x;
    if (!x->has_pq) return true;
    s->residual = kn_alloc_aligned(x->d, sizeof *s->residual);
    s->tables = kn_alloc_aligned(x->pq.m * x->pq.count, sizeof *s->tables);
    s->small = kn_alloc_aligned(kn_pq_small_bytes(&x->pq), sizeof *s->small);
    s->rows = kn_alloc_aligned(CHUNK * x->d, sizeof *s->rows);
    s->candidates = kn_alloc_aligned(room_for(CODES_KEEP * s->k_max), sizeof *s->candidates);
    return s->residual && s->tables && s->small && s->rows && s->candidates;
}

knnlm_status kn_searcher_open(const kn_index *x, size_t k_max, kn_searcher **out) {
    kn_searcher *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->x = x;
    s->resident.store = x->store;
    s->k_max = k_max;
    s->query = kn_alloc_aligned(x->d, sizeof *s->query);
    s->whole = kn_alloc_aligned(kn_index_stride(x), sizeof *s->whole);
    s->lists = kn_alloc(x->info.lists, sizeof *s->lists);
    s->near = kn_alloc(x->info.lists, sizeof *s->near);
    s->probe = kn_alloc_aligned(1, x->quantizer ? kn_quantizer_scratch_bytes(x->quantizer) : 1);
    s->items = kn_alloc_aligned(room_for(k_max), sizeof *s->items);
    if (x->coarse && kn_searcher_open(x->coarse, x->info.lists, &s->coarse) != KNNLM_OK) {
        kn_searcher_close(s);
        return KNNLM_ENOMEM;
    }
    if (s->query && s->whole && s->lists && s->near && s->probe && s->items && make_tables(s)) {
        *out = s;
        return KNNLM_OK;
    }
    kn_searcher_close(s);
    return KNNLM_ENOMEM;
}

void kn_searcher_close(kn_searcher *s) {
    if (!s) return;
    kn_free_aligned(s->query);
    kn_free_aligned(s->whole);
    kn_free_aligned(s->residual);
    kn_free_aligned(s->tables);
    kn_free_aligned(s->small);
    kn_free_aligned(s->rows);
    kn_free_aligned(s->probe);
    kn_free_aligned(s->items);
    kn_free_aligned(s->candidates);
    kn_searcher_close(s->coarse);
    free(s->lists);
    free(s->near);
    free(s);
}

size_t kn_searcher_k_max(const kn_searcher *s) {
    return s->k_max;
}

// ---------------------------------------------------------------- distances

static void measure(const kn_index *x, const float *query, const void *rows, kn_row_type type, size_t n,
                    float *distances) {
    float norms[CHUNK];
    x->k->row_distances(distances, query, rows, type, n, x->d, !x->form->norms);
    if (x->form->norms) return;
    if (x->form->unit) {
        x->k->row_distances(norms, x->zero, rows, type, n, x->d, false);
        for (size_t i = 0; i < n; i++) distances[i] = norms[i] > 0 ? distances[i] / sqrtf(norms[i]) : 0;
    }
    for (size_t i = 0; i < n; i++) distances[i] = x->form->beside - distances[i];
}

static void measure_rows(const kn_searcher *s, const kn_run *r, size_t place, size_t n, float *distances) {
    const uint8_t *rows = r->rows + place * s->x->row_bytes;
    if (s->x->integers)
        kn_index_measure_integers(s->x, s->whole, &s->terms, rows, r->scales + place, n, distances);
    else
        measure(s->x, s->query, rows, s->x->type, n, distances);
}

// Without keys, cosine is of the decoded vector, whose length is not 1.
static void measure_decoded(kn_searcher *s, const kn_run *r, size_t list, size_t place, size_t n,
                            float *distances) {
    kn_index_decode(s->x, r, list, s->x->zero, place, n, s->rows);
    measure(s->x, s->query, s->rows, KN_ROWS_F32, n, distances);
}

// ---------------------------------------------------------------- a list

// How rows are measured: by their keys, by their codes (as well as 8-bit tables can: roughly), or by what the
// codes stand for.
typedef enum by { BY_KEYS, BY_CODES, BY_CODES_ROUGHLY, BY_DECODED } by;

// Of `count` items, those whose entries may be found.
static size_t admitted(const kn_searcher *s, const kn_look *l, kn_item *items, size_t count) {
    size_t kept = 0;
    if (!s->x->removed && !l->o->allowed && !l->o->exclude) return count;
    for (size_t i = 0; i < count; i++) {
        items[kept] = items[i];
        kept += kn_index_admits(s->x, l->o, 0, kn_item_id(items[i]));
    }
    return kept;
}

static void scan_integers(kn_searcher *s, const kn_look *l) {
    const kn_index *x = s->x;
    const kn_run *r = l->run;
    kn_item items[CHUNK + 8];
    size_t found = 0;
    for (size_t place = l->from; place < l->to; place += KN_CELL) {
        size_t n = kn_min(KN_CELL, l->to - place);
        int32_t products[KN_CELL] = {0}, squares[KN_CELL];
        kn_integer_terms rows;
        x->integers->row_integers(products, squares, s->whole, (const int8_t *)r->rows + place * x->d, n,
                                  x->d);
        x->integers->integer_terms(&rows, squares, r->scales + place, n, kn_index_integer_form(x));
        size_t more = x->integers->rank_integers(items + found, products, &rows, &s->terms, l->top->limit,
                                                 r->ids ? r->ids + place : NULL,
                                                 r->first_id + (uint32_t)place, (uint32_t)x->entries, n);
        found += admitted(s, l, items + found, more);
        if (found + KN_CELL <= CHUNK && place + KN_CELL < l->to) continue;
        kn_top_put_shared(l->top, items, found);
        found = 0;
    }
}

static void scan_rows(kn_searcher *s, const kn_look *l, bool decoded) {
    float distances[CHUNK];
    kn_item items[CHUNK];
    for (size_t place = l->from; place < l->to; place += CHUNK) {
        size_t n = kn_min(CHUNK, l->to - place), found = 0;
        if (decoded)
            measure_decoded(s, l->run, l->list, place, n, distances);
        else
            measure_rows(s, l->run, place, n, distances);
        for (size_t i = 0; i < n; i++)
            found += kn_look_admit(s->x, l, place + i, distances[i], items + found);
        kn_top_put_shared(l->top, items, found);
    }
}

// ---------------------------------------------------------------- lists

static void scan(kn_searcher *s, const kn_look *l, by how) {
    if (l->from == l->to) return;
    if (kn_run_check_places(s->x, l->run, l->from, l->to, how != BY_KEYS) != KNNLM_OK) {
        s->damaged = true;
        return;
    }
    if (how == BY_CODES || how == BY_CODES_ROUGHLY)
        kn_searcher_scan_codes(s, l, how == BY_CODES_ROUGHLY);
    else if (how == BY_KEYS && s->x->integers)
        scan_integers(s, l);
    else
        scan_rows(s, l, how == BY_DECODED);
}

// The lists of one run.
typedef struct sweep {
    kn_searcher *s;
    const kn_search_options *o;
    const kn_run *run;
    by how;
    uint64_t base;
    kn_top *top;
} sweep;

static void scan_list(void *context, size_t probe, int worker) {
    const sweep *w = context;
    size_t list = w->s->lists[probe];
    kn_look l = {w->o, w->run, list, w->run->ends[list], w->run->ends[list + 1], w->base, w->top};
    (void)worker;
    scan(w->s, &l, w->how);
}

// Codes have tables in the searcher's memory, a list's at a time: only keys can be looked at by many.
static void scan_lists(kn_searcher *s, const kn_search_options *o, uint32_t probes, by how, bool places,
                       kn_top *top) {
    const kn_index *x = s->x;
    uint64_t base = 0;
    for (size_t i = 0; i < x->listed_count; i++) {
        sweep w = {s, o, &x->listed[i], how, places ? base : KN_NO_BASE, top};
        if (o->spread && how == BY_KEYS)
            kn_parallel(probes, scan_list, &w);
        else
            for (uint32_t p = 0; p < probes; p++) scan_list(&w, p, 0);
        base += x->listed[i].count;
    }
}

static uint64_t count_candidates(const kn_searcher *s, uint32_t probes) {
    uint64_t count = 0;
    for (size_t i = 0; i < s->x->listed_count; i++)
        for (uint32_t p = 0; p < probes; p++)
            count += s->x->listed[i].ends[s->lists[p] + 1] - s->x->listed[i].ends[s->lists[p]];
    return count;
}

// Checks a row and some after it, where the next candidates mostly lie; how far, or 0: damaged.
static size_t check_rows_from(const kn_index *x, const kn_run *r, size_t place) {
    size_t to = kn_min(r->count, place + 1 + CHECKED_BYTES / x->row_bytes);
    return kn_run_check_rows(x, r, place, to) == KNNLM_OK ? to : 0;
}

// The nearest by their codes, then those by their keys, in the order in which they lie.
static void scan_codes_first(kn_searcher *s, const kn_search_options *o, uint32_t probes, size_t k) {
    const kn_index *x = s->x;
    kn_top best;
    kn_item *scratch = s->candidates + kn_top_capacity(CODES_KEEP * k);
    kn_top_init(&best, s->candidates, CODES_KEEP * k);
    scan_lists(s, o, probes, BY_CODES_ROUGHLY, true, &best);
    size_t n = kn_top_finish(&best, scratch), run = 0;
    for (size_t i = 0; i < n; i++) s->candidates[i] = kn_item_id(s->candidates[i]);
    kn_items_sort(s->candidates, n, scratch);
    uint64_t base = 0;
    size_t checked = 0; // rows of the run up to here
    for (size_t i = 0; i < n; i++) {
        float distance;
        for (; s->candidates[i] >= base + x->listed[run].count; checked = 0) base += x->listed[run++].count;
        const kn_run *r = &x->listed[run];
        size_t place = (size_t)(s->candidates[i] - base);
        if (place >= checked && (checked = check_rows_from(x, r, place)) == 0) {
            s->damaged = true;
            return;
        }
        measure_rows(s, r, place, 1, &distance);
        kn_item item = kn_item_make(distance, kn_run_id(r, place));
        if (distance <= s->top.limit) kn_top_put(&s->top, &item, 1);
    }
}

// The lists nearest to the query; how many there are.
static uint32_t probe(kn_searcher *s, uint32_t probes) {
    uint32_t count = probes;
    if (!probes) return 0;
    if (!s->coarse) {
        kn_quantizer_probe_one(s->x->quantizer, s->query, probes, s->lists, s->near, s->probe);
        return probes;
    }
    kn_search_options o = {.k = probes, .probes = kn_coarse_groups(s->x->coarse, probes)};
    kn_searcher_find(s->coarse, s->query, &o, &(kn_neighbors){s->lists, s->near, &count}); // cannot fail
    return count;
}

static void scan_all(kn_searcher *s, const kn_search_options *o, size_t k, uint32_t probes) {
    const kn_index *x = s->x;
    probes = probe(s, probes);
    s->resident.max = o->memory;
    kn_resident_touch(&s->resident, count_candidates(s, probes) * (s->x->row_bytes + sizeof(uint32_t)));
    if (x->has_pq && (o->codes || !x->info.has_keys))
        scan_lists(s, o, probes, x->form->unit ? BY_DECODED : BY_CODES, false, &s->top);
    else if (x->has_pq && count_candidates(s, probes) > CODES_FROM * (uint64_t)k)
        scan_codes_first(s, o, probes, k);
    else
        scan_lists(s, o, probes, BY_KEYS, false, &s->top);
    for (size_t i = 0; i < x->flat_count; i++) {
        kn_look l = {o, &x->flat[i], 0, 0, x->flat[i].count, KN_NO_BASE, &s->top};
        scan(s, &l, BY_KEYS);
    }
}

// Once more, by this thread: messages are of a thread.
static knnlm_status explain_damage(const kn_searcher *s) {
    const kn_index *x = s->x;
    for (size_t i = 0; i < x->listed_count; i++) {
        const kn_run *r = &x->listed[i];
        if (r->codes) KN_TRY(kn_run_check_places(x, r, 0, r->count, true));
        if (r->rows) KN_TRY(kn_run_check_places(x, r, 0, r->count, false));
    }
    for (size_t i = 0; i < x->flat_count; i++)
        KN_TRY(kn_run_check_places(x, &x->flat[i], 0, x->flat[i].count, false));
    return kn_fail(KNNLM_EDATA, "%s: was damaged for a moment", kn_store_describe(x->store)->path);
}

knnlm_status kn_searcher_find(kn_searcher *s, const float *query, const kn_search_options *o,
                              kn_neighbors *out) {
    size_t k;
    uint32_t probes;
    KN_TRY(kn_index_resolve(s->x, o, &k, &probes));
    if (k > s->k_max) return kn_fail(KNNLM_EINVAL, "%zu neighbours asked of a searcher of %zu", k, s->k_max);
    for (size_t i = 0; i < s->x->d; i++)
        if (!isfinite(query[i])) return kn_fail(KNNLM_EDATA, "the query is not finite");
    kn_index_query(s->x, query, s->query, s->whole, &s->terms);
    kn_top_init(&s->top, s->items, k);
    s->damaged = false;
    scan_all(s, o, k, probes);
    if (s->damaged) return explain_damage(s);
    size_t count = kn_top_finish(&s->top, s->items + kn_top_capacity(k));
    for (size_t i = 0; i < k; i++) {
        out->ids[i] = i < count ? kn_item_id(s->items[i]) : UINT32_MAX;
        out->distances[i] = i < count ? kn_item_distance(s->items[i]) : INFINITY;
    }
    out->counts[0] = (uint32_t)count;
    return KNNLM_OK;
}
