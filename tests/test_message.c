// The library's messages as the command says them: fields in quotes become options.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/cli.h"

#include <string.h>

static void check(const char *message, const char *said) {
    char out[256];
    cli_message(message, out, sizeof out);
    assert_string_equal(out, said);
}

static void test_fields(void **state) {
    (void)state;
    check("`min_context` 80: the model's context is 64", "--min-context 80: the model's context is 64");
    check("s: full (`force` tries anyway)", "s: full (--force tries anyway)");
    check("`score` 3 `context` 4: too much", "--score 3 --context 4: too much");
    check("s: damaged (`knnlm_store_verify` s)", "s: damaged (knnlm verify s)");
    check("`dimension`, `key_type`", "--dim, --key-type");
}

// What is no field stays: names of files may be anything.
static void test_others(void **state) {
    (void)state;
    check("a`b`c.txt: not UTF-8", "a`b`c.txt: not UTF-8");
    check("`", "`");
    check("``", "``");
    check("`force", "`force");
    check("a `forced` b", "a `forced` b");
    check("`x`force`", "`x--force");
    check("", "");
}

static void test_long_ones_are_cut(void **state) {
    char out[8];
    (void)state;
    cli_message("abc`force` and more", out, sizeof out);
    assert_string_equal(out, "abc--fo");
    cli_message("abcdefghijk", out, sizeof out);
    assert_string_equal(out, "abcdefg");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_long_ones_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
