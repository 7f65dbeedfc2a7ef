// GGUF files: what we write is what the format says, what we read is what was written, and bad files are
// errors.
#include "expect.h"

#include "base/convert.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/memory.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"

static const char PATH[] = "test_gguf.tmp.gguf";
#define MODEL "models/stories15M-f16.gguf"

// ---- files written by hand, independent of the writer

struct bytes {
    uint8_t data[8192];
    size_t size;
};

static void raw(struct bytes *b, const void *data, size_t size) {
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void number(struct bytes *b, uint64_t value, int size) {
    for (int i = 0; i < size; i++) raw(b, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void string(struct bytes *b, const char *text) {
    number(b, strlen(text), 8);
    raw(b, text, strlen(text));
}

static void key(struct bytes *b, const char *name, uint32_t type) {
    string(b, name);
    number(b, type, 4);
}

static void scalar(struct bytes *b, const char *name, uint32_t type, uint64_t value, int size) {
    key(b, name, type);
    number(b, value, size);
}

static void array(struct bytes *b, const char *name, uint32_t type, uint64_t count) {
    key(b, name, 9);
    number(b, type, 4);
    number(b, count, 8);
}

static void header(struct bytes *b, uint64_t tensors, uint64_t values) {
    raw(b, "GGUF", 4);
    number(b, 3, 4);
    number(b, tensors, 8);
    number(b, values, 8);
}

static void tensor(struct bytes *b, const char *name, uint32_t n_dims, const int64_t *dims, uint32_t type,
                   uint64_t offset) {
    string(b, name);
    number(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) number(b, (uint64_t)dims[i], 8);
    number(b, type, 4);
    number(b, offset, 8);
}

static void pad(struct bytes *b, size_t alignment) {
    while (b->size % alignment) number(b, 0, 1);
}

static void floats(struct bytes *b, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) number(b, kn_f32_bits(values[i]), 4);
}

static knnlm_status parse(const struct bytes *b, kn_gguf **out) {
    // A copy of the exact size on the heap, so that sanitizers see any step outside.
    static uint8_t *copy;
    free(copy);
    copy = malloc(b->size ? b->size : 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->size);
    knnlm_status status = kn_gguf_parse("model.gguf", copy, b->size, out);
    if (status != KNNLM_OK) {
        free(copy);
        copy = NULL;
    }
    return status;
}

static void refused_with(const struct bytes *b, knnlm_status status, const char *text) {
    kn_gguf *file;
    FAILS(status, text, parse(b, &file));
    assert_null(file);
    assert_true(strncmp(knnlm_message(), "model.gguf: ", 12) == 0);
}

static void refused(const struct bytes *b, const char *text) {
    refused_with(b, KNNLM_EDATA, text);
}

// ---- conversions

static float f16_value(unsigned half) {
    int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) magnitude = mantissa ? (double)NAN : HUGE_VAL;
    return (float)(half & 0x8000 ? -magnitude : magnitude);
}

static void f16_round_trips(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float value = kn_f16_to_f32((uint16_t)h), expected = f16_value(h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(value));
            assert_int_equal(kn_f32_to_f16(value), h | 0x200);
        } else {
            assert_int_equal(kn_f32_bits(value), kn_f32_bits(expected));
            assert_int_equal(kn_f32_to_f16(value), h);
        }
    }
}

// Between each two neighbours: the middle goes to the even one, all else to the nearer one.
static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float low = f16_value(h), high = h == 0x7bff ? 65536.0f : f16_value(h + 1), middle = (low + high) / 2;
        assert_int_equal(kn_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
        assert_int_equal(kn_f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
        assert_int_equal(kn_f32_to_f16(-nextafterf(middle, 1e9f)), 0x8000 | (h + 1));
    }
    assert_int_equal(kn_f32_to_f16(65536.0f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(kn_f32_to_f16(1e-45f), 0);
    assert_int_equal(kn_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(kn_f32_to_f16(kn_bits_f32(0xff800001)), 0xfe00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t bits = h << 16;
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits)), h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x7fff)), h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x8001)), h + 1);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x80008001)), 0x8000 | (h + 1));
        assert_int_equal(kn_f32_bits(kn_bf16_to_f32((uint16_t)h)), bits);
    }
    assert_int_equal(kn_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(kn_f32_to_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(kn_f32_to_bf16(kn_bits_f32(0x7f800001)), 0x7fc0);
    assert_int_equal(kn_f32_to_bf16(kn_bits_f32(0xffffffff)), 0xffff);
    assert_int_equal(kn_f32_to_bf16(1.00390625f), 0x3f80); // 1 + 2^-8: the middle, 0x3f80 is even
    assert_int_equal(kn_f32_to_bf16(1.01171875f), 0x3f82); // 1 + 3*2^-8: the middle, 0x3f82 is even
}

static void arrays_convert_as_single_values(void **state) {
    (void)state;
    enum { N = 1003 };
    kn_random random = {7};
    float in[N], back[N];
    uint8_t packed[2 * N + 1], *odd = packed + 1; // the packed side may have any alignment
    for (int i = 0; i < N; i++) in[i] = kn_bits_f32((uint32_t)kn_random_next(&random));
    kn_f16_from_f32(odd, in, N);
    kn_f32_from_f16(back, odd, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(kn_f32_bits(back[i]), kn_f32_bits(kn_f16_to_f32(kn_f32_to_f16(in[i]))));
    kn_bf16_from_f32(odd, in, N);
    kn_f32_from_bf16(back, odd, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(kn_f32_bits(back[i]), kn_f32_bits(kn_bf16_to_f32(kn_f32_to_bf16(in[i]))));
}

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
static void f16_agrees_with_the_compiler(void **state) {
    (void)state;
    kn_random random = {11};
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = (uint32_t)kn_random_next(&random);
        if (i % 2) bits = (bits & 0x8fffffff) | 0x30000000; // where f16 lives
        float value = kn_bits_f32(bits);
        if (isnan(value)) continue;
        _Float16 half = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &half, sizeof expected);
        assert_int_equal(kn_f32_to_f16(value), expected);
    }
}
#endif

static void q8_0_matches_values_computed_by_hand(void **state) {
    (void)state;
    float in[64] = {127, -127, 0.5f, -0.5f, 1.5f, 2.5f, 0.49999997f, -2.5f, 100.4f, -100.6f, -0.0f}, out[64];
    const int8_t expected[] = {127, -127, 1, -1, 2, 3, 0, -3, 100, -101, 0};
    for (int i = 0; i < 32; i++)
        in[32 + i] = (float)(i - 16) * 0.25f; // largest 4: d = 4/127 = 0.0315 = 0x2808 as f16
    uint8_t packed[68];
    assert_true(kn_q8_0_from_f32(packed, in, 2));
    assert_int_equal(packed[0] | packed[1] << 8, 0x3c00);
    for (size_t i = 0; i < sizeof expected; i++) assert_int_equal((int8_t)packed[2 + i], expected[i]);
    for (size_t i = sizeof expected; i < 32; i++) assert_int_equal(packed[2 + i], 0);
    assert_int_equal(packed[34] | packed[35] << 8, 0x2808);
    for (int i = 0; i < 32; i++)
        assert_int_equal((int8_t)packed[36 + i],
                         (int)lround((i - 16) * 0.25 * 127.0 / 4.0)); // no ties among them
    kn_f32_from_q8_0(out, packed, 64);
    for (size_t i = 0; i < sizeof expected; i++) assert_true(out[i] == (float)expected[i]);
    for (int i = 0; i < 32; i++) assert_true(out[32 + i] == 0x1.02p-5f * (float)(int8_t)packed[36 + i]);
}

static void q8_0_rounds_as_roundf(void **state) {
    (void)state;
    kn_random random = {3};
    for (int b = 0; b < 20000; b++) {
        float in[32], largest = 0, scale = (float)exp(40 * kn_random_unit(&random) - 30);
        uint8_t packed[34];
        for (int i = 0; i < 32; i++) in[i] = scale * (float)kn_random_normal(&random);
        for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(in[i]));
        float d = largest / 127, inverse = 1 / d;
        if (d >= 65520) continue;
        assert_true(kn_q8_0_from_f32(packed, in, 1));
        assert_int_equal(packed[0] | packed[1] << 8, kn_f32_to_f16(d));
        for (int i = 0; i < 32; i++) assert_int_equal((int8_t)packed[2 + i], (int)roundf(in[i] * inverse));
    }
}

static void q8_0_survives_extreme_values(void **state) {
    (void)state;
    float in[32] = {0};
    uint8_t packed[34];
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    for (int i = 0; i < 34; i++) assert_int_equal(packed[i], 0);
    in[5] = 1e-45f;
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    in[5] = 1e-37f;
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, 65520.0f * 127};
    for (int i = 0; i < 5; i++) {
        in[5] = bad[i];
        assert_false(kn_q8_0_from_f32(packed, in, 1));
    }
}

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

// ---- writing

static void put_small_model(kn_gguf_writer *w) {
    const char *words[] = {"a", "bc", "d\0e"};
    OK(kn_gguf_put_string(w, "general.architecture", "knnlm"));
    OK(kn_gguf_put_u32(w, "n", 7));
    OK(kn_gguf_put_u64(w, "big", 1ull << 40));
    OK(kn_gguf_put_f32(w, "x", 1.5f));
    OK(kn_gguf_put_f64(w, "y", -1.5));
    OK(kn_gguf_put_bool(w, "yes", true));
    OK(kn_gguf_put_strings(w, "words", words, (size_t[]){1, 2, 3}, 3));
    OK(kn_gguf_put_i32s(w, "ids", (int32_t[]){1, -1}, 2));
    OK(kn_gguf_put_f32s(w, "scores", (float[]){0.5f}, 1));
    OK(kn_gguf_put_tensor(w, "w", KN_GGUF_F32, 2, (int64_t[]){3, 1}));
    OK(kn_gguf_put_tensor(w, "h", KN_GGUF_F16, 1, (int64_t[]){2}));
    OK(kn_gguf_put_data_f32(w, (float[]){1, 2}, 2));
    OK(kn_gguf_put_data_f32(w, (float[]){3}, 1));
    OK(kn_gguf_put_data_f32(w, (float[]){1, -2}, 2));
}

static void small_model_by_hand(struct bytes *b) {
    header(b, 2, 9);
    key(b, "general.architecture", 8);
    string(b, "knnlm");
    scalar(b, "n", 4, 7, 4);
    scalar(b, "big", 10, 1ull << 40, 8);
    scalar(b, "x", 6, 0x3fc00000, 4);
    scalar(b, "y", 12, 0xbff8000000000000, 8);
    scalar(b, "yes", 7, 1, 1);
    array(b, "words", 8, 3);
    string(b, "a");
    string(b, "bc");
    number(b, 3, 8);
    raw(b, "d\0e", 3);
    array(b, "ids", 5, 2);
    number(b, 1, 4);
    number(b, (uint64_t)-1, 4);
    array(b, "scores", 6, 1);
    number(b, 0x3f000000, 4);
    tensor(b, "w", 2, (int64_t[]){3, 1}, 0, 0);
    tensor(b, "h", 1, (int64_t[]){2}, 1, 32);
    pad(b, 32);
    floats(b, (float[]){1, 2, 3}, 3);
    pad(b, 32);
    number(b, 0x3c00, 2);
    number(b, 0xc000, 2);
    pad(b, 32);
}

static void written_bytes_are_those_of_the_format(void **state) {
    (void)state;
    kn_gguf_writer *w;
    struct bytes expected = {0};
    char *data;
    size_t size;
    OK(kn_gguf_writer_open(PATH, &w));
    put_small_model(w);
    OK(kn_gguf_writer_commit(w));
    small_model_by_hand(&expected);
    OK(kn_file_read(PATH, &data, &size));
    assert_int_equal(size, expected.size);
    assert_memory_equal(data, expected.data, size);
    free(data);
    unlink(PATH);
}

// Every tensor type: values out are the values in, rounded as the single conversions round.
static void tensors_round_trip(void **state) {
    (void)state;
    enum { ROWS = 150, COLUMNS = 64, N = ROWS * COLUMNS };
    static const kn_gguf_type types[] = {KN_GGUF_F32, KN_GGUF_F16, KN_GGUF_BF16, KN_GGUF_Q8_0};
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    static float in[N], out[N], part[50];
    kn_random random = {5};
    kn_gguf_writer *w;
    kn_gguf *file;
    for (int i = 0; i < N; i++) in[i] = (float)kn_random_normal(&random);
    OK(kn_gguf_writer_open(PATH, &w));
    OK(kn_gguf_put_u32(w, "general.alignment", 128));
    for (int t = 0; t < 4; t++) OK(kn_gguf_put_tensor(w, names[t], types[t], 2, (int64_t[]){COLUMNS, ROWS}));
    OK(kn_gguf_put_tensor(w, "i64", KN_GGUF_I64, 1, (int64_t[]){2}));
    OK(kn_gguf_put_tensor(w, "i32", KN_GGUF_I32, 4, (int64_t[]){1, 1, 1, 2}));
    for (int t = 0; t < 4; t++) {
        OK(kn_gguf_put_data_f32(w, in, 4160)); // more than one chunk of the converter, then the rest
        OK(kn_gguf_put_data_f32(w, in + 4160, N - 4160));
    }
    OK(kn_gguf_put_data_raw(w, (int64_t[]){INT64_MAX, -1}, 16));
    OK(kn_gguf_put_data_raw(w, (int32_t[]){5, -5}, 8));
    OK(kn_gguf_writer_commit(w));

    OK(kn_gguf_open(PATH, &file));
    assert_string_equal(kn_gguf_path(file), PATH);
    for (int t = 0; t < 4; t++) {
        const kn_gguf_tensor *tensor = kn_gguf_tensor_find(file, names[t]);
        assert_non_null(tensor);
        assert_int_equal((uintptr_t)tensor->data % 128, 0);
        OK(kn_gguf_tensor_f32(tensor, 0, N, out));
        kn_gguf_tensor_release(file, tensor);
        OK(kn_gguf_tensor_f32(tensor, 9 * COLUMNS, 50, part));
        assert_memory_equal(part, out + 9 * COLUMNS, sizeof part);
        for (int i = 0; i < N; i++) {
            float expected =
                t == 1 ? kn_f16_to_f32(kn_f32_to_f16(in[i])) : kn_bf16_to_f32(kn_f32_to_bf16(in[i]));
            if (t == 0) expected = in[i];
            if (t < 3)
                assert_true(out[i] == expected);
            else
                assert_true(fabsf(out[i] - in[i]) <
                            0.03f); // half of (largest, < 6) / 127, and the scale's rounding
        }
    }
    FAILS(KNNLM_EINVAL, "not the first of a Q8_0 block",
          kn_gguf_tensor_f32(kn_gguf_tensor_at(file, 3), 1, 1, out));
    assert_memory_equal(kn_gguf_tensor_find(file, "i64")->data, ((int64_t[]){INT64_MAX, -1}), 16);
    assert_memory_equal(kn_gguf_tensor_find(file, "i32")->data, ((int32_t[]){5, -5}), 8);
    kn_gguf_close(file);
    unlink(PATH);
}

static void a_file_of_nothing_is_a_file(void **state) {
    (void)state;
    kn_gguf_writer *w;
    kn_gguf *file;
    OK(kn_gguf_writer_open(PATH, &w));
    OK(kn_gguf_writer_commit(w));
    OK(kn_gguf_open(PATH, &file));
    assert_int_equal(kn_gguf_key_count(file) + kn_gguf_tensor_count(file), 0);
    assert_null(kn_gguf_tensor_find(file, "x"));
    kn_gguf_close(file);
    unlink(PATH);
}

static kn_gguf_writer *writer_with_tensor(kn_gguf_type type, int64_t columns) {
    kn_gguf_writer *w;
    OK(kn_gguf_writer_open(PATH, &w));
    OK(kn_gguf_put_tensor(w, "t", type, 1, &columns));
    return w;
}

// The failure comes at once, and again at commit; no file is left.
static void commit_fails(kn_gguf_writer *w, const char *text) {
    FAILS(KNNLM_EINVAL, text, kn_gguf_writer_commit(w));
    assert_int_not_equal(access(PATH, F_OK), 0);
}

static void misuse_of_the_writer_is_refused(void **state) {
    (void)state;
    const float values[64] = {1};
    float bad[32] = {NAN};
    kn_gguf_writer *w = writer_with_tensor(KN_GGUF_F32, 4);
    OK(kn_gguf_put_data_f32(w, values, 2));
    FAILS(KNNLM_EINVAL, "\"late\" was put after the first data", kn_gguf_put_u32(w, "late", 1));
    commit_fails(w, "\"late\"");

    w = writer_with_tensor(KN_GGUF_F32, 4);
    OK(kn_gguf_put_data_f32(w, values, 2));
    commit_fails(w, "tensor \"t\" lacks 8 bytes");

    w = writer_with_tensor(KN_GGUF_F32, 4);
    commit_fails(w, "tensor \"t\" lacks 16 bytes");

    w = writer_with_tensor(KN_GGUF_F16, 4);
    FAILS(KNNLM_EINVAL, "takes 8 more bytes, but 10", kn_gguf_put_data_f32(w, values, 5));
    commit_fails(w, "takes 8 more");

    w = writer_with_tensor(KN_GGUF_F16, 4);
    OK(kn_gguf_put_data_f32(w, values, 4));
    FAILS(KNNLM_EINVAL, "after that of the last", kn_gguf_put_data_raw(w, values, 1));
    commit_fails(w, "after that of the last");

    w = writer_with_tensor(KN_GGUF_F16, 4);
    FAILS(KNNLM_EINVAL, "takes 8 more", kn_gguf_put_data_f32(w, values, SIZE_MAX));
    commit_fails(w, "takes 8 more");

    w = writer_with_tensor(KN_GGUF_Q8_0, 64);
    FAILS(KNNLM_EINVAL, "blocks of 32", kn_gguf_put_data_f32(w, values, 31));
    commit_fails(w, "blocks of 32");

    w = writer_with_tensor(KN_GGUF_Q8_0, 64);
    FAILS(KNNLM_EINVAL, "not finite", kn_gguf_put_data_f32(w, bad, 32));
    commit_fails(w, "not finite");

    w = writer_with_tensor(KN_GGUF_I32, 4);
    FAILS(KNNLM_EINVAL, "holds integers", kn_gguf_put_data_f32(w, values, 4));
    commit_fails(w, "holds integers");
}

static void tensor_refused(const char *name, int type, uint32_t n_dims, const int64_t *dims,
                           const char *text) {
    kn_gguf_writer *w = writer_with_tensor(KN_GGUF_F32, 4);
    FAILS(KNNLM_EINVAL, text, kn_gguf_put_tensor(w, name, (kn_gguf_type)type, n_dims, dims));
    kn_gguf_writer_abort(w);
    assert_int_not_equal(access(PATH, F_OK), 0);
}

static void impossible_tensors_and_keys_are_not_written(void **state) {
    (void)state;
    char name64[65] = {0};
    memset(name64, 'n', 64);
    tensor_refused("t", 0, 1, (int64_t[]){4}, "put twice");
    tensor_refused("", 0, 1, (int64_t[]){4}, "1 to 63 bytes");
    tensor_refused(name64, 0, 1, (int64_t[]){4}, "1 to 63 bytes");
    tensor_refused("u", 0, 0, (int64_t[]){4}, "1 to 4 dimensions");
    tensor_refused("u", 0, 5, (int64_t[]){1, 1, 1, 1, 1}, "1 to 4 dimensions");
    tensor_refused("u", 0, 1, (int64_t[]){0}, "not positive");
    tensor_refused("u", 0, 2, (int64_t[]){4, -1}, "not positive");
    tensor_refused("u", 0, 2, (int64_t[]){INT64_MAX, 2}, "overflow");
    tensor_refused("u", 0, 1, (int64_t[]){INT64_MAX}, "overflow");
    tensor_refused("u", 8, 1, (int64_t[]){33}, "block size");
    tensor_refused("u", 2, 1, (int64_t[]){32}, "type 2 cannot be written");
    kn_gguf_writer *w = writer_with_tensor(KN_GGUF_F32, 4);
    OK(kn_gguf_put_u32(w, "k", 1));
    FAILS(KNNLM_EINVAL, "key \"k\" was put twice", kn_gguf_put_f32(w, "k", 1));
    FAILS(KNNLM_EINVAL, "a key of 0 bytes", kn_gguf_put_f32(w, "", 1));
    FAILS(KNNLM_EINVAL, "no power of two", kn_gguf_put_u32(w, "general.alignment", 48));
    FAILS(KNNLM_EINVAL, "after the first tensor", kn_gguf_put_u32(w, "general.alignment", 64));
    kn_gguf_writer_abort(w);
    FAILS(KNNLM_EIO, "no/such/place", kn_gguf_writer_open("no/such/place.gguf", &w));
    assert_null(w);
    kn_gguf_writer_abort(NULL);
}

// ---- bad files

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
static void check_copy(const char *path) {
    kn_gguf *file;
    kn_gguf_writer *w;
    kn_map original, copy;
    OK(kn_gguf_open(path, &file));
    OK(kn_gguf_writer_open(PATH, &w));
    copy_model(file, w);
    OK(kn_gguf_writer_commit(w));
    OK(kn_map_open(path, &original));
    OK(kn_map_open(PATH, &copy));
    assert_int_equal(original.size, copy.size);
    assert_memory_equal(original.data, copy.data, copy.size);
    kn_map_close(&original);
    kn_map_close(&copy);
    kn_gguf_close(file);
    unlink(PATH);
}

static void a_copied_model_is_the_same_file(void **state) {
    (void)state;
    check_copy(KN_SOURCE_DIR "/tests/golden/llama.model.gguf"); // by NumPy
}

static void a_copied_real_model_is_the_same_file(void **state) {
    (void)state;
    check_copy(data_path(MODEL));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trips),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(arrays_convert_as_single_values),
#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
        cmocka_unit_test(f16_agrees_with_the_compiler),
#endif
        cmocka_unit_test(q8_0_matches_values_computed_by_hand),
        cmocka_unit_test(q8_0_rounds_as_roundf),
        cmocka_unit_test(q8_0_survives_extreme_values),
        cmocka_unit_test(every_kind_of_value_is_read),
        cmocka_unit_test(arrays_are_read),
        cmocka_unit_test(absent_and_mistyped_values_are_told_apart),
        cmocka_unit_test(tensors_are_read),
        cmocka_unit_test(written_bytes_are_those_of_the_format),
        cmocka_unit_test(tensors_round_trip),
        cmocka_unit_test(a_file_of_nothing_is_a_file),
        cmocka_unit_test(misuse_of_the_writer_is_refused),
        cmocka_unit_test(impossible_tensors_and_keys_are_not_written),
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
