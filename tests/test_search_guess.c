// Limits that list searches guess from a sample of their rows: what is found is what a search finds that does
// not guess, bit by bit, also where the sample misleads.
#include "folder.h"

#include "base/random.h"
#include "base/threads.h"
#include "index/index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// K is guessed for: there are more than three times as many candidates. ALL is more than a third of those:
// no limit is guessed for it, and its first K are the truth.
enum { N = 24000, D = 24, QUERIES = 150, K = 1024, ALL = 4200 };

typedef struct fixture {
    float *keys, *queries;
    kn_store *store;
    kn_index *index;
} fixture;

static void *need(size_t count, size_t size) {
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

static void save(fixture *t, uint32_t lists, uint32_t probes) {
    kn_store_settings s = {.key_type = KNNLM_KEYS_F32,
                           .dimension = D,
                           .model_dimension = D,
                           .segment = KN_STORE_SEGMENT_DEFAULT};
    int32_t *tokens = need(N, sizeof *tokens);
    kn_index_result result;
    kn_store_writer *w;
    const char *path = at("s.store");
    OK(kn_store_create(path, &s, &w));
    OK(kn_store_writer_document(w, &(kn_store_document){.name = "d", .name_size = 1, .tokens = N}));
    OK(kn_store_writer_append(w, tokens, NULL, t->keys, N));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    free(tokens);
    OK(kn_index_build(path, &(kn_recipe){.lists = lists, .probes = probes}, NULL, &result));
    OK(kn_store_open(path, &t->store));
    OK(kn_index_open(t->store, &t->index));
}

static fixture fixture_make(void) {
    kn_random random = {7};
    fixture t = {.keys = need(N * D, sizeof(float)), .queries = need(QUERIES * D, sizeof(float))};
    for (size_t i = 0; i < N * D; i++) t.keys[i] = (float)kn_random_normal(&random);
    for (size_t i = 0; i < QUERIES * D; i++) t.queries[i] = (float)kn_random_normal(&random);
    return t;
}

static void fixture_free(fixture *t) {
    kn_index_close(t->index);
    kn_store_close(t->store);
    discard(at("s.store"));
    free(t->keys);
    free(t->queries);
}

static kn_neighbors found_make(size_t k) {
    return (kn_neighbors){need(QUERIES * k, sizeof(uint32_t)), need(QUERIES * k, sizeof(float)),
                          need(QUERIES, sizeof(uint32_t))};
}

static void found_free(kn_neighbors *f) {
    free(f->ids);
    free(f->distances);
    free(f->counts);
}

static void expect_prefix(const kn_neighbors *few, const kn_neighbors *all) {
    for (size_t q = 0; q < QUERIES; q++) {
        assert_int_equal(few->counts[q], K);
        assert_memory_equal(few->ids + q * K, all->ids + q * ALL, K * sizeof *few->ids);
        assert_memory_equal(few->distances + q * K, all->distances + q * ALL, K * sizeof *few->distances);
    }
}

// With and without entries that do not count, in 1 to 3 threads, in memory of its own and in memory kept.
static void compare(const fixture *t) {
    kn_entry_range *exclude = need(QUERIES, sizeof *exclude);
    kn_neighbors few = found_make(K), all = found_make(ALL);
    kn_search_scratch scratch = {0};
    for (size_t q = 0; q < QUERIES; q++) exclude[q] = (kn_entry_range){q * 20, q * 20 + 4000};
    for (int excluding = 0; excluding < 2; excluding++)
        for (int threads = 1; threads <= 3; threads++) {
            kn_search_options o = {.k = ALL, .exclude = excluding ? exclude : NULL};
            OK(kn_threads_set(threads));
            OK(kn_index_search(t->index, t->queries, QUERIES, &o, &all));
            o.k = K;
            o.scratch = threads > 1 ? &scratch : NULL;
            OK(kn_index_search(t->index, t->queries, QUERIES, &o, &few));
            expect_prefix(&few, &all);
        }
    OK(kn_threads_set(0));
    kn_search_scratch_free(&scratch);
    found_free(&few);
    found_free(&all);
    free(exclude);
}

static void guessed_limits_lose_nothing(void **state) {
    fixture t = fixture_make();
    (void)state;
    save(&t, 8, 4);
    compare(&t);
    fixture_free(&t);
}

// Two lists, far apart. In the first of them the rows that a sample looks at, and only those, are near the
// queries: 400 of them, fewer than are wanted, but enough to mislead.
static void misleading_samples_are_noticed(void **state) {
    fixture t = fixture_make();
    (void)state;
    for (size_t i = 0; i < N; i++) {
        bool near = i % 8 == 0 && i < 3200;
        for (size_t j = 0; j < D; j++) t.keys[i * D + j] *= near ? 0.01f : 3;
        t.keys[i * D] += i < N / 2 ? 100 : -100;
    }
    for (size_t i = 0; i < QUERIES; i++) {
        for (size_t j = 0; j < D; j++) t.queries[i * D + j] *= 0.01f;
        t.queries[i * D] += 100;
    }
    save(&t, 2, 1);
    compare(&t);
    fixture_free(&t);
}

// Fewer candidates within a limit than are wanted, or fewer at all.
static void few_candidates_are_all_found(void **state) {
    fixture t = fixture_make();
    kn_neighbors few = found_make(K);
    kn_entry_range *exclude = need(QUERIES, sizeof *exclude);
    (void)state;
    save(&t, 8, 4);
    for (size_t q = 0; q < QUERIES; q++) exclude[q] = (kn_entry_range){q, N - 500 + q};
    kn_search_options o = {.k = K, .exclude = exclude};
    OK(kn_index_search(t.index, t.queries, QUERIES, &o, &few));
    for (size_t q = 0; q < QUERIES; q++) {
        assert_true(few.counts[q] > 0 && few.counts[q] <= 500);
        for (size_t i = 0; i < few.counts[q]; i++)
            assert_true(few.ids[q * K + i] < q || few.ids[q * K + i] >= N - 500 + q);
    }
    found_free(&few);
    free(exclude);
    fixture_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guessed_limits_lose_nothing),
        cmocka_unit_test(misleading_samples_are_noticed),
        cmocka_unit_test(few_candidates_are_all_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
