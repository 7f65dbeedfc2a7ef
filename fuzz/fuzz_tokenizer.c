// Any bytes as a tokenizer's file (tokenizer.json, vocab.txt, GGUF): what opens encodes and decodes a part of
// them.
#include "memory_file.h"
#include "text/tokenizer.h"

enum { TEXT_MAX = 512 };

static const char sample[] = "The caf\xc3\xa9 is 42!";

static void check_tokens(const kn_tokenizer *t, const kn_tokens *tokens, size_t size) {
    for (size_t i = 0; i < tokens->count; i++) {
        if (tokens->ids[i] < 0 || tokens->ids[i] >= kn_tokenizer_size(t)) abort();
        if (tokens->offsets[i] > size || (i && tokens->offsets[i] < tokens->offsets[i - 1])) abort();
    }
}

static void encode_and_decode(const kn_tokenizer *t, const char *text, size_t size) {
    kn_tokens tokens = {.with_offsets = true};
    if (kn_tokenizer_encode(t, text, size, &tokens) == KNNLM_OK) {
        char *again;
        size_t again_size;
        check_tokens(t, &tokens, size);
        if (kn_tokenizer_decode(t, tokens.ids, tokens.count, &again, &again_size) == KNNLM_OK) {
            if (again[again_size]) abort();
            free(again);
        }
    }
    kn_tokens_free(&tokens);
}

static void use(const kn_tokenizer *t, const char *text, size_t size) {
    int32_t start = kn_tokenizer_start(t), last = kn_tokenizer_size(t) - 1;
    if (start < 0 || start > last || !kn_tokenizer_piece(t, last) || kn_tokenizer_piece(t, last + 1)) abort();
    encode_and_decode(t, text, size);
    encode_and_decode(t, sample, sizeof sample - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_tokenizer *t;
    memory_file file = memory_file_open(data, size);
    if (kn_tokenizer_open(file.path, &t) == KNNLM_OK) {
        use(t, (const char *)data, size < TEXT_MAX ? size : TEXT_MAX);
        kn_tokenizer_free(t);
    }
    memory_file_close(&file);
    return 0;
}
