// What a store holds already, by content and by name.
#ifndef KN_BUILD_KNOWN_H
#define KN_BUILD_KNOWN_H

#include "store/store.h"
#include "text/vocab.h"

typedef struct kn_known_document {
    uint64_t hash[2];
    uint64_t number;
    bool whole, matched;
} kn_known_document;

typedef struct kn_known {
    const kn_store *store;        // NULL: a new one
    kn_known_document *documents; // sorted by hash, then number
    size_t count;
    uint64_t damaged; // documents that cannot be told any more: left out
    kn_vocab given;   // names that came in this run
} kn_known;

// What a document of this text is known by.
void kn_known_hash(const char *text, size_t size, uint64_t hash[2]);

knnlm_status kn_known_load(kn_known *k, const kn_store *store);
void kn_known_free(kn_known *k);
// All documents of this content, *count of them; NULL: none.
kn_known_document *kn_known_find(const kn_known *k, const uint64_t hash[2], size_t *count);
// A document of this name and content that nothing has matched yet, now matched, or NULL. Names and contents
// are two things: what has another name is another document, and stays what it is. (Text from stdin has no
// name of its own: any whole document of the content will do.)
kn_known_document *kn_known_match(kn_known *k, const char *name, const uint64_t hash[2]);
// A whole and intact document of this content under whatever name, or NULL: its entries can be copied.
const kn_known_document *kn_known_elsewhere(const kn_known *k, const uint64_t hash[2]);
// Notes that a document of this name came.
knnlm_status kn_known_give(kn_known *k, const char *name);
// Removes documents whose name came in this run with other content, and halves that an interrupted run left
// behind and nobody went on with; *replaced of the first.
knnlm_status kn_known_retire(const kn_known *k, kn_store_writer *w, uint64_t *replaced);

#endif
