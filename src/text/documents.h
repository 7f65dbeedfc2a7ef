// Bytes to documents: files, directories (walked in name order), stdin ("-"); .zst and .gz are unpacked.
#ifndef KN_TEXT_DOCUMENTS_H
#define KN_TEXT_DOCUMENTS_H

#include "base/progress.h"
#include "base/status.h"

extern const char *const kn_split_names[]; // of knnlm_split: "file", "wiki", NULL

// One document. Pointers are valid until the next call of kn_documents_next or _close.
typedef struct kn_document {
    const char *name; // the path; with KNNLM_SPLIT_WIKI "path#Title"
    const char *path; // the file it came from
    uint64_t offset;  // of its first byte in the (unpacked) file
    const char *text; // valid UTF-8, NUL added
    size_t size;
} kn_document;

// Reads one document after another, in the order of `paths`. The documents of a file are all of its text;
// an empty file has none.
typedef struct kn_documents kn_documents;
knnlm_status kn_documents_open(const char *const *paths, size_t count, knnlm_split split, kn_documents **out);
// From now on `progress`, which outlives `d`, hears of every block read, and is asked while a pipe has
// nothing to give: kn_documents_next is KNNLM_ESTOPPED when it wants to stop.
void kn_documents_watch(kn_documents *d, const kn_progress *progress);
// Gives the one document, which is the caller's and must last as long. KNNLM_EDATA: not UTF-8.
knnlm_status kn_documents_open_one(const kn_document *document, kn_documents **out);
// KNNLM_OK with *found false at the end. Not UTF-8: KNNLM_EDATA naming file and byte.
knnlm_status kn_documents_next(kn_documents *d, kn_document *out, bool *found);
// Bytes of all the files as they are on disk (0 when one is stdin), and how many were read: for progress.
uint64_t kn_documents_total(const kn_documents *d);
uint64_t kn_documents_done(const kn_documents *d);
void kn_documents_close(kn_documents *d);

#endif
