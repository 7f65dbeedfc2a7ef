// The public header's predictions: distributions that sum to 1, scores that are their logarithms, and what a
// store or a weight that makes no sense gives.
#include "remembered.h"

#include <math.h>

// Read one token after another, the scores are the logarithms of what was said of the next.
static void check_prefixes(fixture *d, knnlm_mixture *m, const float *scores, const float *alone) {
    size_t v = (size_t)d->info.vocabulary;
    double *p = calloc(3 * v, sizeof *p), *lm = p + v, *knn = lm + v;
    for (size_t i = 0; i < d->count; i++) {
        double sums[3] = {0};
        knnlm_next next;
        OK(knnlm_mixture_next(m, d->tokens, i, p, lm, knn, &next));
        for (size_t j = 0; j < v; j++) {
            sums[0] += p[j];
            sums[1] += lm[j];
            sums[2] += knn[j];
            assert_true(fabs(p[j] - (next.lambda * knn[j] + (1 - next.lambda) * lm[j])) < 1e-12);
        }
        for (int j = 0; j < 3; j++) assert_true(fabs(sums[j] - 1) < 1e-4);
        assert_true(fabs(log(p[d->tokens[i]]) - (double)scores[i]) < 1e-4);
        assert_true(fabs(log(lm[d->tokens[i]]) - (double)alone[i]) < 1e-4);
        assert_true(next.nearest >= 0 && next.entropy > 0);
    }
    free(p);
}

static void scores_are_of_what_comes_next(void **state) {
    fixture *d = *state;
    const char *store;
    knnlm_mixture_options o = options_of(d, &store);
    knnlm_mixture *m;
    float *scores = calloc(2 * d->count, sizeof *scores), *alone = scores + d->count;
    double gain = 0;
    OK(knnlm_mixture_open(d->model, &o, &m));
    OK(knnlm_mixture_score(m, d->tokens, d->count, NULL, scores, alone));
    for (size_t i = 0; i < d->count; i++) gain += (double)scores[i] - (double)alone[i];
    assert_true(gain > 0.1 * (double)d->count); // it remembers nearly the same text
    check_prefixes(d, m, scores, alone);
    knnlm_mixture_close(m);
    free(scores);
}

// Rows are of the same tokens with the same numbers, and hold the formula that they are made by.
static void rows_tell_of_each_token(void **state) {
    fixture *d = *state;
    const char *store;
    knnlm_mixture_options o = options_of(d, &store);
    knnlm_mixture *m;
    float *scores = calloc(2 * d->count, sizeof *scores), *alone = scores + d->count;
    knnlm_token_row *rows = calloc(d->count, sizeof *rows);
    OK(knnlm_mixture_open(d->model, &o, &m));
    OK(knnlm_mixture_score(m, d->tokens, d->count, NULL, scores, alone));
    OK(knnlm_mixture_rows(m, d->tokens, d->count, NULL, rows));
    for (size_t i = 0; i < d->count; i++) {
        const knnlm_token_row *r = &rows[i];
        assert_true(r->token == d->tokens[i] && r->position == i && !*r->document);
        assert_true((float)r->p == scores[i] && (float)r->lm == alone[i]);
        assert_true(fabs(exp(r->p) - r->lambda * exp(r->knn) - (1 - r->lambda) * exp(r->lm)) < 1e-12);
        assert_true(r->nearest >= 0 && r->entropy > 0 && isnan(r->cache));
    }
    d->tokens[1] += d->info.vocabulary;
    FAILS(KNNLM_EINVAL, "token", knnlm_mixture_rows(m, d->tokens, d->count, NULL, rows));
    d->tokens[1] -= d->info.vocabulary;
    knnlm_mixture_close(m);
    free(rows);
    free(scores);
}

// Without stores the mixture is the model; with a weight of 0 too.
static void nothing_mixed_in_is_the_model(void **state) {
    fixture *d = *state;
    const char *store;
    const double zero = 0;
    float *scores = calloc(2 * d->count, sizeof *scores), *alone = scores + d->count;
    OK(knnlm_model_score(d->model, d->tokens, d->count, NULL, alone));
    for (int i = 0; i < 2; i++) {
        knnlm_mixture_options o = i ? options_of(d, &store) : knnlm_mixture_options_default();
        knnlm_mixture *m;
        o.weights = i ? &zero : NULL;
        OK(knnlm_mixture_open(d->model, &o, &m));
        OK(knnlm_mixture_score(m, d->tokens, d->count, NULL, scores, NULL));
        for (size_t j = 0; j < d->count; j++) assert_true(fabsf(scores[j] - alone[j]) < 1e-6f);
        knnlm_mixture_close(m);
    }
    free(scores);
}

// What a store's settings are, given or not.
static void a_mixture_tells_its_settings(void **state) {
    fixture *d = *state;
    const char *both[] = {d->store, d->store};
    knnlm_mixture_options o = knnlm_mixture_options_default();
    knnlm_mixture_info info;
    knnlm_mixture *m;
    OK(knnlm_mixture_open(d->model, NULL, &m));
    knnlm_mixture_describe(m, &info);
    assert_true(info.store_count == 0 && info.cache == 0);
    knnlm_mixture_close(m);
    o.stores = both;
    o.store_count = 2;
    o.weights = (const double[]){0.3, NAN};
    o.temperatures = (const double[]){NAN, 5};
    o.ks = (const int64_t[]){0, 7};
    o.fallback = true;
    o.cache = 40;
    o.cache_lambda = 0.1;
    OK(knnlm_mixture_open(d->model, &o, &m));
    knnlm_mixture_describe(m, &info);
    assert_true(info.store_count == 2 && info.cache == 40 && info.cache_lambda == 0.1);
    const knnlm_mixture_store *first = &info.stores[0], *second = &info.stores[1];
    assert_string_equal(first->path, d->store);
    assert_true(first->lambda == 0.3 && first->temperature == 1 && first->k == first->entries);
    assert_true(second->lambda == 0.125 && second->temperature == 5 && second->k == 7); // half of .25
    assert_true(first->probes == 0 && !first->codes && !first->adaptive && !first->tuned && first->fallback);
    assert_int_equal(first->distance, KNNLM_DISTANCE_L2);
    knnlm_mixture_close(m);
}

static void what_makes_no_sense_is_refused(void **state) {
    fixture *d = *state;
    const char *store, *missing = "/nowhere/at.store", *many[20];
    const double heavy = 1.5, twice[2] = {0.6, 0.6};
    knnlm_mixture *m;
    knnlm_mixture_options o = options_of(d, &store);
    o.weights = &heavy;
    FAILS(KNNLM_EINVAL, "weight", knnlm_mixture_open(d->model, &o, &m));
    assert_null(m);
    o = options_of(d, &store);
    for (size_t i = 0; i < 20; i++) many[i] = d->store;
    o.stores = many;
    o.store_count = 20;
    FAILS(KNNLM_EINVAL, "20 stores", knnlm_mixture_open(d->model, &o, &m));
    o.store_count = 2;
    o.weights = twice;
    FAILS(KNNLM_EINVAL, "above 1", knnlm_mixture_open(d->model, &o, &m));
    o = options_of(d, &store);
    o.codes = true;
    FAILS(KNNLM_EINVAL, "codes", knnlm_mixture_open(d->model, &o, &m));
    o.stores = &missing;
    FAILS(KNNLM_EIO, missing, knnlm_mixture_open(d->model, &o, &m));
    o = options_of(d, &store);
    o.temperature = 0;
    FAILS(KNNLM_EINVAL, "temperature", knnlm_mixture_open(d->model, &o, &m));
    knnlm_mixture_close(NULL);
}

// States of a text are the keys that a store has of it; p_kNN of the state after a text is what a mixture
// has.
static void states_are_keys(void **state) {
    fixture *d = *state;
    size_t width = (size_t)d->info.key_width, count;
    int32_t *tokens;
    knnlm_store *store;
    knnlm_search_options search = knnlm_search_options_default();
    OK(knnlm_model_encode(d->model, remembered, strlen(remembered), &tokens, &count));
    float *states = calloc((count + 1) * width, sizeof *states), *keys = calloc(count * width, sizeof *keys);
    OK(knnlm_model_states(d->model, tokens, count, NULL, NULL, states));
    OK(knnlm_store_open(d->store, &store));
    OK(knnlm_store_keys(store, 0, count, keys));
    assert_memory_equal(states, keys, count * width * sizeof *keys);
    OK(knnlm_model_states(d->model, tokens, count, "output@0", NULL, states));
    assert_memory_not_equal(states, keys, count * width * sizeof *keys);
    FAILS(KNNLM_EINVAL, "nowhere", knnlm_model_states(d->model, tokens, count, "nowhere", NULL, states));
    tokens[1] = d->info.vocabulary;
    FAILS(KNNLM_EINVAL, "", knnlm_model_states(d->model, tokens, count, NULL, NULL, states));
    knnlm_free(tokens);

    const char *path;
    knnlm_mixture_options o = options_of(d, &path);
    knnlm_mixture *m;
    double *knn = calloc((size_t)d->info.vocabulary, sizeof *knn),
           *p = calloc((size_t)d->info.vocabulary, sizeof *p);
    o.temperature = 3;
    o.k = search.k = 20;
    OK(knnlm_mixture_open(d->model, &o, &m));
    OK(knnlm_mixture_next(m, d->tokens, d->count - 1, NULL, NULL, knn, NULL));
    OK(knnlm_model_states(d->model, d->tokens, d->count, NULL, NULL, states)); // the last is after the others
    OK(knnlm_store_knn(store, states + (d->count - 1) * width, 1, &search, 3, p));
    for (int32_t i = 0; i < d->info.vocabulary; i++) assert_true(fabs(p[i] - knn[i]) < 1e-6);
    knnlm_mixture_close(m);
    knnlm_store_close(store);
    free(knn);
    free(p);
    free(states);
    free(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(scores_are_of_what_comes_next),  TEST(rows_tell_of_each_token),
        TEST(nothing_mixed_in_is_the_model),  TEST(a_mixture_tells_its_settings),
        TEST(what_makes_no_sense_is_refused), TEST(states_are_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
