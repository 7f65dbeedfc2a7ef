// One query at a time: the lists nearest to it, row by row, by one thread and without allocating.
#include "index/view.h"

#include "index/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 }; // rows measured before they are looked at

struct kn_searcher {
    const kn_index *x;
    size_t k_most;
    float *query;
    uint32_t *lists;
    float *near; // distances of lists
    void *probe; // memory of the quantizer
    kn_item *items;
    kn_top top;
};

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
    if (s->query && s->lists && s->near && s->probe && s->items) {
        *out = s;
        return KNNLM_OK;
    }
    kn_searcher_close(s);
    return KNNLM_ENOMEM;
}

void kn_searcher_close(kn_searcher *s) {
    if (!s) return;
    kn_free_aligned(s->query);
    kn_free_aligned(s->probe);
    kn_free_aligned(s->items);
    free(s->lists);
    free(s->near);
    free(s);
}

static void measure(const kn_index *x, const float *query, const kn_run *r, size_t place, size_t n,
                    float *distances) {
    const uint8_t *rows = r->rows + place * x->row_bytes;
    const float *scales = r->scales ? r->scales + place : NULL;
    float norms[CHUNK];
    x->k->row_distances(distances, query, rows, x->type, scales, n, x->d, x->distance != KN_DISTANCE_L2);
    if (x->distance == KN_DISTANCE_IP)
        for (size_t i = 0; i < n; i++) distances[i] = -distances[i];
    if (x->distance != KN_DISTANCE_COSINE) return;
    x->k->row_distances(norms, x->zero, rows, x->type, scales, n, x->d, false);
    for (size_t i = 0; i < n; i++) distances[i] = 1 - (norms[i] > 0 ? distances[i] / sqrtf(norms[i]) : 0);
}

static void scan(kn_searcher *s, const kn_search_options *o, const kn_run *r, size_t from, size_t to) {
    float distances[CHUNK];
    kn_item items[CHUNK];
    for (size_t place = from; place < to; place += CHUNK) {
        size_t n = kn_least(CHUNK, to - place), found = 0;
        measure(s->x, s->query, r, place, n, distances);
        for (size_t i = 0; i < n; i++) {
            if (!(distances[i] <= s->top.limit)) continue;
            uint32_t id = kn_run_id(r, place + i);
            if (kn_index_admits(s->x, o, 0, id)) items[found++] = kn_item_make(distances[i], id);
        }
        kn_top_put(&s->top, items, found);
    }
}

static void scan_all(kn_searcher *s, const kn_search_options *o, uint32_t probes) {
    const kn_index *x = s->x;
    if (probes) kn_quantizer_probe_one(x->quantizer, s->query, probes, s->lists, s->near, s->probe);
    for (uint32_t p = 0; p < probes; p++)
        for (size_t i = 0; i < x->listed_count; i++) {
            const kn_run *r = &x->listed[i];
            scan(s, o, r, r->ends[s->lists[p]], r->ends[s->lists[p] + 1]);
        }
    for (size_t i = 0; i < x->flat_count; i++) scan(s, o, &x->flat[i], 0, x->flat[i].count);
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
    scan_all(s, o, probes);
    size_t count = kn_top_finish(&s->top, s->items + k);
    for (size_t i = 0; i < k; i++) {
        out->ids[i] = i < count ? kn_item_id(s->items[i]) : UINT32_MAX;
        out->distances[i] = i < count ? kn_item_distance(s->items[i]) : INFINITY;
    }
    out->counts[0] = (uint32_t)count;
    return KNNLM_OK;
}
