// Tokenizers in GGUF files, under llama.cpp's keys:
//   1. tokenizer.ggml.model: "gpt2" (byte-level BPE), "bert" (WordPiece); ours alone: "knnlm-word" (words),
//      "knnlm-sentencepiece" and "knnlm-foreign" (another model's, for turning tokens into text)
//   2. tokenizer.ggml.pre: "gpt-2" for BPE: the pre-tokenizer
//   3. tokenizer.ggml.tokens: BPE: pieces in GPT-2's printable alphabet; WordPiece: as llama.cpp wants them:
//      "##x" written "x" and "x" written "\u2581x", but for control tokens; words as they are
//   4. tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control
//   5. tokenizer.ggml.merges: BPE: "left right", by rank
//   6. tokenizer.ggml.{bos,eos}_token_id: the start token
//   7. tokenizer.knnlm.{texts,adds_space,rules}, of another model's: what each token stands for, whether a
//      space is put before texts, a hash of its rules
#include "text/bpe.h"
#include "text/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
#define WORD_START "\xE2\x96\x81"

// ---- saving

static knnlm_status put_pieces(kn_gguf_writer *file, const char *key, const kn_strings *pieces) {
    const char **values = kn_alloc(pieces->count, sizeof *values);
    size_t *sizes = kn_alloc(pieces->count, sizeof *sizes);
    knnlm_status status = values && sizes ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; status == KNNLM_OK && i < pieces->count; i++) {
        values[i] = kn_strings_at(pieces, i);
        sizes[i] = kn_strings_size(pieces, i);
    }
    if (status == KNNLM_OK) status = kn_gguf_put_strings(file, key, values, sizes, pieces->count);
    free(values);
    free(sizes);
    return status;
}

static knnlm_status put_start(kn_gguf_writer *file, int32_t start) {
    KN_TRY(kn_gguf_put_u32(file, KEY("bos_token_id"), (uint32_t)start));
    return kn_gguf_put_u32(file, KEY("eos_token_id"), (uint32_t)start);
}

static knnlm_status merge_lines(const kn_bpe *b, kn_strings *lines) {
    const kn_strings *pieces = &b->base.vocab.strings;
    kn_buffer line = {0};
    knnlm_status status = KNNLM_OK;
    for (size_t rank = 0; status == KNNLM_OK && rank < b->merge_count; rank++) {
        size_t left = (size_t)b->merges[rank][0], right = (size_t)b->merges[rank][1];
        line.size = 0;
        status = kn_buffer_put(&line, kn_strings_at(pieces, left), kn_strings_size(pieces, left));
        if (status == KNNLM_OK) status = kn_buffer_put(&line, " ", 1);
        if (status == KNNLM_OK)
            status = kn_buffer_put(&line, kn_strings_at(pieces, right), kn_strings_size(pieces, right));
        if (status == KNNLM_OK) status = kn_strings_add(lines, line.data, line.size);
    }
    free(line.data);
    return status;
}

knnlm_status kn_bpe_save(const kn_tokenizer *t, kn_gguf_writer *file) {
    const kn_bpe *b = (const kn_bpe *)t;
    kn_strings lines = {0};
    KN_TRY(kn_gguf_put_string(file, KEY("model"), "gpt2"));
    KN_TRY(kn_gguf_put_string(file, KEY("pre"), "gpt-2"));
    KN_TRY(put_pieces(file, KEY("tokens"), &t->vocab.strings));
    KN_TRY(kn_gguf_put_i32s(file, KEY("token_type"), b->types, t->vocab.strings.count));
    knnlm_status status = merge_lines(b, &lines);
    if (status == KNNLM_OK) status = put_pieces(file, KEY("merges"), &lines);
    kn_strings_free(&lines);
    KN_TRY(status);
    return put_start(file, t->start);
}

knnlm_status kn_word_save(const kn_tokenizer *t, kn_gguf_writer *file) {
    KN_TRY(kn_gguf_put_string(file, KEY("model"), "knnlm-word"));
    KN_TRY(put_pieces(file, KEY("tokens"), &t->vocab.strings));
    return put_start(file, t->start);
}

static bool is_control(const char *piece) {
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(piece, names[i]) == 0) return true;
    return false;
}

static knnlm_status put_marked(kn_strings *out, const char *mark, const char *piece, size_t size) {
    kn_buffer joined = {0};
    knnlm_status status = kn_buffer_put(&joined, mark, strlen(mark));
    if (status == KNNLM_OK) status = kn_buffer_put(&joined, piece, size);
    if (status == KNNLM_OK) status = kn_strings_add(out, joined.data, joined.size);
    free(joined.data);
    return status;
}

static knnlm_status mark_pieces(const kn_strings *pieces, kn_strings *marked, int32_t *types) {
    for (size_t i = 0; i < pieces->count; i++) {
        const char *piece = kn_strings_at(pieces, i);
        size_t size = kn_strings_size(pieces, i);
        types[i] = is_control(piece) ? KN_TOKEN_CONTROL : KN_TOKEN_NORMAL;
        if (types[i] == KN_TOKEN_CONTROL)
            KN_TRY(kn_strings_add(marked, piece, size));
        else if (size > 2 && memcmp(piece, "##", 2) == 0)
            KN_TRY(kn_strings_add(marked, piece + 2, size - 2));
        else
            KN_TRY(put_marked(marked, WORD_START, piece, size));
    }
    return KNNLM_OK;
}

static knnlm_status put_special(const kn_tokenizer *t, kn_gguf_writer *file, const char *key,
                                const char *piece) {
    int32_t id = kn_vocab_find(&t->vocab, piece, strlen(piece));
    return id < 0 ? KNNLM_OK : kn_gguf_put_u32(file, key, (uint32_t)id);
}

knnlm_status kn_wordpiece_save(const kn_tokenizer *t, kn_gguf_writer *file) {
    kn_strings marked = {0};
    KN_TRY(kn_gguf_put_string(file, KEY("model"), "bert"));
    int32_t *types = kn_alloc(t->vocab.strings.count, sizeof *types);
    knnlm_status status = types ? mark_pieces(&t->vocab.strings, &marked, types) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = put_pieces(file, KEY("tokens"), &marked);
    if (status == KNNLM_OK) status = kn_gguf_put_i32s(file, KEY("token_type"), types, t->vocab.strings.count);
    kn_strings_free(&marked);
    free(types);
    KN_TRY(status);
    KN_TRY(put_special(t, file, KEY("bos_token_id"), "[CLS]"));
    KN_TRY(put_special(t, file, KEY("eos_token_id"), "[SEP]"));
    KN_TRY(put_special(t, file, KEY("unknown_token_id"), "[UNK]"));
    KN_TRY(put_special(t, file, KEY("seperator_token_id"), "[SEP]")); // llama.cpp's spelling
    return put_special(t, file, KEY("padding_token_id"), "[PAD]");
}

#define OWN_KEY(name) "tokenizer.knnlm." name
#define SENTENCEPIECE "knnlm-sentencepiece"
#define FOREIGN "knnlm-foreign"

knnlm_status kn_foreign_save(const kn_tokenizer *t, kn_gguf_writer *file) {
    const kn_foreign_parts *p = kn_foreign_parts_of(t);
    KN_TRY(kn_gguf_put_string(file, KEY("model"),
                              p->kind == KNNLM_TOKENIZER_SENTENCEPIECE ? SENTENCEPIECE : FOREIGN));
    KN_TRY(put_pieces(file, KEY("tokens"), &t->vocab.strings));
    KN_TRY(put_pieces(file, OWN_KEY("texts"), &p->texts));
    KN_TRY(kn_gguf_put_bool(file, OWN_KEY("adds_space"), p->adds_space));
    KN_TRY(kn_gguf_put_string(file, OWN_KEY("rules"), p->rules));
    return put_start(file, t->start);
}

// ---- loading

// Names the file in messages of those who do not know it.
static knnlm_status in_file(const kn_gguf *file, knnlm_status status) {
    return status == KNNLM_OK ? KNNLM_OK : kn_fail_in(status, kn_gguf_path(file));
}

static knnlm_status need_array(const kn_gguf *file, const char *key, size_t *count) {
    bool found;
    KN_TRY(kn_gguf_get_array(file, key, count, &found));
    return found ? KNNLM_OK : kn_fail(KNNLM_EDATA, "%s: no %s", kn_gguf_path(file), key);
}

static knnlm_status token_count(const kn_gguf *file, size_t *count) {
    KN_TRY(need_array(file, KEY("tokens"), count));
    if (*count == 0 || *count > INT32_MAX)
        return kn_fail(KNNLM_EDATA, "%s: a vocabulary of %zu tokens", kn_gguf_path(file), *count);
    return KNNLM_OK;
}

// The types of all tokens; normal where the file has none.
static knnlm_status load_types(const kn_gguf *file, size_t count, int32_t *types) {
    size_t typed;
    bool found;
    KN_TRY(kn_gguf_get_array(file, KEY("token_type"), &typed, &found));
    if (found && typed != count)
        return kn_fail(KNNLM_EDATA, "%s: %zu tokens but %zu token types", kn_gguf_path(file), count, typed);
    for (size_t i = 0; i < count; i++) {
        int64_t type = KN_TOKEN_NORMAL;
        if (found) KN_TRY(kn_gguf_array_i64(file, KEY("token_type"), i, &type));
        types[i] = type >= 0 && type <= INT32_MAX ? (int32_t)type : KN_TOKEN_NORMAL;
    }
    return KNNLM_OK;
}

static knnlm_status load_start(const kn_gguf *file, size_t count, int32_t *start) {
    int64_t id;
    bool found;
    KN_TRY(kn_gguf_get_i64(file, KEY("bos_token_id"), &id, &found));
    if (!found) KN_TRY(kn_gguf_get_i64(file, KEY("eos_token_id"), &id, &found));
    if (!found) return kn_fail(KNNLM_EDATA, "%s: no " KEY("bos_token_id"), kn_gguf_path(file));
    if (id < 0 || (uint64_t)id >= count)
        return kn_fail(KNNLM_EDATA, "%s: start token %lld is not in the vocabulary of %zu",
                       kn_gguf_path(file), (long long)id, count);
    *start = (int32_t)id;
    return KNNLM_OK;
}

// Receives one token of a file.
typedef knnlm_status take_token(void *into, const char *piece, size_t size, int32_t type);

static knnlm_status load_tokens(const kn_gguf *file, size_t count, take_token *take, void *into) {
    int32_t *types = kn_alloc(count, sizeof *types);
    knnlm_status status = types ? load_types(file, count, types) : KNNLM_ENOMEM;
    for (size_t i = 0; status == KNNLM_OK && i < count; i++) {
        const char *piece;
        size_t size;
        status = kn_gguf_array_string(file, KEY("tokens"), i, &piece, &size);
        if (status == KNNLM_OK) status = in_file(file, take(into, piece, size, types[i]));
    }
    free(types);
    return status;
}

static knnlm_status take_bpe_token(void *into, const char *piece, size_t size, int32_t type) {
    return kn_bpe_parts_token(into, piece, size, type);
}

static knnlm_status load_merges(const kn_gguf *file, kn_bpe_parts *parts) {
    size_t count;
    KN_TRY(need_array(file, KEY("merges"), &count));
    for (size_t i = 0; i < count; i++) {
        const char *line;
        size_t size;
        KN_TRY(kn_gguf_array_string(file, KEY("merges"), i, &line, &size));
        KN_TRY(in_file(file, kn_bpe_parts_merge_line(parts, line, size)));
    }
    return KNNLM_OK;
}

// These of llama.cpp's names all mean GPT-2's pattern.
static knnlm_status check_pre(const kn_gguf *file) {
    static const char *const same[] = {"gpt-2", "phi-2", "mpt", "olmo", "jais"};
    const char *pre;
    bool found;
    KN_TRY(kn_gguf_get_string(file, KEY("pre"), &pre, &found));
    for (size_t i = 0; found && i < sizeof same / sizeof *same; i++)
        if (strcmp(pre, same[i]) == 0) return KNNLM_OK;
    return found ? kn_fail(KNNLM_ENOTSUP, "%s: pre-tokenizer \"%s\" is not GPT-2's", kn_gguf_path(file), pre)
                 : KNNLM_OK;
}

static knnlm_status load_bpe(const kn_gguf *file, kn_tokenizer **out) {
    kn_bpe_parts parts = {0};
    size_t count;
    KN_TRY(check_pre(file));
    KN_TRY(token_count(file, &count));
    KN_TRY(load_start(file, count, &parts.start));
    knnlm_status status = load_tokens(file, count, take_bpe_token, &parts);
    if (status == KNNLM_OK) status = load_merges(file, &parts);
    if (status == KNNLM_OK) return in_file(file, kn_bpe_make(&parts, out));
    kn_bpe_parts_free(&parts);
    return status;
}

static knnlm_status load_words(const kn_gguf *file, size_t count, kn_vocab *vocab) {
    for (size_t i = 0; i < count; i++) {
        const char *piece;
        size_t size;
        KN_TRY(kn_gguf_array_string(file, KEY("tokens"), i, &piece, &size));
        KN_TRY(in_file(file, kn_vocab_add(vocab, piece, size)));
    }
    return KNNLM_OK;
}

static knnlm_status load_word(const kn_gguf *file, kn_tokenizer **out) {
    kn_vocab vocab = {0};
    size_t count;
    KN_TRY(token_count(file, &count));
    knnlm_status status = load_words(file, count, &vocab);
    if (status == KNNLM_OK) return in_file(file, kn_word_make(&vocab, out));
    kn_vocab_free(&vocab);
    return status;
}

static knnlm_status unmark_piece(void *vocab, const char *piece, size_t size, int32_t type) {
    size_t mark = strlen(WORD_START);
    if (type == KN_TOKEN_CONTROL || type == KN_TOKEN_UNKNOWN) return kn_vocab_add(vocab, piece, size);
    if (size >= mark && memcmp(piece, WORD_START, mark) == 0)
        return kn_vocab_add(vocab, piece + mark, size - mark);
    kn_strings joined = {0};
    knnlm_status status = put_marked(&joined, "##", piece, size);
    if (status == KNNLM_OK)
        status = kn_vocab_add(vocab, kn_strings_at(&joined, 0), kn_strings_size(&joined, 0));
    kn_strings_free(&joined);
    return status;
}

static knnlm_status load_wordpiece(const kn_gguf *file, kn_tokenizer **out) {
    kn_vocab vocab = {0};
    size_t count;
    KN_TRY(token_count(file, &count));
    knnlm_status status = load_tokens(file, count, unmark_piece, &vocab);
    if (status == KNNLM_OK) return in_file(file, kn_wordpiece_make(&vocab, out));
    kn_vocab_free(&vocab);
    return status;
}

static knnlm_status load_strings(const kn_gguf *file, const char *key, size_t count, kn_strings *out) {
    size_t found;
    KN_TRY(need_array(file, key, &found));
    if (found != count)
        return kn_fail(KNNLM_EDATA, "%s: %zu tokens but %zu %s", kn_gguf_path(file), count, found, key);
    for (size_t i = 0; i < count; i++) {
        const char *data;
        size_t size;
        KN_TRY(kn_gguf_array_string(file, key, i, &data, &size));
        KN_TRY(kn_strings_add(out, data, size));
    }
    return KNNLM_OK;
}

static knnlm_status read_foreign(const kn_gguf *file, kn_foreign_parts *p) {
    const char *rules = "";
    size_t count;
    bool found;
    KN_TRY(token_count(file, &count));
    KN_TRY(load_start(file, count, &p->start));
    KN_TRY(kn_gguf_get_bool(file, OWN_KEY("adds_space"), &p->adds_space, &found));
    KN_TRY(kn_gguf_get_string(file, OWN_KEY("rules"), &rules, &found));
    snprintf(p->rules, sizeof p->rules, "%s", rules);
    KN_TRY(load_strings(file, KEY("tokens"), count, &p->pieces));
    return load_strings(file, OWN_KEY("texts"), count, &p->texts);
}

static knnlm_status load_foreign(const kn_gguf *file, knnlm_tokenizer_kind kind, kn_tokenizer **out) {
    kn_foreign_parts parts = {.kind = kind};
    knnlm_status status = read_foreign(file, &parts);
    if (status == KNNLM_OK) return kn_foreign_make(&parts, out);
    kn_foreign_parts_free(&parts);
    return status;
}

static knnlm_status load(const kn_gguf *file, const char *model, kn_tokenizer **out) {
    if (strcmp(model, "gpt2") == 0) return load_bpe(file, out);
    if (strcmp(model, "knnlm-word") == 0) return load_word(file, out);
    if (strcmp(model, "bert") == 0) return load_wordpiece(file, out);
    if (strcmp(model, SENTENCEPIECE) == 0) return load_foreign(file, KNNLM_TOKENIZER_SENTENCEPIECE, out);
    if (strcmp(model, FOREIGN) == 0) return load_foreign(file, KNNLM_TOKENIZER_FOREIGN, out);
    return kn_fail(KNNLM_ENOTSUP, "%s: tokenizer \"%s\" is not one of gpt2, bert and those of knnlm",
                   kn_gguf_path(file), model);
}

knnlm_status kn_tokenizer_load_gguf(const kn_gguf *file, kn_tokenizer **out) {
    const char *model;
    bool found;
    KN_TRY(kn_gguf_get_string(file, KEY("model"), &model, &found));
    if (!found) return kn_fail(KNNLM_EDATA, "%s: no tokenizer in this file", kn_gguf_path(file));
    return load(file, model, out);
}
