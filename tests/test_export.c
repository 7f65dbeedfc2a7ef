// Stores to .npy arrays and a table of documents: every number, conversions, refusals, damaged stores.
#include "interop_kit.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_export_converts),
        cmocka_unit_test(test_export_refusals),
        cmocka_unit_test(test_export_of_damaged_store),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
