// What a datastore is made of. Not a door: only this room includes it.
#ifndef KN_KNN_DATASTORE_PARTS_H
#define KN_KNN_DATASTORE_PARTS_H

#include "knn/datastore.h"
#include "math/pca.h"
#include "store/contents.h"
#include "store/shards.h"

#include <pthread.h>
#include <stdatomic.h>

// A shard of it, searched by the rank that has it.
typedef struct kn_piece {
    int rank;
    uint64_t handle; // there
    bool opened;
    bool empty; // nothing can be found in it
    kn_index_info index;
    uint64_t lists; // hash of its lists
} kn_piece;

// Memory of searches for one query that is not in use: made anew for every token it would be cleared by the
// system every time, which took longer than the search.
typedef struct kn_idle_searchers {
    kn_searcher **all;
    size_t count, capacity;
    size_t k_max; // of each
} kn_idle_searchers;

struct kn_datastore {
    atomic_size_t holders;
    kn_datastore_info info;
    kn_store *store;
    kn_index *index;
    pthread_mutex_t lock;    // of what follows: opened when first asked for
    kn_index *flat;          // without lists
    kn_idle_searchers idle;  // of `index`
    kn_pca pca;              // in 0: keys are the model's states
    size_t width;            // of the model's states
    int32_t *values;         // of all its entries
    uint64_t *beginnings;    // a bit per entry: it begins a document
    uint64_t *allowed;       // a bit per entry that may be found; NULL: all
    bool nothing;            // of a shard: no document is left by the filter
    kn_contents contents;    // its documents by content
    kn_tokenizer *tokenizer; // of its texts; NULL: not known
    kn_piece *pieces;        // of a store of shards, one each; index, pca, values, beginnings and allowed are
                             // theirs then
    kn_index_info all;       // of their indexes together
    bool same_lists;         // they have the same lists: who finds those near a query finds them for all
};

// Each query by itself, by the datastore's own index (search_singly.c). `keys` (n, d) are projected already.
knnlm_status kn_datastore_search_singly(const kn_datastore *s, const float *keys, size_t d, size_t n,
                                        const kn_retrieve_options *o, kn_retrieved *out);
void kn_idle_searchers_free(kn_idle_searchers *idle);
// Values and beginnings of what one query found, and its entropy; scratch (2 k), needed where that is wanted.
void kn_datastore_look_up(const kn_datastore *s, const kn_retrieve_options *o, size_t query,
                          kn_value_share *scratch, kn_retrieved *out);

// States as the store keeps its keys: *projected is to be freed; NULL: they are the same.
knnlm_status kn_datastore_project(const kn_datastore *s, const float *states, size_t n, float **projected);
// Many queries, by keys (n, dimension), each told of as soon as its neighbours are known.
typedef struct kn_search_telling {
    kn_found_sink *found;
    void *context;
    bool any_order;
    const uint32_t *lists; // as of kn_search_options
} kn_search_telling;
knnlm_status kn_datastore_search_as(const kn_datastore *s, const float *keys, size_t n,
                                    const kn_retrieve_options *o, const kn_search_telling *how);

// As kn_index_probe.
knnlm_status kn_datastore_probe(const kn_datastore *s, const float *keys, size_t n,
                                const kn_retrieve_options *o, uint32_t **lists, uint32_t *probes);

// ---------------------------------------------------------------- of shards

knnlm_status kn_pieces_open(kn_datastore *s, const kn_lm *lm, const kn_datastore_options *options);
void kn_pieces_close(kn_datastore *s);
knnlm_status kn_pieces_search(const kn_datastore *s, const float *states, size_t n,
                              const kn_retrieve_options *o, kn_retrieved *out);
knnlm_status kn_pieces_measure(const kn_datastore *s, const float *states, size_t n,
                               const kn_retrieve_options *o, const kn_measuring *what, kn_row_facts *out);

#endif
