// GGUF files are written: the bytes are those of the format, tensors of every type come back as they were,
// and misuse of the writer is refused and leaves no file.
#include "gguf_kit.h"

#include "base/convert.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char PATH[] = "test_gguf_write.tmp.gguf";

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_bytes_are_those_of_the_format),
        cmocka_unit_test(tensors_round_trip),
        cmocka_unit_test(a_file_of_nothing_is_a_file),
        cmocka_unit_test(misuse_of_the_writer_is_refused),
        cmocka_unit_test(impossible_tensors_and_keys_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
