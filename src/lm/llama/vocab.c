// A model's vocabulary as a tokenizer.
//
// llama.cpp gives tokens, not where they begin: that is found by laying the tokens' texts along the text.
#include "base/utf8.h"
#include "lm/llama/engine.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct llama_tokenizer {
    kn_tokenizer base; // its vocabulary holds the pieces as they are in the file
    const kn_llama_library *api;
    const struct llama_vocab *vocab;
    kn_strings texts;    // what each token stands for
    bool adds_space;     // encoding puts a space before the text
    XXH128_hash_t rules; // of all that decides on tokens beside the pieces
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

static void find_offsets(const llama_tokenizer *t, const char *text, size_t size, const int32_t *ids,
                         size_t count, uint64_t *offsets) {
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

static knnlm_status encode(const kn_tokenizer *tokenizer, const char *text, size_t size, kn_tokens *out) {
    const llama_tokenizer *t = (const llama_tokenizer *)tokenizer;
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
        find_offsets(t, text, size, out->ids + out->count, (size_t)count, out->offsets + out->count);
    out->count += (size_t)count;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- tokens to text

static knnlm_status decode(const kn_tokenizer *tokenizer, const int32_t *ids, size_t index, kn_buffer *out) {
    const llama_tokenizer *t = (const llama_tokenizer *)tokenizer;
    const char *text = kn_strings_at(&t->texts, (size_t)ids[index]);
    size_t size = kn_strings_size(&t->texts, (size_t)ids[index]);
    bool drop = t->adds_space && index > 0 && ids[index - 1] == tokenizer->start && size && *text == ' ';
    return kn_buffer_put(out, text + drop, size - drop);
}

static knnlm_status save(const kn_tokenizer *t, kn_gguf_writer *file) {
    (void)t;
    (void)file;
    return kn_fail(KNNLM_ENOTSUP, "a tokenizer of llama.cpp's cannot be written");
}

static const void *rules(const kn_tokenizer *t, size_t *size) {
    const llama_tokenizer *l = (const llama_tokenizer *)t;
    *size = sizeof l->rules;
    return &l->rules;
}

static void release(kn_tokenizer *t) {
    kn_strings_free(&((llama_tokenizer *)t)->texts);
}

static const kn_tokenizer_class sentencepiece = {
    KN_TOKENIZER_SENTENCEPIECE, encode, decode, save, rules, release};
static const kn_tokenizer_class foreign = {KN_TOKENIZER_FOREIGN, encode, decode, save, rules, release};

// ---------------------------------------------------------------- making

static knnlm_status add_text(llama_tokenizer *t, int32_t id) {
    char small[256], *text = small;
    int32_t n = t->api->llama_token_to_piece(t->vocab, id, small, sizeof small, 0, false);
    if (n < 0) {
        text = kn_alloc((size_t)-n, 1);
        if (!text) return KNNLM_ENOMEM;
        n = t->api->llama_token_to_piece(t->vocab, id, text, -n, 0, false);
    }
    knnlm_status status = kn_strings_add(&t->texts, text, n > 0 ? (size_t)n : 0);
    if (text != small) free(text);
    return status;
}

static knnlm_status gather(const kn_llama *m, kn_vocab *pieces) {
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) {
        const char *piece = m->api->llama_vocab_get_text(m->vocab, id);
        KN_TRY(kn_strings_add(&pieces->strings, piece, strlen(piece)));
    }
    return KNNLM_OK;
}

// Scores, kinds of tokens, and every value that names the manner of splitting.
static void hash_rules(llama_tokenizer *t, const kn_llama *m, XXH3_state_t *state) {
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre",
                                       "tokenizer.ggml.add_space_prefix",
                                       "tokenizer.ggml.remove_extra_whitespaces"};
    char value[128];
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
    t->rules = XXH3_128bits_digest(state);
}

static int32_t start_of(const kn_llama *m) {
    int32_t candidates[] = {m->api->llama_vocab_bos(m->vocab), m->api->llama_vocab_eos(m->vocab),
                            m->api->llama_vocab_eot(m->vocab)};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (candidates[i] >= 0 && candidates[i] < m->lm.info.vocabulary) return candidates[i];
    return 0;
}

static bool finds_space(const llama_tokenizer *t) {
    int32_t ids[8];
    int32_t n = t->api->llama_tokenize(t->vocab, "a", 1, ids, 8, false, false);
    return n > 0 && *kn_strings_at(&t->texts, (size_t)ids[0]) == ' ';
}

static knnlm_status fill(llama_tokenizer *t, const kn_llama *m) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) return kn_fail(KNNLM_ENOMEM, "out of memory");
    hash_rules(t, m, state);
    XXH3_freeState(state);
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) KN_TRY(add_text(t, id));
    t->base.start = start_of(m);
    t->adds_space = finds_space(t);
    return KNNLM_OK;
}

static knnlm_status make(const kn_llama *m, kn_tokenizer **out) {
    bool spm = m->api->llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_SPM;
    kn_vocab pieces = {0};
    knnlm_status status = gather(m, &pieces);
    llama_tokenizer *t = NULL;
    if (status == KNNLM_OK) {
        t = (llama_tokenizer *)kn_tokenizer_make(spm ? &sentencepiece : &foreign, sizeof *t, &pieces);
        status = t ? KNNLM_OK : KNNLM_ENOMEM;
    }
    kn_vocab_free(&pieces);
    KN_TRY(status);
    t->api = m->api;
    t->vocab = m->vocab;
    status = fill(t, m);
    if (status == KNNLM_OK)
        *out = &t->base;
    else
        kn_tokenizer_free(&t->base);
    return status;
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
