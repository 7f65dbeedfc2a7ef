// Evaluating and tuning by the installed header: sums of the rows that are told, the same as scoring tokens,
// and what a store remembers of tuning.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "knnlm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

#define MODEL KN_SOURCE_DIR "/tests/golden/shared.model.gguf"

typedef struct fixture {
    char folder[64], known[96], asked[96], store[96], rows[96];
    knnlm_model *model;
    char *text; // of `asked`
    knnlm_mixture_options mix;
    const char *stores[1];
} fixture;

static void write_text(const char *path, int salt) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 60; i++)
        fprintf(f, "The store number %d keeps what followed every context of text %d.\n", i * salt % 7,
                i % 5);
    assert_int_equal(fclose(f), 0);
}

static char *read_text(const char *path) {
    char *text = calloc(1 << 16, 1);
    FILE *f = fopen(path, "r");
    assert_true(text && f && fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static int fixture_open(void **state) {
    fixture *d = calloc(1, sizeof *d);
    knnlm_build_options o = knnlm_build_options_default();
    knnlm_model_options how = knnlm_model_options_default();
    strcpy(d->folder, "/tmp/knnlm-test-api-eval-XXXXXX");
    assert_non_null(mkdtemp(d->folder));
    snprintf(d->known, sizeof d->known, "%s/known.txt", d->folder);
    snprintf(d->asked, sizeof d->asked, "%s/asked.txt", d->folder);
    snprintf(d->store, sizeof d->store, "%s/s.store", d->folder);
    snprintf(d->rows, sizeof d->rows, "%s/rows.tsv", d->folder);
    write_text(d->known, 3);
    write_text(d->asked, 2);
    d->text = read_text(d->asked);
    how.precision = KNNLM_PRECISION_F32;
    OK(knnlm_model_open(MODEL, &how, &d->model));
    const char *texts[] = {d->known};
    OK(knnlm_build(d->model, d->store, texts, 1, &o, NULL));
    d->mix = knnlm_mixture_options_default();
    d->stores[0] = d->store;
    d->mix.stores = d->stores;
    d->mix.store_count = 1;
    d->mix.k = 16;
    d->mix.lambda = 0.4;
    d->mix.temperature = 20;
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    char command[128];
    knnlm_model_close(d->model);
    snprintf(command, sizeof command, "rm -rf '%s'", d->folder);
    int code = system(command);
    free(d->text);
    free(d);
    return code;
}

typedef struct sums {
    uint64_t count, max; // most: stops then
    double lm, p;
} sums;

static bool take_row(void *context, const knnlm_token_row *r) {
    sums *s = context;
    assert_int_equal(r->position, s->count); // one document
    assert_true(strstr(r->document, "asked.txt") && r->lm <= 0 && r->p <= 0);
    double mixed = log((1 - r->lambda) * exp(r->lm) + r->lambda * exp(r->knn));
    assert_true(fabs(mixed - r->p) < 1e-5 && isnan(r->cache));
    s->lm -= r->lm;
    s->p -= r->p;
    return ++s->count < s->max;
}

static void rows_sum_up(void **state) {
    fixture *d = *state;
    const char *texts[] = {d->asked};
    sums s = {.max = UINT64_MAX};
    knnlm_eval_options o = knnlm_eval_options_default();
    knnlm_eval_result r;
    o.row = take_row;
    o.row_context = &s;
    o.per_token = d->rows;
    OK(knnlm_eval(d->model, texts, 1, &d->mix, &o, &r));
    assert_true(s.count == r.tokens && r.documents == 1 && r.store_count == 1 && r.bytes == strlen(d->text));
    assert_true(fabs(s.lm - r.lm.nll) < 1e-6 * s.lm && fabs(s.p - r.mixed.nll) < 1e-6 * s.p);
    assert_true(fabs(r.mixed.ppl - exp(s.p / (double)s.count)) < 1e-6 * r.mixed.ppl);
    assert_true(r.stores[0].k == 16 && !r.stores[0].tuned && fabs(r.stores[0].lambda - 0.4) < 1e-6);
    assert_int_equal(access(d->rows, R_OK), 0);
    s = (sums){.max = 10};
    FAILS(KNNLM_ESTOPPED, "stopped", knnlm_eval(d->model, texts, 1, &d->mix, &o, NULL));
    assert_int_equal(s.count, 10);
}

// Files and tokens in memory are scored alike.
static void scores_agree(void **state) {
    fixture *d = *state;
    const char *texts[] = {d->asked};
    knnlm_eval_result r;
    knnlm_mixture *m;
    int32_t *tokens;
    size_t count;
    double lm = 0, p = 0;
    OK(knnlm_eval(d->model, texts, 1, &d->mix, NULL, &r));
    OK(knnlm_model_encode(d->model, d->text, strlen(d->text), &tokens, &count));
    float *logprobs = calloc(count, sizeof *logprobs), *alone = calloc(count, sizeof *alone);
    OK(knnlm_mixture_open(d->model, &d->mix, &m));
    OK(knnlm_mixture_score(m, tokens, count, NULL, logprobs, alone));
    for (size_t i = 0; i < count; i++) {
        p -= (double)logprobs[i];
        lm -= (double)alone[i];
    }
    assert_int_equal(count, r.tokens);
    assert_true(fabs(p - r.mixed.nll) < 1e-5 * p && fabs(lm - r.lm.nll) < 1e-5 * lm);
    knnlm_mixture_close(m);
    knnlm_free(tokens);
    free(logprobs);
    free(alone);
}

// What tuning found is what the store says, and what evaluating then uses.
static void tuning_is_remembered(void **state) {
    fixture *d = *state;
    const char *texts[] = {d->asked};
    knnlm_mixture_options mix = knnlm_mixture_options_default();
    knnlm_tune_options o = knnlm_tune_options_default();
    knnlm_tune_result t;
    knnlm_eval_result r;
    knnlm_store *store;
    knnlm_store_info info;
    mix.stores = d->stores;
    mix.store_count = 1;
    mix.fixed = true;
    o.dry_run = true;
    OK(knnlm_tune(d->model, texts, 1, &mix, &o, &t));
    assert_true(!t.written && t.tuned.known && t.point_count > 10 && t.ppl < t.ppl_lm);
    for (size_t i = 0; i < t.point_count; i++) assert_true(t.points[i].ppl >= t.stores[0].best.ppl - 1e-9);
    knnlm_tune_result_free(&t);
    o.dry_run = false;
    OK(knnlm_tune(d->model, texts, 1, &mix, &o, &t));
    OK(knnlm_store_open(d->store, &store));
    knnlm_store_describe(store, &info);
    assert_true(t.written && info.tuned.known && info.tuned.k == t.tuned.k);
    assert_true(info.tuned.lambda == t.tuned.lambda && info.tuned.temperature == t.tuned.temperature);
    knnlm_store_close(store);
    OK(knnlm_eval(d->model, texts, 1, &mix, NULL, &r));
    assert_true(r.stores[0].tuned && r.stores[0].tuned_here && r.stores[0].k == (size_t)t.tuned.k);
    assert_true(fabs(r.mixed.ppl - t.ppl) < 1e-3 * t.ppl);
    knnlm_tune_result_free(&t);
}

static void what_makes_no_sense_is_refused(void **state) {
    fixture *d = *state;
    const char *texts[] = {d->asked}, *none[] = {"/nowhere/text.txt"};
    knnlm_eval_options o = knnlm_eval_options_default();
    knnlm_tune_options tune = knnlm_tune_options_default();
    knnlm_tune_result t;
    const double temperature = 1e40, weight = 1.5;
    FAILS(KNNLM_EINVAL, "no text", knnlm_eval(d->model, texts, 0, NULL, NULL, NULL));
    FAILS(KNNLM_EIO, "nowhere", knnlm_eval(d->model, none, 1, NULL, NULL, NULL));
    d->mix.temperatures = &temperature;
    FAILS(KNNLM_EINVAL, "temperature", knnlm_eval(d->model, texts, 1, &d->mix, NULL, NULL));
    d->mix.temperatures = NULL;
    d->mix.weights = &weight;
    FAILS(KNNLM_EINVAL, "weight", knnlm_eval(d->model, texts, 1, &d->mix, NULL, NULL));
    o.score = 1 << 20;
    FAILS(KNNLM_EINVAL, "`score`", knnlm_eval(d->model, texts, 1, NULL, &o, NULL));
    FAILS(KNNLM_EINVAL, "", knnlm_tune(d->model, texts, 1, NULL, NULL, &t)); // neither store nor cache
    tune.probe_count = 13;
    FAILS(KNNLM_EINVAL, "`probes`", knnlm_tune(d->model, texts, 1, NULL, &tune, &t));
    FAILS(KNNLM_EINVAL, "no text", knnlm_tune(d->model, texts, 0, NULL, NULL, &t));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_open, fixture_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rows_sum_up),
        TEST(scores_agree),
        TEST(tuning_is_remembered),
        TEST(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
