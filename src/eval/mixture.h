// A model's stores and cache, opened: where neighbours come from, and how they are mixed in.
//
// What the options leave open is as `knnlm tune` left it in the store, else as in the paper (k 1024, lambda
// .25, temperature 1).
#ifndef KN_EVAL_MIXTURE_H
#define KN_EVAL_MIXTURE_H

#include "build/known.h"
#include "index/index.h"
#include "lm/lm.h"
#include "math/pca.h"
#include "mix/mix.h"
#include "mix/tune.h"
#include "text/documents.h"

enum { KN_STORES_MOST = KN_PARTS_MOST - 2 }; // beside model and cache

typedef struct kn_store_choice {
    const char *path;
    double weight, temperature; // of this store; NAN: not said
    int64_t k, probes;          // likewise; 0: not said
} kn_store_choice;

typedef struct kn_mixture_options {
    const kn_store_choice *stores;
    size_t store_count;
    int64_t k, probes;          // 0: not said
    double lambda, temperature; // NAN: not said
    bool codes, exact;          // distances of the codes, or of the keys; neither: not said
    int metric;                 // kn_distance; negative: the store's
    bool fixed;                 // one lambda, although there are bins
    bool fallback;              // lambda falls where neighbours are unusually far or uncertain
    bool include_self;          // documents that are in a store find themselves
    int64_t cache;              // states; negative: not said; 0: none
    double cache_lambda, cache_temperature;
    void (*warn)(const char *message); // told of documents that are damaged and left out; NULL: nobody
} kn_mixture_options;

// A store as it is searched and mixed.
typedef struct kn_mixed_store {
    kn_store *store;
    kn_index *index;
    kn_pca pca;              // in 0: keys are the model's states
    int32_t *values;         // of all its entries
    uint64_t *beginnings;    // a bit an entry: it begins a document
    kn_known known;          // its documents by content
    kn_tokenizer *tokenizer; // of its texts; NULL: not known
    kn_distance metric;
    size_t k;
    uint32_t probes;
    bool codes, tuned; // tuned: settings that nobody said are as tuned
    bool fallback;
    double temperature, lambda;
    kn_bins bins; // no distances: lambda for all
} kn_mixed_store;

typedef struct kn_mixture {
    kn_mixed_store stores[KN_STORES_MOST];
    size_t count;
    struct {
        size_t size; // 0: none
        double lambda, temperature;
    } cache;
    kn_tap tap;
    kn_split split; // as the first store was cut
    bool include_self;
    size_t width; // of the model's states
} kn_mixture;

// KNNLM_EINVAL: options that do not fit each other, the model or the stores.
knnlm_status kn_mixture_open(const kn_lm *lm, const kn_mixture_options *options, kn_mixture *out);
void kn_mixture_close(kn_mixture *mixture);
// One of its stores, as kn_mixture_open would open it.
knnlm_status kn_mixed_store_open(const kn_lm *lm, const kn_mixture_options *options,
                                 const kn_store_choice *choice, kn_mixed_store *out);
void kn_mixed_store_close(kn_mixed_store *store);
// Lists that searches look at; 0: every entry.
uint32_t kn_mixed_store_probes(const kn_mixed_store *store);
// Whether anything is mixed in, and whether that needs the model's entropy.
bool kn_mixture_any(const kn_mixture *mixture);
bool kn_mixture_adapts(const kn_mixture *mixture);

// ---------------------------------------------------------------- neighbours

// Those of some queries in one store.
typedef struct kn_found {
    size_t k;
    uint32_t *ids;    // (queries, k)
    float *distances; // (queries, k), nearest first
    int32_t *values;  // (queries, k): tokens
    uint32_t *counts; // (queries)
    // (queries): of p_kNN, in nats; only of a store that falls back (NAN: no neighbours)
    double *entropies;
} kn_found;

knnlm_status kn_found_init(kn_found *found, size_t queries, size_t k);
void kn_found_free(kn_found *found);
static inline kn_neighborhood kn_found_at(const kn_found *f, size_t query) {
    return (kn_neighborhood){f->distances + query * f->k, f->values + query * f->k, NULL, f->counts[query],
                             0};
}
// Whether the nearest neighbour of a query begins a document. Before that there is nothing but the start
// token: all texts begin at distance 0 from each other, and that says nothing of how alike they are.
static inline bool kn_found_beginning(const kn_mixed_store *s, const kn_found *f, size_t query) {
    uint32_t id = f->counts[query] ? f->ids[query * f->k] : 0;
    return f->counts[query] && (s->beginnings[id / 64] >> id % 64 & 1);
}
// Neighbours of the states (n, width). `exclude` (n, excludes) as of a search.
knnlm_status kn_mixed_store_search(const kn_mixed_store *s, const float *states, size_t n,
                                   const kn_entry_range *exclude, size_t excludes, kn_found *out);

// Whether both find the same: neighbours, and their entropy, which depends on the temperature, where that is
// wanted.
bool kn_mixed_store_same_search(const kn_mixed_store *a, const kn_mixed_store *b);

// ---------------------------------------------------------------- probabilities

// One token, mixed.
typedef struct kn_mixed {
    double knn[KN_STORES_MOST];         // log p_kNN of each store
    double lambdas[KN_STORES_MOST + 1]; // of each store, then of the cache
    double p;                           // log p
} kn_mixed;

// `found` (count) of the mixture's stores, at `query`; `cache` is log p_cache (NAN: there is none,
// and its weight is the model's).
void kn_mixture_mix(const kn_mixture *m, const kn_found *found, size_t query, int32_t target, double lm,
                    double entropy, double cache, kn_mixed *out);
// Of all stores together: log of the sum of lambda p_kNN over the sum of lambdas (of equal parts, where those
// are 0). NAN without stores.
double kn_mixture_knn(const kn_mixture *m, const kn_mixed *mixed);
// Lambda of all stores together.
double kn_mixture_lambda(const kn_mixture *m, const kn_mixed *mixed);
// A store's part in that.
double kn_mixture_part(const kn_mixture *m, const kn_mixed *mixed, size_t store);
// The nearest neighbour's distance; NAN: there is none.
double kn_mixture_nearest(const kn_mixture *m, const kn_found *found, size_t query);

#endif
