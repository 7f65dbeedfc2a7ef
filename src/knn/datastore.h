// A store opened for a model to search: the door to neighbours, whatever holds them.
//
// Behind it stands a local index, or those of the shards of a store, on whatever ranks they are. Nothing
// above it knows the index, or reads keys and values by pointer. States in, neighbours out; ids are those of
// the store.
//
// A datastore is one state of a store. It never changes: any number of threads may search it. Whoever holds
// one releases it; the last to do so closes it.
#ifndef KN_KNN_DATASTORE_H
#define KN_KNN_DATASTORE_H

#include "index/index.h"
#include "knn/origin.h"
#include "lm/lm.h"
#include "mix/mix.h"

typedef struct kn_datastore kn_datastore;

typedef struct kn_datastore_options {
    int distance;                      // knnlm_distance; negative: the store's own
    void (*warn)(const char *message); // told of documents that are damaged and left out; NULL: nobody
    kn_name_filter filter;             // only entries of these documents are found
    bool shard;                        // of a store whose other shards may have what this one lacks
} kn_datastore_options;

// `lm` NULL: it will be searched by keys, not by a model's states. KNNLM_EINVAL: made by another model, of
// tokens beyond its vocabulary, or empty, or no document is left by the filter; else as kn_store_open and
// kn_index_open.
knnlm_status kn_datastore_open(const kn_lm *lm, const char *path, const kn_datastore_options *options,
                               kn_datastore **out);
// One holder more, and one less (NULL is allowed). Any thread.
kn_datastore *kn_datastore_hold(kn_datastore *datastore);
void kn_datastore_release(kn_datastore *datastore);

typedef struct kn_datastore_info {
    const kn_store_info *store;
    knnlm_distance distance;
    const kn_index_info *index; // what is known of it
} kn_datastore_info;

const kn_datastore_info *kn_datastore_describe(const kn_datastore *datastore);

// A bit for each entry that is found by those who pass it on (kn_retrieve_options): those of the documents
// that the names choose, without those whose content has the hash (NULL: any), and of those that it was
// opened for. *bits is the caller's, released with free(); NULL: all of these. KNNLM_EINVAL: no document is
// left; KNNLM_ENOMEM.
knnlm_status kn_datastore_select(const kn_datastore *datastore, const kn_name_filter *names,
                                 const uint64_t *content, uint64_t **bits);

// ---------------------------------------------------------------- searching

typedef struct kn_retrieve_options {
    size_t k;
    uint32_t probes;    // lists looked at; 0: the index's own; at least as many as there are: every entry
    bool codes;         // distances of the index's codes
    double temperature; // of the entropy of p_kNN; NAN: that is not wanted
    const kn_entry_range *exclude; // (queries, excludes): entries that do not count, or NULL
    size_t excludes;
    // Each query by itself: soonest for a few, as of a step of generation. List by list otherwise. Distances
    // of the two are sums in another order: they differ in rounding, so numbers to be compared are searched
    // one way.
    bool singly;
    uint64_t memory;            // bytes that the search may hold; 0: any
    kn_search_scratch *scratch; // as of kn_search_options
    const uint64_t
        *allowed; // a bit per entry that may be found (kn_datastore_select); NULL: as it was opened
} kn_retrieve_options;

// The neighbours of one state in one store, nearest first.
typedef struct kn_row_neighbors {
    kn_neighborhood near;
    const uint64_t *ids; // NULL: nobody asked for them
    double entropy;      // of p_kNN, where the store falls back
    bool begins;         // the nearest begins a document
} kn_row_neighbors;

// What is measured of each query's neighbours, in place of telling them (knn/measure.h).
typedef struct kn_measure kn_measure;
typedef struct kn_row_facts kn_row_facts;
typedef struct kn_measuring {
    const kn_measure *measures;
    size_t count;
    const uint32_t *which;  // (queries): which of the measures
    const int32_t *targets; // (queries)
} kn_measuring;

// Neighbours of some queries, nearest first.
typedef struct kn_retrieved {
    size_t k;
    uint64_t *ids;     // (queries, k)
    uint32_t *found;   // (queries, k): the same, as a single index finds them
    float *distances;  // (queries, k)
    int32_t *values;   // (queries, k): tokens
    uint32_t *counts;  // (queries)
    bool *begins;      // (queries): the nearest begins a document
    double *entropies; // (queries): of p_kNN, in nats, where wanted (NAN: no neighbours)
} kn_retrieved;

knnlm_status kn_retrieved_init(kn_retrieved *found, size_t queries, size_t k);
void kn_retrieved_free(kn_retrieved *found);

// Neighbours of the model's states (n, width). What is found does not depend on how many there are, nor on
// threads. `out` has room for n queries of options->k. KNNLM_EINVAL: codes that there are none of;
// KNNLM_ENOTSUP: neither keys nor lists; KNNLM_EDATA: a state is not finite, or the store is damaged;
// KNNLM_ENOMEM.
knnlm_status kn_datastore_search(const kn_datastore *datastore, const float *states, size_t n,
                                 const kn_retrieve_options *options, kn_retrieved *out);
// The same, but the neighbours are measured where they are found and not kept (200 MB of 16384 queries for
// 1024), nor sent from one rank to another. out (n). Not singly.
knnlm_status kn_datastore_measure(const kn_datastore *datastore, const float *states, size_t n,
                                  const kn_retrieve_options *options, const kn_measuring *what,
                                  kn_row_facts *out);
// Whether both would find the same.
bool kn_datastore_same_search(const kn_datastore *a, const kn_retrieve_options *by_a, const kn_datastore *b,
                              const kn_retrieve_options *by_b);

// ---------------------------------------------------------------- what was found

// The text around `count` tokens from entry `id` on; without a tokenizer the texts are empty. As
// kn_origin_read_span.
knnlm_status kn_datastore_origin(const kn_datastore *datastore, uint64_t id, size_t count, size_t around,
                                 kn_origin *out);
// NULL: its tokens have no text.
const kn_tokenizer *kn_datastore_tokenizer(const kn_datastore *datastore);
knnlm_status kn_datastore_entry(const kn_datastore *datastore, uint64_t id, kn_store_entry *out);
// `count` tokens from entry `first` on. KNNLM_EINVAL: there are fewer.
knnlm_status kn_datastore_tokens(const kn_datastore *datastore, uint64_t first, size_t count, int32_t *out);
knnlm_status kn_datastore_document(const kn_datastore *datastore, uint64_t number, kn_store_document *out);
// The entries of the documents of this content: *count of them, the first `room` in `out`.
knnlm_status kn_datastore_find_content(const kn_datastore *datastore, const uint64_t hash[2], size_t room,
                                       kn_entry_range *out, size_t *count);

#endif
