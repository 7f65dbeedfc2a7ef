// Which document of a store a text is: by the file it came from, then by its name.
//
// A file is known by its absolute path, however it was typed; what splits it (a title, a line) comes on top.
// A text of a file that is not known is the document of its name, when the file of that one is gone: a folder
// was moved. While that one is still there, the new one gets a longer name: "b/README.md", "a/b/README.md".
// Not a door: only this room includes it.
#ifndef KN_BUILD_IDENTITY_H
#define KN_BUILD_IDENTITY_H

#include "store/store.h"
#include "text/buffer.h"
#include "text/documents.h"
#include "text/vocab.h"

typedef struct kn_identity {
    int32_t name, place; // their numbers below; place -1: no file is known
    bool given;          // a text of this run is it
    uint64_t beyond;     // of those of its place, the last began before this byte
} kn_identity;

typedef struct kn_identities {
    kn_vocab names, places; // a place: the path, a NUL, and what comes after the file in the name
    int32_t *of_name, *of_place;
    size_t name_capacity, place_capacity;
    kn_identity *all;
    size_t count, capacity;
    int32_t *of_document; // by its number in the store; -1: it was removed, or cannot be read
    kn_buffer name, key;  // at hand
} kn_identities;

// Of the documents of a store (NULL: none). To be freed whatever the status.
knnlm_status kn_identities_load(kn_identities *k, const kn_store *store);
void kn_identities_free(kn_identities *k);
// Who a text of this run is; from now on it is given. *again: its file was read in this run before.
knnlm_status kn_identities_find(kn_identities *k, const kn_document *d, int32_t *who, bool *again);
// Valid until the next call of kn_identities_find.
const char *kn_identities_name(const kn_identities *k, int32_t who);

#endif
