// What the tests of searching share: a store of a few documents, its lists, and what every answer must be,
// by the definition in double precision.
#ifndef KN_TESTS_SEARCH_KIT_H
#define KN_TESTS_SEARCH_KIT_H

#include "expect.h"

#include "base/random.h"
#include "index/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// Some clusters far from the origin, and points that occur twice.
static inline void draw(fixture *t) {
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

static inline void add_documents(fixture *t, kn_store_writer *w, size_t count) {
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

static inline fixture fixture_make(size_t d, knnlm_keys type, knnlm_distance distance) {
    fixture t = {.d = d,
                 .type = type,
                 .distance = distance,
                 .keys = test_alloc(MAX * d, sizeof(float)),
                 .queries = test_alloc(QUERIES * d, sizeof(float))};
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

static inline void fixture_free(fixture *t) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
    free(t->keys);
    free(t->queries);
}

static inline void make_grouped_lists(const fixture *t, uint32_t lists, uint32_t groups, uint32_t code_parts,
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

static inline void make_coded_lists(const fixture *t, uint32_t lists, uint32_t code_parts,
                                    uint32_t code_bits) {
    make_grouped_lists(t, lists, 0, code_parts, code_bits);
}

static inline void make_lists(const fixture *t, uint32_t lists, uint32_t code_parts) {
    make_coded_lists(t, lists, code_parts, 8);
}

// ---------------------------------------------------------------- answers

typedef struct answers {
    kn_neighbors n;
    size_t k;
} answers;

static inline answers answers_make(size_t k) {
    return (answers){{test_alloc(QUERIES * k, 4), test_alloc(QUERIES * k, 4), test_alloc(QUERIES, 4)}, k};
}

static inline void answers_free(answers *a) {
    free(a->n.ids);
    free(a->n.distances);
    free(a->n.counts);
}

// How far a query may be from what int8 keys meet of it: half a step in each coordinate, where the largest is
// 32767 steps long (these queries have too few coordinates for the other bound of kn_integers_make).
static inline double moved(const fixture *t, size_t query) {
    double largest = 0;
    for (size_t j = 0; j < t->d; j++) largest = fmax(largest, fabs((double)t->queries[query * t->d + j]));
    return t->type == KNNLM_KEYS_INT8 ? 1.001 * largest / 32767 / 2 * sqrt((double)t->d) : 0;
}

// Rounding in f32: of the distance and of coordinates (L2), of lengths (inner product), of 1 (cosine); and of
// the query to 16 bits. Entries nearer to each other than that may stand in either order. Keys have lengths
// below 8 sqrt(d) (draw).
static inline double slack(const fixture *t, size_t query, double distance) {
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
static inline void check_answers(const fixture *t, const kn_store *s, const answers *a,
                                 const kn_search_options *o) {
    uint32_t *ids = test_alloc(t->added, sizeof *ids);
    double *distances = test_alloc(t->added, sizeof *distances), *of = test_alloc(t->added, sizeof *of);
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

static inline void check_same(const answers *a, const answers *b) {
    assert_memory_equal(a->n.ids, b->n.ids, QUERIES * a->k * 4);
    assert_memory_equal(a->n.distances, b->n.distances, QUERIES * a->k * 4);
    assert_memory_equal(a->n.counts, b->n.counts, QUERIES * 4);
}

// By all threads the same, to the last bit.
static inline void check_spread(kn_searcher *s, const float *query, const kn_search_options *o,
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
static inline void check_single(const fixture *t, const kn_index *x, const kn_search_options *o,
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

static inline void check_index(const fixture *t, const kn_search_options *o) {
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

static inline double measure(knnlm_distance distance, const float *query, const float *row, size_t d) {
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

static inline int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_F16, KNNLM_KEYS_INT8};
static const knnlm_distance measures[] = {KNNLM_DISTANCE_L2, KNNLM_DISTANCE_IP, KNNLM_DISTANCE_COSINE};

#endif
