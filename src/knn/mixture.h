// A model's stores and cache with their settings: where neighbours come from, and how they are mixed in.
//
// What the options leave open is as `knnlm tune` left it in the store, else as in the paper (k 1024, lambda
// .25, temperature 1). A mixture never changes; a view is a mixture of the same stores with settings of its
// own.
#ifndef KN_KNN_MIXTURE_H
#define KN_KNN_MIXTURE_H

#include "knn/datastore.h"
#include "mix/gate.h"
#include "mix/tune.h"
#include "text/documents.h"

enum { KN_STORES_MAX = KN_PARTS_MAX - 2 }; // beside model and cache

typedef struct kn_store_choice {
    const char *path;
    double weight, temperature; // of this store; NAN: not given
    int64_t k, probes;          // likewise; 0: not given
} kn_store_choice;

typedef struct kn_mixture_options {
    const kn_store_choice *stores;
    size_t store_count;
    int64_t k, probes;          // 0: not given
    double lambda, temperature; // NAN: not given
    bool codes, exact;          // distances of the codes, or of the keys; neither: not given
    int distance;               // knnlm_distance; negative: the store's
    bool fixed;                 // one lambda, although there are a gate and bins
    bool bins;                  // by bins, although there is a gate
    bool fallback;              // lambda falls where neighbours are unusually far or uncertain
    bool include_self;          // documents that are in a store find themselves
    double skip_entropy;        // tokens of less entropy by the model are not searched for; 0: all are
    uint64_t memory;            // bytes of lists that may be resident; 0: any
    kn_name_filter filter;      // of the documents whose entries are found
    int64_t cache;              // states; negative: not given; 0: none
    double cache_lambda, cache_temperature;
    void (*warn)(const char *message); // told of damage, and of what misleads; NULL: nobody
} kn_mixture_options;

typedef struct kn_mixture kn_mixture;

// How one of its stores is searched and weighed.
typedef struct kn_mixture_store {
    const kn_store_info *store;
    knnlm_distance distance;
    size_t k;
    uint32_t probes; // as given or tuned; 0: the index's own
    uint32_t looked; // lists that searches look at; 0: every entry
    bool codes;      // distances are asked of codes
    bool of_codes;   // distances are of codes, asked for or for want of keys
    bool tuned;      // settings that nobody gave are as tuned
    bool adaptive;   // lambda by bins
    bool gated;      // by its gate
    bool fallback;
    double temperature, lambda;
} kn_mixture_store;

typedef struct kn_mixture_info {
    kn_mixture_store stores[KN_STORES_MAX];
    size_t count;
    struct {
        size_t size; // 0: none
        double lambda, temperature;
    } cache;
    kn_tap tap;
    knnlm_split split; // as the first store was cut
    bool include_self;
    void (*warn)(const char *message); // as opened
    double skip_entropy;               // of the model, in nats: where it is less, it speaks alone; 0: nowhere
    size_t width;                      // of the model's states
    size_t neighbors;                  // of a token, in all stores
    bool any;                          // anything is mixed in
    bool gated;                        // some store has a gate: what a text has shown so far counts
    bool adapts;                       // lambda, or whether there is a search, depends on the model's entropy
} kn_mixture_info;

// KNNLM_EINVAL: options that do not fit each other, the model or the stores.
knnlm_status kn_mixture_open(const kn_lm *lm, const kn_mixture_options *options, kn_mixture **out);
void kn_mixture_close(kn_mixture *mixture); // NULL is allowed
const kn_mixture_info *kn_mixture_describe(const kn_mixture *mixture);
const kn_datastore *kn_mixture_datastore(const kn_mixture *mixture, size_t store);

// ---------------------------------------------------------------- views

typedef struct kn_view_options {
    double lambda;      // of all stores together; NAN: as they have it
    double temperature; // of every store; NAN: as it has it
    int64_t k;          // likewise; 0: as it has it
    int fallback;       // 1, 0; negative: as it has it
    // Of each store, in the view's order, the entries that may be found, which outlive the view (NULL: as it
    // has it); NULL: so of all.
    const uint64_t *const *allowed;
} kn_view_options;

// The stores of these mixtures (one at least, of one model and one tap, or without stores) in one, in this
// order, the options applied; the cache is the first one's. Stores whose weight nobody gave share as those of
// a command do. It stands by itself: the mixtures may be closed before it. KNNLM_EINVAL: too many stores;
// KNNLM_ENOMEM.
knnlm_status kn_mixture_view(const kn_mixture *const *mixtures, size_t count, const kn_view_options *options,
                             kn_mixture **out);

#endif
