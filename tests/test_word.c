// Words as WikiText counts them.
#include "expect.h"

#include "base/file.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "data.h"

#define WIKITEXT "data/wikitext-2/"

static kn_tokenizer *train(int32_t size, const char *text) {
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, size, text, strlen(text), NULL, &t), KNNLM_OK);
    return t;
}

static void expect_pieces(const kn_tokenizer *t, const char *const *pieces, int32_t count) {
    assert_int_equal(kn_tokenizer_size(t), count);
    for (int32_t i = 0; i < count; i++) assert_string_equal(kn_tokenizer_piece(t, i), pieces[i]);
}

static void test_vocabulary_by_frequency(void **state) {
    (void)state;
    static const char *const pieces[] = {"b", "<eos>", "a", "c", "<unk>"};
    kn_tokenizer *t = train(0, " b c b \n a b\t\n");
    expect_pieces(t, pieces, 5);
    assert_int_equal(kn_tokenizer_start(t), 1);
    assert_int_equal(kn_tokenizer_kind_of(t), KNNLM_TOKENIZER_WORD);
    kn_tokenizer_free(t);
}

static void test_size_keeps_unk_and_eos(void **state) {
    (void)state;
    static const char *const three[] = {"b", "<eos>", "<unk>"}, *const four[] = {"b", "<eos>", "a", "<unk>"};
    kn_tokenizer *t = train(3, "b c b\n a b\n");
    expect_pieces(t, three, 3);
    kn_tokenizer_free(t);
    t = train(3, "b c b a a b\n"); // "a" comes more often than both, and yet has no place
    expect_pieces(t, three, 3);
    kn_tokenizer_free(t);
    t = train(4, "b c b\n a b\n");
    expect_pieces(t, four, 4);
    kn_tokenizer_free(t);
}

static void test_encode(void **state) {
    (void)state;
    static const char text[] = "\n a b unseen \n\n <eos> c";
    static const int32_t ids[] = {1, 2, 0, 4, 1, 1, 4, 3};
    static const uint64_t offsets[] = {0, 2, 4, 6, 13, 14, 16, 22};
    kn_tokenizer *t = train(0, " b c b \n a b\t\n"); // b <eos> a c <unk>
    kn_tokens tokens = {.with_offsets = true};
    assert_int_equal(kn_tokenizer_encode(t, text, strlen(text), &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, 8);
    assert_memory_equal(tokens.ids, ids, sizeof ids);
    assert_memory_equal(tokens.offsets, offsets, sizeof offsets);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
}

static void test_decode(void **state) {
    (void)state;
    static const int32_t ids[] = {2, 0, 1, 1, 3, 4}, bad[] = {0, 5};
    char *text;
    size_t size;
    kn_tokenizer *t = train(0, " b c b \n a b\t\n");
    assert_int_equal(kn_tokenizer_decode(t, ids, 6, &text, &size), KNNLM_OK);
    assert_string_equal(text, "a b\n\nc <unk>");
    assert_int_equal(size, strlen(text));
    free(text);
    assert_int_equal(kn_tokenizer_decode(t, NULL, 0, &text, &size), KNNLM_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(kn_tokenizer_decode(t, bad, 2, &text, &size), KNNLM_EINVAL);
    kn_tokenizer_free(t);
}

static void test_eos_written_out_is_unknown(void **state) {
    (void)state;
    kn_tokenizer *t = train(0, "<eos> <eos> a\n");
    kn_tokens tokens = {0};
    assert_string_equal(kn_tokenizer_piece(t, 0), "<unk>"); // two of them
    assert_int_equal(kn_tokenizer_encode(t, "<eos>", 5, &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, 1);
    assert_int_equal(tokens.ids[0], 0);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    kn_tokenizer *t;
    kn_tokens tokens = {0};
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 2, "a", 1, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, -1, "a", 1, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, "", 0, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, "a\xFF", 2, NULL, &t), KNNLM_EDATA);
    t = train(0, "a\n");
    assert_int_equal(kn_tokenizer_encode(t, "a \xC3", 3, &tokens), KNNLM_EDATA);
    assert_non_null(strstr(knnlm_message(), "not UTF-8 at byte 2"));
    kn_tokenizer_free(t);
    kn_tokens_free(&tokens);
}

static void expect_count(const kn_tokenizer *t, const char *path, size_t count) {
    char *text;
    size_t size;
    kn_tokens tokens = {0};
    assert_int_equal(kn_file_read(path, &text, &size), KNNLM_OK);
    assert_int_equal(kn_tokenizer_encode(t, text, size, &tokens), KNNLM_OK);
    assert_int_equal(tokens.count, count);
    kn_tokens_free(&tokens);
    free(text);
}

static void test_wikitext_2(void **state) {
    (void)state;
    char *text;
    size_t size;
    kn_tokenizer *t;
    assert_int_equal(kn_file_read(data_path(WIKITEXT "train.txt"), &text, &size), KNNLM_OK);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, text, size, NULL, &t), KNNLM_OK);
    free(text);
    assert_int_equal(kn_tokenizer_size(t), 33278);
    expect_count(t, data_path(WIKITEXT "train.txt"), 2088628);
    expect_count(t, data_path(WIKITEXT "valid.txt"), 217646);
    expect_count(t, data_path(WIKITEXT "test.txt"), 245569);
    kn_tokenizer_free(t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary_by_frequency),
        cmocka_unit_test(test_size_keeps_unk_and_eos),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_eos_written_out_is_unknown),
        cmocka_unit_test(test_wrong_arguments),
    };
    const struct CMUnitTest on_data[] = {cmocka_unit_test(test_wikitext_2)};
    if (data_wanted(argc, argv)) {
        DATA_NEEDS(WIKITEXT "train.txt", WIKITEXT "valid.txt", WIKITEXT "test.txt");
        return cmocka_run_group_tests(on_data, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
