// Searching: every answer against the definition in double precision, for every distance, type of key and
// filter; the same whatever the threads and the batch; lists and what was added since; damaged indexes.
#include "expect.h"

#include "base/file.h"
#include "base/random.h"
#include "base/threads.h"
#include "index/view.h"
#include "math/top.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_near(got, want, slack)                                                                        \
    do {                                                                                                     \
        if (!(fabs((double)(got) - (want)) <= (slack)))                                                      \
            fail_msg("%s is %.9g, not %.9g", #got, (double)(got), (double)(want));                           \
    } while (0)

enum { DOCUMENTS = 7, DOCUMENT = 211, ENTRIES = DOCUMENTS * DOCUMENT, QUERIES = 70, MAX = 4000 };

typedef struct fixture {
    char folder[64], path[96];
    size_t d;
    knnlm_keys type;
    knnlm_distance distance;
    float *keys;    // (MAX, d)
    float *queries; // (QUERIES, d)
    size_t added;   // entries so far
} fixture;

static void *need(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

// Some clusters far from the origin, and points that occur twice.
static void draw(fixture *t) {
    kn_random random = {3};
    for (size_t i = 0; i < MAX; i++)
        for (size_t j = 0; j < t->d; j++) {
            float centre = (float)((i % 13 * 7 + j * 3) % 11) - 3;
            t->keys[i * t->d + j] =
                i % 50 == 49 ? t->keys[(i - 1) * t->d + j] : centre + 0.4f * (float)kn_random_normal(&random);
        }
    for (size_t i = 0; i < QUERIES; i++) {
        for (size_t j = 0; j < t->d; j++)
            t->queries[i * t->d + j] = t->keys[(i * 37 % ENTRIES) * t->d + j] +
                                       (i % 3 ? 0.2f * (float)kn_random_normal(&random) : 0);
    }
}

static void add_documents(fixture *t, kn_store_writer *w, size_t count) {
    int32_t tokens[DOCUMENT] = {0};
    for (size_t i = 0; i < count; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "d%zu", t->added / DOCUMENT);
        kn_store_document d = {.name = name, .name_size = (size_t)size, .tokens = DOCUMENT};
        OK(kn_store_writer_document(w, &d));
        OK(kn_store_writer_append(w, tokens, NULL, t->keys + t->added * t->d, DOCUMENT));
        t->added += DOCUMENT;
    }
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

static fixture fixture_make(size_t d, knnlm_keys type, knnlm_distance distance) {
    fixture t = {.d = d,
                 .type = type,
                 .distance = distance,
                 .keys = need(MAX * d, sizeof(float)),
                 .queries = need(QUERIES * d, sizeof(float))};
    kn_store_settings s = {.key_type = type,
                           .dimension = (int32_t)d,
                           .model_dimension = (int32_t)d,
                           .distance = distance,
                           .segment = 500};
    kn_store_writer *w;
    test_folder(t.folder, sizeof t.folder);
    snprintf(t.path, sizeof t.path, "%s/s.store", t.folder);
    draw(&t);
    OK(kn_store_create(t.path, &s, &w));
    add_documents(&t, w, DOCUMENTS);
    return t;
}

static void fixture_free(fixture *t) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
    free(t->keys);
    free(t->queries);
}

static void make_grouped_lists(const fixture *t, uint32_t lists, uint32_t groups, uint32_t code_parts,
                               uint32_t code_bits) {
    kn_recipe recipe = {.lists = lists,
                        .groups = groups,
                        .probes = 3,
                        .seed = 5,
                        .code_parts = code_parts,
                        .code_bits = code_bits};
    kn_index_result r;
    OK(kn_index_build(t->path, &recipe, NULL, &r));
    assert_int_equal(r.info.lists, lists);
    assert_int_equal(r.info.listed, t->added);
}

static void make_coded_lists(const fixture *t, uint32_t lists, uint32_t code_parts, uint32_t code_bits) {
    make_grouped_lists(t, lists, 0, code_parts, code_bits);
}

static void make_lists(const fixture *t, uint32_t lists, uint32_t code_parts) {
    make_coded_lists(t, lists, code_parts, 8);
}

// ---------------------------------------------------------------- answers

typedef struct answers {
    kn_neighbors n;
    size_t k;
} answers;

static answers answers_make(size_t k) {
    return (answers){{need(QUERIES * k, 4), need(QUERIES * k, 4), need(QUERIES, 4)}, k};
}

static void answers_free(answers *a) {
    free(a->n.ids);
    free(a->n.distances);
    free(a->n.counts);
}

// How far a query may be from what int8 keys meet of it: half a step in each coordinate, where the largest is
// 32767 steps long (these queries have too few coordinates for the other bound of kn_integers_make).
static double moved(const fixture *t, size_t query) {
    double largest = 0;
    for (size_t j = 0; j < t->d; j++) largest = fmax(largest, fabs((double)t->queries[query * t->d + j]));
    return t->type == KNNLM_KEYS_INT8 ? 1.001 * largest / 32767 / 2 * sqrt((double)t->d) : 0;
}

// Rounding in f32: of the distance and of coordinates (L2), of lengths (inner product), of 1 (cosine); and of
// the query to 16 bits. Entries nearer to each other than that may stand in either order. Keys have lengths
// below 8 sqrt(d) (draw).
static double slack(const fixture *t, size_t query, double distance) {
    double squares = 0, away = moved(t, query);
    for (size_t j = 0; j < t->d; j++)
        squares += (double)t->queries[query * t->d + j] * t->queries[query * t->d + j];
    if (t->distance == KNNLM_DISTANCE_L2)
        return 4e-6 * fabs(distance) + (1e-6 + 2 * away) * sqrt(fabs(distance)) + away * away + 1e-12;
    if (t->distance == KNNLM_DISTANCE_IP)
        return 4e-6 * sqrt(squares) * (10 + sqrt(squares)) + away * 8 * sqrt((double)t->d);
    return 2e-6 + (squares > 0 ? 2 * away / sqrt(squares) : 0); // its direction and its length
}

// Against brute force: the distances are the true ones in order, and each is that of the entry named.
static void check_answers(const fixture *t, const kn_store *s, const answers *a, const kn_search_options *o) {
    uint32_t *ids = need(t->added, sizeof *ids);
    double *distances = need(t->added, sizeof *distances), *of = need(t->added, sizeof *of);
    for (size_t q = 0; q < QUERIES; q++) {
        size_t count;
        OK(kn_index_brute_force(s, t->queries + q * t->d, t->added, o->exclude ? &o->exclude[q] : NULL,
                                o->allowed, ids, distances, &count));
        for (size_t i = 0; i < count; i++) of[ids[i]] = distances[i];
        size_t want = count < a->k ? count : a->k;
        assert_int_equal(a->n.counts[q], want);
        for (size_t i = 0; i < a->k; i++) {
            uint32_t id = a->n.ids[q * a->k + i];
            float got = a->n.distances[q * a->k + i];
            if (i >= want) {
                assert_int_equal(id, UINT32_MAX);
                assert_true(isinf(got));
                continue;
            }
            assert_near(got, distances[i], slack(t, q, distances[i]));
            assert_near(got, of[id], slack(t, q, distances[i]));
            if (i && got == a->n.distances[q * a->k + i - 1]) assert_true(id > a->n.ids[q * a->k + i - 1]);
        }
    }
    free(ids);
    free(distances);
    free(of);
}

static void check_same(const answers *a, const answers *b) {
    assert_memory_equal(a->n.ids, b->n.ids, QUERIES * a->k * 4);
    assert_memory_equal(a->n.distances, b->n.distances, QUERIES * a->k * 4);
    assert_memory_equal(a->n.counts, b->n.counts, QUERIES * 4);
}

// By all threads the same, to the last bit.
static void check_spread(kn_searcher *s, const float *query, const kn_search_options *o,
                         const kn_neighbors *alone) {
    uint32_t *ids = calloc(o->k, sizeof *ids), count;
    float *distances = calloc(o->k, sizeof *distances);
    kn_search_options spread = *o;
    spread.spread = true;
    OK(kn_searcher_find(s, query, &spread, &(kn_neighbors){ids, distances, &count}));
    assert_int_equal(count, alone->counts[0]);
    assert_memory_equal(ids, alone->ids, o->k * sizeof *ids);
    assert_memory_equal(distances, alone->distances, o->k * sizeof *distances);
    free(ids);
    free(distances);
}

// A single search gives what the batch gives, to rounding: the sums are of another order. Sums of integers
// are not rounded at all.
static void check_single(const fixture *t, const kn_index *x, const kn_search_options *o,
                         const answers *batch) {
    answers one = answers_make(o->k);
    kn_searcher *s;
    OK(kn_searcher_open(x, o->k, &s));
    for (size_t q = 0; q < QUERIES; q++) {
        kn_search_options mine = *o;
        kn_neighbors out = {one.n.ids + q * o->k, one.n.distances + q * o->k, one.n.counts + q};
        if (o->exclude) mine.exclude = &o->exclude[q];
        OK(kn_searcher_find(s, t->queries + q * t->d, &mine, &out));
        check_spread(s, t->queries + q * t->d, &mine, &out);
        assert_int_equal(out.counts[0], batch->n.counts[q]);
        for (size_t i = 0; i < out.counts[0]; i++)
            assert_near(out.distances[i], batch->n.distances[q * o->k + i],
                        x->integers && !o->codes ? 0 : 2 * slack(t, q, out.distances[i]));
    }
    kn_searcher_close(s);
    answers_free(&one);
}

static void check_index(const fixture *t, const kn_search_options *o) {
    kn_store *s;
    kn_index *x;
    answers a = answers_make(o->k);
    OK(kn_store_open(t->path, &s));
    OK(kn_index_open(s, &x));
    OK(kn_index_search(x, t->queries, QUERIES, o, &a.n));
    check_answers(t, s, &a, o);
    check_single(t, x, o, &a);
    kn_index_close(x);
    kn_store_close(s);
    answers_free(&a);
}

static double measure(knnlm_distance distance, const float *query, const float *row, size_t d) {
    double product = 0, away = 0, queries = 0, rows = 0;
    for (size_t j = 0; j < d; j++) {
        product += (double)query[j] * row[j];
        away += ((double)query[j] - row[j]) * ((double)query[j] - row[j]);
        queries += (double)query[j] * query[j];
        rows += (double)row[j] * row[j];
    }
    if (distance == KNNLM_DISTANCE_L2) return away;
    return distance == KNNLM_DISTANCE_IP ? -product : 1 - product / sqrt(queries * rows);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// ---------------------------------------------------------------- tests

static const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_F16, KNNLM_KEYS_INT8};
static const knnlm_distance measures[] = {KNNLM_DISTANCE_L2, KNNLM_DISTANCE_IP, KNNLM_DISTANCE_COSINE};

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
        double *all = need(t.added, sizeof *all);
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
    kn_item *items = need(t->added, sizeof *items), *scratch = need(t->added, sizeof *scratch);
    float *row = need(t->d, sizeof *row), *unit = need(t->d, sizeof *unit);
    int16_t *whole = need(kn_index_stride(x), sizeof *whole);
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
    float *row = need(t->d, sizeof *row);
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
    double *all = need(t->added, sizeof *all);
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

// ---------------------------------------------------------------- damage

// Both searches of everything there is; the status of the batch, which the other must share.
static knnlm_status search_all(const fixture *t, bool codes) {
    kn_search_options o = {.k = 50, .probes = 1000, .codes = codes};
    answers a = answers_make(o.k);
    kn_store *s;
    kn_index *x;
    kn_searcher *searcher;
    OK(kn_store_open(t->path, &s));
    knnlm_status status = kn_index_open(s, &x);
    if (status == KNNLM_OK) {
        OK(kn_searcher_open(x, o.k, &searcher));
        status = kn_index_search(x, t->queries, QUERIES, &o, &a.n);
        kn_store_close(s); // another state: the searcher is to find the damage by itself
        kn_searcher_close(searcher);
        kn_index_close(x);
        OK(kn_store_open(t->path, &s));
        OK(kn_index_open(s, &x));
        OK(kn_searcher_open(x, o.k, &searcher));
        assert_int_equal(kn_searcher_find(searcher, t->queries, &o, &a.n), status);
        o.spread = true;
        assert_int_equal(kn_searcher_find(searcher, t->queries, &o, &a.n), status);
        kn_searcher_close(searcher);
        kn_index_close(x);
    }
    kn_store_close(s);
    answers_free(&a);
    return status;
}

static void part_path(const fixture *t, const char *kind, char path[160]) {
    char command[256];
    snprintf(command, sizeof command, "ls %s/*.%s | head -n 1", t->path, kind);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(path, 160, pipe));
    pclose(pipe);
    path[strcspn(path, "\n")] = 0;
}

// Other bytes at `at` of a file; `kept` is what was there.
static void exchange(const char *path, long at, const void *bytes, size_t size, void *kept) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fread(kept, 1, size, f), size);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void check_told(const fixture *t, const char *kind, bool codes) {
    char ending[16];
    snprintf(ending, sizeof ending, ".%s", kind);
    assert_int_equal(search_all(t, codes), KNNLM_EDATA);
    assert_non_null(strstr(knnlm_message(), ending));
    assert_null(strchr(knnlm_message(), '\n'));
}

// Zeros in the middle of every part, and at its beginning.
static void damaged_parts_are_errors(void **state) {
    static const char *const kinds[] = {"lists", "order", "rows", "codes", "keys"};
    const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_F16, KNNLM_KEYS_INT8};
    static const char zeros[64];
    (void)state;
    for (size_t type = 0; type < 3; type++) {
        fixture t = fixture_make(16, types[type], KNNLM_DISTANCE_L2);
        kn_store_writer *w;
        make_lists(&t, 4, 8);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 1); // outside the lists
        for (size_t i = 0; i < 5; i++) {
            char path[160], kept[64];
            bool own = strcmp(kinds[i], "keys") == 0; // the newest, which no list has
            part_path(&t, kinds[i], path);
            if (own) {
                char command[256];
                snprintf(command, sizeof command, "ls %s/*.keys | tail -n 1", t.path);
                FILE *pipe = popen(command, "r");
                assert_non_null(fgets(path, sizeof path, pipe));
                pclose(pipe);
                path[strcspn(path, "\n")] = 0;
            }
            const long places[] = {0, 64, 700};
            for (size_t p = 0; p < 3; p++) {
                exchange(path, places[p], zeros, sizeof zeros, kept);
                check_told(&t, kinds[i], strcmp(kinds[i], "codes") == 0);
                exchange(path, places[p], kept, sizeof kept, (char[64]){0});
                OK(search_all(&t, false));
            }
        }
        fixture_free(&t);
    }
}

// The same parts once more, sealed as they should be, with other bytes in one of them: a forger can do that.
static void forge(const fixture *t, const char *kind, size_t at, const void *bytes, size_t size) {
    kn_store_writer *w;
    kn_annex_writer *a;
    OK(kn_store_write(t->path, &w));
    const kn_store *s = kn_store_writer_base(w);
    char *note = strdup(kn_store_annex_note(s));
    OK(kn_annex_open(w, 0, &a));
    for (size_t i = 0; i < kn_store_annex_parts(s); i++) {
        kn_store_annex_part p = kn_store_annex_at(s, i);
        uint8_t *data = need(p.size, 1);
        memcpy(data, p.data, p.size);
        if (strcmp(p.kind, kind) == 0) memcpy(data + at, bytes, size);
        OK(kn_annex_begin(a, p.kind));
        OK(kn_annex_put(a, data, p.size));
        OK(kn_annex_seal(a, p.count));
        free(data);
    }
    OK(kn_annex_commit(a, note, kn_store_describe(s)->arranged));
    kn_store_writer_close(w);
    free(note);
}

static void senseless_parts_are_errors(void **state) {
    static const struct {
        const char *kind;
        size_t at;
        uint32_t bits;
        bool lasting; // keys are lost: lists can be learnt anew, keys cannot
    } forgeries[] = {{"order", 64 + 4 * 100, ENTRIES, false},
                     {"lists", 4 * 20, 0x7fc00000, false},
                     {"rows", 4 * 777, 0x7fc00000, true}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
        kn_index_result r;
        make_lists(&t, 4, 0);
        forge(&t, forgeries[i].kind, 64, &(uint32_t){0}, 0); // nothing forged: still good
        OK(search_all(&t, false));
        forge(&t, forgeries[i].kind, forgeries[i].at, &forgeries[i].bits, sizeof forgeries[i].bits);
        check_told(&t, forgeries[i].kind, false);
        knnlm_status status = kn_index_build(t.path, &(kn_recipe){.lists = 4, .seed = 1}, NULL, &r);
        assert_int_equal(status, forgeries[i].lasting ? KNNLM_EDATA : KNNLM_OK);
        if (status == KNNLM_OK) check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
        fixture_free(&t);
    }
}

// A part that is cut short or gone: the documents are all there. Where keys lie is said twice, and lists can
// be learnt anew; the keys themselves are there once.
static void a_lost_part_costs_no_document(void **state) {
    static const char *const kinds[] = {"order", "listed", "lists", "rows"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
        char path[160], ending[16];
        kn_store *s;
        kn_index *x;
        kn_index_result r;
        bool lasting = i / 2 == 3;
        make_lists(&t, 4, 0);
        snprintf(ending, sizeof ending, ".%s", kinds[i / 2]);
        part_path(&t, kinds[i / 2], path);
        assert_int_equal(i % 2 ? unlink(path) : truncate(path, 100), 0);
        OK(kn_store_open(t.path, &s));
        assert_int_equal(kn_store_describe(s)->documents, ENTRIES / DOCUMENT);
        assert_int_equal(kn_index_open(s, &x), KNNLM_EDATA);
        assert_non_null(strstr(knnlm_message(), ending));
        kn_store_close(s);
        knnlm_status status = kn_index_build(t.path, &(kn_recipe){.lists = 4, .seed = 1}, NULL, &r);
        assert_int_equal(status, lasting ? KNNLM_EDATA : KNNLM_OK);
        if (!lasting) check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
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
            if (!round) memcpy(first[i] = need(p.size, 1), p.data, p.size);
        }
        kn_store_close(s);
    }
    for (size_t i = 0; i < 5; i++) free(first[i]);
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
        kn_item *a = need(n, 8), *b = need(n, 8), *scratch = need(n, 8);
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
        cmocka_unit_test(additions_are_found_and_listed),
        cmocka_unit_test(another_distance_than_the_stores),
        cmocka_unit_test(codes_first),
        cmocka_unit_test(codes_find_what_they_stand_for),
        cmocka_unit_test(old_codes_are_refused),
        cmocka_unit_test(damaged_parts_are_errors),
        cmocka_unit_test(senseless_parts_are_errors),
        cmocka_unit_test(a_lost_part_costs_no_document),
        cmocka_unit_test(compaction_drops_the_index),
        cmocka_unit_test(compaction_keeps_the_index),
        cmocka_unit_test(indexing_twice_gives_the_same),
        cmocka_unit_test(bad_questions),
        cmocka_unit_test(recall_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
