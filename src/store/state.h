// What a state of a store is made of. Not a door: only this room includes it.
#ifndef KN_STORE_STATE_H
#define KN_STORE_STATE_H

#include "store/part.h"
#include "store/store.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define KN_STORE_MANIFEST "MANIFEST"
#define KN_STORE_LOCK "LOCK"
enum { KN_MANIFEST_LINE = 64 };                     // bytes that hold its first line and a NUL
#define KN_MANIFEST_COUNTER_MAX ((uint64_t)1 << 53) // of commits and of files: no store gets there by use

// ---------------------------------------------------------------- the manifest

typedef struct kn_segment_entry {
    uint64_t file;               // NNNNNN of its parts
    uint64_t entries, documents; // documents: those that begin in it
    uint64_t continued;          // its first entries that belong to a document begun before it
    uint64_t strings;            // bytes of the documents' names and paths
    uint64_t text_seal, keys_seal;
    uint64_t first_entry, first_document; // sums of the segments before it; not in the file
} kn_segment_entry;

typedef struct kn_attachment {
    char *name;
    uint64_t bytes, hash;
} kn_attachment;

typedef struct kn_removed_entry {
    uint64_t file; // 0: nothing was removed
    uint64_t documents, entries, seal;
} kn_removed_entry;

// What another room keeps in the store: parts of its own, and a note that only it understands.
typedef struct kn_annex_part {
    uint64_t file;
    char kind[KN_ANNEX_KIND]; // NNNNNN.KIND
    uint64_t count, payload, seal;
} kn_annex_part;

typedef struct kn_annex {
    char *note;        // a JSON object; NULL: no annex
    uint64_t arranged; // entries, from the first on, whose keys lie here alone, in the order of lists
    kn_annex_part *parts;
    size_t count, capacity;
} kn_annex;

typedef struct kn_manifest {
    kn_store_settings settings; // strings are the manifest's own
    kn_store_tuned tuned;
    bool complete;
    uint64_t generation, next_file;
    int64_t created;
    int64_t job_time; // "added" of the documents of a run that is not complete
    kn_segment_entry *segments;
    size_t segment_count, segment_capacity;
    kn_attachment *attachments;
    size_t attachment_count, attachment_capacity;
    kn_removed_entry removed;
    kn_annex annex;
    uint64_t entries, documents; // sums
} kn_manifest;

// From the bytes of a manifest; `name` is used in messages. Everything is checked but the other files.
knnlm_status kn_manifest_parse(const char *name, const char *data, size_t size, kn_manifest *out);
// The bytes, released with free().
knnlm_status kn_manifest_print(const kn_manifest *m, char **data, size_t *size);
knnlm_status kn_manifest_copy(const kn_manifest *m, kn_manifest *out);
void kn_manifest_free(kn_manifest *m);
knnlm_status kn_manifest_add_segment(kn_manifest *m, const kn_segment_entry *s);
// In place of one of the same name.
knnlm_status kn_manifest_attach(kn_manifest *m, const char *name, uint64_t bytes, uint64_t hash);
// Whether a file of the store's directory may be attached under this name.
bool kn_attachment_name(const char *name);
const kn_attachment *kn_manifest_attachment(const kn_manifest *m, const char *name);
knnlm_status kn_annex_copy(const kn_annex *a, kn_annex *out);
knnlm_status kn_annex_add(kn_annex *a, const kn_annex_part *part);
void kn_annex_free(kn_annex *a);
// Copies strings; *out is released with kn_settings_free. Checks ranges: KNNLM_EINVAL.
knnlm_status kn_settings_copy(const kn_store_settings *s, kn_store_settings *out);
void kn_settings_free(kn_store_settings *s);
// A reason in English why the settings are impossible, or NULL.
const char *kn_settings_check(const kn_store_settings *s);

// ---------------------------------------------------------------- segments

// A document in NNNNNN.text. Its name and then its path are at `strings` in the section of strings.
typedef struct kn_document_record {
    uint32_t first; // entry of the segment
    uint32_t flags;
    uint64_t strings;
    uint32_t name_size, path_size;
    uint64_t source_offset, bytes, tokens;
    uint64_t hash[2];
    int64_t added;
} kn_document_record;
_Static_assert(sizeof(kn_document_record) == 72, "records have no holes");
// flags: byte offsets are known; above it, the document's order among those of all shards
enum { KN_DOCUMENT_OFFSETS = 1, KN_DOCUMENT_ORDER_SHIFT = 1 };

// Where the sections of a segment's parts begin, and their payloads. False: too large.
typedef struct kn_segment_layout {
    uint64_t tokens, offsets, documents, strings, text;
    uint64_t keys, scales, keys_payload; // keys_payload 0: the store has none
} kn_segment_layout;
bool kn_segment_measure(const kn_segment_entry *s, knnlm_keys type, size_t dimension, kn_segment_layout *out);

// ---------------------------------------------------------------- a state

typedef struct kn_segment {
    kn_segment_entry entry;
    kn_segment_layout layout;
    kn_map text, keys;
    size_t text_bits, keys_bits; // of their blocks in `checked`
    uint64_t carried; // entries, from its first on, that the document begun last before it goes on for
} kn_segment;

// Entries [first, first + count) whose keys lie in the order of lists, in parts of the annex (store.h): the
// entry at each place of it, and the list of each entry.
typedef struct kn_arranged {
    uint64_t first, count;
    size_t lists;
    size_t order, rows, listed;               // numbers of the parts
    const uint64_t *ends;                     // (lists + 1)
    const uint32_t *ids;                      // (count): by place, ascending within a list
    const uint8_t *list_of;                   // (count): by entry, of 2 bytes up to 65536 lists, else of 4
    const uint8_t *keys;                      // (count): by place
    const float *scales;                      // likewise, of int8; else NULL
    void *recovered_places, *recovered_lists; // memory of what was damaged: each follows from the other
    bool trusted;                             // they were checked, or recovered
} kn_arranged;

struct kn_store {
    char *path;
    struct kn_sharded *sharded; // of a store of shards: of the rest it has path and info alone; else NULL
    kn_manifest manifest;
    kn_store_info info;
    kn_segment *segments;
    kn_map removed;
    kn_map *annex;         // a map a part
    kn_arranged *arranged; // in the order of their entries
    size_t arranged_count;
    char *annex_fault;           // why parts of it cannot be read; NULL: all are there
    size_t *annex_bits;          // of their blocks in `checked`
    _Atomic uint64_t *checked;   // a bit a block that was found intact, and one a part whose seal was
    uint64_t *removed_bits;      // a bit per document; NULL: none removed
    char seen[KN_MANIFEST_LINE]; // the first line of the manifest: its checksum, which no two states share
};

// Gives every block its bit. The parts are open.
knnlm_status kn_store_number_blocks(kn_store *s);
// Whether the entries (tokens and offsets, or keys too) of a segment, or the record of its document `index`
// and its strings, are as they were written. KNNLM_EDATA names file and block.
knnlm_status kn_segment_check_tokens(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n);
knnlm_status kn_segment_check_entries(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n);
knnlm_status kn_segment_check_record(const kn_store *s, const kn_segment *g, uint64_t index);

// Finds the runs of the annex that hold the keys of arranged entries: KNNLM_EDATA when its parts cannot.
knnlm_status kn_store_open_arranged(kn_store *s);
// Reads all that says where keys lie; what is damaged is made anew from what is not, in the memory of this
// state. KNNLM_EDATA: too much is. For one thread, before others use the store.
knnlm_status kn_store_recover_order(kn_store *s);
// Whether the keys of a segment lie in the annex.
bool kn_segment_arranged(const kn_manifest *m, const kn_segment_entry *e);
// Keys of entries [first, first + count), all of them arranged: that they are as they were written.
knnlm_status kn_arranged_check(const kn_store *s, uint64_t first, uint64_t count);
// The entry whose key is part of bytes [from, to) of the part of rows, each once: for verification.
typedef void kn_arranged_entry(void *context, uint64_t id);
void kn_arranged_rows_touched(const kn_store *s, size_t part, uint64_t from, uint64_t to,
                              kn_arranged_entry *touched, void *context);

// Where in that part the keys end, and scales begin.
uint64_t kn_arranged_rows_end(const kn_store *s, size_t part);

// "DIRECTORY/NAME", "DIRECTORY/000012.text"; released with free(). NULL: out of memory.
char *kn_store_file(const char *directory, const char *name);
char *kn_store_part_file(const char *directory, uint64_t file, const char *kind);
enum { KN_PART_NAME = 40 };
void kn_part_name(char name[KN_PART_NAME], uint64_t file, const char *kind);
// XXH3-64 and size of a whole file.
knnlm_status kn_file_hash(const char *path, uint64_t *hash, uint64_t *bytes);

// The segment that holds an entry, or in which a document begins; those must be in the store.
size_t kn_store_find_segment(const kn_store *store, uint64_t entry);
size_t kn_store_find_document_segment(const kn_store *store, uint64_t document);

#endif
