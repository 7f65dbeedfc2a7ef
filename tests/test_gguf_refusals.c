// Bad GGUF files are errors that name the place: cut off or changed at every byte, with counts beyond the
// file, of other versions, or none at all; nothing crashes, and nothing is allocated for what is not there.
#include "gguf_kit.h"

#include "base/gguf.h"
#include "base/memory.h"

#include <string.h>

static void refused_with(const struct bytes *b, knnlm_status status, const char *text) {
    kn_gguf *file;
    FAILS(status, text, parse(b, &file));
    assert_null(file);
    assert_true(strncmp(knnlm_message(), "model.gguf: ", 12) == 0);
}

static void refused(const struct bytes *b, const char *text) {
    refused_with(b, KNNLM_EDATA, text);
}

// A small file and where its fields are.
struct small {
    struct bytes b;
    size_t key_length, value_kind, string_length, array_kind, array_count, element_length, table, table_name,
        n_dims, dim, type, offset, second_offset, data_end;
};

static void small_file(struct small *s) {
    struct bytes *b = &s->b;
    *s = (struct small){0};
    header(b, 2, 3);
    s->key_length = b->size;
    scalar(b, "n", 4, 7, 4);
    s->value_kind = s->key_length + 9;
    key(b, "text", 8);
    s->string_length = b->size;
    string(b, "abc");
    array(b, "list", 8, 2);
    s->array_kind = b->size - 12;
    s->array_count = b->size - 8;
    s->element_length = b->size;
    string(b, "x");
    string(b, "yz");
    s->table = s->table_name = b->size;
    tensor(b, "a", 1, (int64_t[]){4}, 0, 0);
    s->n_dims = s->table + 9;
    s->dim = s->table + 13;
    s->type = s->table + 21;
    s->offset = s->table + 25;
    tensor(b, "b", 1, (int64_t[]){5}, 0, 32);
    s->second_offset = b->size - 8;
    pad(b, 32);
    floats(b, (float[]){1, 2, 3, 4}, 4);
    pad(b, 32);
    floats(b, (float[]){5, 6, 7, 8, 9}, 5);
    s->data_end = b->size;
    pad(b, 32);
}

static void set(struct bytes *b, size_t at, uint64_t value, int size) {
    for (int i = 0; i < size; i++) b->data[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

static void with(size_t at, uint64_t value, int size, const char *text) {
    struct small s;
    small_file(&s);
    set(&s.b, at, value, size);
    refused(&s.b, text);
}

static void truncation_at_every_byte_is_an_error(void **state) {
    (void)state;
    struct small s;
    kn_gguf *file;
    small_file(&s);
    for (size_t size = 0; size < s.data_end; size++) {
        struct bytes cut = s.b;
        cut.size = size;
        refused(&cut, "");
    }
    for (size_t size = s.data_end; size <= s.b.size; size++) { // the last padding carries nothing
        struct bytes cut = s.b;
        cut.size = size;
        OK(parse(&cut, &file));
        kn_gguf_close(file);
    }
    s.b.size = s.value_kind + 4 + 1;
    s.b.data[16] = 1; // fewer keys: the count itself must fit the shorter file
    s.b.data[8] = 0;
    refused(&s.b, "model.gguf: truncated: key \"n\" at byte 37 needs 3 more bytes");
}

static void every_byte_changed_is_no_crash(void **state) {
    (void)state;
    struct small s;
    small_file(&s);
    for (size_t at = 0; at < s.b.size; at++) {
        static const uint8_t changes[] = {0x01, 0x80, 0xff, 0x20};
        for (int i = 0; i < 4; i++) {
            struct bytes changed = s.b;
            changed.data[at] ^= changes[i];
            kn_gguf *file;
            if (parse(&changed, &file) == KNNLM_OK) kn_gguf_close(file);
        }
    }
}

static void huge_counts_are_errors_and_take_no_memory(void **state) {
    (void)state;
    static const uint64_t huge[] = {UINT64_MAX,     1ull << 63, INT64_MAX,  (1ull << 61) + 1, 1ull << 60,
                                    UINT64_MAX / 8, 1ull << 32, UINT32_MAX, 1u << 20,         1000};
    struct small s;
    small_file(&s);
    uint64_t before = kn_memory_peak();
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        with(8, huge[i], 8, "tensors cannot be in a file of");
        with(16, huge[i], 8, "keys cannot be in a file of");
        with(s.key_length, huge[i], 8, "truncated: key number 1");
        with(s.string_length, huge[i], 8, "truncated: key \"text\"");
        with(s.array_count, huge[i], 8, "strings cannot be in a file of");
        with(s.element_length, huge[i], 8, "truncated: key \"list\"");
        with(s.table_name, huge[i], 8, "truncated: tensor number 1");
        with(s.dim, huge[i], 8, "tensor \"a\"");
        with(s.offset, huge[i], 8, "tensor \"a\"");
        struct small scalars;
        small_file(&scalars);
        set(&scalars.b, scalars.array_kind, 12, 4);
        set(&scalars.b, scalars.array_count, huge[i], 8);
        refused(&scalars.b, "key \"list\"");
    }
    assert_true(kn_memory_peak() - before < 16 << 20);
}

static void bad_fields_are_named(void **state) {
    (void)state;
    struct small s;
    small_file(&s);
    with(0, 'X', 1, "not a GGUF file");
    with(s.value_kind, 13, 4, "key \"n\" at byte 33: unknown type 13");
    with(s.value_kind, UINT32_MAX, 4, "unknown type 4294967295");
    with(s.array_kind, 9, 4, "key \"list\" at byte");
    with(s.array_kind, 9, 4, "arrays of arrays");
    with(s.array_kind, 99, 4, "unknown type 99");
    with(s.n_dims, 0, 4, "1 to 4 dimensions");
    with(s.n_dims, 5, 4, "1 to 4 dimensions");
    with(s.n_dims, UINT32_MAX, 4, "1 to 4 dimensions");
    with(s.dim, 0, 8, "not positive");
    with(s.dim, (uint64_t)-4, 8, "not positive");
    with(s.dim, 1ull << 62, 8, "overflow");
    with(s.type, 8, 4, "block size");
    with(s.offset, 8, 8, "no multiple of 32");
    with(s.offset, 1 << 20, 8, "outside the file");
    with(s.second_offset, 0, 8, "overlaps that of");
    with(s.dim, 9, 8, "tensor \"b\" at byte");
    with(s.dim, 9, 8, "overlaps that of \"a\"");
    with(s.key_length, 0, 8, "its name is empty");
    with(s.key_length + 8, 0, 1, "key number 1 at byte 24: its name holds a NUL");
}

// No escape sequence of a file reaches the terminal.
static void names_from_the_file_are_made_printable(void **state) {
    (void)state;
    struct small s;
    small_file(&s);
    set(&s.b, s.key_length + 8, 0x1b, 1);
    set(&s.b, s.value_kind, 77, 4);
    refused(&s.b, "key \"?\" at byte 33");
}

static void twice_the_same_name_is_an_error(void **state) {
    (void)state;
    struct bytes b = {0};
    header(&b, 0, 3);
    scalar(&b, "x", 0, 1, 1);
    scalar(&b, "y", 0, 1, 1);
    scalar(&b, "x", 0, 2, 1);
    refused(&b, "key \"x\"");
    struct small s;
    small_file(&s);
    s.b.data[s.second_offset - 4 - 8 - 4 - 1] = 'a';
    refused(&s.b, "tensor \"a\"");
}

static void long_names_are_errors(void **state) {
    (void)state;
    char name[66] = {0};
    kn_gguf *file;
    memset(name, 'n', 65);
    struct bytes b = {0};
    header(&b, 1, 0);
    tensor(&b, name, 1, (int64_t[]){1}, 0, 0);
    pad(&b, 32);
    number(&b, 0, 4);
    refused(&b, "its name has 65 bytes");
    name[64] = 0;
    b.size = 0;
    header(&b, 1, 0);
    tensor(&b, name, 1, (int64_t[]){1}, 0, 0);
    pad(&b, 32);
    number(&b, 0, 4);
    OK(parse(&b, &file));
    assert_non_null(kn_gguf_tensor_find(file, name));
    kn_gguf_close(file);
}

static void bad_alignments_are_errors(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 24, 33, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bytes b = {0};
        header(&b, 0, 1);
        scalar(&b, "general.alignment", 4, bad[i], 4);
        refused(&b, "general.alignment");
    }
    struct bytes far = {0};
    header(&far, 1, 1);
    scalar(&far, "general.alignment", 11, 1ull << 62, 8);
    tensor(&far, "t", 1, (int64_t[]){1}, 0, 0);
    pad(&far, 64);
    refused(&far, "outside the file");
    struct bytes text = {0};
    header(&text, 0, 1);
    key(&text, "general.alignment", 8);
    string(&text, "32");
    refused(&text, "is of type string");
}

static void other_versions_are_named(void **state) {
    (void)state;
    kn_gguf *file;
    struct small s;
    small_file(&s);
    set(&s.b, 4, 2, 4);
    OK(parse(&s.b, &file));
    kn_gguf_close(file);
    set(&s.b, 4, 1, 4);
    refused_with(&s.b, KNNLM_ENOTSUP, "GGUF version 1:");
    set(&s.b, 4, 0, 4);
    refused_with(&s.b, KNNLM_ENOTSUP, "GGUF version 0:");
    set(&s.b, 4, 4, 4);
    refused_with(&s.b, KNNLM_ENOTSUP, "GGUF version 4:");
    set(&s.b, 4, 0x03000000, 4);
    refused_with(&s.b, KNNLM_ENOTSUP, "big-endian");
}

static void files_that_are_none_are_errors(void **state) {
    (void)state;
    kn_gguf *file;
    FAILS(KNNLM_EIO, "no-such-file.gguf", kn_gguf_open("no-such-file.gguf", &file));
    FAILS(KNNLM_EIO, "/tmp", kn_gguf_open("/tmp", &file));
    FAILS(KNNLM_EDATA, "/dev/null: not a GGUF file", kn_gguf_parse("/dev/null", NULL, 0, &file));
    kn_gguf_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncation_at_every_byte_is_an_error),
        cmocka_unit_test(every_byte_changed_is_no_crash),
        cmocka_unit_test(huge_counts_are_errors_and_take_no_memory),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(names_from_the_file_are_made_printable),
        cmocka_unit_test(twice_the_same_name_is_an_error),
        cmocka_unit_test(long_names_are_errors),
        cmocka_unit_test(bad_alignments_are_errors),
        cmocka_unit_test(other_versions_are_named),
        cmocka_unit_test(files_that_are_none_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
