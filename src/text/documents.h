// Bytes to documents: files, directories (walked in name order), archives, stdin ("-"), in all the forms that
// form.h tells.
#ifndef KN_TEXT_DOCUMENTS_H
#define KN_TEXT_DOCUMENTS_H

#include "base/progress.h"
#include "base/status.h"

extern const char *const kn_split_names[]; // of knnlm_split: "file", "wiki", "jsonl", NULL
// By its name; KNNLM_SPLIT_FILE: it is none.
knnlm_split kn_split_find(const char *name);

// How texts are found and read; zeros are the defaults, and `size` does not count.
typedef knnlm_input_options kn_text_options;

// One document. Pointers are valid until the next call of kn_documents_next or _close.
typedef struct kn_document {
    const char *name; // the path below what was named, of a file that was named its base name; with
                      // KNNLM_SPLIT_WIKI "path#Title", with _JSONL "path#NAME" or "path#LINE"
    const char *path; // the file it came from, absolute; "archive/member" where it was in one
    uint64_t offset;  // of its first byte in the file's text in UTF-8; of its line with KNNLM_SPLIT_JSONL
    const char *text; // valid UTF-8, NUL added
    size_t size;
    const char *typed; // its name with the path as it was typed; NULL: the same
} kn_document;

// Reads one document after another, in the order of `paths`. The documents of a file are all of its text
// (with KNNLM_SPLIT_JSONL, of the member that is asked for); an empty file has none. Of a file in a directory
// that is found unreadable far in, the documents before that place have been given.
// Whether one of them can be read only once: standard input, a pipe (as a shell's <(command) is).
bool kn_documents_once(const char *const *paths, size_t count);

typedef struct kn_documents kn_documents;
// `options` (NULL: the defaults) are copied, what they point to is not. KNNLM_EINVAL: an unknown encoding.
knnlm_status kn_documents_open(const char *const *paths, size_t count, const kn_text_options *options,
                               kn_documents **out);
// From now on `progress`, which outlives `d`, hears of every block read, and is asked while a pipe has
// nothing to give: kn_documents_next is KNNLM_ESTOPPED when it wants to stop.
void kn_documents_watch(kn_documents *d, const kn_progress *progress);
// Gives the one document, which is the caller's and must last as long. KNNLM_EDATA: not UTF-8.
knnlm_status kn_documents_open_one(const kn_document *document, kn_documents **out);
// KNNLM_OK with *found false at the end. KNNLM_EDATA naming file and byte or line: not UTF-8, damaged, a bad
// line; KNNLM_ENOTSUP: no text.
knnlm_status kn_documents_next(kn_documents *d, kn_document *out, bool *found);
// Bytes of all the files as they are on disk (0 when one is stdin), and how many were read: for progress.
uint64_t kn_documents_total(const kn_documents *d);
uint64_t kn_documents_done(const kn_documents *d);
void kn_documents_close(kn_documents *d);

#endif
