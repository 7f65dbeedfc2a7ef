// Byte-level BPE: encoding and decoding, against GPT-2's vectors and against the plain definition.
#include "expect.h"

#include "base/file.h"
#include "base/random.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/bpe_alphabet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"

#define GOLDEN KN_SOURCE_DIR "/tests/golden/"
#define WIKI "data/wiki/valid.txt"
#define GPT2 "tokenizers/gpt2-tokenizer.json"

static const char sample[] =
    "The quick brown fox jumps over the lazy dog. The dog's tail wasn't there; we'll see, they've said.\n"
    "In 1984 and 2001 there were 33 foxes, 12 dogs and \xE2\x80\x9Cno\xE2\x80\x9D caf\xC3\xA9s... "
    "  the  other   brown dogs\t\tran \n\n there then.\r\n"
    "The other theory: that the brown fox and the lazy dog rather gather together in the other weather.\n";

static kn_tokenizer *trained; // on the sample

static int train_sample(void **state) {
    (void)state;
    return kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 330, sample, strlen(sample), NULL, &trained);
}

static int free_sample(void **state) {
    (void)state;
    kn_tokenizer_free(trained);
    return 0;
}

static kn_tokenizer *open_file(const char *path) {
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_open(path, &t), KNNLM_OK);
    return t;
}

static kn_tokens encode(const kn_tokenizer *t, const char *text, size_t size) {
    kn_tokens tokens = {.with_offsets = true};
    assert_int_equal(kn_tokenizer_encode(t, text, size, &tokens), KNNLM_OK);
    return tokens;
}

// ---- the plain definition: the pattern's words, in each the best pair merged until there is none

static void encode_plainly(const kn_bpe *b, const char *word, size_t size, kn_tokens *out) {
    size_t first = out->count;
    for (size_t i = 0; i < size; i++)
        assert_int_equal(kn_tokens_push(out, b->byte_ids[(uint8_t)word[i]], 0), KNNLM_OK);
    for (;;) {
        const kn_bpe_merge *best = NULL;
        size_t where = 0;
        for (size_t i = first; i + 1 < out->count; i++) {
            const kn_bpe_merge *m = kn_bpe_find(&b->table, kn_bpe_pair(out->ids[i], out->ids[i + 1]));
            if (m->pair == KN_BPE_NO_PAIR || (best && m->rank >= best->rank)) continue;
            best = m;
            where = i;
        }
        if (!best) return;
        out->ids[where] = best->id;
        memmove(out->ids + where + 1, out->ids + where + 2, (out->count - where - 2) * sizeof *out->ids);
        out->count--;
    }
}

static void check_plainly(const kn_tokenizer *t, const char *text, size_t size) {
    kn_splitter *splitter;
    kn_tokens plain = {0}, tokens = encode(t, text, size);
    assert_int_equal(kn_splitter_open(&splitter), KNNLM_OK);
    for (size_t from = 0, to; from < size; from = to) {
        assert_int_equal(kn_split_pattern(splitter, text, size, from, &to), KNNLM_OK);
        encode_plainly((const kn_bpe *)t, text + from, to - from, &plain);
    }
    assert_int_equal(tokens.count, plain.count);
    if (plain.count) assert_memory_equal(tokens.ids, plain.ids, plain.count * sizeof *plain.ids);
    kn_splitter_close(splitter);
    kn_tokens_free(&plain);
    kn_tokens_free(&tokens);
}

// Encodes and decodes; each token's offset is where its bytes begin.
static void check_round_trip(const kn_tokenizer *t, const char *text, size_t size) {
    char *again;
    size_t again_size;
    uint64_t offset = 0;
    kn_tokens tokens = encode(t, text, size);
    assert_int_equal(kn_tokenizer_decode(t, tokens.ids, tokens.count, &again, &again_size), KNNLM_OK);
    assert_int_equal(again_size, size);
    assert_memory_equal(again, text, size);
    assert_int_equal(again[size], 0);
    for (size_t i = 0; i < tokens.count; i++) {
        assert_int_equal(tokens.offsets[i], offset);
        offset += kn_strings_size(&((const kn_bpe *)t)->raw, (size_t)tokens.ids[i]);
    }
    free(again);
    kn_tokens_free(&tokens);
}

// ---- tests

static void test_alphabet(void **state) {
    (void)state;
    bool seen[256] = {false};
    for (int n = 0; n < 256; n++) {
        char piece[4], back[4];
        uint8_t byte = kn_alphabet_byte(n);
        size_t size = kn_alphabet_encode(byte, piece), back_size;
        assert_false(seen[byte]);
        seen[byte] = true;
        assert_true(kn_alphabet_decode(piece, size, back, &back_size));
        assert_int_equal(back_size, 1);
        assert_int_equal((uint8_t)back[0], byte);
    }
    char out[8];
    size_t size;
    assert_int_equal(kn_alphabet_encode(' ', out), 2);
    assert_memory_equal(out, "\xC4\xA0", 2); // U+0120
    assert_false(kn_alphabet_decode(" ", 1, out, &size));
    assert_false(kn_alphabet_decode("\xC5\x84", 2, out, &size)); // U+0144, one past the last
    assert_false(kn_alphabet_decode("\xC4", 1, out, &size));
}

static void test_pre_tokens(void **state) {
    (void)state;
    static const char text[] = " I'll  go\n\n there's 42km!? 'tis  ";
    static const char *const words[] = {" I",  "'ll", " ",  " go", "\n\n", " there", "'s",
                                        " 42", "km",  "!?", " '",  "tis",  "  "};
    kn_splitter *s;
    size_t at = 0, end;
    assert_int_equal(kn_splitter_open(&s), KNNLM_OK);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++, at = end) {
        assert_int_equal(kn_splitter_next(s, text, strlen(text), at, &end), KNNLM_OK);
        assert_int_equal(end - at, strlen(words[i]));
        assert_memory_equal(text + at, words[i], end - at);
    }
    assert_int_equal(at, strlen(text));
    kn_splitter_close(s);
}

// Where the hand-written split answers, it answers as the pattern does.
static size_t compare_splits(kn_splitter *s, const char *text, size_t size) {
    size_t by_hand = 0, end;
    for (size_t at = 0; at < size; at = end) {
        assert_int_equal(kn_split_pattern(s, text, size, at, &end), KNNLM_OK);
        assert_true(end > at);
        size_t hand = kn_split_ascii(text, size, at);
        if (!hand) continue;
        assert_int_equal(hand, end);
        by_hand++;
    }
    return by_hand;
}

static size_t random_text(kn_random *r, char *text, size_t characters) {
    static const char common[] = "  \t\n\r\v\f''''stmdrevlSTMDREVLaz09,.!\x1c\x7f\x01";
    static const uint32_t others[] = {0x85,   0xA0,   0xE9,    0x301,  0x660,    0xBD,  0x2028, 0x3000,
                                      0x2019, 0x4E00, 0x1F600, 0x200B, 0x10FFFF, 0x1C5, 0x16EE, 0xFEFF};
    size_t n = 0;
    for (size_t i = 0; i < characters; i++) {
        if (kn_random_below(r, 12))
            text[n++] = common[kn_random_below(r, sizeof common)]; // the NUL too
        else
            n += kn_utf8_encode(others[kn_random_below(r, sizeof others / sizeof *others)], text + n);
    }
    return n;
}

static void test_split_by_hand_agrees_with_pattern(void **state) {
    (void)state;
    kn_random r = {11};
    kn_splitter *s;
    char text[4 * 24];
    size_t by_hand = 0;
    assert_int_equal(kn_splitter_open(&s), KNNLM_OK);
    for (int i = 0; i < 100000; i++)
        by_hand += compare_splits(s, text, random_text(&r, text, kn_random_below(&r, 24)));
    assert_true(by_hand > 100000);
    kn_splitter_close(s);
}

static void compare_file(const char *path) {
    kn_splitter *s;
    char *text;
    size_t size;
    assert_int_equal(kn_splitter_open(&s), KNNLM_OK);
    assert_int_equal(kn_file_read(path, &text, &size), KNNLM_OK);
    assert_true(size > 0);
    compare_splits(s, text, size);
    free(text);
    kn_splitter_close(s);
}

static void test_split_agrees_on_texts(void **state) {
    (void)state;
    compare_file(GOLDEN "wiki.txt");
    compare_file(GOLDEN "books.txt");
}

static void test_split_agrees_on_data(void **state) {
    (void)state;
    compare_file(data_path(WIKI));
    compare_file(data_path("data/books/valid.txt"));
    compare_file(data_path("data/wikitext-2/valid.txt"));
}

static void test_agrees_with_definition(void **state) {
    (void)state;
    kn_random r = {5};
    char text[4 * 200];
    check_plainly(trained, sample, strlen(sample));
    for (int i = 0; i < 2000; i++)
        check_plainly(trained, text, random_text(&r, text, kn_random_below(&r, 200)));
}

// Words of every length around the borders between the cache, short merging and long merging.
static void test_agrees_on_words_of_any_length(void **state) {
    (void)state;
    kn_random r = {6};
    static const char letters[] = "theotherathingerw";
    for (size_t size = 1; size < 200; size++) {
        char text[200];
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < size; i++) text[i] = letters[kn_random_below(&r, sizeof letters - 1)];
            check_plainly(trained, text, size);
            check_plainly(trained, text, size); // now from the cache
        }
    }
}

static void test_any_bytes_round_trip(void **state) {
    (void)state;
    kn_random r = {9};
    char text[300];
    for (int round = 0; round < 5000; round++) {
        size_t size = kn_random_below(&r, sizeof text);
        for (size_t i = 0; i < size; i++) {
            uint64_t kind = kn_random_below(&r, 4);
            text[i] = (char)(kind == 0   ? kn_random_below(&r, 256)
                             : kind == 1 ? ' '
                                         : 'a' + kn_random_below(&r, 26));
        }
        check_round_trip(trained, text, size);
    }
    check_round_trip(trained, sample, strlen(sample));
    check_round_trip(trained, "", 0);
    for (int byte = 0; byte < 256; byte++) check_round_trip(trained, &(char){(char)byte}, 1);
}

static void test_special_token_in_text_is_text(void **state) {
    (void)state;
    kn_tokens tokens = encode(trained, KN_BPE_END, strlen(KN_BPE_END));
    for (size_t i = 0; i < tokens.count; i++)
        assert_int_not_equal(tokens.ids[i], kn_tokenizer_start(trained));
    kn_tokens_free(&tokens);
}

static void test_long_runs_are_not_quadratic(void **state) {
    (void)state;
    size_t size = 1 << 20;
    char *text = malloc(size);
    static const char fills[] = {'a', ' ', '7', '!', '\n', (char)0xFF};
    kn_tokenizer *t;
    memset(text, 'a', size);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 270, text, 1 << 12, NULL, &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 256 + 11 + 1); // aa, aaaa, ... 2048 a's
    double start = kn_seconds();
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(text, fills[i], size);
        check_round_trip(t, text, size);
    }
    assert_true(kn_seconds() - start < 30);
    memset(text, 'a', size);
    kn_tokens tokens = encode(t, text, size);
    assert_int_equal(tokens.count, size / 2048);
    kn_tokens_free(&tokens);
    kn_tokenizer_free(t);
    free(text);
}

static void test_tokens_are_appended(void **state) {
    (void)state;
    kn_tokens once = encode(trained, sample, strlen(sample)), twice = encode(trained, sample, strlen(sample));
    assert_int_equal(kn_tokenizer_encode(trained, sample, strlen(sample), &twice), KNNLM_OK);
    assert_int_equal(twice.count, 2 * once.count);
    assert_memory_equal(twice.ids + once.count, once.ids, once.count * sizeof *once.ids);
    assert_memory_equal(twice.offsets + once.count, once.offsets, once.count * sizeof *once.offsets);
    kn_tokens_free(&once);
    kn_tokens_free(&twice);
}

static void test_decode_out_of_range(void **state) {
    (void)state;
    char *text;
    size_t size;
    int32_t bad[] = {0, kn_tokenizer_size(trained)}, negative[] = {-1};
    assert_int_equal(kn_tokenizer_decode(trained, bad, 2, &text, &size), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_decode(trained, negative, 1, &text, &size), KNNLM_EINVAL);
    assert_null(kn_tokenizer_piece(trained, -1));
    assert_null(kn_tokenizer_piece(trained, kn_tokenizer_size(trained)));
    assert_string_equal(kn_tokenizer_piece(trained, kn_tokenizer_start(trained)), KN_BPE_END);
}

typedef struct shared_work {
    const kn_tokens *expected;
    bool same[64];
} shared_work;

static void encode_in_task(void *context, size_t task, int worker) {
    shared_work *work = context;
    kn_tokens tokens = {0};
    (void)worker;
    for (int i = 0; i < 20; i++) {
        tokens.count = 0;
        if (kn_tokenizer_encode(trained, sample, strlen(sample), &tokens) != KNNLM_OK) return;
    }
    work->same[task] = tokens.count == work->expected->count &&
                       memcmp(tokens.ids, work->expected->ids, tokens.count * sizeof *tokens.ids) == 0;
    kn_tokens_free(&tokens);
}

static void test_many_threads_share_one(void **state) {
    (void)state;
    kn_tokens expected = encode(trained, sample, strlen(sample));
    shared_work work = {.expected = &expected};
    assert_int_equal(kn_threads_set(4), KNNLM_OK);
    kn_parallel(64, encode_in_task, &work);
    assert_int_equal(kn_threads_set(0), KNNLM_OK);
    for (int i = 0; i < 64; i++) assert_true(work.same[i]);
    kn_tokens_free(&expected);
}

// ---- GPT-2

static void check_line(const kn_tokens *tokens, const char **line) {
    char *next;
    for (size_t i = 0; i < tokens->count; i++) {
        assert_true(**line == ' ');
        assert_int_equal(strtol(*line, &next, 10), tokens->ids[i]);
        *line = next;
    }
    assert_int_equal(**line, '\n');
    ++*line;
}

static void check_vectors(const char *vocabulary, const char *inputs, const char *answers) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    kn_tokenizer *t = open_file(vocabulary);
    char *input, *output;
    size_t size, count = 0;
    assert_int_equal(kn_file_read(inputs, &input, &size), KNNLM_OK);
    assert_int_equal(kn_file_read(answers, &output, &size), KNNLM_OK);
    const char *text = input, *line = output;
    for (const char *end; (end = strstr(text, separator)); text = end + strlen(separator), count++) {
        kn_tokens tokens = encode(t, text, (size_t)(end - text));
        check_line(&tokens, &line);
        kn_tokens_free(&tokens);
        check_round_trip(t, text, (size_t)(end - text));
    }
    assert_int_equal(*line, 0);
    assert_true(count > 40);
    free(input);
    free(output);
    kn_tokenizer_free(t);
}

static void check_text(const kn_tokenizer *t, const char *path) {
    char *text;
    size_t size;
    assert_int_equal(kn_file_read(path, &text, &size), KNNLM_OK);
    check_round_trip(t, text, size);
    check_plainly(t, text, size);
    free(text);
}

static void test_gpt2_vectors(void **state) {
    (void)state;
    check_vectors(GOLDEN "gpt2.json", GOLDEN "gpt2.inp", GOLDEN "gpt2.out");
}

static void test_gpt2_on_texts(void **state) {
    (void)state;
    kn_tokenizer *t = open_file(GOLDEN "gpt2.json");
    check_text(t, GOLDEN "wiki.txt");
    check_text(t, GOLDEN "books.txt");
    kn_tokenizer_free(t);
}

static void test_whole_gpt2_vectors(void **state) {
    (void)state;
    check_vectors(data_path(GPT2), data_path("tokenizers/gpt2.inp"), data_path("tokenizers/gpt2.out"));
}

static void test_whole_gpt2_on_data(void **state) {
    (void)state;
    kn_tokenizer *t = open_file(data_path(GPT2));
    assert_int_equal(kn_tokenizer_size(t), 50257);
    assert_int_equal(kn_tokenizer_start(t), 50256);
    check_text(t, data_path(WIKI));
    kn_tokenizer_free(t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alphabet),
        cmocka_unit_test(test_pre_tokens),
        cmocka_unit_test(test_split_by_hand_agrees_with_pattern),
        cmocka_unit_test(test_split_agrees_on_texts),
        cmocka_unit_test(test_agrees_with_definition),
        cmocka_unit_test(test_agrees_on_words_of_any_length),
        cmocka_unit_test(test_any_bytes_round_trip),
        cmocka_unit_test(test_special_token_in_text_is_text),
        cmocka_unit_test(test_long_runs_are_not_quadratic),
        cmocka_unit_test(test_tokens_are_appended),
        cmocka_unit_test(test_decode_out_of_range),
        cmocka_unit_test(test_many_threads_share_one),
        cmocka_unit_test(test_gpt2_vectors),
        cmocka_unit_test(test_gpt2_on_texts),
    };
    const struct CMUnitTest on_data[] = {
        cmocka_unit_test(test_split_agrees_on_data),
        cmocka_unit_test(test_whole_gpt2_vectors),
        cmocka_unit_test(test_whole_gpt2_on_data),
    };
    if (data_wanted(argc, argv)) {
        DATA_NEEDS(WIKI, GPT2, "data/books/valid.txt", "data/wikitext-2/valid.txt", "tokenizers/gpt2.inp",
                   "tokenizers/gpt2.out");
        return cmocka_run_group_tests(on_data, train_sample, free_sample);
    }
    return cmocka_run_group_tests(tests, train_sample, free_sample);
}
