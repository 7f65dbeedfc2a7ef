// Searching: every answer against the definition in double precision, for every distance, type of key and
// filter; the same whatever the threads and the batch; few lists and many, and how much they find.
#include "search_kit.h"

#include "base/random.h"
#include "base/threads.h"
#include "math/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void exact_without_lists(void **state) {
    const size_t dimensions[] = {1, 7, 33, 96};
    (void)state;
    for (size_t i = 0; i < 36; i++) {
        fixture t = fixture_make(dimensions[i / 9], types[i / 3 % 3], measures[i % 3]);
        check_index(&t, &(kn_search_options){.k = i % 2 ? 10 : 300});
        fixture_free(&t);
    }
}

static void exact_with_all_lists(void **state) {
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        fixture t = fixture_make(40, types[i / 3], measures[i % 3]);
        make_lists(&t, 12, 0);
        check_index(&t, &(kn_search_options){.k = 64, .probes = 12});
        check_index(&t, &(kn_search_options){.k = ENTRIES + 5, .probes = 99});
        fixture_free(&t);
    }
}

// Lists in groups: all of them exactly, a few of them alike alone and in a batch; what is added joins them.
// (So many neighbours that codes do not come first.)
static void lists_in_groups(void **state) {
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        fixture t = fixture_make(40, types[i / 3], measures[i % 3]);
        make_grouped_lists(&t, 60, 7, i % 2 ? 8 : 0, 8);
        check_index(&t, &(kn_search_options){.k = 200, .probes = 60});
        kn_store *s;
        kn_index *x;
        kn_index_result r;
        kn_store_writer *w;
        answers few = answers_make(100);
        OK(kn_store_open(t.path, &s));
        OK(kn_index_open(s, &x));
        assert_int_equal(x->info.groups, 7);
        OK(kn_index_search(x, t.queries, QUERIES, &(kn_search_options){.k = 100, .probes = 5}, &few.n));
        check_single(&t, x, &(kn_search_options){.k = 100, .probes = 5}, &few);
        answers bounded = answers_make(100);
        kn_search_options little = {.k = 100, .probes = 5, .memory = 1 << 16};
        OK(kn_index_search(x, t.queries, QUERIES, &little, &bounded.n));
        check_same(&few, &bounded);
        check_single(&t, x, &little, &few);
        answers_free(&bounded);
        answers_free(&few);
        kn_index_close(x);
        kn_store_close(s);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 2);
        OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r));
        assert_int_equal(r.info.listed, t.added);
        check_index(&t, &(kn_search_options){.k = 200, .probes = 60});
        fixture_free(&t);
    }
}

// With few probes only lists' own entries are found: those are the nearest among what was looked at.
static void probes_are_the_nearest_lists(void **state) {
    fixture t = fixture_make(24, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    kn_store *s;
    kn_index *x;
    (void)state;
    make_lists(&t, 13, 0);
    OK(kn_store_open(t.path, &s));
    OK(kn_index_open(s, &x));
    double found = 0;
    answers few = answers_make(20), all = answers_make(20);
    OK(kn_index_search(x, t.queries, QUERIES, &(kn_search_options){.k = 20}, &few.n));
    OK(kn_index_search(x, t.queries, QUERIES, &(kn_search_options){.k = 20, .probes = 13}, &all.n));
    for (size_t q = 0; q < QUERIES; q++)
        for (size_t i = 0; i < 20; i++)
            for (size_t j = 0; j < 20; j++) found += few.n.ids[q * 20 + i] == all.n.ids[q * 20 + j];
    assert_true(found / (20 * QUERIES) > 0.95); // the clusters are far apart
    answers_free(&few);
    answers_free(&all);
    kn_index_close(x);
    kn_store_close(s);
    fixture_free(&t);
}

static void threads_and_batches_do_not_matter(void **state) {
    fixture t = fixture_make(48, KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    kn_store *s;
    kn_index *x;
    (void)state;
    make_lists(&t, 9, 0);
    OK(kn_store_open(t.path, &s));
    OK(kn_index_open(s, &x));
    kn_search_options o = {.k = 50, .probes = 4};
    answers a = answers_make(50), b = answers_make(50);
    OK(kn_threads_set(1));
    OK(kn_index_search(x, t.queries, QUERIES, &o, &a.n));
    for (int threads = 2; threads <= 4; threads++) {
        OK(kn_threads_set(threads));
        OK(kn_index_search(x, t.queries, QUERIES, &o, &b.n));
        check_same(&a, &b);
    }
    for (size_t q = 0; q < QUERIES; q++) { // one by one
        kn_neighbors out = {b.n.ids + q * 50, b.n.distances + q * 50, b.n.counts + q};
        OK(kn_index_search(x, t.queries + q * t.d, 1, &o, &out));
    }
    check_same(&a, &b);
    o.memory = 1; // so little that every query is a part of its own
    OK(kn_index_search(x, t.queries, QUERIES, &o, &b.n));
    check_same(&a, &b);
    OK(kn_threads_set(2));
    answers_free(&a);
    answers_free(&b);
    kn_index_close(x);
    kn_store_close(s);
    fixture_free(&t);
}

// By each distance although the store was made for another, with lists and without.
static void another_distance_than_the_stores(void **state) {
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        fixture t = fixture_make(12, KNNLM_KEYS_F32, measures[i / 3]);
        kn_search_options o = {.k = 9, .probes = 6};
        answers a = answers_make(9);
        double *all = test_alloc(t.added, sizeof *all);
        kn_store *s;
        kn_index *x;
        make_lists(&t, 6, 0);
        t.distance = measures[i % 3];
        OK(kn_store_open(t.path, &s));
        for (int lists = 0; lists < 2; lists++) {
            OK(kn_index_open_as(s, t.distance, lists, &x));
            OK(kn_index_search(x, t.queries, QUERIES, &o, &a.n));
            for (size_t q = 0; q < QUERIES; q++) {
                for (size_t e = 0; e < t.added; e++)
                    all[e] = measure(t.distance, t.queries + q * t.d, t.keys + e * t.d, t.d);
                qsort(all, t.added, sizeof *all, ascending);
                for (size_t j = 0; j < 9; j++)
                    assert_near(a.n.distances[q * 9 + j], all[j], slack(&t, q, all[j]));
            }
            kn_index_close(x);
        }
        free(all);
        answers_free(&a);
        kn_store_close(s);
        fixture_free(&t);
    }
}

static void filters(void **state) {
    fixture t = fixture_make(20, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    kn_entry_range exclude[QUERIES];
    uint64_t allowed[MAX / 64 + 1] = {0};
    kn_store_writer *w;
    (void)state;
    for (size_t q = 0; q < QUERIES; q++)
        exclude[q] = (kn_entry_range){q % DOCUMENTS * DOCUMENT, (q % DOCUMENTS + 1) * DOCUMENT};
    for (size_t i = 0; i < ENTRIES; i++)
        if (i % 3) allowed[i / 64] |= (uint64_t)1 << i % 64;
    for (int lists = 0; lists < 2; lists++) {
        if (lists) make_lists(&t, 6, 0);
        check_index(&t, &(kn_search_options){.k = 40, .probes = 6, .exclude = exclude});
        check_index(&t, &(kn_search_options){.k = 40, .probes = 6, .allowed = allowed});
        check_index(&t, &(kn_search_options){.k = 2000, .probes = 6, .allowed = allowed, .exclude = exclude});
    }
    OK(kn_store_write(t.path, &w));
    OK(kn_store_writer_remove(w, 2));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    check_index(&t, &(kn_search_options){.k = 400, .probes = 6}); // removed at once, lists or not
    fixture_free(&t);
}

static void bad_questions(void **state) {
    fixture t = fixture_make(8, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    kn_store *s;
    kn_index *x;
    kn_searcher *one;
    answers a = answers_make(5);
    kn_index_result r;
    (void)state;
    OK(kn_store_open(t.path, &s));
    OK(kn_index_open(s, &x));
    assert_int_equal(kn_index_search(x, t.queries, 1, &(kn_search_options){.k = 0}, &a.n), KNNLM_EINVAL);
    assert_int_equal(kn_index_search(x, t.queries, 1, &(kn_search_options){.k = 5, .codes = true}, &a.n),
                     KNNLM_EINVAL); // it has none
    OK(kn_searcher_open(x, 5, &one));
    assert_int_equal(kn_searcher_find(one, t.queries, &(kn_search_options){.k = 6}, &a.n), KNNLM_EINVAL);
    t.queries[3] = NAN;
    assert_int_equal(kn_index_search(x, t.queries, 1, &(kn_search_options){.k = 5}, &a.n), KNNLM_EDATA);
    assert_int_equal(kn_searcher_find(one, t.queries, &(kn_search_options){.k = 5}, &a.n), KNNLM_EDATA);
    OK(kn_index_search(x, t.queries, 0, &(kn_search_options){.k = 5}, &a.n));
    t.queries[3] = 0;
    kn_searcher_close(one);
    kn_index_close(x);
    kn_store_close(s);
    assert_int_equal(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r), KNNLM_EINVAL);
    assert_int_equal(kn_index_build(t.path, &(kn_recipe){.lists = 4, .code_parts = 3, .seed = 1}, NULL, &r),
                     KNNLM_EINVAL); // 8 dimensions in 3 parts
    make_lists(&t, 300, 0);         // more lists than the data deserves
    check_index(&t, &(kn_search_options){.k = 5, .probes = 300});
    answers_free(&a);
    fixture_free(&t);
}

static void recall_is_measured(void **state) {
    fixture t = fixture_make(16, KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    knnlm_recall rows[KNNLM_RECALL_MAX];
    kn_store *s;
    size_t count;
    (void)state;
    make_lists(&t, 16, 0);
    OK(kn_store_open(t.path, &s));
    OK(kn_index_recall(s, &(kn_recall_options){.queries = 40, .k = 50, .seed = 1}, rows, &count));
    assert_in_range(count, 2, 6);
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < KNNLM_RECALL_DEPTHS; j++) {
            assert_true(rows[i].recall[j] >= 0 && rows[i].recall[j] <= 1);
            if (i) assert_true(rows[i].recall[j] >= rows[i - 1].recall[j] - 1e-12);
        }
    assert_int_equal(rows[count - 1].probes, 0);
    kn_store_close(s);
    fixture_free(&t);
}

// ---------------------------------------------------------------- selection

static int by_value(const void *a, const void *b) {
    kn_item x = *(const kn_item *)a, y = *(const kn_item *)b;
    return (x > y) - (x < y);
}

static void selection(void **state) {
    kn_random random = {9};
    (void)state;
    for (size_t n = 1; n < 3000; n += n / 7 + 1) {
        kn_item *a = test_alloc(n, 8), *b = test_alloc(n, 8), *scratch = test_alloc(n, 8);
        for (size_t i = 0; i < n; i++) { // many equal distances; a crowd far below a few; any
            float even = (float)kn_random_below(&random, n % 2 ? 5 : 100000) - 2;
            a[i] = kn_item_make(n % 3 ? even : even * powf(10, (float)(i % 38)), (uint32_t)i);
        }
        if (n % 5 == 0) a[n / 2] = UINT64_MAX;
        memcpy(b, a, n * 8);
        qsort(b, n, 8, by_value);
        size_t k = 1 + kn_random_below(&random, n);
        kn_items_select(a, n, k);
        kn_items_sort(a, k, scratch);
        assert_memory_equal(a, b, k * 8);
        free(a);
        free(b);
        free(scratch);
    }
    assert_true(kn_item_make(-1.5f, 0) < kn_item_make(-1.0f, 0) &&
                kn_item_make(-0.5f, 9) < kn_item_make(0.25f, 1));
    assert_true(kn_item_distance(kn_item_make(-3.25f, 7)) == -3.25f && kn_item_id(kn_item_make(1, 7)) == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection),
        cmocka_unit_test(exact_without_lists),
        cmocka_unit_test(exact_with_all_lists),
        cmocka_unit_test(lists_in_groups),
        cmocka_unit_test(probes_are_the_nearest_lists),
        cmocka_unit_test(threads_and_batches_do_not_matter),
        cmocka_unit_test(filters),
        cmocka_unit_test(another_distance_than_the_stores),
        cmocka_unit_test(bad_questions),
        cmocka_unit_test(recall_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
