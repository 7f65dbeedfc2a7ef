// p_kNN of vectors by the installed header: against sums in double precision; searches of one query by
// itself, by several threads: the same to the bit whoever asks, and what the search for many finds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "index/index.h"
#include "knnlm.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { D = 12, ENTRIES = 1500, VOCABULARY = 30, QUERIES = 16, K = 25, THREADS = 6, ROUNDS = 12 };

typedef struct fixture {
    char folder[64], path[96];
    knnlm_store *store;
    float keys[ENTRIES * D], queries[QUERIES * D];
    int32_t tokens[ENTRIES];
} fixture;

// A store without a model or a text: vectors and values of one's own.
static void write_store(fixture *t, knnlm_distance distance, int32_t vocabulary) {
    knnlm_store_settings s = knnlm_store_settings_default();
    knnlm_writer *w;
    s.dimension = D;
    s.keys = KNNLM_KEYS_F32;
    s.distance = distance;
    s.vocabulary = vocabulary;
    OK(knnlm_writer_create(t->path, &s, &w));
    OK(knnlm_writer_begin(w, &(knnlm_document){.name = "points", .name_size = 6, .tokens = ENTRIES}));
    OK(knnlm_writer_append(w, t->tokens, NULL, t->keys, ENTRIES));
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
}

static fixture *fixture_open(knnlm_distance distance, int32_t vocabulary) {
    fixture *t = calloc(1, sizeof *t);
    kn_random random = {5};
    assert_non_null(t);
    strcpy(t->folder, "/tmp/knnlm-test-api-knn-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    snprintf(t->path, sizeof t->path, "%s/s.store", t->folder);
    for (size_t i = 0; i < ENTRIES * D; i++) t->keys[i] = (float)kn_random_normal(&random);
    for (size_t i = 0; i < ENTRIES; i++) t->tokens[i] = (int32_t)kn_random_below(&random, VOCABULARY);
    for (size_t i = 0; i < QUERIES * D; i++) t->queries[i] = (float)kn_random_normal(&random);
    write_store(t, distance, vocabulary);
    OK(knnlm_store_open(t->path, &t->store));
    return t;
}

static void fixture_close(fixture *t) {
    char command[128];
    knnlm_store_close(t->store);
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
    free(t);
}

static knnlm_search_options options_of(size_t k) {
    knnlm_search_options o = knnlm_search_options_default();
    o.k = k;
    return o;
}

// ---------------------------------------------------------------- p_kNN

// By the definition, over all entries in double precision.
static void define(const fixture *t, size_t query, double temperature, double p[VOCABULARY]) {
    double distances[ENTRIES], nearest[K], sum = 0;
    bool taken[ENTRIES] = {0};
    for (size_t i = 0; i < ENTRIES; i++) {
        distances[i] = 0;
        for (size_t j = 0; j < D; j++)
            distances[i] += pow((double)t->queries[query * D + j] - (double)t->keys[i * D + j], 2);
    }
    memset(p, 0, VOCABULARY * sizeof *p);
    for (size_t n = 0; n < K; n++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < ENTRIES; i++)
            if (!taken[i] && (best == SIZE_MAX || distances[i] < distances[best])) best = i;
        taken[best] = true;
        nearest[n] = distances[best];
        double share = exp((nearest[0] - nearest[n]) / temperature);
        p[t->tokens[best]] += share;
        sum += share;
    }
    for (size_t v = 0; v < VOCABULARY; v++) p[v] /= sum;
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-5)) fail_msg("%.9g, not %.9g", got, want);
}

static void test_distribution(void **state) {
    fixture *t = fixture_open(KNNLM_DISTANCE_L2, VOCABULARY);
    knnlm_search_options o = options_of(K);
    double p[QUERIES * VOCABULARY], want[VOCABULARY], logprobs[QUERIES];
    int32_t targets[QUERIES];
    const double temperatures[] = {0.5, 3, 100};
    (void)state;
    for (size_t i = 0; i < QUERIES; i++) targets[i] = (int32_t)i;
    for (size_t k = 0; k < 3; k++) {
        OK(knnlm_store_knn(t->store, t->queries, QUERIES, &o, temperatures[k], p));
        OK(knnlm_store_knn_targets(t->store, t->queries, QUERIES, targets, &o, temperatures[k], logprobs));
        for (size_t q = 0; q < QUERIES; q++) {
            define(t, q, temperatures[k], want);
            for (size_t v = 0; v < VOCABULARY; v++) near(p[q * VOCABULARY + v], want[v]);
            near(exp(logprobs[q]), want[q]);
            assert_true(want[q] > 0 || logprobs[q] == -INFINITY);
        }
    }
    fixture_close(t);
}

// From neighbours in any order.
static void test_of_neighbours(void **state) {
    fixture *t = fixture_open(KNNLM_DISTANCE_L2, VOCABULARY);
    knnlm_search_options o = options_of(K);
    uint32_t ids[K], count, turned[K];
    float distances[K], far[K];
    double p[VOCABULARY], q[VOCABULARY];
    (void)state;
    OK(knnlm_store_search(t->store, t->queries, 1, &o, ids, distances, &count));
    OK(knnlm_store_knn(t->store, t->queries, 1, &o, 2, p));
    for (size_t i = 0; i < K; i++) {
        turned[i] = ids[K - 1 - i];
        far[i] = distances[K - 1 - i];
    }
    OK(knnlm_store_knn_of(t->store, turned, far, K, 2, q));
    for (size_t v = 0; v < VOCABULARY; v++) near(q[v], p[v]);
    OK(knnlm_store_knn_of(t->store, turned, far, 0, 2, q)); // none
    for (size_t v = 0; v < VOCABULARY; v++) assert_true(q[v] == 0);
    for (uint32_t wrong = ENTRIES; wrong != 0; wrong = wrong == ENTRIES ? UINT32_MAX : 0) {
        turned[3] = wrong;
        FAILS(KNNLM_EINVAL, "", knnlm_store_knn_of(t->store, turned, far, K, 2, q));
    }
    fixture_close(t);
}

// The tokens of entries in any order, and of the places behind the last neighbour.
static void test_values(void **state) {
    fixture *t = fixture_open(KNNLM_DISTANCE_L2, VOCABULARY);
    const uint32_t ids[] = {ENTRIES - 1, 7, UINT32_MAX, 7, 0};
    int32_t values[COUNT(ids)];
    (void)state;
    OK(knnlm_store_values(t->store, ids, COUNT(ids), values));
    for (size_t i = 0; i < COUNT(ids); i++)
        assert_int_equal(values[i], ids[i] == UINT32_MAX ? -1 : t->tokens[ids[i]]);
    FAILS(KNNLM_EINVAL, "1500", knnlm_store_values(t->store, &(uint32_t){ENTRIES}, 1, values));
    fixture_close(t);
}

static void test_refused(void **state) {
    fixture *t = fixture_open(KNNLM_DISTANCE_L2, 0);
    knnlm_search_options o = options_of(K);
    double p[VOCABULARY], logprob;
    int32_t target = 3;
    (void)state;
    FAILS(KNNLM_EINVAL, "vocabulary", knnlm_store_knn(t->store, t->queries, 1, &o, 1, p));
    FAILS(KNNLM_EINVAL, "vocabulary", knnlm_store_knn_of(t->store, NULL, NULL, 0, 1, p));
    OK(knnlm_store_knn_targets(t->store, t->queries, 1, &target, &o, 1, &logprob)); // which needs none
    const double bad[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++)
        FAILS(KNNLM_EINVAL, "temperature",
              knnlm_store_knn_targets(t->store, t->queries, 1, &target, &o, bad[i], &logprob));
    o.k = 0;
    FAILS(KNNLM_EINVAL, "0 neighbours",
          knnlm_store_knn_targets(t->store, t->queries, 1, &target, &o, 1, &logprob));
    fixture_close(t);
}

// ---------------------------------------------------------------- one query at a time

typedef struct rows {
    uint32_t ids[QUERIES * K], counts[QUERIES];
    float distances[QUERIES * K];
} rows;

typedef struct asker {
    const fixture *t;
    const rows *want;
    pthread_t thread;
    size_t number, different;
} asker;

// Queries one after another, in an order and with a k of one's own.
static void *ask(void *context) {
    asker *a = context;
    for (size_t i = 0; i < ROUNDS * QUERIES; i++) {
        size_t q = (i * 7 + a->number) % QUERIES, k = i % 3 ? K : 5;
        knnlm_search_options o = options_of(k);
        uint32_t ids[K], count;
        float distances[K];
        o.singly = true;
        o.exact = i % 2 != 0;
        if (knnlm_store_search(a->t->store, a->t->queries + q * D, 1, &o, ids, distances, &count) != KNNLM_OK)
            a->different++;
        const rows *w = &a->want[o.exact];
        a->different += memcmp(ids, w->ids + q * K, k * sizeof *ids) != 0 ||
                        memcmp(distances, w->distances + q * K, k * sizeof *distances) != 0 || count != k;
    }
    return NULL;
}

// What a searcher of the room finds.
static void search_singly(const fixture *t, bool lists, rows *out) {
    kn_store *store;
    kn_index *x;
    kn_searcher *s;
    kn_search_options o = {.k = K};
    OK(kn_store_open(t->path, &store));
    OK(lists ? kn_index_open(store, &x) : kn_index_open_flat(store, &x));
    OK(kn_searcher_open(x, K, &s));
    for (size_t q = 0; q < QUERIES; q++) {
        kn_neighbors row = {out->ids + q * K, out->distances + q * K, out->counts + q};
        OK(kn_searcher_find(s, t->queries + q * D, &o, &row));
    }
    kn_searcher_close(s);
    kn_index_close(x);
    kn_store_close(store);
}

static void check_alone(knnlm_distance distance) {
    fixture *t = fixture_open(distance, VOCABULARY);
    knnlm_index_options lists = knnlm_index_options_default();
    asker askers[THREADS];
    rows want[2], together;
    knnlm_search_options o = options_of(K);
    lists.lists = 12;
    lists.probes = 3;
    OK(knnlm_index(NULL, t->path, &lists, NULL));
    knnlm_store_close(t->store);
    OK(knnlm_store_open(t->path, &t->store));
    search_singly(t, true, &want[0]);
    search_singly(t, false, &want[1]);
    for (size_t i = 0; i < THREADS; i++) {
        askers[i] = (asker){.t = t, .want = want, .number = i};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].different, 0);
    }
    OK(knnlm_store_search(t->store, t->queries, QUERIES, &o, together.ids, together.distances,
                          together.counts));
    for (size_t i = 0; i < QUERIES * K; i++)
        if (!(fabs(together.distances[i] - want[0].distances[i]) <= 1e-4f))
            fail_msg("%.9g together, %.9g alone", (double)together.distances[i],
                     (double)want[0].distances[i]);
    fixture_close(t);
}

static void test_alone(void **state) {
    (void)state;
    check_alone(KNNLM_DISTANCE_L2);
    check_alone(KNNLM_DISTANCE_IP);
    check_alone(KNNLM_DISTANCE_COSINE);
}

// Filters count; several queries go one by one; what is refused.
static void test_alone_options(void **state) {
    fixture *t = fixture_open(KNNLM_DISTANCE_L2, VOCABULARY);
    knnlm_search_options o = options_of(K);
    rows *alone = calloc(1, sizeof *alone);
    uint64_t exclude[QUERIES * 2];
    (void)state;
    for (size_t i = 0; i < QUERIES; i++) {
        exclude[2 * i] = i * 10;
        exclude[2 * i + 1] = i * 10 + 700;
    }
    o.singly = true;
    o.exclude = exclude;
    OK(knnlm_store_search(t->store, t->queries, QUERIES, &o, alone->ids, alone->distances, alone->counts));
    for (size_t i = 0; i < QUERIES * K; i++)
        assert_true(alone->ids[i] < exclude[2 * (i / K)] || alone->ids[i] >= exclude[2 * (i / K) + 1]);
    o.documents = (const uint64_t[]){1};
    o.document_count = 1;
    FAILS(KNNLM_EINVAL, "",
          knnlm_store_search(t->store, t->queries, 1, &o, alone->ids, alone->distances, alone->counts));
    o.documents = NULL;
    o.k = 0;
    FAILS(KNNLM_EINVAL, "0 neighbours",
          knnlm_store_search(t->store, t->queries, 1, &o, alone->ids, alone->distances, alone->counts));
    o.k = K;
    t->queries[D] = NAN;
    FAILS(KNNLM_EDATA, "not finite",
          knnlm_store_search(t->store, t->queries, 2, &o, alone->ids, alone->distances, alone->counts));
    free(alone);
    fixture_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_of_neighbours),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_alone),        cmocka_unit_test(test_alone_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
