// Tokenizers in files: tokenizer.json and GGUF, well formed and hostile.
#include "expect.h"

#include "text/bpe.h"
#include "text/bpe_alphabet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"

#define GPT2 "tokenizers/gpt2-tokenizer.json"
#define BERT "tokenizers/bert-uncased-vocab.txt"
#define ENDING "\"<|endoftext|>\": 258"

static char path[64];

static int make_path(void **state) {
    (void)state;
    strcpy(path, "/tmp/knnlm-tokenizer-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static const char text[] = "the other theatre, there: caf\xC3\xA9 \xF0\x9F\x98\x80 \xFF the end  of it\n\n";

static void expect_same(const kn_tokenizer *a, const kn_tokenizer *b) {
    kn_tokens x = {0}, y = {0};
    size_t size = strlen(text);
    if (kn_tokenizer_kind_of(a) != KNNLM_TOKENIZER_BPE) size = (size_t)(strchr(text, '\xFF') - text);
    assert_int_equal(kn_tokenizer_kind_of(a), kn_tokenizer_kind_of(b));
    assert_int_equal(kn_tokenizer_start(a), kn_tokenizer_start(b));
    assert_int_equal(kn_tokenizer_size(a), kn_tokenizer_size(b));
    for (int32_t i = 0; i < kn_tokenizer_size(a); i++)
        assert_string_equal(kn_tokenizer_piece(a, i), kn_tokenizer_piece(b, i));
    assert_int_equal(kn_tokenizer_encode(a, text, size, &x), KNNLM_OK);
    assert_int_equal(kn_tokenizer_encode(b, text, size, &y), KNNLM_OK);
    assert_int_equal(x.count, y.count);
    assert_memory_equal(x.ids, y.ids, x.count * sizeof *x.ids);
    kn_tokens_free(&x);
    kn_tokens_free(&y);
}

// ---- GGUF

static void check_saved(const kn_tokenizer *t) {
    kn_gguf_writer *writer;
    kn_tokenizer *again;
    assert_int_equal(kn_gguf_writer_open(path, &writer), KNNLM_OK);
    assert_int_equal(kn_tokenizer_save_gguf(t, writer), KNNLM_OK);
    assert_int_equal(kn_gguf_writer_commit(writer), KNNLM_OK);
    assert_int_equal(kn_tokenizer_open(path, &again), KNNLM_OK);
    expect_same(t, again);
    kn_tokenizer_free(again);
}

static void test_gguf_keeps_bpe(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 280, text, strlen(text), NULL, &t), KNNLM_OK);
    check_saved(t);
    kn_gguf *file;
    const char *value;
    int64_t id, type;
    bool found;
    assert_int_equal(kn_gguf_open(path, &file), KNNLM_OK);
    assert_int_equal(kn_gguf_get_string(file, "tokenizer.ggml.model", &value, &found), KNNLM_OK);
    assert_true(found);
    assert_string_equal(value, "gpt2");
    assert_int_equal(kn_gguf_get_string(file, "tokenizer.ggml.pre", &value, &found), KNNLM_OK);
    assert_string_equal(value, "gpt-2");
    assert_int_equal(kn_gguf_get_i64(file, "tokenizer.ggml.eos_token_id", &id, &found), KNNLM_OK);
    assert_int_equal(id, kn_tokenizer_start(t));
    assert_int_equal(kn_gguf_array_i64(file, "tokenizer.ggml.token_type", (size_t)id, &type), KNNLM_OK);
    assert_int_equal(type, KN_TOKEN_CONTROL);
    assert_int_equal(kn_gguf_array_i64(file, "tokenizer.ggml.token_type", 256, &type), KNNLM_OK);
    assert_int_equal(type, KN_TOKEN_NORMAL);
    kn_gguf_close(file);
    kn_tokenizer_free(t);
}

static void test_gguf_keeps_words(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, "the other a\0b theatre\n", 22, NULL, &t),
                     KNNLM_OK);
    check_saved(t);
    kn_tokenizer_free(t);
}

static void test_gguf_keeps_wordpiece(void **state) {
    (void)state;
    static const char lines[] =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n##atre\n##re\n,\n##\n#\n\xE2\x96\x81\n##the\nother\n";
    kn_tokenizer *t;
    assert_int_equal(kn_wordpiece_parse(lines, strlen(lines), &t), KNNLM_OK);
    check_saved(t);
    kn_tokenizer_free(t);
}

static void check_file_saved(const char *path) {
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_open(path, &t), KNNLM_OK);
    check_saved(t);
    kn_tokenizer_free(t);
}

static void test_gguf_keeps_real_tokenizers(void **state) {
    (void)state;
    check_file_saved(KN_SOURCE_DIR "/tests/golden/gpt2.json");
    check_file_saved(KN_SOURCE_DIR "/tests/golden/bert.txt");
}

static void test_gguf_keeps_whole_tokenizers(void **state) {
    (void)state;
    check_file_saved(data_path(GPT2));
    check_file_saved(data_path(BERT));
}

typedef struct keys { // of a hostile GGUF; NULL or 0 leaves a key out
    const char *model, *pre;
    size_t extra; // tokens after the 256 bytes
    const char *pieces[4];
    size_t types;
    int32_t control; // the one token whose type is control
    bool has_merges;
    size_t merge_count;
    const char *merges[4];
    int64_t start; // -1: none
} keys;

static const keys good = {.model = "gpt2",
                          .extra = 3,
                          .pieces = {"th", "the", "<|endoftext|>"},
                          .types = 259,
                          .control = 258,
                          .has_merges = true,
                          .merge_count = 2,
                          .merges = {"t h", "th e"},
                          .start = 258};

static void put_tokens(kn_gguf_writer *w, const keys *k) {
    const char *pieces[260];
    char bytes[256][4] = {{0}};
    int32_t types[300];
    for (int n = 0; n < 256; n++) {
        kn_alphabet_encode(kn_alphabet_byte(n), bytes[n]);
        pieces[n] = bytes[n];
    }
    for (size_t i = 0; i < k->extra; i++) pieces[256 + i] = k->pieces[i];
    assert_int_equal(kn_gguf_put_strings(w, "tokenizer.ggml.tokens", pieces, NULL, 256 + k->extra), KNNLM_OK);
    for (int32_t i = 0; i < 300; i++) types[i] = i == k->control ? KN_TOKEN_CONTROL : KN_TOKEN_NORMAL;
    if (k->types)
        assert_int_equal(kn_gguf_put_i32s(w, "tokenizer.ggml.token_type", types, k->types), KNNLM_OK);
}

static knnlm_status open_with(keys k, kn_tokenizer **out) {
    kn_gguf_writer *w;
    assert_int_equal(kn_gguf_writer_open(path, &w), KNNLM_OK);
    if (k.model) assert_int_equal(kn_gguf_put_string(w, "tokenizer.ggml.model", k.model), KNNLM_OK);
    if (k.pre) assert_int_equal(kn_gguf_put_string(w, "tokenizer.ggml.pre", k.pre), KNNLM_OK);
    put_tokens(w, &k);
    if (k.has_merges)
        assert_int_equal(kn_gguf_put_strings(w, "tokenizer.ggml.merges", k.merges, NULL, k.merge_count),
                         KNNLM_OK);
    if (k.start >= 0)
        assert_int_equal(kn_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)k.start), KNNLM_OK);
    assert_int_equal(kn_gguf_writer_commit(w), KNNLM_OK);
    return kn_tokenizer_open(path, out);
}

static void expect_refused(keys k, knnlm_status status, const char *message) {
    kn_tokenizer *t;
    assert_int_equal(open_with(k, &t), status);
    assert_non_null(strstr(knnlm_message(), message));
    assert_non_null(strstr(knnlm_message(), path));
}

static void test_gguf_well_formed(void **state) {
    (void)state;
    kn_tokenizer *t;
    kn_tokens tokens = {0};
    assert_int_equal(open_with(good, &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_encode(t, "theth", 5, &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, 2);
    assert_int_equal(tokens.ids[0], 257);
    assert_int_equal(tokens.ids[1], 256);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
    keys k = good;
    k.types = 0;
    assert_int_equal(open_with(k, &t), KNNLM_OK);
    kn_tokenizer_free(t);
}

static void test_gguf_hostile(void **state) {
    (void)state;
    keys k = good;
    k.model = NULL;
    expect_refused(k, KNNLM_EDATA, "no tokenizer");
    k.model = "llama";
    expect_refused(k, KNNLM_ENOTSUP, "llama");
    k.model = "knnlm-word";
    expect_refused(k, KNNLM_EDATA, "<unk>");
    k.model = "bert";
    expect_refused(k, KNNLM_EDATA, "[UNK]");
    k = good, k.pre = "llama-bpe";
    expect_refused(k, KNNLM_ENOTSUP, "llama-bpe");
    k = good, k.has_merges = false;
    expect_refused(k, KNNLM_EDATA, "merges");
    k = good, k.merges[1] = "th x\xC3\xA9";
    expect_refused(k, KNNLM_EDATA, "not in the vocabulary");
    k = good, k.merges[1] = "th x";
    expect_refused(k, KNNLM_EDATA, "not in the vocabulary");
    k = good, k.merges[1] = "the";
    expect_refused(k, KNNLM_EDATA, "not two pieces");
    k = good, k.merges[1] = "";
    expect_refused(k, KNNLM_EDATA, "not two pieces");
    k = good, k.merges[1] = "t h";
    expect_refused(k, KNNLM_EDATA, "the same");
    k = good, k.pieces[1] = "th";
    expect_refused(k, KNNLM_EDATA, "twice");
    k = good, k.types = 258;
    expect_refused(k, KNNLM_EDATA, "token types");
    k = good, k.start = 259;
    expect_refused(k, KNNLM_EDATA, "start token");
    k = good, k.start = UINT32_MAX;
    expect_refused(k, KNNLM_EDATA, "start token");
    k = good, k.start = -1;
    expect_refused(k, KNNLM_EDATA, "bos_token_id");
    k = good, k.control = 220; // the space: as text its piece is another character
    expect_refused(k, KNNLM_EDATA, "byte 32");
}

static void test_gguf_without_tokens(void **state) {
    (void)state;
    kn_gguf_writer *w;
    kn_tokenizer *t;
    for (int empty = 0; empty < 2; empty++) {
        assert_int_equal(kn_gguf_writer_open(path, &w), KNNLM_OK);
        assert_int_equal(kn_gguf_put_string(w, "tokenizer.ggml.model", "gpt2"), KNNLM_OK);
        if (empty) assert_int_equal(kn_gguf_put_strings(w, "tokenizer.ggml.tokens", NULL, NULL, 0), KNNLM_OK);
        assert_int_equal(kn_gguf_writer_commit(w), KNNLM_OK);
        assert_int_equal(kn_tokenizer_open(path, &t), KNNLM_EDATA);
    }
}

// ---- tokenizer.json

// A whole tokenizer.json: the bytes of the alphabet, then `vocab`, and what else is given.
static char *make_json(const char *model_type, const char *pre, const char *vocab, const char *merges,
                       const char *added) {
    char *json = malloc(20000);
    size_t n =
        (size_t)sprintf(json,
                        "{\"added_tokens\": [%s], \"pre_tokenizer\": %s, \"model\": {\"type\": \"%s\", "
                        "\"vocab\": {",
                        added, pre, model_type);
    for (int i = 0; i < 256; i++) {
        char piece[4] = {0};
        kn_alphabet_encode(kn_alphabet_byte(i), piece);
        n += (size_t)sprintf(json + n, "\"%s%s\": %d, ", piece[0] == '"' || piece[0] == '\\' ? "\\" : "",
                             piece, i);
    }
    sprintf(json + n, "%s}, \"merges\": %s}}", vocab, merges);
    return json;
}

#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define PRE ", \"pre_tokenizer\": " BYTE_LEVEL "}"
#define VOCAB "\"th\": 256, \"the\": 257, " ENDING

static knnlm_status parse(char *json, kn_tokenizer **out) {
    knnlm_status status = kn_bpe_parse_json(json, strlen(json), out);
    free(json);
    return status;
}

static void test_json_merges_of_both_styles(void **state) {
    (void)state;
    kn_tokenizer *a, *b, *c;
    assert_int_equal(parse(make_json("BPE", BYTE_LEVEL, VOCAB, "[\"t h\", \"th e\"]", ""), &a), KNNLM_OK);
    assert_int_equal(parse(make_json("BPE", BYTE_LEVEL, VOCAB, "[[\"t\", \"h\"], [\"th\", \"e\"]]", ""), &b),
                     KNNLM_OK);
    // the last token given as an added one
    assert_int_equal(parse(make_json("BPE", BYTE_LEVEL, "\"th\": 256, \"the\": 257", "[\"t h\", \"th e\"]",
                                     "{\"id\": 258, \"content\": \"<|endoftext|>\", \"special\": true}"),
                           &c),
                     KNNLM_OK);
    assert_int_equal(kn_tokenizer_start(a), 258);
    expect_same(a, b);
    expect_same(a, c);
    kn_tokenizer_free(a);
    kn_tokenizer_free(b);
    kn_tokenizer_free(c);
}

static void test_json_added_tokens_are_literal(void **state) {
    (void)state;
    kn_tokenizer *t;
    char *decoded;
    size_t size;
    int32_t ids[] = {259, 260};
    assert_int_equal(parse(make_json("BPE", BYTE_LEVEL, VOCAB, "[]",
                                     "{\"id\": 259, \"content\": \"<a b>\", \"special\": true},"
                                     "{\"id\": 260, \"content\": \"  \", \"special\": false}"),
                           &t),
                     KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 261);
    assert_int_equal(kn_tokenizer_decode(t, ids, 2, &decoded, &size), KNNLM_OK);
    assert_string_equal(decoded, "<a b>  ");
    free(decoded);
    check_saved(t);
    kn_tokenizer_free(t);
}

static void expect_json_refused(char *json, knnlm_status status, const char *message) {
    kn_tokenizer *t;
    assert_int_equal(parse(json, &t), status);
    assert_non_null(strstr(knnlm_message(), message));
}

static void test_json_hostile(void **state) {
    (void)state;
    static const struct {
        const char *vocab, *merges, *added, *message;
    } bad[] = {
        {VOCAB, "null", "", "no merges"},
        {VOCAB, "[\"t x\"]", "", "not in the vocabulary"},
        {VOCAB, "[\"t nosuch\"]", "", "not in the vocabulary"},
        {VOCAB, "[\"th\"]", "", "not two pieces"},
        {VOCAB, "[[\"t\"]]", "", "neither"},
        {VOCAB, "[[\"t\", 5]]", "", "neither"},
        {VOCAB, "[7]", "", "neither"},
        {VOCAB, "[\"t h\", \"t h\"]", "", "the same"},
        {"\"th\": 256, \"the\": 256, " ENDING, "[]", "", "the same id"},
        {"\"th\": 256, \"the\": 900, " ENDING, "[]", "", "has id 900"},
        {"\"th\": 256, \"the\": -1, " ENDING, "[]", "", "has id -1"},
        {"\"th\": 256, \"the\": \"x\", " ENDING, "[]", "", "has no id"},
        {"\"th\": 256, \"th\": 257, " ENDING, "[]", "", "duplicate"},
        {"\"th\": 256", "[]", "", "no <|endoftext|>"},
        {VOCAB, "[]", "{\"id\": 7}", "no content"},
        {VOCAB, "[]", "{\"id\": 7, \"content\": \"x y\"}", "the same id"},
        {VOCAB, "[]", "{\"content\": \"x y\"}", "has no id"},
        {VOCAB, "[]", "{\"id\": 258, \"content\": \"th\"}", "the same id"},
        {VOCAB, "[]", "5", "no content"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_json_refused(make_json("BPE", BYTE_LEVEL, bad[i].vocab, bad[i].merges, bad[i].added),
                            KNNLM_EDATA, bad[i].message);
}

static void test_json_of_other_kinds(void **state) {
    (void)state;
    expect_json_refused(make_json("Unigram", BYTE_LEVEL, VOCAB, "[]", ""), KNNLM_ENOTSUP, "not BPE");
    expect_json_refused(make_json("BPE", "null", VOCAB, "[]", ""), KNNLM_ENOTSUP, "pre-tokenizer");
    expect_json_refused(
        make_json("BPE", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", VOCAB, "[]", ""),
        KNNLM_ENOTSUP, "add_prefix_space");
    expect_json_refused(make_json("BPE", "{\"type\": \"Split\"}", VOCAB, "[]", ""), KNNLM_ENOTSUP,
                        "pre-tokenizer");
}

static void test_json_malformed(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{",
        "{}",
        "{\"model\": 5}",
        "{\"model\": {}" PRE,
        "{\"model\": {\"vocab\": {}}" PRE,
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}" PRE,
        "{\"model\": {\"vocab\": {\"<|endoftext|>\": 0}, \"merges\": []}" PRE,
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kn_tokenizer *t;
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(bad[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(kn_tokenizer_open(path, &t), KNNLM_EDATA);
        assert_non_null(strstr(knnlm_message(), path));
    }
}

static void test_missing_file(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_open("/nonexistent/tokenizer.json", &t), KNNLM_EIO);
    assert_non_null(strstr(knnlm_message(), "/nonexistent/tokenizer.json"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_keeps_bpe),
        cmocka_unit_test(test_gguf_keeps_words),
        cmocka_unit_test(test_gguf_keeps_wordpiece),
        cmocka_unit_test(test_gguf_keeps_real_tokenizers),
        cmocka_unit_test(test_gguf_well_formed),
        cmocka_unit_test(test_gguf_hostile),
        cmocka_unit_test(test_gguf_without_tokens),
        cmocka_unit_test(test_json_merges_of_both_styles),
        cmocka_unit_test(test_json_added_tokens_are_literal),
        cmocka_unit_test(test_json_hostile),
        cmocka_unit_test(test_json_of_other_kinds),
        cmocka_unit_test(test_json_malformed),
        cmocka_unit_test(test_missing_file),
    };
    const struct CMUnitTest on_data[] = {cmocka_unit_test(test_gguf_keeps_whole_tokenizers)};
    if (data_wanted(argc, argv)) {
        DATA_NEEDS(GPT2, BERT);
        return cmocka_run_group_tests(on_data, make_path, remove_path);
    }
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
