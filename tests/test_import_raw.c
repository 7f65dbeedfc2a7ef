// Raw arrays of the paper's code and of knn-transformers, their shapes found by their sizes; values and
// headers that do not serve.
#include "interop_kit.h"

// ---------------------------------------------------------------- raw arrays

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
          "`dimension`, `entries`, `key_type`, `value_type`:", kn_store_import(&o, at("no"), NULL, &got));
    o.settings.dimension = D; // the trap: the paper's types against knn-transformers'
    FAILS(KNNLM_EINVAL,
          "some of `entries`, `key_type`, `value_type`: their sizes fit 40 of dimension 6 (f32, int64) or 80 "
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
    FAILS(KNNLM_EINVAL, "`entries`", kn_store_import(&o, at("no"), NULL, &got));
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
    FAILS(KNNLM_EDATA, "`value_type` uint16", import_value(KNNLM_ARRAY_INT16, 50000, 50257, &token));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raw_of_every_type),   cmocka_unit_test(test_raw_shapes_by_brute_force),
        cmocka_unit_test(test_raw_ambiguous),       cmocka_unit_test(test_raw_inconsistent),
        cmocka_unit_test(test_transformers_names),  cmocka_unit_test(test_finding_pairs),
        cmocka_unit_test(test_values_out_of_range), cmocka_unit_test(test_headers_that_do_not_serve),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
