// Where words begin and end, in several scripts, and in bytes that are no characters.
#include "expect.h"

#include "base/words.h"

// The text with a bar at each of its borders, both ends aside.
static void assert_borders(const char *barred) {
    char text[256];
    bool expected[256] = {false};
    size_t size = 0;
    for (const char *c = barred; *c; c++) {
        if (*c == '|')
            expected[size] = true;
        else
            text[size++] = *c;
    }
    expected[0] = expected[size] = true;
    for (size_t i = 0; i <= size; i++)
        if (kn_word_border(text, size, i) != expected[i]) fail_msg("%s: byte %zu", barred, i);
}

static void borders_of_words(void **state) {
    (void)state;
    assert_borders("plain");
    assert_borders("two| |words");
    assert_borders("end|.| |Next|,| |x2|:|names_of_it");
    assert_borders("don't| |and| |o’clock|,| |the| |dogs|'| |'|tis");
    assert_borders("Башенные| |часы| |пробили| |полночь|.");
    assert_borders("Zürich|—|Łódź| |naïve");
    assert_borders("e\u0301te\u0301| |a\u0301"); // marks that stand by themselves
    assert_borders("東|京|は| |ok");             // a word each
    assert_borders("한국어| |말");               // Korean has spaces
    assert_borders("\xF0\x9F\x98\x80| |\xF0\x9F\x98\x80");
}

static void halves_of_characters_are_within_words(void **state) {
    (void)state;
    assert_false(kn_word_border("\xD0\x91\xD0", 3, 1));
    assert_false(kn_word_border("\xD0\x91\xD0", 3, 2)); // the next may be a letter
    assert_false(kn_word_border("a\x80", 2, 1));
    assert_true(kn_word_border("", 0, 0));
}

static void words_are_counted(void **state) {
    (void)state;
    assert_int_equal(kn_word_count("", 0), 0);
    assert_int_equal(kn_word_count(" ... -- !", 9), 0);
    assert_int_equal(kn_word_count(" it's one", 9), 2);
    assert_int_equal(kn_word_count("часы пробили", strlen("часы пробили")), 2);
    assert_int_equal(kn_word_count("東京", strlen("東京")), 2);
}

static void the_nearest_borders(void **state) {
    (void)state;
    const char *text = "two words";
    assert_int_equal(kn_word_border_after(text, 9, 5), 9);
    assert_int_equal(kn_word_border_before(text, 9, 6), 4);
    assert_int_equal(kn_word_border_after(text, 9, 3), 3);
    assert_int_equal(kn_word_border_before(text, 9, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders_of_words),
        cmocka_unit_test(halves_of_characters_are_within_words),
        cmocka_unit_test(words_are_counted),
        cmocka_unit_test(the_nearest_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
