// Tokenizers of models that run through llama.cpp: tokens against NumPy's, texts come back, odd bytes.
#include "llama_kit.h"

// ---------------------------------------------------------------- text

// decode(start, tokens) is the text.
static void assert_decoded(const kn_tokenizer *t, const kn_tokens *tokens, const char *text, size_t size) {
    int32_t *ids = test_alloc(tokens->count + 1, sizeof *ids);
    char *back = NULL;
    size_t back_size;
    ids[0] = kn_tokenizer_start(t);
    if (tokens->count > 0) memcpy(ids + 1, tokens->ids, tokens->count * sizeof *ids);
    OK(kn_tokenizer_decode(t, ids, tokens->count + 1, &back, &back_size));
    if (back_size != size || memcmp(back, text, size) != 0)
        fail_msg("\"%s\" came back as \"%s\" (%zu bytes)", text, back, back_size);
    assert_int_equal(back[back_size], 0);
    free(back);
    free(ids);
}

static void tokens_are_numpys(void **state) {
    fixture *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    const char *text;
    bool found;
    size_t count;
    OK(kn_gguf_get_string(d->golden.answers, "golden.text", &text, &found));
    assert_true(found);
    const int32_t *ids = tensor_of(d->golden.answers, "tokens", &count);
    const int32_t *offsets = tensor_of(d->golden.answers, "offsets", NULL);
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tokens.ids[i], ids[i]);
        assert_int_equal(tokens.offsets[i], offsets[i]);
    }
    assert_decoded(t, &tokens, text, strlen(text));
    kn_tokens_free(&tokens);
}

// The pieces of a text and where they begin, written out.
static void assert_pieces(const kn_tokenizer *t, const char *text, const char *const *pieces,
                          const uint64_t *offsets, size_t count) {
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(kn_tokenizer_piece(t, tokens.ids[i]), pieces[i]);
        assert_int_equal(tokens.offsets[i], offsets[i]);
    }
    kn_tokens_free(&tokens);
}

// A word of one piece begins at the space before it, but at the text's beginning, where there is none.
static void words_begin_where_they_stand(void **state) {
    fixture *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    assert_pieces(t, "the cat was that cat", (const char *[]){"▁the", "▁cat", "▁was", "▁that", "▁cat"},
                  (uint64_t[]){0, 3, 7, 11, 16}, 5);
    // The space that is put before every text takes nothing away from those that the text has itself.
    assert_pieces(t, " the cat", (const char *[]){"▁", "▁the", "▁cat"}, (uint64_t[]){0, 0, 4}, 3);
    assert_pieces(t, "  the cat", (const char *[]){"▁▁", "▁the", "▁cat"}, (uint64_t[]){0, 1, 5}, 3);
    assert_pieces(t, "    ", (const char *[]){"▁▁▁▁", "▁"}, (uint64_t[]){0, 3}, 2);
}

// How many bytes of text a token stands for, by its piece: in byte-level vocabularies a character is a byte,
// in SentencePiece's only the sign for a space and "<0x41>" are.
static size_t bytes_of(const kn_tokenizer *t, int32_t id, bool byte_level) {
    const char *piece = kn_tokenizer_piece(t, id);
    size_t characters = 0, signs = 0;
    for (const char *p = piece; *p; p++) characters += ((unsigned char)*p & 0xC0) != 0x80;
    if (byte_level) return characters;
    if (strncmp(piece, "<0x", 3) == 0) return 1;
    for (const char *p = piece; (p = strstr(p, "▁")); p++) signs++;
    return strlen(piece) - signs * (strlen("▁") - 1);
}

// The tokens cover the text without a gap.
static void assert_laid(const kn_tokenizer *t, const kn_tokens *tokens, size_t size, bool byte_level) {
    size_t at = 0, before = byte_level ? 0 : 1; // the space put before it
    for (size_t i = 0; i < tokens->count; i++) {
        assert_int_equal(tokens->offsets[i], at > before ? at - before : 0);
        at += bytes_of(t, tokens->ids[i], byte_level);
    }
    if (size > 0) assert_int_equal(at - before, size);
}

static void check_texts(const kn_tokenizer *t, bool byte_level) {
    for (size_t i = 0; i < TEXTS; i++) {
        kn_tokens tokens = encode(t, texts[i].text, texts[i].size);
        assert_laid(t, &tokens, texts[i].size, byte_level);
        assert_decoded(t, &tokens, texts[i].text, texts[i].size);
        if (texts[i].size == 0) assert_int_equal(tokens.count, 0);
        // Encoding appends, and one text knows nothing of the other.
        size_t once = tokens.count;
        OK(kn_tokenizer_encode(t, texts[i].text, texts[i].size, &tokens));
        assert_int_equal(tokens.count, 2 * once);
        if (once > 0) assert_memory_equal(tokens.ids, tokens.ids + once, once * sizeof *tokens.ids);
        if (once > 0) assert_int_equal(tokens.offsets[once], 0);
        kn_tokens_free(&tokens);
    }
}

static void check_long_text(const kn_tokenizer *t, bool byte_level) {
    const char line[] = "the cat was in the hat of Zo\xC3\xAB, and it  is that. 0123\n";
    size_t n = strlen(line), times = 3000;
    char *text = test_alloc(n * times + 1, 1);
    for (size_t i = 0; i < times; i++) memcpy(text + i * n, line, n);
    kn_tokens tokens = encode(t, text, n * times);
    assert_laid(t, &tokens, n * times, byte_level);
    assert_decoded(t, &tokens, text, n * times);
    kn_tokens_free(&tokens);
    free(text);
}

static void texts_come_back(void **state) {
    fixture *d = *state;
    kn_lm *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    check_texts(kn_lm_tokenizer(d->lm), false);
    check_texts(kn_lm_tokenizer(other), true);
    check_long_text(kn_lm_tokenizer(d->lm), false);
    check_long_text(kn_lm_tokenizer(other), true);
    kn_lm_close(other);
}

// The sign that SentencePiece writes for a space is a space when it comes back; offsets are still the text's.
static void space_sign_is_a_space(void **state) {
    fixture *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    const char text[] = "the▁the the▁cat";
    assert_pieces(t, text, (const char *[]){"▁the", "▁the", "▁the", "▁cat"}, (uint64_t[]){0, 3, 9, 13}, 4);
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_decoded(t, &tokens, "the the the cat", 15);
    kn_tokens_free(&tokens);
}

// Bytes that are no UTF-8 are refused, or come back as they were.
static void check_invalid(const kn_tokenizer *t) {
    const char *const bad[] = {"\xFF",         "the \x80 cat", "the cat\xC3",      "\xE2\x96",
                               "\xE2\x82 the", "\xC0\xAF the", "\xED\xA0\x80 cat", "\xF4\x90\x80\x80",
                               "\xF0\x9F\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kn_tokens tokens = {.with_offsets = true};
        knnlm_status status = kn_tokenizer_encode(t, bad[i], strlen(bad[i]), &tokens);
        if (status == KNNLM_OK) {
            assert_decoded(t, &tokens, bad[i], strlen(bad[i]));
        } else {
            assert_int_equal(status, KNNLM_EDATA);
            assert_null(strchr(knnlm_message(), '\n'));
        }
        kn_tokens_free(&tokens);
    }
}

static void invalid_text_is_refused(void **state) {
    fixture *d = *state;
    kn_lm *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    check_invalid(kn_lm_tokenizer(d->lm));
    check_invalid(kn_lm_tokenizer(other));
    kn_lm_close(other);
}

static void vocabulary_is_the_files(void **state) {
    fixture *d = *state;
    kn_lm *again = open_with(LLAMA, KNNLM_ENGINE_AUTO), *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    int32_t size = kn_tokenizer_size(t), bad[] = {size, -1};
    char *text, mine[KN_FINGERPRINT], same[KN_FINGERPRINT], others[KN_FINGERPRINT];
    size_t bytes;
    assert_int_equal(kn_tokenizer_start(t), 1);
    assert_string_equal(kn_tokenizer_piece(t, 1), "<s>");
    assert_string_equal(kn_tokenizer_piece(t, 259), "▁t");
    for (int32_t i = 0; i < size; i++) assert_non_null(kn_tokenizer_piece(t, i));
    for (size_t i = 0; i < 2; i++) {
        assert_null(kn_tokenizer_piece(t, bad[i]));
        FAILS(KNNLM_EINVAL, "", kn_tokenizer_decode(t, &bad[i], 1, &text, &bytes));
    }
    kn_tokenizer_fingerprint(t, mine);
    kn_tokenizer_fingerprint(kn_lm_tokenizer(again), same);
    kn_tokenizer_fingerprint(kn_lm_tokenizer(other), others);
    assert_string_equal(mine, same);
    assert_string_not_equal(mine, others);
    assert_int_equal(kn_tokenizer_start(kn_lm_tokenizer(other)), 266);
    kn_lm_close(again);
    kn_lm_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(tokens_are_numpys),       WITH_FIXTURE(words_begin_where_they_stand),
        WITH_FIXTURE(texts_come_back),         WITH_FIXTURE(space_sign_is_a_space),
        WITH_FIXTURE(invalid_text_is_refused), WITH_FIXTURE(vocabulary_is_the_files),
    };
    RUN_WITH_LLAMA(tests);
}
