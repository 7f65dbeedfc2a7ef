// How well an index finds: its answers against those of looking at every entry.
#include "index/open.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t depths[KNNLM_RECALL_DEPTHS] = {1, 10, 100, SIZE_MAX};

typedef struct testing {
    size_t n, d, k;
    float *queries;
    kn_entry_range *own; // the entry that each query is
    kn_neighbors truth, found;
} testing;

static void neighbors_free(kn_neighbors *n) {
    free(n->ids);
    free(n->distances);
    free(n->counts);
}

static bool neighbors_make(kn_neighbors *n, size_t queries, size_t k) {
    n->ids = kn_alloc(queries * k, sizeof *n->ids);
    n->distances = kn_alloc(queries * k, sizeof *n->distances);
    n->counts = kn_alloc(queries, sizeof *n->counts);
    return n->ids && n->distances && n->counts;
}

static void testing_free(testing *t) {
    free(t->queries);
    free(t->own);
    neighbors_free(&t->truth);
    neighbors_free(&t->found);
}

// Entries of the store, each without itself.
static knnlm_status draw_queries(const kn_store *store, uint64_t seed, testing *t) {
    uint64_t entries = kn_store_describe(store)->entries;
    kn_random random = {seed};
    t->queries = kn_alloc(t->n * t->d, sizeof *t->queries);
    t->own = kn_alloc(t->n, sizeof *t->own);
    if (!t->queries || !t->own || !neighbors_make(&t->truth, t->n, t->k) ||
        !neighbors_make(&t->found, t->n, t->k))
        return KNNLM_ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        uint64_t id = kn_random_below(&random, entries);
        t->own[i] = (kn_entry_range){id, id + 1};
        KN_TRY(kn_store_keys(store, id, 1, t->queries + i * t->d));
    }
    return KNNLM_OK;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Part of the nearest `depth` true neighbours of a query among the first `depth` found.
static double overlap(const testing *t, size_t query, size_t depth, uint32_t *scratch) {
    size_t want = kn_min(t->truth.counts[query], depth), have = kn_min(t->found.counts[query], depth),
           hits = 0;
    memcpy(scratch, t->found.ids + query * t->k, have * sizeof *scratch);
    qsort(scratch, have, sizeof *scratch, ascending);
    for (size_t i = 0; i < want; i++)
        hits += bsearch(&t->truth.ids[query * t->k + i], scratch, have, sizeof *scratch, ascending) != NULL;
    return want ? (double)hits / (double)want : 1;
}

static knnlm_status measure(testing *t, knnlm_recall *out) {
    uint32_t *scratch = kn_alloc(t->k, sizeof *scratch);
    if (!scratch) return KNNLM_ENOMEM;
    for (size_t j = 0; j < KNNLM_RECALL_DEPTHS; j++) {
        double sum = 0;
        for (size_t q = 0; q < t->n; q++) sum += overlap(t, q, kn_min(depths[j], t->k), scratch);
        out->recall[j] = sum / (double)t->n;
    }
    free(scratch);
    return KNNLM_OK;
}

static knnlm_status try_probes(const kn_index *x, testing *t, kn_search_options o, uint32_t probes,
                               knnlm_recall *out) {
    o.probes = out->probes = probes;
    double start = kn_seconds();
    KN_TRY(kn_index_search(x, t->queries, t->n, &o, &t->found));
    out->queries_per_second = (double)t->n / (kn_seconds() - start);
    return measure(t, out);
}

static knnlm_status test(const kn_store *store, const kn_index *x, const kn_index *all,
                         const kn_recall_options *o, knnlm_recall *out, size_t *count) {
    testing t = {.n = o->queries, .d = (size_t)kn_store_describe(store)->settings.dimension, .k = o->k};
    kn_search_options search = {.k = o->k, .memory = o->memory, .progress = o->progress};
    knnlm_status status = draw_queries(store, o->seed, &t);
    search.exclude = t.own;
    double start = kn_seconds();
    if (status == KNNLM_OK) status = kn_index_search(all, t.queries, t.n, &search, &t.truth);
    double exact = kn_seconds() - start;
    *count = 0;
    for (uint32_t probes = 1; status == KNNLM_OK && x->info.lists && *count < KNNLM_RECALL_MAX; probes *= 2) {
        uint32_t now = probes < x->info.lists ? probes : x->info.lists;
        status = try_probes(x, &t, search, now, &out[(*count)++]);
        if (now == x->info.lists || out[*count - 1].recall[KNNLM_RECALL_DEPTHS - 1] > 0.9999) break;
    }
    if (status == KNNLM_OK && *count < KNNLM_RECALL_MAX)
        out[(*count)++] =
            (knnlm_recall){.probes = 0, .recall = {1, 1, 1, 1}, .queries_per_second = (double)t.n / exact};
    testing_free(&t);
    return status;
}

knnlm_status kn_index_recall(const kn_store *store, const kn_recall_options *o,
                             knnlm_recall out[KNNLM_RECALL_MAX], size_t *count) {
    kn_index *x, *all;
    if (!kn_store_describe(store)->entries || !o->queries || !o->k)
        return kn_fail(KNNLM_EINVAL, "%s: nothing to search", kn_store_describe(store)->path);
    KN_TRY(kn_index_open(store, &x));
    knnlm_status status = kn_index_open_flat(store, &all);
    if (status == KNNLM_OK) {
        status = test(store, x, all, o, out, count);
        kn_index_close(all);
    }
    kn_index_close(x);
    return status;
}
