// The report's page: its data against what was told, whatever bytes the texts hold; the page around it;
// failures.
//   test_report FILE    leaves a page of nasty texts there, for tests/test_report_page.sh
#include "expect.h"

#include "base/file.h"
#include "base/random.h"
#include "eval/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <float.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[64], path[128];

static int make_folder(void **state) {
    (void)state;
    test_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/page.html", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static size_t files_in_folder(void) {
    size_t count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

// ---------------------------------------------------------------- reading a page

static const char data_tag[] = "<script type=\"application/json\" id=\"data\">\n";

// The page, whole and with its data cut out as `json`; both released with free().
static char *read_page(char **json) {
    char *page;
    size_t size;
    OK(kn_file_read(path, &page, &size));
    assert_int_equal(strlen(page), size); // no NUL
    char *begin = strstr(page, data_tag);
    assert_non_null(begin);
    begin += strlen(data_tag);
    *json = strndup(begin, (size_t)(strstr(begin, "</script") - begin));
    return page;
}

static json_t *read_data(void) {
    char *json, *page = read_page(&json);
    json_error_t error;
    json_t *data = json_loads(json, JSON_ALLOW_NUL, &error);
    if (!data) fail_msg("%s at %d:%d", error.text, error.line, error.column);
    free(json);
    free(page);
    return data;
}

static json_t *at(const json_t *array, size_t i) {
    json_t *value = json_array_get(array, i);
    assert_non_null(value);
    return value;
}

static const char *text_at(const json_t *array, size_t i) {
    const char *text = json_string_value(at(array, i));
    assert_non_null(text);
    return text;
}

enum { NEIGHBORS = 7, TEXT = 8 };

static const json_t *tokens_of(const json_t *data) {
    return json_object_get(data, "tokens");
}

// ---------------------------------------------------------------- nasty input

static const char nasty[] =
    "</script><script>injected=1</script><!--<script>]]>&amp;\"'\\\x01\x1f\x7f\t\r\n"
    "\xe2\x80\xa8\xe2\x80\xa9\xef\xbf\xbe\xef\xb7\x90\xf4\x8f\xbf\xbf\xc2\x85\xe2\x80\xae"
    "\xf0\x9f\x98\x80\xff\xed\xa0\x80\xc0\xaf<img src=x onerror=injected=2>";
// The same as UTF-8: what no character is replaced, a maximal part at a time.
static const char decent[] =
    "</script><script>injected=1</script><!--<script>]]>&amp;\"'\\\x01\x1f\x7f\t\r\n"
    "\xe2\x80\xa8\xe2\x80\xa9\xef\xbf\xbe\xef\xb7\x90\xf4\x8f\xbf\xbf\xc2\x85\xe2\x80\xae"
    "\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
    "<img src=x onerror=injected=2>";

static kn_report_token token_of(const char *text, size_t size) {
    return (kn_report_token){.text = text,
                             .size = size,
                             .lm = -2.5,
                             .knn = -INFINITY,
                             .cache = NAN,
                             .mixed = -2.7877,
                             .lambda = .25,
                             .nearest = 31.4159265,
                             .entropy = 4};
}

static void add(kn_report *r, const char *text) {
    kn_report_token token = token_of(text, strlen(text));
    OK(kn_report_add(r, &token));
}

static void add_nasty_tokens(kn_report *r) {
    const kn_report_neighbor neighbors[] = {
        {nasty, nasty, nasty, nasty, 7, .5, 12.25, true},
        // Cut inside characters: at both ends left out, in the middle whole.
        {"\x82\xac"
         "a\xe2",
         "\x82\xac", "b\xf0\x9f", "b.txt", UINT64_C(1) << 40, INFINITY, NAN, false},
        {NULL, " word", NULL, NULL, UINT64_MAX, 1e-300, 0, false},
    };
    kn_report_token token = token_of(nasty, strlen(nasty));
    token.neighbors = neighbors;
    token.neighbor_count = 3;
    OK(kn_report_document(r, nasty));
    OK(kn_report_add(r, &token));
    token = token_of("a\0b", 3);
    token.lm = token.mixed = -.5;
    OK(kn_report_add(r, &token));
    OK(kn_report_document(r, "b.txt"));
    token = token_of(" helped", 7);
    token.mixed = -.5;
    OK(kn_report_add(r, &token));
    add(r, "\n");
    token = token_of(" unknown", 8);
    token.lm = token.mixed = token.lambda = token.nearest = token.entropy = NAN;
    OK(kn_report_add(r, &token));
    add(r, "\xf0\x9f");
    add(r, "\x98\x80");
}

static void write_nasty(const char *to) {
    static const double x[] = {0, 1, 16, 1024}, y[] = {NAN, 17.5, INFINITY, 16.25};
    const kn_report_row rows[] = {{nasty, nasty}, {"tokens", "1000"}, {NULL, NULL}};
    const kn_report_curve curves[] = {{nasty, nasty, nasty, true, x, y, 4, 16},
                                      {"none", "x", "y", false, NULL, NULL, 0, NAN}};
    kn_report *r;
    OK(kn_report_open(to, &r));
    add_nasty_tokens(r);
    assert_int_equal(kn_report_tokens(r), 7);
    OK(kn_report_commit(r, &(kn_report_summary){nasty, rows, 3, curves, 2, 1000}));
}

static void check_token(const json_t *token) {
    assert_int_equal(json_array_size(token), 9);
    assert_true(json_number_value(at(token, 0)) == -2.5);
    assert_string_equal(text_at(token, 1), "-inf");
    assert_true(json_is_null(at(token, 2)));
    assert_true(json_number_value(at(token, 3)) == -2.7877);
    assert_true(json_number_value(at(token, 4)) == .25);
    assert_true(json_number_value(at(token, 5)) == 31.416); // 5 digits
    assert_true(json_number_value(at(token, 6)) == 4);
    assert_string_equal(text_at(token, TEXT), decent);
}

static void check_neighbors(const json_t *all) {
    const json_t *n = at(all, 0);
    assert_int_equal(json_array_size(all), 3);
    for (size_t i = 0; i < 3; i++) assert_string_equal(text_at(n, i), decent);
    assert_int_equal(json_integer_value(at(n, 3)), 0);
    assert_int_equal(json_integer_value(at(n, 4)), 7);
    assert_true(json_number_value(at(n, 5)) == .5);
    assert_true(json_number_value(at(n, 6)) == 12.25);
    assert_int_equal(json_integer_value(at(n, 7)), 1);
    n = at(all, 1);
    assert_string_equal(text_at(n, 0), "a");
    assert_string_equal(text_at(n, 1), "\xe2\x82\xac");
    assert_string_equal(text_at(n, 2), "b");
    assert_int_equal(json_integer_value(at(n, 3)), 1);
    assert_int_equal(json_integer_value(at(n, 4)), INT64_C(1) << 40);
    assert_string_equal(text_at(n, 5), "inf");
    assert_true(json_is_null(at(n, 6)));
    assert_int_equal(json_integer_value(at(n, 7)), 0);
    n = at(all, 2);
    assert_string_equal(text_at(n, 0), "");
    assert_string_equal(text_at(n, 1), " word");
    assert_true(json_is_null(at(n, 3)));
    assert_true(json_is_null(at(n, 4)));
    assert_true(json_number_value(at(n, 5)) == 1e-300);
}

static void check_summary(const json_t *data) {
    const json_t *rows = json_object_get(data, "rows"), *curves = json_object_get(data, "curves");
    const json_t *curve = at(curves, 0), *y = json_object_get(curve, "y");
    assert_string_equal(json_string_value(json_object_get(data, "title")), decent);
    assert_int_equal(json_integer_value(json_object_get(data, "scored")), 1000);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(text_at(at(rows, 0), 0), decent);
    assert_string_equal(text_at(at(rows, 0), 1), decent);
    assert_string_equal(text_at(at(rows, 2), 1), "");
    assert_int_equal(json_array_size(curves), 2);
    assert_string_equal(json_string_value(json_object_get(curve, "x_label")), decent);
    assert_true(json_is_true(json_object_get(curve, "log_x")));
    assert_int_equal(json_integer_value(json_object_get(curve, "marked_x")), 16);
    assert_int_equal(json_array_size(json_object_get(curve, "x")), 4);
    assert_true(json_is_null(at(y, 0)));
    assert_true(json_number_value(at(y, 1)) == 17.5);
    assert_string_equal(text_at(y, 2), "inf");
    assert_true(json_is_null(json_object_get(at(curves, 1), "marked_x")));
}

static void test_data(void **state) {
    (void)state;
    write_nasty(path);
    json_t *data = read_data();
    const json_t *tokens = tokens_of(data), *names = json_object_get(data, "names");
    assert_int_equal(json_array_size(tokens), 9);
    assert_int_equal(json_integer_value(at(tokens, 0)), 0);
    check_token(at(tokens, 1));
    check_neighbors(at(at(tokens, 1), NEIGHBORS));
    assert_int_equal(json_string_length(at(at(tokens, 2), TEXT)), 3);
    assert_memory_equal(text_at(at(tokens, 2), TEXT), "a\0b", 3);
    assert_int_equal(json_integer_value(at(tokens, 3)), 1);
    assert_string_equal(text_at(at(tokens, 5), TEXT), "\n");
    assert_string_equal(text_at(at(tokens, 7), TEXT), "");
    assert_string_equal(text_at(at(tokens, 8), TEXT), "\xf0\x9f\x98\x80");
    assert_int_equal(json_array_size(names), 2); // "b.txt" is a neighbour's and the text's: once
    assert_string_equal(text_at(names, 0), decent);
    assert_string_equal(text_at(names, 1), "b.txt");
    check_summary(data);
    json_decref(data);
}

// ---------------------------------------------------------------- the page around the data

// Nothing in the data can end its element or begin another, and no character of it is one that HTML dislikes.
static void test_no_markup(void **state) {
    (void)state;
    write_nasty(path);
    char *json, *page = read_page(&json);
    for (const char *c = json; *c; c++)
        if (*c == '<' || *c == '>' || *c == '&' || ((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f)
            fail_msg("character %02x in the data: %.40s", (unsigned char)*c, c);
    static const char *const raw[] = {"\xe2\x80\xa8", "\xe2\x80\xa9",     "\xef\xbf\xbe",
                                      "\xef\xb7\x90", "\xf4\x8f\xbf\xbf", "\xc2\x85"};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) assert_null(strstr(json, raw[i]));
    free(json);
    free(page);
}

// Byte for byte that of the sources: what embeds it is right, and the build does so again when it changes.
static void test_page(void **state) {
    (void)state;
    char *json, *template;
    size_t size;
    write_nasty(path);
    char *page = read_page(&json);
    OK(kn_file_read(KN_SOURCE_DIR "/web/report.html", &template, &size));
    char *line = strstr(template, "@KNNLM_DATA@\n");
    assert_non_null(line);
    assert_null(strstr(line + 1, "@KNNLM_DATA@"));
    const char *rest = line + strlen("@KNNLM_DATA@");
    assert_memory_equal(page, template, (size_t)(line - template));
    assert_string_equal(page + strlen(page) - strlen(rest), rest);
    assert_int_equal(strlen(page) - strlen(json) + strlen("@KNNLM_DATA@\n"), size);
    // Self-contained: the one address in it is the name of SVG, in the icon.
    for (const char *address = template; (address = strstr(address, "://")); address++)
        assert_memory_equal(address - 4, "http://www.w3.org/2000/svg", 26);
    free(template);
    free(json);
    free(page);
}

static void test_empty(void **state) {
    (void)state;
    kn_report *r;
    OK(kn_report_open(path, &r));
    OK(kn_report_commit(r, &(kn_report_summary){0}));
    json_t *data = read_data();
    assert_int_equal(json_array_size(tokens_of(data)), 0);
    assert_int_equal(json_array_size(json_object_get(data, "rows")), 0);
    assert_int_equal(json_array_size(json_object_get(data, "names")), 0);
    json_decref(data);
}

// ---------------------------------------------------------------- characters in pieces

// What the Unicode standard (table 3-7) lets follow `first`: how many bytes, and the range of the next one.
static int follows(unsigned char first, unsigned char *low, unsigned char *high) {
    *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : -1;
}

// Bytes as UTF-8, each maximal part of a character that is none replaced by U+FFFD.
static void replace(const unsigned char *in, size_t size, char *out) {
    for (size_t i = 0; i < size;) {
        unsigned char low, high;
        int more = follows(in[i], &low, &high), got = 0;
        for (; got < more && i + 1 + (size_t)got < size; got++, low = 0x80, high = 0xBF)
            if (in[i + 1 + (size_t)got] < low || in[i + 1 + (size_t)got] > high) break;
        if (got == more) {
            memcpy(out, in + i, (size_t)more + 1);
            out += more + 1;
        } else {
            memcpy(out, "\xef\xbf\xbd", 3);
            out += 3;
        }
        i += (size_t)got + 1;
    }
    *out = 0;
}

static void test_pieces(void **state) {
    (void)state;
    static const char *const pieces[][2] = {
        {"a", "a"},
        {"\xe2", ""},
        {"", ""},
        {"\x82", ""},
        {"\xac b", "\xe2\x82\xac b"}, // three tokens, one character
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"x", "x"}, // begun, and broken off: with the one that began it
        {"\xf0\x9f", ""},
        {"\x98", "\xef\xbf\xbd"},
        {"\xf0\x9f", ""},
        {"\x98\x80\xc3", "\xf0\x9f\x98\x80"}, // the end of one, the beginning of the next
        {"\xa9\x80", "\xc3\xa9\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd"}, // where the document ends
    };
    size_t count = sizeof pieces / sizeof *pieces;
    kn_report *r;
    OK(kn_report_open(path, &r));
    for (size_t i = 0; i < count; i++) add(r, pieces[i][0]);
    OK(kn_report_document(r, "next"));
    add(r, "\xac");
    add(r, "\xe2");
    OK(kn_report_commit(r, &(kn_report_summary){0}));
    json_t *data = read_data();
    const json_t *tokens = tokens_of(data);
    for (size_t i = 0; i < count; i++) assert_string_equal(text_at(at(tokens, i), TEXT), pieces[i][1]);
    assert_string_equal(text_at(at(tokens, count + 1), TEXT), "\xef\xbf\xbd");
    assert_string_equal(text_at(at(tokens, count + 2), TEXT), "\xef\xbf\xbd");
    json_decref(data);
}

enum { RANDOM_BYTES = 20000 };

// Any bytes in any pieces: the texts, put together, are the text.
static void test_random_pieces(void **state) {
    (void)state;
    static const unsigned char choice[] = {'a',  '<',  0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF,
                                           0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x82, 0xAC};
    static unsigned char bytes[RANDOM_BYTES];
    static char expected[3 * RANDOM_BYTES + 1], got[3 * RANDOM_BYTES + 1];
    kn_random random = {5};
    kn_report *r;
    for (size_t i = 0; i < RANDOM_BYTES; i++) bytes[i] = choice[kn_random_below(&random, sizeof choice)];
    replace(bytes, RANDOM_BYTES, expected);
    OK(kn_report_open(path, &r));
    for (size_t i = 0, n; i < RANDOM_BYTES; i += n) {
        n = kn_min(kn_random_below(&random, 4), RANDOM_BYTES - i);
        kn_report_token token = token_of((const char *)bytes + i, n);
        OK(kn_report_add(r, &token));
    }
    uint64_t count = kn_report_tokens(r);
    OK(kn_report_commit(r, &(kn_report_summary){0}));
    json_t *data = read_data();
    assert_int_equal(json_array_size(tokens_of(data)), count);
    char *end = got;
    for (size_t i = 0; i < count; i++) end = stpcpy(end, text_at(at(tokens_of(data), i), TEXT));
    assert_string_equal(got, expected);
    json_decref(data);
}

// ---------------------------------------------------------------- numbers and names

static void test_numbers(void **state) {
    (void)state;
    static const double numbers[] = {0, -.0, 1, -12.345678, 1e-12, 123456789, 5e-324, 1.7976e308};
    static const double rounded[] = {0, 0, 1, -12.346, 1e-12, 123460000, 5e-324, 1.7976e308};
    enum { COUNT = sizeof numbers / sizeof *numbers };
    kn_report *r;
    // The decimal comma of a program that has set its locale is no JSON; where there is no such locale, so be
    // it.
    setlocale(LC_NUMERIC, "de_DE.UTF-8");
    OK(kn_report_open(path, &r));
    const kn_report_curve curve = {"c", "x", "y", false, numbers, numbers, COUNT, -DBL_MAX};
    OK(kn_report_commit(r, &(kn_report_summary){.curves = &curve, .curve_count = 1, .tokens_scored = 3}));
    setlocale(LC_NUMERIC, "C");
    json_t *data = read_data();
    const json_t *got = at(json_object_get(data, "curves"), 0);
    for (size_t i = 0; i < COUNT; i++) {
        double value = json_number_value(at(json_object_get(got, "x"), i));
        if (fabs(value - rounded[i]) > 1e-9 * fabs(rounded[i]) && i != 6)
            fail_msg("%g for %g", value, rounded[i]);
    }
    assert_string_equal(json_string_value(json_object_get(got, "marked_x")), "-inf");
    json_decref(data);
}

static void test_many_names(void **state) {
    (void)state;
    enum { MANY = 3000 };
    char name[32];
    kn_report *r;
    OK(kn_report_open(path, &r));
    for (int i = 0; i < 2 * MANY; i++) {
        snprintf(name, sizeof name, "%d.txt", i % MANY);
        const kn_report_neighbor n = {"", "w", "", name, 0, 1, 1, false};
        kn_report_token token = token_of("w", 1);
        token.neighbors = &n;
        token.neighbor_count = 1;
        OK(kn_report_add(r, &token));
    }
    OK(kn_report_commit(r, &(kn_report_summary){0}));
    json_t *data = read_data();
    assert_int_equal(json_array_size(json_object_get(data, "names")), MANY);
    for (size_t i = 0; i < 2 * MANY; i++) {
        const json_t *n = at(at(at(tokens_of(data), i), NEIGHBORS), 0);
        snprintf(name, sizeof name, "%zu.txt", i % MANY);
        assert_string_equal(text_at(json_object_get(data, "names"), (size_t)json_integer_value(at(n, 3))),
                            name);
    }
    json_decref(data);
}

// ---------------------------------------------------------------- failures

static void test_failures(void **state) {
    (void)state;
    kn_report *r = NULL;
    char missing[256];
    unlink(path);
    snprintf(missing, sizeof missing, "%s/missing/page.html", folder);
    FAILS(KNNLM_EIO, missing, kn_report_open(missing, &r));
    FAILS(KNNLM_EIO, folder, kn_report_open(folder, &r));
    FAILS(KNNLM_EINVAL, "empty", kn_report_open("", &r));
    assert_null(r);
    assert_int_equal(files_in_folder(), 0);
}

static void test_abort(void **state) {
    (void)state;
    kn_report *r;
    unlink(path);
    OK(kn_report_open(path, &r));
    add_nasty_tokens(r);
    kn_report_abort(r);
    kn_report_abort(NULL);
    assert_int_equal(files_in_folder(), 0);
    // A page that was there before stays.
    OK(kn_report_open(path, &r));
    OK(kn_report_commit(r, &(kn_report_summary){.title = "old"}));
    OK(kn_report_open(path, &r));
    kn_report_abort(r);
    json_t *data = read_data();
    assert_string_equal(json_string_value(json_object_get(data, "title")), "old");
    json_decref(data);
    assert_int_equal(files_in_folder(), 1);
}

// A disk that is full, by way of the largest size of a file: told by commit at the latest, and nothing is
// left.
static void test_full(void **state) {
    (void)state;
    struct rlimit old, small;
    kn_report *r;
    unlink(path);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 8192;
    signal(SIGXFSZ, SIG_IGN);
    for (int tokens = 0; tokens <= 20000; tokens += 20000) {
        knnlm_status status = KNNLM_OK;
        setrlimit(RLIMIT_FSIZE, &small);
        OK(kn_report_open(path, &r));
        kn_report_token token = token_of("token", 5);
        for (int i = 0; i < tokens && status == KNNLM_OK; i++) status = kn_report_add(r, &token);
        if (tokens) assert_int_equal(status, KNNLM_EIO);
        status = kn_report_commit(r, &(kn_report_summary){0});
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, KNNLM_EIO);
        assert_non_null(strstr(knnlm_message(), path));
        assert_int_equal(files_in_folder(), 0);
    }
}

int main(int argc, char **argv) {
    if (argc == 2) {
        write_nasty(argv[1]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),     cmocka_unit_test(test_no_markup),
        cmocka_unit_test(test_page),     cmocka_unit_test(test_empty),
        cmocka_unit_test(test_pieces),   cmocka_unit_test(test_random_pieces),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
