// BERT's uncased WordPiece.
#include "expect.h"

#include "base/file.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "data.h"

#define GOLDEN KN_SOURCE_DIR "/tests/golden/"
#define BERT "tokenizers/bert-uncased-vocab.txt"

// ids:                      0      1      2      3   4      5        6    7  8  9  10   11
static const char small[] = "[UNK]\n[CLS]\n[SEP]\nun\n##able\n##affe\n##a\n,\n[\n]\nstrasse\na\n"
                            "\xE4\xB8\xAD\n" // 12: a Han character
                            "##b\n";         // 13

static kn_tokenizer *parse(const char *lines) {
    kn_tokenizer *t;
    assert_int_equal(kn_wordpiece_parse(lines, strlen(lines), &t), KNNLM_OK);
    return t;
}

static void expect(const char *text, const int32_t *ids, size_t count) {
    kn_tokenizer *t = parse(small);
    kn_tokens tokens = {.with_offsets = true};
    assert_int_equal(kn_tokenizer_encode(t, text, strlen(text), &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(tokens.ids[i], ids[i]);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
}
#define EXPECT(text, ...)                                                                                    \
    expect(text, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_longest_pieces_first(void **state) {
    (void)state;
    EXPECT("unaffeable", 3, 5, 4);
    EXPECT("una un", 3, 6, 3);
    EXPECT("unx", 0); // one that cannot be covered is unknown as a whole
    EXPECT("unx un", 0, 3);
}

static void test_case_and_accents(void **state) {
    (void)state;
    EXPECT("\xC3\x9AN", 3);             // U with acute, composed
    EXPECT("U\xCC\x81n\xCC\x83", 3);    // combining marks
    EXPECT("STRASSE \xC3\xA4", 10, 11); // a with diaeresis
    EXPECT("stra\xC3\x9F"
           "e",
           0); // sharp s does not decompose
}

static void test_marks_and_spaces(void **state) {
    (void)state;
    EXPECT("un,un", 3, 7, 3);
    EXPECT("[UNK]", 8, 0, 9); // written out it is text: "unk" is not covered
    EXPECT("un\xC2\xA0un\xE3\x80\x80\tun\r\n", 3, 3, 3);
    EXPECT("u\xE2\x80\x8Bn\x01\xEF\xBF\xBD", 3); // controls are dropped
    EXPECT("a\xE4\xB8\xAD"
           "a",
           11, 12, 11); // a Han character stands alone
    kn_tokenizer *t = parse(small);
    kn_tokens tokens = {0};
    assert_int_equal(kn_tokenizer_encode(t, " \n", 2, &tokens), KNNLM_OK);
    assert_int_equal(kn_tokenizer_encode(t, NULL, 0, &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, 0);
    kn_tokenizer_free(t);
}

static void test_long_words_are_unknown(void **state) {
    (void)state;
    char text[402] = "a";
    kn_tokenizer *t = parse(small);
    for (size_t size = 99; size <= 400; size += size < 102 ? 1 : 99) {
        kn_tokens tokens = {0};
        memset(text + 1, 'b', size - 1);
        assert_int_equal(kn_tokenizer_encode(t, text, size, &tokens), KNNLM_OK);
        assert_int_equal(tokens.count, size <= 100 ? size : 1);
        assert_int_equal(tokens.ids[0], size <= 100 ? 11 : 0);
        kn_tokens_free(&tokens);
    }
    kn_tokenizer_free(t);
}

static void test_offsets(void **state) {
    (void)state;
    static const char text[] = " \xC3\x9Anable, x un";
    static const uint64_t offsets[] = {1, 4, 8, 10, 12};
    kn_tokenizer *t = parse(small);
    kn_tokens tokens = {.with_offsets = true};
    assert_int_equal(kn_tokenizer_encode(t, text, strlen(text), &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, 5);
    assert_memory_equal(tokens.offsets, offsets, sizeof offsets);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
}

static void test_decode(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 3, 4, 7, 3}, bad[] = {99};
    kn_tokenizer *t = parse(small);
    char *text;
    size_t size;
    assert_int_equal(kn_tokenizer_start(t), 1);
    assert_int_equal(kn_tokenizer_kind_of(t), KNNLM_TOKENIZER_WORDPIECE);
    assert_int_equal(kn_tokenizer_decode(t, ids, 5, &text, &size), KNNLM_OK);
    assert_string_equal(text, "[CLS] unable , un");
    free(text);
    assert_int_equal(kn_tokenizer_decode(t, bad, 1, &text, &size), KNNLM_EINVAL);
    kn_tokenizer_free(t);
}

static void test_bad_vocabularies(void **state) {
    (void)state;
    kn_tokenizer *t;
    static const char *const bad[] = {
        "", "a\nb\n", "[UNK]\na\n", "[CLS]\na\n", "[UNK]\n[CLS]\na\na\n", "[UNK]\n[CLS]\n\xFF\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kn_wordpiece_parse(bad[i], strlen(bad[i]), &t), KNNLM_EDATA);
    t = parse("[UNK]\r\n[CLS]\r\na"); // lines of Windows, the last one without an end
    assert_string_equal(kn_tokenizer_piece(t, 2), "a");
    assert_string_equal(kn_tokenizer_piece(t, 1), "[CLS]");
    kn_tokenizer_free(t);
}

static void test_not_utf8(void **state) {
    (void)state;
    kn_tokenizer *t = parse(small);
    kn_tokens tokens = {0};
    assert_int_equal(kn_tokenizer_encode(t, "un\xE4\xB8", 4, &tokens), KNNLM_EDATA);
    assert_non_null(strstr(knnlm_message(), "not UTF-8 at byte 2"));
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
}

// ---- BERT. The vectors of some models begin with [CLS] and end with [SEP], which encoding does not add.

static void check_line(const kn_tokenizer *t, const kn_tokens *tokens, const char **line) {
    char *next;
    const char *end = strchr(*line, '\n');
    assert_non_null(end);
    bool framed = strtol(*line, &next, 10) == kn_tokenizer_start(t) && next <= end;
    if (framed) *line = next;
    for (size_t i = 0; i < tokens->count; i++) {
        assert_int_equal(strtol(*line, &next, 10), tokens->ids[i]);
        assert_true(next <= end);
        *line = next;
    }
    if (framed) {
        assert_string_equal(kn_tokenizer_piece(t, (int32_t)strtol(*line, &next, 10)), "[SEP]");
        *line = next;
    }
    assert_ptr_equal(*line, end);
    ++*line;
}

static void check_vectors(const kn_tokenizer *t, const char *inputs, const char *answers) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char *input, *output;
    size_t size, count = 0;
    assert_int_equal(kn_file_read(inputs, &input, &size), KNNLM_OK);
    assert_int_equal(kn_file_read(answers, &output, &size), KNNLM_OK);
    const char *text = input, *line = output;
    for (const char *end; (end = strstr(text, separator)); text = end + strlen(separator), count++) {
        kn_tokens tokens = {0};
        assert_int_equal(kn_tokenizer_encode(t, text, (size_t)(end - text), &tokens), KNNLM_OK);
        check_line(t, &tokens, &line);
        kn_tokens_free(&tokens);
    }
    assert_int_equal(*line, 0);
    assert_true(count > 40);
    free(input);
    free(output);
}

static void test_bert_vectors(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_open(GOLDEN "bert.txt", &t), KNNLM_OK);
    assert_string_equal(kn_tokenizer_piece(t, kn_tokenizer_start(t)), "[CLS]");
    check_vectors(t, GOLDEN "bert.inp", GOLDEN "bert.out");
    kn_tokenizer_free(t);
}

static void test_whole_bert_vectors(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_open(data_path(BERT), &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 30522);
    assert_int_equal(kn_tokenizer_start(t), 101);
    check_vectors(t, data_path("tokenizers/bert.inp"), data_path("tokenizers/bert.out"));
    kn_tokenizer_free(t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_pieces_first),
        cmocka_unit_test(test_case_and_accents),
        cmocka_unit_test(test_marks_and_spaces),
        cmocka_unit_test(test_long_words_are_unknown),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_bad_vocabularies),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_bert_vectors),
    };
    const struct CMUnitTest on_data[] = {cmocka_unit_test(test_whole_bert_vectors)};
    if (data_wanted(argc, argv)) {
        DATA_NEEDS(BERT, "tokenizers/bert.inp", "tokenizers/bert.out");
        return cmocka_run_group_tests(on_data, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
