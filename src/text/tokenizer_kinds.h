// Behind the door of tokenizer.h: what a kind of tokenizer provides. Only this room includes it.
#ifndef KN_TEXT_TOKENIZER_KINDS_H
#define KN_TEXT_TOKENIZER_KINDS_H

#include "text/buffer.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

// `vocab` pieces are kept as kn_tokenizer_piece shows them. Each kind begins with a struct kn_tokenizer.
typedef struct kn_tokenizer_class {
    knnlm_tokenizer_kind kind;
    knnlm_status (*encode)(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out);
    // Appends what token number `index` of `ids` adds to the text; ids are in range.
    knnlm_status (*decode)(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out);
    knnlm_status (*save)(const kn_tokenizer *t, kn_gguf_writer *file);
    // What decides on tokens beside kind, vocabulary and start, as bytes; NULL: nothing.
    const void *(*rules)(const kn_tokenizer *t, size_t *size);
    void (*release)(kn_tokenizer *t); // what the kind holds beside `vocab`
} kn_tokenizer_class;

struct kn_tokenizer {
    const kn_tokenizer_class *class;
    kn_vocab vocab;
    int32_t start;
};

knnlm_status kn_tokens_reserve(kn_tokens *tokens, size_t more);

// A tokenizer of `bytes` bytes (its own struct) with `class`; takes the vocabulary unless it fails (NULL).
kn_tokenizer *kn_tokenizer_make(const kn_tokenizer_class *class, size_t bytes, kn_vocab *vocab);

// ---- word and wordpiece. Both take `vocab`, whatever they return.

knnlm_status kn_word_make(kn_vocab *vocab, kn_tokenizer **out);
knnlm_status kn_word_train(int32_t size, const char *text, size_t bytes, const kn_progress *progress,
                           kn_tokenizer **out);
knnlm_status kn_wordpiece_make(kn_vocab *vocab, kn_tokenizer **out);
knnlm_status kn_wordpiece_parse(const char *data, size_t size, kn_tokenizer **out); // a vocab.txt

// ---- bpe

enum kn_token_type { // GGUF's
    KN_TOKEN_NORMAL = 1,
    KN_TOKEN_UNKNOWN = 2,
    KN_TOKEN_CONTROL = 3,
    KN_TOKEN_USER = 4,
};

// Pieces of a byte-level BPE, gathered by training or by a reader of files. Zero-initialise.
typedef struct kn_bpe_parts {
    kn_vocab vocab;
    int32_t *types; // a kn_token_type a token; pieces of tokens that are not normal are text as it is
    size_t type_capacity;
    int32_t (*merges)[2]; // in order of rank
    size_t merge_count, merge_capacity;
    int32_t start;
} kn_bpe_parts;

knnlm_status kn_bpe_parts_token(kn_bpe_parts *p, const char *piece, size_t size, int32_t type);
// A merge by its two pieces: both must be tokens.
knnlm_status kn_bpe_parts_merge(kn_bpe_parts *p, const char *left, size_t left_size, const char *right,
                                size_t right_size);
// A merge written "left right".
knnlm_status kn_bpe_parts_merge_line(kn_bpe_parts *p, const char *line, size_t size);
void kn_bpe_parts_free(kn_bpe_parts *p);

// Takes the parts, whatever it returns.
knnlm_status kn_bpe_make(kn_bpe_parts *parts, kn_tokenizer **out);
knnlm_status kn_bpe_train(int32_t size, const char *text, size_t bytes, const kn_progress *progress,
                          kn_tokenizer **out);
knnlm_status kn_bpe_parse_json(const char *data, size_t size, kn_tokenizer **out); // a tokenizer.json

#define KN_BPE_END "<|endoftext|>"

// ---- saving, a function a kind

knnlm_status kn_word_save(const kn_tokenizer *t, kn_gguf_writer *file);
knnlm_status kn_wordpiece_save(const kn_tokenizer *t, kn_gguf_writer *file);
knnlm_status kn_bpe_save(const kn_tokenizer *t, kn_gguf_writer *file);
knnlm_status kn_foreign_save(const kn_tokenizer *t, kn_gguf_writer *file);

#endif
