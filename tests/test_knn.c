// The nearest-neighbour model: neighbours are those that looking at every entry finds, singly or together;
// predictions are the paper's equation; lambda follows its rule; views have settings of their own and outlive
// what they are views of.
#include "expect.h"

#include "base/random.h"
#include "knn/distribution.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MODEL KN_SOURCE_DIR "/tests/golden/shared.model.gguf"

enum {
    WIDTH = 16,
    VOCABULARY = 267,
    DOCUMENTS = 8,
    EACH = 60,
    ENTRIES = DOCUMENTS * EACH,
    LISTS = 8,
    QUERIES = 9,
    K = 12
};

typedef struct fixture {
    char folder[64], listed[100], flat[100];
    kn_lm *lm;
    kn_mixture *listed_mixture, *flat_mixture;
    float states[QUERIES * WIDTH];
} fixture;

// ---------------------------------------------------------------- stores of random keys

static void write_documents(kn_store_writer *w, kn_random *r) {
    for (int i = 0; i < DOCUMENTS; i++) {
        char name[20];
        float keys[EACH * WIDTH];
        int32_t tokens[EACH];
        for (int j = 0; j < EACH * WIDTH; j++) keys[j] = (float)kn_random_normal(r);
        for (int j = 0; j < EACH; j++)
            tokens[j] = (int32_t)kn_random_below(r, 5); // few, so that they are met
        kn_store_document d = {.name = name,
                               .name_size = (size_t)snprintf(name, sizeof name, "%d", i),
                               .bytes = EACH,
                               .tokens = EACH,
                               .hash = {(uint64_t)i, 1}};
        OK(kn_store_writer_document(w, &d));
        OK(kn_store_writer_append(w, tokens, NULL, keys, EACH));
    }
    OK(kn_store_writer_commit(w));
}

static void make_store(const char *path, uint64_t seed, const char *tap, bool lists) {
    kn_store_settings settings = {.model = "",
                                  .model_fingerprint = "",
                                  .tokenizer = "",
                                  .tokenizer_fingerprint = "",
                                  .key_type = KNNLM_KEYS_F32,
                                  .dimension = WIDTH,
                                  .model_dimension = WIDTH,
                                  .distance = KNNLM_DISTANCE_L2,
                                  .tap = tap,
                                  .split = "file",
                                  .segment = 1000};
    kn_store_writer *w;
    kn_random r = {seed};
    kn_index_result made;
    OK(kn_store_create(path, &settings, &w));
    write_documents(w, &r);
    kn_store_writer_close(w);
    if (lists) OK(kn_index_build(path, &(kn_recipe){.lists = LISTS, .probes = 3, .seed = 1}, NULL, &made));
}

static kn_mixture *open_mixture(const kn_lm *lm, const char *path, int64_t probes) {
    kn_mixture *m;
    kn_store_choice choice = {.path = path, .weight = NAN, .temperature = NAN};
    OK(kn_mixture_open(lm,
                       &(kn_mixture_options){.stores = &choice,
                                             .store_count = 1,
                                             .k = K,
                                             .probes = probes,
                                             .lambda = NAN,
                                             .temperature = 4,
                                             .distance = -1,
                                             .cache_lambda = NAN,
                                             .cache_temperature = NAN},
                       &m));
    return m;
}

static int fixture_open(void **state) {
    fixture *f = calloc(1, sizeof *f);
    kn_random r = {3};
    test_folder(f->folder, sizeof f->folder);
    snprintf(f->listed, sizeof f->listed, "%s/listed.store", f->folder);
    snprintf(f->flat, sizeof f->flat, "%s/flat.store", f->folder);
    make_store(f->listed, 1, "", true);
    make_store(f->flat, 2, "", false);
    OK(kn_lm_open(MODEL, &(kn_lm_options){.vouched = true}, &f->lm));
    f->listed_mixture = open_mixture(f->lm, f->listed, 0);
    f->flat_mixture = open_mixture(f->lm, f->flat, 0);
    for (int i = 0; i < QUERIES * WIDTH; i++) f->states[i] = (float)kn_random_normal(&r);
    *state = f;
    return 0;
}

static int fixture_close(void **state) {
    fixture *f = *state;
    char command[100];
    kn_mixture_close(f->listed_mixture);
    kn_mixture_close(f->flat_mixture);
    kn_lm_close(f->lm);
    snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

// ---------------------------------------------------------------- the search door

// Sums of WIDTH products in f32: each way errs by less than this.
static double rounding(const fixture *f, size_t query, double distance) {
    double length = 0;
    for (int i = 0; i < WIDTH; i++) length += pow((double)f->states[query * WIDTH + (size_t)i], 2);
    return 4 * (WIDTH + 4) * 0x1p-24 * (4 * length + 2 * distance);
}

static void expect_like(const fixture *f, const kn_retrieved *found, const uint32_t *ids,
                        const double *distances, size_t query) {
    assert_int_equal(found->counts[query], K);
    for (size_t i = 0; i < K; i++) {
        size_t at = query * K + i;
        double off = fabs((double)found->distances[at] - distances[i]),
               bound = rounding(f, query, distances[i]);
        assert_true(off <= bound);
        bool tie = (i && distances[i] - distances[i - 1] <= 2 * bound) ||
                   (i + 1 < K && distances[i + 1] - distances[i] <= 2 * bound);
        if (!tie) assert_int_equal(found->ids[at], ids[i]);
    }
}

static void search(const kn_mixture *m, const float *states, size_t n, uint32_t probes, bool singly,
                   kn_retrieved *out) {
    kn_retrieve_options o = {.k = K, .probes = probes, .temperature = NAN, .singly = singly};
    OK(kn_retrieved_init(out, n, K));
    OK(kn_datastore_search(kn_mixture_datastore(m, 0), states, n, &o, out));
}

static void all_lists_are_every_entry(void **state) {
    fixture *f = *state;
    kn_store *store;
    kn_retrieved found;
    OK(kn_store_open(f->listed, &store));
    search(f->listed_mixture, f->states, QUERIES, LISTS, false, &found);
    for (size_t q = 0; q < QUERIES; q++) {
        uint32_t ids[K];
        double distances[K];
        size_t count;
        OK(kn_index_brute_force(store, f->states + q * WIDTH, K, NULL, NULL, ids, distances, &count));
        assert_int_equal(count, K);
        expect_like(f, &found, ids, distances, q);
        for (size_t i = 0; i < K; i++) { // values and beginnings are those of the entries
            kn_store_entry e;
            OK(kn_store_entry_at(store, found.ids[q * K + i], &e));
            assert_int_equal(found.values[q * K + i], e.token);
            if (i == 0) assert_int_equal(found.begins[q], e.position == 0);
        }
    }
    kn_retrieved_free(&found);
    kn_store_close(store);
}

static void singly_as_together(void **state) {
    fixture *f = *state;
    kn_retrieved many, singly;
    search(f->listed_mixture, f->states, QUERIES, 0, false, &many);
    search(f->listed_mixture, f->states, QUERIES, 0, true, &singly);
    for (size_t q = 0; q < QUERIES; q++) {
        double distances[K];
        for (size_t i = 0; i < K; i++) distances[i] = (double)many.distances[q * K + i];
        expect_like(f, &singly, many.found + q * K, distances, q);
        assert_int_equal(singly.begins[q], many.begins[q]);
    }
    kn_retrieved_free(&many);
    kn_retrieved_free(&singly);
}

static void taps_that_the_model_lacks(void **state) {
    fixture *f = *state;
    char path[100];
    kn_mixture *m;
    snprintf(path, sizeof path, "%s/deep.store", f->folder);
    make_store(path, 4, "ffn@9", false);
    kn_store_choice choice = {.path = path, .weight = NAN, .temperature = NAN};
    kn_mixture_options o = {
        .stores = &choice, .store_count = 1, .lambda = NAN, .temperature = NAN, .distance = -1};
    FAILS(KNNLM_EINVAL, "deep.store: its keys are of tap ffn@9, which", kn_mixture_open(f->lm, &o, &m));
    assert_null(m);
}

// ---------------------------------------------------------------- predictions

// The equation, by its definition.
static double by_definition(const kn_row_neighbors *n, double temperature, double lambda, int32_t target,
                            double lm) {
    double hit = 0, all = 0;
    for (size_t i = 0; i < n->near.count; i++) {
        double e = exp(-(double)n->near.distances[i] / temperature);
        all += e;
        hit += n->near.values[i] == target ? e : 0;
    }
    return log((1 - lambda) * exp(lm) + lambda * hit / all);
}

static void predictions_are_the_equation(void **state) {
    fixture *f = *state;
    kn_predictor *p;
    kn_prediction out[QUERIES];
    int32_t targets[QUERIES];
    float lm[QUERIES];
    for (int i = 0; i < QUERIES; i++) {
        targets[i] = i % 6; // 5 is no entry's
        lm[i] = -1 - (float)i;
    }
    OK(kn_predictor_open(&p));
    OK(kn_predict(p,
                  &(kn_predict_rows){.count = QUERIES,
                                     .mixture = f->listed_mixture,
                                     .states = f->states,
                                     .targets = targets,
                                     .lm = lm},
                  out));
    for (size_t i = 0; i < QUERIES; i++) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(p, i, found);
        double expected = by_definition(&found[0], 4, 0.25, targets[i], (double)lm[i]);
        assert_true(fabs(out[i].p - expected) < (K + 32) * 0x1p-23); // sums of K exponentials in f32
        assert_true(out[i].lambdas[0] == 0.25 && kn_prediction_lambda(f->listed_mixture, &out[i]) == 0.25);
        assert_true((out[i].knn[0] == -INFINITY) ==
                    (targets[i] == 5 || kn_prediction_knn(f->listed_mixture, &out[i]) == -INFINITY));
        assert_true(kn_nearest(f->listed_mixture, found) == (double)found[0].near.distances[0]);
    }
    kn_predictor_close(p);
}

static kn_mixture *view(const kn_mixture *const *of, size_t count, kn_view_options o) {
    kn_mixture *m;
    OK(kn_mixture_view(of, count, &o, &m));
    return m;
}

// Rows of unlike mixtures are grouped: each has what it has alone, to the bit.
static void rows_do_not_disturb_each_other(void **state) {
    fixture *f = *state;
    const kn_mixture *both[] = {f->listed_mixture, f->flat_mixture};
    kn_mixture *views[4] = {
        view(both, 2, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = -1}),
        view(both, 1, (kn_view_options){.lambda = 0.5, .temperature = 2, .k = 5, .fallback = 1}),
        view(both + 1, 1, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 3, .fallback = -1}),
        NULL};
    OK(kn_mixture_open(f->lm, &(kn_mixture_options){.distance = -1}, &views[3]));
    const kn_mixture *mixtures[QUERIES];
    int32_t targets[QUERIES] = {0, 1, 2, 3, 4, 0, 1, 2, 3};
    float lm[QUERIES] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
    kn_prediction together[QUERIES], alone;
    kn_predictor *p;
    for (int i = 0; i < QUERIES; i++) mixtures[i] = views[i * 3 % 4];
    OK(kn_predictor_open(&p));
    OK(kn_predict(
        p,
        &(kn_predict_rows){
            .count = QUERIES, .mixtures = mixtures, .states = f->states, .targets = targets, .lm = lm},
        together));
    for (size_t i = 0; i < QUERIES; i++) {
        OK(kn_predict(p,
                      &(kn_predict_rows){.count = 1,
                                         .mixture = mixtures[i],
                                         .states = f->states + i * WIDTH,
                                         .targets = &targets[i],
                                         .lm = &lm[i]},
                      &alone));
        assert_true(alone.p == together[i].p);
        assert_true(mixtures[i] != views[3] || alone.p == (double)lm[i]);
    }
    kn_predictor_close(p);
    for (int i = 0; i < 4; i++) kn_mixture_close(views[i]);
}

// ---------------------------------------------------------------- views

static void views_share(void **state) {
    fixture *f = *state;
    kn_mixture *own[2] = {open_mixture(f->lm, f->listed, 0), open_mixture(f->lm, f->flat, 0)};
    const kn_mixture *both[] = {own[0], own[1]};
    kn_mixture *shared =
        view(both, 2, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = -1});
    kn_mixture *given =
        view(both, 2, (kn_view_options){.lambda = 0.6, .temperature = 9, .k = 100000, .fallback = 1});
    kn_mixture_close(own[0]); // views stand by themselves
    kn_mixture_close(own[1]);
    const kn_mixture_info *s = kn_mixture_describe(shared), *g = kn_mixture_describe(given);
    assert_int_equal(s->count, 2);
    assert_true(s->stores[0].lambda == 0.125 && s->stores[1].lambda == 0.125 &&
                s->stores[0].temperature == 4);
    assert_true(fabs(g->stores[0].lambda - 0.3) < 1e-15 && fabs(g->stores[1].lambda - 0.3) < 1e-15);
    assert_true(g->stores[1].temperature == 9 && g->stores[1].fallback && !s->stores[1].fallback);
    assert_int_equal(g->stores[0].k, ENTRIES); // more would be in vain
    assert_int_equal(g->neighbors, 2 * ENTRIES);
    assert_int_equal(s->stores[0].looked, 3);
    assert_int_equal(s->stores[1].looked, 0);
    kn_retrieved found;
    search(given, f->states, 1, 0, false, &found);
    kn_retrieved_free(&found);
    kn_mixture_close(shared);
    kn_mixture_close(given);
}

// ---------------------------------------------------------------- lambda

static void lambda_follows_its_rule(void **state) {
    (void)state;
    const double distance_edges[] = {2}, entropy_edges[] = {1}, lambdas[] = {.9, .8, .3, .2};
    kn_lambda_rule plain = {.lambda = .25, .max = 1, .far = {NAN, NAN}, .uncertain = {NAN, NAN}},
                   bins = plain, wary = plain;
    kn_lambda_facts near = {.neighbors = 8, .nearest = 1, .entropy = 0.5}, far = near;
    bins.bins = (kn_bins){2, 2, distance_edges, entropy_edges, lambdas};
    bins.max = 0.85;
    far.nearest = 3;
    far.entropy = 4;
    assert_true(kn_lambda(&plain, &near) == .25 && kn_lambda(&plain, &(kn_lambda_facts){0}) == 0);
    assert_true(kn_lambda(&bins, &near) == .85 && kn_lambda(&bins, &far) == .2);
    near.begins = true; // distance 0 of all beginnings is worth no more than the store as a whole
    assert_true(kn_lambda(&bins, &near) == .25);
    near.begins = false;
    wary.fallback = true;
    near.knn_entropy = log(8) / 2;
    assert_true(kn_lambda(&wary, &near) == .25);
    near.knn_entropy = log(8) * 3 / 4; // half-way from half of the most to all of it
    assert_true(fabs(kn_lambda(&wary, &near) - .125) < 1e-15);
    wary.far = (kn_fade){1, 5};
    far.knn_entropy = 0;
    assert_true(fabs(kn_lambda(&wary, &far) - .125) < 1e-15);
    far.nearest = 5;
    assert_true(kn_lambda(&wary, &far) == 0);
}

// ---------------------------------------------------------------- the most probable tokens

static bool is_better(const kn_distribution *g, int32_t a, int32_t b) {
    double x = kn_distribution_logprob(g, a), y = kn_distribution_logprob(g, b);
    return x > y || (x == y && a < b);
}

// Each of them has exactly as many better ones as stand before it.
static void check_top(const kn_distribution *g, size_t max) {
    int32_t tokens[KN_DISTRIBUTION_TOP];
    size_t count = kn_distribution_top(g, max, tokens);
    assert_int_equal(count, kn_min(max, g->vocabulary));
    for (size_t i = 0; i < count; i++) {
        size_t better = 0;
        for (size_t t = 0; t < g->vocabulary; t++) better += is_better(g, (int32_t)t, tokens[i]);
        assert_int_equal(better, i);
    }
}

// Half of the tokens share few probabilities; neighbours have some, likely and unlikely ones.
static void top_is_the_most_probable(void **state) {
    enum { MANY = 3000, VALUES = 90 };
    static float lm[MANY];
    static double knn[MANY];
    int32_t values[VALUES];
    kn_random r = {5};
    (void)state;
    for (size_t t = 0; t < MANY; t++)
        lm[t] = (float)log(1e-6 + (t % 2 ? (double)(t % 7) : kn_random_unit(&r)) / 2 / MANY);
    kn_distribution g = {.vocabulary = MANY, .lm = lm, .knn = knn, .values = values};
    check_top(&g, 256);
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (int32_t)(33 * i);
        knn[values[i]] = (1 + kn_random_unit(&r)) / 2 / VALUES;
    }
    g.value_count = VALUES;
    g.lambda = 0.3;
    const size_t some[] = {1, 20, 256, KN_DISTRIBUTION_TOP};
    for (size_t i = 0; i < 4; i++) check_top(&g, some[i]);
    g.value_count = 4; // those below 100
    g.vocabulary = 100;
    check_top(&g, 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lists_are_every_entry),      cmocka_unit_test(singly_as_together),
        cmocka_unit_test(taps_that_the_model_lacks),      cmocka_unit_test(predictions_are_the_equation),
        cmocka_unit_test(rows_do_not_disturb_each_other), cmocka_unit_test(views_share),
        cmocka_unit_test(lambda_follows_its_rule),        cmocka_unit_test(top_is_the_most_probable),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
