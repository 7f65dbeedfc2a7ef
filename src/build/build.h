// Texts to a datastore: the model reads them once, the store remembers every context.
//
// Building and adding are one thing: documents that the store has already, by identity (identity.h) and
// content, are left alone, the others are stored, and those that came with new content lose the old. So a
// name always has the content last given to it. Content that the store has under another name is copied, not
// read again. The command that was interrupted, run again, goes on where the last commit left it.
//
// A store may be made of shards (store/shards.h), which all ranks build at the same time; what is said here
// of stores is true of those too.
#ifndef KN_BUILD_H
#define KN_BUILD_H

#include "index/index.h"
#include "math/pca.h"
#include "read/read.h"
#include "store/store.h"

// The documents of the texts that a shard gets, by their number in reading order, which ascends; what the
// store calls them, and their order among those of all shards.
typedef struct kn_dealt_text {
    size_t number;
    uint32_t order;
    const char *name;
} kn_dealt_text;
typedef struct kn_dealt {
    kn_dealt_text *documents;
    size_t count;
} kn_dealt;

typedef struct kn_build_options {
    kn_text_options texts;
    kn_tap tap;
    int32_t min_context; // tokens before every target, where there are any; negative: half the model's window
    knnlm_keys keys;
    knnlm_distance distance;
    int32_t project;  // dimensions kept by PCA; 0: all
    uint32_t segment; // entries per commit; 0: by the size of the model
    uint64_t memory;  // bytes that may be resident; 0: any
    bool force;       // goes on although disk or memory seem too small
    // Told what the work will cost, before it begins; may be NULL.
    void (*planned)(void *context, const knnlm_build_estimate *estimate);
    void *planned_context;
    size_t shards;     // of a new store; 0: it has none
    const char *local; // directory of the shards, on the disk of the rank that has each; NULL: in the store
    const kn_dealt *dealt;    // of a shard: the documents that are its own; NULL: all
    const kn_pca *projection; // of a shard: that of all of them; NULL: it is learnt from the texts
} kn_build_options;

typedef struct kn_build_result {
    uint64_t documents_added, documents_unchanged, documents_replaced;
    uint64_t documents_damaged;          // of the store: they were passed over
    uint64_t entries_added, bytes_added; // bytes: of text
    uint64_t entries, documents;         // of the store, removed ones not counted
    uint64_t store_bytes;
    bool resumed; // an interrupted run was continued
    double seconds, tokens_per_second;
    uint64_t documents_removed; // whose files are gone
} kn_build_result;

kn_build_options kn_build_options_default(void);

// A new store at `path`, or more of one that the same settings began. KNNLM_EINVAL: a store of other settings
// or of another model is there; KNNLM_EIO: the disk or a file; KNNLM_EBUSY: another process is writing;
// KNNLM_ESTOPPED: interrupted, the last commit stands.
knnlm_status kn_build(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                      const kn_build_options *options, const kn_progress *progress, kn_build_result *out);
// The same into an existing store, by its settings: of the options only texts, memory, force and
// planned count.
knnlm_status kn_build_add(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                          const kn_build_options *options, const kn_progress *progress, kn_build_result *out);

// The same with directories, of which the store then has no documents but those that are there: those whose
// files lie in them and are gone, or not read any more, are removed. KNNLM_EINVAL: not a directory.
knnlm_status kn_build_sync(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                           const kn_build_options *options, const kn_progress *progress,
                           kn_build_result *out);
// What kn_build_sync would do, without a model: nothing is written. Of the options texts count.
knnlm_status kn_build_compare(const char *path, const char *const *texts, size_t count,
                              const kn_build_options *options, const kn_progress *progress,
                              knnlm_change_found *found, void *context, kn_build_result *out);

// Adds one document that is in memory (its path may be anything), or the new content of one of its name: all
// of it or nothing, whatever happens. The model is given about `gather` tokens at a time, and progress is
// reported after each, so that others may have it in between.
knnlm_status kn_build_add_one(kn_lm *lm, const char *path, const kn_document *document, size_t gather,
                              const kn_progress *progress, kn_build_result *out);

// Brings the index of the store at `path` up to date: what was added goes into its lists; a store without
// one gets it by the recipe when that is worth while, or `wanted` in any case. *done: something was done.
// `lm` (or NULL) reads the tokens of a store without keys again, straight into codes: no key is ever written.
knnlm_status kn_build_index(const char *path, const kn_recipe *recipe, bool wanted, kn_lm *lm,
                            const kn_progress *progress, bool *done, kn_index_result *out);

// Indexes the store at `path` anew by the recipe, or (`extend`) only puts what was added into the lists it
// has. A store without keys needs codes and `lm`, the model that made it; what a run before has computed is
// gone on with. KNNLM_EINVAL: one of these is missing, or there is nothing to do; else as kn_index_build.
knnlm_status kn_build_reindex(const char *path, const kn_recipe *recipe, bool extend, kn_lm *lm,
                              const kn_progress *progress, kn_index_result *out);

// Drops what was removed from the store at `path` and makes its index anew, as entries get other numbers;
// `force` goes on although the disk seems too small, or a store without keys loses its index.
knnlm_status kn_build_compact(const char *path, bool force, const kn_progress *progress,
                              knnlm_compact_result *out);

// Does what a verification of the store at `path` advises: removes its lost documents, writes what is left
// without them, and makes the index anew. A store without keys keeps its index, as only its model could make
// another: there the lost documents are removed and that is all. Attachments are not repaired.
knnlm_status kn_build_repair(const char *path, const knnlm_verify_result *verdict,
                             const kn_progress *progress, knnlm_repair_result *out);

// Keeps the tokenizer in a new store, so that its tokens have a text without the model.
knnlm_status kn_build_attach_tokenizer(kn_store_writer *w, const kn_tokenizer *t);
// What ranks do with the shards that they have.
extern const kn_service kn_service_build, kn_service_index, kn_service_learnt, kn_service_compact;

// Whether `lm` made the store.
knnlm_status kn_build_check_model(const kn_store *store, const kn_lm *lm);

#endif
