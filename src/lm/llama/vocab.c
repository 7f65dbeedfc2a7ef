// A model's vocabulary as a tokenizer.
//
// llama.cpp gives tokens, not where they begin: that is found by laying the tokens' texts along the text.
#include "lm/llama/engine.h"
#include "text/foreign.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define KEY(name) "tokenizer.ggml." name

typedef struct vocabulary {
    const kn_llama_library *api;
    const struct llama_vocab *vocab;
} vocabulary;

// ---------------------------------------------------------------- where tokens begin

// SentencePiece writes spaces so, and takes one in the text for a space.
#define SPACE_SIGN "\xE2\x96\x81"

typedef struct laying {
    const char *text;
    size_t size, at; // at: up to here tokens have been laid
    bool lost;       // the last token was not found in the text: something was passed over
} laying;

// How many bytes of the text from `at` on the piece stands for; 0 when it is not there.
static size_t match(const laying *l, size_t at, const char *piece, size_t n) {
    size_t begin = at, sign = strlen(SPACE_SIGN);
    for (size_t i = 0; i < n; i++) {
        if (at < l->size && l->text[at] == piece[i])
            at++;
        else if (piece[i] == ' ' && l->size - at >= sign && memcmp(l->text + at, SPACE_SIGN, sign) == 0)
            at += sign;
        else
            return 0;
    }
    return at - begin;
}

// The byte at which the piece begins. `added`: the space before it need not be in the text.
static size_t lay(laying *l, const char *piece, size_t n, bool added) {
    size_t taken = match(l, l->at, piece, n);
    if (!taken && added && n && *piece == ' ') {
        piece++;
        taken = match(l, l->at, piece, --n);
    }
    // A character that the vocabulary lacks has no text of its own: the next token is further on.
    for (size_t p = l->at + 1; l->lost && !taken && n && p < l->size; p++) {
        taken = match(l, p, piece, n);
        if (taken) l->at = p;
    }
    size_t begin = l->at;
    l->lost = n && !taken;
    l->at += taken;
    return begin;
}

// A space is put before the text, and again after each of the tokens that are cut out of it whole.
static bool cut_out(const vocabulary *v, int32_t id) {
    int kinds = LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_CONTROL;
    return (v->api->llama_vocab_get_attr(v->vocab, id) & kinds) != 0;
}

static knnlm_status put_tokens(const kn_foreign_parts *p, const vocabulary *v, const char *text, size_t size,
                               const int32_t *ids, size_t count, kn_tokens *out) {
    laying l = {.text = text, .size = size};
    for (size_t i = 0; i < count; i++) {
        const char *piece = kn_strings_at(&p->texts, (size_t)ids[i]);
        size_t n = kn_strings_size(&p->texts, (size_t)ids[i]), begin = 0;
        bool first = i == 0 && p->adds_space && n && *piece == ' '; // the space is surely the one put there
        if (out->with_offsets)
            begin = lay(&l, piece + first, n - first, p->adds_space && i > 0 && cut_out(v, ids[i - 1]));
        KN_TRY(kn_tokens_push(out, ids[i], begin));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- text to tokens

// llama.cpp holds some dozen bytes for each of the text, and its running out of memory ends the process.
static knnlm_status check_size(size_t size) {
    enum { BYTES_EACH = 64 };
    uint64_t memory = kn_memory_total();
    if (size <= INT32_MAX / 2 && (!memory || size < memory / BYTES_EACH)) return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP, "a document of %zu bytes is too long for llama.cpp's tokenizer: cut it",
                   size);
}

knnlm_status kn_llama_tokenize(const kn_llama_library *api, const struct llama_vocab *vocab, const char *text,
                               size_t size, bool control, int32_t **ids, size_t *count) {
    int32_t room = (int32_t)(size / 3 + 8), found = -1; // mostly a token is some letters
    size_t capacity = 0;
    *ids = NULL;
    knnlm_status status = check_size(size);
    while (status == KNNLM_OK && found < 0) {
        status = kn_grow(ids, &capacity, (size_t)room, sizeof **ids);
        if (status != KNNLM_OK) break;
        found = api->llama_tokenize(vocab, text, (int32_t)size, *ids, room, false, control);
        room = -found; // where it did not fit, llama.cpp says how many there are
        if (found == INT32_MIN) status = kn_fail(KNNLM_ENOTSUP, "llama.cpp cannot tokenize %zu bytes", size);
    }
    *count = found > 0 ? (size_t)found : 0;
    if (status == KNNLM_OK) return KNNLM_OK;
    free(*ids);
    *ids = NULL;
    return status;
}

static knnlm_status encode(const kn_tokenizer *t, void *context, const char *text, size_t size,
                           kn_tokens *out) {
    const vocabulary *v = context;
    int32_t *ids;
    size_t count;
    KN_TRY(kn_llama_tokenize(v->api, v->vocab, text, size, false, &ids, &count));
    knnlm_status status = put_tokens(kn_foreign_parts_of(t), v, text, size, ids, count, out);
    free(ids);
    return status;
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

// Without a token for every byte llama.cpp throws at the first character that it does not know.
static knnlm_status check_bytes(const kn_llama *m, const kn_strings *pieces) {
    bool has[256] = {false};
    for (size_t i = 0; i < pieces->count; i++) {
        const char *piece = kn_strings_at(pieces, i);
        unsigned byte;
        if (kn_strings_size(pieces, i) == 1) has[(unsigned char)*piece] = true;
        if (kn_strings_size(pieces, i) == 6 && sscanf(piece, "<0x%2X>", &byte) == 1) has[byte & 255] = true;
    }
    for (int byte = 0; byte < 256; byte++)
        if (!has[byte])
            return kn_fail(KNNLM_ENOTSUP,
                           "%s: its vocabulary has no token for byte %d, and llama.cpp needs one",
                           m->lm.info.path, byte);
    return KNNLM_OK;
}

static void hash_numbers(const kn_gguf *file, const char *key, XXH3_state_t *state) {
    size_t count;
    bool found;
    double value;
    int64_t whole;
    if (kn_gguf_get_array(file, key, &count, &found) != KNNLM_OK || !found) return;
    for (size_t i = 0; i < count; i++) {
        if (kn_gguf_array_f64(file, key, i, &value) == KNNLM_OK)
            XXH3_128bits_update(state, &value, sizeof value);
        else if (kn_gguf_array_i64(file, key, i, &whole) == KNNLM_OK)
            XXH3_128bits_update(state, &whole, sizeof whole);
    }
}

static void hash_strings(const kn_gguf *file, const char *key, XXH3_state_t *state) {
    size_t count, size;
    bool found;
    const char *data;
    if (kn_gguf_get_array(file, key, &count, &found) != KNNLM_OK || !found) return;
    for (size_t i = 0; i < count; i++)
        if (kn_gguf_array_string(file, key, i, &data, &size) == KNNLM_OK) {
            XXH3_128bits_update(state, data, size);
            XXH3_128bits_update(state, "", 1);
        }
}

// Of the file, not of what llama.cpp makes of it: that may differ between releases.
static knnlm_status hash_rules(const kn_gguf *file, char out[KN_FINGERPRINT]) {
    static const char *const strings[] = {KEY("model"), KEY("pre")};
    static const char *const flags[] = {KEY("add_space_prefix"), KEY("remove_extra_whitespaces")};
    XXH3_state_t *state = XXH3_createState();
    if (!state) return kn_fail(KNNLM_ENOMEM, "out of memory");
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        const char *value = "";
        bool found;
        if (kn_gguf_get_string(file, strings[i], &value, &found) == KNNLM_OK)
            XXH3_128bits_update(state, value, strlen(value) + 1);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool value = false, found = false;
        if (kn_gguf_get_bool(file, flags[i], &value, &found) == KNNLM_OK)
            XXH3_128bits_update(state, (const char[]){found, value}, 2);
    }
    hash_numbers(file, KEY("scores"), state);
    hash_numbers(file, KEY("token_type"), state);
    hash_strings(file, KEY("merges"), state);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    kn_fingerprint_print(hash.high64, hash.low64, out);
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

static knnlm_status gather(const kn_llama *m, const kn_gguf *file, kn_foreign_parts *p) {
    vocabulary *v = kn_alloc(1, sizeof *v);
    if (!v) return KNNLM_ENOMEM;
    *v = (vocabulary){m->api, m->vocab};
    p->context = v;
    p->encode = encode;
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) {
        const char *piece = m->api->llama_vocab_get_text(m->vocab, id);
        KN_TRY(kn_strings_add(&p->pieces, piece, strlen(piece)));
        KN_TRY(add_text(m, id, &p->texts));
    }
    if (p->kind == KNNLM_TOKENIZER_SENTENCEPIECE) KN_TRY(check_bytes(m, &p->pieces));
    p->start = start_of(m);
    p->adds_space = finds_space(m, &p->texts);
    return hash_rules(file, p->rules);
}

static knnlm_status make(const kn_llama *m, const kn_gguf *file, kn_tokenizer **out) {
    bool spm = m->api->llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_SPM;
    kn_foreign_parts parts = {.kind = spm ? KNNLM_TOKENIZER_SENTENCEPIECE : KNNLM_TOKENIZER_FOREIGN};
    knnlm_status status = gather(m, file, &parts);
    if (status == KNNLM_OK) return kn_foreign_make(&parts, out);
    kn_foreign_parts_free(&parts);
    return status;
}

// ---------------------------------------------------------------- ours or theirs

// Tokens that are found in a text before it is split are llama.cpp's alone.
static bool has_user_tokens(const kn_gguf *file) {
    enum { USER_DEFINED = 4 };
    size_t count;
    bool found;
    int64_t type;
    if (kn_gguf_get_array(file, KEY("token_type"), &count, &found) != KNNLM_OK || !found) return false;
    for (size_t i = 0; i < count; i++)
        if (kn_gguf_array_i64(file, KEY("token_type"), i, &type) == KNNLM_OK && type == USER_DEFINED)
            return true;
    return false;
}

static bool load_ours(const kn_llama *m, const kn_gguf *file, kn_tokenizer **out) {
    const char *manner = "";
    bool found;
    if (kn_gguf_get_string(file, KEY("pre"), &manner, &found) != KNNLM_OK || strcmp(manner, "gpt-2") != 0)
        return false;
    if (has_user_tokens(file) || kn_tokenizer_load_gguf(file, out) != KNNLM_OK) return false;
    if (kn_tokenizer_size(*out) == m->lm.info.vocabulary) return true;
    kn_tokenizer_free(*out);
    *out = NULL;
    return false;
}

// A vocabulary that our own tokenizers know is theirs: they are faster, and a store made by either engine
// then serves both.
knnlm_status kn_llama_tokenizer(const kn_llama *m, const char *path, kn_tokenizer **out) {
    kn_gguf *file;
    if (m->api->llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_NONE)
        return kn_fail(KNNLM_ENOTSUP, "%s: has no vocabulary", path);
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = load_ours(m, file, out) ? KNNLM_OK : make(m, file, out);
    kn_gguf_close(file);
    return status;
}
