// Searching by the codes of product quantization: they find what they stand for, by the definition, whether
// keys are measured after them or not; codes of an older version are refused.
#include "search_kit.h"

#include "math/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Candidates come from codes, distances from keys: right for every entry named, and nearly all are the
// nearest.
static void codes_first(void **state) {
    fixture t = fixture_make(32, KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    kn_search_options o = {.k = 5, .probes = 8};
    kn_store *s;
    kn_index *x;
    kn_searcher *one;
    size_t hits = 0;
    (void)state;
    make_lists(&t, 8, 16);
    OK(kn_store_open(t.path, &s));
    OK(kn_index_open(s, &x));
    OK(kn_searcher_open(x, 5, &one));
    answers a = answers_make(5), b = answers_make(5);
    OK(kn_index_search(x, t.queries, QUERIES, &o, &a.n));
    for (size_t q = 0; q < QUERIES; q++) {
        kn_neighbors out = {b.n.ids + q * 5, b.n.distances + q * 5, b.n.counts + q};
        OK(kn_searcher_find(one, t.queries + q * t.d, &o, &out));
        assert_int_equal(out.counts[0], 5);
        for (size_t i = 0; i < 5; i++) {
            uint32_t *same = NULL;
            for (size_t j = 0; j < 5; j++)
                if (a.n.ids[q * 5 + j] == out.ids[i]) same = &a.n.ids[q * 5 + j];
            if (!same) continue;
            hits++;
            assert_near(out.distances[i], a.n.distances[same - a.n.ids], slack(&t, q, out.distances[i]));
        }
    }
    assert_true(hits > 5 * QUERIES * 95 / 100);
    answers_free(&a);
    answers_free(&b);
    kn_searcher_close(one);
    kn_index_close(x);
    kn_store_close(s);
    fixture_free(&t);
}

// Some list begins within a block of codes, another ends there, and so does the run.
static void check_ends_within_blocks(const kn_index *x) {
    size_t within = 0;
    for (size_t i = 0; i < x->listed_count; i++) {
        assert_true(x->listed[i].count % KN_PQ_BLOCK != 0);
        for (size_t l = 1; l < x->info.lists; l++) within += x->listed[i].ends[l] % KN_PQ_BLOCK != 0;
    }
    assert_true(within > 0);
}

enum { NEAREST = 5, KEPT = 4 * NEAREST };

// By the definition: every code is decoded and measured; of the nearest, which have one of the NEAREST keys?
static size_t hits_of_codes(const fixture *t, const kn_index *x, const float *query,
                            const uint32_t *nearest) {
    kn_item *items = test_alloc(t->added, sizeof *items), *scratch = test_alloc(t->added, sizeof *scratch);
    float *row = test_alloc(t->d, sizeof *row), *unit = test_alloc(t->d, sizeof *unit);
    int16_t *whole = test_alloc(kn_index_stride(x), sizeof *whole);
    kn_integer_query terms;
    size_t n = 0, hits = 0;
    kn_index_query(x, query, unit, whole, &terms);
    for (size_t i = 0; i < x->listed_count; i++)
        for (size_t l = 0; l < x->info.lists; l++)
            for (uint64_t p = x->listed[i].ends[l]; p < x->listed[i].ends[l + 1]; p++) {
                kn_index_decode(x, &x->listed[i], l, x->zero, p, 1, row);
                // Of cosine, candidates are chosen by the product.
                knnlm_distance by = t->distance == KNNLM_DISTANCE_L2 ? KNNLM_DISTANCE_L2 : KNNLM_DISTANCE_IP;
                items[n++] = kn_item_make((float)measure(by, unit, row, t->d), x->listed[i].ids[p]);
            }
    kn_items_sort(items, n, scratch);
    for (size_t i = 0; i < KEPT; i++)
        for (size_t j = 0; j < NEAREST; j++) hits += kn_item_id(items[i]) == nearest[j];
    free(items), free(scratch), free(row), free(unit), free(whole);
    return hits;
}

static void check_codes_first(const fixture *t, const kn_index *x) {
    kn_search_options o = {.k = NEAREST, .probes = x->info.lists};
    answers exact = answers_make(NEAREST);
    uint32_t ids[NEAREST], count;
    float distances[NEAREST];
    kn_neighbors out = {ids, distances, &count};
    size_t hits = 0, wanted = 0;
    kn_searcher *one;
    OK(kn_index_search(x, t->queries, QUERIES, &o, &exact.n));
    OK(kn_searcher_open(x, NEAREST, &one));
    for (size_t q = 0; q < QUERIES; q++) {
        const float *query = t->queries + q * t->d;
        const uint32_t *nearest = exact.n.ids + q * NEAREST;
        OK(kn_searcher_find(one, query, &o, &out));
        assert_int_equal(count, NEAREST);
        for (size_t i = 0; i < NEAREST; i++) {
            for (size_t j = 0; j < NEAREST; j++) hits += ids[i] == nearest[j];
            double distance = measure(t->distance, query, t->keys + ids[i] * t->d, t->d);
            assert_near(distances[i], distance, 1e-2 * (1 + fabs(distance))); // keys are f16
        }
        wanted += hits_of_codes(t, x, query, nearest);
    }
    // By squared distances 8-bit tables choose, which may change one for another; else rounding alone may.
    if (hits + (t->distance == KNNLM_DISTANCE_L2 ? wanted / 100 : 1) < wanted)
        fail_msg("%zu of %zu found, %zu by the definition", hits, (size_t)NEAREST * QUERIES, wanted);
    for (size_t j = 0; j < t->d; j++) t->queries[j] = 3e38f; // beyond what tables can hold
    OK(kn_searcher_find(one, t->queries, &o, &out));
    kn_searcher_close(one);
    answers_free(&exact);
}

// By the definition: distances of all that the codes stand for, in order. Cosine is of their true lengths.
static void decoded_distances(const fixture *t, const kn_index *x, const float *query, double *out) {
    float *row = test_alloc(t->d, sizeof *row);
    size_t n = 0;
    for (size_t i = 0; i < x->listed_count; i++)
        for (size_t l = 0; l < x->info.lists; l++)
            for (uint64_t p = x->listed[i].ends[l]; p < x->listed[i].ends[l + 1]; p++) {
                kn_index_decode(x, &x->listed[i], l, x->zero, p, 1, row);
                out[n++] = measure(t->distance, query, row, t->d);
            }
    qsort(out, n, sizeof *out, ascending);
    free(row);
}

// Asked for codes, searches measure by them although the keys are there.
static void check_by_codes(const fixture *t, const kn_index *x) {
    kn_search_options o = {.k = 50, .probes = x->info.lists, .codes = true};
    answers a = answers_make(50);
    double *all = test_alloc(t->added, sizeof *all);
    uint32_t ids[50], count;
    float distances[50];
    kn_neighbors out = {ids, distances, &count};
    kn_searcher *one;
    OK(kn_searcher_open(x, 50, &one));
    OK(kn_index_search(x, t->queries, QUERIES, &o, &a.n));
    for (size_t q = 0; q < QUERIES; q++) {
        decoded_distances(t, x, t->queries + q * t->d, all);
        for (size_t i = 0; i < 50; i++)
            // L2 comes from products of vectors less a centre as far as clusters are apart (a thousand).
            assert_near(a.n.distances[q * 50 + i], all[i],
                        t->distance == KNNLM_DISTANCE_L2 ? 4e-4 : 4 * slack(t, q, 1));
        OK(kn_searcher_find(one, t->queries + q * t->d, &o, &out));
        for (size_t i = 0; i < 50; i++) assert_near(distances[i], all[i], 4e-4 * (1 + fabs(all[i])));
    }
    kn_searcher_close(one);
    free(all);
    answers_free(&a);
}

// Whole blocks are scanned of the long lists (3), rows of the short ones (20); of two runs, or of one that
// they were merged into: 7 documents and 3 stay apart, 3 more are not much less than the 3, nor those than
// the 7.
static void codes_find_what_they_stand_for(void **state) {
    const uint32_t parts[] = {11, 33}, lists[] = {3, 20};
    (void)state;
    for (size_t i = 0; i < 24; i++) {
        fixture t = fixture_make(33, KNNLM_KEYS_F16, measures[i % 3]);
        kn_store_writer *w;
        kn_index_result r;
        kn_store *s;
        kn_index *x;
        make_coded_lists(&t, lists[i / 3 % 2], parts[i / 6 % 2], i / 12 ? 4 : 8);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 3);
        OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r));
        if (i % 2) {
            OK(kn_store_write(t.path, &w));
            add_documents(&t, w, 3);
            OK(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r));
            assert_true(r.info.drift > 0.5 && r.info.drift < 2); // also of what was merged
        }
        OK(kn_store_open(t.path, &s));
        OK(kn_index_open(s, &x));
        assert_int_equal(x->listed_count, i % 2 ? 1 : 2);
        check_ends_within_blocks(x);
        check_by_codes(&t, x);
        check_codes_first(&t, x);
        kn_index_close(x);
        kn_store_close(s);
        fixture_free(&t);
    }
}

// Says of the index that it is of version 1.
static void make_old(const fixture *t) {
    kn_store_writer *w;
    kn_annex_writer *a;
    OK(kn_store_write(t->path, &w));
    char *note = strdup(kn_store_annex_note(kn_store_writer_base(w)));
    assert_non_null(note);
    char *version = strstr(note, "\"version\":");
    assert_non_null(version);
    version[strlen("\"version\":")] = '1';
    OK(kn_annex_open(w, SIZE_MAX, &a));
    OK(kn_annex_commit(a, note, kn_store_describe(kn_store_writer_base(w))->arranged));
    kn_store_writer_close(w);
    free(note);
}

static void old_codes_are_refused(void **state) {
    fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    kn_store *s;
    kn_index *x;
    kn_index_result r;
    (void)state;
    make_lists(&t, 4, 8);
    make_old(&t);
    OK(kn_store_open(t.path, &s));
    assert_int_equal(kn_index_open(s, &x), KNNLM_ENOTSUP);
    assert_non_null(strstr(knnlm_message(), "`knnlm_index` makes it anew"));
    kn_store_close(s);
    assert_int_equal(kn_index_extend(t.path, &(kn_recipe){.seed = 1}, NULL, &r), KNNLM_ENOTSUP);
    make_lists(&t, 4, 8);
    check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
    make_lists(&t, 4, 0);
    make_old(&t); // without codes nothing has changed
    check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
    fixture_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_first),
        cmocka_unit_test(codes_find_what_they_stand_for),
        cmocka_unit_test(old_codes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
