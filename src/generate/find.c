// Neighbours of a few queries: those of a step.
//
// Searches for many take list after list, and widen a list's keys for all the queries that look there. Few
// queries have hardly a list in common: each is looked for by itself, key by key, which took less than half
// the time. What is found does not depend on how many there are.
#include "base/threads.h"
#include "generate/sequence.h"

#include <math.h>
#include <stdlib.h>

typedef struct finding {
    const kn_mixed_store *s;
    const float *keys; // (n, d)
    size_t d;
    kn_found *out;
    kn_searcher **searchers;  // (threads): opened by who needs one
    kn_value_share **scratch; // (threads): likewise, where entropies are wanted
    knnlm_status *statuses;   // (n)
} finding;

static knnlm_status find_one(const finding *f, size_t query, int worker) {
    const kn_mixed_store *s = f->s;
    kn_found *out = f->out;
    size_t row = query * out->k;
    kn_searcher **searcher = &f->searchers[worker];
    kn_search_options o = {.k = s->k, .probes = s->probes, .codes = s->codes, .spread = true};
    kn_neighbors neighbors = {out->ids + row, out->distances + row, out->counts + query};
    if (!*searcher) KN_TRY(kn_searcher_open(s->index, s->k, searcher));
    KN_TRY(kn_searcher_find(*searcher, f->keys + query * f->d, &o, &neighbors));
    for (size_t i = 0; i < out->counts[query]; i++) out->values[row + i] = s->values[out->ids[row + i]];
    if (!s->fallback) return KNNLM_OK;
    kn_value_share **scratch = &f->scratch[worker];
    if (!*scratch && !(*scratch = kn_alloc(2 * out->k, sizeof **scratch))) return KNNLM_ENOMEM;
    kn_neighborhood n = kn_found_at(out, query);
    out->entropies[query] = kn_neighborhood_entropy(&n, s->temperature, *scratch);
    return KNNLM_OK;
}

static void find_task(void *context, size_t query, int worker) {
    const finding *f = context;
    f->statuses[query] = find_one(f, query, worker);
}

// What failed did so in another thread, whose message is not this one's: it is tried again here.
static knnlm_status find_all(const finding *f, size_t n) {
    kn_parallel(n, find_task, (void *)f);
    for (size_t i = 0; i < n; i++)
        if (f->statuses[i] != KNNLM_OK) KN_TRY(find_one(f, i, 0));
    return KNNLM_OK;
}

static knnlm_status find_keys(const kn_mixed_store *s, const float *keys, size_t d, size_t n, kn_found *out) {
    size_t threads = (size_t)kn_threads();
    finding f = {.s = s, .keys = keys, .d = d, .out = out};
    f.searchers = kn_alloc(threads, sizeof *f.searchers);
    f.scratch = kn_alloc(threads, sizeof *f.scratch);
    f.statuses = kn_alloc(n, sizeof *f.statuses);
    knnlm_status status = f.searchers && f.scratch && f.statuses ? find_all(&f, n) : KNNLM_ENOMEM;
    for (size_t i = 0; i < threads; i++) {
        if (f.searchers) kn_searcher_close(f.searchers[i]);
        if (f.scratch) free(f.scratch[i]);
    }
    free(f.searchers);
    free(f.scratch);
    free(f.statuses);
    return status;
}

// Without lists every key is looked at, and searches for many know bounds that rule most of them out.
knnlm_status kn_step_find(const kn_mixed_store *s, const float *states, size_t width, size_t n,
                          kn_found *out) {
    if (!kn_mixed_store_probes(s)) return kn_mixed_store_search(s, states, n, NULL, 0, out);
    if (!s->pca.in) return find_keys(s, states, width, n, out);
    float *projected = kn_alloc_aligned(n * s->pca.out, sizeof *projected);
    if (!projected) return KNNLM_ENOMEM;
    kn_pca_apply(&s->pca, states, n, projected);
    knnlm_status status = find_keys(s, projected, s->pca.out, n, out);
    kn_free_aligned(projected);
    return status;
}
