// Bytes to documents: files, directories, compressed files, wiki titles, and what can be wrong with them.
#include "folder.h"

#include "base/file.h"
#include "base/random.h"
#include "base/utf8.h"
#include "text/documents.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include <zlib.h>
#include <zstd.h>

static const char *put_text(const char *name, const char *text) {
    return put(name, text, strlen(text));
}

static kn_documents *open_one(const char *path, knnlm_split split) {
    kn_documents *d;
    assert_int_equal(kn_documents_open(&path, 1, &(kn_text_options){.split = split}, &d), KNNLM_OK);
    return d;
}

static void expect(kn_documents *d, const char *name, uint64_t offset, const char *text) {
    kn_document document;
    bool found;
    assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
    assert_true(found);
    assert_string_equal(document.name, name);
    assert_int_equal(document.offset, offset);
    assert_int_equal(document.size, strlen(text));
    assert_string_equal(document.text, text);
}

static void expect_end(kn_documents *d) {
    kn_document document;
    bool found;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
        assert_false(found);
    }
    assert_int_equal(kn_documents_done(d), kn_documents_total(d));
    kn_documents_close(d);
}

// Reads to the first failure, which must come.
static void expect_failure(const char *path, knnlm_status status, const char *message) {
    kn_documents *d = NULL;
    kn_document document;
    bool found = true;
    knnlm_status got = kn_documents_open(&path, 1, NULL, &d);
    while (got == KNNLM_OK && found) got = kn_documents_next(d, &document, &found);
    assert_int_equal(got, status);
    assert_non_null(strstr(knnlm_message(), message));
    assert_non_null(strstr(knnlm_message(), path));
    kn_documents_close(d);
}

static void test_plain_file(void **state) {
    (void)state;
    const char *path = put_text("plain", "Grüße\nand more\n");
    kn_documents *d = open_one(path, KNNLM_SPLIT_FILE);
    assert_int_equal(kn_documents_total(d), 17);
    expect(d, "plain", 0, "Grüße\nand more\n");
    expect_end(d);
}

// However it is typed, the name is what is below, the path what is there; what was typed is kept beside them.
static void test_names_and_places(void **state) {
    static const char *const typed[] = {"place", "place/", "place/../place/.", "place//"};
    char *real, wanted[300];
    (void)state;
    assert_int_equal(mkdir(at("place"), 0755), 0);
    assert_int_equal(mkdir(at("place/in"), 0755), 0);
    real = realpath(put_text("place/in/x", "text"), NULL);
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        kn_document document;
        bool found;
        kn_documents *d = open_one(at(typed[i]), KNNLM_SPLIT_FILE);
        assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
        assert_string_equal(document.name, "in/x");
        assert_string_equal(document.path, real);
        size_t end = strlen(typed[i]) - 1;
        snprintf(wanted, sizeof wanted, "%s%sin/x", at(typed[i]), typed[i][end] == '/' ? "" : "/");
        assert_string_equal(document.typed, wanted);
        kn_documents_close(d);
    }
    free(real);
}

static void test_empty_file_is_no_document(void **state) {
    (void)state;
    expect_end(open_one(put_text("empty", ""), KNNLM_SPLIT_FILE));
    expect_end(open_one(at("empty"), KNNLM_SPLIT_WIKI));
}

static void test_directory_in_name_order(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("tree"), 0755), 0);
    assert_int_equal(mkdir(at("tree/b"), 0755), 0);
    put_text("tree/c", "third");
    put_text("tree/a", "first");
    put_text("tree/b/x", "second");
    put_text("tree/.hidden", "never \xFF");
    kn_documents *d = open_one(at("tree"), KNNLM_SPLIT_FILE);
    assert_int_equal(kn_documents_total(d), 16);
    expect(d, "a", 0, "first");
    expect(d, "b/x", 0, "second");
    expect(d, "c", 0, "third");
    expect_end(d);
}

static void test_many_paths(void **state) {
    (void)state;
    const char *paths[] = {put_text("two", "2"), put_text("one", "1")};
    kn_documents *d;
    assert_int_equal(kn_documents_open(paths, 2, NULL, &d), KNNLM_OK);
    expect(d, "two", 0, "2");
    expect(d, "one", 0, "1");
    expect_end(d);
}

static void test_stdin(void **state) {
    (void)state;
    const char *path = put_text("input", "from stdin");
    int saved = dup(STDIN_FILENO);
    assert_non_null(freopen(path, "r", stdin));
    kn_documents *d = open_one("-", KNNLM_SPLIT_FILE);
    assert_int_equal(kn_documents_total(d), 0);
    expect(d, "<stdin>", 0, "from stdin");
    kn_documents_close(d);
    dup2(saved, STDIN_FILENO);
    close(saved);
}

static void test_wiki_titles(void **state) {
    (void)state;
    static const char
        one[] = " \n = One = \n \n",
        more[] = " = One, again = \n text = x = y\n = glued = \n\n == Section == \n\n= = =\n\n=x=\n\n",
        two[] = "= Two =\r\nlast";
    char text[300];
    snprintf(text, sizeof text, "%s%s%s", one, more, two);
    kn_documents *d = open_one(put_text("wiki", text), KNNLM_SPLIT_WIKI);
    expect(d, "wiki#One", 0, one);
    expect(d, "wiki#One, again", strlen(one), more);
    expect(d, "wiki#Two", strlen(one) + strlen(more), two);
    expect_end(d);
}

static void test_wiki_text_without_title(void **state) {
    (void)state;
    kn_documents *d = open_one(put_text("untitled", "preface\n\n= A =\n"), KNNLM_SPLIT_WIKI);
    expect(d, "untitled", 0, "preface\n\n");
    expect(d, "untitled#A", 9, "= A =\n");
    expect_end(d);
}

// Many blocks, lines and characters across their borders: the documents of a file are the whole file.
static char *big_text(size_t *size) {
    kn_random r = {7};
    char *text = malloc(6 << 20);
    size_t n = 0;
    assert_non_null(text);
    while (n < 5u << 20) {
        uint64_t kind = kn_random_below(&r, 400);
        if (kind == 0)
            n += (size_t)sprintf(text + n, "\n\n= Title %zu =\n", n);
        else
            n += kn_utf8_encode(kind < 100   ? (uint32_t)('a' + kind % 26)
                                : kind < 200 ? 0xE9
                                : kind < 300 ? 0x20AC
                                             : 0x1F600,
                                text + n);
    }
    *size = n;
    return text;
}

static void check_sections(const char *path, const char *text, size_t size) {
    kn_documents *d = open_one(path, KNNLM_SPLIT_WIKI);
    kn_document document;
    size_t seen = 0, count = 0;
    for (bool found;;) {
        assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
        if (!found) break;
        assert_int_equal(document.offset, seen);
        assert_true(document.size <= size - seen);
        assert_memory_equal(document.text, text + seen, document.size);
        assert_int_equal(document.text[document.size], 0);
        assert_true(!strstr(document.text + 1, "\n\n= Title"));
        seen += document.size;
        count++;
    }
    assert_int_equal(seen, size);
    assert_true(count > 1000);
    kn_documents_close(d);
}

static void test_documents_are_the_whole_file(void **state) {
    (void)state;
    size_t size;
    char *text = big_text(&size);
    const char *path = put("big", text, size);
    kn_documents *d = open_one(path, KNNLM_SPLIT_FILE);
    kn_document document;
    bool found;
    assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
    assert_int_equal(document.size, size);
    assert_memory_equal(document.text, text, size);
    expect_end(d);
    check_sections(path, text, size);
    free(text);
}

// ---- compressed files

static size_t zstd_pack(char *out, size_t room, const char *text, size_t size) {
    size_t n = ZSTD_compress(out, room, text, size, 1);
    assert_false(ZSTD_isError(n));
    return n;
}

static void test_zstd_frames_one_after_another(void **state) {
    (void)state;
    char packed[256];
    size_t n = zstd_pack(packed, sizeof packed, "first frame, ", 13);
    n += zstd_pack(packed + n, sizeof packed - n, "", 0);
    n += zstd_pack(packed + n, sizeof packed - n, "second frame", 12);
    kn_documents *d = open_one(put("frames", packed, n), KNNLM_SPLIT_FILE);
    assert_int_equal(kn_documents_total(d), n);
    expect(d, "frames", 0, "first frame, second frame");
    expect_end(d);
}

static void test_zstd_large(void **state) {
    (void)state;
    size_t size;
    char *text = big_text(&size), *packed = malloc(ZSTD_compressBound(size));
    size_t n = zstd_pack(packed, ZSTD_compressBound(size), text, size);
    check_sections(put("large.zst", packed, n), text, size);
    free(packed);
    free(text);
}

static void test_zstd_cut_off_or_corrupt(void **state) {
    (void)state;
    char packed[256], text[] = "a text that is long enough to be packed, packed, packed";
    size_t n = zstd_pack(packed, sizeof packed, text, sizeof text);
    for (size_t cut = 4; cut < n; cut++) expect_failure(put("cut.zst", packed, cut), KNNLM_EDATA, "zstd");
    memcpy(packed + n, "tail", 4);
    expect_failure(put("tail.zst", packed, n + 4), KNNLM_EDATA, "zstd");
    packed[4] ^= 0x08; // a reserved bit of the frame's header
    expect_failure(put("corrupt.zst", packed, n), KNNLM_EDATA, "corrupt zstd data");
    // A frame that says it holds 48 MiB, more than one read takes, and ends with an empty block: libzstd lets
    // it pass.
    static const char lying[] = "\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x03\x01\x00\x00";
    expect_failure(put("lying.zst", lying, sizeof lying - 1), KNNLM_EDATA, "does not hold what it says");
}

static void gzip_pack(const char *path, const char *mode, const char *text) {
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
}

static void test_gzip_members_one_after_another(void **state) {
    (void)state;
    gzip_pack(at("members"), "wb", "first member, ");
    gzip_pack(at("members"), "ab", "second member");
    kn_documents *d = open_one(at("members"), KNNLM_SPLIT_FILE);
    expect(d, "members", 0, "first member, second member");
    expect_end(d);
}

static void test_gzip_cut_off_or_corrupt(void **state) {
    (void)state;
    char *packed;
    size_t n;
    gzip_pack(at("whole.gz"), "wb", "a text that is long enough to be packed, packed, packed");
    assert_int_equal(kn_file_read(at("whole.gz"), &packed, &n), KNNLM_OK);
    for (size_t cut = 4; cut < n; cut++) expect_failure(put("cut.gz", packed, cut), KNNLM_EDATA, "gzip");
    packed[n - 6] ^= 1;
    expect_failure(put("corrupt.gz", packed, n), KNNLM_EDATA, "corrupt gzip data");
    free(packed);
}

// ---- what is wrong with files

static void test_not_utf8(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *where;
    } bad[] = {
        {"abc\xFF", "not UTF-8 at byte 3"},          {"\xC3", "not UTF-8 at byte 0"},
        {"ab\xC0\x80", "not UTF-8 at byte 2"},       {"x\xED\xA0\x80y", "not UTF-8 at byte 1"},
        {"\xF4\x90\x80\x80", "not UTF-8 at byte 0"}, {"\xE0\x80\x80", "not UTF-8 at byte 0"},
        {"\xF0\x80\x80\x80", "not UTF-8 at byte 0"}, {"12345678901\x80", "not UTF-8 at byte 11"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_failure(put_text("bad", bad[i].bytes), KNNLM_EDATA, bad[i].where);
}

static void test_not_utf8_far_in(void **state) {
    (void)state;
    size_t size = 3 << 20;
    char *text = malloc(size);
    memset(text, 'a', size);
    text[size - 5] = (char)0xE2;
    expect_failure(put("far", text, size), KNNLM_EDATA, "not UTF-8 at byte 3145723");
    free(text);
}

static void test_validation_agrees_with_decoding(void **state) {
    (void)state;
    kn_random r = {3};
    static const uint8_t bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2,
                                    0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    for (int round = 0; round < 200000; round++) {
        char text[64];
        size_t size = kn_random_below(&r, sizeof text), at_byte = 0, n = 1;
        uint32_t c;
        bool mostly_ascii = round & 1;
        for (size_t i = 0; i < size; i++)
            text[i] = mostly_ascii && kn_random_below(&r, 16)
                          ? 'a'
                          : (char)bytes[kn_random_below(&r, sizeof bytes)];
        while (at_byte < size && (n = kn_utf8_decode(text + at_byte, size - at_byte, &c))) {
            char again[4];
            assert_int_equal(kn_utf8_encode(c, again), n);
            assert_memory_equal(again, text + at_byte, n);
            at_byte += n;
        }
        assert_int_equal(kn_utf8_valid(text, size), at_byte);
    }
}

static void test_missing_and_unreadable(void **state) {
    (void)state;
    expect_failure(at("missing"), KNNLM_EIO, "No such file");
    const char *path = put_text("secret", "x");
    assert_int_equal(chmod(path, 0), 0);
    if (access(path, R_OK) != 0) expect_failure(path, KNNLM_EIO, "Permission denied");
}

static void test_directory_without_files(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("bare"), 0755), 0);
    put_text("bare/.hidden", "x");
    expect_failure(at("bare"), KNNLM_EINVAL, "no files");
}

static void test_directory_that_contains_itself(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("loop"), 0755), 0);
    assert_int_equal(symlink(".", at("loop/again")), 0);
    put_text("loop/a", "once");
    const char *path = at("loop");
    kn_documents *d;
    for (int follow = 0; follow < 2; follow++) {
        assert_int_equal(kn_documents_open(&path, 1, &(kn_text_options){.follow = follow}, &d), KNNLM_OK);
        expect(d, "a", 0, "once");
        expect_end(d);
    }
}

static void test_no_paths(void **state) {
    (void)state;
    kn_documents *d;
    assert_int_equal(kn_documents_open(NULL, 0, NULL, &d), KNNLM_EINVAL);
}

static void check_articles(const char *path, size_t min) {
    char *text;
    size_t size, seen = 0, count = 0;
    assert_int_equal(kn_file_read(path, &text, &size), KNNLM_OK);
    kn_documents *d = open_one(path, KNNLM_SPLIT_WIKI);
    kn_document document;
    for (bool found;;) {
        assert_int_equal(kn_documents_next(d, &document, &found), KNNLM_OK);
        if (!found) break;
        assert_int_equal(document.offset, seen);
        assert_memory_equal(document.text, text + seen, document.size);
        assert_memory_equal(document.text, "= ", 2);
        assert_non_null(strchr(document.name, '#'));
        seen += document.size;
        count++;
    }
    assert_int_equal(seen, size);
    assert_true(count >= min);
    kn_documents_close(d);
    free(text);
}

// A listener who wants to stop at its `at`-th report.
typedef struct patience {
    int at, reports;
} patience;

static bool lose_patience(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    patience *p = context;
    (void)done, (void)total;
    assert_string_equal(what, "reading");
    assert_string_equal(unit, "B");
    return ++p->reports != p->at;
}

static knnlm_status read_watched(const char *path, patience *p) {
    kn_progress progress = {lose_patience, p};
    kn_document document;
    bool found = true;
    kn_documents *d = open_one(path, KNNLM_SPLIT_FILE);
    kn_documents_watch(d, &progress);
    knnlm_status status = KNNLM_OK;
    while (status == KNNLM_OK && found) status = kn_documents_next(d, &document, &found);
    kn_documents_close(d);
    return status;
}

static void test_stops_within_a_file(void **state) {
    (void)state;
    size_t size = 3 << 20;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    const char *path = put("large", text, size);
    free(text);
    patience never = {0};
    assert_int_equal(read_watched(path, &never), KNNLM_OK);
    assert_true(never.reports > 4);
    for (int at = 1; at <= never.reports; at++) {
        patience p = {.at = at};
        assert_int_equal(read_watched(path, &p), KNNLM_ESTOPPED);
        assert_int_equal(p.reports, at);
        assert_non_null(strstr(knnlm_message(), "large: stopped"));
    }
}

// A pipe that somebody holds open and writes nothing more to: only the listener can end the wait.
static void test_stops_waiting_for_a_pipe(void **state) {
    (void)state;
    const char *path = at("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int held = open(path, O_RDWR);
    assert_true(held >= 0);
    for (int written = 0; written < 2; written++) {
        patience p = {.at = 4};
        if (written) assert_int_equal(write(held, "some text", 9), 9);
        assert_int_equal(read_watched(path, &p), KNNLM_ESTOPPED);
    }
    close(held);
}

static void test_articles(void **state) {
    (void)state;
    check_articles(KN_SOURCE_DIR "/tests/golden/wiki.txt", 4);
    check_articles(KN_SOURCE_DIR "/tests/golden/books.txt", 2);
}

static void test_articles_of_data(void **state) {
    (void)state;
    check_articles(data_path("data/wiki/valid.txt"), 100);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_file),
        cmocka_unit_test(test_names_and_places),
        cmocka_unit_test(test_empty_file_is_no_document),
        cmocka_unit_test(test_directory_in_name_order),
        cmocka_unit_test(test_many_paths),
        cmocka_unit_test(test_stdin),
        cmocka_unit_test(test_wiki_titles),
        cmocka_unit_test(test_wiki_text_without_title),
        cmocka_unit_test(test_documents_are_the_whole_file),
        cmocka_unit_test(test_zstd_frames_one_after_another),
        cmocka_unit_test(test_zstd_large),
        cmocka_unit_test(test_zstd_cut_off_or_corrupt),
        cmocka_unit_test(test_gzip_members_one_after_another),
        cmocka_unit_test(test_gzip_cut_off_or_corrupt),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_not_utf8_far_in),
        cmocka_unit_test(test_validation_agrees_with_decoding),
        cmocka_unit_test(test_missing_and_unreadable),
        cmocka_unit_test(test_directory_without_files),
        cmocka_unit_test(test_directory_that_contains_itself),
        cmocka_unit_test(test_no_paths),
        cmocka_unit_test(test_stops_within_a_file),
        cmocka_unit_test(test_stops_waiting_for_a_pipe),
        cmocka_unit_test(test_articles),
    };
    const struct CMUnitTest on_data[] = {cmocka_unit_test(test_articles_of_data)};
    if (data_wanted(argc, argv)) {
        DATA_NEEDS("data/wiki/valid.txt");
        return cmocka_run_group_tests(on_data, make_folder, remove_folder);
    }
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
