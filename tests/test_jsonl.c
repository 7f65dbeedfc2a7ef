// JSON lines as documents: texts, names, blank lines, and lines that are none.
#include "folder.h"

#include "text/documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kn_documents *open_lines(const char *path, const char *field, const char *name_field) {
    kn_documents *d;
    kn_text_options o = {.split = KNNLM_SPLIT_JSONL, .field = field, .name_field = name_field};
    assert_int_equal(kn_documents_open(&path, 1, &o, &d), KNNLM_OK);
    return d;
}

static void expect(kn_documents *d, const char *suffix, uint64_t offset, const char *text) {
    kn_document document;
    bool found;
    assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
    assert_true(found);
    const char *mark = strchr(document.name, '#'), *file = strrchr(document.path, '/') + 1;
    assert_non_null(mark);
    assert_int_equal(mark - document.name, strlen(file));
    assert_memory_equal(document.name, file, strlen(file));
    assert_string_equal(mark, suffix);
    assert_int_equal(document.offset, offset);
    assert_int_equal(document.size, strlen(text));
    assert_string_equal(document.text, text);
}

static void expect_end(kn_documents *d) {
    kn_document document;
    bool found;
    assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
    assert_false(found);
    kn_documents_close(d);
}

static void test_lines(void **state) {
    static const char lines[] = "{\"text\": \"one\", \"id\": 5}\n"
                                "\r\n"
                                "{\"id\": \"b\", \"text\": \"t\\u00e9\\nwo\", \"more\": [1, {}]}\r\n"
                                "{\"text\": \"\", \"id\": 6}\n"
                                "{\"text\": \"last\", \"id\": -7}";
    const char *path = put("lines", lines, sizeof lines - 1);
    (void)state;
    kn_documents *d = open_lines(path, NULL, NULL);
    expect(d, "#1", 0, "one");
    expect(d, "#3", 27, "té\nwo");
    expect(d, "#5", 102, "last");
    expect_end(d);
    d = open_lines(path, "text", "id");
    expect(d, "#5", 0, "one");
    expect(d, "#b", 27, "té\nwo");
    expect(d, "#-7", 102, "last");
    expect_end(d);
}

// Lines longer than a block, and many short ones.
static void test_long_lines(void **state) {
    enum { LONG = 3 << 20, SHORT = 100000 };
    char *text = malloc(LONG + 64 + SHORT * 32), wanted[32], suffix[32];
    size_t n = (size_t)sprintf(text, "{\"text\": \"");
    (void)state;
    memset(text + n, 'x', LONG);
    n += LONG;
    n += (size_t)sprintf(text + n, "\"}\n");
    size_t first = n;
    for (int i = 0; i < SHORT; i++) n += (size_t)sprintf(text + n, "{\"text\": \"line %06d\"}\n", i);
    kn_documents *d = open_lines(put("long", text, n), NULL, NULL);
    kn_document document;
    bool found;
    assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
    assert_int_equal(document.size, LONG);
    for (size_t i = 0; i < SHORT; i++) {
        sprintf(wanted, "line %06zu", i);
        sprintf(suffix, "#%zu", i + 2);
        expect(d, suffix, first + i * ((n - first) / SHORT), wanted);
    }
    expect_end(d);
    free(text);
}

static void refuse(const char *lines, const char *name_field, const char *message) {
    kn_documents *d = open_lines(put("bad", lines, strlen(lines)), NULL, name_field);
    kn_document document;
    bool found = true;
    knnlm_status status = KNNLM_OK;
    while (status == KNNLM_OK && found) status = kn_documents_next(d, &document, &found);
    assert_int_equal(status, KNNLM_EDATA);
    assert_non_null(strstr(knnlm_message(), message));
    kn_documents_close(d);
}

static void test_bad_lines(void **state) {
    (void)state;
    refuse("{\"text\": \"a\"}\n{\"text\": \n", NULL, "bad:2: not JSON");
    refuse("words\n", NULL, "bad:1: not JSON");
    refuse("\n\n[1]\n", NULL, "bad:3: not a JSON object");
    refuse("{\"texts\": \"a\"}\n", NULL, "bad:1: it has no member \"text\"");
    refuse("{\"text\": 1}\n", NULL, "bad:1: no string is its \"text\"");
    refuse("{\"text\": \"a\"}\n", "id", "bad:1: no string or whole number \"id\"");
    refuse("{\"text\": \"a\", \"id\": 1.5}\n", "id", "bad:1: no string or whole number \"id\"");
    refuse("{\"text\": \"a\", \"id\": \"a\\u0000b\"}\n", "id", "bad:1: \"id\" has a NUL character");
    refuse("{\"text\": \"a\"} {\"text\": \"b\"}\n", NULL, "bad:1: not JSON");
    refuse("{\"text\": \"\xFF\"}\n", NULL, "not UTF-8 at byte 10");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_bad_lines),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
