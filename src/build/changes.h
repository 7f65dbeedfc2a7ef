// Which documents of a run are new to a store, unchanged, or replace others of their name.
#ifndef KN_BUILD_CHANGES_H
#define KN_BUILD_CHANGES_H

#include "build/identity.h"
#include "store/contents.h"

typedef struct kn_changes {
    kn_contents contents; // of the store before the run
    kn_identities identities;
} kn_changes;

// Folders whose documents a store is to have, and no others of theirs.
typedef struct kn_folders {
    char **paths; // absolute, without links
    size_t count;
} kn_folders;
// KNNLM_EINVAL: not a directory; KNNLM_EIO. To be freed whatever the status.
knnlm_status kn_folders_find(kn_folders *f, const char *const *typed, size_t count);
void kn_folders_free(kn_folders *f);

// A text of this run.
typedef struct kn_given {
    int32_t who;      // its identity; -1: it has none
    const char *name; // that it has in the store; valid until the next text is given
    bool again;       // its file was read in this run before
} kn_given;

knnlm_status kn_changes_load(kn_changes *c, const kn_store *store);
void kn_changes_free(kn_changes *c);
// Tells who the text is, and notes that it came.
knnlm_status kn_changes_give(kn_changes *c, const kn_document *d, kn_given *out);
// The document that it is, of this content, that nothing has matched yet, now matched, or NULL. Identity and
// content are two things: what is another is another document, and stays what it is. (Text from stdin has no
// name of its own: any whole document of the content will do.)
kn_content *kn_changes_match(kn_changes *c, const kn_given *given, const uint64_t hash[2]);
// A whole and intact document of this content under whatever name, or NULL: its entries can be copied.
const kn_content *kn_changes_elsewhere(const kn_changes *c, const uint64_t hash[2]);
// Whether no text of this run was this document although its file lies in one of the folders, which are
// absolute and without links.
bool kn_changes_is_gone(const kn_changes *c, const kn_content *content, const kn_folders *folders);
// Removes documents that came in this run with other content, and halves that an interrupted run left
// behind and nobody went on with; *replaced of the first.
knnlm_status kn_changes_retire(const kn_changes *c, kn_store_writer *w, uint64_t *replaced);

#endif
