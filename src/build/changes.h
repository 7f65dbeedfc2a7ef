// Which documents of a run are new to a store, unchanged, or replace others of their name.
#ifndef KN_BUILD_CHANGES_H
#define KN_BUILD_CHANGES_H

#include "store/contents.h"
#include "text/vocab.h"

typedef struct kn_changes {
    kn_contents contents; // of the store before the run
    kn_vocab given;       // names that came in this run
} kn_changes;

knnlm_status kn_changes_load(kn_changes *c, const kn_store *store);
void kn_changes_free(kn_changes *c);
// A document of this name and content that nothing has matched yet, now matched, or NULL. Names and contents
// are two things: what has another name is another document, and stays what it is. (Text from stdin has no
// name of its own: any whole document of the content will do.)
kn_content *kn_changes_match(kn_changes *c, const char *name, const uint64_t hash[2]);
// A whole and intact document of this content under whatever name, or NULL: its entries can be copied.
const kn_content *kn_changes_elsewhere(const kn_changes *c, const uint64_t hash[2]);
// Notes that a document of this name came.
knnlm_status kn_changes_give(kn_changes *c, const char *name);
// Removes documents whose name came in this run with other content, and halves that an interrupted run left
// behind and nobody went on with; *replaced of the first.
knnlm_status kn_changes_retire(const kn_changes *c, kn_store_writer *w, uint64_t *replaced);

#endif
