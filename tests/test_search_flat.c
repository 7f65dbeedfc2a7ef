// Searching without lists, and with very many: the bounds that spare most rows from being measured are
// bounds; what they leave is what looking at every row finds, bit by bit, also where the first guess of a
// limit is wrong.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "index/groups.h"
#include "index/rough.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 24000, D = 96, QUERIES = 1000, K = 200, LATENT = 12 };

typedef struct fixture {
    char folder[64], path[96];
    float *keys, *queries;
    kn_store *store;
    kn_index *index;
} fixture;

static float *need(size_t count) {
    float *memory = calloc(count, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

// Vectors that fill `latent` dimensions, and a little of the others.
static void draw(float *out, size_t n, size_t latent, uint64_t seed) {
    kn_random random = {99};
    float map[D * D];
    for (size_t i = 0; i < latent * D; i++) map[i] = (float)kn_random_normal(&random);
    random = (kn_random){seed};
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < D; j++) out[i * D + j] = 3 + 0.01f * (float)kn_random_normal(&random);
        for (size_t l = 0; l < latent; l++) {
            float x = (float)kn_random_normal(&random);
            for (size_t j = 0; j < D; j++) out[i * D + j] += x * map[l * D + j];
        }
    }
}

static void save(fixture *t) {
    kn_store_settings s = {.key_type = KNNLM_KEYS_F32,
                           .dimension = D,
                           .model_dimension = D,
                           .segment = KN_STORE_SEGMENT_DEFAULT};
    int32_t *tokens = calloc(N, sizeof *tokens);
    kn_store_writer *w;
    assert_non_null(tokens);
    test_folder(t->folder, sizeof t->folder);
    snprintf(t->path, sizeof t->path, "%s/s.store", t->folder);
    OK(kn_store_create(t->path, &s, &w));
    // Parts of several lengths: stretches and samples cross their ends.
    for (size_t from = 0, n = 1; from < N; from += n, n = n * 3 + 7) {
        char name[32];
        n = n < N - from ? n : N - from;
        int size = snprintf(name, sizeof name, "d%zu", from);
        OK(kn_store_writer_document(
            w, &(kn_store_document){.name = name, .name_size = (size_t)size, .tokens = n}));
        OK(kn_store_writer_append(w, tokens, NULL, t->keys + from * D, n));
        OK(kn_store_writer_commit(w));
    }
    kn_store_writer_close(w);
    free(tokens);
}

static fixture fixture_make(size_t latent, void (*change)(fixture *)) {
    fixture t = {.keys = need(N * D), .queries = need(QUERIES * D)};
    draw(t.keys, N, latent, 1);
    draw(t.queries, QUERIES, latent, 2);
    if (change) change(&t);
    save(&t);
    OK(kn_store_open(t.path, &t.store));
    OK(kn_index_open_flat(t.store, &t.index));
    return t;
}

static void fixture_free(fixture *t) {
    char command[128];
    kn_index_close(t->index);
    kn_store_close(t->store);
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
    free(t->keys);
    free(t->queries);
}

static double true_distance(const fixture *t, size_t query, size_t key) {
    double sum = 0;
    for (size_t j = 0; j < D; j++) {
        double x = (double)t->queries[query * D + j] - (double)t->keys[key * D + j];
        sum += x * x;
    }
    return sum;
}

// ---------------------------------------------------------------- bounds

static kn_search_batch batch_of(const fixture *t, const kn_search_options *o) {
    return (kn_search_batch){.x = t->index, .o = o, .queries = t->queries, .n = QUERIES, .k = K};
}

static void directions_follow_the_spread(void **state) {
    kn_search_options o = {.k = K};
    (void)state;
    for (int spread = 0; spread < 2; spread++) {
        fixture t = fixture_make(spread ? D : LATENT, NULL);
        kn_search_batch b = batch_of(&t, &o);
        kn_rough r;
        OK(kn_rough_make(&b, &r));
        assert_int_equal(r.h, spread ? D : 32);
        kn_rough_free(&r);
        b.n = 10; // not worth choosing
        OK(kn_rough_make(&b, &r));
        assert_int_equal(r.h, D);
        kn_rough_free(&r);
        fixture_free(&t);
    }
}

static void check_panel(const fixture *t, const kn_rough *r, kn_rough_scratch *s, size_t query,
                        size_t place) {
    size_t panel = kn_panel_bytes(r->k, r->h);
    void *left = kn_alloc_aligned(1, panel), *right = kn_alloc_aligned(1, panel);
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), doubts[KN_CELL];
    kn_rough_norms q = {0}, x = {0};
    const kn_run *run = t->index->flat + t->index->flat_count - 1;
    assert_true(left && right);
    kn_rough_pack_queries(r, s, t->queries + query * D, KN_CELL, left, &q);
    kn_rough_pack_rows(r, s, run, place, KN_CELL, right, &x);
    r->k->multiply(block, left, right, kn_cells(r->h), KN_CELL, false);
    kn_rough_doubts(r, &q, &x, doubts);
    for (size_t i = 0; i < KN_CELL; i++)
        for (size_t j = 0; j < KN_CELL; j++) {
            double got = (double)(q.seen[i] + x.seen[j] - 2 * block[i * KN_CELL + j]);
            double want = true_distance(t, query + i, run->first_id + place + j);
            assert_true(got - (double)doubts[i] <= want);
            // A bound that is too low would be useless: these vectors lie in what is seen.
            assert_true(got + (double)doubts[i] >= 0.97 * want);
        }
    kn_free_aligned(left);
    kn_free_aligned(right);
}

static void bounds_are_below(void **state) {
    kn_search_options o = {.k = K};
    fixture t = fixture_make(LATENT, NULL);
    kn_search_batch b = batch_of(&t, &o);
    kn_rough r;
    kn_rough_scratch s;
    (void)state;
    OK(kn_rough_make(&b, &r));
    OK(kn_rough_scratch_make(&r, &s));
    for (size_t i = 0; i < 20; i++) check_panel(&t, &r, &s, i * 40, i * 111);
    kn_rough_scratch_free(&s);
    kn_rough_free(&r);
    fixture_free(&t);
}

// ---------------------------------------------------------------- answers

static void by_definition(const fixture *t, const kn_neighbors *got) {
    enum { CHECKED = 12 };
    for (size_t q = 0; q < QUERIES; q += QUERIES / CHECKED) {
        double last = got->distances[q * K + K - 1];
        size_t nearer = 0;
        for (size_t i = 0; i < N; i++) nearer += true_distance(t, q, i) < last * (1 - 1e-5);
        assert_true(nearer <= K);
        for (size_t i = 0; i < K; i++) {
            double want = true_distance(t, q, got->ids[q * K + i]);
            assert_true(fabs((double)got->distances[q * K + i] - want) <= 1e-5 * want + 1e-6);
        }
    }
}

// Each row measured, one query at a time: every third query, some of each block of 32.
static void one_by_one(const fixture *t, const kn_search_options *o, const kn_neighbors *got) {
    uint32_t ids[K], count;
    float distances[K];
    kn_searcher *s;
    OK(kn_searcher_open(t->index, K, &s));
    for (size_t q = 0; q < QUERIES; q += 3) {
        kn_search_options mine = *o;
        if (o->exclude) mine.exclude = &o->exclude[q];
        OK(kn_searcher_find(s, t->queries + q * D, &mine, &(kn_neighbors){ids, distances, &count}));
        assert_int_equal(got->counts[q], count);
        assert_memory_equal(got->ids + q * K, ids, sizeof ids);
        assert_memory_equal(got->distances + q * K, distances, sizeof distances);
    }
    kn_searcher_close(s);
}

static kn_neighbors answers_make(void) {
    return (kn_neighbors){(uint32_t *)need(QUERIES * K), need(QUERIES * K), (uint32_t *)need(QUERIES)};
}

static void answers_free(kn_neighbors *n) {
    free(n->ids);
    free(n->distances);
    free(n->counts);
}

static void check(const fixture *t, const kn_search_options *o) {
    kn_neighbors got = answers_make(), again = answers_make();
    OK(kn_index_search(t->index, t->queries, QUERIES, o, &got));
    one_by_one(t, o, &got);
    if (!o->exclude && !o->allowed) by_definition(t, &got);
    OK(kn_threads_set(3));
    OK(kn_index_search(t->index, t->queries, QUERIES, o, &again));
    OK(kn_threads_set(0));
    assert_memory_equal(got.ids, again.ids, QUERIES * K * 4);
    assert_memory_equal(got.distances, again.distances, QUERIES * K * 4);
    answers_free(&got);
    answers_free(&again);
}

static void few_directions(void **state) {
    fixture t = fixture_make(LATENT, NULL);
    (void)state;
    check(&t, &(kn_search_options){.k = K});
    fixture_free(&t);
}

static void all_directions(void **state) {
    fixture t = fixture_make(D, NULL);
    (void)state;
    check(&t, &(kn_search_options){.k = K});
    fixture_free(&t);
}

// Points beside the query, all of them where the first guess looks: the guess is far too near.
static void plant(fixture *t) {
    size_t panels = N / 16 / KN_CELL, stride = N / panels;
    for (size_t i = 0; i < 4; i++)
        for (size_t r = 0; r < KN_CELL && i * stride + r < N; r++)
            for (size_t j = 0; j < D; j++)
                t->keys[(i * stride + r) * D + j] = t->queries[j] + 1e-3f * (float)(r + i);
}

static void wrong_guesses(void **state) {
    fixture t = fixture_make(LATENT, plant);
    (void)state;
    check(&t, &(kn_search_options){.k = K});
    fixture_free(&t);
}

static void filtered(void **state) {
    fixture t = fixture_make(LATENT, plant);
    kn_entry_range *exclude = calloc(QUERIES, sizeof *exclude);
    uint64_t *allowed = calloc(N / 64 + 1, sizeof *allowed);
    (void)state;
    assert_true(exclude && allowed);
    for (size_t q = 0; q < QUERIES; q++) exclude[q] = (kn_entry_range){q * 20, q * 20 + 4000};
    for (size_t i = 0; i < N; i++) allowed[i / 64] |= (uint64_t)(i % 3 == 0) << i % 64;
    check(&t, &(kn_search_options){.k = K, .exclude = exclude});
    check(&t, &(kn_search_options){.k = K, .exclude = exclude, .allowed = allowed});
    memset(allowed, 0, (N / 64 + 1) * sizeof *allowed);
    allowed[7] = UINT64_MAX; // fewer than are wanted
    check(&t, &(kn_search_options){.k = K, .allowed = allowed});
    free(exclude);
    free(allowed);
    fixture_free(&t);
}

// A key whose square is beyond f32, among those that directions are learnt from (all of the first rows are).
static void add_giant(fixture *t) {
    t->keys[11 * D] = 1e25f;
}

static void shrink_all(fixture *t) {
    for (size_t i = 0; i < N * D; i++) t->keys[i] = (t->keys[i] - 3) * 1e-20f;
    for (size_t i = 0; i < QUERIES * D; i++) t->queries[i] = (t->queries[i] - 3) * 1e-20f;
}

static void grow_all(fixture *t) {
    for (size_t i = 0; i < N * D; i++) t->keys[i] *= 1e17f;
    for (size_t i = 0; i < QUERIES * D; i++) t->queries[i] *= 1e17f;
}

// Beyond what f32 can square there are no distances to compare: one by one finds the same.
static void extreme_sizes(void **state) {
    void (*changes[])(fixture *) = {add_giant, shrink_all, grow_all};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fixture t = fixture_make(LATENT, changes[i]);
        kn_neighbors got = answers_make();
        kn_search_options o = {.k = K};
        OK(kn_index_search(t.index, t.queries, QUERIES, &o, &got));
        assert_int_equal(got.counts[0], K);
        one_by_one(&t, &o, &got);
        answers_free(&got);
        fixture_free(&t);
    }
}

// So many that entries are assigned by groups: all of them are somewhere, mostly where queries look first.
static void very_many_lists(void **state) {
    enum { LISTS = KN_GROUPS_FROM, ASKED = 100, FEW = 10 };
    fixture t = fixture_make(LATENT, NULL);
    kn_recipe recipe = {.lists = LISTS, .train = 12000, .iterations = 1, .seed = 1, .probes = 256};
    kn_index_result made;
    kn_store *store;
    kn_index *index;
    kn_neighbors all = answers_make(), near = answers_make(), flat = answers_make();
    size_t found = 0;
    (void)state;
    OK(kn_index_search(t.index, t.queries, ASKED, &(kn_search_options){.k = FEW}, &flat));
    OK(kn_index_build(t.path, &recipe, NULL, &made));
    OK(kn_store_open(t.path, &store));
    OK(kn_index_open(store, &index));
    OK(kn_index_search(index, t.queries, ASKED, &(kn_search_options){.k = FEW, .probes = LISTS}, &all));
    OK(kn_index_search(index, t.queries, ASKED, &(kn_search_options){.k = FEW}, &near));
    for (size_t i = 0; i < ASKED * FEW; i++) {
        assert_true(fabsf(all.distances[i] - flat.distances[i]) <= 1e-5f * flat.distances[i]);
        found += near.distances[i] <= flat.distances[i / FEW * FEW + FEW - 1] * 1.00001f;
    }
    if (found < ASKED * FEW * 9 / 10) fail_msg("%zu of %d neighbours found", found, ASKED * FEW);
    kn_index_close(index);
    kn_store_close(store);
    answers_free(&all);
    answers_free(&near);
    answers_free(&flat);
    fixture_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions_follow_the_spread),
        cmocka_unit_test(bounds_are_below),
        cmocka_unit_test(few_directions),
        cmocka_unit_test(all_directions),
        cmocka_unit_test(wrong_guesses),
        cmocka_unit_test(filtered),
        cmocka_unit_test(extreme_sizes),
        cmocka_unit_test(very_many_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
