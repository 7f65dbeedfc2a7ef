// A model's vocabulary as a tokenizer.
//
// llama.cpp gives tokens, not where they begin: that is found by laying the tokens' texts along the text.
#include "base/utf8.h"
#include "lm/llama/engine.h"
#include "text/tokenizer_kinds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct llama_tokenizer {
    kn_foreign foreign;
    const kn_llama_library *api;
    const struct llama_vocab *vocab;
} llama_tokenizer;

// ---------------------------------------------------------------- text to tokens

// SentencePiece writes spaces so, and takes one in the text for a space.
#define SPACE_SIGN "\xE2\x96\x81"

// How many bytes at the start of `text` the piece stands for; 0 when it is not there.
static size_t match(const char *text, size_t size, const char *piece, size_t n) {
    size_t at = 0, sign = strlen(SPACE_SIGN);
    for (size_t i = 0; i < n; i++) {
        if (at < size && text[at] == piece[i])
            at++;
        else if (piece[i] == ' ' && size - at >= sign && memcmp(text + at, SPACE_SIGN, sign) == 0)
            at += sign;
        else
            return 0;
    }
    return at;
}

// Where the piece begins: at `at`, or shortly after it when something was passed over that has no token of
// its own (a character that the vocabulary lacks). *taken 0: nowhere.
static size_t lay(const char *text, size_t size, size_t at, const char *piece, size_t n, size_t *taken) {
    enum { FAR = 64 };
    for (size_t p = at; n && p < size && p < at + FAR; p++) {
        *taken = match(text + p, size - p, piece, n);
        if (*taken) return p;
    }
    *taken = 0;
    return at;
}

static void find_offsets(const kn_foreign *t, const char *text, size_t size, const int32_t *ids, size_t count,
                         uint64_t *offsets) {
    size_t at = 0, taken;
    for (size_t i = 0; i < count; i++) {
        const char *piece = kn_strings_at(&t->texts, (size_t)ids[i]);
        size_t n = kn_strings_size(&t->texts, (size_t)ids[i]);
        bool added = i == 0 && t->adds_space && n && *piece == ' ';
        at = lay(text, size, at, piece + added, n - added, &taken);
        offsets[i] = at;
        at += taken;
    }
}

static knnlm_status encode(const kn_foreign *f, const char *text, size_t size, kn_tokens *out) {
    const llama_tokenizer *t = (const llama_tokenizer *)f;
    size_t valid = kn_utf8_valid(text, size);
    if (valid != size) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", valid);
    if (size > INT32_MAX / 2)
        return kn_fail(KNNLM_ENOTSUP, "a document of %zu bytes: llama.cpp takes a gigabyte at a time", size);
    if (size == 0) return KNNLM_OK;
    // Mostly a token is some letters; where it is not, llama.cpp says how many there are.
    int32_t count = -(int32_t)(size / 3 + 8);
    while (count < 0) {
        int32_t room = -count;
        KN_TRY(kn_tokens_reserve(out, (size_t)room));
        count =
            t->api->llama_tokenize(t->vocab, text, (int32_t)size, out->ids + out->count, room, false, false);
        if (count == INT32_MIN) return kn_fail(KNNLM_ENOTSUP, "llama.cpp cannot tokenize %zu bytes", size);
    }
    if (out->with_offsets)
        find_offsets(f, text, size, out->ids + out->count, (size_t)count, out->offsets + out->count);
    out->count += (size_t)count;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- making

static knnlm_status add_text(const kn_llama *m, int32_t id, kn_strings *texts) {
    char small[256], *text = small;
    int32_t n = m->api->llama_token_to_piece(m->vocab, id, small, sizeof small, 0, false);
    if (n < 0) {
        text = kn_alloc((size_t)-n, 1);
        if (!text) return KNNLM_ENOMEM;
        n = m->api->llama_token_to_piece(m->vocab, id, text, -n, 0, false);
    }
    knnlm_status status = kn_strings_add(texts, text, n > 0 ? (size_t)n : 0);
    if (text != small) free(text);
    return status;
}

static knnlm_status gather(const kn_llama *m, kn_strings *pieces, kn_strings *texts) {
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) {
        const char *piece = m->api->llama_vocab_get_text(m->vocab, id);
        KN_TRY(kn_strings_add(pieces, piece, strlen(piece)));
        KN_TRY(add_text(m, id, texts));
    }
    return KNNLM_OK;
}

// Scores, kinds of tokens, and every value that names the manner of splitting.
static knnlm_status hash_rules(const kn_llama *m, char out[KN_FINGERPRINT]) {
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre",
                                       "tokenizer.ggml.add_space_prefix",
                                       "tokenizer.ggml.remove_extra_whitespaces"};
    char value[128];
    XXH3_state_t *state = XXH3_createState();
    if (!state) return kn_fail(KNNLM_ENOMEM, "out of memory");
    XXH3_128bits_reset(state);
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) {
        float score = m->api->llama_vocab_get_score(m->vocab, id);
        int32_t kind = (int32_t)m->api->llama_vocab_get_attr(m->vocab, id);
        XXH3_128bits_update(state, &score, sizeof score);
        XXH3_128bits_update(state, &kind, sizeof kind);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (m->api->llama_model_meta_val_str(m->model, keys[i], value, sizeof value) >= 0)
            XXH3_128bits_update(state, value, strlen(value) + 1);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    snprintf(out, KN_FINGERPRINT, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
    return KNNLM_OK;
}

static int32_t start_of(const kn_llama *m) {
    int32_t candidates[] = {m->api->llama_vocab_bos(m->vocab), m->api->llama_vocab_eos(m->vocab),
                            m->api->llama_vocab_eot(m->vocab)};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (candidates[i] >= 0 && candidates[i] < m->lm.info.vocabulary) return candidates[i];
    return 0;
}

static bool finds_space(const kn_llama *m, const kn_strings *texts) {
    int32_t ids[8];
    int32_t n = m->api->llama_tokenize(m->vocab, "a", 1, ids, 8, false, false);
    return n > 0 && *kn_strings_at(texts, (size_t)ids[0]) == ' ';
}

static knnlm_status make(const kn_llama *m, kn_tokenizer **out) {
    bool spm = m->api->llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_SPM;
    kn_strings pieces = {0}, texts = {0};
    kn_foreign *f = NULL;
    char rules[KN_FINGERPRINT];
    KN_TRY(hash_rules(m, rules));
    knnlm_status status = gather(m, &pieces, &texts);
    bool space = status == KNNLM_OK && finds_space(m, &texts);
    if (status == KNNLM_OK)
        status = kn_foreign_make(spm ? KN_TOKENIZER_SENTENCEPIECE : KN_TOKENIZER_FOREIGN,
                                 sizeof(llama_tokenizer), &pieces, &texts, &f);
    kn_strings_free(&pieces);
    kn_strings_free(&texts);
    KN_TRY(status);
    llama_tokenizer *t = (llama_tokenizer *)f;
    t->api = m->api;
    t->vocab = m->vocab;
    memcpy(f->rules, rules, sizeof rules);
    f->adds_space = space;
    f->base.start = start_of(m);
    f->encode = encode;
    *out = &f->base;
    return KNNLM_OK;
}

// A vocabulary that our own tokenizers know is theirs: they are faster, and a store made by either engine
// then serves both.
knnlm_status kn_llama_tokenizer(const kn_llama *m, const char *path, kn_tokenizer **out) {
    if (m->api->llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_NONE)
        return kn_fail(KNNLM_ENOTSUP, "%s: has no vocabulary", path);
    kn_gguf *file;
    const char *manner = "";
    bool found, ours = false;
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = kn_gguf_get_string(file, "tokenizer.ggml.pre", &manner, &found);
    if (status == KNNLM_OK && strcmp(manner, "gpt-2") == 0 && kn_tokenizer_load_gguf(file, out) == KNNLM_OK) {
        ours = kn_tokenizer_size(*out) == m->lm.info.vocabulary;
        if (!ours) kn_tokenizer_free(*out);
    }
    kn_gguf_close(file);
    KN_TRY(status);
    return ours ? KNNLM_OK : make(m, out);
}
