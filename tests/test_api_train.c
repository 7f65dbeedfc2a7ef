// Training by the installed header: a small model that is there afterwards, a run that goes on, what is
// refused.
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

enum { STEPS = 12 };

typedef struct fixture {
    char folder[64], text[96], model[96], checkpoint[128];
    size_t reports, plans;
    int64_t stop_at; // 0: never
    knnlm_train_report last;
} fixture;

static fixture *fixture_open(void) {
    fixture *d = calloc(1, sizeof *d);
    assert_non_null(d);
    strcpy(d->folder, "/tmp/knnlm-test-api-train-XXXXXX");
    assert_non_null(mkdtemp(d->folder));
    snprintf(d->text, sizeof d->text, "%s/text.txt", d->folder);
    snprintf(d->model, sizeof d->model, "%s/m.gguf", d->folder);
    snprintf(d->checkpoint, sizeof d->checkpoint, "%s.checkpoint", d->model);
    FILE *f = fopen(d->text, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "line %d of a text that says much the same again\n", i % 7);
    fclose(f);
    return d;
}

static void fixture_close(fixture *d) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", d->folder);
    assert_int_equal(system(command), 0);
    free(d);
}

static void on_plan(void *context, const knnlm_train_plan *p) {
    fixture *d = context;
    d->plans++;
    assert_true(p->tokens > 0 && p->parameters > 0 && p->steps > 0 && p->batch >= 64 && *p->kernels);
}

static void on_report(void *context, const knnlm_train_report *r) {
    fixture *d = context;
    d->reports++;
    d->last = *r;
}

static bool on_stop(void *context) {
    const fixture *d = context;
    return d->stop_at && d->last.step >= d->stop_at;
}

static knnlm_train_options options_of(fixture *d) {
    knnlm_train_options o = knnlm_train_options_default();
    o.preset = "tiny";
    o.vocabulary = 270;
    o.width = 16;
    o.layers = 1;
    o.heads = 2;
    o.context = 32;
    o.steps = STEPS;
    o.length = 16;
    o.batch = 64;
    o.report_every = 1;
    o.type = KNNLM_TYPE_F32;
    o.precision = KNNLM_PRECISION_F32;
    o.planned = on_plan;
    o.report = on_report;
    o.stop = on_stop;
    o.listener = d;
    return o;
}

static knnlm_status train(fixture *d, const knnlm_train_options *o, knnlm_train_result *r) {
    const char *texts[] = {d->text};
    d->reports = d->plans = 0;
    d->last = (knnlm_train_report){0};
    return knnlm_train(texts, 1, d->model, o, r);
}

static void fingerprint_of(const char *path, char out[33]) {
    knnlm_model *model;
    knnlm_model_info info;
    OK(knnlm_model_open(path, NULL, &model));
    knnlm_model_describe(model, &info);
    assert_true(info.width == 16 && info.layers == 1 && info.context == 32);
    assert_string_equal(info.tokenizer, "byte-level BPE");
    memcpy(out, info.fingerprint, 33);
    knnlm_model_close(model);
}

// Stopped in the middle and resumed, it is the same model to the bit.
static void test_run_and_resume(void **state) {
    fixture *d = fixture_open();
    knnlm_train_options o = options_of(d);
    knnlm_train_result r;
    char whole[33], resumed[33];
    (void)state;
    OK(train(d, &o, &r));
    assert_true(d->plans == 1 && d->reports == STEPS && r.last.step == STEPS && r.parameters > 0);
    assert_true(isfinite(r.last.loss) && *r.kernels);
    fingerprint_of(d->model, whole);
    FAILS(KNNLM_EINVAL, "has another run: go on with it by `resume`", train(d, &o, &r));
    assert_int_equal(unlink(d->checkpoint), 0);
    FAILS(KNNLM_EINVAL, "exists", train(d, &o, &r));
    o.force = true;
    d->stop_at = 5;
    FAILS(KNNLM_ESTOPPED, "`resume`", train(d, &o, &r));
    d->stop_at = 0;
    o.force = false;
    o.resume = true;
    OK(train(d, &o, &r));
    assert_true(d->reports < STEPS && r.last.step == STEPS);
    fingerprint_of(d->model, resumed);
    assert_string_equal(resumed, whole);
    fixture_close(d);
}

static void test_from(void **state) {
    fixture *d = fixture_open();
    knnlm_train_options o = options_of(d), more = knnlm_train_options_default();
    char from[96];
    (void)state;
    OK(train(d, &o, NULL));
    snprintf(from, sizeof from, "%s/from.gguf", d->folder);
    assert_int_equal(rename(d->model, from), 0);
    assert_int_equal(unlink(d->checkpoint), 0);
    more.from = from;
    more.epochs = 0.5;
    more.batch = 64;
    OK(train(d, &more, NULL));
    more.layers = 2;
    FAILS(KNNLM_EINVAL, "`layers`: with `from`", train(d, &more, NULL));
    fixture_close(d);
}

static void test_refused(void **state) {
    fixture *d = fixture_open();
    knnlm_train_options o = options_of(d);
    (void)state;
    FAILS(KNNLM_EINVAL, "no text", knnlm_train(NULL, 0, d->model, &o, NULL));
    o.epochs = 1;
    FAILS(KNNLM_EINVAL, "one of `steps`", train(d, &o, NULL));
    o = options_of(d);
    o.resume = o.force = true;
    FAILS(KNNLM_EINVAL, "one of `resume`", train(d, &o, NULL));
    o = options_of(d);
    o.resume = true;
    FAILS(KNNLM_EIO, "checkpoint", train(d, &o, NULL));
    o = options_of(d);
    o.preset = "huge";
    FAILS(KNNLM_EINVAL, "huge", train(d, &o, NULL));
    o = options_of(d);
    o.length = 33;
    FAILS(KNNLM_EINVAL, "`length` 33", train(d, &o, NULL));
    o = options_of(d);
    o.tokenizer = KNNLM_TOKENIZER_WORDPIECE;
    FAILS(KNNLM_EINVAL, "`tokenizer_file`", train(d, &o, NULL));
    o = options_of(d);
    o.batch = 0;
    FAILS(KNNLM_EINVAL, "`batch`", train(d, &o, NULL));
    o = options_of(d);
    o.bands = (const int32_t[]){0};
    o.band_count = 1;
    FAILS(KNNLM_EINVAL, "`bands`", train(d, &o, NULL));
    assert_int_equal(access(d->model, F_OK), -1);
    fixture_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_and_resume),
        cmocka_unit_test(test_from),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
