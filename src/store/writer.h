// The writer's insides, shared by the files that write. Not a door: only this room includes it.
#ifndef KN_STORE_WRITER_H
#define KN_STORE_WRITER_H

#include "store/state.h"

// Entries of a segment whose keys lie in the annex: 32 MB of tokens and offsets.
enum { KN_WRITER_TEXT_MAX = 1 << 22 };

// A segment being filled. The keys go to their part as they come; the rest is small and waits for the seal.
typedef struct kn_filling {
    uint64_t file;
    kn_part_writer *keys; // NULL without keys, and before the first entry
    int32_t *tokens;
    uint32_t *offsets;
    float *scales;
    size_t entries, tokens_capacity, offsets_capacity, scales_capacity;
    kn_document_record *documents;
    size_t document_count, document_capacity;
    char *strings;
    size_t strings_size, strings_capacity;
    size_t continued;
} kn_filling;

struct kn_store_writer {
    char *path;
    int lock;
    kn_spool *spool;
    kn_store *base;
    // Of the spool's thread while jobs are queued; of the caller's after a drain.
    kn_manifest manifest;
    // Of the caller's thread.
    kn_store_settings settings; // the manifest's strings
    kn_filling *filling;        // NULL: nothing since the last full segment
    uint64_t next_file, entries, documents;
    int64_t now; // "added" of this run's documents
    uint64_t document_tokens, document_done;
    bool document_offsets, continuing; // continuing: it is the base's last
    bool unfinished;                   // the base's last document is neither continued nor removed yet
    uint32_t *removed;
    size_t removed_count, removed_capacity;
    uint64_t removed_entries;
    bool removed_changed, changed; // since the last commit
    uint64_t arranged_to;          // keys of entries below it are in the annex already (compaction)
    bool tail_taken;               // kn_writer_take_tail was called
    bool superseded;               // the next manifest will not name some files of the last
    bool hold;                     // full segments are sealed, but not published (compaction)
    void *scratch;
    size_t scratch_capacity;
    knnlm_status status; // of the first failure
    char *message;
};

// Makes room for `count` more entries in the segment at hand, begun when there is none.
knnlm_status kn_writer_reserve(kn_store_writer *w, size_t count);
// Counts `count` entries whose keys, tokens and offsets were put; commits a full segment.
knnlm_status kn_writer_count(kn_store_writer *w, size_t count);
knnlm_status kn_writer_record(kn_store_writer *w, const kn_store_document *d);
// Entries that the segment at hand can still take.
size_t kn_writer_room(const kn_store_writer *w);
// Entries [from, from + n) of a segment of the base, as they are; KNNLM_EDATA: they are damaged.
knnlm_status kn_writer_copy(kn_store_writer *w, size_t segment, uint64_t from, uint64_t n);
// The record of a document that begins in the segment, and those of its entries that lie there.
knnlm_status kn_writer_copy_begun(kn_store_writer *w, size_t segment, uint64_t number);
// Before the first new entries, about `added` of them: small segments at the end of the base begin the
// segment at hand, so that they and the new ones become one.
knnlm_status kn_writer_take_tail(kn_store_writer *w, uint64_t added);
// Makes one of several segments whose keys lie in the annex, those of entries below `arranged`, where they
// are small. Nothing is at hand or queued; the manifest names them from the next commit on.
knnlm_status kn_writer_join_texts(kn_store_writer *w, uint64_t arranged);
// What was written to it, for a manifest; releases the writer.
void kn_annex_take(kn_annex_writer *a, char *note, uint64_t arranged, kn_annex *out);
// Keeps the first failure: after it the writer's insides may be half done. Returns `status`.
knnlm_status kn_writer_keep(kn_store_writer *w, knnlm_status status);
// Seals the segment at hand and, unless `hold`, publishes.
knnlm_status kn_writer_queue_commit(kn_store_writer *w, bool complete);
// Whether the lock is still this writer's: KNNLM_EIO when the file was deleted or replaced.
knnlm_status kn_writer_check_lock(const kn_store_writer *w);
// Parts, then the directory, then the manifest.
knnlm_status kn_manifest_publish(const char *directory, const kn_manifest *m);
void kn_filling_free(kn_filling *f);
// Deletes what the manifest on disk, `m`, does not name: the debris of crashes. NULL: there is none yet.
void kn_store_sweep(const char *path, const kn_manifest *m);
// Whether the name is one that the store gives to its own files; no attachment may have it.
bool kn_store_owns(const char *name);
// Whether a new store may be made there: nothing is in it but such debris.
knnlm_status kn_store_check_empty(const char *path);
// Keys to bytes of the store's type, in w->scratch, and on to the part.
knnlm_status kn_writer_put_keys(kn_store_writer *w, const float *keys, size_t count);

#endif
