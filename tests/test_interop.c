// Stores to and from NumPy's arrays, the raw ones of the paper's code and of knn-transformers; and what can
// be wrong with them.
#include "expect.h"

#include "base/random.h"
#include "base/utf8.h"
#include "store/interop.h"

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *at(const char *name) {
    static char paths[256][256]; // options hold on to them for a while
    static unsigned next;
    char *path = paths[next++ % 256];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const void *data, size_t size) {
    const char *path = at(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static int discard_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void discard(const char *path) {
    nftw(path, discard_one, 8, FTW_DEPTH | FTW_PHYS); // what is not there is discarded already
}

static bool there(const char *path) {
    return access(path, F_OK) == 0;
}

static size_t files_in(const char *path) {
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *e; (e = readdir(directory));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(directory);
    return count;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/knnlm-interop-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    discard(folder);
    return 0;
}

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

// ---------------------------------------------------------------- escapes

static void test_escapes(void **state) {
    (void)state;
    kn_random r = {5};
    static const char alphabet[] = "a\t\n\r\\x0\x7f\x01\xc3\xa9\xff\x80";
    for (int round = 0; round < 20000; round++) {
        char text[40], escaped[KN_UTF8_ESCAPED(sizeof text)], back[KN_UTF8_ESCAPED(sizeof text)];
        size_t size = kn_random_below(&r, sizeof text + 1), back_size;
        for (size_t i = 0; i < size; i++) text[i] = alphabet[kn_random_below(&r, sizeof alphabet)]; // NUL too
        kn_utf8_escape(text, size, escaped, KN_UTF8_ESCAPED(size));
        assert_int_equal(kn_utf8_valid(escaped, strlen(escaped)), strlen(escaped));
        assert_null(strpbrk(escaped, "\t\n\r"));
        assert_true(kn_utf8_unescape(escaped, strlen(escaped), back, &back_size));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
    }
    static const char *const bad[] = {"\\", "a\\", "\\q", "\\x", "\\x1", "\\xg0", "\\x0G", "\\X00"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char out[8];
        size_t size;
        assert_false(kn_utf8_unescape(bad[i], strlen(bad[i]), out, &size));
    }
}

// ---------------------------------------------------------------- a store to export

enum { D = 6, SEGMENT = 7, VOCABULARY = 500, DOCUMENTS = 8 };

// Lengths: several segments, one, none; documents 2 and 6 will be removed, 3 has no offsets.
static const size_t lengths[DOCUMENTS] = {3, 0, 9, 25, 1, 7, 8, 0};
static const char *const names[DOCUMENTS] = {
    "plain",    "empty", "removed", "tab\tline\nreturn\rback\\slash", "caf\xc3\xa9", "not UTF-8 \xff\xc3",
    "\x01\x7f", ""};

static bool is_removed(size_t i) {
    return i == 2 || i == 6;
}
static bool has_offsets(size_t i) {
    return i != 3;
}
static int32_t token_of(size_t document, size_t position) {
    return (int32_t)((document * 97 + position * 31) % VOCABULARY);
}
static uint64_t offset_of(size_t document, size_t position) {
    return position * 4 + document;
}
static float key_of(size_t document, size_t position, size_t i) {
    return (float)((int)((document * 131 + position * 17 + i * 29) % 1000) - 500) / 37;
}

static kn_store_document record_of(size_t i) {
    return (kn_store_document){.name = names[i],
                               .name_size = strlen(names[i]),
                               .path = "texts/all.txt",
                               .path_size = i % 2 ? 13 : 0,
                               .source_offset = 1000 * i,
                               .bytes = 200 + i,
                               .tokens = lengths[i],
                               .hash = {0xfedcba9876543210u + i, i ? 0xffffffffffffffffu - i : 0},
                               .added = 1700000000 + (int64_t)(i * 86399),
                               .has_offsets = has_offsets(i)};
}

static void add_document(kn_store_writer *w, size_t i) {
    int32_t tokens[32];
    uint64_t offsets[32];
    float keys[32 * D];
    kn_store_document d = record_of(i);
    for (size_t p = 0; p < lengths[i]; p++) {
        tokens[p] = token_of(i, p);
        offsets[p] = offset_of(i, p);
        for (size_t j = 0; j < D; j++) keys[p * D + j] = key_of(i, p, j);
    }
    OK(kn_store_writer_document(w, &d));
    bool none = kn_store_writer_settings(w)->key_type == KNNLM_KEYS_NONE;
    OK(kn_store_writer_append(w, tokens, offsets, none ? NULL : keys, lengths[i]));
}

static const char *make_store(const char *name, knnlm_keys type) {
    const char *path = at(name);
    kn_store_settings settings = {
        .vocabulary = VOCABULARY, .key_type = type, .dimension = D, .model_dimension = D, .segment = SEGMENT};
    kn_store_writer *w;
    discard(path);
    OK(kn_store_create(path, &settings, &w));
    for (size_t i = 0; i < DOCUMENTS; i++) add_document(w, i);
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    OK(kn_store_write(path, &w));
    for (size_t i = 0; i < DOCUMENTS; i++)
        if (is_removed(i)) OK(kn_store_writer_remove(w, i));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    return path;
}

static size_t live_entries(void) {
    size_t n = 0;
    for (size_t i = 0; i < DOCUMENTS; i++) n += is_removed(i) ? 0 : lengths[i];
    return n;
}

static knnlm_status export(const char *store, const char *directory, const kn_export_options *o,
                           kn_export_totals *totals) {
    kn_store *s;
    OK(kn_store_open(store, &s));
    knnlm_status status = kn_store_export(s, directory, o, NULL, totals);
    kn_store_close(s);
    return status;
}

static kn_npy open_array(const char *directory, const char *name, kn_npy_type type, size_t rows,
                         size_t columns) {
    char path[400];
    kn_npy npy;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    OK(kn_npy_open(path, &npy));
    assert_int_equal(npy.type, type);
    assert_int_equal(npy.n_dims, columns ? 2 : 1);
    assert_int_equal(npy.dims[0], rows);
    assert_int_equal(npy.dims[1], columns ? columns : 1);
    return npy;
}

// As the numbers of the store are: exact for f32, the nearest f16, within half a step of int8.
static void check_key(const float *got, size_t document, size_t position, knnlm_keys type) {
    double largest = 0;
    for (size_t j = 0; j < D; j++) largest = fmax(largest, fabs((double)key_of(document, position, j)));
    double allowed = type == KNNLM_KEYS_F32 ? 0 : type == KNNLM_KEYS_F16 ? largest * 0x1p-11 : largest / 253;
    for (size_t j = 0; j < D; j++)
        assert_true(fabs((double)got[j] - (double)key_of(document, position, j)) <= allowed);
}

static void check_arrays(const char *directory, knnlm_keys type, kn_npy_type expected) {
    size_t n = live_entries(), row = 0;
    int64_t number = 0, origin[3], token;
    kn_npy values = open_array(directory, "values.npy", KN_NPY_I32, n, 0);
    kn_npy origins = open_array(directory, "origins.npy", KN_NPY_I64, n, 3);
    kn_npy keys = {0};
    if (type != KNNLM_KEYS_NONE) keys = open_array(directory, "keys.npy", expected, n, D);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        if (is_removed(i)) continue;
        for (size_t p = 0; p < lengths[i]; p++, row++) {
            float key[D];
            kn_npy_integers(&values, row, 1, &token);
            kn_npy_integers(&origins, 3 * row, 3, origin);
            assert_int_equal(token, token_of(i, p));
            assert_int_equal(origin[0], number);
            assert_int_equal(origin[1], p);
            assert_int_equal(origin[2], has_offsets(i) ? (int64_t)offset_of(i, p) : -1);
            if (type == KNNLM_KEYS_NONE) continue;
            kn_npy_floats(&keys, row * D, D, key);
            check_key(key, i, p, type);
        }
        number++;
    }
    assert_int_equal(row, n);
    kn_npy_close(&values);
    kn_npy_close(&origins);
    kn_npy_close(&keys);
}

static void check_text(const char *path, const char *expected) {
    char *got;
    size_t size;
    OK(kn_file_read(path, &got, &size));
    assert_string_equal(got, expected);
    free(got);
}

static const char documents_tsv[] =
    "number\tname\tpath\tbytes\ttokens\thash\tadded\tsource_offset\n"
    "0\tplain\t\t200\t3\t0000000000000000fedcba9876543210\t2023-11-14T22:13:20Z\t0\n"
    "1\tempty\ttexts/all.txt\t201\t0\tfffffffffffffffefedcba9876543211\t2023-11-15T22:13:19Z\t1000\n"
    "2\ttab\\tline\\nreturn\\rback\\\\slash\ttexts/all.txt\t203\t25\tfffffffffffffffcfedcba9876543213\t"
    "2023-11-17T22:13:17Z\t3000\n"
    "3\tcaf\xc3\xa9\t\t204\t1\tfffffffffffffffbfedcba9876543214\t2023-11-18T22:13:16Z\t4000\n"
    "4\tnot UTF-8 \\xff\\xc3\ttexts/all.txt\t205\t7\tfffffffffffffffafedcba9876543215\t"
    "2023-11-19T22:13:15Z\t5000\n"
    "5\t\ttexts/all.txt\t207\t0\tfffffffffffffff8fedcba9876543217\t2023-11-21T22:13:13Z\t7000\n";

static void test_export(void **state) {
    (void)state;
    static const kn_npy_type expected[] = {KN_NPY_F16, KN_NPY_F32, KN_NPY_F32, KN_NPY_F32};
    for (int type = 0; type < KN_KEY_TYPES; type++) {
        kn_export_totals t;
        const char *store = make_store("export.store", (knnlm_keys)type);
        discard(at("exported"));
        OK(export(store, at("exported"), NULL, &t));
        check_arrays(at("exported"), (knnlm_keys)type, expected[type]);
        check_text(at("exported/documents.tsv"), documents_tsv);
        bool keyed = type != KNNLM_KEYS_NONE;
        assert_int_equal(t.entries, live_entries());
        assert_int_equal(t.documents, 6);
        assert_int_equal(t.dimension, keyed ? D : 0);
        assert_int_equal(files_in(at("exported")), keyed ? 4 : 3);
        struct stat st;
        uint64_t bytes = 0;
        static const char *const parts[] = {"exported/keys.npy", "exported/values.npy",
                                            "exported/origins.npy", "exported/documents.tsv"};
        for (size_t i = 0; i < 4; i++) bytes += stat(at(parts[i]), &st) == 0 ? (uint64_t)st.st_size : 0;
        assert_int_equal(t.bytes, bytes);
    }
}

static void test_export_converts(void **state) {
    (void)state;
    kn_export_options o = {.convert = true, .key_type = KNNLM_KEYS_F16};
    kn_export_totals t;
    discard(at("exported"));
    OK(export(make_store("export.store", KNNLM_KEYS_F32), at("exported"), &o, &t));
    check_arrays(at("exported"), KNNLM_KEYS_F16, KN_NPY_F16);
    o.key_type = KNNLM_KEYS_F32; // replaces what is there
    OK(export(make_store("export.store", KNNLM_KEYS_F16), at("exported"), &o, &t));
    check_arrays(at("exported"), KNNLM_KEYS_F16, KN_NPY_F32);
    o.key_type = KNNLM_KEYS_INT8;
    FAILS(KNNLM_EINVAL, "f16 or f32", export(at("export.store"), at("exported"), &o, &t));
}

static bool stop(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)total;
    (void)unit;
    return done < *(const uint64_t *)context;
}

static void test_export_refusals(void **state) {
    (void)state;
    kn_export_totals t;
    kn_store *s;
    const char *store = make_store("export.store", KNNLM_KEYS_F16),
               *none = make_store("none.store", KNNLM_KEYS_NONE);
    discard(at("exported"));
    OK(export(store, at("exported"), NULL, &t));
    FAILS(KNNLM_EINVAL, "is a store", export(store, store, NULL, &t));
    FAILS(KNNLM_EIO, "keys.npy: would not belong", export(none, at("exported"), NULL, &t));
    check_arrays(at("exported"), KNNLM_KEYS_F16, KN_NPY_F16);
    FAILS(KNNLM_EIO, "nowhere", export(store, at("nowhere/deep"), NULL, &t));
    FAILS(KNNLM_EIO, "Not a directory", export(store, put("a file", "x", 1), NULL, &t));
    uint64_t limit = 10;
    kn_progress progress = {stop, &limit};
    OK(kn_store_open(store, &s));
    FAILS(KNNLM_ESTOPPED, "as it was", kn_store_export(s, at("stopped"), NULL, &progress, &t));
    assert_false(there(at("stopped")));
    FAILS(KNNLM_ESTOPPED, "as it was", kn_store_export(s, at("exported"), NULL, &progress, &t));
    kn_store_close(s);
    assert_int_equal(files_in(at("exported")), 4);
    check_arrays(at("exported"), KNNLM_KEYS_F16, KN_NPY_F16);
}

// A byte that is wrong anywhere in a part ends the export.
static void test_export_of_damaged_store(void **state) {
    (void)state;
    static const char *const parts[] = {"000001.keys", "000001.text", "000004.keys", "000005.text"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char path[400], *data;
        size_t size;
        kn_export_totals t;
        discard(at("damaged"));
        snprintf(path, sizeof path, "%s/%s", make_store("damaged.store", KNNLM_KEYS_F16), parts[i]);
        OK(kn_file_read(path, &data, &size));
        data[70] ^= 1;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(data, 1, size, file), size);
        fclose(file);
        free(data);
        FAILS(KNNLM_EDATA, parts[i], export(at("damaged.store"), at("damaged"), NULL, &t));
        assert_false(there(at("damaged")));
    }
}

// ---------------------------------------------------------------- back again

static void check_restored(const char *path, knnlm_keys type) {
    kn_store *s;
    kn_store_verdict v;
    uint64_t number = 0, first = 0;
    OK(kn_store_open(path, &s));
    const kn_store_info *info = kn_store_describe(s);
    assert_true(info->complete);
    assert_int_equal(info->entries, live_entries());
    assert_int_equal(info->removed_entries, 0);
    assert_int_equal(info->settings.dimension, D);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        kn_store_document got, expected = record_of(i);
        if (is_removed(i)) continue;
        OK(kn_store_document_at(s, number++, &got));
        assert_int_equal(got.name_size, expected.name_size);
        assert_memory_equal(got.name, expected.name, got.name_size);
        assert_int_equal(got.path_size, expected.path_size);
        assert_memory_equal(got.path, expected.path, got.path_size);
        assert_int_equal(got.source_offset, expected.source_offset);
        assert_int_equal(got.bytes, expected.bytes);
        assert_int_equal(got.tokens, expected.tokens);
        assert_memory_equal(got.hash, expected.hash, sizeof got.hash);
        assert_int_equal(got.added, expected.added);
        assert_int_equal(got.first, first);
        if (got.count) assert_int_equal(got.has_offsets, expected.has_offsets);
        for (size_t p = 0; p < got.count; p++) {
            kn_store_entry e;
            float key[D];
            OK(kn_store_entry_at(s, first + p, &e));
            OK(kn_store_keys(s, first + p, 1, key));
            assert_int_equal(e.token, token_of(i, p));
            if (got.has_offsets) assert_int_equal(e.offset, offset_of(i, p));
            check_key(key, i, p, type);
        }
        first += got.count;
    }
    OK(kn_store_verify(s, NULL, NULL, NULL, &v));
    assert_int_equal(v.problems, 0);
    free(v.document_damaged);
    kn_store_close(s);
}

static void test_round_trip(void **state) {
    (void)state;
    static const knnlm_keys back[] = {KNNLM_KEYS_F16, KNNLM_KEYS_F32, KNNLM_KEYS_F32};
    for (int type = 0; type < KNNLM_KEYS_NONE; type++)
        for (uint32_t segment = 1; segment <= 64; segment *= 4) {
            kn_export_totals t;
            kn_import_totals got;
            kn_import_options o = {.keys = at("exported"), .settings = {.segment = segment}};
            discard(at("exported"));
            discard(at("back.store"));
            OK(export(make_store("export.store", (knnlm_keys)type), at("exported"), NULL, &t));
            OK(kn_store_import(&o, at("back.store"), NULL, &got));
            assert_int_equal(got.entries, live_entries());
            assert_int_equal(got.documents, 6);
            assert_int_equal(got.dimension, D);
            assert_true(got.restored);
            check_restored(at("back.store"), (knnlm_keys)type);
            kn_store *s;
            OK(kn_store_open(at("back.store"), &s));
            assert_int_equal(kn_store_describe(s)->settings.key_type, back[type]);
            assert_int_equal(kn_store_describe(s)->bytes, got.bytes);
            kn_store_close(s);
        }
}

static void test_round_trip_converts(void **state) {
    (void)state;
    for (int type = 0; type < KNNLM_KEYS_NONE; type++) {
        kn_export_totals t;
        kn_import_totals got;
        kn_import_options o = {.keys = at("exported"), .convert = true};
        o.settings.key_type = (knnlm_keys)type;
        discard(at("exported"));
        discard(at("back.store"));
        OK(export(make_store("export.store", KNNLM_KEYS_F32), at("exported"), NULL, &t));
        OK(kn_store_import(&o, at("back.store"), NULL, &got));
        check_restored(at("back.store"), (knnlm_keys)type);
    }
    kn_import_totals got;
    kn_import_options o = {
        .keys = at("exported"), .convert = true, .settings = {.key_type = KNNLM_KEYS_NONE}};
    FAILS(KNNLM_EINVAL, "keys", kn_store_import(&o, at("none"), NULL, &got));
}

static void test_empty_store(void **state) {
    (void)state;
    kn_store_settings settings = {.dimension = D, .model_dimension = D, .segment = SEGMENT};
    kn_store_writer *w;
    kn_export_totals t;
    kn_import_totals got;
    kn_import_options o = {.keys = at("exported")};
    discard(at("exported"));
    discard(at("back.store"));
    OK(kn_store_create(at("empty.store"), &settings, &w));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    OK(export(at("empty.store"), at("exported"), NULL, &t));
    OK(kn_store_import(&o, at("back.store"), NULL, &got));
    assert_int_equal(got.entries, 0);
    assert_int_equal(got.documents, 0);
    assert_int_equal(got.dimension, D);
    discard(at("exported/origins.npy"));
    discard(at("exported/documents.tsv"));
    discard(at("back.store"));
    OK(kn_store_import(&o, at("back.store"), NULL, &got));
    assert_int_equal(got.documents, 0);
}

// ---------------------------------------------------------------- raw arrays

enum { N = 40 };

static size_t element_size(knnlm_array_type type) {
    return type == KNNLM_ARRAY_INT64 ? 8 : type == KNNLM_ARRAY_F32 || type == KNNLM_ARRAY_INT32 ? 4 : 2;
}

// Small whole numbers, that f16 holds exactly.
static float raw_key(size_t row, size_t i) {
    return (float)((int)(row * 7 + i * 3) % 201 - 100);
}

// By arithmetic: the library does it on bits.
static uint16_t whole_f16(int x) {
    int magnitude = x < 0 ? -x : x, exponent = 0;
    if (!x) return 0;
    while (magnitude >> (exponent + 1)) exponent++;
    return (uint16_t)((x < 0 ? 0x8000 : 0) + ((exponent + 15) << 10) +
                      ((magnitude << (10 - exponent)) - 1024));
}

static void put_keys(const char *name, knnlm_array_type type) {
    static float keys[N * D];
    static uint16_t halves[N * D];
    for (size_t i = 0; i < N * D; i++) {
        keys[i] = raw_key(i / D, i % D);
        halves[i] = whole_f16((int)keys[i]);
    }
    bool f32 = type == KNNLM_ARRAY_F32;
    put(name, f32 ? (const void *)keys : halves, N * D * element_size(type));
}

static void put_values(const char *name, knnlm_array_type type, const int64_t *values) {
    uint8_t bytes[N * 8];
    size_t size = element_size(type);
    for (size_t i = 0; i < N; i++) memcpy(bytes + i * size, &values[i], size); // little-endian
    put(name, bytes, N * size);
}

static void small_values(int64_t out[N]) {
    for (size_t i = 0; i < N; i++) out[i] = (int64_t)(i * 61 % VOCABULARY);
}

static void put_pair(knnlm_array_type key, knnlm_array_type value) {
    int64_t values[N];
    small_values(values);
    put_keys("dstore_keys.npy", key);
    put_values("dstore_vals.npy", value, values);
}

static kn_import_options raw_options(void) {
    return (kn_import_options){.keys = at("dstore_keys.npy"), .values = at("dstore_vals.npy")};
}

static void check_raw(const char *path, const int64_t *values) {
    kn_store *s;
    kn_store_document d;
    int32_t tokens[N];
    float keys[N * D];
    OK(kn_store_open(path, &s));
    const kn_store_info *info = kn_store_describe(s);
    assert_true(info->complete);
    assert_int_equal(info->entries, N);
    assert_int_equal(info->documents, 1);
    OK(kn_store_document_at(s, 0, &d));
    assert_false(d.has_offsets);
    assert_non_null(memmem(d.name, d.name_size, "vals.npy", 8));
    OK(kn_store_tokens(s, 0, N, tokens));
    OK(kn_store_keys(s, 0, N, keys));
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(tokens[i], values[i]);
        for (size_t j = 0; j < D; j++) assert_true(keys[i * D + j] == raw_key(i, j));
    }
    kn_store_close(s);
}

static void test_raw_of_every_type(void **state) {
    (void)state;
    int64_t values[N];
    small_values(values);
    for (int key = KNNLM_ARRAY_F16; key <= KNNLM_ARRAY_F32; key++)
        for (int value = KNNLM_ARRAY_INT64; value <= KNNLM_ARRAY_UINT16; value++) {
            put_pair((knnlm_array_type)key, (knnlm_array_type)value);
            // What decides: the types, or the shape.
            for (int how = 0; how < 3; how++) {
                kn_import_options o = raw_options();
                kn_import_totals got;
                if (how != 1) o.key_type = (knnlm_array_type)key;
                if (how != 1 || value == KNNLM_ARRAY_UINT16) o.value_type = (knnlm_array_type)value;
                if (how != 0) o.entries = N;
                if (how != 0) o.settings.dimension = D;
                o.settings.segment = 16;
                o.settings.vocabulary = VOCABULARY;
                discard(at("raw.store"));
                OK(kn_store_import(&o, at("raw.store"), NULL, &got));
                assert_int_equal(got.entries, N);
                assert_int_equal(got.dimension, D);
                assert_false(got.restored);
                check_raw(at("raw.store"), values);
            }
        }
}

// Every way to read a pair, by trying all.
static size_t brute_force(size_t keys, size_t values, uint64_t entries, int32_t dimension) {
    size_t ways = 0;
    for (size_t n = 1; n <= values; n++)
        for (size_t d = 1; d <= 2000; d++)
            for (size_t k = 2; k <= 4; k *= 2)
                for (size_t v = 2; v <= 8; v *= 2)
                    ways += n * d * k == keys && n * v == values && (!entries || entries == n) &&
                            (!dimension || (size_t)dimension == d);
    return ways;
}

static void test_raw_shapes_by_brute_force(void **state) {
    (void)state;
    kn_random r = {11};
    uint8_t zeros[2048] = {0};
    size_t seen[3] = {0};
    for (int round = 0; round < 150; round++) {
        size_t n = 1 + kn_random_below(&r, 6), d = 1 + kn_random_below(&r, 8);
        size_t keys = n * d * (kn_random_below(&r, 2) ? 4 : 2), values = n << (1 + kn_random_below(&r, 3));
        kn_import_options o = raw_options();
        kn_import_totals got;
        if (kn_random_below(&r, 4) == 0) keys += kn_random_below(&r, 3);
        if (kn_random_below(&r, 2)) o.entries = n;
        if (kn_random_below(&r, 2)) o.settings.dimension = (int32_t)d;
        put("dstore_keys.npy", zeros, keys);
        put("dstore_vals.npy", zeros, values);
        size_t ways = brute_force(keys, values, o.entries, o.settings.dimension);
        discard(at("raw.store"));
        knnlm_status status = kn_store_import(&o, at("raw.store"), NULL, &got);
        assert_int_equal(status, ways == 0 ? KNNLM_EDATA : ways == 1 ? KNNLM_OK : KNNLM_EINVAL);
        assert_int_equal(there(at("raw.store")), ways == 1);
        seen[ways < 2 ? ways : 2]++;
    }
    assert_true(seen[0] > 5 && seen[1] > 5 && seen[2] > 5);
}

static void test_raw_ambiguous(void **state) {
    (void)state;
    kn_import_options o = raw_options();
    kn_import_totals got;
    put_pair(KNNLM_ARRAY_F32, KNNLM_ARRAY_INT64);
    FAILS(KNNLM_EINVAL, "40 of dimension 6 (f32, int64)", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EINVAL, "80 of dimension 6 (f16, int32)", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EINVAL,
          "--dim, --entries, --key-type, --value-type:", kn_store_import(&o, at("no"), NULL, &got));
    o.settings.dimension = D; // the trap: the paper's types against knn-transformers'
    FAILS(KNNLM_EINVAL,
          "some of --entries, --key-type, --value-type: their sizes fit 40 of dimension 6 (f32, int64) or 80 "
          "of "
          "dimension 6 (f16, int32)",
          kn_store_import(&o, at("no"), NULL, &got));
    assert_false(there(at("no")));
    o.value_type = KNNLM_ARRAY_INT64;
    OK(kn_store_import(&o, at("yes"), NULL, &got));
    discard(at("yes"));
}

static void test_raw_inconsistent(void **state) {
    (void)state;
    kn_import_options o = raw_options();
    kn_import_totals got;
    put_pair(KNNLM_ARRAY_F16, KNNLM_ARRAY_INT64);
    o.settings.dimension = D + 1;
    FAILS(KNNLM_EDATA, "has 480 bytes", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EDATA, "has 320 bytes", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EDATA, "as entries of dimension 7", kn_store_import(&o, at("no"), NULL, &got));
    o.entries = N;
    FAILS(KNNLM_EDATA, "as 40 entries of dimension 7", kn_store_import(&o, at("no"), NULL, &got));
    o.settings.dimension = 0;
    o.entries = N - 1;
    FAILS(KNNLM_EDATA, "as 39 entries", kn_store_import(&o, at("no"), NULL, &got));
    o.entries = 0;
    o.key_type = KNNLM_ARRAY_F32;
    o.value_type = KNNLM_ARRAY_INT16; // 160 entries of 3 bytes
    FAILS(KNNLM_EDATA, "f32 keys and int16 values do not fit", kn_store_import(&o, at("no"), NULL, &got));
    o = raw_options();
    put("dstore_vals.npy", "", 0);
    FAILS(KNNLM_EDATA, "dstore_vals.npy: is empty", kn_store_import(&o, at("no"), NULL, &got));
    o.keys = at("nowhere");
    FAILS(KNNLM_EIO, "nowhere: No such file", kn_store_import(&o, at("no"), NULL, &got));
    assert_false(there(at("no")));
}

static void test_transformers_names(void **state) {
    (void)state;
    int64_t values[N];
    kn_import_totals got;
    small_values(values);
    discard(at("kt"));
    assert_int_equal(mkdir(at("kt"), 0777), 0);
    put_keys("kt/dstore_my_gpt2_40_6_keys.npy", KNNLM_ARRAY_F16);
    put_values("kt/dstore_my_gpt2_40_6_vals.npy", KNNLM_ARRAY_INT32, values);
    const char *const given[] = {at("kt"), at("kt/"), at("kt/dstore_my_gpt2_40_6_keys.npy")};
    for (size_t i = 0; i < 3; i++) {
        kn_import_options o = {.keys = given[i]};
        discard(at("raw.store"));
        OK(kn_store_import(&o, at("raw.store"), NULL, &got));
        check_raw(at("raw.store"), values);
    }
    assert_int_equal(rename(at("kt/dstore_my_gpt2_40_6_keys.npy"), at("kt/dstore_gpt2_41_6_keys.npy")), 0);
    assert_int_equal(rename(at("kt/dstore_my_gpt2_40_6_vals.npy"), at("kt/dstore_gpt2_41_6_vals.npy")), 0);
    kn_import_options o = {.keys = at("kt")};
    FAILS(KNNLM_EDATA, "480 bytes", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EDATA, "as 41 entries of dimension 6", kn_store_import(&o, at("no"), NULL, &got));
    o.entries = N; // what is said goes before what is named
    discard(at("raw.store"));
    OK(kn_store_import(&o, at("raw.store"), NULL, &got));
    // Half of such a name says nothing.
    put_keys("kt/dstore_6_keys.npy", KNNLM_ARRAY_F16);
    put_values("kt/dstore_6_vals.npy", KNNLM_ARRAY_INT32, values);
    o = (kn_import_options){.keys = at("kt/dstore_6_keys.npy")};
    FAILS(KNNLM_EINVAL, "--entries", kn_store_import(&o, at("no"), NULL, &got));
}

static void test_finding_pairs(void **state) {
    (void)state;
    char *keys, *values;
    discard(at("pairs"));
    assert_int_equal(mkdir(at("pairs"), 0777), 0);
    FAILS(KNNLM_EINVAL, "no pair", kn_import_find(at("pairs"), &keys, &values));
    put("pairs/dstore_keys.npy", "x", 1);
    FAILS(KNNLM_EINVAL, "no pair", kn_import_find(at("pairs"), &keys, &values));
    FAILS(KNNLM_EINVAL, "no pair", kn_import_find(at("pairs/dstore_keys.npy"), &keys, &values));
    put("pairs/dstore_vals.npy", "x", 1);
    OK(kn_import_find(at("pairs"), &keys, &values));
    assert_string_equal(keys, at("pairs/dstore_keys.npy"));
    assert_string_equal(values, at("pairs/dstore_vals.npy"));
    free(keys);
    free(values);
    put("pairs/keys.npy", "x", 1);
    put("pairs/values.npy", "x", 1);
    FAILS(KNNLM_EINVAL, "several pairs of keys and values (dstore_keys.npy, keys.npy)",
          kn_import_find(at("pairs"), &keys, &values));
    OK(kn_import_find(at("pairs/keys.npy"), &keys, &values));
    assert_string_equal(values, at("pairs/values.npy"));
    free(keys);
    free(values);
    FAILS(KNNLM_EINVAL, "no pair", kn_import_find(at("pairs/values.npy"), &keys, &values));
    FAILS(KNNLM_EIO, "nowhere", kn_import_find(at("nowhere"), &keys, &values));
}

// ---------------------------------------------------------------- values

static knnlm_status import_value(knnlm_array_type type, int64_t value, int32_t vocabulary, int32_t *token) {
    int64_t values[N];
    kn_import_totals got;
    kn_import_options o = raw_options();
    small_values(values);
    values[33] = value;
    put_keys("dstore_keys.npy", KNNLM_ARRAY_F16);
    put_values("dstore_vals.npy", type, values);
    o.value_type = type;
    o.settings.dimension = D;
    o.settings.vocabulary = vocabulary;
    discard(at("raw.store"));
    knnlm_status status = kn_store_import(&o, at("raw.store"), NULL, &got);
    assert_int_equal(there(at("raw.store")), status == KNNLM_OK);
    if (status != KNNLM_OK) return status;
    kn_store *s;
    OK(kn_store_open(at("raw.store"), &s));
    OK(kn_store_tokens(s, 33, 1, token));
    kn_store_close(s);
    return KNNLM_OK;
}

static void test_values_out_of_range(void **state) {
    (void)state;
    int32_t token;
    FAILS(KNNLM_EDATA, "value 33 is -15536: int16 has overflowed",
          import_value(KNNLM_ARRAY_INT16, 50000, 0, &token));
    FAILS(KNNLM_EDATA, "--value-type uint16", import_value(KNNLM_ARRAY_INT16, 50000, 50257, &token));
    OK(import_value(KNNLM_ARRAY_UINT16, 50000, 50257, &token));
    assert_int_equal(token, 50000);
    FAILS(KNNLM_EDATA, "the vocabulary has 50000", import_value(KNNLM_ARRAY_UINT16, 50000, 50000, &token));
    FAILS(KNNLM_EDATA, "cannot hold", import_value(KNNLM_ARRAY_INT16, 1, 267744, &token));
    FAILS(KNNLM_EDATA, "cannot hold", import_value(KNNLM_ARRAY_UINT16, 1, 65537, &token));
    OK(import_value(KNNLM_ARRAY_UINT16, 65535, 65536, &token));
    FAILS(KNNLM_EDATA, "value 33 is -1: not a token", import_value(KNNLM_ARRAY_INT32, -1, 0, &token));
    FAILS(KNNLM_EDATA, "value 33 is -1: not a token", import_value(KNNLM_ARRAY_INT64, -1, 0, &token));
    FAILS(KNNLM_EDATA, "value 33 is 2147483648", import_value(KNNLM_ARRAY_INT64, 2147483648, 0, &token));
    FAILS(KNNLM_EDATA, "the vocabulary has 500", import_value(KNNLM_ARRAY_INT64, 500, 500, &token));
    OK(import_value(KNNLM_ARRAY_INT64, INT32_MAX, 0, &token));
    assert_int_equal(token, INT32_MAX);
}

static void write_npy(const char *name, kn_npy_type type, uint32_t n_dims, const size_t *dims,
                      const void *data) {
    kn_npy_writer *w;
    size_t count = 1;
    for (uint32_t i = 0; i < n_dims; i++) count *= dims[i];
    OK(kn_npy_create(at(name), type, n_dims, dims, &w));
    OK(kn_npy_put(w, data, count));
    OK(kn_npy_commit(w));
}

static void test_headers_that_do_not_serve(void **state) {
    (void)state;
    static const float keys[12] = {1, 2, 3};
    static const int16_t values[] = {1, -2, 3, 4};
    kn_import_totals got;
    kn_import_options o = {.keys = at("npy/keys.npy"), .values = at("npy/values.npy")};
    discard(at("npy"));
    assert_int_equal(mkdir(at("npy"), 0777), 0);
    write_npy("npy/keys.npy", KN_NPY_F32, 2, (size_t[]){4, 3}, keys);
    write_npy("npy/values.npy", KN_NPY_I16, 2, (size_t[]){4, 1}, values);
    FAILS(KNNLM_EDATA, "int16 has overflowed", kn_store_import(&o, at("no"), NULL, &got));
    o.value_type = KNNLM_ARRAY_INT64;
    FAILS(KNNLM_EINVAL, "header says int16, not int64", kn_store_import(&o, at("no"), NULL, &got));
    o.value_type = KNNLM_ARRAY_UINT16;
    o.key_type = KNNLM_ARRAY_F16;
    FAILS(KNNLM_EINVAL, "header says float32, not float16", kn_store_import(&o, at("no"), NULL, &got));
    o.key_type = KNNLM_ARRAY_ANY;
    o.settings.dimension = 4;
    FAILS(KNNLM_EDATA, "has 4 x 3 of float32", kn_store_import(&o, at("no"), NULL, &got));
    o.settings.dimension = 3;
    OK(kn_store_import(&o, at("yes"), NULL, &got));
    assert_int_equal(got.value_type, KN_NPY_U16);
    discard(at("yes"));
    write_npy("npy/values.npy", KN_NPY_U8, 1, (size_t[]){3}, values);
    FAILS(KNNLM_EINVAL, "header says uint8, not uint16", kn_store_import(&o, at("no"), NULL, &got));
    o.value_type = KNNLM_ARRAY_ANY;
    FAILS(KNNLM_EDATA, "has 3 of uint8", kn_store_import(&o, at("no"), NULL, &got));
    write_npy("npy/values.npy", KN_NPY_U8, 2, (size_t[]){2, 2}, values);
    FAILS(KNNLM_EDATA, "shape is not that of values", kn_store_import(&o, at("no"), NULL, &got));
    write_npy("npy/values.npy", KN_NPY_F32, 1, (size_t[]){4}, keys);
    FAILS(KNNLM_ENOTSUP, "values are integers", kn_store_import(&o, at("no"), NULL, &got));
    write_npy("npy/keys.npy", KN_NPY_F32, 1, (size_t[]){12}, keys);
    FAILS(KNNLM_EDATA, "shape is not that of keys", kn_store_import(&o, at("no"), NULL, &got));
    write_npy("npy/keys.npy", KN_NPY_I32, 2, (size_t[]){4, 3}, keys);
    FAILS(KNNLM_ENOTSUP, "keys are float16 or float32", kn_store_import(&o, at("no"), NULL, &got));
    assert_false(there(at("no")));
}

// ---------------------------------------------------------------- failures leave nothing

static void test_bad_keys_leave_nothing(void **state) {
    (void)state;
    float keys[N * D] = {0};
    kn_import_totals got;
    kn_import_options o = raw_options();
    put_pair(KNNLM_ARRAY_F32, KNNLM_ARRAY_INT64);
    keys[37 * D + 2] = NAN; // after many segments
    put("dstore_keys.npy", keys, sizeof keys);
    o.settings.dimension = D;
    o.settings.segment = 4;
    o.entries = N;
    FAILS(KNNLM_EDATA, "dstore_keys.npy", kn_store_import(&o, at("no"), NULL, &got));
    FAILS(KNNLM_EDATA, "entry 37 is not finite", kn_store_import(&o, at("no"), NULL, &got));
    assert_false(there(at("no")));
    assert_int_equal(mkdir(at("bare"), 0777), 0); // of somebody else: it stays, and stays empty
    FAILS(KNNLM_EDATA, "not finite", kn_store_import(&o, at("bare"), NULL, &got));
    assert_int_equal(files_in(at("bare")), 0);
    keys[37 * D + 2] = 1e6f;
    put("dstore_keys.npy", keys, sizeof keys);
    o.convert = true;
    o.settings.key_type = KNNLM_KEYS_F16;
    FAILS(KNNLM_EDATA, "do not fit f16: use --keys f32", kn_store_import(&o, at("no"), NULL, &got));
    assert_false(there(at("no")));
    o.convert = false;
    OK(kn_store_import(&o, at("bare"), NULL, &got));
}

static void test_stopping_leaves_nothing(void **state) {
    (void)state;
    uint64_t limit = 20;
    kn_progress progress = {stop, &limit};
    kn_import_totals got;
    kn_export_totals t;
    kn_import_options o = {.keys = at("exported"), .settings = {.segment = 2}};
    discard(at("exported"));
    OK(export(make_store("export.store", KNNLM_KEYS_F16), at("exported"), NULL, &t));
    FAILS(KNNLM_ESTOPPED, "nothing was kept", kn_store_import(&o, at("no"), &progress, &got));
    assert_false(there(at("no")));
}

static void test_what_is_there_stays(void **state) {
    (void)state;
    kn_import_totals got;
    kn_import_options o = raw_options();
    put_pair(KNNLM_ARRAY_F16, KNNLM_ARRAY_INT64);
    o.settings.dimension = D;
    discard(at("raw.store"));
    OK(kn_store_import(&o, at("raw.store"), NULL, &got));
    size_t files = files_in(at("raw.store"));
    FAILS(KNNLM_EIO, "is a store already", kn_store_import(&o, at("raw.store"), NULL, &got));
    assert_int_equal(files_in(at("raw.store")), files);
    assert_int_equal(mkdir(at("full"), 0777), 0);
    put("full/letter.txt", "x", 1);
    FAILS(KNNLM_EIO, "holds other files", kn_store_import(&o, at("full"), NULL, &got));
    assert_int_equal(files_in(at("full")), 1);
    FAILS(KNNLM_EIO, "", kn_store_import(&o, at("nowhere/deep"), NULL, &got));
    FAILS(KNNLM_EIO, "", kn_store_import(&o, at("full/letter.txt"), NULL, &got));
    check_text(at("full/letter.txt"), "x");
}

// ---------------------------------------------------------------- origins and documents

static knnlm_status import_exported(void) {
    kn_import_totals got;
    kn_import_options o = {.keys = at("exported")};
    discard(at("back.store"));
    knnlm_status status = kn_store_import(&o, at("back.store"), NULL, &got);
    assert_int_equal(there(at("back.store")), status == KNNLM_OK);
    return status;
}

static void test_origins_and_documents_go_together(void **state) {
    (void)state;
    kn_export_totals t;
    kn_store *s;
    discard(at("exported"));
    OK(export(make_store("export.store", KNNLM_KEYS_F16), at("exported"), NULL, &t));
    assert_int_equal(rename(at("exported/origins.npy"), at("origins.npy")), 0);
    FAILS(KNNLM_EINVAL, "origins.npy is not", import_exported());
    assert_int_equal(rename(at("exported/documents.tsv"), at("documents.tsv")), 0);
    OK(import_exported()); // one document
    OK(kn_store_open(at("back.store"), &s));
    assert_int_equal(kn_store_describe(s)->documents, 1);
    assert_int_equal(kn_store_describe(s)->entries, live_entries());
    kn_store_close(s);
    assert_int_equal(rename(at("origins.npy"), at("exported/origins.npy")), 0);
    FAILS(KNNLM_EINVAL, "documents.tsv is not", import_exported());
}

static void test_origins_that_do_not_fit(void **state) {
    (void)state;
    static const int64_t good[4][3] = {{0, 0, 0}, {0, 1, 2}, {1, 0, -1}, {1, 1, -1}};
    static const struct {
        int row, column;
        int64_t value;
        const char *text;
    } bad[] = {{0, 0, 1, "row 0: another document"}, {2, 0, 0, "row 2: another document"},
               {1, 1, 2, "row 1: entries"},          {3, 1, 0, "row 3: entries"},
               {1, 2, -1, "row 1: a byte offset"},   {1, 2, 6, "row 1: a byte offset"},
               {3, 2, 0, "row 3: a byte offset"},    {3, 2, -2, "row 3: a byte offset"},
               {0, 1, INT64_MIN, "row 0: entries"},  {2, 2, INT64_MAX, "row 2: a byte offset"}};
    static const float keys[8] = {0};
    static const int32_t values[4] = {1, 2, 3, 4};
    static const char table[] = "number\tname\tpath\tbytes\ttokens\thash\tadded\n"
                                "0\ta\t\t5\t2\t00000000000000000000000000000000\t-\n"
                                "1\tb\t\t0\t2\t00000000000000000000000000000000\t2020-02-29T23:59:59Z\n";
    discard(at("exported"));
    assert_int_equal(mkdir(at("exported"), 0777), 0);
    write_npy("exported/keys.npy", KN_NPY_F32, 2, (size_t[]){4, 2}, keys);
    write_npy("exported/values.npy", KN_NPY_I32, 1, (size_t[]){4}, values);
    write_npy("exported/origins.npy", KN_NPY_I64, 2, (size_t[]){4, 3}, good);
    put("exported/documents.tsv", table, sizeof table - 1);
    OK(import_exported()); // seven columns serve too
    put("exported/documents.tsv", table, sizeof table - 2);
    OK(import_exported()); // and so does a last line without end
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t origins[4][3];
        memcpy(origins, good, sizeof good);
        origins[bad[i].row][bad[i].column] = bad[i].value;
        write_npy("exported/origins.npy", KN_NPY_I64, 2, (size_t[]){4, 3}, origins);
        FAILS(KNNLM_EDATA, bad[i].text, import_exported());
    }
    write_npy("exported/origins.npy", KN_NPY_I64, 2, (size_t[]){3, 3}, good);
    FAILS(KNNLM_EDATA, "not 4 x 3 integers", import_exported());
    write_npy("exported/origins.npy", KN_NPY_F32, 2, (size_t[]){4, 3}, good);
    FAILS(KNNLM_EDATA, "not 4 x 3 integers", import_exported());
}

static void test_documents_that_do_not_fit(void **state) {
    (void)state;
    static const char head[] = "number\tname\tpath\tbytes\ttokens\thash\tadded\tsource_offset\n";
    static const struct {
        const char *row, *text;
    } bad[] = {
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\n", "line 2: not the fields"},
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\t-\t0\t0\n", "line 2: not the fields"},
        {"1\ta\t\t5\t2\t00000000000000000000000000000000\t-\t0\n", "line 2: documents are not numbered"},
        {"0\t\\a\t\t5\t2\t00000000000000000000000000000000\t-\t0\n", "line 2: a backslash"},
        {"0\ta\t\\x\t5\t2\t00000000000000000000000000000000\t-\t0\n", "line 2: a backslash"},
        {"0\ta\t\t-5\t2\t00000000000000000000000000000000\t-\t0\n", "line 2: bytes"},
        {"0\ta\t\t99999999999999999999\t2\t00000000000000000000000000000000\t-\t0\n", "line 2: bytes"},
        {"0\ta\t\t5\t\t00000000000000000000000000000000\t-\t0\n", "line 2: tokens"},
        {"0\ta\t\t5\t2x\t00000000000000000000000000000000\t-\t0\n", "line 2: tokens"},
        {"0\ta\t\t5\t2\t0000000000000000000000000000000\t-\t0\n", "line 2: the hash"},
        {"0\ta\t\t5\t2\t0000000000000000000000000000000g\t-\t0\n", "line 2: the hash"},
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\ttoday\t0\n", "line 2: the time"},
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\t2020-01-01T00:00:00Zx\t0\n", "line 2: the time"},
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\t-\tx\n", "line 2: the source offset"},
        {"0\ta\t\t5\t3\t00000000000000000000000000000000\t-\t0\n", "line 2: more tokens"},
        {"0\ta\t\t5\t18446744073709551615\t00000000000000000000000000000000\t-\t0\n", "line 2: more tokens"},
        {"", "its documents have 0 tokens"},
        {"0\ta\t\t5\t2\t00000000000000000000000000000000\t-\t0\n\n", "line 3: not the fields"},
    };
    static const float keys[4] = {0};
    static const int32_t values[2] = {1, 2};
    static const int64_t origins[2][3] = {{0, 0, 0}, {0, 1, 3}};
    char table[1024];
    discard(at("exported"));
    assert_int_equal(mkdir(at("exported"), 0777), 0);
    write_npy("exported/keys.npy", KN_NPY_F32, 2, (size_t[]){2, 2}, keys);
    write_npy("exported/values.npy", KN_NPY_I32, 1, (size_t[]){2}, values);
    write_npy("exported/origins.npy", KN_NPY_I64, 2, (size_t[]){2, 3}, origins);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int n = snprintf(table, sizeof table, "%s%s", head, bad[i].row);
        put("exported/documents.tsv", table, (size_t)n);
        FAILS(KNNLM_EDATA, bad[i].text, import_exported());
    }
    put("exported/documents.tsv", "", 0);
    FAILS(KNNLM_EDATA, "columns", import_exported());
    put("exported/documents.tsv", "0\ta\t\t5\t2\t0\t-\n", 14);
    FAILS(KNNLM_EDATA, "columns", import_exported());
}

// Whatever becomes of one byte of the export's small files: a store without damage, or none.
static void test_damaged_exports(void **state) {
    (void)state;
    static const char *const files[] = {"exported/documents.tsv", "exported/origins.npy",
                                        "exported/values.npy"};
    static const uint8_t flips[] = {0x01, 0x80, 0x03}; // 0x03: a tab becomes a line end
    kn_export_totals t;
    discard(at("exported"));
    OK(export(make_store("export.store", KNNLM_KEYS_F16), at("exported"), NULL, &t));
    for (size_t f = 0; f < 3; f++) {
        char *data;
        size_t size;
        OK(kn_file_read(at(files[f]), &data, &size));
        for (size_t i = 0; i < size; i += f ? 3 : 1) {
            uint8_t flip = flips[i % sizeof flips];
            data[i] = (char)(data[i] ^ flip);
            put(files[f], data, size);
            data[i] = (char)(data[i] ^ flip);
            knnlm_status status = import_exported();
            kn_store *s;
            if (status == KNNLM_OK) {
                OK(kn_store_open(at("back.store"), &s));
                assert_int_equal(kn_store_describe(s)->entries, live_entries());
                kn_store_close(s);
            } else {
                assert_true(status == KNNLM_EDATA || status == KNNLM_ENOTSUP || status == KNNLM_EINVAL);
            }
        }
        for (size_t cut = 0; cut < size; cut += 7) {
            put(files[f], data, cut); // the last document is empty: its row may be missed by nobody
            assert_true(import_exported() != KNNLM_OK || f == 0);
        }
        put(files[f], data, size);
        free(data);
    }
    OK(import_exported());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_round_trips),
        cmocka_unit_test(test_npy_header_is_numpys),
        cmocka_unit_test(test_npy_headers_of_others),
        cmocka_unit_test(test_npy_refusals),
        cmocka_unit_test(test_npy_damaged_anywhere),
        cmocka_unit_test(test_npy_writer_counts),
        cmocka_unit_test(test_npy_integers),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_export_converts),
        cmocka_unit_test(test_export_refusals),
        cmocka_unit_test(test_export_of_damaged_store),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_round_trip_converts),
        cmocka_unit_test(test_empty_store),
        cmocka_unit_test(test_raw_of_every_type),
        cmocka_unit_test(test_raw_shapes_by_brute_force),
        cmocka_unit_test(test_raw_ambiguous),
        cmocka_unit_test(test_raw_inconsistent),
        cmocka_unit_test(test_transformers_names),
        cmocka_unit_test(test_finding_pairs),
        cmocka_unit_test(test_values_out_of_range),
        cmocka_unit_test(test_headers_that_do_not_serve),
        cmocka_unit_test(test_bad_keys_leave_nothing),
        cmocka_unit_test(test_stopping_leaves_nothing),
        cmocka_unit_test(test_what_is_there_stays),
        cmocka_unit_test(test_origins_and_documents_go_together),
        cmocka_unit_test(test_origins_that_do_not_fit),
        cmocka_unit_test(test_documents_that_do_not_fit),
        cmocka_unit_test(test_damaged_exports),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
