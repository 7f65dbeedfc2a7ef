// An index in a store that changes: what is added is found and then listed, what is removed is gone, also
// after compaction; and the same store gives the same index.
#include "search_kit.h"

#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

static void additions_are_found_and_listed(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fixture t = fixture_make(32, types[i], KNNLM_DISTANCE_L2);
        kn_store_writer *w;
        kn_index_result r;
        make_lists(&t, 8, i == 1 ? 8 : 0);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 4);
        check_index(&t, &(kn_search_options){.k = 100, .probes = 8}); // outside the lists
        OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r));
        assert_int_equal(r.info.listed, t.added);
        assert_int_equal(r.info.flat, 0);
        assert_true(r.info.drift > 0.5 && r.info.drift < 2);
        check_index(&t, &(kn_search_options){.k = 100, .probes = 8});
        OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r)); // nothing to do
        make_lists(&t, 5, 0);                                           // anew, in place of the old
        check_index(&t, &(kn_search_options){.k = 100, .probes = 8});
        fixture_free(&t);
    }
}

static void nothing_found(void *context, const knnlm_problem *p) {
    (void)context;
    fail_msg("%s: %s", p->file, p->what);
}

static void check_sound(const kn_store *s) {
    knnlm_verify_result v;
    OK(kn_store_verify(s, NULL, nothing_found, NULL, &v));
    free(v.document_damaged);
}

static void compaction_drops_the_index(void **state) {
    fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    kn_store_writer *w;
    knnlm_compact_result c;
    kn_store *s;
    (void)state;
    make_lists(&t, 4, 0);
    OK(kn_store_write(t.path, &w));
    OK(kn_store_writer_remove(w, 0));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    OK(kn_store_compact(t.path, false, NULL, NULL, &c));
    OK(kn_store_open(t.path, &s));
    assert_null(kn_store_annex_note(s));
    kn_store_close(s);
    t.added -= DOCUMENT;
    check_index(&t, &(kn_search_options){.k = 30});
    fixture_free(&t);
}

// The index after compaction is the one before without what was removed: the same answers, under new numbers.
static void compaction_keeps_the_index(void **state) {
    const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_INT8};
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture t = fixture_make(16, types[i % 2], KNNLM_DISTANCE_L2);
        kn_store_writer *w;
        knnlm_compact_result c;
        kn_index_result r;
        kn_store *s;
        kn_index *x;
        answers before = answers_make(30), after = answers_make(30);
        kn_search_options o = {.k = 30, .probes = 2, .codes = i / 2};
        make_lists(&t, 4, 8);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 2); // a run of its own
        OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r));
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 1); // outside the lists
        OK(kn_store_write(t.path, &w));
        OK(kn_store_writer_remove(w, 1));
        OK(kn_store_writer_remove(w, DOCUMENTS));
        OK(kn_store_writer_commit(w));
        kn_store_writer_close(w);
        for (int round = 0; round < 2; round++) {
            if (round) OK(kn_store_compact(t.path, false, kn_index_rearrange, NULL, &c));
            OK(kn_store_open(t.path, &s));
            OK(kn_index_open(s, &x));
            assert_int_equal(x->info.listed, (DOCUMENTS + 2 - 2 * round) * DOCUMENT);
            assert_int_equal(x->info.flat, DOCUMENT);
            assert_int_equal(x->listed_count, 2);
            OK(kn_index_search(x, t.queries, QUERIES, &o, round ? &after.n : &before.n));
            kn_index_close(x);
            if (round) check_sound(s);
            kn_store_close(s);
        }
        for (size_t j = 0; j < QUERIES * 30; j++) {
            uint32_t id = before.n.ids[j], gone = (id >= 2 * DOCUMENT) + (id >= (DOCUMENTS + 1) * DOCUMENT);
            assert_int_equal(after.n.ids[j], id - gone * DOCUMENT);
            assert_true(after.n.distances[j] == before.n.distances[j]);
        }
        answers_free(&before);
        answers_free(&after);
        fixture_free(&t);
    }
}

static void indexing_twice_gives_the_same(void **state) {
    fixture t = fixture_make(36, KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    kn_store *s;
    uint8_t *first[5] = {0};
    (void)state;
    for (int round = 0; round < 2; round++) {
        OK(kn_threads_set(1 + round));
        make_lists(&t, 10, 9);
        OK(kn_store_open(t.path, &s));
        assert_int_equal(kn_store_annex_parts(s), 5);
        for (size_t i = 0; i < 5; i++) {
            kn_store_annex_part p = kn_store_annex_at(s, i);
            if (round) assert_memory_equal(first[i], p.data, p.size);
            if (!round) memcpy(first[i] = test_alloc(p.size, 1), p.data, p.size);
        }
        kn_store_close(s);
    }
    for (size_t i = 0; i < 5; i++) free(first[i]);
    fixture_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(additions_are_found_and_listed),
        cmocka_unit_test(compaction_drops_the_index),
        cmocka_unit_test(compaction_keeps_the_index),
        cmocka_unit_test(indexing_twice_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
