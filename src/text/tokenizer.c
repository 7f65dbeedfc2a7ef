// What all tokenizers share: opening, encoding, decoding, fingerprints, lists of tokens.
#include "text/tokenizer.h"

#include "base/file.h"
#include "text/foreign.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { REPORT = 1 << 18 }; // tokens between two reports: a tenth of a second of encoding, more or less

// ---- lists of tokens

static knnlm_status report(kn_tokens *t) {
    t->reported = t->count;
    if (kn_progress_report(t->progress, "tokenizing", t->count, 0, "tokens")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped while tokenizing");
}

knnlm_status kn_tokens_reserve(kn_tokens *t, size_t more) {
    size_t needed;
    if (!kn_add(t->count, more, &needed))
        return kn_fail(KNNLM_ENOMEM, "out of memory: %zu more tokens", more);
    // A list that was emptied has fewer tokens than at the last report: the difference is large then, too.
    if (t->progress && t->count - t->reported >= REPORT) KN_TRY(report(t));
    KN_TRY(kn_grow(&t->ids, &t->capacity, needed, sizeof *t->ids));
    return t->with_offsets ? kn_grow(&t->offsets, &t->offset_capacity, needed, sizeof *t->offsets) : KNNLM_OK;
}

knnlm_status kn_tokens_push(kn_tokens *t, int32_t id, uint64_t offset) {
    KN_TRY(kn_tokens_reserve(t, 1));
    if (t->with_offsets) t->offsets[t->count] = offset;
    t->ids[t->count++] = id;
    return KNNLM_OK;
}

void kn_tokens_free(kn_tokens *t) {
    free(t->ids);
    free(t->offsets);
    *t = (kn_tokens){.with_offsets = t->with_offsets, .progress = t->progress};
}

// ---- what every kind does alike

kn_tokenizer *kn_tokenizer_make(const kn_tokenizer_class *class, size_t bytes, kn_vocab *vocab) {
    kn_tokenizer *t = kn_alloc(1, bytes);
    if (!t) return NULL;
    t->class = class;
    t->vocab = *vocab;
    *vocab = (kn_vocab){0};
    return t;
}

void kn_tokenizer_free(kn_tokenizer *t) {
    if (!t) return;
    if (t->class->release) t->class->release(t);
    kn_vocab_free(&t->vocab);
    free(t);
}

knnlm_tokenizer_kind kn_tokenizer_kind_of(const kn_tokenizer *t) {
    return t->class->kind;
}
const char *kn_tokenizer_kind_name(knnlm_tokenizer_kind kind) {
    static const char *const names[] = {"word", "byte-level BPE", "WordPiece", "SentencePiece",
                                        "llama.cpp's"};
    return names[kind];
}
bool kn_tokenizer_joins_with_spaces(const kn_tokenizer *t) {
    return t->class->kind == KNNLM_TOKENIZER_WORD || t->class->kind == KNNLM_TOKENIZER_WORDPIECE;
}
bool kn_tokenizer_adds_space(const kn_tokenizer *t) {
    const kn_foreign_parts *p = kn_foreign_parts_of(t);
    return p && p->adds_space;
}
int32_t kn_tokenizer_size(const kn_tokenizer *t) {
    return kn_vocab_count(&t->vocab);
}
int32_t kn_tokenizer_start(const kn_tokenizer *t) {
    return t->start;
}

const char *kn_tokenizer_piece(const kn_tokenizer *t, int32_t id) {
    return id >= 0 && id < kn_tokenizer_size(t) ? kn_strings_at(&t->vocab.strings, (size_t)id) : NULL;
}

knnlm_status kn_tokenizer_encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out) {
    return t->class->encode(t, text, size, out);
}

static knnlm_status decode_all(const kn_tokenizer *t, const int32_t *ids, size_t count, kn_buffer *out) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= kn_tokenizer_size(t))
            return kn_fail(KNNLM_EINVAL, "token %d is not in the vocabulary of %d", ids[i],
                           kn_tokenizer_size(t));
        KN_TRY(t->class->decode(t, ids, i, out));
    }
    return kn_buffer_put(out, "", 1);
}

knnlm_status kn_tokenizer_decode(const kn_tokenizer *t, const int32_t *ids, size_t count, char **text,
                                 size_t *size) {
    kn_buffer out = {0};
    knnlm_status status = decode_all(t, ids, count, &out);
    if (status != KNNLM_OK) {
        free(out.data);
        return status;
    }
    *text = out.data;
    *size = out.size - 1;
    return KNNLM_OK;
}

void kn_tokenizer_fingerprint(const kn_tokenizer *t, char out[KN_FINGERPRINT]) {
    const kn_strings *s = &t->vocab.strings;
    int32_t shape[3] = {(int32_t)t->class->kind, kn_tokenizer_size(t), t->start};
    size_t rules = 0;
    const void *extra = t->class->rules ? t->class->rules(t, &rules) : NULL;
    // A hash of hashes: each piece of it is one array.
    XXH128_hash_t parts[3] = {XXH3_128bits(shape, sizeof shape), XXH3_128bits(s->bytes, s->used),
                              XXH3_128bits(extra, rules)};
    XXH128_hash_t hash = XXH3_128bits(parts, sizeof parts);
    kn_fingerprint_print(hash.high64, hash.low64, out);
}

// ---- where tokenizers come from

knnlm_status kn_tokenizer_train(knnlm_tokenizer_kind kind, int32_t size, const char *text, size_t bytes,
                                const kn_progress *progress, kn_tokenizer **out) {
    switch (kind) {
    case KNNLM_TOKENIZER_WORD:
        return kn_word_train(size, text, bytes, progress, out);
    case KNNLM_TOKENIZER_BPE:
        return kn_bpe_train(size, text, bytes, progress, out);
    default:
        break;
    }
    return kn_fail(KNNLM_ENOTSUP,
                   "a wordpiece vocabulary is loaded (vocab.txt), not trained; train bpe or word");
}

static knnlm_status open_gguf(const char *path, kn_tokenizer **out) {
    kn_gguf *file;
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = kn_tokenizer_load_gguf(file, out);
    kn_gguf_close(file);
    return status;
}

knnlm_status kn_tokenizer_open(const char *path, kn_tokenizer **out) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    const char *data = (const char *)map.data;
    bool gguf = map.size >= 4 && memcmp(data, "GGUF", 4) == 0;
    knnlm_status status = KNNLM_OK;
    if (!gguf) {
        size_t first = 0;
        while (first < map.size && strchr(" \t\r\n", data[first])) first++;
        bool json = first < map.size && data[first] == '{';
        status = json ? kn_bpe_parse_json(data, map.size, out) : kn_wordpiece_parse(data, map.size, out);
        if (status != KNNLM_OK) status = kn_fail_in(status, path);
    }
    kn_map_close(&map);
    return gguf ? open_gguf(path, out) : status;
}

knnlm_status kn_tokenizer_save_gguf(const kn_tokenizer *t, kn_gguf_writer *file) {
    return t->class->save(t, file);
}
