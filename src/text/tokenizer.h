// The tokenizers behind one door: text to 32-bit token ids and back.
//
// Kinds: word (WikiText), bpe (byte-level, GPT-2's), wordpiece (BERT uncased), and those of other models,
// which a room below brings along (lm/llama): SentencePiece, and whatever else llama.cpp knows. A tokenizer
// is immutable once made; any number of threads may encode and decode with one.
#ifndef KN_TEXT_TOKENIZER_H
#define KN_TEXT_TOKENIZER_H

#include "base/fingerprint.h"
#include "base/gguf.h"
#include "base/progress.h"
#include "base/status.h"

#include <stdint.h>

typedef struct kn_tokenizer kn_tokenizer;

// A growing list of tokens, with the byte offset in the text at which each begins.
// Zero-initialise; free when done.
typedef struct kn_tokens {
    int32_t *ids;
    uint64_t *offsets; // filled when with_offsets
    size_t count, capacity, offset_capacity;
    bool with_offsets;
    // Asked now and then while a long text is encoded, which is KNNLM_ESTOPPED when it wants to stop. NULL:
    // nobody listens.
    const kn_progress *progress;
    size_t reported; // tokens at the last report
} kn_tokens;
knnlm_status kn_tokens_push(kn_tokens *tokens, int32_t id, uint64_t offset);
void kn_tokens_free(kn_tokens *tokens);

// Appends the tokens of `text`. Text must be valid UTF-8 but for bpe, which takes any bytes.
// Special tokens written out in the text (such as "<|endoftext|>") are ordinary text.
knnlm_status kn_tokenizer_encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out);

// The text of `ids`, NUL added; *text is released with free(). For bpe decode(encode(x)) = x; a space that
// encoding puts before the text is left out after the start token.
knnlm_status kn_tokenizer_decode(const kn_tokenizer *t, const int32_t *ids, size_t count, char **text,
                                 size_t *size);

knnlm_tokenizer_kind kn_tokenizer_kind_of(const kn_tokenizer *t);
const char *kn_tokenizer_kind_name(knnlm_tokenizer_kind kind); // "word", "byte-level BPE", "WordPiece", ...
// Whether tokens stand for words without the space before them: it is put in when they are joined.
bool kn_tokenizer_joins_with_spaces(const kn_tokenizer *t);
// Whether encoding puts a space before the text, as most SentencePiece vocabularies do.
bool kn_tokenizer_adds_space(const kn_tokenizer *t);
int32_t kn_tokenizer_size(const kn_tokenizer *t);
// The token that stands before every document (<|endoftext|>, <eos>, [CLS]); never -1.
int32_t kn_tokenizer_start(const kn_tokenizer *t);
// A token as it is stored in the vocabulary (byte-level BPE: in GPT-2's printable alphabet), owned by the
// tokenizer; NULL when there is none of this id.
const char *kn_tokenizer_piece(const kn_tokenizer *t, int32_t id);

// 128 bits in hexadecimal of all that decides how text becomes tokens.
void kn_tokenizer_fingerprint(const kn_tokenizer *t, char out[KN_FINGERPRINT]);

// Training from a text given whole; the result depends on the text alone, never on the threads.
// bpe: `size` tokens in all (256 bytes, merges, <|endoftext|> last), fewer when no further pair occurs twice.
// word: the `size` most frequent (0: all) with <unk> and <eos> always in, by frequency (ties by bytes).
knnlm_status kn_tokenizer_train(knnlm_tokenizer_kind kind, int32_t size, const char *text, size_t bytes,
                                const kn_progress *progress, kn_tokenizer **out);

// From a Hugging Face tokenizer.json (byte-level BPE), a BERT vocab.txt, or a GGUF's tokenizer.ggml.* keys;
// told apart by content.
knnlm_status kn_tokenizer_open(const char *path, kn_tokenizer **out);
knnlm_status kn_tokenizer_load_gguf(const kn_gguf *file, kn_tokenizer **out);
knnlm_status kn_tokenizer_save_gguf(const kn_tokenizer *t, kn_gguf_writer *file);
void kn_tokenizer_free(kn_tokenizer *t);

#endif
