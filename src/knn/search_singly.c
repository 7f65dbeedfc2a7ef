// Searches for a few queries, each by itself.
//
// Searches for many take list after list, and widen a list's keys for all the queries that look there. Few
// queries have hardly a list in common: each is looked for by itself, key by key, which took less than half
// the time. What is found does not depend on how many there are.
#include "base/threads.h"
#include "knn/datastore_parts.h"

#include <math.h>
#include <stdlib.h>

// ---------------------------------------------------------------- memory that is kept

void kn_idle_searchers_free(kn_idle_searchers *idle) {
    for (size_t i = 0; i < idle->count; i++) kn_searcher_close(idle->all[i]);
    free(idle->all);
    *idle = (kn_idle_searchers){0};
}

// One that may find k.
static knnlm_status borrow(const kn_datastore *constant, size_t k, kn_searcher **out) {
    kn_datastore *s = (kn_datastore *)(uintptr_t)constant; // const to its searchers, but for what it keeps
    size_t k_max;
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    if (k > s->idle.k_max) {
        kn_idle_searchers_free(&s->idle);
        s->idle.k_max = k;
    }
    k_max = s->idle.k_max;
    if (s->idle.count) *out = s->idle.all[--s->idle.count];
    pthread_mutex_unlock(&s->lock);
    return *out ? KNNLM_OK : kn_searcher_open(s->index, k_max, out);
}

// It is closed where there is no room for it, or others are larger by now.
static void give_back(const kn_datastore *constant, kn_searcher *searcher) {
    kn_datastore *s = (kn_datastore *)(uintptr_t)constant;
    if (!searcher) return;
    pthread_mutex_lock(&s->lock);
    if (kn_searcher_k_max(searcher) == s->idle.k_max &&
        kn_grow(&s->idle.all, &s->idle.capacity, s->idle.count + 1, sizeof *s->idle.all) == KNNLM_OK) {
        s->idle.all[s->idle.count++] = searcher;
        searcher = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    kn_searcher_close(searcher);
}

// ---------------------------------------------------------------- searching

typedef struct finding {
    const kn_datastore *s;
    const float *keys; // (n, d)
    size_t d;
    const kn_retrieve_options *o;
    kn_retrieved *out;
    kn_searcher **searchers;  // (threads): borrowed by who needs one
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
    if (!*searcher) KN_TRY(borrow(f->s, o.k, searcher));
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

knnlm_status kn_datastore_search_singly(const kn_datastore *s, const float *keys, size_t d, size_t n,
                                        const kn_retrieve_options *o, kn_retrieved *out) {
    size_t threads = (size_t)kn_threads();
    finding f = {.s = s, .keys = keys, .d = d, .o = o, .out = out};
    f.searchers = kn_alloc(threads, sizeof *f.searchers);
    f.scratch = kn_alloc(threads, sizeof *f.scratch);
    f.statuses = kn_alloc(n, sizeof *f.statuses);
    knnlm_status status = f.searchers && f.scratch && f.statuses ? find_all(&f, n) : KNNLM_ENOMEM;
    for (size_t i = 0; i < threads; i++) {
        if (f.searchers) give_back(s, f.searchers[i]);
        if (f.scratch) free(f.scratch[i]);
    }
    free(f.searchers);
    free(f.scratch);
    free(f.statuses);
    return status;
}
