// The training text as one stream of tokens, and the windows cut from it.
#ifndef KN_TRAIN_CORPUS_H
#define KN_TRAIN_CORPUS_H

#include "base/progress.h"
#include "text/documents.h"
#include "text/tokenizer.h"

// Every document preceded by the tokenizer's start token; the stream ends with one too.
typedef struct kn_corpus {
    int32_t *tokens;
    size_t count, capacity;
    uint64_t documents, bytes;
    uint64_t hash; // of the tokens: a run is resumed on the text it began with
} kn_corpus;

// Both are KNNLM_ESTOPPED when `progress` (NULL: nobody listens) asks for it, be it in the middle of a
// document.
knnlm_status kn_corpus_read(const kn_tokenizer *tokenizer, const char *const *paths, size_t count,
                            const kn_text_options *options, const kn_progress *progress, kn_corpus *out);
void kn_corpus_free(kn_corpus *c);

// The raw text of the documents joined, up to `limit` bytes: what a tokenizer is trained on. What is skipped
// is not told: kn_corpus_read tells it. Released with free().
knnlm_status kn_corpus_text(const char *const *paths, size_t count, const kn_text_options *options,
                            size_t limit, const kn_progress *progress, char **text, size_t *size);

// The order in which windows of `length` tokens are visited: a new shuffle, and a new first token, each
// epoch. A function of seed and number alone, so that a run resumes anywhere.
typedef struct kn_order {
    size_t tokens, length;
    uint64_t seed;
    int64_t epoch; // whose shuffle is held; -1: none
    size_t windows;
    uint32_t *places;
    size_t capacity;
} kn_order;
knnlm_status kn_order_init(kn_order *o, size_t tokens, size_t length, uint64_t seed);
void kn_order_free(kn_order *o);
// Windows of an epoch.
size_t kn_order_windows(const kn_order *o);
// First token of the window visited as number `index` (its targets begin one later).
knnlm_status kn_order_at(kn_order *o, uint64_t index, size_t *first);

#endif
