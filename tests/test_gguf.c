// GGUF files are read: every kind of value, arrays, tensors; and models that other programs wrote, which come
// back byte by byte when they are written anew.
#include "gguf_kit.h"

#include "base/file.h"
#include "base/gguf.h"
#include "base/memory.h"

#include <stdlib.h>
#include <unistd.h>

#include "data.h"

#define MODEL "models/stories15M-f16.gguf"

// ---- reading

static void holds_i64(const kn_gguf *file, const char *name, int64_t expected) {
    int64_t value = 0;
    bool found;
    OK(kn_gguf_get_i64(file, name, &value, &found));
    assert_true(found);
    assert_true(value == expected);
}

static void holds_f64(const kn_gguf *file, const char *name, double expected) {
    double value = 0;
    bool found;
    OK(kn_gguf_get_f64(file, name, &value, &found));
    assert_true(found);
    assert_true(value == expected);
}

static void holds_bool(const kn_gguf *file, const char *name, bool expected) {
    bool value, found;
    OK(kn_gguf_get_bool(file, name, &value, &found));
    assert_true(found);
    assert_int_equal(value, expected);
}

static void holds_string(const kn_gguf *file, const char *name, const char *expected) {
    const char *value;
    bool found;
    OK(kn_gguf_get_string(file, name, &value, &found));
    assert_true(found);
    assert_string_equal(value, expected);
}

static void holds_element(const kn_gguf *file, const char *name, size_t index, const char *expected,
                          size_t size) {
    const char *value;
    size_t length;
    OK(kn_gguf_array_string(file, name, index, &value, &length));
    assert_int_equal(length, size);
    assert_memory_equal(value, expected, size);
}

static size_t holds_array(const kn_gguf *file, const char *name) {
    size_t count = 0;
    bool found;
    OK(kn_gguf_get_array(file, name, &count, &found));
    assert_true(found);
    return count;
}

static void every_kind_of_value_is_read(void **state) {
    (void)state;
    struct bytes b = {0};
    kn_gguf *file;
    header(&b, 0, 12);
    scalar(&b, "u8", 0, 250, 1);
    scalar(&b, "i8", 1, (uint64_t)-7, 1);
    scalar(&b, "u16", 2, 65000, 2);
    scalar(&b, "i16", 3, (uint64_t)-30000, 2);
    scalar(&b, "u32", 4, 4000000000u, 4);
    scalar(&b, "i32", 5, (uint64_t)-2000000000, 4);
    scalar(&b, "f32", 6, 0x3fc00000, 4);
    scalar(&b, "bool", 7, 1, 1);
    key(&b, "string", 8);
    string(&b, "h\xc3\xa9llo");
    scalar(&b, "u64", 10, 1ull << 62, 8);
    scalar(&b, "i64", 11, (uint64_t)INT64_MIN, 8);
    scalar(&b, "f64", 12, 0xbff8000000000000, 8);
    OK(parse(&b, &file));
    assert_int_equal(kn_gguf_key_count(file), 12);
    assert_string_equal(kn_gguf_key_at(file, 3), "i16");
    assert_int_equal(kn_gguf_tensor_count(file), 0);
    holds_i64(file, "u8", 250);
    holds_i64(file, "i8", -7);
    holds_i64(file, "u16", 65000);
    holds_i64(file, "i16", -30000);
    holds_i64(file, "u32", 4000000000);
    holds_i64(file, "i32", -2000000000);
    holds_i64(file, "u64", INT64_C(1) << 62);
    holds_i64(file, "i64", INT64_MIN);
    holds_f64(file, "f32", 1.5);
    holds_f64(file, "f64", -1.5);
    holds_bool(file, "bool", true);
    holds_string(file, "string", "h\xc3\xa9llo");
    kn_gguf_close(file);
}

static void arrays_are_read(void **state) {
    (void)state;
    struct bytes b = {0};
    kn_gguf *file;
    int64_t i;
    double d;
    const char *text;
    size_t size;
    header(&b, 0, 5);
    array(&b, "words", 8, 3);
    string(&b, "one");
    string(&b, "");
    number(&b, 3, 8);
    raw(&b, "a\0b", 3);
    array(&b, "i16s", 3, 2);
    number(&b, 5, 2);
    number(&b, (uint64_t)-5, 2);
    array(&b, "f64s", 12, 1);
    number(&b, 0x4000000000000000, 8);
    array(&b, "none", 8, 0);
    array(&b, "u64s", 10, 1);
    number(&b, UINT64_MAX, 8);
    OK(parse(&b, &file));
    assert_int_equal(holds_array(file, "words"), 3);
    holds_element(file, "words", 0, "one", 3);
    holds_element(file, "words", 1, "", 0);
    holds_element(file, "words", 2, "a\0b", 3);
    OK(kn_gguf_array_i64(file, "i16s", 1, &i));
    assert_int_equal(i, -5);
    OK(kn_gguf_array_f64(file, "f64s", 0, &d));
    assert_true(d == 2);
    assert_int_equal(holds_array(file, "none"), 0);
    FAILS(KNNLM_EDATA, "too large", kn_gguf_array_i64(file, "u64s", 0, &i));
    FAILS(KNNLM_EINVAL, "no element 2", kn_gguf_array_i64(file, "i16s", 2, &i));
    FAILS(KNNLM_EINVAL, "no element 0", kn_gguf_array_string(file, "none", 0, &text, &size));
    FAILS(KNNLM_EDATA, "array of i16", kn_gguf_array_string(file, "i16s", 0, &text, &size));
    FAILS(KNNLM_EDATA, "array of string", kn_gguf_array_i64(file, "words", 0, &i));
    FAILS(KNNLM_EDATA, "no key \"absent\"", kn_gguf_array_i64(file, "absent", 0, &i));
    kn_gguf_close(file);
}

static void absent_and_mistyped_values_are_told_apart(void **state) {
    (void)state;
    struct bytes b = {0};
    kn_gguf *file;
    int64_t i = 42;
    double d;
    const char *text;
    bool truth, found = true;
    size_t count;
    header(&b, 0, 4);
    scalar(&b, "n", 4, 1, 4);
    scalar(&b, "x", 6, 0, 4);
    key(&b, "nul", 8);
    number(&b, 3, 8);
    raw(&b, "a\0b", 3);
    array(&b, "list", 4, 0);
    OK(parse(&b, &file));
    OK(kn_gguf_get_i64(file, "absent", &i, &found));
    assert_false(found);
    assert_int_equal(i, 42);
    FAILS(KNNLM_EDATA, "model.gguf: key \"n\" is of type u32", kn_gguf_get_string(file, "n", &text, &found));
    FAILS(KNNLM_EDATA, "key \"x\" is of type f32", kn_gguf_get_i64(file, "x", &i, &found));
    FAILS(KNNLM_EDATA, "key \"n\"", kn_gguf_get_f64(file, "n", &d, &found));
    FAILS(KNNLM_EDATA, "key \"n\"", kn_gguf_get_bool(file, "n", &truth, &found));
    FAILS(KNNLM_EDATA, "key \"n\"", kn_gguf_get_array(file, "n", &count, &found));
    FAILS(KNNLM_EDATA, "array of u32", kn_gguf_get_i64(file, "list", &i, &found));
    FAILS(KNNLM_EDATA, "holds a NUL", kn_gguf_get_string(file, "nul", &text, &found));
    kn_gguf_close(file);
}

static void tensors_are_read(void **state) {
    (void)state;
    struct bytes b = {0};
    kn_gguf *file;
    float out[64];
    header(&b, 4, 1);
    scalar(&b, "general.alignment", 4, 64, 4);
    tensor(&b, "half", 2, (int64_t[]){2, 3}, 1, 128);
    tensor(&b, "single", 1, (int64_t[]){3}, 0, 0);
    tensor(&b, "odd", 3, (int64_t[]){256, 2, 1}, 16, 64);
    tensor(&b, "ints", 1, (int64_t[]){2}, 27, 192);
    pad(&b, 64);
    floats(&b, (float[]){1, -2, 3}, 3);
    pad(&b, 64);
    number(&b, 9, 1);
    pad(&b, 64);
    for (int i = 0; i < 6; i++) number(&b, 0x3c00 + 0x8000 * (unsigned)(i % 2), 2);
    pad(&b, 64);
    number(&b, 5, 8);
    number(&b, (uint64_t)-5, 8);
    OK(parse(&b, &file));
    assert_int_equal(kn_gguf_tensor_count(file), 4);
    const kn_gguf_tensor *half = kn_gguf_tensor_at(file, 0), *odd = kn_gguf_tensor_find(file, "odd");
    assert_string_equal(half->name, "half");
    assert_int_equal(half->n_dims, 2);
    assert_true(half->dims[0] == 2 && half->dims[1] == 3 && half->dims[2] == 1 && half->dims[3] == 1);
    assert_int_equal(half->size, 12);
    OK(kn_gguf_tensor_f32(half, 1, 5, out));
    assert_true(out[0] == -1 && out[1] == 1 && out[4] == -1);
    OK(kn_gguf_tensor_f32(kn_gguf_tensor_find(file, "single"), 0, 3, out));
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == 3);
    FAILS(KNNLM_EINVAL, "6 elements", kn_gguf_tensor_f32(half, 3, 4, out));
    FAILS(KNNLM_EINVAL, "outside", kn_gguf_tensor_f32(half, SIZE_MAX, 2, out));
    assert_int_equal(odd->size, 0);
    assert_int_equal(*odd->data, 9);
    FAILS(KNNLM_ENOTSUP, "tensor \"odd\" is of type 16 (IQ2_XXS)", kn_gguf_tensor_f32(odd, 0, 1, out));
    FAILS(KNNLM_ENOTSUP, "(I64)", kn_gguf_tensor_f32(kn_gguf_tensor_find(file, "ints"), 0, 1, out));
    assert_null(kn_gguf_tensor_find(file, "absent"));
    kn_gguf_close(file);
}

// ---- a real model, written by another program

static void stories15m_is_what_it_is_known_to_be(void **state) {
    (void)state;
    kn_gguf *file;
    float row[288];
    double score;
    OK(kn_gguf_open(data_path(MODEL), &file));
    holds_string(file, "general.architecture", "llama");
    holds_i64(file, "llama.embedding_length", 288);
    holds_i64(file, "llama.block_count", 6);
    holds_i64(file, "llama.context_length", 256);
    assert_int_equal(holds_array(file, "tokenizer.ggml.tokens"), 32000);
    holds_element(file, "tokenizer.ggml.tokens", 1, "<s>", 3);
    holds_element(file, "tokenizer.ggml.tokens", 13, "<0x0A>", 6);
    OK(kn_gguf_array_f64(file, "tokenizer.ggml.scores", 31999, &score));
    assert_true(score == -31740);
    const kn_gguf_tensor *embedding = kn_gguf_tensor_find(file, "token_embd.weight");
    assert_non_null(embedding);
    assert_true(embedding->dims[0] == 288 && embedding->dims[1] == 32000);
    OK(kn_gguf_tensor_f32(embedding, 0, 288, row));
    assert_true(row[0] == -0.059814453125f && row[1] == -0.0145645141601562f);
    kn_gguf_close(file);
}

static void copy_strings(const kn_gguf *file, kn_gguf_writer *w, const char *name, size_t count) {
    const char **texts = kn_alloc(count, sizeof *texts);
    size_t *sizes = kn_alloc(count, sizeof *sizes);
    for (size_t i = 0; i < count; i++) OK(kn_gguf_array_string(file, name, i, &texts[i], &sizes[i]));
    OK(kn_gguf_put_strings(w, name, texts, sizes, count));
    free(texts);
    free(sizes);
}

static void copy_integers(const kn_gguf *file, kn_gguf_writer *w, const char *name, size_t count) {
    int32_t *values = kn_alloc(count, sizeof *values);
    int64_t value;
    for (size_t i = 0; i < count; i++) {
        OK(kn_gguf_array_i64(file, name, i, &value));
        values[i] = (int32_t)value;
    }
    OK(kn_gguf_put_i32s(w, name, values, count));
    free(values);
}

static void copy_reals(const kn_gguf *file, kn_gguf_writer *w, const char *name, size_t count) {
    float *values = kn_alloc(count, sizeof *values);
    double value;
    for (size_t i = 0; i < count; i++) {
        OK(kn_gguf_array_f64(file, name, i, &value));
        values[i] = (float)value;
    }
    OK(kn_gguf_put_f32s(w, name, values, count));
    free(values);
}

static void copy_array(const kn_gguf *file, kn_gguf_writer *w, const char *name) {
    const char *text;
    size_t size, count = holds_array(file, name);
    int64_t integer;
    if (kn_gguf_array_string(file, name, 0, &text, &size) == KNNLM_OK)
        copy_strings(file, w, name, count);
    else if (kn_gguf_array_i64(file, name, 0, &integer) == KNNLM_OK)
        copy_integers(file, w, name, count);
    else
        copy_reals(file, w, name, count);
}

static void copy_value(const kn_gguf *file, kn_gguf_writer *w, const char *name) {
    int64_t integer;
    double real;
    const char *text;
    bool truth, found;
    if (kn_gguf_get_i64(file, name, &integer, &found) == KNNLM_OK)
        OK(kn_gguf_put_u32(w, name, (uint32_t)integer));
    else if (kn_gguf_get_f64(file, name, &real, &found) == KNNLM_OK)
        OK(kn_gguf_put_f32(w, name, (float)real));
    else if (kn_gguf_get_bool(file, name, &truth, &found) == KNNLM_OK)
        OK(kn_gguf_put_bool(w, name, truth));
    else if (kn_gguf_get_string(file, name, &text, &found) == KNNLM_OK)
        OK(kn_gguf_put_string(w, name, text));
    else
        copy_array(file, w, name);
}

static void copy_data(kn_gguf_writer *w, const kn_gguf_tensor *tensor) {
    size_t count = tensor->size / (tensor->type == KN_GGUF_F32 ? 4 : 2);
    float *values = kn_alloc(count, sizeof *values);
    OK(kn_gguf_tensor_f32(tensor, 0, count, values));
    OK(kn_gguf_put_data_f32(w, values, count));
    free(values);
}

static void copy_model(const kn_gguf *file, kn_gguf_writer *w) {
    for (size_t i = 0; i < kn_gguf_key_count(file); i++) copy_value(file, w, kn_gguf_key_at(file, i));
    for (size_t i = 0; i < kn_gguf_tensor_count(file); i++) {
        const kn_gguf_tensor *t = kn_gguf_tensor_at(file, i);
        OK(kn_gguf_put_tensor(w, t->name, (kn_gguf_type)t->type, t->n_dims, t->dims));
    }
    for (size_t i = 0; i < kn_gguf_tensor_count(file); i++) copy_data(w, kn_gguf_tensor_at(file, i));
}

// The model read and written anew: every byte must come back, values and numbers included.
static void check_copy(const char *path, const char *again) {
    kn_gguf *file;
    kn_gguf_writer *w;
    kn_map original, copy;
    OK(kn_gguf_open(path, &file));
    OK(kn_gguf_writer_open(again, &w));
    copy_model(file, w);
    OK(kn_gguf_writer_commit(w));
    OK(kn_map_open(path, &original));
    OK(kn_map_open(again, &copy));
    assert_int_equal(original.size, copy.size);
    assert_memory_equal(original.data, copy.data, copy.size);
    kn_map_close(&original);
    kn_map_close(&copy);
    kn_gguf_close(file);
    unlink(again);
}

static void a_copied_model_is_the_same_file(void **state) {
    (void)state;
    check_copy(KN_SOURCE_DIR "/tests/golden/llama.model.gguf", "test_gguf.tmp.gguf"); // by NumPy
}

static void a_copied_real_model_is_the_same_file(void **state) {
    (void)state;
    check_copy(data_path(MODEL), "test_gguf_data.tmp.gguf"); // both may run at once
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_value_is_read),
        cmocka_unit_test(arrays_are_read),
        cmocka_unit_test(absent_and_mistyped_values_are_told_apart),
        cmocka_unit_test(tensors_are_read),
        cmocka_unit_test(a_copied_model_is_the_same_file),
    };
    const struct CMUnitTest on_data[] = {
        cmocka_unit_test(stories15m_is_what_it_is_known_to_be),
        cmocka_unit_test(a_copied_real_model_is_the_same_file),
    };
    if (data_wanted(argc, argv)) {
        DATA_NEEDS(MODEL);
        return cmocka_run_group_tests(on_data, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
