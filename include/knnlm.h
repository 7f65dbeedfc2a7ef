// knnlm: nearest-neighbour language models. The one installed header.
//
// A model reads a text; a store remembers, for every token of it, the model's state before the token (the
// key) and the token (the value). To predict, the states nearest to the present one are searched for, and
// what followed them then is mixed into what the model says. The sections below stand in that order: status,
// model, building, store, index and search, upkeep, files of other programs, predicting, evaluating,
// explaining, generating, serving, training.
//
// Conventions. Every function that can fail returns a knnlm_status: 0 is done, and otherwise knnlm_message()
// has one line for people. Handles are opaque; what _open gives, _close takes back. The library never prints
// and never exits (llama.cpp, where a model needs it, ends the process when a promise of its own is broken).
//
// Growing. Structs of options begin with `size`, which their _default function sets to the sizeof of the
// caller's header. A newer library reads an older, shorter struct up to there and takes defaults for the
// rest; size 0, or a size above the library's own, is refused (KNNLM_EINVAL). So: always begin with
// knnlm_..._options_default(), or in other languages with knnlm_..._options_init(&options, its size). Results
// have no size: they change with the library's SOVERSION alone. Values of enums never change.
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

// Of each struct of options: what fills it, up to `size` and no further, and what gives a new one. The second
// is compiled into the program: only that one knows how large its struct is.
#define KNNLM_DEFAULTS(type)                                                                                 \
    KNNLM_API void type##_init(type *options, size_t size);                                                  \
    static inline type type##_default(void) {                                                                \
        type options;                                                                                        \
        type##_init(&options, sizeof options);                                                               \
        return options;                                                                                      \
    }                                                                                                        \
    KNNLM_API void type##_init(type *options, size_t size)

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

// What this build runs on. The kernels that this CPU can use, best first: the name of number 0, 1, ...; NULL
// after the last. The release of llama.cpp, NULL without it; the folder that has its library, NULL where it
// is missing. Constants, any thread.
KNNLM_API const char *knnlm_kernels(size_t number);
KNNLM_API const char *knnlm_llama_release(void);
KNNLM_API const char *knnlm_llama_folder(void);

// The MPI that it was built with; NULL: none. A constant, any thread.
KNNLM_API const char *knnlm_mpi(void);

// Memory that the library handed out. NULL is allowed.
KNNLM_API void knnlm_free(void *memory);

// Worker threads of the process; 0: one per CPU that its affinity mask and its control group's quota allow.
// Not while another call is under way. KNNLM_EINVAL: negative or above 256.
KNNLM_API knnlm_status knnlm_threads_set(int threads);

// Ranks: the processes of one job, which mpirun starts, perhaps on many machines; any other process is rank 0
// of 1. Rank 0 is the driver, which calls the functions of this header as if it were alone: models, stores of
// shards and their building are spread over all ranks. The others serve it, and call nothing else.
//
// knnlm_ranks_begin comes first in a program that is to be run so, before any thread is made. KNNLM_ENOTSUP:
// a job of a build without MPI, or an MPI that does not know threads; KNNLM_EINVAL: ranks of other versions.
KNNLM_API knnlm_status knnlm_ranks_begin(void);
KNNLM_API int knnlm_rank(void);
KNNLM_API int knnlm_rank_count(void);
// Of ranks above 0: works for rank 0 until that ends; returns the code that the process is to leave with.
KNNLM_API int knnlm_ranks_serve(void);
// Of rank 0, after all handles are closed: ends the other ranks, which leave with `code`; returns it.
KNNLM_API int knnlm_ranks_end(int code);
// Of searches of shards so far: how often a shard was asked for the neighbours of one vector, and bytes of
// all that, both ways, as they go between ranks. Any thread.
KNNLM_API void knnlm_shards_asked(uint64_t *queries, uint64_t *bytes);

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
    // bf16 products where the CPU has them, else int16 (VNNI, or no more than AVX2), else f32; llama: as
    // llama.cpp has them
    KNNLM_PRECISION_AUTO = 0,
    KNNLM_PRECISION_F32 = 1,
    KNNLM_PRECISION_BF16 = 2,
    KNNLM_PRECISION_INT16 = 3, // 14 bits, every 32 numbers with a scale of their own: closer than bf16
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
    knnlm_precision precision; // llama: f32 for keys and values in f32; bf16 and int16 are refused
    knnlm_engine engine;       // auto: by the file
    bool accept;               // stores that another model made may be used with this one
    // What llama.cpp has to say, a line at a time without its end; `fatal`: its last words, the process ends.
    // NULL: nobody listens. One for the process: that of the model opened last.
    void (*log)(const char *line, bool fatal);
    knnlm_progress progress; // of opening: large files take their time
} knnlm_model_options;

typedef struct knnlm_model_info {
    const char *path, *architecture, *engine, *kernels, *tokenizer; // owned by the model
    int32_t vocabulary, width, layers, heads, ffn, context, key_width;
    uint64_t parameters, file_bytes;
    char fingerprint[33]; // of the file, or of all its parts: 128 bits in hexadecimal
    int32_t window; // tokens read at a time by default: as the model was trained, where its file tells; else
                    // the context, where it is not very long
} knnlm_model_info;

KNNLM_DEFAULTS(knnlm_model_options);

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

// The same of a prompt, what a text is to begin with. Most tokens bring the space before their word: a prompt
// that ends with a space is encoded without it, and *space tells so. What is generated then begins with one
// (begin_with_space of knnlm_text_options).
KNNLM_API knnlm_status knnlm_model_encode_prompt(const knnlm_model *model, const char *text, size_t size,
                                                 int32_t **tokens, size_t *count, bool *space);

// How a text is read: `score` tokens at a time, each time after up to `context` tokens before them.
typedef struct knnlm_score_options {
    size_t size;     // of this struct: set by knnlm_score_options_default
    int32_t score;   // 0: half of the model's window, at most 512
    int32_t context; // negative: what is left of the window
} knnlm_score_options;

KNNLM_DEFAULTS(knnlm_score_options);

// Natural logarithm of the probability of every token of one document, each given those before it.
// `logprobs` has room for `count`; `options` may be NULL.
// KNNLM_EINVAL: a token is not in the vocabulary, or score and context exceed the model's; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_score(knnlm_model *model, const int32_t *tokens, size_t count,
                                         const knnlm_score_options *options, float *logprobs);

// The states f(c) before every token of one document, which a store has as keys: `states` has room for
// (count, key_width). `tap`: where in the model, as knnlm_build_options has it (NULL: "ffn"). `options` may
// be NULL. KNNLM_EINVAL as above, or no such tap; KNNLM_ENOTSUP: this model has no such tap; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_model_states(knnlm_model *model, const int32_t *tokens, size_t count,
                                          const char *tap, const knnlm_score_options *options, float *states);

// ---------------------------------------------------------------- building

// A model reads texts once and remembers every token: the state that it had before it is the key, the token
// the value. What it has built is a store, a directory: it can be built in several runs, added to, read while
// it is written, and survives a crash at any moment.

// Entries and documents of a store are numbered in 32 bits.
enum { KNNLM_DIMENSION_MAX = 65536, KNNLM_SEGMENT_MAX = 1 << 28 };
#define KNNLM_ENTRIES_MAX UINT32_MAX

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
    KNNLM_SPLIT_FILE = 0,  // a file
    KNNLM_SPLIT_WIKI = 1,  // each "= Title =" section (one '=' a side) of a file
    KNNLM_SPLIT_JSONL = 2, // each line of a file, an object of JSON
} knnlm_split;

// "f16", "l2", "file", ...: constants; "?" of another value. Any thread.
KNNLM_API const char *knnlm_keys_name(knnlm_keys keys);
KNNLM_API const char *knnlm_distance_name(knnlm_distance distance);
KNNLM_API const char *knnlm_split_name(knnlm_split split);

// How texts (files, directories, "-") are found and read. Plain text, HTML, EPUB and (where the library was
// built with poppler) PDF are told by their first bytes; gzip, zstd, xz and bzip2 are unpacked, and of tar
// and zip archives every member is a file, called "archive/member".
//
// What a directory or an archive holds and cannot be read as text is skipped, and `skipped` is told of it
// once, with a few words on why, which are the same for all files of a kind: "binary", "not UTF-8", "no
// permission", "link", "damaged", "unsupported: Word document", ... A file that was named itself is not
// skipped: the call fails.
typedef struct knnlm_input_options {
    size_t size;            // of this struct: set by knnlm_input_options_default
    knnlm_split split;      // counts only where no struct around this one has a split of its own
    const char *encoding;   // of files that do not tell it themselves, as iconv calls it; NULL: UTF-8.
                            // UTF-8, -16 and -32 with a byte-order mark, and HTML that declares its
                            // encoding, tell it themselves
    const char *field;      // of JSON lines: the member that is the text; NULL: "text"
    const char *name_field; // of JSON lines: the member (a string or an integer) that names the document,
                            // "file#name"; NULL: "file#LINE"
    const char *name;       // of what comes from "-"; NULL: "<stdin>"
    // Shell patterns. A file in a directory (a member of an archive that was named itself) is read when
    // its path below the directory, or its last part, matches one of `include` (none: any) and neither
    // it nor a directory (or archive) that it is in matches one of `exclude`.
    const char *const *include, *const *exclude;
    size_t include_count, exclude_count;
    bool hidden; // names that begin with a dot are read too
    bool follow; // symbolic links in directories are followed; what was named itself is in any case
    bool strict; // nothing is skipped: the first that would be fails the call
    // Called from the thread that called; the strings are valid during the call. NULL: nobody listens.
    void (*skipped)(void *context, const char *path, const char *reason);
    void *skipped_context;
} knnlm_input_options;

KNNLM_DEFAULTS(knnlm_input_options);

// What the work will cost, from a sample of the texts. 0: not known.
typedef struct knnlm_build_estimate {
    uint64_t text_bytes, entries; // of all the texts
    uint64_t present;             // entries already there
    uint64_t disk, disk_free;     // bytes
    uint64_t memory;
    double seconds, tokens_per_second;
} knnlm_build_estimate;

typedef struct knnlm_build_options {
    size_t size;         // of this struct: set by knnlm_build_options_default
    const char *tap;     // where in the model keys are taken: "ffn", "output@3", ...; NULL: "ffn"
    int32_t min_context; // tokens before every target, where there are any; negative: half the model's window
    knnlm_keys keys;
    knnlm_distance distance;
    int32_t project;  // dimensions kept by PCA; 0: all
    uint32_t segment; // entries per commit; 0: by the size of the model
    uint64_t memory;  // bytes that may be resident; 0: any
    knnlm_split split;
    bool split_given; // false: as an existing store was cut, else by files
    bool force;       // goes on although disk or memory seem too small
    // Told what the work will cost, before it begins. NULL: nobody listens.
    void (*planned)(void *context, const knnlm_build_estimate *estimate);
    void *planned_context;
    knnlm_progress progress;
    const knnlm_input_options *texts; // how texts are read; NULL: by the defaults. Its split does not count
    // Of a new store: it is made of so many shards, stores of their own, which the processes of a job build
    // at the same time (see ranks). 0: of none.
    size_t shards;
    const char *local; // absolute: shards are in this directory of the machine that builds each; NULL: in the
                       // store's own, which all machines see
} knnlm_build_options;

typedef struct knnlm_build_result {
    uint64_t documents_added, documents_unchanged, documents_replaced;
    uint64_t documents_damaged;         // of the store: they were passed over
    uint64_t entries_added, text_bytes; // text_bytes: of what was added
    uint64_t documents, entries, bytes; // of the store afterwards, removed ones not counted
    bool resumed;                       // an interrupted run was continued
    double seconds, tokens_per_second;
    uint64_t documents_removed; // by knnlm_build_sync: their files are gone
} knnlm_build_result;

KNNLM_DEFAULTS(knnlm_build_options);

// Reads texts (files, directories, "-") with the model and remembers every context in the store at `path`: a
// new one, or one that the same settings began; what is in it already, by file, name and content, is left
// alone. `options` and `result` may be NULL. Uses the model: one thread at a time. KNNLM_EINVAL: options, or
// a store of other settings or another model; KNNLM_EIO: a file or the disk; KNNLM_EBUSY; KNNLM_EDATA: a text
// is not UTF-8 or damaged, or the store is; KNNLM_ENOMEM; KNNLM_ENOTSUP: a document above 4 GiB, or a file
// that is no text; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_build(knnlm_model *model, const char *path, const char *const *texts,
                                   size_t count, const knnlm_build_options *options,
                                   knnlm_build_result *result);
// The same into an existing store, by its own settings; of the options split, memory, force, planned,
// progress and texts count.
KNNLM_API knnlm_status knnlm_build_add(knnlm_model *model, const char *path, const char *const *texts,
                                       size_t count, const knnlm_build_options *options,
                                       knnlm_build_result *result);
// The same with directories, and then documents whose files lie in them and are not found any more (or not
// read: skipped, or left out by the options) are removed. KNNLM_EINVAL too: not a directory.
KNNLM_API knnlm_status knnlm_build_sync(knnlm_model *model, const char *path, const char *const *texts,
                                        size_t count, const knnlm_build_options *options,
                                        knnlm_build_result *result);
// '+': it would be added, '~': replaced, '-': removed. `name` lasts for the call, and has no NUL of its own.
typedef void knnlm_change_found(void *context, char change, const char *name, size_t size);
// What knnlm_build_sync would do: nothing is written, and no model is needed. Of the options split, progress
// and texts count; of the result the documents (replaced ones count as added too) and text_bytes. `found` may
// be NULL. Fails as knnlm_build_sync.
KNNLM_API knnlm_status knnlm_build_compare(const char *path, const char *const *texts, size_t count,
                                           const knnlm_build_options *options, knnlm_change_found *found,
                                           void *context, knnlm_build_result *result);

// ---------------------------------------------------------------- store: reading

// One state of a store, as the last commit before it was opened left it. It never changes: any number of
// threads may read through it while writers, here or in other processes, go on. Pointers that its functions
// give are the store's, valid until it is closed. Numbers of entries and documents belong to a state:
// compaction renumbers.
typedef struct knnlm_store knnlm_store;

// How to mix what the store finds, as tuned on some text. `known` false: nobody did yet.
typedef struct knnlm_tuned {
    bool known;
    double lambda, temperature;
    int64_t k, probes; // probes 0: the index's own
    bool codes;        // by distances of the codes, although there are keys
    int64_t cache;     // states of the text itself; 0: none
    double cache_lambda, cache_temperature;
    uint32_t distance_bins, entropy_bins; // lambda has a value for each; 0: one for all
    int64_t tokens;                       // of the text that was tuned on
    bool seen;                            // whether the following are known
    double seen_distance[2];              // of the nearest: median, and what 95 in 100 are not above
    double seen_entropy[2];               // of p_kNN in nats, likewise
    bool gate;                            // lambda is decided token by token, by a gate
    bool quick;                           // on the store's own text, when it was built: a first guess
    int64_t entries;                      // of the store then; 0: not known
} knnlm_tuned;

typedef struct knnlm_store_info {
    const char *path, *model, *model_fingerprint, *tokenizer, *tokenizer_fingerprint; // empty: not known
    const char *tap, *split;     // where in the model keys were taken; how files were cut into documents
    uint64_t entries, documents; // removed ones included
    uint64_t removed_entries, removed_documents;
    uint64_t bytes, commits;
    int64_t created; // seconds since 1970
    int32_t format;  // the version of the files
    size_t segments;
    uint32_t segment;            // entries per full segment
    int32_t dimension;           // of the keys
    int32_t model_dimension;     // of the model's states: above `dimension` where keys are projected
    int32_t vocabulary;          // tokens are below it; 0: not known
    int32_t window, min_context; // window 0: texts were read as a stream, or not by us
    knnlm_keys keys;
    knnlm_distance distance;
    bool complete; // false: a build was interrupted
    bool has_tokenizer, has_projection, has_index;
    knnlm_tuned tuned;
} knnlm_store_info;

// Entries that were committed together, in files of their own.
typedef struct knnlm_segment {
    uint64_t file; // the number in its files' names
    uint64_t first, entries;
    uint64_t first_document, documents; // those that begin in it
    uint64_t bytes, text_checksum;
    uint64_t keys_checksum; // where has_keys
    bool has_keys;
} knnlm_segment;

typedef struct knnlm_document {
    const char *name, *path; // not NUL-terminated; path: the file it came from, absolute
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
// Whether a directory at `path` holds a store, of whatever state. Any thread.
KNNLM_API bool knnlm_store_exists(const char *path);
// NULL is allowed. Not while another thread reads through it.
KNNLM_API void knnlm_store_close(knnlm_store *store);
// Any thread.
KNNLM_API void knnlm_store_describe(const knnlm_store *store, knnlm_store_info *out);
// Whether no commit has been made since it was opened; if one was, open the store again to see it. Any
// thread.
KNNLM_API bool knnlm_store_is_current(const knnlm_store *store);
// KNNLM_EINVAL, naming both, when another model or tokenizer made the store. Any thread.
KNNLM_API knnlm_status knnlm_store_check_model(const knnlm_store *store, const knnlm_model *model);
// Shards that it is made of; 0: none. Where one is: strings are the store's. Any thread. KNNLM_EINVAL: no
// such number.
typedef struct knnlm_shard {
    const char *path;
    const char *host;                   // whose disk it is on; NULL: every rank sees it
    int rank;                           // that has it
    uint64_t entries, documents, bytes; // removed ones included
} knnlm_shard;
KNNLM_API size_t knnlm_store_shards(const knnlm_store *store);
KNNLM_API knnlm_status knnlm_store_shard(const knnlm_store *store, size_t number, knnlm_shard *out);
// One segment, document or entry. Any thread. KNNLM_EINVAL: no such number; KNNLM_EDATA: damaged there (a
// document's `removed` is told all the same).
KNNLM_API knnlm_status knnlm_store_segment(const knnlm_store *store, size_t number, knnlm_segment *out);
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
// The tokens of any entries, as a search finds them: `values` has room for `count`; -1 of UINT32_MAX, which
// stands behind the last neighbour. Any thread. KNNLM_EINVAL: no such entry.
KNNLM_API knnlm_status knnlm_store_values(const knnlm_store *store, const uint32_t *ids, size_t count,
                                          int32_t *values);
// The text of these entries, with a NUL added; *text is the caller's, released with knnlm_free. Any thread.
// KNNLM_EINVAL: not that many entries; KNNLM_ENOTSUP: the store keeps no tokenizer; KNNLM_EDATA;
// KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_text(const knnlm_store *store, uint64_t first, size_t count, char **text,
                                        size_t *size);

// By the tokenizer that the store keeps, as knnlm_model_encode and knnlm_model_decode. Any thread.
// KNNLM_ENOTSUP: it keeps none.
KNNLM_API knnlm_status knnlm_store_encode(const knnlm_store *store, const char *text, size_t size,
                                          int32_t **tokens, size_t *count);
KNNLM_API knnlm_status knnlm_store_decode(const knnlm_store *store, const int32_t *tokens, size_t count,
                                          char **text, size_t *size);

// An entry with its document and the text around it. The texts are the result's.
typedef struct knnlm_origin {
    knnlm_entry entry;
    knnlm_document document;
    char *before, *word, *after; // NUL added
    size_t before_size, word_size, after_size;
} knnlm_origin;

// `around` tokens before and after the entry, where its document has them. Released with knnlm_origin_free
// after KNNLM_OK. Any thread. KNNLM_EINVAL: no such entry; KNNLM_ENOTSUP: the store keeps no tokenizer;
// KNNLM_EDATA; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_origin(const knnlm_store *store, uint64_t id, size_t around,
                                          knnlm_origin *out);
KNNLM_API void knnlm_origin_free(knnlm_origin *origin);

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
    uint32_t segment; // entries per commit; 0: 65536
} knnlm_store_settings;

KNNLM_DEFAULTS(knnlm_store_settings);

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
    const char *codes;   // "none"; "pq64": 64 bytes per code; "pq64x4": 64 parts of 4 bits; "auto" or NULL:
                         // where keys exceed memory
    uint64_t train;      // keys to learn from; 0: 64 per list, 32 from 8192 lists on
    uint32_t probes;     // lists that searches look at by default; 0: 32, 64 of more than 16384
    uint32_t iterations; // of k-means; 0: 10
    uint64_t seed;       // of learning; below 2^63
    uint64_t memory;     // most bytes of keys at a time; 0: any
    bool extend;         // only puts what was added since into the lists: of the options memory, force and
                         // progress count
    bool force;          // goes on although the disk seems too small
    bool always;         // knnlm_index_update: makes lists also where searches do not need them
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
    bool done; // knnlm_index_update: false, there was nothing to do
    knnlm_index_info index;
    double objective; // mean squared distance of an entry to its centroid; 0: nothing was done
    double train_seconds, assign_seconds, write_seconds;
    double seconds; // their sum
} knnlm_index_result;

KNNLM_DEFAULTS(knnlm_index_options);

// Sorts the entries of the store at `path` into lists, in place of those it had. `model`, used by one thread
// at a time, is needed for stores without keys alone: it reads their tokens again, straight into codes, a
// million entries per commit; what was interrupted is gone on with. Else it may be NULL. `options` and
// `result` may be NULL. Who has the store open goes on with what was, and opens it again to search the new
// lists. KNNLM_EINVAL: options, a store without entries, without an index to extend, or, where it keeps no
// keys, indexed already, or no model, another one, or no codes; KNNLM_EIO: the disk; KNNLM_EBUSY;
// KNNLM_EDATA: no store, or a damaged one; KNNLM_ENOTSUP: a newer format; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_index(knnlm_model *model, const char *path, const knnlm_index_options *options,
                                   knnlm_index_result *result);

// Brings the index of the store at `path` up to date: what was added goes into its lists; a store of 50,000
// entries or more that has none gets it. What `knnlm build` and `knnlm add` do last. Model, ownership and
// failures as knnlm_index.
KNNLM_API knnlm_status knnlm_index_update(knnlm_model *model, const char *path,
                                          const knnlm_index_options *options, knnlm_index_result *result);

// Whether the options make sense by themselves: KNNLM_EINVAL if not. Any thread.
KNNLM_API knnlm_status knnlm_index_options_check(const knnlm_index_options *options);

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
    bool singly;     // each query by itself: see below
    knnlm_progress progress;
    // Only entries of documents whose names one of `only` means (none given: all), and none of `except`: "*"
    // and "?" as in a shell, across slashes. In place of `documents`.
    const char *const *only, *const *except;
    size_t only_count, except_count;
} knnlm_search_options;

KNNLM_DEFAULTS(knnlm_search_options); // k = 1024

// The nearest entries to each of n queries (n, dimension): `ids` and `distances` have room for (n, k),
// `counts` for n. A row is nearest first, ties by the lower entry; behind its count it is UINT32_MAX and
// infinity. Distances are squared L2, the negated inner product, or 1 - cosine: smaller is nearer. They are
// of keys, or of codes where the store keeps no keys; what was added to such a store since it was indexed is
// not found. Removed entries are never found. Answers depend neither on threads nor on which queries come
// together; many together take far less time each. Any number of threads may search. `options` may be NULL.
// With `singly` each query is searched for by itself, by the calling thread: sooner for one or a few of them.
// Its distances are those of the others to rounding, as their sums have another order, and where an index has
// codes beside keys, codes choose the keys that are looked at. `memory` and `progress` do not count then.
// KNNLM_EINVAL: k is 0 or above 2^32 - 1, no such document, or none left by their names; KNNLM_EDATA: a query
// is not finite, or the store is damaged; KNNLM_ENOTSUP: neither keys nor an index, `exact` without keys, or
// a newer format; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_store_search(const knnlm_store *store, const float *queries, size_t n,
                                          const knnlm_search_options *options, uint32_t *ids,
                                          float *distances, uint32_t *counts);

// p_kNN, the share of exp(-distance / temperature) that the neighbours followed by a token have among all of
// them. What knnlm_mixture_next mixes into the model's own; here of any vectors, without a model.

// Of every token, from the nearest entries to each query: `p` has room for (n, vocabulary of the store), rows
// in sum 1, or all 0 where nothing is found. Any thread. `options` may be NULL. KNNLM_EINVAL: a temperature
// that is not above 0, or a store that does not know its vocabulary; else as knnlm_store_search.
KNNLM_API knnlm_status knnlm_store_knn(const knnlm_store *store, const float *queries, size_t n,
                                       const knnlm_search_options *options, double temperature, double *p);
// log p_kNN of one token per query, `targets` (n), into `logprobs` (n): -INFINITY where no neighbour has it.
KNNLM_API knnlm_status knnlm_store_knn_targets(const knnlm_store *store, const float *queries, size_t n,
                                               const int32_t *targets, const knnlm_search_options *options,
                                               double temperature, double *logprobs);
// Of every token, from `count` neighbours that are known: entries and their distances, in any order.
KNNLM_API knnlm_status knnlm_store_knn_of(const knnlm_store *store, const uint32_t *ids,
                                          const float *distances, size_t count, double temperature,
                                          double *p);

// What searches find of the true neighbours, and what they cost.
typedef struct knnlm_recall_options {
    size_t size; // of this struct: set by knnlm_recall_options_default
    size_t queries, k;
    uint64_t seed;
    uint64_t memory; // as of a search
    knnlm_progress progress;
} knnlm_recall_options;

enum { KNNLM_RECALL_DEPTHS = 4, KNNLM_RECALL_MAX = 32 };
typedef struct knnlm_recall {
    uint32_t probes;                    // 0: looking at every entry
    double recall[KNNLM_RECALL_DEPTHS]; // of the nearest 1, 10, 100 and k
    double queries_per_second;
} knnlm_recall;

KNNLM_DEFAULTS(knnlm_recall_options); // 200 queries, k 1024, seed 1

// Searches with 1, 2, 4, ... probes for entries drawn from the store (each without itself); the last of the
// *count rows is the exact search. `rows` has room for KNNLM_RECALL_MAX. `options` may be NULL. Any thread.
// KNNLM_EINVAL: an empty store, or no queries; KNNLM_ENOTSUP: a store without keys; KNNLM_EDATA;
// KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_store_recall(const knnlm_store *store, const knnlm_recall_options *options,
                                          knnlm_recall *rows, size_t *count);

// ---------------------------------------------------------------- store: upkeep

// Removed documents are not found any more, but take their space until the store is compacted. Every byte of
// a store has a checksum: verification finds what a disk has changed, and repair removes it.

typedef struct knnlm_remove_options {
    size_t size;                 // of this struct: set by knnlm_remove_options_default
    const char *const *patterns; // names, or "*" and "?" as in a shell, across slashes
    size_t pattern_count;
    const uint64_t *documents; // numbers
    size_t document_count;
    bool dry_run; // only tells what would be removed
    // Called for every document that is removed; `d` NULL: its record is damaged. NULL: nobody listens.
    void (*removed)(void *context, uint64_t number, const knnlm_document *d);
    void *context;
} knnlm_remove_options;

typedef struct knnlm_remove_result {
    uint64_t documents, entries;
} knnlm_remove_result;

KNNLM_DEFAULTS(knnlm_remove_options);

// Removes documents, all that are named or none: one that is not there removes nothing. `result` may be NULL.
// KNNLM_EINVAL: no such document, or removed already; KNNLM_EIO: the disk, or another writer; KNNLM_EDATA;
// KNNLM_ENOTSUP; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_store_remove(const char *path, const knnlm_remove_options *options,
                                          knnlm_remove_result *result);

typedef struct knnlm_compact_options {
    size_t size; // of this struct: set by knnlm_compact_options_default
    bool force;  // goes on although the disk seems too small, or the index of a store without keys is lost
    knnlm_progress progress;
} knnlm_compact_options;

typedef struct knnlm_compact_result {
    uint64_t entries_dropped, documents_dropped, bytes_before, bytes_after;
    size_t segments_before, segments_after;
} knnlm_compact_result;

KNNLM_DEFAULTS(knnlm_compact_options);

// Drops what was removed and merges small segments; the index stays, without what is gone. A crash leaves the
// store as it was. `options` and `result` may be NULL. KNNLM_EIO: no room for the copy, or another writer;
// KNNLM_EINVAL: a store without keys would lose its index, which is damaged; KNNLM_EDATA: what is to be kept
// is damaged; KNNLM_ENOTSUP; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_store_compact(const char *path, const knnlm_compact_options *options,
                                           knnlm_compact_result *result);

typedef struct knnlm_problem {
    const char *file;                                         // in the store's directory
    const char *what;                                         // a line for people
    uint64_t offset;                                          // in the file
    uint64_t first_entry, entries, first_document, documents; // that it touches
} knnlm_problem;

typedef struct knnlm_verify_options {
    size_t size; // of this struct: set by knnlm_verify_options_default
    // Called for every problem; its strings are valid during the call. NULL: nobody listens.
    void (*found)(void *context, const knnlm_problem *problem);
    void *context;
    knnlm_progress progress;
} knnlm_verify_options;

typedef struct knnlm_verify_result {
    size_t problems;
    uint64_t bytes;                              // read
    uint64_t entries, documents;                 // those not removed
    uint64_t damaged_entries, damaged_documents; // of them; the others can be trusted
    bool index_damaged;
    bool *document_damaged; // of every document of the store; the result's
    double seconds;
} knnlm_verify_result;

KNNLM_DEFAULTS(knnlm_verify_options);

// Reads everything: checksums, counts, cross-references. KNNLM_OK whatever is found; else the verification
// itself failed: KNNLM_EIO, KNNLM_ENOMEM, KNNLM_ESTOPPED. `options` may be NULL. *result is released with
// knnlm_verify_result_free after KNNLM_OK. Any thread.
KNNLM_API knnlm_status knnlm_store_verify(const knnlm_store *store, const knnlm_verify_options *options,
                                          knnlm_verify_result *result);
KNNLM_API void knnlm_verify_result_free(knnlm_verify_result *result);

typedef struct knnlm_repair_result {
    uint64_t documents_removed;
    bool indexed; // the index was made anew
} knnlm_repair_result;

// Does what a verification advises: removes the lost documents, writes what is left without them, and makes
// the index anew. A store without keys keeps its index, as only its model could make another. `progress` and
// `result` may be NULL. Fails as knnlm_store_remove, knnlm_store_compact and knnlm_index do.
KNNLM_API knnlm_status knnlm_store_repair(const char *path, const knnlm_verify_result *verified,
                                          const knnlm_progress *progress, knnlm_repair_result *result);

// ---------------------------------------------------------------- store: files of other programs

// NumPy's arrays, those of the paper's code and of knn-transformers, and IVFPQ indexes of FAISS.

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

// Vectors of a .npy file, (rows, columns) of float16 or float32, as f32; *data is the caller's, released with
// knnlm_free. "-" is standard input, while which is waited for `progress` (NULL: nobody) is asked. Any
// thread. KNNLM_EIO; KNNLM_EDATA: malformed; KNNLM_ENOTSUP: another shape, type or order; KNNLM_ENOMEM;
// KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_array_read(const char *path, const knnlm_progress *progress, float **data,
                                        size_t *rows, size_t *columns);
// Writes a .npy file, whole or not at all. Any thread. KNNLM_EINVAL: KNNLM_ARRAY_ANY; KNNLM_EIO;
// KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_array_write(const char *path, knnlm_array_type type, const void *data,
                                         size_t rows, size_t columns);

typedef struct knnlm_import_options {
    size_t size;              // of this struct: set by knnlm_import_options_default
    const char *keys;         // a file (N, dimension); or, without values, a directory that holds one pair
    const char *values;       // a file (N)
    const char *faiss;        // instead of keys: an index file of FAISS. Without values every token is 0
    const knnlm_model *model; // that made the keys: checks them, is recorded; NULL: not known
    const char *tap;          // where in it keys were taken; NULL: "ffn" with a model, else not known
    uint64_t entries;         // 0: by the files
    int32_t dimension;        // 0: by the model or the files
    int32_t vocabulary;       // 0: the model's, or not known
    knnlm_array_type key_type, value_type;
    bool convert;            // keys are kept as `keep` says; false: as they are
    knnlm_keys keep;         // f16, f32 or int8
    knnlm_distance distance; // of FAISS: the index tells
    bool force;              // goes on although the disk seems too small
    knnlm_progress progress;
} knnlm_import_options;

// Strings are the result's; type names are NumPy's, constants.
typedef struct knnlm_import_result {
    char *keys, *values; // the files that were read; NULL: none
    const char *key_type, *value_type;
    uint64_t entries, documents, bytes; // bytes: of the store
    bool restored;                      // documents, by origins.npy and documents.tsv beside the values
    int32_t dimension, vocabulary;
    knnlm_keys kept;
    knnlm_distance distance;
    char *model, *fingerprint, *tap;               // of the store; empty: not known
    uint32_t lists, probes, code_parts, code_bits; // of FAISS
    bool residuals;                                // codes are of residuals
    double seconds;
} knnlm_import_result;

KNNLM_DEFAULTS(knnlm_import_options);

// A new store of keys and values, or of the codes of an index: all of it or nothing. `result` may be NULL; it
// is released with knnlm_import_result_free after KNNLM_OK. Different stores may be made by different
// threads.
// KNNLM_EINVAL: the sizes do not tell N, dimension and types, or tell several, or the model has others;
// KNNLM_EDATA: they contradict what was given, a file is malformed, a token or a key is impossible;
// KNNLM_EIO; KNNLM_ENOTSUP: another type of array or index, or too many entries; KNNLM_ENOMEM;
// KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_import(const char *path, const knnlm_import_options *options,
                                    knnlm_import_result *result);
KNNLM_API void knnlm_import_result_free(knnlm_import_result *result);

typedef struct knnlm_export_options {
    size_t size;     // of this struct: set by knnlm_export_options_default
    bool convert;    // keys are written as `keys` says; false: as they are, int8 as f32
    knnlm_keys keys; // f16 or f32
    bool force;      // goes on although the disk seems too small
    knnlm_progress progress;
} knnlm_export_options;

typedef struct knnlm_export_result {
    uint64_t entries, documents, bytes; // bytes: of the files
    uint64_t left_out;                  // of FAISS: removed entries, which are not in the file
    int32_t dimension;                  // 0: the store keeps no keys, there is no keys.npy
    const char *key_type;               // NumPy's name, a constant; NULL: no keys
    knnlm_distance distance;
    uint32_t lists, probes, code_parts, code_bits; // of FAISS
    bool residuals;                                // codes are of residuals
    double seconds;
} knnlm_export_result;

KNNLM_DEFAULTS(knnlm_export_options);

// keys.npy, values.npy, origins.npy and documents.tsv in a directory, which is made where it is not there.
// Removed documents are left out. `options` and `result` may be NULL. Any thread. KNNLM_EIO: cannot be
// written, or no room; KNNLM_EDATA: the store is damaged, or a key does not fit f16; KNNLM_EINVAL: the
// directory is a store; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_store_export(const knnlm_store *store, const char *directory,
                                          const knnlm_export_options *options, knnlm_export_result *result);
// The index with its codes as an IVFPQ file of FAISS, whole or not at all ("-": to standard output).
// KNNLM_EINVAL: no index, no codes, or entries outside of its lists; KNNLM_ENOTSUP: cosine, which FAISS does
// not know; else as above.
KNNLM_API knnlm_status knnlm_store_export_faiss(const knnlm_store *store, const char *file,
                                                const knnlm_export_options *options,
                                                knnlm_export_result *result);

// ---------------------------------------------------------------- predicting

// A model with its stores and cache: p = (1 - sum of lambdas) p_LM + sum of lambda p_kNN, where p_kNN of a
// token is the share of exp(-distance / temperature) that the neighbours followed by it have. It uses the
// model, which outlives it: one thread at a time.
typedef struct knnlm_mixture knnlm_mixture;

// What is left as the defaults have it is as tuned (knnlm tune), else k 1024, lambda .25, temperature 1, no
// cache.
// Temperatures beyond these have no exp(-d / T) in f32.
#define KNNLM_TEMPERATURE_MIN 1e-30
#define KNNLM_TEMPERATURE_MAX 1e30

enum { KNNLM_STORES_MAX = 14 };

typedef struct knnlm_mixture_options {
    size_t size;                          // of this struct: set by knnlm_mixture_options_default
    const char *const *stores;            // their paths
    size_t store_count;                   // at most KNNLM_STORES_MAX
    const double *weights, *temperatures; // of each; NULL, or NAN: not given
    const int64_t *ks;                    // likewise; 0: not given
    size_t k;                             // 0: not given
    uint32_t probes;                      // lists looked at; 0: not given; as many as there are: every entry
    double lambda, temperature;           // negative: not given
    bool codes, exact; // distances of the index's codes, or of the keys; neither: as tuned, else of the keys
    int32_t distance;  // a knnlm_distance in place of the stores' own; negative: theirs
    bool fixed;        // one lambda, although the store has a gate, and bins of distance and entropy
    bool fallback;     // lambda falls where neighbours are farther or less certain than tuning saw
    bool include_self; // documents that are in a store find themselves
    int64_t cache;     // also the last states of the text itself, so many; negative: not given; 0: none
    double cache_lambda, cache_temperature; // negative: not given
    void (*warn)(const char *message);      // told of damage, and of what misleads; NULL: nobody
    // Where the entropy of the model's distribution is less (in nats), the stores are not searched and p is
    // the model's own (but for the cache); 0: they always are
    double skip_entropy;
    uint64_t memory; // bytes of the stores' lists that may be resident; 0: what the system leaves there
    bool bins;       // lambda by bins of distance and entropy, although the store has a gate
    // Neighbours are of documents whose names one of `only` means (none given: of all), and none of `except`:
    // "*" and "?" as in a shell, across slashes. A store that has no such document is KNNLM_EINVAL.
    const char *const *only, *const *except;
    size_t only_count, except_count;
    // Above 0 and below 1: about this part of each store's documents counts, chosen by a hash of their text,
    // so that smaller parts lie within larger ones; 0: all of them
    double fraction;
} knnlm_mixture_options;

KNNLM_DEFAULTS(knnlm_mixture_options);

// KNNLM_EINVAL: a store of another model, an empty one, stores of several taps, weights above 1 in sum;
// KNNLM_EIO, KNNLM_EDATA: a store; KNNLM_ENOTSUP: a store without keys and index; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_mixture_open(knnlm_model *model, const knnlm_mixture_options *options,
                                          knnlm_mixture **out);
// NULL is allowed.
KNNLM_API void knnlm_mixture_close(knnlm_mixture *mixture);

// How a store is searched and weighed: as given, as tuned, or by default.
typedef struct knnlm_mixture_store {
    const char *path;           // the mixture's
    uint64_t entries;           // removed ones not counted
    double lambda, temperature; // lambda: before bins and fallback change it
    size_t k;
    uint32_t probes; // lists looked at; 0: every entry
    bool codes;      // distances are of codes
    bool adaptive;   // lambda by bins of distance and entropy
    bool gated;      // by its gate
    bool fallback;
    bool tuned; // what was not given is as tuned
    knnlm_distance distance;
} knnlm_mixture_store;

typedef struct knnlm_mixture_info {
    knnlm_mixture_store stores[KNNLM_STORES_MAX];
    size_t store_count;
    size_t cache;                           // states; 0: none
    double cache_lambda, cache_temperature; // where there is one
    knnlm_split split;                      // as the first store was cut
} knnlm_mixture_info;

// Any thread, while the mixture is open.
KNNLM_API void knnlm_mixture_describe(const knnlm_mixture *mixture, knnlm_mixture_info *out);

// As knnlm_model_score, with log p in `logprobs`, and log p_LM in `lm` (NULL: not wanted). -INFINITY is
// possible where lambda is 1. The same failures, and those of a search.
KNNLM_API knnlm_status knnlm_mixture_score(knnlm_mixture *mixture, const int32_t *tokens, size_t count,
                                           const knnlm_score_options *options, float *logprobs, float *lm);

// A token of a text, scored: logarithms, natural ones; NAN: there is none.
typedef struct knnlm_token_row {
    const char *document;      // its name; valid during the call that tells of it
    uint64_t position, offset; // in its document: token, byte
    int32_t token;
    double lm, knn, cache, p; // log p_LM, log p_kNN of all stores, log p_cache, log p
    double lambda;            // of all stores
    double nearest, entropy;  // the nearest distance; of p_LM, in nats
    double ngram;             // log p of the n-gram model of an evaluation
} knnlm_token_row;

// The same with all that is known of each token: `rows` has room for `count`. Its `document` is "", and
// its `offset` 0.
KNNLM_API knnlm_status knnlm_mixture_rows(knnlm_mixture *mixture, const int32_t *tokens, size_t count,
                                          const knnlm_score_options *options, knnlm_token_row *rows);

// What comes after `tokens`, the beginning of a document: p (and p_LM, p_kNN; NULL: not wanted) of every
// token of the vocabulary. The cache is not used.
typedef struct knnlm_next {
    double lambda, entropy,
        nearest; // of all stores; of p_LM in nats; the nearest distance (NAN: there is none)
} knnlm_next;
KNNLM_API knnlm_status knnlm_mixture_next(knnlm_mixture *mixture, const int32_t *tokens, size_t count,
                                          double *p, double *lm, double *knn, knnlm_next *out);

// ---------------------------------------------------------------- evaluating and tuning

// Perplexity of texts, of the model alone and with neighbours, in one pass; and the settings that suit a text
// best. A document whose content is in a store is scored without the store's entries of it.

typedef struct knnlm_eval_options {
    size_t size; // of this struct: set by knnlm_eval_options_default
    knnlm_split split;
    bool split_given;       // false: as the first store was cut, else by files
    int32_t score, context; // as knnlm_score_options has them
    const char *per_token;  // file of one row per token (tab-separated; "-": standard output), or NULL
    const char *report;     // HTML page, likewise: figures, curves, the text with its neighbours, or NULL
    uint64_t report_tokens; // shown there at most
    // Called for every token in order, from the calling thread; false ends the work (KNNLM_ESTOPPED). NULL:
    // not wanted.
    bool (*row)(void *context, const knnlm_token_row *row);
    void *row_context;
    knnlm_progress progress;
    const knnlm_input_options *texts; // how texts are read; NULL: by the defaults. Its split does not count
    // Mixed in where neighbours are, or beside them: an n-gram model (interpolated modified Kneser-Ney) of
    // the model's tokens, learnt from these texts: p = (1 - ngram_lambda) p' + ngram_lambda p_ngram, where p'
    // is what it would be without. None: no such model. Not with `report`.
    const char *const *ngram;
    size_t ngram_count;
    int32_t ngram_order; // from 1 to KNNLM_NGRAM_MAX
    double ngram_lambda; // from 0 to 1
} knnlm_eval_options;

// Points of a curve over a weight from 0 to 1; the longest n-grams.
enum { KNNLM_TUNE_CURVE = 101, KNNLM_NGRAM_MAX = 5 };

// Sums over all tokens, in nats, and what they mean.
typedef struct knnlm_score {
    double nll;
    double ppl, ppl_word; // per token; per run of non-space bytes (NAN: there are none)
    double bits_per_byte;
} knnlm_score;

// What an n-gram model learnt, and what it is worth. order 0: there was none.
typedef struct knnlm_eval_ngram {
    int32_t order;
    uint64_t tokens, grams[KNNLM_NGRAM_MAX]; // grams: different ones of each length
    knnlm_score score;                       // by it alone
    double lambda;
    double lambdas[KNNLM_TUNE_CURVE], by_lambda[KNNLM_TUNE_CURVE]; // perplexity by its weight
    double seconds;                                                // of learning
} knnlm_eval_ngram;

// How a store took part.
typedef struct knnlm_eval_store {
    char path[256]; // cut where it is longer
    uint64_t entries;
    double lambda, temperature; // lambda: the mean over tokens
    size_t k;
    uint32_t probes; // 0: every entry was looked at
    bool codes, adaptive, gated, fallback;
    bool tuned, tuned_here; // tuned_here: on one of these texts
    knnlm_distance distance;
    double found; // part of the tokens that some neighbour has
} knnlm_eval_store;

typedef struct knnlm_eval_result {
    uint64_t documents, tokens, words, bytes;
    uint64_t own_documents; // that were scored without themselves
    knnlm_score lm, mixed;  // mixed is lm where nothing is mixed in
    knnlm_eval_store stores[KNNLM_STORES_MAX];
    size_t store_count;
    size_t cache; // 0: none
    double cache_lambda, cache_temperature;
    double seconds, seconds_lm, seconds_search, tokens_per_second;
    bool stream;            // texts were read as a stream; else by windows
    int32_t score, context; // as used
    knnlm_split split;
    double skip_entropy, skipped; // as used; part of the tokens whose search was skipped
    knnlm_eval_ngram ngram;
} knnlm_eval_result;

KNNLM_DEFAULTS(knnlm_eval_options); // report_tokens 5000, ngram_order 5, ngram_lambda .1

// Scores texts (files, directories, "-"). `mixture` (NULL: the model alone) and `options` may be NULL. Uses
// the model: one thread at a time. KNNLM_EINVAL: options, or as knnlm_mixture_open; KNNLM_EDATA: a text is
// not UTF-8, there is none, or a store is damaged; KNNLM_EIO; KNNLM_ENOTSUP; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_eval(knnlm_model *model, const char *const *texts, size_t count,
                                  const knnlm_mixture_options *mixture, const knnlm_eval_options *options,
                                  knnlm_eval_result *result);

typedef struct knnlm_tune_options {
    size_t size; // of this struct: set by knnlm_tune_options_default
    knnlm_split split;
    bool split_given;       // false: as the first store was cut, else by files
    int32_t score, context; // as knnlm_score_options has them
    // Numbers of lists to try with a single store: the fewest that are as good are kept, or more where
    // searching costs next to nothing beside the model.
    const int64_t *probes;
    size_t probe_count; // at most 12; 0: as of the mixture
    bool dry_run;       // nothing is written into the store
    // Told what will be kept, before the search. NULL: nobody listens.
    void (*planned)(void *context, uint64_t tokens, uint64_t bytes);
    void *planned_context;
    knnlm_progress progress;
    bool auto_probes; // without probes, here or in the mixture: half, as many as and twice the index's are
                      // tried
    // No texts: some thousand tokens of the one store's own documents, each searched for without the document
    // it is of. A first guess, made in seconds (minutes where the model is large).
    bool own;
    const knnlm_input_options *texts; // how texts are read; NULL: by the defaults. Its split does not count
} knnlm_tune_options;

// One setting of one store beside the model (and the cache), with the best weights for it.
typedef struct knnlm_tune_point {
    size_t store;
    uint32_t probes; // 0: every entry
    double temperature, lambda, cache_lambda, ppl;
    size_t k;
} knnlm_tune_point;

typedef struct knnlm_tune_store {
    char path[256];
    knnlm_tune_point best; // beside the model alone
    double lambda;         // beside all others
} knnlm_tune_store;

enum { KNNLM_TUNE_SKIPS = 9 };

// What skipping searches would cost: below this entropy of the model lies this part of the tokens, and ppl is
// what knnlm_tune_result's would be without their searches.
typedef struct knnlm_tune_skip {
    double entropy, skipped, ppl;
} knnlm_tune_skip;

typedef struct knnlm_tune_result {
    uint64_t tokens;
    double ppl_lm, ppl;                     // ppl: with all weights, one lambda per store
    double ppl_cache;                       // model and cache alone; NAN: no cache
    double cache_lambda, cache_temperature; // beside all stores
    double ppl_adaptive;                    // by bins, on the text that they were fitted on; NAN: none
    double ppl_adaptive_checked;            // by bins fitted on one half of the text, on the other; NAN: none
    double ppl_gate, ppl_gate_checked;      // likewise by the gate; NAN: none
    double ppl_foreign, ppl_foreign_lm;     // by it on text of other kinds, and by the model alone; NAN: none
    knnlm_tune_store stores[KNNLM_STORES_MAX];
    size_t store_count;
    knnlm_tune_point *points; // all that was tried; the result's
    size_t point_count;
    double way_seconds[KNNLM_STORES_MAX]; // of the searches of each store, or of each number of probes
    double lambdas[KNNLM_TUNE_CURVE],
        by_lambda[KNNLM_TUNE_CURVE]; // perplexity of a single store by its weight
    knnlm_tuned tuned;               // what a single store remembers; known: false with several
    bool written;
    double seconds_search, seconds_sweep, seconds;
    size_t settings;                         // that the sweep looked at
    knnlm_tune_skip skips[KNNLM_TUNE_SKIPS]; // of 10, 20, ... 90 tokens in a hundred
} knnlm_tune_result;

KNNLM_DEFAULTS(knnlm_tune_options);

// Finds the settings that suit texts best: of each store temperature, k and weight, the cache's likewise. Of
// the mixture, k is the most that is tried, and a temperature that is given stays. A single store remembers
// what was found. *result is released with knnlm_tune_result_free after KNNLM_OK. Uses the model: one thread
// at a time. KNNLM_EINVAL: neither store nor cache, or a text from "-", as texts are read twice;
// KNNLM_ENOMEM: the neighbours do not fit; else as knnlm_eval and knnlm_writer_open.
KNNLM_API knnlm_status knnlm_tune(knnlm_model *model, const char *const *texts, size_t count,
                                  const knnlm_mixture_options *mixture, const knnlm_tune_options *options,
                                  knnlm_tune_result *result);
KNNLM_API void knnlm_tune_result_free(knnlm_tune_result *result);

// ---------------------------------------------------------------- explaining

// Why a word is probable: what the model says of it, what the neighbours say, and which passages they are
// from. Of one context, or of a text: then of those tokens at which neighbours helped most, and hurt most.

// A neighbour with its origin: what followed it is origin.entry.token. Names of documents are the mixture's;
// texts are the result's, NULL where the store keeps no tokenizer.
typedef struct knnlm_neighbor {
    size_t store;    // its number among the mixture's
    double share;    // of p_kNN of all stores
    double distance; // smaller is nearer
    knnlm_origin origin;
} knnlm_neighbor;

typedef struct knnlm_word {
    int32_t token;
    double lm, knn, p; // p_LM, p_kNN of all stores (NAN: there are none), p
} knnlm_word;

typedef struct knnlm_explain_options {
    size_t size;        // of this struct: set by knnlm_explain_options_default
    const char *target; // a word that is told of too, whatever its probability; at most 64 tokens; NULL: none
    size_t words;       // told of, the most probable; at most 1024
    size_t neighbors;   // told of, those of the largest share
    size_t around;      // tokens of text on both sides of a neighbour
} knnlm_explain_options;

typedef struct knnlm_explanation {
    size_t tokens;     // of the context that the model read
    bool cut;          // there was more of it than the model's context holds
    int32_t target;    // the first of the target's tokens; -1: none was asked for
    knnlm_word *words; // the most probable first, then the target where it is not among them
    size_t word_count;
    knnlm_neighbor *neighbors; // those of the largest share first
    size_t neighbor_count;
    double lambda, nearest, entropy; // as knnlm_next has them
    knnlm_word *targets; // all tokens of the target, each after those before it: their product is the word's
    size_t target_count;
} knnlm_explanation;

// 8 words, 8 neighbours, 12 tokens around.
KNNLM_DEFAULTS(knnlm_explain_options);

// What comes after `context`, the beginning of a document. The cache is not used. `options` may be NULL. *out
// is released with knnlm_explanation_free after KNNLM_OK, while the mixture is open. A space at the end of
// the context belongs to the word that comes. KNNLM_EINVAL: a target without tokens, or of too many;
// KNNLM_EDATA: not UTF-8, as knnlm_model_encode has it, or the store is damaged; KNNLM_ENOMEM; else as a
// search fails.
KNNLM_API knnlm_status knnlm_explain(knnlm_mixture *mixture, const char *context,
                                     const knnlm_explain_options *options, knnlm_explanation *out);
KNNLM_API void knnlm_explanation_free(knnlm_explanation *explanation);

typedef struct knnlm_explain_texts_options {
    size_t size; // of this struct: set by knnlm_explain_texts_options_default
    knnlm_split split;
    bool split_given;       // false: as the first store was cut, else by files
    int32_t score, context; // as knnlm_score_options has them
    size_t best, worst;     // tokens told of where neighbours helped, and hurt, most; at most 2^20 each
    size_t neighbors;       // told of at each
    size_t around;          // tokens of text on both sides of a neighbour
    knnlm_progress progress;
    const knnlm_input_options *texts; // how texts are read; NULL: by the defaults. Its split does not count
} knnlm_explain_texts_options;

// A token of a text at which neighbours made a difference, p - lm. Strings are the result's.
typedef struct knnlm_token_gain {
    char *document, *before; // before: the text of up to 64 tokens before it; NUL added to both
    size_t before_size;
    uint64_t position, offset; // in its document: token, byte
    int32_t token;
    double lm, knn, cache, p; // log p_LM, log p_kNN of all stores, log p_cache, log p; NAN: there is none
    double lambda;            // of all stores
    knnlm_neighbor *neighbors;
    size_t neighbor_count;
} knnlm_token_gain;

typedef struct knnlm_token_gains {
    knnlm_token_gain *best, *worst; // the largest gain first; the largest loss first
    size_t best_count, worst_count; // fewer than asked for where there are not as many
    uint64_t tokens;                // that were scored
    double ppl_lm, ppl;             // per token: of the model alone, and with neighbours
} knnlm_token_gains;

// 5 best, 5 worst, 3 neighbours, 12 tokens around.
KNNLM_DEFAULTS(knnlm_explain_texts_options);

// Looks through texts (files, directories, "-"), scored as knnlm_eval scores them. `options` may be NULL.
// *out is released with knnlm_token_gains_free after KNNLM_OK, while the mixture is open. KNNLM_EINVAL:
// options, no text, or a mixture with neither store nor cache; KNNLM_EDATA: a text is not UTF-8, there is
// none in the files, or a store is damaged; KNNLM_EIO; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_explain_texts(knnlm_mixture *mixture, const char *const *texts, size_t count,
                                           const knnlm_explain_texts_options *options,
                                           knnlm_token_gains *out);
KNNLM_API void knnlm_token_gains_free(knnlm_token_gains *gains);

// ---------------------------------------------------------------- generating

// A text that grows behind a prompt, word after word, and knows which passages of the stores it stands in.
// The mixture must stay open as long, and is used by the same thread. Its cache is of prompt and text; a
// mixture that was opened with `cache` 0 has none.
typedef struct knnlm_text knnlm_text;

typedef struct knnlm_text_options {
    size_t size;              // of this struct: set by knnlm_text_options_default
    size_t tokens;            // at most
    uint64_t seed;            // same seed, same text
    double temperature;       // 0: always the most probable token
    int32_t top_k;            // drawn from so many; 0: all
    double top_p, min_p;      // ... from the fewest that have this much of p; ... that have this part of the
                              // most probable one's: 1 and 0 for all
    double repeat_penalty;    // of log p of the last `repeat_last` tokens of prompt and text; 1: none
    size_t repeat_last;       // tokens
    const char *const *stops; // the text ends before any of these
    size_t stop_count;
    bool sources;     // finds out which passages it stands in; false: there are none
    size_t around;    // tokens of text given on both sides of a source
    bool keep_lambda; // else lambda falls where neighbours are farther or less certain than tuning saw them
    bool ignore_end;  // goes on after a token that ends the text
    bool begin_with_space; // the first token begins with a space (knnlm_model_encode_prompt)
    bool no_carry;         // neighbours do not carry a word through that they began
    // DRY: a token that goes on with a run of tokens as prompt or text went on with it before loses
    // multiplier * base^(run - allowed_length) of log p; words that were begun are spared. 0: none. -1: 0.8,
    // but none at temperature 0.
    double dry_multiplier;
    double dry_base;
    size_t dry_allowed_length;
} knnlm_text_options;

// 128 tokens, temperature .8, top_k 40, top_p .95, min_p .05, no penalty (else of 64 tokens) but DRY (-1;
// base 1.75, runs of 2 tokens), sources with 12 tokens around.
KNNLM_DEFAULTS(knnlm_text_options);

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

// What is final of it: UTF-8, NUL added, without the prompt. It only grows; valid until the next step. Where
// sources are wanted it is about 8 tokens behind: those may yet turn out to stand in a passage.
KNNLM_API const char *knnlm_text_read(const knnlm_text *text, size_t *size);

// How it stands.
typedef struct knnlm_text_info {
    knnlm_finish finish;
    size_t generated; // tokens in all: the last of them may not be final yet, or be no part of the text
    bool cut;         // the model has not seen the whole of the prompt, or has forgotten some of it since
    double seconds_lm, seconds_search, seconds_rest; // of all steps; rest: mixing, drawing, sources, text
} knnlm_text_info;

KNNLM_API void knnlm_text_describe(const knnlm_text *text, knnlm_text_info *out);

typedef struct knnlm_text_token {
    int32_t token;
    double p, lm, knn, lambda; // log p, log p_LM, log p_kNN (NAN: no stores)
    double nearest, entropy;   // the nearest distance (NAN: there is none); of p_LM, in nats
    size_t offset, size; // bytes in the text; of a character that several tokens make up, the last has them
    size_t source;       // the number of the source that it stands in, from 1; 0: none
} knnlm_text_token;

// A passage that consecutive tokens stand in, at least one of which was carried by neighbours: they had more
// of its probability than the model. A few tokens within may differ. Passages, and what is told of the text
// around them, are whole words; strings have a NUL added.
typedef struct knnlm_text_source {
    const char *store, *document; // its path; the document's name
    size_t document_size;
    uint64_t entry, position, offset;  // of the first token taken: in the store, in its document, its byte
    const char *before, *text, *after; // the passage and what is around it
    size_t before_size, text_size, after_size;
    size_t first, tokens; // which tokens of the text
    double share;         // part of their probability that came from the document
    size_t footnote;      // from 1; 0: it is a single word, which is not worth one
    size_t differ;        // tokens that are other ones than the document has there
    uint64_t length;      // tokens of the document, from the first to the last one taken
    bool begins, ends;    // `before` begins, `after` ends where the document does
} knnlm_text_source;

// How many there are so far, and one of them by its number (tokens from 0, sources from 1). KNNLM_EINVAL: no
// such. Strings are valid until the next step.
KNNLM_API size_t knnlm_text_tokens(const knnlm_text *text);
KNNLM_API size_t knnlm_text_sources(const knnlm_text *text);
KNNLM_API knnlm_status knnlm_text_token_at(const knnlm_text *text, size_t number, knnlm_text_token *out);
KNNLM_API knnlm_status knnlm_text_source_at(const knnlm_text *text, size_t number, knnlm_text_source *out);
// Whether a token ended the text, which is not among its tokens: *out is that one then.
KNNLM_API bool knnlm_text_end(const knnlm_text *text, knnlm_text_token *out);

// ---------------------------------------------------------------- serving

// A server of HTTP and JSON: OpenAI's completions, scores, explanations, documents of stores, and a page to
// look at them with (docs/protocol.md). Threads of its own answer; the model is used by one of them at a
// time. It listens from _open on, so that a port that is taken is known before the model is read, and answers
// 503 until _load. Then the program does what it likes until _close; one that only serves calls _run, which
// returns after _stop. A program that serves ignores SIGPIPE: clients may leave in the middle of an answer.
typedef struct knnlm_server knnlm_server;

enum { KNNLM_ALLOWED_HOSTS_MAX = 16 };

typedef struct knnlm_server_options {
    size_t size;                      // of this struct: set by knnlm_server_options_default
    const char *host;                 // an address of this machine, or "localhost"
    uint16_t port;                    // 0: any that is free
    const char *api_key;              // that clients must have; NULL: everybody may ask
    bool no_key;                      // everybody may, although other machines reach it
    const char *const *allowed_hosts; // names by which clients may call it, beside those of this machine
    size_t allowed_host_count;        // at most KNNLM_ALLOWED_HOSTS_MAX
    const char *cors;                 // pages of this origin may ask, "*": of any; NULL: only our own
    bool read_only;                   // stores are not changed
    size_t queue;                     // requests that may wait, at most 2^20; more are told to come again
    size_t parallel;                  // texts generated at a time; at most 256
    size_t max_tokens;                // of a text, or of a prompt and its answer; at most 2^24
    size_t max_body;                  // bytes of a request
    size_t max_memory;  // bytes of all requests at a time, half of it for one; 1,000,000 at least
    size_t connections; // at a time; at most 10000
    size_t per_address; // connections of one client; 0: a quarter of them, or all where only this machine can
                        // connect
    double timeout;     // seconds that a request may take; .1 at least
    double patience;    // seconds that requests under way may take when it is closed
    // A store that another process has changed cannot be opened, and is served as it was: its path, and why.
    // Called by a thread of the server. NULL: nobody listens.
    void (*warn)(void *context, const char *store, const char *message);
    void *warn_context;
    size_t models; // that will be loaded, at most 16: requests are answered once all are
    // A line for each request is appended to this file ("-": standard error): when, who, what, how it went;
    // never a text. NULL: none is.
    const char *access_log;
    bool access_log_json; // lines are JSON
} knnlm_server_options;

// 127.0.0.1:8080; queue 256, parallel 8, 16384 tokens, body 16 MiB, memory 1 GiB, 512 connections, timeout
// 300, patience 5, one model.
KNNLM_DEFAULTS(knnlm_server_options);

// A key from the first line of a file, where others do not see it as they see arguments and the environment.
// *key is the caller's, released with knnlm_free. KNNLM_EINVAL: everybody may read or write the file;
// KNNLM_EIO; KNNLM_EDATA: no key that a header could carry; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_server_read_key(const char *path, char **key);

// Listens. Options are copied; they may be NULL. KNNLM_EINVAL: options, no such address, or one that other
// machines reach without `api_key` or `no_key`; KNNLM_EIO: the address cannot be had; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_server_open(const knnlm_server_options *options, knnlm_server **out);
// Where: "http://127.0.0.1:8080/", the server's. Any thread.
KNNLM_API const char *knnlm_server_url(const knnlm_server *server);
// Serves the model, which is not to be used by others until the server is closed, with the stores of
// `mixture`, which requests choose from; `mixture` may be NULL, and is copied. A cache that it asks for
// (`cache` above 0) is of texts that are generated. Once for each of options->models, one after another:
// requests choose by name (its file's, without ".gguf"), the first is that of those that name none. After a
// failure the server can only be closed. KNNLM_EINVAL: it has all its models, or two models or stores have
// one name; else as knnlm_mixture_open.
KNNLM_API knnlm_status knnlm_server_load(knnlm_server *server, knnlm_model *model,
                                         const knnlm_mixture_options *mixture);
// Returns after knnlm_server_stop, at once where that was called before; then the server is to be closed.
// KNNLM_EINVAL: it has no model.
KNNLM_API knnlm_status knnlm_server_run(knnlm_server *server);
// Any thread, and handlers of signals.
KNNLM_API void knnlm_server_stop(knnlm_server *server);
// From now on clients must have this key, in place of the one it was opened with. Any thread. KNNLM_EINVAL:
// it was opened without; KNNLM_ENOMEM.
KNNLM_API knnlm_status knnlm_server_set_key(knnlm_server *server, const char *key);
// After the access log was renamed: it goes on in a new file of its name. Any thread. KNNLM_EIO: there is
// none to be had, and the old one stays.
KNNLM_API knnlm_status knnlm_server_reopen_log(knnlm_server *server);
// Lets nobody in, waits for requests under way, as long as its patience lasts, and ends the others. Not while
// another thread is in knnlm_server_run. NULL is allowed.
KNNLM_API void knnlm_server_close(knnlm_server *server);

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

// Where a run stands. Losses are in nats.
typedef struct knnlm_train_report {
    int64_t step, steps;
    double loss;       // mean of the tokens since the last report; NAN: nothing was left to do
    double rate, norm; // learning rate, norm of the gradient
    double tokens_per_second, seconds, seconds_left;
    uint64_t tokens;   // seen so far
    double valid_loss; // NAN: not measured at this step
    bool best;         // the validation loss is the lowest so far
    double best_loss;  // that lowest one, of the runs before a resume too; INFINITY: none yet
    bool saved;        // a checkpoint was written
} knnlm_train_report;

// What is about to be done.
typedef struct knnlm_train_plan {
    uint64_t tokens, parameters; // tokens: of the text
    int64_t steps;
    size_t batch;        // tokens per update
    const char *kernels; // a constant
} knnlm_train_plan;

// Types of the tensors of a model file.
typedef enum knnlm_type {
    KNNLM_TYPE_F32 = 0,
    KNNLM_TYPE_F16 = 1,
    KNNLM_TYPE_BF16 = 2,
    KNNLM_TYPE_Q8_0 = 3,
} knnlm_type;

// Where negative is "not given", the preset decides, or the model that the run begins from.
typedef struct knnlm_train_options {
    size_t size;       // of this struct: set by knnlm_train_options_default
    const char *valid; // validation text: the best model on it is kept; NULL: none
    knnlm_split split;
    const char *from; // a model to begin from, with its shape and tokenizer; the optimiser begins anew
    // The shape. With `from` none of these may be given.
    const char *preset;         // NULL: "small"
    int32_t tokenizer;          // a knnlm_tokenizer_kind up to wordpiece; negative: bpe
    const char *tokenizer_file; // tokenizer.json, vocab.txt or GGUF to take it from; NULL: trained
    int32_t vocabulary;         // tokens to train; negative: 16000; 0: every word
    int64_t vocabulary_sample;  // MB of text that the tokenizer is trained on; negative: 100
    int32_t width, layers, heads, ffn, context;
    int32_t window;                      // positions that attention sees; 0: all
    int32_t positions, activation, norm; // a knnlm_positions, knnlm_activation, knnlm_norm
    bool no_bias, qk_norm;               // no biases; RMSNorm of queries and keys
    const int32_t *bands;                // cutoffs of adaptive embeddings and softmax, growing; NULL: none
    size_t band_count;
    // The run. One of steps, epochs and minutes; without any 1000 steps.
    int64_t steps;
    double epochs, minutes; // over the text; by the speed of the first updates
    int64_t length;         // tokens per window; negative: the context, or as `from` was trained
    int64_t batch;          // tokens per update
    int64_t micro;          // tokens in memory at a time; negative: 4096
    knnlm_optimizer optimizer;
    int32_t schedule;    // a knnlm_schedule; negative: cosine, of nesterov restarts
    double rate;         // peak; negative: .001, of nesterov 1
    double floor, tail;  // lowest rate as a part of the peak; part of the steps that plateau descends over
    int64_t warmup;      // negative: 1 in 20 steps, at most 1000; of nesterov 16000
    int64_t period;      // steps of the first cosine of restarts; negative: 270000
    double clip, decay;  // largest norm of the gradient; weight decay; negative: 1, .05; of nesterov .1, 0
    double momentum;     // of nesterov
    double beta1, beta2; // of adamw
    double dropout, attention_dropout, activation_dropout;
    uint64_t seed; // of weights, order and dropout
    knnlm_precision precision;
    knnlm_type type;                               // of the model file
    int64_t valid_every, save_every, report_every; // steps; 0: only at the end
    double save_seconds;                           // also when so much time has passed; 0: not
    int64_t valid_tokens;                          // scored in a validation, at most; 0: all
    bool resume;                                   // goes on from OUTPUT.checkpoint
    bool force;                                    // replaces a model or a checkpoint that is there
    // Told from the calling thread. `stop`: asked after every update; true writes a checkpoint and ends with
    // KNNLM_ESTOPPED. Each may be NULL.
    void (*planned)(void *context, const knnlm_train_plan *plan);
    void (*report)(void *context, const knnlm_train_report *report);
    bool (*stop)(void *context);
    void *listener;                   // their context
    knnlm_progress progress;          // of what comes before: reading texts, training the tokenizer
    const knnlm_input_options *texts; // how texts are read; NULL: by the defaults. Its split does not count
} knnlm_train_options;

typedef struct knnlm_train_result {
    uint64_t parameters;
    const char *kernels; // a constant
    knnlm_train_report last;
} knnlm_train_result;

KNNLM_DEFAULTS(knnlm_train_options);

// Trains a model on texts (files, directories, "-") and writes it to `output`: at every best validation, or
// at the end without one. The checkpoint beside it, OUTPUT.checkpoint, has all of the run, which `resume`
// goes on with bit for bit. One call at a time in a process. `options` and `result` may be NULL.
// KNNLM_EINVAL: options, a checkpoint of another run, or a file that is there; KNNLM_EIO; KNNLM_EDATA: a text
// is not UTF-8, a file is malformed, or the loss left the numbers (the last checkpoint is kept);
// KNNLM_ENOTSUP: `from` is a model that only llama.cpp runs; KNNLM_ENOMEM; KNNLM_ESTOPPED.
KNNLM_API knnlm_status knnlm_train(const char *const *texts, size_t count, const char *output,
                                   const knnlm_train_options *options, knnlm_train_result *result);

#ifdef __cplusplus
}
#endif

#endif
