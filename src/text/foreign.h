// Tokenizers of other models: what their tokens stand for is kept here; who runs such a model brings along
// how text becomes tokens.
#ifndef KN_TEXT_FOREIGN_H
#define KN_TEXT_FOREIGN_H

#include "base/fingerprint.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

// Appends the tokens of a text, which is UTF-8.
typedef knnlm_status kn_foreign_encode(const kn_tokenizer *t, void *context, const char *text, size_t size,
                                       kn_tokens *out);

typedef struct kn_foreign_parts {
    knnlm_tokenizer_kind kind; // SENTENCEPIECE or FOREIGN
    kn_strings pieces;         // as the model has them; they need not differ
    kn_strings texts;          // what each stands for: as many
    int32_t start;
    bool adds_space;            // encoding puts a space before the text
    char rules[KN_FINGERPRINT]; // of all that decides on tokens beside the pieces
    kn_foreign_encode *encode;  // NULL: tokens to text only
    void *context;              // of it; released with free() when the tokenizer is
} kn_foreign_parts;

// Takes the parts, whatever it returns.
knnlm_status kn_foreign_make(kn_foreign_parts *parts, kn_tokenizer **out);
void kn_foreign_parts_free(kn_foreign_parts *parts);
// Of a tokenizer that was made so; NULL of others.
const kn_foreign_parts *kn_foreign_parts_of(const kn_tokenizer *t);

#endif
