// Stores: what is put in comes out, whatever its type and wherever segments end.
#include "store_steps.h"

// ---------------------------------------------------------------- round trips

static void round_trip(knnlm_keys type, int32_t d, uint32_t segment) {
    kn_store_settings set = kit_settings(type, d, segment);
    static const size_t pieces[] = {1, 5, 1000};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        char path[16];
        snprintf(path, sizeof path, "s%zu", i);
        OK(kit_build(path, &set, mixed, MIXED, pieces[i]));
        HOLDS(path, mixed, MIXED);
        SAME_DIRECTORIES("s0", path); // however the entries came
        if (i) kit_delete(path);
    }
    kit_delete("s0");
}

static void every_type_of_keys_comes_back(void **state) {
    (void)state;
    static const uint32_t segments[] = {7, 64, 127, 128, 129, KN_STORE_SEGMENT_DEFAULT};
    static const int32_t dimensions[] = {1, 5, 64};
    for (int type = 0; type < KN_KEY_TYPES; type++)
        for (size_t i = 0; i < COUNT(segments); i++)
            for (size_t j = 0; j < COUNT(dimensions); j++)
                round_trip((knnlm_keys)type, dimensions[j], segments[i]);
    round_trip(KNNLM_KEYS_INT8, 3, 1);
}

static void ranges_span_segments(void **state) {
    (void)state;
    enum { D = 3 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, D, 7);
    int32_t tokens[MIXED_ENTRIES], part[MIXED_ENTRIES];
    uint64_t offsets[MIXED_ENTRIES], offsets_part[MIXED_ENTRIES];
    float keys[MIXED_ENTRIES * D], keys_part[MIXED_ENTRIES * D];
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    for (size_t i = 0, n = 0; i < MIXED; i++) // by the model, not by the store
        for (uint64_t p = 0; p < mixed[i].tokens; p++, n++) {
            tokens[n] = kit_token(mixed[i].seed, p);
            offsets[n] = kit_offset(mixed[i].seed, p);
            kit_keys(keys + n * D, mixed[i].seed, p, 1, D);
        }
    for (size_t first = 0; first <= MIXED_ENTRIES; first++)
        for (size_t n = 0; n <= MIXED_ENTRIES - first; n++) {
            OK(kn_store_tokens(s, first, n, part));
            OK(kn_store_offsets(s, first, n, offsets_part));
            OK(kn_store_keys(s, first, n, keys_part));
            assert_memory_equal(part, tokens + first, n * sizeof *part);
            assert_memory_equal(offsets_part, offsets + first, n * sizeof *offsets_part);
            assert_memory_equal(keys_part, keys + first * D, n * D * sizeof *keys_part);
        }
    kn_store_close(s);
}

static void segments_lie_in_memory(void **state) {
    (void)state;
    enum { D = 4 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, D, 10);
    OK(kit_build("s", &set, mixed, MIXED, 3));
    kn_store *s = opened("s");
    assert_int_equal(kn_store_describe(s)->segments, 13);
    uint64_t entries = 0, documents = 0;
    for (size_t i = 0; i < 13; i++) {
        kn_store_segment g = kn_store_segment_at(s, i);
        float keys[10 * D];
        assert_int_equal(g.first, entries);
        assert_int_equal(g.first_document, documents);
        assert_int_equal(g.count, i < 12 ? 10 : 8);
        OK(kn_store_keys(s, g.first, g.count, keys));
        for (size_t j = 0; j < g.count; j++) {
            kn_store_entry e;
            OK(kn_store_entry_at(s, g.first + j, &e));
            assert_int_equal(g.tokens[j], e.token);
            assert_int_equal(g.offsets[j], e.offset);
            for (size_t k = 0; k < D; k++)
                assert_true(g.scales[j] * (float)((const int8_t *)g.keys)[j * D + k] == keys[j * D + k]);
        }
        entries += g.count;
        documents += g.document_count;
    }
    assert_int_equal(entries, MIXED_ENTRIES);
    assert_int_equal(documents, MIXED);
    kn_store_close(s);
}

static void a_full_segment_is_small(void **state) {
    (void)state;
    enum { D = 64, N = 4096 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, D, N);
    kit_item items[16];
    for (uint32_t i = 0; i < 16; i++) items[i] = (kit_item){i, N / 16, N / 16, false};
    OK(kit_build("s", &set, items, 16, 100));
    kn_store *s = opened("s");
    uint64_t bytes = 0;
    kit_image image = kit_read("s");
    for (size_t i = 0; i < image.count; i++) bytes += image.files[i].size;
    assert_int_equal(kn_store_describe(s)->bytes, bytes);
    assert_int_equal(kn_key_bytes(KNNLM_KEYS_F16, D), 2 * D);
    assert_true(bytes <= (uint64_t)N * (2 * D + 16));
    kit_free(&image);
    kn_store_close(s);
}

static void settings_and_counts_survive(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, 5, 7);
    set.model = "models/a \"b\" \\ \xc3\xa9.gguf";
    set.distance = KNNLM_DISTANCE_COSINE;
    set.model_dimension = 11;
    set.tap = "attention";
    set.split = "line";
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s/");
    const kn_store_info *info = kn_store_describe(s);
    const kn_store_settings *got = &info->settings;
    assert_string_equal(info->path, "s");
    assert_string_equal(got->model, set.model);
    assert_string_equal(got->model_fingerprint, set.model_fingerprint);
    assert_string_equal(got->tokenizer, set.tokenizer);
    assert_string_equal(got->tokenizer_fingerprint, set.tokenizer_fingerprint);
    assert_string_equal(got->tap, set.tap);
    assert_string_equal(got->split, set.split);
    assert_int_equal(got->vocabulary, set.vocabulary);
    assert_int_equal(got->key_type, set.key_type);
    assert_int_equal(got->dimension, set.dimension);
    assert_int_equal(got->model_dimension, set.model_dimension);
    assert_int_equal(got->distance, set.distance);
    assert_int_equal(got->window, set.window);
    assert_int_equal(got->min_context, set.min_context);
    assert_int_equal(got->segment, set.segment);
    assert_true(info->complete);
    assert_int_equal(info->created, atoll(KIT_EPOCH));
    assert_int_equal(info->generation, MIXED_ENTRIES / 7 + 1);
    assert_int_equal(info->segments, MIXED_ENTRIES / 7 + 1);
    assert_false(info->tuned.known || info->has_tokenizer || info->has_projection);
    kn_store_close(s);
}

static void a_store_may_be_empty(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kn_store_entry e;
    OK(kit_build("s", &set, NULL, 0, 1));
    HOLDS("s", NULL, 0);
    kn_store *s = opened("s");
    OK(kn_store_tokens(s, 0, 0, NULL));
    FAILS(KNNLM_EINVAL, "there are 0", kn_store_entry_at(s, 0, &e));
    assert_true(kn_store_entry_removed(s, 0));
    assert_false(kn_store_document_removed(s, 0));
    kn_store_close(s);
    OK(kit_build("t", &set, mixed, 1, 1)); // one document, and it is empty
    HOLDS("t", mixed, 1);
    kn_store_writer *w = writing("t");
    OK(kit_add(w, mixed + 1, 5, 2));
    commit_and_close(w);
    HOLDS("t", mixed, 6);
}

// ---------------------------------------------------------------- what the clock and the file system say

static void times_are_the_environments(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kit_item one = {2, 3, 3, false}; // its own time is 0: now
    kn_store_document d;
    static const char *const wrong[] = {"", "x", "12x", "-5"};
    OK(kit_build("s", &set, &one, 1, 3));
    kn_store *s = opened("s");
    OK(kn_store_document_at(s, 0, &d));
    assert_int_equal(d.added, atoll(KIT_EPOCH));
    kn_store_close(s);
    for (size_t i = 0; i < COUNT(wrong); i++) { // then the clock's
        setenv("SOURCE_DATE_EPOCH", wrong[i], 1);
        OK(kit_build("t", &set, &one, 1, 3));
        s = opened("t");
        assert_true(kn_store_describe(s)->created > atoll(KIT_EPOCH) + 1000);
        kn_store_close(s);
        kit_delete("t");
    }
}

static void names_need_not_be_utf8(void **state) {
    (void)state;
    static const char path[] = "st\xff\xfe re \n";
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    set.model = set.tap = "caf\xe9.gguf";
    OK(kit_build(path, &set, mixed, MIXED, 10));
    kn_store_writer *w = writing(path);
    OK(kn_store_writer_remove(w, 0));
    commit_and_close(w);
    kn_store *s = opened(path);
    assert_string_equal(kn_store_describe(s)->settings.model, "caf?.gguf");
    assert_int_equal(kn_store_describe(s)->removed_documents, 1);
    kn_store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_type_of_keys_comes_back), TEST(ranges_span_segments),        TEST(segments_lie_in_memory),
        TEST(a_full_segment_is_small),       TEST(settings_and_counts_survive), TEST(a_store_may_be_empty),
        TEST(times_are_the_environments),    TEST(names_need_not_be_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
