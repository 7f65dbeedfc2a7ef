// The documents of a store by the hash of their content.
#ifndef KN_STORE_CONTENTS_H
#define KN_STORE_CONTENTS_H

#include "store/store.h"

typedef struct kn_content {
    uint64_t hash[2];
    uint64_t number; // of the document
    bool whole;      // all its tokens are there
    bool matched;    // a mark for who goes through them
} kn_content;

typedef struct kn_contents {
    const kn_store *store; // NULL: a new one
    kn_content *documents; // sorted by hash, then number
    size_t count;
    uint64_t damaged; // documents that cannot be read any more: left out
} kn_contents;

// The hash of a text: XXH3-128, low and high half.
void kn_content_hash(const char *text, size_t size, uint64_t hash[2]);

// To be freed whatever the status. KNNLM_ENOMEM; KNNLM_EIO.
knnlm_status kn_contents_load(kn_contents *contents, const kn_store *store);
void kn_contents_free(kn_contents *contents);
// All documents of this content, *count of them; NULL: none.
kn_content *kn_contents_find(const kn_contents *contents, const uint64_t hash[2], size_t *count);

#endif
