// Interrupted builds of a store: they go on where the last commit stands, or what is unfinished is removed.
#include "store_steps.h"

// ---------------------------------------------------------------- resuming

// What a build does: goes on where the store ends.
static void resume(const char *path, const kn_store_settings *set, size_t stop_after) {
    kn_store_writer *w;
    uint64_t present = 0, first = 0;
    if (kn_store_exists(path)) {
        w = writing(path);
        first = kn_store_describe(kn_store_writer_base(w))->documents;
        if (kn_store_writer_continue(w, &present) == KNNLM_OK) first--;
    } else {
        OK(kn_store_create(path, set, &w));
    }
    for (uint64_t i = first; i < MIXED && stop_after; i++) {
        kit_names names;
        kn_store_document d = kit_document(&mixed[i], &names);
        uint64_t from = i == first ? present : 0, to = mixed[i].tokens;
        if (!from) OK(kn_store_writer_document(w, &d));
        if (to - from > stop_after) to = from + stop_after;
        OK(kit_append(w, &mixed[i], from, to, 5));
        stop_after -= (size_t)(to - from);
    }
    if (stop_after) OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

static void an_interrupted_build_goes_on(void **state) {
    (void)state;
    static const uint32_t segments[] = {7, 16, 64};
    for (size_t i = 0; i < COUNT(segments); i++) {
        kn_store_settings set = kit_settings(i ? KNNLM_KEYS_INT8 : KNNLM_KEYS_F16, 3, segments[i]);
        OK(kit_build("whole", &set, mixed, MIXED, 100));
        for (size_t stop = 1; stop <= MIXED_ENTRIES; stop++) {
            resume("s", &set, stop);
            if (stop % 3 == 0) resume("s", &set, 20); // and once more
            resume("s", &set, SIZE_MAX);
            SAME_DIRECTORIES("whole", "s");
            kit_delete("s");
        }
        kit_delete("whole");
    }
}

// Four whole segments and the beginning of a fifth: 28 of the first document's 40 entries are there.
static void interrupt(const char *path, const kit_item *item) {
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 7);
    kit_names names;
    kn_store_document d = kit_document(item, &names);
    kn_store_writer *w;
    OK(kn_store_create(path, &set, &w));
    OK(kn_store_writer_document(w, &d));
    OK(kit_append(w, item, 0, 30, 4));
    kn_store_writer_close(w);
    kn_store *s = opened(path);
    assert_false(kn_store_describe(s)->complete);
    kn_store_close(s);
}

static void what_is_not_continued_is_removed(void **state) {
    (void)state;
    kit_item items[] = {{1, 40, 28, true}, {2, 5, 5, false}};
    interrupt("s", &items[0]);
    kn_store_writer *w = writing("s");
    OK(kit_add(w, &items[1], 1, 9));
    commit_and_close(w);
    HOLDS("s", items, 2);
    uint64_t present;
    w = writing("s");
    FAILS(KNNLM_EINVAL, "whole", kn_store_writer_continue(w, &present));
    kn_store_writer_close(w);
    knnlm_compact_result c;
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    assert_int_equal(c.entries_dropped, 28);
    HOLDS("s", &items[1], 1);
}

static void what_is_unfinished_stays_so(void **state) {
    (void)state;
    kit_item item = {1, 40, 28, false};
    interrupt("s", &item);
    knnlm_compact_result c;
    uint64_t present = 0;
    kn_store_writer *w = writing("s");
    kn_store_writer_tune(w, &(kn_store_tuned){.known = true, .lambda = 0.5, .temperature = 1, .k = 4});
    OK(kn_store_writer_amend(w));
    kn_store_writer_close(w);
    HOLDS("s", &item, 1); // verifies: to be incomplete is no damage
    OK(kn_store_compact("s", false, NULL, NULL, &c));
    w = writing("s");
    OK(kn_store_writer_continue(w, &present));
    assert_int_equal(present, 28);
    FAILS(KNNLM_EINVAL, "being", kn_store_writer_remove(w, 0));
    FAILS(KNNLM_EINVAL, "after 28 of 40", kn_store_writer_commit(w));
    OK(kit_append(w, &item, 28, 40, 5));
    commit_and_close(w);
    item.count = 40;
    HOLDS("s", &item, 1);
    kn_store *s = opened("s");
    assert_true(kn_store_describe(s)->complete);
    kn_store_close(s);
}

static void what_is_unfinished_can_be_removed(void **state) {
    (void)state;
    kit_item item = {1, 40, 28, true};
    uint64_t present;
    interrupt("s", &item);
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 0));
    FAILS(KNNLM_EINVAL, "nothing to go on with", kn_store_writer_continue(w, &present));
    commit_and_close(w);
    HOLDS("s", &item, 1);
    kn_store *s = opened("s");
    assert_true(kn_store_describe(s)->complete);
    kn_store_close(s);
}

// ---------------------------------------------------------------- who writes

static void what_is_not_committed_is_gone(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 1000);
    kn_store_writer *w;
    OK(kn_store_create("s", &set, &w));
    OK(kit_add(w, mixed, MIXED, 10));
    kn_store_writer_close(w);
    kit_image image = kit_read("s");
    assert_int_equal(image.count, 0);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    w = writing("s");
    OK(kit_add(w, mixed, MIXED, 10));
    kn_store_writer_close(w);
    HOLDS("s", mixed, MIXED);
    kit_free(&image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_interrupted_build_goes_on),  TEST(what_is_not_continued_is_removed),
        TEST(what_is_unfinished_stays_so),   TEST(what_is_unfinished_can_be_removed),
        TEST(what_is_not_committed_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
