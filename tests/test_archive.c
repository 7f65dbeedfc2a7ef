// Archives made by hand, byte by byte: their members, whether the source can seek or not, and every place at
// which they may be cut off; xz and bzip2 likewise.
#include "folder.h"

#include "text/archive.h"
#include "text/input.h"
#include "text/unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// ---- writing

static void put_raw(kn_buffer *b, const char *data, size_t size) {
    assert_int_equal(kn_buffer_put(b, data, size), KNNLM_OK);
}

static void put_number(kn_buffer *b, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) put_raw(b, &(char){(char)(value >> (8 * i))}, 1);
}

// A header of 512 bytes (octal numbers, the sum with its own field as spaces), content in blocks of 512.
static void put_tar(kn_buffer *b, const char *name, char type, const char *content) {
    char header[512] = {0}, zeros[512] = {0};
    unsigned sum = 0;
    size_t size = strlen(content);
    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000644\0000000000\0000000000\0", 24);
    snprintf(header + 124, 12, "%011o", (unsigned)size % 4096);
    memcpy(header + 136, "00000000000\0        ", 20);
    header[156] = type;
    if (type == '2') strcpy(header + 157, "target");
    memcpy(header + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof header; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    put_raw(b, header, sizeof header);
    put_raw(b, content, size);
    put_raw(b, zeros, (512 - size % 512) % 512);
}

static void end_tar(kn_buffer *b) {
    char zeros[1024] = {0};
    put_raw(b, zeros, sizeof zeros);
}

typedef struct entry {
    const char *name, *content;
    uint32_t offset;
} entry;

// What a local header and the directory say alike.
static void put_zip_fields(kn_buffer *b, const entry *e) {
    uint32_t size = (uint32_t)strlen(e->content);
    put_number(b, 20, 2);
    put_number(b, 0x800, 2);       // names are UTF-8
    put_raw(b, "\0\0\0\0\0\0", 6); // stored, no time
    put_number(b, (uint32_t)crc32(0, (const Bytef *)e->content, size), 4);
    put_number(b, size, 4);
    put_number(b, size, 4);
    put_number(b, (uint32_t)strlen(e->name), 2);
    put_number(b, 0, 2);
}

static void put_zip(kn_buffer *b, entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        entries[i].offset = (uint32_t)b->size;
        put_raw(b, "PK\3\4", 4);
        put_zip_fields(b, &entries[i]);
        put_raw(b, entries[i].name, strlen(entries[i].name));
        put_raw(b, entries[i].content, strlen(entries[i].content));
    }
    uint32_t directory = (uint32_t)b->size;
    for (size_t i = 0; i < count; i++) {
        put_raw(b, "PK\1\2", 4);
        put_number(b, 20, 2);
        put_zip_fields(b, &entries[i]);
        put_raw(b, "\0\0\0\0\0\0\0\0\0\0", 10); // comment, disk, attributes
        put_number(b, entries[i].offset, 4);
        put_raw(b, entries[i].name, strlen(entries[i].name));
    }
    uint32_t bytes = (uint32_t)b->size - directory;
    put_raw(b, "PK\5\6\0\0\0\0", 8);
    put_number(b, (uint32_t)count, 2);
    put_number(b, (uint32_t)count, 2);
    put_number(b, bytes, 4);
    put_number(b, directory, 4);
    put_number(b, 0, 2);
}

// ---- reading

static kn_stream *in_memory(const char *data, size_t size) {
    kn_buffer copy = {0};
    kn_stream *s;
    put_raw(&copy, data, size);
    assert_int_equal(kn_stream_of_memory(&copy, "memory", &s), KNNLM_OK);
    return s;
}

static kn_stream *on_disk(const char *data, size_t size) {
    const char *trouble;
    kn_stream *s;
    assert_int_equal(kn_input_open(put("archive", data, size), NULL, &trouble, &s), KNNLM_OK);
    assert_non_null(s->seek);
    return s;
}

// "name=content;" of every file, "name@;" of links; what was read before a failure stays.
static knnlm_status list(kn_stream *source, kn_form form, kn_buffer *out) {
    kn_archive *a;
    knnlm_status status = kn_archive_open(source, form, &a);
    if (status != KNNLM_OK) return status;
    for (bool found = true; status == KNNLM_OK;) {
        kn_member m;
        kn_stream *s;
        status = kn_archive_next(a, &m, &found);
        if (status != KNNLM_OK || !found) break;
        put_raw(out, m.name, strlen(m.name));
        put_raw(out, m.kind == KN_MEMBER_LINK ? "@" : "=", 1);
        assert_int_equal(kn_archive_read(a, m.name, &s), KNNLM_OK);
        if (m.kind == KN_MEMBER_FILE) status = kn_stream_read_all(s, 1 << 20, out);
        kn_stream_close(s);
        put_raw(out, ";", 1);
    }
    kn_archive_close(a);
    return status;
}

static void expect_list(kn_stream *source, kn_form form, const char *wanted) {
    kn_buffer out = {0};
    assert_int_equal(list(source, form, &out), KNNLM_OK);
    put_raw(&out, "", 1);
    assert_string_equal(out.data, wanted);
    free(out.data);
}

static void test_tar(void **state) {
    static const char wanted[] = "a.txt=one;b/ü.txt=two;link@;top=three;";
    kn_buffer b = {0};
    (void)state;
    put_tar(&b, "./a.txt", '0', "one");
    put_tar(&b, "b/ü.txt", '0', "two");
    put_tar(&b, "link", '2', "");
    put_tar(&b, "/top", '0', "three");
    end_tar(&b);
    const kn_foreign_form *foreign;
    assert_int_equal(kn_form_tell(b.data, b.size, "", &foreign), KN_FORM_TAR);
    expect_list(in_memory(b.data, b.size), KN_FORM_TAR, wanted);
    expect_list(on_disk(b.data, b.size), KN_FORM_TAR, wanted);
    free(b.data);
}

static void test_zip(void **state) {
    entry entries[] = {{"a.txt", "one", 0}, {"b/ü.txt", "two", 0}, {"c", "", 0}};
    static const char wanted[] = "a.txt=one;b/ü.txt=two;c=;";
    kn_buffer b = {0};
    (void)state;
    put_zip(&b, entries, 3);
    expect_list(in_memory(b.data, b.size), KN_FORM_ZIP, wanted);
    expect_list(on_disk(b.data, b.size), KN_FORM_ZIP, wanted);
    memcpy(b.data + 30 + 5, "ONE", 3); // not what the checksum says
    for (int i = 0; i < 2; i++) {
        kn_buffer out = {0};
        kn_stream *s = i ? on_disk(b.data, b.size) : in_memory(b.data, b.size);
        assert_int_equal(list(s, KN_FORM_ZIP, &out), KNNLM_EDATA);
        free(out.data);
    }
    free(b.data);
}

// Of an archive that is cut off, what comes is a beginning of what would have come, or a failure.
static void test_cut_off(void **state) {
    entry entries[] = {{"a", "some content", 0}, {"b", "more of it", 0}};
    kn_buffer tar = {0}, zip = {0};
    (void)state;
    put_tar(&tar, "a", '0', "some content");
    put_tar(&tar, "b", '0', "more of it");
    end_tar(&tar);
    put_zip(&zip, entries, 2);
    for (int which = 0; which < 2; which++) {
        const kn_buffer *b = which ? &zip : &tar;
        kn_form form = which ? KN_FORM_ZIP : KN_FORM_TAR;
        for (size_t cut = 0; cut < b->size; cut += which ? 1 : 37) {
            kn_buffer out = {0};
            kn_stream *s = cut % 2 ? on_disk(b->data, cut) : in_memory(b->data, cut);
            knnlm_status status = list(s, form, &out);
            assert_true(status == KNNLM_OK || status == KNNLM_EDATA);
            if (status == KNNLM_OK)
                assert_memory_equal(out.size ? out.data : "", "a=some content;b=more of it;", out.size);
            free(out.data);
        }
    }
    free(tar.data);
    free(zip.data);
}

// ---- xz and bzip2: "a text, " six times, packed by Python's modules

static const char xz[] =
    "\xFD\x37\x7A\x58\x5A\x00\x00\x04\xE6\xD6\xB4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2F\xE5\xA3"
    "\xE0\x00\x2F\x00\x0F\x5D\x00\x30\x88\x0A\x86\x94\x88\x13\xFF\x07\x99\x2B\x99\xFD\x00\x00\x00\x00"
    "\xAA\x97\xB5\x99\xAD\x66\xB8\xE5\x00\x01\x2B\x30\xEE\x78\x2F\x70\x1F\xB6\xF3\x7D\x01\x00\x00\x00"
    "\x00\x04\x59\x5A";

static const char bzip2[] =
    "\x42\x5A\x68\x39\x31\x41\x59\x26\x53\x59\x5B\x3F\x6B\x4B\x00\x00\x0B\x91\x80\x40\x04\x22\x00\x04"
    "\x40\x20\x00\x30\xC0\x04\x53\x46\x98\x30\x78\x74\x70\x68\xC1\xA3\xE2\xEE\x48\xA7\x0A\x12\x0B\x67"
    "\xED\x69\x60";

static knnlm_status unpack(const char *data, size_t size, kn_form form, kn_buffer *out) {
    kn_stream *s;
    knnlm_status status = kn_unpack_open(in_memory(data, size), form, &s);
    if (status != KNNLM_OK) return status;
    status = kn_stream_read_all(s, 1 << 20, out);
    kn_stream_close(s);
    return status;
}

static void check_packed(const char *data, size_t size, kn_form form) {
    static const char text[] = "a text, a text, a text, a text, a text, a text, ";
    const kn_foreign_form *foreign;
    kn_buffer out = {0};
    assert_int_equal(kn_form_tell(data, size, "", &foreign), form);
    assert_int_equal(unpack(data, size, form, &out), KNNLM_OK);
    assert_int_equal(out.size, sizeof text - 1);
    assert_memory_equal(out.data, text, out.size);
    for (size_t cut = 12; cut < size; cut++) {
        out.size = 0;
        assert_int_equal(unpack(data, cut, form, &out), KNNLM_EDATA);
    }
    char *bad = malloc(size);
    memcpy(bad, data, size);
    bad[size / 2] ^= 1;
    assert_int_equal(unpack(bad, size, form, &out), KNNLM_EDATA);
    free(bad);
    free(out.data);
}

static void test_packed(void **state) {
    (void)state;
    check_packed(xz, sizeof xz - 1, KN_FORM_XZ);
    check_packed(bzip2, sizeof bzip2 - 1, KN_FORM_BZIP2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tar),
        cmocka_unit_test(test_zip),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
