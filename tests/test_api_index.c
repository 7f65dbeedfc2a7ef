// The public functions that index and search, by the installed header alone: every answer against a loop over
// all entries in double precision; filters; threads that search one store; what is refused, and how.
#include "expect.h"

#include "base/random.h"
#include "knnlm.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 24, DOCUMENT = 150, DOCUMENTS = 12, ENTRIES = DOCUMENT * DOCUMENTS, QUERIES = 20, LISTS = 16 };

// ---------------------------------------------------------------- a store

typedef struct fixture {
    char folder[64], path[96];
    knnlm_distance distance;
    bool integers; // keys are of int8: queries are rounded to 16 bits
    knnlm_store *store;
    size_t entries;
    float *keys; // (entries, D), as the store has them
    float queries[QUERIES * D];
} fixture;

static void *need(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

// Points of some clusters, around which no two documents are alike.
static void draw(kn_random *random, size_t first, size_t count, float *out) {
    for (size_t i = 0; i < count * D; i++) {
        size_t entry = first + i / D;
        out[i] = (float)((entry % 13 * 7 + i % D * 3) % 11) - 3 + 0.5f * (float)kn_random_normal(random);
    }
}

static void write_documents(knnlm_writer *w, size_t first, size_t count) {
    float keys[DOCUMENT * D];
    int32_t tokens[DOCUMENT];
    kn_random random = {first + 1};
    for (size_t i = first; i < first + count; i++) {
        char name[32];
        size_t size = (size_t)snprintf(name, sizeof name, "d%zu", i);
        for (int32_t j = 0; j < DOCUMENT; j++) tokens[j] = j;
        draw(&random, i * DOCUMENT, DOCUMENT, keys);
        OK(knnlm_writer_begin(w, &(knnlm_document){.name = name, .name_size = size, .tokens = DOCUMENT}));
        OK(knnlm_writer_append(w, tokens, NULL, keys, DOCUMENT));
    }
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
}

// Opens the state that is there now, and reads its keys.
static void look(fixture *t) {
    knnlm_store_info info;
    knnlm_store_close(t->store);
    OK(knnlm_store_open(t->path, &t->store));
    knnlm_store_describe(t->store, &info);
    t->entries = (size_t)info.entries;
    free(t->keys);
    t->keys = need(t->entries * D, sizeof *t->keys);
    OK(knnlm_store_keys(t->store, 0, t->entries, t->keys));
}

// Every third query is a key itself.
static void ask(fixture *t) {
    kn_random random = {7};
    for (size_t i = 0; i < QUERIES * D; i++)
        t->queries[i] = t->keys[i / D * 83 % t->entries * D + i % D] +
                        (i / D % 3 ? 0.3f * (float)kn_random_normal(&random) : 0);
}

static void open_folder(fixture *t) {
    test_folder(t->folder, sizeof t->folder);
    snprintf(t->path, sizeof t->path, "%s/s.store", t->folder);
}

static void drop_folder(const fixture *t) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
}

static fixture *fixture_open(knnlm_keys keys, knnlm_distance distance) {
    fixture *t = need(1, sizeof *t);
    knnlm_store_settings s = {
        .size = sizeof s, .dimension = D, .keys = keys, .distance = distance, .segment = 700};
    knnlm_writer *w;
    t->distance = distance;
    t->integers = keys == KNNLM_KEYS_INT8;
    open_folder(t);
    OK(knnlm_writer_create(t->path, &s, &w));
    write_documents(w, 0, DOCUMENTS);
    look(t);
    ask(t);
    return t;
}

static void fixture_close(fixture *t) {
    knnlm_store_close(t->store);
    drop_folder(t);
    free(t->keys);
    free(t);
}

static void add_documents(fixture *t, size_t first, size_t count) {
    knnlm_writer *w;
    OK(knnlm_writer_open(t->path, &w));
    write_documents(w, first, count);
    look(t);
}

static void remove_document(fixture *t, const char *name) {
    knnlm_writer *w;
    uint64_t removed;
    OK(knnlm_writer_open(t->path, &w));
    OK(knnlm_writer_remove(w, name, &removed));
    assert_int_equal(removed, 1);
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
    look(t);
}

static knnlm_index_result make_index(fixture *t, const char *codes) {
    knnlm_index_options o = knnlm_index_options_default();
    knnlm_index_result r;
    o.lists = LISTS;
    o.probes = 3;
    o.codes = codes;
    OK(knnlm_index(NULL, t->path, &o, &r));
    look(t);
    return r;
}

// ---------------------------------------------------------------- answers

typedef struct answers {
    size_t k;
    uint32_t *ids, counts[QUERIES];
    float *distances;
} answers;

static answers answers_make(size_t k) {
    return (answers){
        .k = k, .ids = need(QUERIES * k, sizeof(uint32_t)), .distances = need(QUERIES * k, sizeof(float))};
}

static void answers_free(answers *a) {
    free(a->ids);
    free(a->distances);
}

static answers search(const fixture *t, const knnlm_search_options *o) {
    answers a = answers_make(o->k);
    OK(knnlm_store_search(t->store, t->queries, QUERIES, o, a.ids, a.distances, a.counts));
    return a;
}

static double distance_of(const fixture *t, size_t query, size_t id) {
    double inner = 0, squares = 0, left = 0, right = 0;
    for (size_t j = 0; j < D; j++) {
        double a = t->queries[query * D + j], b = t->keys[id * D + j];
        inner += a * b;
        squares += (a - b) * (a - b);
        left += a * a;
        right += b * b;
    }
    if (t->distance == KNNLM_DISTANCE_L2) return squares;
    return t->distance == KNNLM_DISTANCE_IP ? -inner : 1 - inner / sqrt(left * right);
}

// By the definition of the options.
static bool admits(const fixture *t, const knnlm_search_options *o, size_t query, size_t id) {
    knnlm_entry e;
    bool wanted = !o->documents;
    OK(knnlm_store_entry(t->store, id, &e));
    for (size_t i = 0; i < o->document_count && !wanted; i++) wanted = o->documents[i] == e.document;
    bool excluded = o->exclude && id >= o->exclude[2 * query] && id < o->exclude[2 * query + 1];
    return wanted && !excluded && !e.removed;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

// Queries to int8 keys are rounded: by half a step in each coordinate, of which the largest has 32767.
// Distances then differ by at most this; keys (draw) are shorter than 11 sqrt(D).
static double rounding(const fixture *t, size_t query, double distance) {
    double largest = 0, squares = 0;
    for (size_t j = 0; j < D; j++) {
        double x = t->queries[query * D + j];
        largest = fmax(largest, fabs(x));
        squares += x * x;
    }
    double moved = t->integers ? 1.001 * largest / 32767 / 2 * sqrt(D) : 0;
    if (t->distance == KNNLM_DISTANCE_L2) return 2 * sqrt(fabs(distance)) * moved + moved * moved;
    return t->distance == KNNLM_DISTANCE_IP ? moved * 11 * sqrt(D) : 2 * moved / sqrt(squares);
}

static void near(const fixture *t, size_t query, double got, double want) {
    if (!(fabs(got - want) <= 1e-5 * fabs(want) + 1e-5 + rounding(t, query, want)))
        fail_msg("%.9g, not %.9g", got, want);
}

// Every neighbour is admitted, met once, as far away as is said, and no nearer than the one before.
static void check_row(const fixture *t, const knnlm_search_options *o, const answers *a, size_t query) {
    const uint32_t *ids = a->ids + query * a->k;
    const float *distances = a->distances + query * a->k;
    bool *met = need(t->entries, sizeof *met);
    for (size_t i = 0; i < a->k; i++) {
        if (i >= a->counts[query]) {
            assert_int_equal(ids[i], UINT32_MAX);
            assert_true(isinf(distances[i]) && distances[i] > 0);
            continue;
        }
        assert_true(ids[i] < t->entries && !met[ids[i]] && admits(t, o, query, ids[i]));
        met[ids[i]] = true;
        near(t, query, distances[i], distance_of(t, query, ids[i]));
        assert_true(i == 0 || distances[i - 1] <= distances[i]);
    }
    free(met);
}

// The i-th neighbour is as far away as the i-th nearest of all; ties and rounding may name another entry.
static void check_exact(const fixture *t, const knnlm_search_options *o) {
    answers a = search(t, o);
    double *all = need(t->entries, sizeof *all);
    for (size_t q = 0; q < QUERIES; q++) {
        size_t count = 0;
        for (size_t id = 0; id < t->entries; id++)
            if (admits(t, o, q, id)) all[count++] = distance_of(t, q, id);
        qsort(all, count, sizeof *all, ascending);
        assert_int_equal(a.counts[q], count < a.k ? count : a.k);
        check_row(t, o, &a, q);
        for (size_t i = 0; i < a.counts[q]; i++) near(t, q, a.distances[q * a.k + i], all[i]);
    }
    free(all);
    answers_free(&a);
}

static knnlm_search_options options_of(size_t k, bool exact) {
    knnlm_search_options o = knnlm_search_options_default();
    o.k = k;
    o.exact = exact;
    o.probes = exact ? 1 : LISTS; // exact, whatever the probes; or by all the lists, which is exact too
    return o;
}

static void check_both_ways(const fixture *t, knnlm_search_options o) {
    check_exact(t, &o);
    o.exact = !o.exact;
    o.probes = options_of(1, o.exact).probes;
    check_exact(t, &o);
}

// ---------------------------------------------------------------- tests

static void test_without_index(void **state) {
    (void)state;
    for (int distance = KNNLM_DISTANCE_L2; distance <= KNNLM_DISTANCE_COSINE; distance++)
        for (int keys = KNNLM_KEYS_F16; keys <= KNNLM_KEYS_INT8; keys++) {
            fixture *t = fixture_open((knnlm_keys)keys, (knnlm_distance)distance);
            knnlm_index_info info;
            OK(knnlm_store_index_describe(t->store, &info));
            assert_int_equal(info.lists, 0);
            assert_int_equal(info.listed, 0);
            assert_int_equal(info.outside, ENTRIES);
            check_both_ways(t, options_of(10, true));
            fixture_close(t);
        }
}

static void test_by_lists(void **state) {
    const char *const codes[] = {NULL, "none", "pq8", "pq8x4"};
    const uint32_t bytes[] = {0, 0, 8, 4};
    (void)state;
    for (int distance = KNNLM_DISTANCE_L2; distance <= KNNLM_DISTANCE_COSINE; distance++)
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            fixture *t = fixture_open(KNNLM_KEYS_F32, (knnlm_distance)distance);
            knnlm_index_result r = make_index(t, codes[i]);
            knnlm_index_info info;
            assert_int_equal(r.index.lists, LISTS);
            assert_int_equal(r.index.probes, 3);
            assert_int_equal(r.index.listed, ENTRIES);
            assert_int_equal(r.index.outside, 0);
            assert_int_equal(r.index.code_bytes, bytes[i]);
            assert_true(r.index.imbalance >= 1 && r.index.bytes > ENTRIES * D && r.index.drift == 0);
            assert_true(r.objective > 0 && r.seconds >= r.train_seconds);
            OK(knnlm_store_index_describe(t->store, &info));
            assert_memory_equal(&info, &r.index, sizeof info);
            check_both_ways(t, options_of(10, true));
            fixture_close(t);
        }
}

// Few lists find the query itself where it is a key, and most of the others.
static void test_few_probes(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_search_options few = options_of(10, false), all = options_of(10, true);
    size_t same = 0;
    (void)state;
    make_index(t, "none");
    few.probes = 0;
    answers got = search(t, &few), want = search(t, &all);
    for (size_t q = 0; q < QUERIES; q++) {
        check_row(t, &few, &got, q);
        if (q % 3 == 0) assert_int_equal(got.ids[q * 10], q * 83 % ENTRIES);
        for (size_t i = 0; i < 10; i++) same += got.ids[q * 10 + i] == want.ids[q * 10 + i];
    }
    assert_true(same >= QUERIES * 10 * 8 / 10);
    answers_free(&got);
    answers_free(&want);
    fixture_close(t);
}

static void test_excluded(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_search_options o = options_of(12, true);
    uint64_t exclude[2 * QUERIES];
    (void)state;
    make_index(t, NULL);
    for (size_t q = 0; q < QUERIES; q++) { // the document that it is from; nothing; everything
        uint64_t document = q * 83 % ENTRIES / DOCUMENT;
        exclude[2 * q] = q % 4 ? document * DOCUMENT : 0;
        exclude[2 * q + 1] = q % 4 == 0 ? UINT64_MAX : q % 4 == 1 ? 0 : (document + 1) * DOCUMENT;
    }
    o.exclude = exclude;
    check_both_ways(t, o);
    fixture_close(t);
}

static void test_some_documents(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_COSINE);
    const uint64_t documents[] = {11, 3, 0, 3};
    uint64_t exclude[2 * QUERIES];
    knnlm_search_options o = options_of(20, true);
    (void)state;
    make_index(t, NULL);
    o.documents = documents;
    o.document_count = 4;
    check_both_ways(t, o);
    for (size_t i = 0; i < 2 * QUERIES; i++) exclude[i] = i % 2 ? 4 * DOCUMENT : 3 * DOCUMENT;
    o.exclude = exclude;
    check_both_ways(t, o);
    o.k = 3 * DOCUMENT; // more than there are
    check_both_ways(t, o);
    o.document_count = 0;
    check_both_ways(t, o);
    fixture_close(t);
}

static void test_removed(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    const uint64_t documents[] = {4, 5};
    knnlm_search_options o = options_of(200, true);
    (void)state;
    remove_document(t, "d2");
    check_both_ways(t, o);
    make_index(t, NULL);
    remove_document(t, "d5");
    check_both_ways(t, o);
    o.documents = documents;
    o.document_count = 2;
    check_both_ways(t, o);
    fixture_close(t);
}

static void test_extended(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_index_options extend = knnlm_index_options_default();
    knnlm_index_info info;
    knnlm_index_result r;
    (void)state;
    make_index(t, NULL);
    add_documents(t, DOCUMENTS, 2);
    OK(knnlm_store_index_describe(t->store, &info));
    assert_int_equal(info.listed, ENTRIES);
    assert_int_equal(info.outside, 2 * DOCUMENT);
    check_both_ways(t, options_of(10, true));
    extend.extend = true;
    for (int i = 0; i < 2; i++) { // the second time by nothing
        OK(knnlm_index(NULL, t->path, &extend, &r));
        assert_int_equal(r.index.listed, ENTRIES + 2 * DOCUMENT);
        assert_int_equal(r.index.lists, LISTS);
        assert_true(r.index.drift > 0);
        assert_true((r.objective > 0) == (i == 0));
    }
    // Who has the store open stays with its state.
    assert_false(knnlm_store_is_current(t->store));
    OK(knnlm_store_index_describe(t->store, &info));
    assert_int_equal(info.outside, 2 * DOCUMENT);
    check_both_ways(t, options_of(10, true));
    look(t);
    check_both_ways(t, options_of(10, true));
    OK(knnlm_index(NULL, t->path, NULL, NULL));
    fixture_close(t);
}

static void test_alone_or_together(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    (void)state;
    make_index(t, NULL);
    for (int exact = 0; exact < 2; exact++) {
        knnlm_search_options o = options_of(10, exact != 0);
        o.probes = 0;
        answers all = search(t, &o), one = answers_make(10);
        for (size_t q = 0; q < QUERIES; q++) {
            OK(knnlm_store_search(t->store, t->queries + q * D, 1, &o, one.ids, one.distances, one.counts));
            assert_int_equal(one.counts[0], all.counts[q]);
            assert_memory_equal(one.ids, all.ids + q * 10, 10 * sizeof *one.ids);
            assert_memory_equal(one.distances, all.distances + q * 10, 10 * sizeof *one.distances);
        }
        OK(knnlm_store_search(t->store, NULL, 0, &o, NULL, NULL, NULL));
        o.memory = 4096; // a few queries at a time
        answers parts = search(t, &o);
        assert_memory_equal(parts.ids, all.ids, QUERIES * 10 * sizeof *all.ids);
        answers_free(&parts);
        answers_free(&all);
        answers_free(&one);
    }
    fixture_close(t);
}

// The default k is above what a small store has.
static void test_defaults(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_search_options o = knnlm_search_options_default();
    (void)state;
    assert_int_equal(o.k, 1024);
    answers got = answers_make(o.k), want = search(t, &o);
    OK(knnlm_store_search(t->store, t->queries, QUERIES, NULL, got.ids, got.distances, got.counts));
    assert_memory_equal(got.ids, want.ids, QUERIES * o.k * sizeof *got.ids);
    assert_int_equal(got.counts[0], 1024);
    answers_free(&got);
    answers_free(&want);
    fixture_close(t);
}

// ---------------------------------------------------------------- threads

enum { THREADS = 8, ROUNDS = 20 };

typedef struct reader {
    const fixture *t;
    const answers *want; // by lists, exact
    size_t number;
    bool same;
} reader;

// Asserts are for the main thread.
static void *read_on(void *context) {
    reader *r = context;
    uint32_t ids[10], count;
    float distances[10];
    r->same = true;
    for (size_t i = 0; i < ROUNDS && r->same; i++) {
        size_t q = (i + r->number) % QUERIES;
        bool exact = (i + r->number) % 2;
        knnlm_search_options o = options_of(10, exact);
        o.probes = 0;
        r->same = knnlm_store_search(r->t->store, r->t->queries + q * D, 1, &o, ids, distances, &count) ==
                      KNNLM_OK &&
                  memcmp(ids, r->want[exact].ids + q * 10, sizeof ids) == 0 &&
                  memcmp(distances, r->want[exact].distances + q * 10, sizeof distances) == 0;
    }
    return NULL;
}

static void test_threads(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F16, KNNLM_DISTANCE_L2);
    knnlm_search_options o = options_of(10, false);
    pthread_t threads[THREADS];
    reader readers[THREADS];
    answers want[2];
    (void)state;
    make_index(t, NULL);
    o.probes = 0;
    want[0] = search(t, &o);
    o.exact = true;
    want[1] = search(t, &o);
    look(t); // nothing is loaded yet: the first threads to come do that
    for (size_t i = 0; i < THREADS; i++) {
        readers[i] = (reader){.t = t, .want = want, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) assert_true(readers[i].same);
    answers_free(&want[0]);
    answers_free(&want[1]);
    fixture_close(t);
}

// ---------------------------------------------------------------- being stopped

typedef struct patience {
    int calls, max;
} patience;

static bool wait_for(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    patience *p = context;
    assert_true(*phase && *unit && (!total || done <= total));
    return ++p->calls < p->max;
}

static void test_stopped(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_index_options index = knnlm_index_options_default();
    knnlm_search_options o = options_of(5, true);
    answers a = answers_make(5);
    patience p = {.max = INT32_MAX};
    (void)state;
    index.progress = (knnlm_progress){wait_for, &p};
    OK(knnlm_index(NULL, t->path, &index, NULL));
    int calls = p.calls;
    assert_true(calls > 3);
    look(t);
    for (int max = 1; max < calls; max += 1 + calls / 5) {
        p = (patience){.max = max};
        FAILS(KNNLM_ESTOPPED, "stopped", knnlm_index(NULL, t->path, &index, NULL));
        assert_true(knnlm_store_is_current(t->store));
    }
    o.progress = (knnlm_progress){wait_for, &p};
    p = (patience){.max = 1};
    FAILS(KNNLM_ESTOPPED, "stopped",
          knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
    p = (patience){.max = INT32_MAX};
    check_exact(t, &o);
    assert_true(p.calls > 0);
    answers_free(&a);
    fixture_close(t);
}

// ---------------------------------------------------------------- stores without keys

enum { TOKENS = 3000, WORDS = 40 };

// A text that the model's own tokenizer gives back.
static void write_text(const knnlm_model *model, const char *path) {
    int32_t tokens[TOKENS];
    char *text;
    size_t size;
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (int32_t)(2 + (i * i / 7 + i % 5) % WORDS);
    OK(knnlm_model_decode(model, tokens, TOKENS, &text, &size));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    knnlm_free(text);
}

static void build(knnlm_model *model, const char *path, const char *text, knnlm_keys keys) {
    knnlm_build_options o = knnlm_build_options_default();
    o.keys = keys;
    OK(knnlm_build(model, path, &text, 1, &o, NULL));
}

// Keys of the store that has them, asked of the one that has codes: most find themselves, or a like context,
// among the nearest.
static void check_codes(const char *with_keys, const knnlm_store *store) {
    enum { K = 10, STEP = 97 };
    knnlm_store *keys;
    knnlm_store_info info;
    knnlm_search_options o = knnlm_search_options_default();
    size_t found = 0, asked = 0;
    OK(knnlm_store_open(with_keys, &keys));
    knnlm_store_describe(keys, &info);
    float *query = need((size_t)info.dimension, sizeof *query);
    o.k = K;
    for (uint64_t id = 0; id < info.entries; id += STEP, asked++) {
        uint32_t ids[K], count;
        float distances[K];
        OK(knnlm_store_keys(keys, id, 1, query));
        OK(knnlm_store_search(store, query, 1, &o, ids, distances, &count));
        assert_int_equal(count, K);
        for (size_t i = 0; i < K; i++) found += ids[i] == id;
    }
    assert_true(found * 10 >= asked * 8);
    free(query);
    knnlm_store_close(keys);
}

static void refuse_keyless(knnlm_model *model, knnlm_model *other, const char *path) {
    knnlm_index_options o = knnlm_index_options_default();
    FAILS(KNNLM_EINVAL, "codes", knnlm_index(model, path, &o, NULL));
    o.codes = "none";
    FAILS(KNNLM_EINVAL, "codes", knnlm_index(model, path, &o, NULL));
    o.codes = "pq16";
    FAILS(KNNLM_EINVAL, "the model that made it", knnlm_index(NULL, path, &o, NULL));
    FAILS(KNNLM_EINVAL, "model", knnlm_index(other, path, &o, NULL));
    o.extend = true;
    FAILS(KNNLM_EINVAL, "no index to extend", knnlm_index(model, path, &o, NULL));
}

static void test_without_keys(void **state) {
    fixture t = {0};
    char text[96], with_keys[96];
    knnlm_model *model, *other;
    knnlm_index_options o = knnlm_index_options_default();
    knnlm_search_options exact = options_of(1, true), by_codes = options_of(1, false);
    knnlm_index_result r;
    float query[512] = {0}, distance;
    uint32_t id, count;
    (void)state;
    open_folder(&t);
    snprintf(text, sizeof text, "%s/a.txt", t.folder);
    snprintf(with_keys, sizeof with_keys, "%s/k.store", t.folder);
    OK(knnlm_model_open(KN_SOURCE_DIR "/tests/golden/adaptive.model.gguf", NULL, &model));
    OK(knnlm_model_open(KN_SOURCE_DIR "/tests/golden/gpt2.model.gguf", NULL, &other));
    write_text(model, text);
    build(model, t.path, text, KNNLM_KEYS_NONE);
    build(model, with_keys, text, KNNLM_KEYS_F32);
    refuse_keyless(model, other, t.path);
    OK(knnlm_store_open(t.path, &t.store));
    for (int i = 0; i < 2; i++)
        FAILS(KNNLM_ENOTSUP, "keeps no keys and has no index",
              knnlm_store_search(t.store, query, 1, i ? &exact : &by_codes, &id, &distance, &count));
    knnlm_store_close(t.store);
    o.codes = "pq16";
    o.lists = 8;
    OK(knnlm_index(model, t.path, &o, &r));
    assert_int_equal(r.index.code_bytes, 16);
    assert_int_equal(r.index.outside, 0);
    FAILS(KNNLM_EINVAL, "indexed already", knnlm_index(model, t.path, &o, NULL));
    o.extend = true;
    OK(knnlm_index(model, t.path, &o, &r));
    assert_int_equal(r.index.code_bytes, 16);
    OK(knnlm_store_open(t.path, &t.store));
    check_codes(with_keys, t.store);
    FAILS(KNNLM_ENOTSUP, "no exact search",
          knnlm_store_search(t.store, query, 1, &exact, &id, &distance, &count));
    knnlm_store_close(t.store);
    knnlm_model_close(other);
    knnlm_model_close(model);
    drop_folder(&t);
}

// ---------------------------------------------------------------- what is refused

static void test_bad_options(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    const char *const codes[] = {
        "",    "pq",        "pq0",  "pq+8", "pq 8", "pq-8", "pq8x", "pq8x5", "pq99999999999999999999",
        "PQ8", "automatic", "none "};
    knnlm_index_options o = knnlm_index_options_default();
    knnlm_index_result r = {.seconds = -1};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        o.codes = codes[i];
        FAILS(KNNLM_EINVAL, "codes ", knnlm_index(NULL, t->path, &o, &r));
    }
    o.codes = "pq7"; // does not divide the dimension
    FAILS(KNNLM_EINVAL, "7", knnlm_index(NULL, t->path, &o, &r));
    o = knnlm_index_options_default();
    o.seed = UINT64_MAX;
    FAILS(KNNLM_EINVAL, "seed", knnlm_index(NULL, t->path, &o, &r));
    o = knnlm_index_options_default();
    o.lists = UINT32_MAX;
    FAILS(KNNLM_EINVAL, "lists", knnlm_index(NULL, t->path, &o, &r));
    o = knnlm_index_options_default();
    o.iterations = UINT32_MAX;
    FAILS(KNNLM_EINVAL, "", knnlm_index(NULL, t->path, &o, &r));
    o = knnlm_index_options_default();
    o.memory = 1; // not even for a key to learn from
    FAILS(KNNLM_EINVAL, "too little", knnlm_index(NULL, t->path, &o, &r));
    o = knnlm_index_options_default();
    o.extend = true;
    FAILS(KNNLM_EINVAL, "no index to extend", knnlm_index(NULL, t->path, &o, &r));
    assert_true(r.seconds == -1 && knnlm_store_is_current(t->store));
    fixture_close(t);
}

static void test_no_store(void **state) {
    fixture t = {0};
    (void)state;
    open_folder(&t);
    FAILS(KNNLM_EIO, t.path, knnlm_index(NULL, t.path, NULL, NULL));
    FAILS(KNNLM_EDATA, t.folder, knnlm_index(NULL, t.folder, NULL, NULL));
    FAILS(KNNLM_EIO, "", knnlm_index(NULL, "", NULL, NULL));
    FAILS(KNNLM_EIO, __FILE__, knnlm_index(NULL, __FILE__, NULL, NULL));
    drop_folder(&t);
}

static void test_another_writer(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    knnlm_writer *w;
    (void)state;
    OK(knnlm_writer_open(t->path, &w));
    FAILS(KNNLM_EBUSY, t->path, knnlm_index(NULL, t->path, NULL, NULL));
    knnlm_writer_close(w);
    OK(knnlm_index(NULL, t->path, NULL, NULL));
    fixture_close(t);
}

static void test_bad_searches(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const uint64_t documents[] = {1, DOCUMENTS}, far = UINT64_MAX;
    answers a = answers_make(4);
    (void)state;
    make_index(t, NULL);
    for (int exact = 0; exact < 2; exact++) {
        knnlm_search_options o = options_of(0, exact != 0);
        FAILS(KNNLM_EINVAL, "0 neighbours",
              knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
        o.k = (size_t)UINT32_MAX + 1;
        FAILS(KNNLM_EINVAL, "neighbours",
              knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
        o.k = 4;
        for (size_t i = 0; i < 3; i++) {
            float kept = t->queries[5 * D + i];
            t->queries[5 * D + i] = bad[i];
            FAILS(KNNLM_EDATA, "query 5",
                  knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
            t->queries[5 * D + i] = kept;
        }
        o.documents = documents;
        o.document_count = 2;
        FAILS(KNNLM_EINVAL, "no document 12",
              knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
        o.documents = &far;
        o.document_count = 1;
        FAILS(KNNLM_EINVAL, "no document",
              knnlm_store_search(t->store, t->queries, QUERIES, &o, a.ids, a.distances, a.counts));
        o.documents = NULL;
        check_exact(t, &o); // and goes on
    }
    answers_free(&a);
    fixture_close(t);
}

static void test_no_entries(void **state) {
    fixture t = {0};
    knnlm_store_settings s = {.size = sizeof s, .dimension = D};
    knnlm_writer *w;
    answers a = answers_make(3);
    knnlm_search_options o = options_of(3, false);
    (void)state;
    open_folder(&t);
    for (int keys = 0; keys < 2; keys++) {
        s.keys = keys ? KNNLM_KEYS_F16 : KNNLM_KEYS_NONE;
        snprintf(t.path, sizeof t.path, "%s/%d.store", t.folder, keys);
        OK(knnlm_writer_create(t.path, &s, &w));
        OK(knnlm_writer_commit(w));
        knnlm_writer_close(w);
        FAILS(KNNLM_EINVAL, "no entries", knnlm_index(NULL, t.path, NULL, NULL));
    }
    OK(knnlm_store_open(t.path, &t.store));
    OK(knnlm_store_search(t.store, t.queries, QUERIES, &o, a.ids, a.distances, a.counts));
    for (size_t q = 0; q < QUERIES; q++) assert_int_equal(a.counts[q], 0);
    assert_int_equal(a.ids[0], UINT32_MAX);
    knnlm_store_close(t.store);
    answers_free(&a);
    drop_folder(&t);
}

// The index is refused, and again when asked again; a search that needs no lists goes on.
static void test_damaged(void **state) {
    fixture *t = fixture_open(KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
    char command[256];
    knnlm_index_info info;
    (void)state;
    make_index(t, NULL);
    snprintf(
        command, sizeof command,
        "f=$(ls '%s'/*.lists) && dd if=/dev/zero of=\"$f\" bs=1 seek=192 count=8 conv=notrunc 2>/dev/null",
        t->path);
    assert_int_equal(system(command), 0);
    look(t);
    for (int i = 0; i < 2; i++) FAILS(KNNLM_EDATA, "damaged", knnlm_store_index_describe(t->store, &info));
    knnlm_search_options o = options_of(5, true);
    check_exact(t, &o);
    fixture_close(t);
}

static int two_threads(void **state) {
    (void)state;
    return knnlm_threads_set(2) == KNNLM_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_index),  cmocka_unit_test(test_by_lists),
        cmocka_unit_test(test_few_probes),     cmocka_unit_test(test_excluded),
        cmocka_unit_test(test_some_documents), cmocka_unit_test(test_removed),
        cmocka_unit_test(test_extended),       cmocka_unit_test(test_alone_or_together),
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stopped),        cmocka_unit_test(test_without_keys),
        cmocka_unit_test(test_bad_options),    cmocka_unit_test(test_no_store),
        cmocka_unit_test(test_another_writer), cmocka_unit_test(test_bad_searches),
        cmocka_unit_test(test_no_entries),     cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, two_threads, NULL);
}
