// The best settings for a validation text: neighbours are searched once and kept, then swept.
//
// Of each store the temperature and k that suit it best beside the model, and its weight; the cache's
// likewise; then all weights together. With one store also weights by bins, when they are better on tokens
// they were not fitted on.
#ifndef KN_EVAL_TUNE_H
#define KN_EVAL_TUNE_H

#include "eval/pass.h"

// POINTS: as many as can be tried: 12 ways to search a store by some 400 settings, without and with the
// cache.
enum { KN_TUNE_POINTS = 10240, KN_TUNE_PROBES = 12 };

typedef struct kn_tune_options {
    kn_read_options read;
    bool split_said;
    kn_mixture_options mix; // k: the most; a temperature that is given stays; fixed: no bins
    const int64_t *probes;  // to try with a single store; none: as of the mixture
    size_t probe_count;
    bool auto_probes; // without probes: half, as many as and twice as many as the index has, where there is
                      // memory
    bool dry;         // nothing is written into the store
    bool own;         // on pieces of the one store's own documents, each left out of its own search; no texts
    // Told what will be kept, before the search.
    void (*planned)(void *context, uint64_t tokens, uint64_t bytes);
    void *planned_context;
} kn_tune_options;

typedef struct kn_tune_store {
    char path[256];
    knnlm_tune_point best; // beside the model alone
    double lambda;         // beside all others
    double seconds;        // of its searches
} kn_tune_store;

typedef struct kn_tune_result {
    kn_pass_totals totals;
    double ppl_lm, ppl;                     // ppl: with all weights, one lambda a store
    double ppl_cache;                       // model and cache alone; NAN: no cache
    double cache_lambda, cache_temperature; // beside all stores
    double ppl_adaptive;                    // by bins, on the text that they were fitted on; NAN: none
    double ppl_adaptive_checked;            // by bins fitted on one half of the text, on the other; NAN: none
    double ppl_gate, ppl_gate_checked;      // likewise by the gate; NAN: none
    double ppl_foreign, ppl_foreign_lm;     // by it on text of other kinds, and by the model alone; NAN: none
    kn_tune_store stores[KN_STORES_MAX];
    size_t store_count;
    knnlm_tune_point points[KN_TUNE_POINTS]; // all that was tried
    size_t point_count;
    double lambdas[KNNLM_TUNE_CURVE],
        by_lambda[KNNLM_TUNE_CURVE]; // perplexity of a single store by its weight
    kn_store_tuned tuned;            // what a single store remembers; known: false with several
    bool written;
    double seconds_search, seconds_sweep, seconds;
    size_t settings;                         // that the sweep looked at
    knnlm_tune_skip skips[KNNLM_TUNE_SKIPS]; // of ppl
} kn_tune_result;

// KNNLM_EINVAL: no store and no cache, or text from stdin (it is read twice); KNNLM_ENOMEM: the neighbours of
// this text do not fit into memory; else as of evaluating and of writing to the store.
knnlm_status kn_tune_run(kn_lm *lm, const char *const *paths, size_t count, const kn_tune_options *options,
                         const kn_progress *progress, kn_tune_result *out);

#endif
