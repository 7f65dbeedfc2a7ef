// Training of byte-level BPE, against the plain definition.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "text/bpe.h"
#include "text/bpe_alphabet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 20000, PLAIN_TOKENS = 600 };

// ---- the plain definition: all pairs of all words counted anew for every merge

typedef struct plain {
    int32_t tokens[TEXT]; // of the text in order, -1 between words
    size_t count;
    int32_t merges[PLAIN_TOKENS][2];
    size_t merge_count;
    int64_t (*counts)[PLAIN_TOKENS];
} plain;

static void plain_start(plain *p, const char *text, size_t size) {
    int32_t ids[256];
    kn_splitter *s;
    for (int n = 0; n < 256; n++) ids[kn_alphabet_byte(n)] = n;
    p->count = p->merge_count = 0;
    assert_int_equal(kn_splitter_open(&s), KNNLM_OK);
    for (size_t from = 0, to; from < size; from = to) {
        assert_int_equal(kn_split_pattern(s, text, size, from, &to), KNNLM_OK);
        for (size_t i = from; i < to; i++) p->tokens[p->count++] = ids[(uint8_t)text[i]];
        p->tokens[p->count++] = -1;
    }
    kn_splitter_close(s);
}

static bool plain_best(plain *p, int32_t have, int32_t best[2]) {
    int64_t max = 1;
    memset(p->counts, 0, sizeof *p->counts * PLAIN_TOKENS);
    for (size_t i = 0; i + 1 < p->count; i++)
        if (p->tokens[i] >= 0 && p->tokens[i + 1] >= 0) p->counts[p->tokens[i]][p->tokens[i + 1]]++;
    for (int32_t a = 0; a < have; a++)
        for (int32_t b = 0; b < have; b++)
            if (p->counts[a][b] > max) {
                max = p->counts[a][b];
                best[0] = a;
                best[1] = b;
            }
    return max > 1;
}

static void plain_merge(plain *p, const int32_t pair[2], int32_t made) {
    size_t n = 0;
    for (size_t i = 0; i < p->count; n++) {
        bool here = i + 1 < p->count && p->tokens[i] == pair[0] && p->tokens[i + 1] == pair[1];
        p->tokens[n] = here ? made : p->tokens[i];
        i += here ? 2 : 1;
    }
    p->count = n;
    memcpy(p->merges[p->merge_count++], pair, 2 * sizeof *pair);
}

// The id comes from the trained tokenizer: a piece made twice, of different parts, is one token.
static void check_merges(const kn_tokenizer *t, plain *p) {
    const kn_bpe *b = (const kn_bpe *)t;
    int32_t have = 256, best[2];
    for (size_t rank = 0; rank < b->merge_count; rank++) {
        assert_true(plain_best(p, have, best));
        assert_int_equal(b->merges[rank][0], best[0]);
        assert_int_equal(b->merges[rank][1], best[1]);
        int32_t made = kn_bpe_find(&b->table, kn_bpe_pair(best[0], best[1]))->id;
        assert_true(made <= have);
        if (made == have) have++;
        plain_merge(p, best, made);
    }
    assert_int_equal(kn_tokenizer_size(t), have + 1);
}

static void check_training(plain *p, const char *text, size_t size, int32_t tokens) {
    kn_tokenizer *t;
    int32_t best[2];
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, tokens, text, size, NULL, &t), KNNLM_OK);
    assert_true(kn_tokenizer_size(t) <= tokens);
    assert_int_equal(kn_tokenizer_start(t), kn_tokenizer_size(t) - 1);
    plain_start(p, text, size);
    check_merges(t, p);
    if (kn_tokenizer_size(t) < tokens) assert_false(plain_best(p, kn_tokenizer_size(t) - 1, best));
    kn_tokenizer_free(t);
}

static size_t random_words(kn_random *r, char *text, size_t size, const char *letters) {
    for (size_t i = 0; i < size; i++)
        text[i] = kn_random_below(r, 6) ? letters[kn_random_below(r, strlen(letters))] : ' ';
    return size;
}

static void test_agrees_with_definition(void **state) {
    (void)state;
    static const char *const alphabets[] = {"ab", "aaab", "abc", "etaoinshrdlu", "a", "abab12.,"};
    kn_random r = {1};
    char text[4000];
    plain *p = malloc(sizeof *p);
    p->counts = malloc(PLAIN_TOKENS * sizeof *p->counts);
    for (size_t i = 0; i < sizeof alphabets / sizeof *alphabets; i++)
        check_training(p, text, random_words(&r, text, sizeof text, alphabets[i]), 340);
    check_training(p, "aaaaaaaaaaaaa aaaaaaaaa aaaaaaaaaaaa", 36, 300);
    check_training(p, "aaaa", 4, 300);
    free(p->counts);
    free(p);
}

static void test_smallest_vocabulary(void **state) {
    (void)state;
    kn_tokenizer *t;
    char *text;
    size_t size;
    int32_t start = 256;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 257, "abab", 4, NULL, &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 257);
    assert_string_equal(kn_tokenizer_piece(t, 0), "!");
    assert_string_equal(kn_tokenizer_piece(t, 220), "\xC4\xA0"); // the space, as in GPT-2
    assert_int_equal(kn_tokenizer_decode(t, &start, 1, &text, &size), KNNLM_OK);
    assert_string_equal(text, KN_BPE_END);
    free(text);
    kn_tokenizer_free(t);
}

static void test_ends_when_no_pair_occurs_twice(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 100000, "ab ab cd", 8, NULL, &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 258); // only "ab": " ab" and " cd" come once
    kn_tokenizer_free(t);
}

static void test_bytes_that_are_not_utf8_are_left_out(void **state) {
    (void)state;
    kn_tokenizer *t;
    static const char text[] = "\xFF\xFF\xFF\xFF"
                               "ab\xFF"
                               "ab\xC3";
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 300, text, strlen(text), NULL, &t), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(t), 258);
    assert_string_equal(kn_tokenizer_piece(t, 256), "ab");
    kn_tokenizer_free(t);
}

// Chunks are cut at line ends, and counted by any number of threads.
static void test_threads_and_chunks_change_nothing(void **state) {
    (void)state;
    kn_random r = {2};
    size_t size = 9 << 20;
    char *text = malloc(size);
    kn_tokenizer *one, *four, *line;
    random_words(&r, text, size, "etaoinshrdlu\n\n,.");
    assert_int_equal(kn_threads_set(1), KNNLM_OK);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 1000, text, size, NULL, &one), KNNLM_OK);
    assert_int_equal(kn_threads_set(4), KNNLM_OK);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 1000, text, size, NULL, &four), KNNLM_OK);
    assert_int_equal(kn_threads_set(0), KNNLM_OK);
    assert_int_equal(kn_tokenizer_size(one), 1000);
    for (int32_t i = 0; i < 1000; i++)
        assert_string_equal(kn_tokenizer_piece(one, i), kn_tokenizer_piece(four, i));
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n') text[i] = 'x'; // a single line
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 300, text, size, NULL, &line), KNNLM_OK);
    kn_tokenizer_free(one);
    kn_tokenizer_free(four);
    kn_tokenizer_free(line);
    free(text);
}

typedef struct listener {
    uint64_t last_done;
    int reports, stop_after;
    char last_what[64];
} listener;

static bool listen(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    listener *l = context;
    assert_non_null(unit);
    assert_true(done <= total);
    if (strcmp(what, l->last_what) == 0) assert_true(done >= l->last_done);
    snprintf(l->last_what, sizeof l->last_what, "%s", what);
    l->last_done = done;
    return ++l->reports != l->stop_after;
}

static void test_progress_and_stopping(void **state) {
    (void)state;
    char text[4000];
    kn_random r = {4};
    random_words(&r, text, sizeof text, "etaoinshrdlu");
    listener all = {0};
    kn_progress progress = {listen, &all};
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 600, text, sizeof text, &progress, &t),
                     KNNLM_OK);
    kn_tokenizer_free(t);
    assert_true(all.reports >= 4);
    for (int stop = 1; stop <= 3; stop += 2) { // while counting, while merging
        listener some = {.stop_after = stop};
        progress.context = &some;
        assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 600, text, sizeof text, &progress, &t),
                         KNNLM_ESTOPPED);
        assert_int_equal(some.reports, stop);
    }
}

static void test_wrong_arguments(void **state) {
    (void)state;
    kn_tokenizer *t;
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 256, "ab", 2, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, -5, "ab", 2, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_BPE, 300, "", 0, NULL, &t), KNNLM_EINVAL);
    assert_int_equal(kn_tokenizer_train(KNNLM_TOKENIZER_WORDPIECE, 300, "ab", 2, NULL, &t), KNNLM_ENOTSUP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_definition),
        cmocka_unit_test(test_smallest_vocabulary),
        cmocka_unit_test(test_ends_when_no_pair_occurs_twice),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_left_out),
        cmocka_unit_test(test_threads_and_chunks_change_nothing),
        cmocka_unit_test(test_progress_and_stopping),
        cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
