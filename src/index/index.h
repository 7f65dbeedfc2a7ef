// Query vectors to the nearest entries of a store.
//
// Without an index every entry is looked at: exact, and right for small stores. With one, entries lie in
// lists by the nearest of some thousand centroids, and a search looks at the lists nearest to the query. Keys
// lie in list order beside their lists, so that what a search reads it reads in one piece; distances are
// computed from the keys themselves (from codes where the store keeps none). What was added since the index
// was made is looked at as a whole; what was removed is not found.
//
// Distances are squared L2; the negated inner product; or 1 - cosine. Smaller is nearer in all of them. They
// are sums of f32, and the same whatever the threads and however queries are batched; between instruction
// sets they differ in rounding. Ties go to the lower entry. Vectors whose squared length is beyond f32 (1e38)
// have no cosine: they count as orthogonal to all.
#ifndef KN_INDEX_H
#define KN_INDEX_H

#include "base/progress.h"
#include "store/shards.h"
#include "store/store.h"

// ---------------------------------------------------------------- searching

// The index of one state of a store; immutable, for any number of threads. The store outlives it.
typedef struct kn_index kn_index;

typedef struct kn_index_info {
    uint32_t lists;      // 0: none, every search is exact
    uint32_t groups;     // of lists; 0: none
    uint32_t probes;     // lists looked at by default
    uint64_t listed;     // entries in lists
    uint64_t flat;       // entries outside: all are looked at
    uint32_t code_bytes; // of an entry's code; 0: none
    uint32_t code_parts, code_bits;
    bool has_keys;    // distances are of keys, not of codes
    uint64_t bytes;   // on disk
    double imbalance; // 1: lists of equal length; the longer the work, the higher
    double drift;     // mean distance to the centroid of what was added after training, against before; 0:
                      // nothing was
} kn_index_info;

// KNNLM_ENOTSUP: a store of shards, which have one each; KNNLM_EDATA: it is damaged; KNNLM_ENOMEM.
knnlm_status kn_index_open(const kn_store *store, kn_index **out);
// The same without lists, whatever the store has: every search is exact.
knnlm_status kn_index_open_flat(const kn_store *store, kn_index **out);
// By another distance than the store was made for, with its lists or without. Lists were made by the store's
// own: the search by them finds less than it would by that one.
knnlm_status kn_index_open_as(const kn_store *store, knnlm_distance distance, bool lists, kn_index **out);
void kn_index_close(kn_index *index);
const kn_index_info *kn_index_describe(const kn_index *index);

typedef struct kn_entry_range {
    uint64_t first, end;
} kn_entry_range;

// Memory of a search of many queries that the next one uses again: hundreds of megabytes for thousands of
// queries, which the system would have to clear every time. One search at a time.
typedef struct kn_search_scratch {
    void *items;
    size_t bytes;
    void *lists; // the same of the search for lists
    size_t lists_bytes;
} kn_search_scratch;
void kn_search_scratch_free(kn_search_scratch *scratch);

// Told of a query's neighbours, nearest first, as soon as they are known: by any worker, in any order. They
// are valid during the call.
typedef void kn_found_sink(void *context, size_t query, const uint32_t *ids, const float *distances,
                           size_t count, int worker);

typedef struct kn_search_options {
    size_t k;
    uint32_t probes; // 0: the index's own; at least the number of lists: exact
    bool codes; // distances are of the codes although there are keys (what lies outside lists has keys alone)
    // Entries that do not count (a document; the query's own): ranges of each query, or NULL.
    const kn_entry_range *exclude; // (queries, excludes)
    size_t excludes;               // 0: one per query
    const uint64_t *allowed;       // a bit per entry, for all queries, or NULL: all
    // (queries, probes): the lists that are looked at, as kn_index_probe finds them. NULL: the search finds
    // them.
    const uint32_t *lists;
    uint64_t memory; // bytes that the search may hold beside results; 0: any. Of searches for one
                     // query: rows that stay mapped
    const kn_progress *progress;
    kn_found_sink *found; // of kn_index_search: in place of its `out`, which may then be NULL
    void *found_context;
    bool any_order; // `found` is told the nearest first, the others in an order that may differ every time
    kn_search_scratch *scratch; // of kn_index_search, zero at first; NULL: memory of its own
    bool spread;                // a searcher's lists are looked at by all threads rather than its own
} kn_search_options;

// Nearest first. Rows are k long; those with fewer neighbours end with UINT32_MAX and infinity.
typedef struct kn_neighbors {
    uint32_t *ids;    // (queries, k)
    float *distances; // (queries, k)
    uint32_t *counts; // (queries)
} kn_neighbors;

// Many queries (n, dimension) at once: list by list, each list against all its queries as one product.
// KNNLM_EINVAL: k is 0, or codes are wanted and there are none; KNNLM_ENOTSUP: there are neither keys nor
// lists; KNNLM_EDATA: a query is not finite; KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_index_search(const kn_index *index, const float *queries, size_t n,
                             const kn_search_options *options, kn_neighbors *out);

// The lists that a search with these options would look at: *lists (n, *probes), to be freed; NULL: there are
// none. Indexes of the same lists (kn_index_lists) give the same.
knnlm_status kn_index_probe(const kn_index *index, const float *queries, size_t n,
                            const kn_search_options *options, uint32_t **lists, uint32_t *probes);
// A hash of the lists' centroids; 0: there are none.
uint64_t kn_index_lists(const kn_index *index);

// One query at a time, by one thread (unless `spread`), without allocating: a searcher is the memory for it.
typedef struct kn_searcher kn_searcher;
knnlm_status kn_searcher_open(const kn_index *index, size_t k_max, kn_searcher **out);
void kn_searcher_close(kn_searcher *searcher); // NULL is allowed
size_t kn_searcher_k_max(const kn_searcher *searcher);
// As kn_index_search with n = 1. KNNLM_EINVAL: k is 0 or above k_max.
knnlm_status kn_searcher_find(kn_searcher *searcher, const float *query, const kn_search_options *options,
                              kn_neighbors *out);

// By the definition, in double precision, one thread: the ground truth of tests and of recall.
knnlm_status kn_index_brute_force(const kn_store *store, const float *query, size_t k,
                                  const kn_entry_range *exclude, const uint64_t *allowed, uint32_t *ids,
                                  double *distances, size_t *count);

// ---------------------------------------------------------------- judging

typedef struct kn_recall_options {
    size_t queries, k;
    uint64_t seed;
    uint64_t memory; // as of a search
    const kn_progress *progress;
} kn_recall_options;

// What searches with 1, 2, 4, ... probes find of the true neighbours of entries drawn from the store (each
// without itself), and what they cost; the last row is the exact search. KNNLM_ENOTSUP: a store without keys.
knnlm_status kn_index_recall(const kn_store *store, const kn_recall_options *options,
                             knnlm_recall out[KNNLM_RECALL_MAX], size_t *count);

// ---------------------------------------------------------------- making

// Where keys come from, for stores that keep none: those of entries [first, first + n), as (n, dimension).
typedef struct kn_key_source {
    knnlm_status (*read)(void *context, uint64_t first, size_t n, float *out);
    void *context;
    size_t stretch; // entries that cost little more than one of them
} kn_key_source;

typedef struct kn_recipe {
    uint32_t lists;      // 0: by the number of entries
    uint32_t groups;     // of lists; 0: by their number
    uint32_t code_parts; // bytes of a PQ code with 8 bits; 0: none
    uint32_t code_bits;  // 8 or 4
    bool auto_codes;     // without code_parts: codes of up to 64 bytes, where keys do not fit into memory
    uint64_t train;      // keys to learn from; 0: 64 a list
    uint32_t probes;     // 0: 32, or all
    uint32_t iterations; // of k-means; 0: 10
    uint64_t seed, memory;
    bool force;                  // goes on although disk or memory seem too small
    const kn_key_source *source; // NULL: the store's keys
} kn_recipe;

// The codes of a recipe from "auto" (or NULL), "none", "pq64" (64 bytes per code) or "pq64x4" (64 parts of 4
// bits). KNNLM_EINVAL: another text.
knnlm_status kn_recipe_parse_codes(const char *text, kn_recipe *out);

// The recipe that would make the index of the store once more, by what it says of itself; no lists: it has
// none.
knnlm_status kn_recipe_of(const kn_store *store, kn_recipe *out);

// What the store says of its index, without opening it: lists (0: there is none), and entries in them.
knnlm_status kn_index_outline(const kn_store *store, uint32_t *lists, uint64_t *listed);

typedef struct kn_index_result {
    kn_index_info info;
    double train_seconds, assign_seconds, write_seconds;
    double objective; // mean squared distance to the centroid
} kn_index_result;

// (Re)indexes the store at `path`: KNNLM_EBUSY while another process writes to it. A store without keys is
// indexed by its source alone, in codes, a million entries per commit: what was interrupted is gone on with
// by kn_index_extend.
knnlm_status kn_index_build(const char *path, const kn_recipe *recipe, const kn_progress *progress,
                            kn_index_result *out);
// Lists that the index of so many entries has where nobody says otherwise.
uint32_t kn_recipe_lists(uint64_t entries);
// Puts what was added since into the lists, without learning anew; of the recipe memory, force and source
// count.
knnlm_status kn_index_extend(const char *path, const kn_recipe *recipe, const kn_progress *progress,
                             kn_index_result *out);

// ---------------------------------------------------------------- shards

// Lists and codes that were learnt for several stores, so that they mean the same in each.
typedef struct kn_learnt kn_learnt;
// From all shards of a store (or any store), by the recipe: the same as an index of all entries would learn.
knnlm_status kn_learnt_make(const kn_store *store, const kn_recipe *recipe, const kn_progress *progress,
                            double *seconds, kn_learnt **out);
// Those of the index that a store has.
knnlm_status kn_learnt_of(const kn_store *store, kn_learnt **out);
void kn_learnt_free(kn_learnt *learnt); // NULL is allowed
// To another rank, and from it.
void kn_learnt_put(const kn_learnt *learnt, kn_message *out);
knnlm_status kn_learnt_take(kn_message *in, kn_learnt **out);
// Indexes the store at `path` by them; one without entries stays without an index. Of the recipe memory and
// force count.
knnlm_status kn_index_build_as(const char *path, const kn_learnt *learnt, const kn_recipe *recipe,
                               const kn_progress *progress, kn_index_result *out);

// What ranks do where lists are learnt in groups.
extern const kn_service kn_service_kmeans;

// For kn_store_compact: the lists stay, without what was removed.
kn_rearrange kn_index_rearrange;

#endif
