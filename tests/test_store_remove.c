// Removing documents from a store, and which commits there are.
#include "store_steps.h"

// ---------------------------------------------------------------- removing

static void removal_shows_at_the_next_open(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 16);
    kit_item items[MIXED], extra = {40, 20, 20, false};
    memcpy(items, mixed, sizeof mixed);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *old = opened("s");
    kn_store_writer *w = writing("s");
    static const size_t gone[] = {9, 0, 6, 9, 11}; // one of them twice
    for (size_t i = 0; i < COUNT(gone); i++) OK(kn_store_writer_remove(w, gone[i]));
    HOLDS("s", mixed, MIXED); // not yet
    assert_true(kn_store_is_current(old));
    OK(kn_store_writer_commit(w));
    assert_false(kn_store_is_current(old));
    assert_null(kit_compare(old, mixed, MIXED)); // it is another state
    for (size_t i = 0; i < COUNT(gone); i++) items[gone[i]].removed = true;
    HOLDS("s", items, MIXED);
    OK(kn_store_writer_remove(w, 1)); // the same writer goes on
    items[1].removed = true;
    commit_and_close(w);
    HOLDS("s", items, MIXED);
    w = writing("s");
    OK(kn_store_writer_remove(w, 2));
    FAILS(KNNLM_EINVAL, "no document 12", kn_store_writer_remove(w, MIXED));
    OK(kit_add(w, &extra, 1, 3));
    kn_store_writer_close(w); // without a commit; 16 entries were committed on the way, the removal with them
    kn_store *s = opened("s");
    assert_true(kn_store_document_removed(s, 2));
    assert_false(kn_store_document_removed(s, 3));
    kn_store_close(s);
    kn_store_close(old);
}

static void nothing_to_commit_is_no_commit(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 16);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_commit(w));
    commit_and_close(w);
    assert_true(kn_store_is_current(s));
    kn_store_close(s);
}

// The same inode and time may come again; a state must not be taken for another.
static void states_are_told_apart(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_NONE, 3, 16);
    OK(kit_build("s", &set, mixed, 3, 10));
    for (int i = 0; i < 50; i++) {
        kn_store *s = opened("s");
        kn_store_writer *w = writing("s");
        assert_true(kn_store_is_current(s));
        for (int j = 0; j < 2; j++) {
            kn_store_writer_tune(
                w, &(kn_store_tuned){.known = true, .lambda = 0.25 + j / 2.0, .temperature = 1, .k = 4});
            OK(kn_store_writer_commit(w));
            assert_false(kn_store_is_current(s));
        }
        kn_store_writer_close(w);
        kn_store_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(removal_shows_at_the_next_open),
        TEST(nothing_to_commit_is_no_commit),
        TEST(states_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
