// Stores refuse what cannot be: settings, numbers beyond the end, calls out of turn, keys too large, another
// model's keys.
#include "store_steps.h"

// ---------------------------------------------------------------- what the clock and the file system say

static void what_is_no_store_is_refused(void **state) {
    (void)state;
    kn_store *s;
    kn_store_writer *w;
    assert_false(kn_store_exists("nowhere"));
    FAILS(KNNLM_EIO, "nowhere", kn_store_open("nowhere", &s));
    FAILS(KNNLM_EIO, "nowhere", kn_store_write("nowhere", &w));
    assert_int_equal(access("nowhere", F_OK), -1);
    assert_int_equal(mkdir("empty", 0777), 0);
    FAILS(KNNLM_EDATA, "not a store", kn_store_open("empty", &s));
    FAILS(KNNLM_EDATA, "not a store", kn_store_write("empty", &w));
    assert_int_equal(access("empty/LOCK", F_OK), -1);
    kit_write_file(".", "file", "x", 1);
    FAILS(KNNLM_EIO, "file", kn_store_open("file", &s));
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    FAILS(KNNLM_EIO, "file: cannot create", kn_store_create("file", &set, &w));
    kit_write_file("empty", "MANIFEST", "", 0);
    FAILS(KNNLM_EDATA, "not the manifest", kn_store_open("empty", &s));
    static const char newer[] = "knnlm-store 3 0123456789abcdef\n{}";
    kit_write_file("empty", "MANIFEST", newer, sizeof newer - 1);
    FAILS(KNNLM_ENOTSUP, "version 3", kn_store_open("empty", &s));
    static const char wrong[] = "knnlm-store 1 0123456789abcdef\n{}";
    kit_write_file("empty", "MANIFEST", wrong, sizeof wrong - 1);
    FAILS(KNNLM_EDATA, "checksum", kn_store_open("empty", &s));
    assert_true(kn_store_exists("empty"));
    FAILS(KNNLM_EIO, "store already", kn_store_create("empty", &set, &w));
}

// ---------------------------------------------------------------- bad arguments

static void impossible_settings_are_refused(void **state) {
    (void)state;
    kn_store_writer *w;
    static char endless[100000];
    const kn_store_settings good = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kn_store_settings bad[12];
    memset(endless, 'x', sizeof endless - 1);
    for (size_t i = 0; i < COUNT(bad); i++) bad[i] = good;
    bad[0].key_type = (knnlm_keys)KN_KEY_TYPES;
    bad[1].distance = (knnlm_distance)KN_DISTANCES;
    bad[2].dimension = 0;
    bad[3].dimension = bad[3].model_dimension = KN_STORE_DIMENSION_MAX + 1;
    bad[4].model_dimension = 3;
    bad[5].vocabulary = -1;
    bad[6].window = -1;
    bad[7].min_context = -1;
    bad[8].segment = 0;
    bad[9].segment = KN_STORE_SEGMENT_MAX + 1;
    bad[10].model = endless;
    bad[11].key_type = (knnlm_keys)-1;
    for (size_t i = 0; i < COUNT(bad); i++)
        FAILS(KNNLM_EINVAL, "a store with", kn_store_create("s", &bad[i], &w));
    assert_int_equal(access("s", F_OK), -1);
    FAILS(KNNLM_EIO, "no/where", kn_store_create("no/where", &good, &w));
}

static void reading_beyond_the_end_is_refused(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_NONE, 4, 7);
    int32_t token;
    uint64_t offset;
    float key[4];
    kn_store_entry e;
    kn_store_document d;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    FAILS(KNNLM_EINVAL, "no entries 128", kn_store_entry_at(s, MIXED_ENTRIES, &e));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_entry_at(s, UINT64_MAX, &e));
    FAILS(KNNLM_EINVAL, "no document 12", kn_store_document_at(s, MIXED, &d));
    FAILS(KNNLM_EINVAL, "no document", kn_store_document_at(s, UINT64_MAX, &d));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_tokens(s, MIXED_ENTRIES, 1, &token));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_tokens(s, 1, SIZE_MAX, &token));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_offsets(s, MIXED_ENTRIES + 1, 0, &offset));
    FAILS(KNNLM_ENOTSUP, "no keys", kn_store_keys(s, 0, 1, key));
    kn_store_segment g = kn_store_segment_at(s, 0);
    assert_true(!g.keys && !g.scales && g.tokens);
    assert_true(kn_store_entry_removed(s, UINT64_MAX));
    kn_store_close(s);
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    s = opened("s");
    assert_false(kn_store_document_removed(s, MIXED));
    assert_false(kn_store_document_removed(s, UINT64_MAX));
    kn_store_close(s);
}

static void writing_out_of_turn_is_refused(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 2, 7);
    kn_store_writer *w;
    kit_names names;
    kit_item item = {1, 3, 3, false};
    kn_store_document d = kit_document(&item, &names), huge = d, many = d;
    int32_t tokens[4] = {1, 2, 3, 4}, wrong[1] = {KIT_VOCABULARY}, negative[1] = {-1};
    uint64_t offsets[4] = {0, 1, 2, 3}, far[1] = {UINT64_C(1) << 32}, present;
    float keys[8] = {0};
    huge.bytes = KN_STORE_DOCUMENT_BYTES_MAX + UINT64_C(1);
    many.tokens = KN_STORE_ENTRIES_MAX + UINT64_C(1);
    OK(kn_store_create("s", &set, &w));
    assert_null(kn_store_writer_base(w));
    assert_string_equal(kn_store_writer_path(w), "s");
    FAILS(KNNLM_EINVAL, "1 entries more", kn_store_writer_append(w, tokens, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "nothing to go on with", kn_store_writer_continue(w, &present));
    FAILS(KNNLM_EINVAL, "no document 0", kn_store_writer_remove(w, 0));
    FAILS(KNNLM_ENOTSUP, "at most 4 GiB", kn_store_writer_document(w, &huge));
    FAILS(KNNLM_ENOTSUP, "entries", kn_store_writer_document(w, &many));
    OK(kn_store_writer_document(w, &d));
    FAILS(KNNLM_EINVAL, "4 entries more", kn_store_writer_append(w, tokens, offsets, keys, 4));
    FAILS(KNNLM_EINVAL, "without keys", kn_store_writer_append(w, tokens, offsets, NULL, 1));
    FAILS(KNNLM_EINVAL, "without offsets", kn_store_writer_append(w, tokens, NULL, keys, 1));
    FAILS(KNNLM_EINVAL, "offset", kn_store_writer_append(w, tokens, far, keys, 1));
    FAILS(KNNLM_EINVAL, "token 1000", kn_store_writer_append(w, wrong, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "token -1", kn_store_writer_append(w, negative, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "after 0 of 3", kn_store_writer_document(w, &d));
    FAILS(KNNLM_EINVAL, "after 0 of 3", kn_store_writer_commit(w));
    OK(kn_store_writer_append(w, tokens, offsets, keys, 0));
    // None of that did any harm.
    OK(kit_append(w, &item, 0, 3, 2));
    assert_int_equal(kn_store_writer_entries(w), 3);
    commit_and_close(w);
    HOLDS("s", &item, 1);
}

static void keys_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        knnlm_keys type;
        float value;
        const char *text;
    } cases[] = {{KNNLM_KEYS_F16, 65520, "do not fit f16"},
                 {KNNLM_KEYS_F16, -1e30f, "do not fit f16"},
                 {KNNLM_KEYS_F16, NAN, "entry 300 is not finite"},
                 {KNNLM_KEYS_F32, -INFINITY, "entry 300 is not finite"},
                 {KNNLM_KEYS_F32, NAN, "entry 300 is not finite"},
                 {KNNLM_KEYS_INT8, INFINITY, "entry 300 is not finite"},
                 {KNNLM_KEYS_INT8, NAN, "entry 300 is not finite"}};
    kit_item item = {0, 400, 400, false};
    static int32_t tokens[400];
    static uint64_t offsets[400];
    static float keys[400 * 2];
    for (size_t i = 0; i < COUNT(cases); i++) {
        kn_store_settings set = kit_settings(cases[i].type, 2, 7000);
        kit_names names;
        kn_store_document d = kit_document(&item, &names);
        kn_store_writer *w;
        OK(kn_store_create("s", &set, &w));
        OK(kn_store_writer_document(w, &d));
        keys[601] = cases[i].value;
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_append(w, tokens, offsets, keys, 400));
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_commit(w)); // it stays so
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_document(w, &d));
        kn_store_writer_close(w);
        assert_false(kn_store_exists("s"));
        kit_delete("s");
    }
}

// 65519.99 rounds to the largest f16; the largest f32 must not become infinite as int8.
static void the_largest_keys_are_kept(void **state) {
    (void)state;
    static const struct {
        knnlm_keys type;
        float in, out;
    } cases[] = {{KNNLM_KEYS_F16, 65519.99f, 65504},
                 {KNNLM_KEYS_F32, 0x1.fffffep127f, 0x1.fffffep127f},
                 {KNNLM_KEYS_INT8, 0x1.fffffep127f, 0x1.fffffep127f},
                 {KNNLM_KEYS_INT8, 0x1p-149f, 0}};
    kit_item item = {0, 1, 1, false};
    for (size_t i = 0; i < COUNT(cases); i++) {
        kn_store_settings set = kit_settings(cases[i].type, 1, 7);
        kit_names names;
        kn_store_document d = kit_document(&item, &names);
        kn_store_writer *w;
        float key;
        OK(kn_store_create("s", &set, &w));
        OK(kn_store_writer_document(w, &d));
        OK(kn_store_writer_append(w, &(int32_t){0}, &(uint64_t){0}, &cases[i].in, 1));
        commit_and_close(w);
        kn_store *s = opened("s");
        OK(kn_store_keys(s, 0, 1, &key));
        assert_true(fabs((double)key - (double)cases[i].out) <= 1e-6 * fabs((double)cases[i].out));
        kn_store_close(s);
        kit_delete("s");
    }
}

// ---------------------------------------------------------------- what else a store keeps

static void another_model_is_refused_by_name(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    const char *model = set.model_fingerprint, *tokenizer = set.tokenizer_fingerprint;
    OK(kit_build("s", &set, mixed, 3, 10));
    kn_store *s = opened("s");
    OK(kn_store_check_model(s, "x.gguf", model, tokenizer, 5));
    FAILS(KNNLM_EINVAL, "models/tiny.gguf", kn_store_check_model(s, "x.gguf", "other", tokenizer, 5));
    assert_non_null(strstr(knnlm_message(), "x.gguf"));
    assert_non_null(strstr(knnlm_message(), "s: "));
    FAILS(KNNLM_EINVAL, "word", kn_store_check_model(s, "x.gguf", model, "other", 5));
    assert_non_null(strstr(knnlm_message(), "x.gguf"));
    FAILS(KNNLM_EINVAL, "x.gguf has 6", kn_store_check_model(s, "x.gguf", model, tokenizer, 6));
    kn_store_close(s);
    set.model_fingerprint = set.tokenizer_fingerprint = ""; // imported: only the width is known
    OK(kit_build("t", &set, mixed, 3, 10));
    s = opened("t");
    OK(kn_store_check_model(s, "x.gguf", "any", "any", 5));
    FAILS(KNNLM_EINVAL, "width", kn_store_check_model(s, "x.gguf", "any", "any", 4));
    kn_store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_store_is_refused),       TEST(impossible_settings_are_refused),
        TEST(reading_beyond_the_end_is_refused), TEST(writing_out_of_turn_is_refused),
        TEST(keys_that_do_not_fit_are_refused),  TEST(the_largest_keys_are_kept),
        TEST(another_model_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
