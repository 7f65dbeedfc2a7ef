// Where an entry of a store came from: its document, and the text around it.
#ifndef KN_KNN_ORIGIN_H
#define KN_KNN_ORIGIN_H

#include "store/store.h"
#include "text/tokenizer.h"

typedef struct kn_origin {
    kn_store_entry entry;
    kn_store_document document;  // strings are the store's
    char *before, *word, *after; // as the tokenizer decodes them, NUL added
    size_t before_size, word_size, after_size;
} kn_origin;

// `around` tokens before and after it, where its document has them. Without a tokenizer the texts are empty.
// KNNLM_EINVAL: no such entry; KNNLM_EDATA; KNNLM_ENOMEM. To be freed only after KNNLM_OK.
knnlm_status kn_origin_read(const kn_store *store, const kn_tokenizer *tokenizer, uint64_t id, size_t around,
                            kn_origin *out);
// The same of `count` tokens from entry `id` on: `word` is their text. KNNLM_EINVAL: its document has fewer.
knnlm_status kn_origin_read_span(const kn_store *store, const kn_tokenizer *tokenizer, uint64_t id,
                                 size_t count, size_t around, kn_origin *out);
void kn_origin_free(kn_origin *origin);

// The tokenizer that a store keeps of its texts. KNNLM_ENOTSUP: it keeps none.
knnlm_status kn_origin_open_tokenizer(const kn_store *store, kn_tokenizer **out);

#endif
