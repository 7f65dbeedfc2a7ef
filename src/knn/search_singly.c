// Searches for a few queries, each by itself.
//
// Searches for many take list after list, and widen a list's keys for all the queries that look there. Few
// queries have hardly a list in common: each is looked for by itself, key by key, which took less than half
// the time. What is found does not depend on how many there are.
#include "base/threads.h"
#include "knn/datastore_parts.h"

#include <math.h>
#include <stdlib.h>

typedef struct finding {
    const kn_datastore *s;
    const kn_index *index;
    const float *keys; // (n, d)
    size_t d;
    const kn_retrieve_options *o;
    kn_retrieved *out;
    kn_searcher **searchers;  // (threads): opened by who needs one
    kn_value_share **scratch; // (threads): likewise, where entropies are wanted
    knnlm_status *statuses;   // (n)
} finding;

static knnlm_status find_one(const finding *f, size_t query, int worker) {
    kn_retrieved *out = f->out;
    size_t row = query * out->k;
    kn_searcher **searcher = &f->searchers[worker];
    kn_value_share **scratch = &f->scratch[worker];
    size_t excludes = f->o->excludes ? f->o->excludes : 1;
    kn_search_options o = {.k = f->o->k,
                           .probes = f->o->probes,
                           .codes = f->o->codes,
                           .exclude = f->o->exclude ? f->o->exclude + query * excludes : NULL,
                           .excludes = f->o->excludes,
                           .allowed = f->o->allowed ? f->o->allowed : f->s->allowed,
                           .memory = f->o->memory,
                           .spread = true};
    kn_neighbors neighbors = {out->found + row, out->distances + row, out->counts + query};
    if (!*searcher) KN_TRY(kn_searcher_open(f->index, o.k, searcher));
    KN_TRY(kn_searcher_find(*searcher, f->keys + query * f->d, &o, &neighbors));
    if (!isnan(f->o->temperature) && !*scratch && !(*scratch = kn_alloc(2 * out->k, sizeof **scratch)))
        return KNNLM_ENOMEM;
    kn_datastore_look_up(f->s, f->o, query, *scratch, out);
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

knnlm_status kn_datastore_search_singly(const kn_datastore *s, const kn_index *index, const float *keys,
                                        size_t d, size_t n, const kn_retrieve_options *o, kn_retrieved *out) {
    size_t threads = (size_t)kn_threads();
    finding f = {.s = s, .index = index, .keys = keys, .d = d, .o = o, .out = out};
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
