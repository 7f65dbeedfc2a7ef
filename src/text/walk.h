// The files under paths: each directory walked in name order.
#ifndef KN_TEXT_WALK_H
#define KN_TEXT_WALK_H

#include "text/documents.h"

typedef struct kn_walk_file {
    char *path;
    size_t root;   // bytes of the path that was named, with the slash after it
    size_t own;    // bytes before the name it has as a document: what is below the root, or its base name
    uint64_t size; // on disk
    bool named;    // it was named itself
} kn_walk_file;

// Zero-initialise.
typedef struct kn_walk_files {
    kn_walk_file *files;
    size_t count, capacity;
    uint64_t bytes; // of them all
} kn_walk_files;

// Appends the files of `path` that the options want. What can be neither file nor directory, nor be opened,
// is skipped. A directory without files is KNNLM_EINVAL.
knnlm_status kn_walk(const char *path, const kn_text_options *options, kn_walk_files *files);
// Appends standard input.
knnlm_status kn_walk_stdin(kn_walk_files *files);
void kn_walk_free(kn_walk_files *files);

// Whether a file called `path`, below its root, is wanted; a directory or archive that may hold some.
bool kn_walk_wants(const kn_text_options *options, const char *path);
bool kn_walk_enters(const kn_text_options *options, const char *path);
// Whether a part of `path` is a name that begins with a dot, and those are not wanted.
bool kn_walk_hides(const kn_text_options *options, const char *path);

// Something that is not named itself was met and is not read, for `reason`; the failure `status`, whose
// message stands, where nothing may be skipped.
knnlm_status kn_walk_skip(const kn_text_options *options, const char *path, const char *reason,
                          knnlm_status status);

#endif
