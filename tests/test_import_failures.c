// An import that fails or is stopped leaves nothing behind, and what was there stays.
#include "interop_kit.h"

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
    FAILS(KNNLM_EDATA, "do not fit f16: use `keys` f32", kn_store_import(&o, at("no"), NULL, &got));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_keys_leave_nothing),
        cmocka_unit_test(test_stopping_leaves_nothing),
        cmocka_unit_test(test_what_is_there_stays),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
