// Compacting a store gives the one that would be built afresh; stopped or damaged, it changes nothing.
#include "store_steps.h"

// ---------------------------------------------------------------- compacting

// Parts in the order of the segments: their numbers differ, their bytes must not.
static void same_segments(const char *a, const char *b) {
    kn_store *left = opened(a), *right = opened(b);
    kit_image x = kit_read(a), y = kit_read(b);
    assert_int_equal(left->manifest.segment_count, right->manifest.segment_count);
    for (size_t i = 0; i < left->manifest.segment_count; i++)
        for (int kind = 0; kind < 2; kind++) {
            char name[2][KN_PART_NAME];
            kn_part_name(name[0], left->manifest.segments[i].file, kind ? "keys" : "text");
            kn_part_name(name[1], right->manifest.segments[i].file, kind ? "keys" : "text");
            if (kind && left->manifest.settings.key_type == KNNLM_KEYS_NONE) continue;
            if (!kit_same_bytes(kit_find(&x, name[0]), kit_find(&y, name[1])))
                fail_msg("%s and %s differ", name[0], name[1]);
        }
    assert_int_equal(x.count, y.count); // nothing else is left
    kit_free(&x);
    kit_free(&y);
    kn_store_close(left);
    kn_store_close(right);
}

// The documents of `items` that were not removed.
static size_t survivors(const kit_item *items, size_t count, kit_item *out) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!items[i].removed) out[n++] = items[i];
    return n;
}

// Adds the documents in several goes, removes those of the pattern, compacts.
static void compact_pattern(knnlm_keys type, uint32_t segment, unsigned pattern) {
    kn_store_settings set = kit_settings(type, 5, segment);
    kit_item items[MIXED], left[MIXED];
    knnlm_compact_result c;
    memcpy(items, mixed, sizeof mixed);
    OK(kit_build("s", &set, items, 4, 10));
    kn_store_writer *w = writing("s");
    OK(kit_add(w, items + 4, 5, 2));
    OK(kn_store_writer_commit(w));
    OK(kit_add(w, items + 9, MIXED - 9, 3));
    commit_and_close(w);
    w = writing("s");
    for (size_t i = 0; i < MIXED; i++) {
        items[i].removed = pattern >> i & 1;
        if (items[i].removed) OK(kn_store_writer_remove(w, i));
    }
    commit_and_close(w);
    HOLDS("s", items, MIXED);
    size_t n = survivors(items, MIXED, left);
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    assert_int_equal(c.documents_dropped, MIXED - n);
    HOLDS("s", left, n);
    OK(kit_build("fresh", &set, left, n, 1000));
    same_segments("s", "fresh");
    kit_delete("s");
    kit_delete("fresh");
}

static void compacted_is_as_built_afresh(void **state) {
    (void)state;
    kn_random random = {7};
    static const uint32_t segments[] = {7, 16, 30, 1000};
    for (int type = 0; type < KN_KEY_TYPES; type++) {
        compact_pattern((knnlm_keys)type, 16, (1u << MIXED) - 1); // all
        for (int i = 0; i < 12; i++)
            compact_pattern((knnlm_keys)type, segments[i % 4],
                            (unsigned)kn_random_below(&random, 1u << MIXED));
    }
    compact_pattern(KNNLM_KEYS_F16, 7, 0);
    for (unsigned i = 0; i < MIXED; i++) compact_pattern(KNNLM_KEYS_F16, 7, 1u << i);
}

static void compacting_what_is_compact_changes_nothing(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    knnlm_compact_result c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    kit_image before = kit_read("s");
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    assert_true(kn_store_is_current(s));
    assert_int_equal(c.segments_before, c.segments_after);
    assert_int_equal(c.bytes_before, c.bytes_after);
    assert_int_equal(c.entries_dropped + c.documents_dropped, 0);
    kit_free(&before);
    kit_free(&after);
    kn_store_close(s);
}

static void segments_before_the_first_change_stay(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    knnlm_compact_result c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 10));
    commit_and_close(w);
    kit_image before = kit_read("s");
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    assert_true(c.bytes_after < c.bytes_before && c.segments_after == c.segments_before - 2);
    assert_int_equal(c.entries_dropped, 15);
    kit_image after = kit_read("s");
    for (int i = 1; i <= 16; i++) { // the eleventh document begins in the 17th segment
        char name[KN_PART_NAME];
        kn_part_name(name, (uint64_t)i, "keys");
        assert_true(kit_same_bytes(kit_find(&before, name), kit_find(&after, name)));
    }
    assert_null(kit_find(&after, "000017.keys"));
    kit_free(&before);
    kit_free(&after);
}

static void a_stopped_compaction_changes_nothing(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    knnlm_compact_result c;
    int calls = 0;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    kit_image before = kit_read("s");
    FAILS(KNNLM_ESTOPPED, "as it was", kn_store_compact("s", false, NULL, &(kn_progress){stop, &calls}, &c));
    assert_int_equal(calls, 5);
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    kit_free(&before);
    kit_free(&after);
}

static void a_snapshot_outlives_its_files(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kit_item left[MIXED];
    knnlm_compact_result c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *old = opened("s");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    assert_int_equal(access("s/000001.text", F_OK), -1);
    assert_null(kit_compare(old, mixed, MIXED));
    memcpy(left, mixed, sizeof mixed);
    left[1].removed = true;
    HOLDS("s", left, survivors(left, MIXED, left));
    kn_store_close(old);
}

// One document a segment; byte `at` (from the middle) of a part of the second is flipped.
static void build_damaged(const char *name) {
    static const kit_item items[] = {{1, 8, 8, false}, {2, 8, 8, false}, {3, 8, 8, false}, {4, 8, 8, false}};
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 8);
    OK(kit_build("s", &set, items, 4, 10));
    kit_file file;
    kit_read_file("s", name, &file);
    size_t record = 64 + 64 + 64; // of the text: after the tokens and the offsets
    file.data[record < file.size - 100 ? record + 3 : 70] ^= 0xff;
    kit_write_file("s", name, file.data, file.size);
    free(file.data);
}

static void damage_is_not_copied(void **state) {
    (void)state;
    static const char *const names[] = {"000002.text", "000002.keys"};
    static const kit_item kept[] = {{3, 8, 8, false}, {4, 8, 8, false}};
    for (int i = 0; i < 2; i++) {
        knnlm_compact_result c;
        build_damaged(names[i]);
        kn_store_writer *w = writing("s");
        OK(kn_store_writer_remove(w, 0));
        commit_and_close(w);
        kit_image before = kit_read("s");
        FAILS(KNNLM_EDATA, names[i], kn_store_compact("s", false, NULL, NULL, &c));
        kit_image after = kit_read("s");
        assert_null(kit_compare_images(&before, &after));
        kit_free(&before);
        kit_free(&after);
        w = writing("s");
        OK(kn_store_writer_remove(w, 1)); // the damaged one
        commit_and_close(w);
        OK(kn_store_compact("s", false, NULL, NULL, &c));
        HOLDS("s", kept, 2);
        kit_delete("s");
    }
}

// Also when it is the last one, whose record a writer looks at first.
static void a_damaged_last_document_can_go(void **state) {
    (void)state;
    static const kit_item kept[] = {{1, 8, 8, false}, {2, 8, 8, false}, {3, 8, 8, false}};
    knnlm_compact_result c;
    build_damaged("000004.text");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    HOLDS("s", kept, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(compacted_is_as_built_afresh),          TEST(compacting_what_is_compact_changes_nothing),
        TEST(segments_before_the_first_change_stay), TEST(a_stopped_compaction_changes_nothing),
        TEST(a_snapshot_outlives_its_files),         TEST(damage_is_not_copied),
        TEST(a_damaged_last_document_can_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
