// NumPy's .npy files: what is written is what NumPy writes, what others write is read, damage is told.
#include "interop_kit.h"

// ---------------------------------------------------------------- .npy

static void test_npy_round_trips(void **state) {
    (void)state;
    uint8_t data[2 * 3 * 2 * 2 * 8];
    const size_t dims[] = {2, 3, 2, 2};
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(37 * i + 1);
    for (int type = 0; type < KN_NPY_TYPES; type++)
        for (uint32_t n = 0; n <= KN_NPY_DIMS_MAX; n++) {
            kn_npy_writer *w;
            kn_npy got;
            size_t count = 1, size = kn_npy_type_size((kn_npy_type)type);
            for (uint32_t i = 0; i < n; i++) count *= dims[i];
            OK(kn_npy_create(at("a.npy"), (kn_npy_type)type, n, dims, &w));
            for (size_t i = 0; i < count; i++) OK(kn_npy_put(w, data + i * size, 1));
            OK(kn_npy_commit(w));
            OK(kn_npy_open(at("a.npy"), &got));
            assert_int_equal(got.type, type);
            assert_int_equal(got.n_dims, n);
            for (uint32_t i = 0; i < KN_NPY_DIMS_MAX; i++) assert_int_equal(got.dims[i], i < n ? dims[i] : 1);
            assert_int_equal(got.count, count);
            assert_int_equal(got.size, count * size);
            assert_int_equal((got.data - got.map.data) % KN_NPY_ALIGN, 0);
            assert_memory_equal(got.data, data, got.size);
            kn_npy_close(&got);
        }
}

// As NumPy 1.24 has written it: save(..., float32, shape (1, 2)).
static void test_npy_header_is_numpys(void **state) {
    (void)state;
    char expected[136], *got;
    const float values[] = {1.5f, -2};
    size_t size;
    kn_npy_writer *w;
    memset(expected, ' ', 128);
    memcpy(expected, "\x93NUMPY\x01\x00v\x00", 10);
    static const char dictionary[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
    memcpy(expected + 10, dictionary, sizeof dictionary - 1);
    expected[127] = '\n';
    memcpy(expected + 128, values, 8);
    OK(kn_npy_create(at("b.npy"), KN_NPY_F32, 2, (size_t[]){1, 2}, &w));
    OK(kn_npy_put(w, values, 2));
    OK(kn_npy_commit(w));
    OK(kn_file_read(at("b.npy"), &got, &size));
    assert_int_equal(size, sizeof expected);
    assert_memory_equal(got, expected, size);
    free(got);
}

// A file of this version, dictionary and number of bytes after it; read from memory of just its size.
static knnlm_status parse(int version, const char *dictionary, size_t data, kn_npy *out) {
    size_t length = strlen(dictionary), from = version == 1 ? 10 : 12, size = from + length + data;
    uint8_t *bytes = calloc(size, 1);
    assert_non_null(bytes);
    memcpy(bytes, KN_NPY_MAGIC, 6);
    bytes[6] = (uint8_t)version;
    bytes[8] = (uint8_t)length;
    bytes[9] = (uint8_t)(length >> 8);
    memcpy(bytes + from, dictionary, length);
    knnlm_status status = kn_npy_parse("x.npy", bytes, size, out);
    free(bytes);
    return status;
}

static void test_npy_headers_of_others(void **state) {
    (void)state;
    static const struct {
        const char *dictionary;
        size_t bytes;
        kn_npy_type type;
        uint32_t n_dims;
    } good[] = {
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3, 4), }   \n", 24, KN_NPY_F16, 2},
        {"{'shape':(3,4),'fortran_order':False,'descr':'<i8'}", 96, KN_NPY_I64, 2},
        {"{\"descr\": \"<u4\", \"fortran_order\": False, \"shape\": (5,)}\n", 20, KN_NPY_U32, 1},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", 1, KN_NPY_U8, 0},
        {"{'descr': '|i1', 'fortran_order': False, 'shape': (0L, 7L), }\n", 0, KN_NPY_I8, 2},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (1, 1, 2, 1), }", 4, KN_NPY_I16, 4},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int version = 1; version <= 2; version++) {
            kn_npy got;
            OK(parse(version, good[i].dictionary, good[i].bytes, &got));
            assert_int_equal(got.type, good[i].type);
            assert_int_equal(got.n_dims, good[i].n_dims);
            assert_int_equal(got.size, good[i].bytes);
        }
}

static void test_npy_refusals(void **state) {
    (void)state;
    static const struct {
        const char *dictionary;
        knnlm_status status;
        const char *text;
    } bad[] = {
        {"", KNNLM_EDATA, "no dictionary"},
        {"{", KNNLM_EDATA, "no string"},
        {"{}", KNNLM_EDATA, "missing"},
        {"{'descr': '<f4', 'fortran_order': False}", KNNLM_EDATA, "missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", KNNLM_EDATA, "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", KNNLM_EDATA, "unknown"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", KNNLM_EDATA, "without a value"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", KNNLM_EDATA, "without end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", KNNLM_EDATA, "more than"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", KNNLM_EDATA, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", KNNLM_EDATA, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", KNNLM_EDATA, "number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", KNNLM_EDATA, "number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", KNNLM_EDATA, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", KNNLM_EDATA, "size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", KNNLM_EDATA, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}", KNNLM_EDATA, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", KNNLM_EDATA, "4 bytes after"},
        {"{'descr': '<f4', 'fortran_order': maybe, 'shape': (1,)}", KNNLM_EDATA, "neither"},
        {"{'descr': '<f\n', 'fortran_order': False, 'shape': (1,)}", KNNLM_EDATA, "impossible"},
        {"{'descr': <f4, 'fortran_order': False, 'shape': (1,)}", KNNLM_EDATA, "no string"},
        {"{'descr': '<f4", KNNLM_EDATA, "without end"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", KNNLM_ENOTSUP, "'>f4'"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", KNNLM_ENOTSUP, "'<f8'"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}", KNNLM_ENOTSUP, "'|f4'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", KNNLM_ENOTSUP, "'|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", KNNLM_ENOTSUP, "structures"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", KNNLM_ENOTSUP, "Fortran"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1)}", KNNLM_ENOTSUP, "dimensions"},
    };
    kn_npy got;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(bad[i].status, bad[i].text, parse(1, bad[i].dictionary, 4, &got));
        assert_memory_equal(knnlm_message(), "x.npy: ", 7);
    }
    static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    FAILS(KNNLM_ENOTSUP, "version 3.0", parse(3, good, 4, &got));
    FAILS(KNNLM_EDATA, "not a .npy", kn_npy_parse("x.npy", (const uint8_t *)"PK\3\4 zipped", 11, &got));
    FAILS(KNNLM_EDATA, "empty: not a .npy", kn_npy_open(put("empty", "", 0), &got));
    FAILS(KNNLM_EIO, "No such file", kn_npy_open(at("nowhere"), &got));
}

// Any bytes are an array or a refusal that names the file; the array lies inside of them.
static void check_hostile(const uint8_t *bytes, size_t size) {
    kn_npy got;
    uint8_t *exact = malloc(size ? size : 1); // so that a read beyond is seen by the sanitizer
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    knnlm_status status = kn_npy_parse("x.npy", exact, size, &got);
    if (status == KNNLM_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < got.size; i++) sum += got.data[i];
        assert_true(got.size == got.count * kn_npy_type_size(got.type) && got.size <= size);
        (void)sum;
    } else {
        assert_true(status == KNNLM_EDATA || status == KNNLM_ENOTSUP);
        assert_memory_equal(knnlm_message(), "x.npy: ", 7);
        assert_null(strchr(knnlm_message(), '\n'));
    }
    free(exact);
}

static void test_npy_damaged_anywhere(void **state) {
    (void)state;
    uint8_t bytes[160], changed[160];
    static const char *const dictionaries[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }",
        "{'descr': '|i1', 'fortran_order': False, 'shape': (8,), } \n"};
    for (int version = 1; version <= 2; version++)
        for (size_t k = 0; k < 2; k++) {
            size_t length = strlen(dictionaries[k]), from = version == 1 ? 10 : 12, size = from + length + 8;
            memset(bytes, 0, sizeof bytes);
            memcpy(bytes, KN_NPY_MAGIC, 6);
            bytes[6] = (uint8_t)version;
            bytes[8] = (uint8_t)length;
            memcpy(bytes + from, dictionaries[k], length);
            for (size_t cut = 0; cut <= size; cut++) check_hostile(bytes, cut);
            for (size_t i = 0; i < size; i++)
                for (int value = 0; value < 256; value++) {
                    memcpy(changed, bytes, size);
                    changed[i] = (uint8_t)value;
                    check_hostile(changed, size);
                }
        }
}

static void test_npy_writer_counts(void **state) {
    (void)state;
    const int32_t values[] = {1, 2, 3};
    const char *path = put("kept.npy", "old", 3);
    char *got;
    size_t size, dims = 2;
    kn_npy_writer *w;
    for (size_t n = 1; n <= 3; n += 2) {
        OK(kn_npy_create(path, KN_NPY_I32, 1, &dims, &w));
        OK(kn_npy_put(w, values, n));
        FAILS(KNNLM_EINVAL, "array of 2", kn_npy_commit(w));
    }
    OK(kn_npy_create(path, KN_NPY_I32, 1, &dims, &w));
    kn_npy_abort(w);
    OK(kn_file_read(path, &got, &size));
    assert_string_equal(got, "old");
    free(got);
    FAILS(KNNLM_EINVAL, "dimensions", kn_npy_create(path, KN_NPY_I8, 5, (size_t[5]){0}, &w));
    FAILS(KNNLM_EINVAL, "memory", kn_npy_create(path, KN_NPY_I64, 2, (size_t[]){SIZE_MAX, 2}, &w));
    FAILS(KNNLM_EIO, "nowhere/x", kn_npy_create(at("nowhere/x"), KN_NPY_I8, 1, &dims, &w));
}

static void test_npy_integers(void **state) {
    (void)state;
    const uint8_t bytes[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0x80};
    static const struct {
        kn_npy_type type;
        int64_t first, last; // of the 16 bytes
    } expected[] = {{KN_NPY_I8, -1, -128},
                    {KN_NPY_I16, -1, INT16_MIN},
                    {KN_NPY_I32, -1, INT32_MIN},
                    {KN_NPY_I64, -1, INT64_MIN + 1},
                    {KN_NPY_U8, 255, 128},
                    {KN_NPY_U16, 65535, 32768},
                    {KN_NPY_U32, 4294967295, 2147483648},
                    {KN_NPY_U64, INT64_MAX, INT64_MAX}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t n = sizeof bytes / kn_npy_type_size(expected[i].type);
        int64_t got[16];
        kn_npy npy = {.type = expected[i].type, .data = bytes, .count = n};
        kn_npy_integers(&npy, 0, n, got);
        assert_true(got[0] == expected[i].first && got[n - 1] == expected[i].last);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_round_trips),       cmocka_unit_test(test_npy_header_is_numpys),
        cmocka_unit_test(test_npy_headers_of_others), cmocka_unit_test(test_npy_refusals),
        cmocka_unit_test(test_npy_damaged_anywhere),  cmocka_unit_test(test_npy_writer_counts),
        cmocka_unit_test(test_npy_integers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
