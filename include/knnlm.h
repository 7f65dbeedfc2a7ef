// knnlm: nearest-neighbour language models. The one installed header.
//
// A model reads a text; a store remembers, for every token of it, the model's state before the token (the
// key) and the token (the value). To predict, the states nearest to the present one are searched for, and
// what followed them then is mixed into what the model says. The sections below stand in that order: status,
// model, building, store, index and search, predicting, generating.
//
// Conventions. Every function that can fail returns a knnlm_status: 0 is done, and otherwise knnlm_message()
// has one line for people. Handles are opaque; what _open gives, _close takes back. The library never prints
// and never exits (llama.cpp, where a model needs it, ends the process when a promise of its own is broken).
//
// Growing. Structs of options begin with `size`, which their _default function sets to the sizeof of the
// caller's header. A newer library reads an older, shorter struct up to there and takes defaults for the
// rest; size 0, or a size above the library's own, is refused (KNNLM_EINVAL). So: always begin with
// knnlm_..._options_default(). Results have no size: they change with the library's SOVERSION alone. Values
// of enums never change.
#ifndef KNNLM_H
#define KNNLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the shared library exports: every function here, and nothing else.
#if defined(__GNUC__)
#define KNNLM_API __attribute__((visibility("default")))
#else
#define KNNLM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KNNLM_VERSION "0.1.0"

// ---------------------------------------------------------------- status

// What a function returns. The message of a failure is kept per thread, so that threads do not disturb each
// other.

typedef enum knnlm_status {
    KNNLM_OK = 0,
    KNNLM_EINVAL = 1,   // an argument or an option is wrong
    KNNLM_EIO = 2,      // a file or a device failed
    KNNLM_EDATA = 3,    // a file's content is malformed
    KNNLM_ENOMEM = 4,   // memory could not be had
    KNNLM_ENOTSUP = 5,  // well formed, but not something this build can do
    KNNLM_ESTOPPED = 6, // interrupted by the user; what could be kept was kept
    KNNLM_EBUSY = 7,    // another writer has the store: try again when it has ended
} knnlm_status;

// The message of the last failure in the calling thread; valid until the next failure in it. Never NULL.
KNNLM_API const char *knnlm_message(void);
// A few words for a status; a constant. Any thread.
KNNLM_API const char *knnlm_status_name(knnlm_status status);
// The version of the library linked, as KNNLM_VERSION. Any thread.
KNNLM_API const char *knnlm_version(void);

// Memory that the library handed out.
KNNLM_API void knnlm_free(void *memory);

// Worker threads of the process; 0: one per CPU that its affinity mask and its control group's quota allow.
// Not while another call is under way. KNNLM_EINVAL: negative or above 256.
KNNLM_API knnlm_status knnlm_threads_set(int threads);

// Who listens to long work. `report` is called now and then from the thread that called: `done` of `total`
// units (total 0: not known) of a phase, such as "reading" ... "tokens". Each phase counts anew. Returning
// false stops the work, which then ends with KNNLM_ESTOPPED; the last commit stands. `report` NULL: nobody
// listens. The strings are constants.
typedef struct knnlm_progress {
    bool (*report)(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit);
    void *context;
} knnlm_progress;

// ---------------------------------------------------------------- model

// A language model with its tokenizer. One thread at a time may use a model; different models may be used by
// different threads.
typedef struct knnlm_model knnlm_model;

typedef enum knnlm_precision {
    KNNLM_PRECISION_AUTO = 0, // bf16 products where the CPU has them, else f32; llama: as llama.cpp has them
    KNNLM_PRECISION_F32 = 1,
    KNNLM_PRECISION_BF16 = 2,
} knnlm_precision;

// What runs a model: our own code (architectures knnlm and gpt2), or llama.cpp where the library was built
// with it (nearly all that come as GGUF).
typedef enum knnlm_engine {
    KNNLM_ENGINE_AUTO = 0,
    KNNLM_ENGINE_NATIVE = 1,
    KNNLM_ENGINE_LLAMA = 2,
} knnlm_engine;

typedef struct knnlm_model_options {
    size_t size;               // of this struct: set by knnlm_model_options_default
    knnlm_precision precision; // llama: f32 for keys and values in f32; bf16 is refused
    knnlm_engine engine;       // auto: by the file
    bool accept;               // stores that another model made may be used with this one
} knnlm_model_options;

typedef struct knnlm_model_info {
    const char *path, *architecture, *engine, *kernels; // owned by the model
    int32_t vocabulary, width, layers, heads, ffn, context, key_width;
    uint64_t parameters, file_bytes;
    char fingerprint[33]; // of the file, or of all its parts: 128 bits in hexadecimal
    int32_t window; // tokens read at a time by default: as the model was trained, where its file tells; else
                    // the context, where it is not very long
} knnlm_model_info;

KNNLM_API knnlm_model_options knnlm_model_options_default(void);

// Opens a model file (GGUF). `options` may be NULL.
// KNNLM_EIO: cannot be read; KNNLM_EDATA: malformed; KNNLM_EINVAL: options that do not fit it; KNNLM_ENOTSUP:
// no engine here runs such a model; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_open(const char *path, const knnlm_model_options *options,
                                        knnlm_model **out);
// NULL is allowed.
KNNLM_API void knnlm_model_close(knnlm_model *model);
// Any thread, while the model is open.
KNNLM_API void knnlm_model_describe(const knnlm_model *model, knnlm_model_info *out);

// Text to tokens; *tokens is the caller's, released with knnlm_free. Any thread.
// KNNLM_EDATA: not UTF-8 (word and WordPiece tokenizers; byte-level BPE takes any bytes); KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_encode(const knnlm_model *model, const char *text, size_t size,
                                          int32_t **tokens, size_t *count);
// Tokens to text with a NUL added; *text is the caller's, released with knnlm_free. Any thread.
// KNNLM_EINVAL: a token is not in the vocabulary; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_decode(const knnlm_model *model, const int32_t *tokens, size_t count,
                                          char **text, size_t *size);

// How a text is read: `score` tokens at a time, each time after up to `context` tokens before them.
typedef struct knnlm_score_options {
    size_t size;     // of this struct: set by knnlm_score_options_default
    int32_t score;   // 0: half of the model's window, at most 512
    int32_t context; // negative: what is left of the window
} knnlm_score_options;

KNNLM_API knnlm_score_options knnlm_score_options_default(void);

// Natural logarithm of the probability of every token of one document, each given those before it.
// `logprobs` has room for `count`; `options` may be NULL.
// KNNLM_EINVAL: a token is not in the vocabulary, or score and context exceed the model's; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_score(knnlm_model *model, const int32_t *tokens, size_t count,
                                         const knnlm_score_options *options, float *logprobs);

// ---------------------------------------------------------------- building

// How keys are kept.
typedef enum knnlm_keys {
    KNNLM_KEYS_F16 = 0,
    KNNLM_KEYS_F32 = 1,
    KNNLM_KEYS_INT8 = 2, // with a scale per key
    KNNLM_KEYS_NONE = 3, // not at all: an index with codes takes their place
} knnlm_keys;

typedef enum knnlm_distance {
    KNNLM_DISTANCE_L2 = 0,     // squared
    KNNLM_DISTANCE_IP = 1,     // the negated inner product
    KNNLM_DISTANCE_COSINE = 2, // 1 - cosine
} knnlm_distance;

// What a document is.
typedef enum knnlm_split {
    KNNLM_SPLIT_FILE = 0, // a file
    KNNLM_SPLIT_WIKI = 1, // each "= Title =" section (one '=' a side) of a file
} knnlm_split;

typedef struct knnlm_build_options {
    size_t size;         // of this struct: set by knnlm_build_options_default
    const char *tap;     // where in the model keys are taken: "ffn", "output@3", ...; NULL: "ffn"
    int32_t min_context; // tokens before every target, where there are any; negative: half the model's window
    knnlm_keys keys;
    knnlm_distance distance;
    int32_t project;  // dimensions kept by PCA; 0: all
    uint32_t segment; // entries a commit; 0: by the size of the model
    uint64_t memory;  // bytes that may be resident; 0: any
    knnlm_split split;
    bool force; // goes on although disk or memory seem too small
    knnlm_progress progress;
} knnlm_build_options;

typedef struct knnlm_build_result {
    uint64_t documents_added, documents_unchanged, documents_replaced, entries_added;
    uint64_t documents, entries, bytes; // of the store afterwards
    double seconds;
} knnlm_build_result;

KNNLM_API knnlm_build_options knnlm_build_options_default(void);

// Reads texts (files, directories, "-") with the model and remembers every context in the store at `path`: a
// new one, or one that the same settings began; what is in it already is left alone. `options` and `result`
// may be NULL. Uses the model: one thread at a time.
// KNNLM_EINVAL: options, or a store of other settings or another model; KNNLM_EIO: a file or the disk;
// KNNLM_EBUSY; KNNLM_EDATA: a text is not UTF-8, or the store is damaged; KNNLM_ENOMEM; KNNLM_ENOTSUP: a
// document above 4 GiB; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_build(knnlm_model *model, const char *path, const char *const *texts,
                                   size_t count, const knnlm_build_options *options,
                                   knnlm_build_result *result);
// The same into an existing store, by its own settings; of the options split, memory, force and progress
// count.
KNNLM_API knnlm_status knnlm_build_add(knnlm_model *model, const char *path, const char *const *texts,
                                       size_t count, const knnlm_build_options *options,
                                       knnlm_build_result *result);

// ---------------------------------------------------------------- store: reading

// One state of a store, as the last commit before it was opened left it. It never changes: any number of
// threads may read through it while writers, here or in other processes, go on. Pointers that its functions
// give are the store's, valid until it is closed. Numbers of entries and documents belong to a state:
// compaction renumbers.
typedef struct knnlm_store knnlm_store;

typedef struct knnlm_store_info {
    const char *path, *model, *model_fingerprint, *tokenizer_fingerprint, *tap;
    uint64_t entries, documents; // removed ones included
    uint64_t removed_entries, removed_documents;
    uint64_t bytes, commits;
    int32_t dimension, model_dimension, vocabulary, window, min_context;
    knnlm_keys keys;
    knnlm_distance distance;
    bool complete; // false: a build was interrupted
    bool tuned;    // whether the following three are known
    double lambda, temperature;
    int64_t k;
} knnlm_store_info;

typedef struct knnlm_document {
    const char *name, *path; // not NUL-terminated; path: the file it came from
    size_t name_size, path_size;
    uint64_t source_offset; // of its first byte in that file
    uint64_t bytes, tokens;
    uint64_t hash[2];        // XXH3-128 of its text: low, high
    int64_t added;           // seconds since 1970
    uint64_t first, entries; // its entries; fewer than `tokens` when an addition was interrupted
    bool has_offsets, removed;
} knnlm_document;

typedef struct knnlm_entry {
    uint64_t id;
    int32_t token;     // the value: what followed the context
    uint32_t document; // the origin
    uint64_t position; // of the token in its document
    uint64_t offset;   // byte of the document at which it begins, when the document has offsets
    bool removed;
} knnlm_entry;

// KNNLM_EIO: cannot be read; KNNLM_EDATA: no store, or a damaged one; KNNLM_ENOTSUP: a newer format;
// KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_open(const char *path, knnlm_store **out);
// NULL is allowed. Not while another thread reads through it.
KNNLM_API void knnlm_store_close(knnlm_store *store);
// Any thread.
KNNLM_API void knnlm_store_describe(const knnlm_store *store, knnlm_store_info *out);
// Whether no commit has been made since it was opened; if one was, open the store again to see it. Any
// thread.
KNNLM_API bool knnlm_store_is_current(const knnlm_store *store);
// KNNLM_EINVAL, naming both, when another model or tokenizer made the store. Any thread.
KNNLM_API knnlm_status knnlm_store_check_model(const knnlm_store *store, const knnlm_model *model);
// One document, one entry. Any thread. KNNLM_EINVAL: no such number; KNNLM_EDATA: damaged there.
KNNLM_API knnlm_status knnlm_store_document(const knnlm_store *store, uint64_t number, knnlm_document *out);
KNNLM_API knnlm_status knnlm_store_entry(const knnlm_store *store, uint64_t id, knnlm_entry *out);
// Iterates: the first entry from `id` on that is not removed. *found false at the end. Any thread.
// KNNLM_EDATA: damaged there.
KNNLM_API knnlm_status knnlm_store_next(const knnlm_store *store, uint64_t id, knnlm_entry *out, bool *found);
// Tokens, or keys as f32 (count, dimension), of entries [first, first + count), into the caller's room. Any
// thread. KNNLM_EINVAL: not that many entries; KNNLM_ENOTSUP: the store keeps no keys.
KNNLM_API knnlm_status knnlm_store_tokens(const knnlm_store *store, uint64_t first, size_t count,
                                          int32_t *out);
KNNLM_API knnlm_status knnlm_store_keys(const knnlm_store *store, uint64_t first, size_t count, float *out);
// The text of these entries, with a NUL added; *text is the caller's, released with knnlm_free. Any thread.
// KNNLM_EINVAL: not that many entries; KNNLM_ENOTSUP: the store keeps no tokenizer; KNNLM_EDATA;
// KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_text(const knnlm_store *store, uint64_t first, size_t count, char **text,
                                        size_t *size);

// ---------------------------------------------------------------- store: writing

// The one writer of a store: who comes second, in any process, is refused. One thread at a time. After a
// failure other than KNNLM_EINVAL every further call fails, and the store stands at its last commit.
typedef struct knnlm_writer knnlm_writer;

typedef struct knnlm_store_settings {
    size_t size;              // of this struct: set by knnlm_store_settings_default
    const knnlm_model *model; // that made the keys, or NULL: not known
    int32_t dimension;        // of the keys; 0: the model's
    int32_t vocabulary;       // tokens are below it; 0: the model's, or any
    knnlm_keys keys;
    knnlm_distance distance;
    uint32_t segment; // entries a commit; 0: 65536
} knnlm_store_settings;

KNNLM_API knnlm_store_settings knnlm_store_settings_default(void);

// A new store in a new or empty directory; it exists from its first commit on.
// KNNLM_EINVAL: settings; KNNLM_EIO: cannot be created, or is there; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_writer_create(const char *path, const knnlm_store_settings *settings,
                                           knnlm_writer **out);
// An existing one. KNNLM_EBUSY: another writer is at work; else as knnlm_store_open.
KNNLM_API knnlm_status knnlm_writer_open(const char *path, knnlm_writer **out);
// What was not committed is gone. NULL is allowed.
KNNLM_API void knnlm_writer_close(knnlm_writer *writer);
// Begins a document of d->tokens entries; of *d name, path, sizes, source_offset, bytes, tokens, hash, added
// (0: now) and has_offsets count. KNNLM_EINVAL: the one before is not whole; KNNLM_ENOTSUP: too large.
KNNLM_API knnlm_status knnlm_writer_begin(knnlm_writer *writer, const knnlm_document *d);
// Its next entries. `offsets` may be NULL without has_offsets, `keys` (count, dimension) in a store without
// keys. KNNLM_EINVAL: too many, no keys, or a token beyond the vocabulary; KNNLM_EDATA: a key is not finite
// or does not fit; KNNLM_EIO.
KNNLM_API knnlm_status knnlm_writer_append(knnlm_writer *writer, const int32_t *tokens,
                                           const uint64_t *offsets, const float *keys, size_t count);
// Removes, with the next commit, the committed documents whose name is `pattern` or matches it ("*" and "?"
// as in a shell, across slashes); *removed of them. KNNLM_EDATA: damaged; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_writer_remove(knnlm_writer *writer, const char *pattern, uint64_t *removed);
// Makes everything so far durable, and visible to who opens the store next. KNNLM_EINVAL: in the middle of a
// document; KNNLM_EIO.
KNNLM_API knnlm_status knnlm_writer_commit(knnlm_writer *writer);

// ---------------------------------------------------------------- index and search

// Without an index a search looks at every entry: exact, and right for small stores. With one, entries lie in
// lists by the nearest of some thousand centroids, and a search looks at the lists nearest to the query, and
// at everything that was added since the index was made.

typedef struct knnlm_index_options {
    size_t size;         // of this struct: set by knnlm_index_options_default
    uint32_t lists;      // 0: by the number of entries
    const char *codes;   // "none"; "pq64": 64 bytes a code; "pq64x4": 64 parts of 4 bits; "auto" or NULL:
                         // where keys exceed memory
    uint64_t train;      // keys to learn from; 0: 64 a list
    uint32_t probes;     // lists that searches look at by default; 0: 32
    uint32_t iterations; // of k-means; 0: 10
    uint64_t seed;       // of learning; below 2^63
    uint64_t memory;     // most bytes of keys at a time; 0: any
    bool extend;         // only puts what was added since into the lists: of the options memory, force and
                         // progress count
    bool force;          // goes on although the disk seems too small
    knnlm_progress progress;
} knnlm_index_options;

typedef struct knnlm_index_info {
    uint32_t lists;      // 0: no index, every search is exact
    uint32_t probes;     // lists looked at by default
    uint64_t listed;     // entries in lists
    uint64_t outside;    // entries that every search looks at
    uint32_t code_bytes; // of an entry's code; 0: none
    uint32_t code_bits;  // of each of its parts
    uint64_t bytes;      // on disk
    double imbalance;    // 1: lists of equal length; the longer the work, the higher
    double drift;        // mean distance to the centroid of what was added after learning, against before; 0:
                         // nothing was. Far above 1: learn anew
} knnlm_index_info;

typedef struct knnlm_index_result {
    knnlm_index_info index;
    double objective; // mean squared distance of an entry to its centroid; 0: nothing was done
    double train_seconds, assign_seconds, write_seconds;
    double seconds; // their sum
} knnlm_index_result;

KNNLM_API knnlm_index_options knnlm_index_options_default(void);

// Sorts the entries of the store at `path` into lists, in place of those it had. `model`, used by one thread
// at a time, is needed for stores without keys alone: it reads their tokens again, straight into codes, a
// million entries a commit; what was interrupted is gone on with. Else it may be NULL. `options` and `result`
// may be NULL. Who has the store open goes on with what was, and opens it again to search the new lists.
// KNNLM_EINVAL: options, a store without entries, without an index to extend, or, where it keeps no keys,
// indexed already, or no model, another one, or no codes; KNNLM_EIO: the disk; KNNLM_EBUSY;
// KNNLM_EDATA: no store, or a damaged one; KNNLM_ENOTSUP: a newer format; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_index(knnlm_model *model, const char *path, const knnlm_index_options *options,
                                   knnlm_index_result *result);

// The index of an open store: opened with the first call or search, kept until the store is closed. Any
// thread. KNNLM_EDATA: damaged; KNNLM_ENOTSUP: a newer format; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_index_describe(const knnlm_store *store, knnlm_index_info *out);

typedef struct knnlm_search_options {
    size_t size;               // of this struct: set by knnlm_search_options_default
    size_t k;                  // neighbours wanted
    uint32_t probes;           // lists looked at; 0: the index's own
    bool exact;                // looks at every entry, whatever the index
    const uint64_t *exclude;   // (n, 2), or NULL: entries [first, end) that do not count for a query
    const uint64_t *documents; // NULL: all; else only entries of these `document_count` documents are found
    size_t document_count;
    uint64_t memory; // bytes that the search may hold beside results; 0: any
    knnlm_progress progress;
} knnlm_search_options;

KNNLM_API knnlm_search_options knnlm_search_options_default(void); // k = 1024

// The nearest entries to each of n queries (n, dimension): `ids` and `distances` have room for (n, k),
// `counts` for n. A row is nearest first, ties by the lower entry; behind its count it is UINT32_MAX and
// infinity. Distances are squared L2, the negated inner product, or 1 - cosine: smaller is nearer. They are
// of keys, or of codes where the store keeps no keys; what was added to such a store since it was indexed is
// not found. Removed entries are never found. Answers depend neither on threads nor on which queries come
// together; many together take far less time each. Any number of threads may search. `options` may be NULL.
// KNNLM_EINVAL: k is 0 or above 2^32 - 1, or no such document; KNNLM_EDATA: a query is not finite, or the
// store is damaged; KNNLM_ENOTSUP: neither keys nor an index, `exact` without keys, or a newer format;
// KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_store_search(const knnlm_store *store, const float *queries, size_t n,
                                          const knnlm_search_options *options, uint32_t *ids,
                                          float *distances, uint32_t *counts);

// ---------------------------------------------------------------- predicting

// A model with its stores and cache: p = (1 - sum of lambdas) p_LM + sum of lambda p_kNN, where p_kNN of a
// token is the share of exp(-distance / temperature) that the neighbours followed by it have. It uses the
// model, which outlives it: one thread at a time.
typedef struct knnlm_mixture knnlm_mixture;

// What is left as the defaults have it is as tuned (knnlm tune), else k 1024, lambda .25, temperature 1, no
// cache.
typedef struct knnlm_mixture_options {
    size_t size;                // of this struct: set by knnlm_mixture_options_default
    const char *const *stores;  // their paths
    const double *weights;      // lambda of each; NULL: not given
    size_t store_count;         // at most 14
    size_t k;                   // 0: not given
    uint32_t probes;            // lists looked at; 0: not given; as many as there are: every entry
    double lambda, temperature; // negative: not given
    bool codes;                 // distances of the index's codes; false: as tuned, else of the keys
    bool fixed;                 // one lambda, although the store has some for bins of distance and entropy
    int64_t cache; // also the last states of the text itself, so many; negative: not given; 0: none
    double cache_lambda, cache_temperature; // negative: not given
} knnlm_mixture_options;

KNNLM_API knnlm_mixture_options knnlm_mixture_options_default(void);

// KNNLM_EINVAL: a store of another model, an empty one, stores of several taps, weights above 1 in sum;
// KNNLM_EIO, KNNLM_EDATA: a store; KNNLM_ENOTSUP: a store without keys and index; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_mixture_open(knnlm_model *model, const knnlm_mixture_options *options,
                                          knnlm_mixture **out);
// NULL is allowed.
KNNLM_API void knnlm_mixture_close(knnlm_mixture *mixture);

// As knnlm_model_score, with log p in `logprobs`, and log p_LM in `lm` (NULL: not wanted). -INFINITY is
// possible where lambda is 1. The same failures, and those of a search.
KNNLM_API knnlm_status knnlm_mixture_score(knnlm_mixture *mixture, const int32_t *tokens, size_t count,
                                           const knnlm_score_options *options, float *logprobs, float *lm);

// What comes after `tokens`, the beginning of a document: p (and p_LM, p_kNN; NULL: not wanted) of every
// token of the vocabulary. The cache is not used.
typedef struct knnlm_next {
    double lambda, entropy,
        nearest; // of all stores; of p_LM in nats; the nearest distance (NAN: there is none)
} knnlm_next;
KNNLM_API knnlm_status knnlm_mixture_next(knnlm_mixture *mixture, const int32_t *tokens, size_t count,
                                          double *p, double *lm, double *knn, knnlm_next *out);

// ---------------------------------------------------------------- generating

// A text that grows behind a prompt, word after word, and knows which passages of the stores carried it. The
// mixture must stay open as long, and is used by the same thread.
typedef struct knnlm_text knnlm_text;

typedef struct knnlm_text_options {
    size_t size;              // of this struct: set by knnlm_text_options_default
    size_t tokens;            // at most
    uint64_t seed;            // same seed, same text
    double temperature;       // 0: always the most probable token
    int32_t top_k;            // drawn from so many; 0: all
    double top_p, min_p;      // ... from the fewest that have this much of p; ... that have this part of the
                              // most probable one's: 1 and 0 for all
    double repeat_penalty;    // 1: none
    const char *const *stops; // the text ends before any of these
    size_t stop_count;
    size_t around;    // tokens of text given on both sides of a source
    bool keep_lambda; // else lambda falls where neighbours are farther or less certain than tuning saw them
    bool ignore_end;  // goes on after a token that ends the text
} knnlm_text_options;

// 128 tokens, temperature .8, top_k 40, top_p .95, min_p .05, 12 tokens around.
KNNLM_API knnlm_text_options knnlm_text_options_default(void);

// Begins after `prompt`; `options` may be NULL. KNNLM_EINVAL: a token is not in the vocabulary, or an option
// makes no sense; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_text_open(knnlm_mixture *mixture, const int32_t *prompt, size_t count,
                                       const knnlm_text_options *options, knnlm_text **out);
// NULL is allowed.
KNNLM_API void knnlm_text_close(knnlm_text *text);

typedef enum knnlm_finish {
    KNNLM_FINISH_NOT = 0,    // it goes on
    KNNLM_FINISH_LENGTH = 1, // all tokens that were asked for are there
    KNNLM_FINISH_STOP = 2,   // before a stop string, or a token that ends a text (which is no part of it)
} knnlm_finish;

// One token more (of long prompts: reads on). *finish: whether that was the last, and why. KNNLM_EINVAL: it
// had ended; else as a search fails. After a failure it can only be closed.
KNNLM_API knnlm_status knnlm_text_step(knnlm_text *text, knnlm_finish *finish);

// What is final of it: UTF-8, NUL added, without the prompt. It only grows; valid until the next step.
KNNLM_API const char *knnlm_text_read(const knnlm_text *text, size_t *size);

typedef struct knnlm_text_token {
    int32_t token;
    double p, lm, knn, lambda; // log p, log p_LM, log p_kNN (NAN: no stores)
    size_t offset, size;       // bytes in the text
    size_t source;             // the number of the source that carried it, from 1; 0: none
} knnlm_text_token;

// A passage that carried consecutive tokens: most of their probability came from neighbours there.
typedef struct knnlm_text_source {
    const char *store, *document;      // its path; the document's name
    uint64_t entry, position;          // of the first token taken: in the store, in its document
    const char *before, *text, *after; // the passage and what is around it
    size_t first, tokens;              // which tokens of the text
    double share;                      // part of their probability that came from the document
} knnlm_text_source;

// How many there are so far, and one of them by its number (tokens from 0, sources from 1). KNNLM_EINVAL: no
// such. Strings are valid until the next step.
KNNLM_API size_t knnlm_text_tokens(const knnlm_text *text);
KNNLM_API size_t knnlm_text_sources(const knnlm_text *text);
KNNLM_API knnlm_status knnlm_text_token_at(const knnlm_text *text, size_t number, knnlm_text_token *out);
KNNLM_API knnlm_status knnlm_text_source_at(const knnlm_text *text, size_t number, knnlm_text_source *out);

// ---------------------------------------------------------------- training

// What models are made of, and how they learn.

typedef enum knnlm_tokenizer_kind {
    KNNLM_TOKENIZER_WORD = 0,      // words of a vocabulary (WikiText)
    KNNLM_TOKENIZER_BPE = 1,       // byte-level, as GPT-2's
    KNNLM_TOKENIZER_WORDPIECE = 2, // BERT's, uncased
    KNNLM_TOKENIZER_SENTENCEPIECE = 3,
    KNNLM_TOKENIZER_FOREIGN = 4, // any other that llama.cpp knows
} knnlm_tokenizer_kind;

typedef enum knnlm_positions {
    KNNLM_POSITIONS_SINUSOIDAL = 0,
    KNNLM_POSITIONS_LEARNED = 1,
    KNNLM_POSITIONS_ROTARY = 2,
} knnlm_positions;

typedef enum knnlm_activation {
    KNNLM_ACTIVATION_RELU = 0,
    KNNLM_ACTIVATION_GELU = 1,
    KNNLM_ACTIVATION_RELU2 = 2,  // squared ReLU
    KNNLM_ACTIVATION_SWIGLU = 3, // gated: the only one with two matrices in
} knnlm_activation;

typedef enum knnlm_norm { KNNLM_NORM_LAYER = 0, KNNLM_NORM_RMS = 1 } knnlm_norm;

typedef enum knnlm_optimizer {
    KNNLM_OPTIMIZER_ADAMW = 0,
    KNNLM_OPTIMIZER_NESTEROV = 1, // the paper's
    KNNLM_OPTIMIZER_MUON = 2,     // for the matrices of the layers; AdamW for the rest
} knnlm_optimizer;

typedef enum knnlm_schedule {
    KNNLM_SCHEDULE_COSINE = 0,   // warm-up, then half a cosine down to `floor` of the rate at the last step
    KNNLM_SCHEDULE_LINEAR = 1,   // warm-up, then a straight line down to `floor` of the rate
    KNNLM_SCHEDULE_CONSTANT = 2, // warm-up, then the rate
    KNNLM_SCHEDULE_PLATEAU = 3,  // warm-up, then the rate, then a straight line down to `floor` over the last
                                 // `tail` of the steps: their number may still change while the rate stands
    KNNLM_SCHEDULE_RESTARTS = 4, // warm-up, then cosines with warm restarts (the paper's): periods grow,
                                 // peaks shrink
} knnlm_schedule;

// ---------------------------------------------------------------- files of other programs

// How numbers lie in a file without header.
typedef enum knnlm_array_type {
    KNNLM_ARRAY_ANY = 0, // what fits the files' sizes
    KNNLM_ARRAY_F16 = 1,
    KNNLM_ARRAY_F32 = 2,
    KNNLM_ARRAY_INT64 = 3,
    KNNLM_ARRAY_INT32 = 4,
    KNNLM_ARRAY_INT16 = 5,
    KNNLM_ARRAY_UINT16 = 6, // int16 as well: tokens up to 65535 that an int16 has wrapped
} knnlm_array_type;

#ifdef __cplusplus
}
#endif

#endif
