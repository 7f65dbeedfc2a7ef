// Encodings: marks, and texts decoded however they are cut into reads.
#include "expect.h"

#include "base/random.h"
#include "base/utf8.h"
#include "text/encoding.h"

#include <stdlib.h>
#include <string.h>

// A source that gives `step` bytes at a time.
typedef struct dripping {
    kn_stream base;
    const char *data;
    size_t size, at, step;
} dripping;

static knnlm_status drip(kn_stream *s, char *data, size_t size, size_t *got) {
    dripping *d = (dripping *)s;
    *got = kn_min(kn_min(d->step, size), d->size - d->at);
    memcpy(data, d->data + d->at, *got);
    d->at += *got;
    return KNNLM_OK;
}

static kn_stream *drips(const char *data, size_t size, size_t step) {
    dripping *d = (dripping *)kn_stream_make(sizeof *d, "drip");
    assert_non_null(d);
    d->base.read = drip;
    d->data = data;
    d->size = size;
    d->step = step;
    return &d->base;
}

static knnlm_status decode(const char *encoding, const char *data, size_t size, size_t step, kn_buffer *out) {
    kn_stream *s;
    assert_int_equal(kn_encoding_open(drips(data, size, step), encoding, &s), KNNLM_OK);
    knnlm_status status = kn_stream_read_all(s, SIZE_MAX, out);
    kn_stream_close(s);
    return status;
}

static void check(const char *encoding, const char *data, size_t size, const char *text, size_t text_size) {
    static const size_t steps[] = {1, 2, 3, 7, 1 << 18};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        kn_buffer out = {0};
        assert_int_equal(decode(encoding, data, size, steps[i], &out), KNNLM_OK);
        assert_int_equal(out.size, text_size);
        assert_memory_equal(out.data, text, text_size);
        free(out.data);
    }
}
#define CHECK(encoding, bytes, text) check(encoding, bytes, sizeof bytes - 1, text, sizeof text - 1)

// Bytes by the encodings' own tables.
static void test_known_texts(void **state) {
    (void)state;
    CHECK("latin1", "caf\xE9", "café");
    CHECK("WINDOWS-1252", "\x93q\x94 \x80", "“q” €");
    CHECK("UTF-16LE", "a\0\xE9\0\x3D\xD8\0\xDE", "aé😀");
    CHECK("UTF-16BE", "\0a\0\xE9\xD8\x3D\xDE\0", "aé😀");
    CHECK("UTF-32LE", "a\0\0\0\0\xF6\1\0", "a😀");
    CHECK("SHIFT_JIS", "\x93\xFA\x96\x7B", "日本");
    CHECK("GB18030", "\xC4\xE3\x94\x39\xFC\x36", "你😀");
    CHECK("KOI8-R", "\xED\xC9\xD2", "Мир");
    CHECK("ISO-2022-JP", "\x1B$BF|K\\\x1B(B.", "日本.");
    CHECK("UTF-8", "as it is \xFF", "as it is \xFF"); // for others to refuse
    CHECK(NULL, "as it is", "as it is");
}

// UTF-16 by hand, of every kind of character, over many blocks.
static void test_long_text(void **state) {
    enum { CHARACTERS = 400000 };
    kn_random r = {11};
    char *wide = malloc(4 * CHARACTERS), *text = malloc(4 * CHARACTERS);
    size_t n = 0, size = 0;
    (void)state;
    assert_true(wide && text);
    for (int i = 0; i < CHARACTERS; i++) {
        uint32_t c = (uint32_t)kn_random_below(&r, i % 3 ? 0x10FFFF : 0x7F) + 1;
        if (c >= 0xD800 && c < 0xE000) c = 'x';
        size += kn_utf8_encode(c, text + size);
        uint32_t units[2] = {c, 0};
        if (c >= 0x10000) {
            units[0] = 0xD800 + ((c - 0x10000) >> 10);
            units[1] = 0xDC00 + ((c - 0x10000) & 0x3FF);
        }
        for (int u = 0; u < (units[1] ? 2 : 1); u++) {
            wide[n++] = (char)(units[u] >> 8);
            wide[n++] = (char)units[u];
        }
    }
    check("UTF-16BE", wide, n, text, size);
    free(wide);
    free(text);
}

static void refuse(const char *encoding, const char *data, size_t size, const char *message) {
    for (size_t step = 1; step < 4; step++) {
        kn_buffer out = {0};
        assert_int_equal(decode(encoding, data, size, step, &out), KNNLM_EDATA);
        assert_non_null(strstr(knnlm_message(), message));
        free(out.data);
    }
}

static void test_refusals(void **state) {
    kn_stream *s;
    (void)state;
    refuse("UTF-16LE", "a\0\0\xD8x\0", 6, "drip: not UTF-16LE at byte 2");
    refuse("UTF-16LE", "a\0b", 3, "not UTF-16LE, cut off at byte 2");
    refuse("SHIFT_JIS", "ok\x93", 3, "not SHIFT_JIS, cut off at byte 2");
    refuse("US-ASCII", "ab\xE9", 3, "not US-ASCII at byte 2");
    assert_int_equal(kn_encoding_check("klingon"), KNNLM_EINVAL);
    assert_int_equal(kn_encoding_check(""), KNNLM_EINVAL);
    assert_int_equal(kn_encoding_check("latin1"), KNNLM_OK);
    assert_int_equal(kn_encoding_open(drips("", 0, 1), "klingon", &s), KNNLM_EINVAL);
}

// What is read whole has a limit.
static void test_limit(void **state) {
    (void)state;
    for (size_t max = 9; max < 12; max++) {
        kn_buffer out = {0};
        kn_stream *s = drips("0123456789", 10, 3);
        assert_int_equal(kn_stream_read_all(s, max, &out), max < 10 ? KNNLM_ENOTSUP : KNNLM_OK);
        kn_stream_close(s);
        free(out.data);
    }
}

static void test_marks(void **state) {
    static const struct {
        const char *bytes, *encoding;
        size_t size, mark;
    } marks[] = {{"\xEF\xBB\xBFx", "UTF-8", 4, 3},
                 {"\xFF\xFEx\0", "UTF-16LE", 4, 2},
                 {"\xFE\xFF\0x", "UTF-16BE", 4, 2},
                 {"\xFF\xFE\0\0", "UTF-32LE", 4, 4},
                 {"\0\0\xFE\xFF", "UTF-32BE", 4, 4},
                 {"\xEF\xBB", NULL, 2, 0},
                 {"text", NULL, 4, 0},
                 {"", NULL, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t mark;
        const char *encoding = kn_encoding_mark(marks[i].bytes, marks[i].size, &mark);
        assert_int_equal(mark, marks[i].mark);
        assert_int_equal(encoding != NULL, marks[i].encoding != NULL);
        if (encoding) assert_string_equal(encoding, marks[i].encoding);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_texts), cmocka_unit_test(test_long_text), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limit),       cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
