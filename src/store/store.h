// The datastore: one (key, value, origin) entry a token of a text collection, on disk, never lost.
//
// A store is a directory (docs/format.md has every field):
//   1. MANIFEST            a line "knnlm-store VERSION CHECKSUM", then JSON: settings, segments, counts. It
//   is
//                          replaced atomically; what it does not name does not exist.
//   2. NNNNNN.text         a segment: tokens i32[n], byte offsets u32[n], document records, strings
//   3. NNNNNN.keys         its keys: [n][d] of f16, f32 or int8; then, for int8, scales f32[n]
//   4. NNNNNN.removed      numbers of the removed documents, u32, ascending
//   5. tokenizer.gguf      what turns tokens into text; projection.gguf: what keys went through (--project)
//   6. LOCK                locked by the writer
// Files 2 to 4 are parts (part.h): checksummed block by block, written once, never changed. A commit writes
// new parts, syncs them, and replaces the manifest. Entries stand in the order of the documents: the tokens
// of a store, read from its first to its last, are its text. Numbers are little-endian.
#ifndef KN_STORE_H
#define KN_STORE_H

#include "base/distance.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/progress.h"

#define KN_STORE_MAGIC "knnlm-store"
enum {
    KN_STORE_VERSION = 2,
    KN_STORE_VERSION_ONE =
        1, // whose indexes had copies of the keys; it is read, and written as the newer one
    KN_STORE_DIMENSION_MAX = KNNLM_DIMENSION_MAX,
    KN_STORE_SEGMENT_MAX = KNNLM_SEGMENT_MAX, // entries of a segment
    KN_STORE_SEGMENT_DEFAULT = 1 << 16,       // a minute's work of a middling model: what a crash can cost
};
#define KN_STORE_ENTRIES_MAX KNNLM_ENTRIES_MAX // so that an index may number them in 32 bits
#define KN_STORE_DOCUMENT_BYTES_MAX UINT32_MAX
#define KN_STORE_ORDER_MAX (UINT32_MAX >> 1)

// How a store was made; two stores with equal settings take each other's entries.
typedef struct kn_store_settings {
    // Empty strings: not known (imported stores).
    const char *model, *model_fingerprint, *tokenizer, *tokenizer_fingerprint;
    int32_t vocabulary; // tokens are below it; 0: not known
    knnlm_keys key_type;
    int32_t dimension;       // of a key
    int32_t model_dimension; // of the model's state: above `dimension` when keys are projected
    knnlm_distance distance;
    const char *tap;             // where in the model keys were taken, such as "ffn"
    const char *split;           // how files were cut into documents
    int32_t window, min_context; // window 0: texts were read as a stream (or not by us)
    uint32_t segment;            // entries of a full segment
} kn_store_settings;

// A weight for every bin of the nearest distance and of the model's entropy. No bins: one weight for all.
enum { KN_BINS_MAX = 16 };
typedef struct kn_store_bins {
    uint32_t distances, entropies;                                          // bins of each
    double distance_edges[KN_BINS_MAX - 1], entropy_edges[KN_BINS_MAX - 1]; // between them, ascending
    double lambdas[KN_BINS_MAX * KN_BINS_MAX];                              // (distances, entropies)
} kn_store_bins;

// The states of the text at hand, beside the store. size 0: not used.
typedef struct kn_store_cache {
    int64_t size;
    double lambda, temperature;
} kn_store_cache;

// Of the tokens that were tuned on: what half of them, and what 95 in 100, are not above.
typedef struct kn_store_range {
    double median, high;
} kn_store_range;

// What neighbours looked like while tuning, at the settings that were chosen. `known` false: nobody looked.
typedef struct kn_store_seen {
    bool known;
    kn_store_range distance, entropy; // of the nearest; of p_kNN, in nats
} kn_store_seen;

// Beyond these f32 has no exp(-d / T) any more.
#define KN_TEMPERATURE_MIN KNNLM_TEMPERATURE_MIN
#define KN_TEMPERATURE_MAX KNNLM_TEMPERATURE_MAX

// Of a gate (mix/gate.h): its weights by their number, which tells whether a reader knows such gates.
enum { KN_STORE_GATE = 72 };
typedef struct kn_store_gate {
    bool known;
    double unit, centre;
    double weights[KN_STORE_GATE];
} kn_store_gate;

// Tuned on some validation text: how to mix. `known` false: nobody did yet.
enum { KN_TUNED_TEXTS = 256 };
typedef struct kn_store_tuned {
    bool known;
    double lambda, temperature; // the temperature belongs to the store's distance (l2: squared)
    int64_t k, probes;          // probes 0: the index's own
    bool codes;                 // by distances of the codes, although there are keys
    kn_store_cache cache;
    kn_store_bins bins;
    kn_store_seen seen;
    kn_store_gate gate;
    bool quick;                     // on the store's own text: a first guess
    int64_t entries;                // of the store then; 0: not known
    int64_t tokens;                 // of the validation text
    uint64_t texts[KN_TUNED_TEXTS]; // the smallest hashes (low halves) of its documents, ascending
    size_t text_count;
} kn_store_tuned;

// ---------------------------------------------------------------- reading

// One consistent state of a store, as the last commit before it was opened left it. Immutable: any number of
// threads may read through one; a writer in this or another process does not disturb it. Numbers of entries
// and documents belong to a state: compaction renumbers.
typedef struct kn_store kn_store;

typedef struct kn_store_info {
    const char *path;
    kn_store_settings settings;
    kn_store_tuned tuned;
    bool complete;               // false: a build or an addition was interrupted
    uint64_t generation;         // commits so far
    int64_t created;             // seconds since 1970
    uint64_t entries, documents; // removed ones included
    uint64_t removed_entries, removed_documents;
    uint64_t arranged; // entries whose keys lie in the order of lists (see annex)
    uint64_t bytes;    // of all the files
    size_t segments;
    bool has_tokenizer, has_projection;
} kn_store_info;

// KNNLM_EIO: not there, or cannot be read; KNNLM_EDATA: no store, or a damaged one; KNNLM_ENOTSUP: of a newer
// version; KNNLM_ENOMEM.
knnlm_status kn_store_open(const char *path, kn_store **out);
void kn_store_close(kn_store *store);
const kn_store_info *kn_store_describe(const kn_store *store);
// Whether no commit has been made since this state was opened.
bool kn_store_is_current(const kn_store *store);
// Whether a directory at `path` holds a store (of whatever state).
bool kn_store_exists(const char *path);
// KNNLM_EINVAL naming both when the store was made by another model or tokenizer. `name` is the model's path.
// What the store does not know (imported) is not compared, nor a model without fingerprint (NULL: the caller
// vouches for it), but `dimension` always is.
knnlm_status kn_store_check_model(const kn_store *store, const char *name, const char *model_fingerprint,
                                  const char *tokenizer_fingerprint, int32_t dimension);
// The path of an attached file (tokenizer.gguf, projection.gguf), NULL when the store has none. Its checksum
// is compared first. Released with free().
knnlm_status kn_store_attachment(const kn_store *store, const char *name, char **path);

typedef struct kn_store_document {
    const char *name, *path; // name: unique mostly; path: the file it came from. Not NUL-terminated!
    size_t name_size, path_size;
    uint64_t source_offset; // of its first byte in the (unpacked) file
    uint64_t bytes, tokens; // of the whole document
    uint64_t hash[2];       // XXH3-128 of its text: low, high
    int64_t added;          // seconds since 1970
    bool has_offsets;       // whether the byte offsets of its tokens are known
    uint32_t order;         // of a shard: its place among the documents of all shards; else 0
    // Set when read from a store:
    uint64_t first, count; // its entries; count < tokens: an interrupted addition
    bool removed;
} kn_store_document;

typedef struct kn_store_entry {
    uint64_t id;
    int32_t token;
    uint32_t document;
    uint64_t position; // in its document
    uint64_t offset;   // byte of its document at which the token begins
    bool removed;
} kn_store_entry;

// KNNLM_EINVAL: no such number; KNNLM_EDATA: the file is damaged there.
knnlm_status kn_store_document_at(const kn_store *store, uint64_t number, kn_store_document *out);
knnlm_status kn_store_entry_at(const kn_store *store, uint64_t id, kn_store_entry *out);
// Entries that belong to no document, because its record is damaged: nobody could tell where they come from.
typedef void kn_lost_entries(void *context, uint64_t first, uint64_t count);
void kn_store_find_lost(const kn_store *store, kn_lost_entries *found, void *context);
// Whether a document is called `pattern`, or its name matches it as a shell's would ("*" goes beyond
// slashes).
bool kn_store_document_matches(const kn_store_document *d, const char *pattern);
// Documents that one of `only` means (none given: all), and none of `except`; and of those about a fraction,
// by a hash of their text: what is in a smaller fraction is in a larger one too.
typedef struct kn_name_filter {
    const char *const *only, *const *except;
    size_t only_count, except_count;
    double fraction; // 0: all of them
} kn_name_filter;
// *bits: one per entry, set for those of the chosen documents; NULL where the filter is empty. Released with
// free(). KNNLM_EINVAL: no document is left; KNNLM_ENOMEM.
knnlm_status kn_store_select(const kn_store *store, const kn_name_filter *filter, uint64_t **bits);
// Whether entry `id` belongs to a removed document; true for what cannot be read.
bool kn_store_entry_removed(const kn_store *store, uint64_t id);
bool kn_store_document_removed(const kn_store *store, uint64_t number);
// `count` tokens, byte offsets or keys (as f32) from entry `first` on; they may span segments.
// KNNLM_ENOTSUP: a store without keys.
knnlm_status kn_store_tokens(const kn_store *store, uint64_t first, size_t count, int32_t *out);
knnlm_status kn_store_offsets(const kn_store *store, uint64_t first, size_t count, uint64_t *out);
knnlm_status kn_store_keys(const kn_store *store, uint64_t first, size_t count, float *out);

// The key of an entry as it lies in memory, and its scale (1 where the type has none); not checked.
// KNNLM_EDATA: it cannot be found.
knnlm_status kn_store_key_at(const kn_store *store, uint64_t id, const uint8_t **key, float *scale);

// Keys lie together by segment, in the order of the entries; or, once they are indexed, in the order of
// lists.
typedef struct kn_store_key_run {
    uint64_t first, count; // entries: all of them, in some order
    const uint32_t *ids;   // by place; NULL: first, first + 1, ...
    const uint8_t *keys;
    const float *scales;       // of int8 keys, else NULL
    size_t part;               // with ids, of the annex; else the segment
    size_t order_part, ids_at; // with ids: where they lie in the annex, from which byte on
} kn_store_key_run;
size_t kn_store_key_runs(const kn_store *store);
kn_store_key_run kn_store_key_run_at(const kn_store *store, size_t number);

// A segment as it lies in memory: read-only, valid while the store is open.
typedef struct kn_store_segment {
    uint64_t first, count;                   // entries
    uint64_t first_document, document_count; // documents that begin in it
    const int32_t *tokens;
    const uint32_t *offsets;
    const void *keys;    // NULL without keys, and where they lie in the order of lists
    const float *scales; // of int8 keys, else NULL
    uint64_t file;       // NNNNNN of its parts
    uint64_t text_seal, keys_seal, bytes;
} kn_store_segment;
kn_store_segment kn_store_segment_at(const kn_store *store, size_t number);

// ---------------------------------------------------------------- checking what is read

// Parts carry checksums block by block. They are compared where somebody asks for it, each block once in the
// life of an open store: the second time costs a look at a bit. KNNLM_EDATA names file and block.

// The keys of entries [first, first + count), which are there; that they are finite, too.
knnlm_status kn_store_check_keys(const kn_store *store, uint64_t first, uint64_t count);
// All that a segment has beside its keys: tokens, offsets, documents.
knnlm_status kn_store_check_text(const kn_store *store, size_t segment);
// Whether a document's record and all its entries are there and intact.
bool kn_store_document_intact(const kn_store *store, uint64_t number);
// Bytes of a part of the annex, after its header. `check` (or NULL) is asked about every block that is read
// for the first time: what is wrong with bytes [from, to), in English, or NULL.
typedef const char *kn_block_check(void *context, size_t from, size_t to);
knnlm_status kn_store_check_annex(const kn_store *store, size_t number, size_t offset, size_t size,
                                  kn_block_check *check, void *context);
// The check of rows of keys that begin at `data` and end at `rows_end`, where the scales of int8 begin.
const char *kn_keys_check(knnlm_keys type, const uint8_t *data, size_t rows_end, size_t from, size_t to);

// ---------------------------------------------------------------- writing

// The one writer of a store, used by one thread. Files are written by a thread of its own behind the caller's
// back: what failed there is reported by the next call, and the store stands at its last commit. After a
// failure every further call fails.
typedef struct kn_store_writer kn_store_writer;

// A new store in a new (or empty) directory, or in one where a crash came before the first commit. It exists
// from the first commit on. Times are those of the clock, or of the environment's SOURCE_DATE_EPOCH.
knnlm_status kn_store_create(const char *path, const kn_store_settings *settings, kn_store_writer **out);
// Locks an existing one, and sweeps up what a crash has left. KNNLM_EBUSY: another process is writing.
knnlm_status kn_store_write(const char *path, kn_store_writer **out);
// Releases the lock. What was not committed is gone.
void kn_store_writer_close(kn_store_writer *w);
// The state that the writer began with; NULL for a new store. Owned by the writer.
const kn_store *kn_store_writer_base(const kn_store_writer *w);
// Before all keys of the base are read: where they lie is checked, and recovered where it is damaged.
knnlm_status kn_store_writer_recover(kn_store_writer *w);
const char *kn_store_writer_path(const kn_store_writer *w);
const kn_store_settings *kn_store_writer_settings(const kn_store_writer *w);

// Begins a document: exactly d->tokens entries follow. d->added 0: now. A document that the base left
// unfinished is removed, unless it is continued first.
knnlm_status kn_store_writer_document(kn_store_writer *w, const kn_store_document *d);
// Goes on with the last document of the base, of which *present entries are stored.
knnlm_status kn_store_writer_continue(kn_store_writer *w, uint64_t *present);
// The next entries of the document. `offsets` may be NULL when the document has none, `keys` (count,
// dimension) when the store keeps none. A full segment is committed at once. KNNLM_EDATA: a key is not
// finite, or does not fit f16.
knnlm_status kn_store_writer_append(kn_store_writer *w, const int32_t *tokens, const uint64_t *offsets,
                                    const float *keys, size_t count);
// From now on nothing is to be seen before the commit, however many segments fill up: all of it or none.
void kn_store_writer_hold(kn_store_writer *w);
// A document of the base once more under another name: `about` says its name, path and source_offset, the
// rest and all entries are copied. KNNLM_EINVAL: it is not whole; KNNLM_EDATA: it is damaged.
knnlm_status kn_store_writer_copy(kn_store_writer *w, uint64_t document, const kn_store_document *about);
// Removes a document of the base with the next commit.
knnlm_status kn_store_writer_remove(kn_store_writer *w, uint64_t document);
// Values that make no sense (weights outside 0 to 1, ...) make the next call fail (KNNLM_EINVAL).
void kn_store_writer_tune(kn_store_writer *w, const kn_store_tuned *tuned);
// Takes the file `name`, already in the store's directory, as part of the store, in place of one attached
// under that name before. KNNLM_EINVAL: no plain name in UTF-8, or one of the store's own.
knnlm_status kn_store_writer_attach(kn_store_writer *w, const char *name);
// Everything so far is on disk and visible to who opens the store next, and the run is complete: a document
// that the base left unfinished is removed. KNNLM_EINVAL in the middle of a document.
knnlm_status kn_store_writer_commit(kn_store_writer *w);
// The same for a change beside a run (removal, tuning): an interrupted one stays so, and can be resumed.
knnlm_status kn_store_writer_amend(kn_store_writer *w);
uint64_t kn_store_writer_entries(const kn_store_writer *w); // those not committed yet included

// ---------------------------------------------------------------- annex

// Room for an index: parts of its own in the store's directory, named by the same manifest, checksummed and
// swept like the rest, and a note (a JSON object) that says what they are.
//
// An index of keys has them in the order of its lists, and then the segments need not have them too: of
// entries [0, arranged) the annex alone has the keys. Its parts are then
//   1. lists    of so many lists; what else is in it is the index's matter
//   2. and one after another, for entries that follow each other from the first on:
//      order    ends u64[lists + 1]: list l is places [ends[l], ends[l + 1]); entries u32[n], by place,
//               ascending within a list
//      rows     keys [n][d], by place; of int8, scales f32[n]
//      codes    if any: the index's matter
//      listed   the list of each entry u16[n] (above 65536 lists u32[n]): where its key is found
enum { KN_ANNEX_KIND = 16 };

// Sections of its parts are padded.
static inline size_t kn_annex_padded(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}
// Bytes of the number of a list in NNNNNN.listed.
static inline size_t kn_annex_list_bytes(size_t lists) {
    return lists <= UINT16_MAX + 1 ? sizeof(uint16_t) : sizeof(uint32_t);
}

// The note, or NULL: no annex. Its parts, in the order in which they were written: their kind, their count
// and what was put (after a header of 64 bytes), read-only, valid while the store is open.
const char *kn_store_annex_note(const kn_store *store);
typedef struct kn_store_annex_part {
    const char *kind;
    uint64_t count;
    const uint8_t *data;
    size_t size;
} kn_store_annex_part;
size_t kn_store_annex_parts(const kn_store *store);
// Why the parts cannot be read although there is a note (one is missing or cut short), or NULL.
const char *kn_store_annex_fault(const kn_store *store);
kn_store_annex_part kn_store_annex_at(const kn_store *store, size_t number);
// Advice for what is larger than memory: bytes of a part, or keys of entries of a segment, are needed soon.
void kn_store_annex_prefetch(const kn_store *store, size_t number, size_t offset, size_t size);
void kn_store_segment_prefetch(const kn_store *store, size_t number, uint64_t first, uint64_t count);
// No key that was looked at is needed soon: their pages need not be resident. They can be read again.
void kn_store_release_keys(const kn_store *store);

typedef struct kn_annex_writer kn_annex_writer;
// Begins an annex in the store that `w` has locked: a new one, or what follows the first `keep` parts of the
// present one.
knnlm_status kn_annex_open(kn_store_writer *w, size_t keep, kn_annex_writer **out);
// Begins a part: `kind` is lists, order, rows, codes or listed. Puts go to it until it is sealed.
knnlm_status kn_annex_begin(kn_annex_writer *a, const char *kind);
knnlm_status kn_annex_put(kn_annex_writer *a, const void *data, size_t size);
knnlm_status kn_annex_pad(kn_annex_writer *a); // to a multiple of 64 bytes
knnlm_status kn_annex_seal(kn_annex_writer *a, uint64_t count);
// Publishes it in place of the one before; keys of the first `arranged` entries are here alone from now on.
// Both release the writer.
knnlm_status kn_annex_commit(kn_annex_writer *a, const char *note, uint64_t arranged);
void kn_annex_abort(kn_annex_writer *a);

// ---------------------------------------------------------------- upkeep

// What compaction keeps: a bit per entry, and how many are kept before every 512th.
typedef struct kn_renumbering {
    uint64_t entries; // before
    const uint64_t *kept;
    const uint32_t *ranks;
} kn_renumbering;

static inline bool kn_renumbering_keeps(const kn_renumbering *n, uint64_t id) {
    return n->kept[id / 64] >> id % 64 & 1;
}
// The new number of an entry that is kept; of any, how many before it are kept.
uint64_t kn_renumbering_of(const kn_renumbering *n, uint64_t id);

// An index of what is kept, written to `a`: *note is released with free(), *arranged as for kn_annex_commit.
// No part at all: nothing is left to index. KNNLM_EDATA: the present one cannot be used.
typedef knnlm_status kn_rearrange(const kn_store *base, const kn_renumbering *n, kn_annex_writer *a,
                                  const kn_progress *progress, char **note, uint64_t *arranged);

// Drops what was removed and merges small segments; the removed documents' space is free afterwards. A crash
// leaves the store as it was. The annex is rearranged, or without that (NULL), or when it cannot be used,
// dropped. KNNLM_EIO: the disk has no room for the copy (`force` tries anyway); KNNLM_EDATA: what is to be
// kept is damaged.
knnlm_status kn_store_compact(const char *path, bool force, kn_rearrange *rearrange,
                              const kn_progress *progress, knnlm_compact_result *out);

// Reads everything: checksums, counts, cross-references; out->document_damaged is released with free().
// `found` is called for every problem. KNNLM_OK whatever is found; else the verification itself failed.
knnlm_status kn_store_verify(const kn_store *store, const kn_progress *progress,
                             void (*found)(void *context, const knnlm_problem *problem), void *context,
                             knnlm_verify_result *out);

#endif
