// The served stores: read by requests, changed while they are. Not a door: only this room includes it.
//
// A store is open in one state; a change makes a new one on disk, which is opened beside it and takes its
// place in between two batches. So who holds the model's lock (ticket_lock.h), or reads under that of the
// served stores, sees one state as long. What is given out here are copies, which last.
#ifndef KN_SERVE_SERVED_H
#define KN_SERVE_SERVED_H

#include "knn/key_map.h"
#include "knn/mixture.h"
#include "knn/origin.h"
#include "serve/request.h"
#include "serve/ticket_lock.h"
#include "store/store.h"

typedef struct kn_served kn_served;
// The store's path, and a line that says what is wrong with it. Called by a thread of its own.
typedef void kn_warn(void *context, const char *store, const char *message);

// `model_lock` is taken by whoever uses the model. Options are copied; KNNLM_EINVAL: two stores of one name,
// or as kn_mixture_open.
knnlm_status kn_served_open(kn_lm *lm, kn_ticket_lock *model_lock, const kn_mixture_options *options,
                            kn_served **out);
void kn_served_close(kn_served *served);
// From now on changes that other processes make are served within a second. What cannot be opened is warned
// of, and the state before is served on.
knnlm_status kn_served_refresh(kn_served *served, kn_warn *warn, void *context);
size_t kn_served_count(const kn_served *served);
const char *kn_served_name(const kn_served *served, size_t number);
const char *kn_served_name_of(const kn_served *served, const char *path); // "": none is there
// Paths of stores in the message become their names.
void kn_served_hide_paths(const kn_served *served, kn_http_error *err);
// Where the keys of the stores are taken, or would be.
kn_tap kn_served_tap(const kn_served *served);
uint64_t kn_served_entries(kn_served *served, size_t number);
// The number of a store; 404 where there is none of this name.
bool kn_served_find(const kn_served *served, const char *name, size_t *number, kn_http_error *err);
// Whether documents of a store can be added and removed here; 403: it is made of shards.
bool kn_served_takes_documents(const kn_served *served, const char *name, kn_http_error *err);

// ---------------------------------------------------------------- mixing

// What of it a request wants.
typedef struct kn_selection {
    uint32_t stores;            // a bit each
    double lambda, temperature; // NAN: not given
    int64_t k;                  // 0: not given
    bool fallback, cache;
    bool always;          // neighbours are wanted although they have no weight
    kn_name_filter names; // of documents that count; the request's
    bool without_content; // documents of this content do not:
    uint64_t content[2];  // its hash
} kn_selection;

// Which entries a selection leaves of each store, found out once for a state of it. Zero at first; freed
// after the last view. One thread at a time.
typedef struct kn_chosen_entries {
    kn_datastore *of[KN_STORES_MAX]; // held; NULL: not found out yet
    uint64_t *bits[KN_STORES_MAX];   // NULL: all
    bool none[KN_STORES_MAX];        // no entry is left
} kn_chosen_entries;
void kn_chosen_entries_free(kn_chosen_entries *chosen);

// Whether texts that are generated have a cache of their own states.
bool kn_served_has_cache(const kn_served *served);
typedef struct kn_cache_info {
    size_t size; // states; 0: none
    double lambda, temperature;
} kn_cache_info;
kn_cache_info kn_served_cache(const kn_served *served);

// 404 for a name that is none, 400 where no document is left.
bool kn_served_select(kn_served *served, const kn_knn_request *knn, bool generates, kn_selection *out,
                      kn_http_error *err);
// A mixture by the selection, the caller's, with *numbers (KN_STORES_MAX) of its stores among those served;
// `chosen` is the selection's, and outlives it. Stores that have no weight are left out where all of them
// have none: they need not be searched. Who calls holds the model's lock. KNNLM_ENOMEM.
knnlm_status kn_served_view(const kn_served *served, const kn_selection *selection, kn_chosen_entries *chosen,
                            kn_mixture **out, size_t *numbers);
// Bytes that the chosen entries of all stores take, where a selection chooses any.
size_t kn_served_choice_bytes(kn_served *served);
// Bytes that sums of every document of all stores take.
size_t kn_served_gain_bytes(kn_served *served);
// Documents of all stores that have this content.
size_t kn_served_copies(kn_served *served, const uint64_t content[2]);

// ---------------------------------------------------------------- reading

typedef struct kn_served_info {
    const char *name;            // valid as long as the stores are served
    uint64_t entries, documents; // those that were not removed
    uint64_t removed_entries, bytes;
    int32_t dimension;
    knnlm_distance distance;
    knnlm_keys key_type;
    char tap[64];
    bool shards; // it is made of them
    struct {
        uint64_t lists; // 0: no index
        bool codes;
    } index;
    struct {
        bool known, adaptive;
        double lambda, temperature;
        int64_t k;
    } tuned;
    // How it is mixed in by a request that says nothing about it, beside all other stores.
    struct {
        bool known; // false: it has no entries
        bool adaptive, gated, codes;
        double lambda, temperature;
        size_t k;
        uint32_t probes; // lists looked at; 0: every entry
    } effect;
} kn_served_info;
void kn_served_describe(kn_served *served, size_t number, kn_served_info *out);

// Which documents of a store: those whose name contains `like`, from `offset` on, at most `limit`.
typedef struct kn_document_range {
    uint64_t offset;
    size_t limit;
    const char *like; // "": all
} kn_document_range;
// Called under the lock: what it is given does not last, and it must not call back.
typedef void kn_document_visit(void *context, const kn_store_document *document);
// *total counts all that are like it. False: no such store, or it cannot be read (error set).
bool kn_served_documents(kn_served *served, const char *store, const kn_document_range *range,
                         kn_document_visit *visit, void *context, uint64_t *total, kn_http_error *err);

// So many tokens of a document, from a position on.
typedef struct kn_document_span {
    uint64_t position;
    size_t count;
} kn_document_span;

typedef struct kn_document_part {
    uint64_t total, bytes;            // of the document: tokens, bytes
    uint64_t entry, position, offset; // of the part's first token
    size_t tokens;
    char *text; // released with free()
    size_t size;
} kn_document_part;
// As much of the span as there is. False: no such store or document, or it cannot be read (error set).
bool kn_served_document(kn_served *served, const char *store, const char *name, const kn_document_span *span,
                        kn_document_part *out, kn_http_error *err);

// `count` entries of a document from one on, and so many tokens around them.
typedef struct kn_entry_span {
    uint64_t entry;
    size_t count, around;
} kn_entry_span;

// Their text, and the text around it.
typedef struct kn_passage {
    kn_origin origin;
    char *name;        // of the document, which `origin` has
    bool begins, ends; // what is around begins, ends where the document does
} kn_passage;
// False: no such store or entry, or it cannot be read (error set). To be freed only after true.
bool kn_served_passage(kn_served *served, const char *store, const kn_entry_span *span, kn_passage *out,
                       kn_http_error *err);
void kn_passage_free(kn_passage *passage);

// ---------------------------------------------------------------- a map

typedef struct kn_served_map_info {
    uint64_t generation; // of the store: a place belongs to a map of the same one
    double variances[2], total;
} kn_served_map_info;
// A point of it, in the order of entries. Called under the lock, as kn_document_visit.
typedef void kn_served_map_visit(void *context, const kn_key_map_point *point, const kn_store_entry *entry,
                                 const kn_store_document *document);
// A sample of its keys in two dimensions (knn/key_map.h). False: no such store, it has no keys, or it cannot
// be read (error set).
bool kn_served_map(kn_served *served, const char *store, kn_served_map_visit *visit, void *context,
                   kn_served_map_info *out, kn_http_error *err);
// Where the model is in it after these tokens. Takes the model's lock. False: as before.
bool kn_served_map_place(kn_served *served, const char *store, const int32_t *tokens, size_t count,
                         kn_key_map_point *place, kn_served_map_info *out, kn_http_error *err);

// ---------------------------------------------------------------- changing

typedef struct kn_served_change {
    const char *store;
    bool allowed;          // false: 403, once the store is found
    bool (*go_on)(void *); // asked now and then
    void *context;
    kn_progress progress; // told how far it is, and asked too; {0}: nobody listens
} kn_served_change;

typedef struct kn_new_document {
    const char *name, *text;
    size_t size;
} kn_new_document;

typedef struct kn_served_added {
    uint64_t entries;
    size_t documents; // that the store did not have before, under this name
    size_t unchanged; // that it had
} kn_served_added;

// On disk and seen by every request from then on, or nothing has changed (but where the new state cannot be
// opened: then it is on disk alone). Of several each for itself, in their order: those before one that fails
// stay, and `out` counts them. False: error set.
bool kn_served_add(kn_served *served, const kn_served_change *change, const kn_new_document *documents,
                   size_t count, kn_served_added *out, kn_http_error *err);
// What was removed is dropped, and the index made anew where it has to be.
bool kn_served_compact(kn_served *served, const kn_served_change *change, knnlm_compact_result *out,
                       kn_http_error *err);
// Lambda, temperature, k and the rest are found on the text (NULL: on the store's own), and kept in the
// store.
typedef struct kn_served_tuned {
    uint64_t tokens;
    double ppl_lm, ppl; // of the model alone, and with one lambda
    double ppl_best;    // by the gate or by bins, where the store has them now; else as ppl
    bool written;
} kn_served_tuned;
bool kn_served_tune(kn_served *served, const kn_served_change *change, const char *text, size_t size,
                    kn_served_tuned *out, kn_http_error *err);
// Reads all of the store; `found` is told of every problem. out->document_damaged is NULL.
bool kn_served_verify(kn_served *served, const kn_served_change *change,
                      void (*found)(void *context, const knnlm_problem *problem), void *context,
                      knnlm_verify_result *out, kn_http_error *err);
// *removed entries.
bool kn_served_remove(kn_served *served, const kn_served_change *change, const char *document, size_t size,
                      uint64_t *removed, kn_http_error *err);

#endif
