// The model against torch: log-probabilities, entropies, distributions and all taps, by every set of kernels
// of this CPU; then what must hold whatever the numbers are: threads, batches, `first` and sessions change
// nothing.
#include "golden_model.h"

#include "base/random.h"
#include "base/threads.h"
#include "lm/lm.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *const names[GOLDEN_COUNT] = GOLDEN_NAMES;

// What products may make results differ from those of f64 by, relative to the largest value of the row or
// array. bf16 rounds by 2^-9 of a number, int16 by 2^-14 of the largest of 32.
static const double tolerances[] = {
    [KNNLM_PRECISION_F32] = 2e-5, [KNNLM_PRECISION_BF16] = 3e-2, [KNNLM_PRECISION_INT16] = 3e-3};

// Of kernels of that name.
static knnlm_precision precision_of(const char *name) {
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(sets[i]->name, name) == 0) return sets[i]->precision;
    fail_msg("no kernels \"%s\"", name);
    return KNNLM_PRECISION_F32;
}

static kn_lm *open_model(const char *path, knnlm_precision precision) {
    kn_lm *lm = NULL;
    OK(kn_lm_open(path, &(kn_lm_options){.precision = precision}, &lm));
    assert_non_null(lm);
    return lm;
}

static kn_window *golden_windows(const golden *g) {
    kn_window *windows = test_alloc(g->windows, sizeof *windows);
    size_t row = 0;
    for (size_t i = 0; i < g->windows; i++) {
        windows[i] =
            (kn_window){.inputs = g->inputs + row, .targets = g->targets + row, .length = g->lengths[i]};
        row += (size_t)g->lengths[i];
    }
    assert_int_equal(row, g->rows);
    return windows;
}

// Everything that a run can give.
typedef struct results {
    kn_lm_output out;
    size_t rows, vocabulary, width;
} results;

static results results_make(const golden *g, size_t rows) {
    size_t vocabulary = (size_t)g->config.vocabulary, width = (size_t)g->config.width;
    return (results){.out = {.logprobs = test_alloc(rows, sizeof(float)),
                             .entropies = test_alloc(rows, sizeof(float)),
                             .distribution = test_alloc(rows * vocabulary, sizeof(float)),
                             .keys = test_alloc(rows * width, sizeof(float))},
                     .rows = rows,
                     .vocabulary = vocabulary,
                     .width = width};
}

static void results_free(results *r) {
    free(r->out.logprobs);
    free(r->out.entropies);
    free(r->out.distribution);
    free(r->out.keys);
}

// Rows [row, row + count) of `all` are `part`, to the bit.
static void assert_same_rows(const results *part, const results *all, size_t row, size_t count) {
    size_t v = all->vocabulary, d = all->width;
    assert_memory_equal(part->out.logprobs, all->out.logprobs + row, count * sizeof(float));
    assert_memory_equal(part->out.entropies, all->out.entropies + row, count * sizeof(float));
    assert_memory_equal(part->out.distribution, all->out.distribution + row * v, count * v * sizeof(float));
    assert_memory_equal(part->out.keys, all->out.keys + row * d, count * d * sizeof(float));
}

static results run_all(kn_lm *lm, const golden *g, kn_tap tap) {
    results r = results_make(g, g->rows);
    kn_window *windows = golden_windows(g);
    OK(kn_lm_run(lm, windows, g->windows, tap, &r.out));
    free(windows);
    return r;
}

// ---------------------------------------------------------------- the judges agree

static void store_row(float *out, const double *values, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (float)values[i];
}

// Runs the plain C model over every window; distribution (rows, vocabulary) and taps of one layer (rows,
// width).
static void run_reference(const golden *g, int layer, float *distribution, float *taps[KN_TAP_POINTS]) {
    size_t v = (size_t)g->config.vocabulary, d = (size_t)g->config.width, row = 0;
    kn_reference r = golden_reference(g);
    for (size_t i = 0; i < g->windows; i++) {
        size_t n = (size_t)g->lengths[i];
        double *log = test_alloc(n * v, sizeof(double));
        double *states = test_alloc((size_t)g->config.layers * KN_TAP_POINTS * n * d, sizeof(double));
        OK(kn_reference_run(&r, g->inputs + row, g->lengths[i], log, states));
        store_row(distribution + row * v, log, n * v);
        for (size_t t = 0; t < KN_TAP_POINTS; t++)
            store_row(taps[t] + row * d, states + ((size_t)layer * KN_TAP_POINTS + t) * n * d, n * d);
        free(log);
        free(states);
        row += n;
    }
}

// The picked rows of `all` (rows, width) against a golden tensor.
static void compare_picked(const golden *g, const char *tensor, const float *all, size_t width,
                           double tolerance) {
    char what[128];
    size_t count;
    const float *expected = golden_tensor(g->answers, tensor, &count);
    assert_int_equal(count, g->picked * width);
    for (size_t i = 0; i < g->picked; i++) {
        snprintf(what, sizeof what, "%s: %s, row %d", g->name, tensor, g->picked_rows[i]);
        assert_close(what, all + (size_t)g->picked_rows[i] * width, expected + i * width, width, tolerance);
    }
}

static void compare_tap(const golden *g, kn_tap_point point, int layer, const float *keys, double tolerance) {
    char tensor[64];
    snprintf(tensor, sizeof tensor, "%s@%d", kn_tap_name(point), layer);
    compare_picked(g, tensor, keys, (size_t)g->config.width, tolerance);
}

static void judges_agree_on(const golden *g, int layer) {
    size_t d = (size_t)g->config.width, v = (size_t)g->config.vocabulary;
    float *distribution = test_alloc(g->rows * v, sizeof *distribution), *taps[KN_TAP_POINTS];
    for (size_t t = 0; t < KN_TAP_POINTS; t++) taps[t] = test_alloc(g->rows * d, sizeof **taps);
    run_reference(g, layer, distribution, taps);
    compare_picked(g, "distribution", distribution, v, 1e-6);
    for (size_t t = 0; t < KN_TAP_POINTS; t++) {
        compare_tap(g, (kn_tap_point)t, layer, taps[t], 1e-6);
        free(taps[t]);
    }
    free(distribution);
}

// torch and the loops of lm/native/reference.c are two independent readings of one definition.
static void judges_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        judges_agree_on(&g, 0);
        judges_agree_on(&g, g.config.layers - 1);
        golden_close(&g);
    }
}

// ---------------------------------------------------------------- the model is right

static void compare_results(const golden *g, const results *r, double tolerance) {
    char what[128];
    snprintf(what, sizeof what, "%s: log-probabilities", g->name);
    assert_close(what, r->out.logprobs, g->logprobs, g->rows, tolerance);
    snprintf(what, sizeof what, "%s: entropies", g->name);
    assert_close(what, r->out.entropies, g->entropies, g->rows, tolerance);
    compare_picked(g, "distribution", r->out.distribution, r->vocabulary, tolerance);
}

static void compare_model(const golden *g, kn_lm *lm, double tolerance) {
    int layers[] = {0, g->config.layers - 1};
    for (size_t i = 0; i < 2; i++) {
        for (int point = 0; point < KN_TAP_POINTS; point++) {
            results r = run_all(lm, g, (kn_tap){(kn_tap_point)point, layers[i]});
            compare_results(g, &r, tolerance);
            compare_tap(g, (kn_tap_point)point, layers[i], r.out.keys, tolerance);
            results_free(&r);
        }
    }
}

static void compare_models(knnlm_precision precision, const char *kernels) {
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        kn_lm *lm = open_model(g.path, precision);
        if (kernels) assert_string_equal(kn_lm_describe(lm)->kernels, kernels);
        compare_model(&g, lm, tolerances[precision]);
        kn_lm_close(lm);
        golden_close(&g);
    }
}

static void answers_are_torchs(void **state) {
    (void)state;
    compare_models(KNNLM_PRECISION_F32, NULL);
}

static void description_is_right(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        kn_lm *lm = open_model(g.path, KNNLM_PRECISION_F32);
        const kn_lm_info *info = kn_lm_describe(lm);
        assert_string_equal(info->architecture, strcmp(g.name, "gpt2") == 0 ? "gpt2" : "knnlm");
        assert_int_equal(info->vocabulary, g.config.vocabulary);
        assert_int_equal(info->width, g.config.width);
        assert_int_equal(info->key_width, g.config.width);
        assert_int_equal(info->layers, g.config.layers);
        assert_int_equal(info->heads, g.config.heads);
        assert_int_equal(info->ffn, g.config.ffn);
        assert_int_equal(info->context, g.config.context);
        assert_int_equal(info->parameters, g.layout.total);
        assert_int_equal(strlen(info->fingerprint), 32);
        assert_int_equal(kn_tokenizer_size(kn_lm_tokenizer(lm)), g.config.vocabulary);
        kn_lm_close(lm);
        golden_close(&g);
    }
}

// ---------------------------------------------------------------- every set of kernels

// Kernels are chosen once a process, so each set gets a process of its own: this program again, with
// KNNLM_CPU set.
#define CHILD_VARIABLE "KN_TEST_KERNELS"

static int run_child(const char *kernels) {
    pid_t child = fork();
    if (child == 0) {
        setenv("KNNLM_CPU", kernels, 1);
        setenv(CHILD_VARIABLE, kernels, 1);
        execl("/proc/self/exe", "test_model_golden", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void every_kernel_set_answers(void **state) {
    (void)state;
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    for (size_t i = 0; i < count; i++)
        if (run_child(sets[i]->name) != 0) fail_msg("kernels %s: wrong answers (see above)", sets[i]->name);
}

// In the child: the set named must serve, and be right.
static void this_kernel_set_answers(void **state) {
    (void)state;
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    assert_string_equal(sets[0]->name, getenv(CHILD_VARIABLE));
    compare_models(sets[0]->precision, sets[0]->name);
}

static void with_every_golden(void (*check)(const golden *g, kn_lm *lm)) {
    const knnlm_precision precisions[] = {KNNLM_PRECISION_F32, KNNLM_PRECISION_BF16, KNNLM_PRECISION_INT16};
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
            golden g;
            golden_open(&g, names[i]);
            kn_lm *lm = open_model(g.path, precisions[p]);
            check(&g, lm);
            kn_lm_close(lm);
            golden_close(&g);
        }
    }
}

// ---------------------------------------------------------------- entropies

// Of log-probabilities (rows, vocabulary), in double. These are of the same logits, so that bf16 costs
// nothing: only f32's rounding of the log-probabilities is allowed for, which are about -10 here.
static void assert_entropies(const char *what, const float *entropies, const float *distribution, size_t rows,
                             size_t vocabulary) {
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < vocabulary; j++) {
            double log = (double)distribution[i * vocabulary + j];
            sum -= exp(log) * log;
        }
        if (!(fabs((double)entropies[i] - sum) <= 2e-6 * (1 + sum)))
            fail_msg("%s: entropy of row %zu is %.9g, not %.9g", what, i, (double)entropies[i], sum);
    }
}

// Entropies and distributions of two runs: what one keeps, the other does not have.
static void check_entropies(const golden *g, kn_lm *lm) {
    results r = results_make(g, g->rows), again = results_make(g, g->rows);
    kn_window *windows = golden_windows(g);
    OK(kn_lm_run(lm, windows, g->windows, KN_TAP_DEFAULT,
                 &(kn_lm_output){.distribution = r.out.distribution}));
    for (int threads = 1; threads <= 4; threads++) {
        float *out = threads == 1 ? r.out.entropies : again.out.entropies;
        OK(kn_threads_set(threads));
        OK(kn_lm_run(lm, windows, g->windows, KN_TAP_DEFAULT, &(kn_lm_output){.entropies = out}));
        assert_memory_equal(out, r.out.entropies, g->rows * sizeof *out);
    }
    OK(kn_threads_set(0));
    assert_entropies(g->name, r.out.entropies, r.out.distribution, g->rows, r.vocabulary);
    free(windows);
    results_free(&r);
    results_free(&again);
}

static void entropies_are_the_distributions(void **state) {
    (void)state;
    with_every_golden(check_entropies);
}

// ---------------------------------------------------------------- what must not matter

static void check_threads(const golden *g, kn_lm *lm) {
    OK(kn_threads_set(1));
    results one = run_all(lm, g, KN_TAP_DEFAULT);
    for (int threads = 2; threads <= 3; threads++) {
        OK(kn_threads_set(threads));
        results more = run_all(lm, g, KN_TAP_DEFAULT);
        assert_same_rows(&more, &one, 0, g->rows);
        results_free(&more);
    }
    OK(kn_threads_set(0));
    results_free(&one);
}

static void threads_change_nothing(void **state) {
    (void)state;
    with_every_golden(check_threads);
}

static void check_alone(const golden *g, kn_lm *lm) {
    results all = run_all(lm, g, KN_TAP_DEFAULT);
    kn_window *windows = golden_windows(g);
    for (size_t i = 0, row = 0; i < g->windows; i++) {
        results alone = results_make(g, (size_t)windows[i].length);
        OK(kn_lm_run(lm, &windows[i], 1, KN_TAP_DEFAULT, &alone.out));
        assert_same_rows(&alone, &all, row, alone.rows);
        row += alone.rows;
        results_free(&alone);
    }
    free(windows);
    results_free(&all);
}

static void other_windows_change_nothing(void **state) {
    (void)state;
    with_every_golden(check_alone);
}

// The same windows many times over: more rows than the model takes in one pass.
static void check_many(const golden *g, kn_lm *lm) {
    enum { TIMES = 30 };
    results once = run_all(lm, g, KN_TAP_DEFAULT), all = results_make(g, TIMES * g->rows);
    kn_window *windows = golden_windows(g), *many = test_alloc(TIMES * g->windows, sizeof *many);
    for (size_t i = 0; i < TIMES; i++) memcpy(many + i * g->windows, windows, g->windows * sizeof *many);
    assert_true(all.rows > 2048);
    OK(kn_lm_run(lm, many, TIMES * g->windows, KN_TAP_DEFAULT, &all.out));
    for (size_t i = 0; i < TIMES; i++) assert_same_rows(&once, &all, i * g->rows, g->rows);
    free(windows);
    free(many);
    results_free(&once);
    results_free(&all);
}

static void large_batches_change_nothing(void **state) {
    (void)state;
    with_every_golden(check_many);
}

static void check_first(const golden *g, kn_lm *lm) {
    results all = run_all(lm, g, KN_TAP_DEFAULT);
    results some = results_make(g, g->rows);
    kn_window *windows = golden_windows(g);
    size_t taken = 0;
    for (size_t i = 0; i < g->windows; i++) windows[i].first = windows[i].length * (int32_t)(i % 4) / 4;
    OK(kn_lm_run(lm, windows, g->windows, KN_TAP_DEFAULT, &some.out));
    for (size_t i = 0, row = 0; i < g->windows; row += (size_t)windows[i++].length) {
        size_t count = (size_t)(windows[i].length - windows[i].first);
        results part = {.out = {some.out.logprobs + taken, some.out.entropies + taken,
                                some.out.distribution + taken * some.vocabulary,
                                some.out.keys + taken * some.width}};
        assert_same_rows(&part, &all, row + (size_t)windows[i].first, count);
        taken += count;
    }
    free(windows);
    results_free(&some);
    results_free(&all);
}

static void first_only_selects_rows(void **state) {
    (void)state;
    with_every_golden(check_first);
}

static void check_unwanted(const golden *g, kn_lm *lm) {
    for (int point = 0; point < KN_TAP_POINTS; point++) {
        kn_tap tap = {(kn_tap_point)point, point % 2 ? -1 : 0};
        results all = run_all(lm, g, tap), less = results_make(g, g->rows);
        kn_window *windows = golden_windows(g);
        OK(kn_lm_run(lm, windows, g->windows, tap, &(kn_lm_output){.logprobs = less.out.logprobs}));
        for (size_t i = 0; i < g->windows; i++) windows[i].targets = NULL;
        OK(kn_lm_run(lm, windows, g->windows, tap, &(kn_lm_output){.entropies = less.out.entropies}));
        OK(kn_lm_run(lm, windows, g->windows, tap, &(kn_lm_output){.distribution = less.out.distribution}));
        OK(kn_lm_run(lm, windows, g->windows, tap, &(kn_lm_output){.keys = less.out.keys}));
        assert_same_rows(&less, &all, 0, g->rows);
        free(windows);
        results_free(&less);
        results_free(&all);
    }
}

static void unwanted_results_change_nothing(void **state) {
    (void)state;
    with_every_golden(check_unwanted);
}

// ---------------------------------------------------------------- sessions

// Feeds a window in pieces of `piece` tokens; after each, distribution and key are those of a whole run.
static void feed_in_pieces(kn_session *session, const results *all, const kn_window *w, size_t row,
                           size_t piece, kn_tap tap, double tolerance) {
    size_t n = (size_t)w->length, v = all->vocabulary, d = all->width;
    float *distribution = test_alloc(v, sizeof *distribution), *key = test_alloc(d, sizeof *key), entropy;
    kn_lm_output out = {.distribution = distribution, .keys = key, .entropies = &entropy};
    for (size_t at = kn_session_length(session); at < n;) {
        size_t count = n - at < piece ? n - at : piece;
        OK(kn_session_feed(session, w->inputs + at, count, tap, &out));
        at += count;
        assert_int_equal(kn_session_length(session), at);
        assert_close("session: distribution", distribution, all->out.distribution + (row + at - 1) * v, v,
                     tolerance);
        assert_close("session: key", key, all->out.keys + (row + at - 1) * d, d, tolerance);
        assert_close("session: entropy", &entropy, all->out.entropies + row + at - 1, 1, tolerance);
    }
    free(distribution);
    free(key);
}

// Every token's results at once, in pieces: those of a whole run.
static void score_in_pieces(kn_session *session, const results *all, const kn_window *w, size_t row,
                            size_t piece, kn_tap tap, double tolerance) {
    size_t n = (size_t)w->length, d = all->width;
    float *logprobs = test_alloc(n, sizeof *logprobs), *entropies = test_alloc(n, sizeof *entropies);
    float *keys = test_alloc(n * d, sizeof *keys);
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < piece ? n - at : piece;
        kn_lm_output out = {.logprobs = logprobs + at, .entropies = entropies + at, .keys = keys + at * d};
        OK(kn_session_score(session, w->inputs + at, w->targets + at, count, tap, &out));
    }
    assert_close("scored: log-probabilities", logprobs, all->out.logprobs + row, n, tolerance);
    assert_close("scored: entropies", entropies, all->out.entropies + row, n, tolerance);
    assert_close("scored: keys", keys, all->out.keys + row * d, n * d, tolerance);
    free(logprobs);
    free(entropies);
    free(keys);
}

static void check_session(const golden *g, kn_lm *lm) {
    const size_t pieces[] = {1, 2, 7, 33, 64};
    const kn_tap taps[] = {{KN_TAP_FFN_INPUT, -1},
                           {KN_TAP_OUTPUT, 0},
                           {KN_TAP_ATTENTION, -1},
                           {KN_TAP_OUTPUT_NORM, -1},
                           {KN_TAP_ATTENTION_RAW, 0}};
    kn_window *windows = golden_windows(g);
    kn_session *session;
    double tolerance = tolerances[precision_of(kn_lm_describe(lm)->kernels)];
    OK(kn_session_open(lm, &session));
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        results all = run_all(lm, g, taps[p]);
        size_t row = 0;
        for (size_t i = 0; i < g->windows; row += (size_t)windows[i++].length) {
            kn_session_cut(session, 0);
            assert_int_equal(kn_session_length(session), 0);
            feed_in_pieces(session, &all, &windows[i], row, pieces[p], taps[p], tolerance);
            // Forgetting the second half and reading it again leads to the same place.
            kn_session_cut(session, (size_t)windows[i].length / 2);
            feed_in_pieces(session, &all, &windows[i], row, 3, taps[p], tolerance);
            kn_session_cut(session, 0);
            score_in_pieces(session, &all, &windows[i], row, pieces[p], taps[p], tolerance);
        }
        results_free(&all);
    }
    kn_session_close(session);
    free(windows);
}

static void sessions_give_the_same(void **state) {
    (void)state;
    with_every_golden(check_session);
}

enum { TOGETHER = 5, STEPS = 6 };

// Five sessions of different lengths, a token each at a time: to the bit what each gives alone.
static void check_together(const golden *g, kn_lm *lm) {
    (void)g;
    size_t v = (size_t)kn_lm_describe(lm)->vocabulary, d = (size_t)kn_lm_describe(lm)->key_width;
    float *rows = kn_alloc(TOGETHER * v, sizeof *rows), *keys = kn_alloc(TOGETHER * d, sizeof *keys);
    float *row = kn_alloc(v, sizeof *row), *key = kn_alloc(d, sizeof *key), entropies[TOGETHER], entropy;
    kn_session *sessions[TOGETHER], *alone[TOGETHER];
    int32_t next[TOGETHER] = {0}, prompt[TOGETHER] = {3, 1, 4, 1, 5};
    for (size_t i = 0; i < TOGETHER; i++) {
        OK(kn_session_open(lm, &sessions[i]));
        OK(kn_session_open(lm, &alone[i]));
        OK(kn_session_feed(sessions[i], prompt, i + 1, KN_TAP_DEFAULT, &(kn_lm_output){0}));
        OK(kn_session_feed(alone[i], prompt, i + 1, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    }
    for (int32_t step = 0; step < STEPS; step++) {
        for (int32_t i = 0; i < TOGETHER; i++) next[i] = (7 * step + 3 * i) % (int32_t)v;
        kn_lm_output all = {.distribution = rows, .keys = keys, .entropies = entropies};
        OK(kn_sessions_feed(sessions, TOGETHER, next, KN_TAP_DEFAULT, &all));
        for (size_t i = 0; i < TOGETHER; i++) {
            kn_lm_output one = {.distribution = row, .keys = key, .entropies = &entropy};
            OK(kn_session_feed(alone[i], &next[i], 1, KN_TAP_DEFAULT, &one));
            assert_memory_equal(row, rows + i * v, v * sizeof *row);
            assert_memory_equal(key, keys + i * d, d * sizeof *key);
            assert_memory_equal(&entropy, &entropies[i], sizeof entropy);
            assert_int_equal(kn_session_length(sessions[i]), kn_session_length(alone[i]));
        }
    }
    for (size_t i = 0; i < TOGETHER; i++) {
        kn_session_close(sessions[i]);
        kn_session_close(alone[i]);
    }
    free(rows);
    free(keys);
    free(row);
    free(key);
}

static void sessions_give_the_same_together(void **state) {
    (void)state;
    with_every_golden(check_together);
}

static void session_refuses_to_overflow(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "gpt2");
    kn_lm *lm = open_model(g.path, KNNLM_PRECISION_F32);
    kn_session *session;
    size_t context = (size_t)g.config.context, v = (size_t)g.config.vocabulary;
    float *distribution = test_alloc(v, sizeof *distribution), *again = test_alloc(v, sizeof *again);
    const int32_t *tokens = g.inputs;
    assert_true(g.rows > context);
    OK(kn_session_open(lm, &session));
    OK(kn_session_feed(session, tokens, context - 1, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    assert_int_equal(kn_session_feed(session, tokens, 2, KN_TAP_DEFAULT, &(kn_lm_output){0}), KNNLM_EINVAL);
    assert_int_equal(kn_session_length(session), context - 1);
    int32_t bad = g.config.vocabulary;
    assert_int_equal(kn_session_feed(session, &bad, 1, KN_TAP_DEFAULT, &(kn_lm_output){0}), KNNLM_EINVAL);
    assert_int_equal(kn_session_length(session), context - 1);
    // The refusals left no trace: the last token still reads as in a whole window.
    OK(kn_session_feed(session, tokens + context - 1, 1, KN_TAP_DEFAULT,
                       &(kn_lm_output){.distribution = distribution}));
    kn_window whole = {.inputs = tokens, .length = (int32_t)context, .first = (int32_t)context - 1};
    OK(kn_lm_run(lm, &whole, 1, KN_TAP_DEFAULT, &(kn_lm_output){.distribution = again}));
    assert_close("session at its end", distribution, again, v, tolerances[KNNLM_PRECISION_F32]);
    free(distribution);
    free(again);
    kn_session_close(session);
    kn_lm_close(lm);
    golden_close(&g);
}

// Two sessions of one model do not disturb each other, nor do runs between their feeds.
static void sessions_are_apart(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "adaptive");
    kn_lm *lm = open_model(g.path, KNNLM_PRECISION_F32);
    kn_window *windows = golden_windows(&g);
    results all = run_all(lm, &g, KN_TAP_DEFAULT);
    kn_session *a, *b;
    OK(kn_session_open(lm, &a));
    OK(kn_session_open(lm, &b));
    size_t rows[2] = {8, 41}; // windows 2 and 3
    for (int32_t n = 3; n <= 33; n += 3) {
        kn_window first = windows[2], second = windows[3];
        first.length = second.length = n;
        feed_in_pieces(a, &all, &first, rows[0], 2, KN_TAP_DEFAULT, tolerances[KNNLM_PRECISION_F32]);
        feed_in_pieces(b, &all, &second, rows[1], 3, KN_TAP_DEFAULT, tolerances[KNNLM_PRECISION_F32]);
        results between = run_all(lm, &g, KN_TAP_DEFAULT);
        assert_same_rows(&between, &all, 0, g.rows);
        results_free(&between);
    }
    kn_session_close(a);
    kn_session_close(b);
    results_free(&all);
    free(windows);
    kn_lm_close(lm);
    golden_close(&g);
}

// ---------------------------------------------------------------- what is refused

static void assert_refused(kn_lm *lm, const kn_window *w, kn_tap tap, const kn_lm_output *out) {
    kn_fail(KNNLM_EINVAL, "stale"); // so that a missing message shows
    assert_int_equal(kn_lm_run(lm, w, 1, tap, out), KNNLM_EINVAL);
    assert_string_not_equal(knnlm_message(), "stale");
    assert_true(strlen(knnlm_message()) > 0);
}

static void bad_windows_are_refused(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "adaptive");
    kn_lm *lm = open_model(g.path, KNNLM_PRECISION_F32);
    int32_t size = g.config.vocabulary, context = g.config.context;
    int32_t *tokens = test_alloc((size_t)context + 1, sizeof *tokens);
    float *logprobs = test_alloc((size_t)context + 1, sizeof *logprobs);
    kn_lm_output out = {.logprobs = logprobs};
    const int32_t bad[] = {size, size + 1000, INT32_MAX, -1, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t inputs[3] = {1, 2, bad[i]}, good[3] = {1, 2, 3};
        assert_refused(lm, &(kn_window){.inputs = inputs, .targets = good, .length = 3}, KN_TAP_DEFAULT,
                       &out);
        assert_refused(lm, &(kn_window){.inputs = good, .targets = inputs, .length = 3}, KN_TAP_DEFAULT,
                       &out);
    }
    kn_window longest = {.inputs = tokens, .targets = tokens, .length = context};
    OK(kn_lm_run(lm, &longest, 1, KN_TAP_DEFAULT, &out));
    longest.length++;
    assert_refused(lm, &longest, KN_TAP_DEFAULT, &out);
    kn_window fine = {.inputs = tokens, .targets = tokens, .length = 4};
    assert_refused(lm, &fine, (kn_tap){KN_TAP_FFN_INPUT, g.config.layers}, &out);
    assert_refused(lm, &fine, (kn_tap){KN_TAP_FFN_INPUT, -g.config.layers - 1}, &out);
    OK(kn_lm_run(lm, &fine, 1, KN_TAP_DEFAULT, &out));
    OK(kn_lm_run(lm, NULL, 0, KN_TAP_DEFAULT, &out));
    free(tokens);
    free(logprobs);
    kn_lm_close(lm);
    golden_close(&g);
}

static void other_files_are_refused(void **state) {
    (void)state;
    kn_lm *lm = NULL;
    assert_int_equal(kn_lm_open("no-such-file.gguf", NULL, &lm), KNNLM_EIO);
    assert_int_equal(kn_lm_open(KN_SOURCE_DIR "/tests/golden/gpt2.golden.gguf", NULL, &lm),
                     KNNLM_EDATA); // no model
    assert_int_equal(kn_lm_open(KN_SOURCE_DIR "/tests/golden/make_model.py", NULL, &lm), KNNLM_EDATA);
    assert_null(lm);
}

static void tap_names_are_read(void **state) {
    (void)state;
    const char *const points[] = {"ffn", "ffn-raw", "attention", "attention-raw", "output-norm", "output"};
    const char *const bad[] = {"",   "@1", "ffn@", "ffn@x", "ffn@1x", "ffn @1", "FFN", "ffn@99999999999",
                               "key"};
    kn_tap tap;
    for (int i = 0; i < KN_TAP_POINTS; i++) {
        char text[64];
        assert_string_equal(kn_tap_name((kn_tap_point)i), points[i]);
        OK(kn_tap_parse(points[i], &tap));
        assert_true(tap.point == (kn_tap_point)i && tap.layer == -1);
        snprintf(text, sizeof text, "%s@-2", points[i]);
        OK(kn_tap_parse(text, &tap));
        assert_true(tap.point == (kn_tap_point)i && tap.layer == -2);
        snprintf(text, sizeof text, "%s@3", points[i]);
        OK(kn_tap_parse(text, &tap));
        assert_true(tap.point == (kn_tap_point)i && tap.layer == 3);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kn_tap_parse(bad[i], &tap), KNNLM_EINVAL);
}

// ---------------------------------------------------------------- other weight types

// Rows [first, length) of one window against the plain C model, the default tap included.
static void compare_window(const golden *g, kn_lm *lm, const int32_t *tokens, int length, int first,
                           double tolerance) {
    size_t v = (size_t)g->config.vocabulary, d = (size_t)g->config.width, n = (size_t)length;
    kn_reference judge = golden_reference(g);
    results r = results_make(g, n - (size_t)first);
    double *log = test_alloc(n * v, sizeof(double));
    double *taps = test_alloc((size_t)g->config.layers * KN_TAP_POINTS * n * d, sizeof(double));
    float *expected = test_alloc(r.rows * v, sizeof *expected), *keys = test_alloc(r.rows * d, sizeof *keys);
    OK(kn_reference_run(&judge, tokens, length, log, taps));
    store_row(expected, log + (size_t)first * v, r.rows * v);
    size_t tap = (size_t)(g->config.layers - 1) * KN_TAP_POINTS + KN_TAP_FFN_INPUT;
    store_row(keys, taps + (tap * n + (size_t)first) * d, r.rows * d);
    kn_window window = {.inputs = tokens, .targets = tokens, .length = length, .first = first};
    OK(kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &r.out));
    assert_close("window: distribution", r.out.distribution, expected, r.rows * v, tolerance);
    assert_entropies("window", r.out.entropies, r.out.distribution, r.rows, v);
    assert_close("window: keys", r.out.keys, keys, r.rows * d, tolerance);
    results_free(&r);
    free(log);
    free(taps);
    free(expected);
    free(keys);
}

// Saved in another type, the model is the one with its weights rounded.
static void compare_saved(const golden *source, kn_gguf_type type) {
    char path[64];
    golden g = *source;
    kn_tokenizer *tokenizer;
    snprintf(path, sizeof path, "test_model_golden-%d.gguf", (int)getpid());
    OK(kn_tokenizer_load_gguf(source->model, &tokenizer));
    OK(kn_model_save(path, &source->config, tokenizer, 0, source->params, type));
    OK(kn_gguf_open(path, &g.model));
    g.params = test_alloc(g.layout.total, sizeof *g.params);
    g.exact_params = test_alloc(g.layout.total, sizeof *g.exact_params);
    OK(kn_model_load_params(g.model, &g.config, &g.layout, g.params));
    for (size_t i = 0; i < g.layout.total; i++) g.exact_params[i] = g.params[i];
    if (type == KN_GGUF_F32)
        assert_memory_equal(g.params, source->params, g.layout.total * sizeof *g.params);
    else
        assert_memory_not_equal(g.params, source->params, g.layout.total * sizeof *g.params);
    kn_lm *lm = open_model(path, KNNLM_PRECISION_F32);
    compare_window(&g, lm, source->inputs, 40, 0, tolerances[KNNLM_PRECISION_F32]);
    kn_lm_close(lm);
    kn_gguf_close(g.model);
    free(g.params);
    free(g.exact_params);
    kn_tokenizer_free(tokenizer);
    assert_int_equal(unlink(path), 0);
}

static void saved_models_are_the_same(void **state) {
    (void)state;
    const kn_gguf_type types[] = {KN_GGUF_F32, KN_GGUF_F16, KN_GGUF_BF16, KN_GGUF_Q8_0};
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) compare_saved(&g, types[t]);
        golden_close(&g);
    }
}

// The golden model with an output matrix of its own, the embeddings times `factor`.
static void save_untied(const golden *g, float factor, const char *path) {
    kn_gguf_writer *w;
    kn_tokenizer *tokenizer;
    size_t count = g->layout.count, size = (size_t)(g->config.vocabulary * g->config.width);
    float *output = test_alloc(size, sizeof *output);
    for (size_t i = 0; i < size; i++) output[i] = factor * g->params[g->layout.params[0].offset + i];
    assert_string_equal(g->layout.params[0].name, "token_embd.weight");
    OK(kn_tokenizer_load_gguf(g->model, &tokenizer));
    OK(kn_gguf_writer_open(path, &w));
    OK(kn_config_save(&g->config, w));
    OK(kn_tokenizer_save_gguf(tokenizer, w));
    for (size_t i = 0; i <= count; i++) {
        const kn_param *p = &g->layout.params[i < count ? i : 0];
        const int64_t dims[2] = {(int64_t)p->columns, (int64_t)p->rows};
        OK(kn_gguf_put_tensor(w, i < count ? p->name : "output.weight", KN_GGUF_F32, p->is_vector ? 1 : 2,
                              dims));
    }
    for (size_t i = 0; i < count; i++) {
        const kn_param *p = &g->layout.params[i];
        OK(kn_gguf_put_data_f32(w, g->params + p->offset, p->rows * p->columns));
    }
    OK(kn_gguf_put_data_f32(w, output, size));
    OK(kn_gguf_writer_commit(w));
    kn_tokenizer_free(tokenizer);
    free(output);
}

static void untied_models_are_refused(void **state) {
    (void)state;
    char path[64];
    golden g;
    kn_lm *lm = NULL;
    golden_open(&g, "gpt2");
    snprintf(path, sizeof path, "test_model_golden-%d.gguf", (int)getpid());
    save_untied(&g, 1, path); // a copy is no other model
    lm = open_model(path, KNNLM_PRECISION_F32);
    compare_window(&g, lm, g.inputs, 20, 0, tolerances[KNNLM_PRECISION_F32]);
    kn_lm_close(lm);
    save_untied(&g, 1.5f, path);
    assert_int_equal(kn_lm_open(path, &(kn_lm_options){.engine = KNNLM_ENGINE_NATIVE}, &lm), KNNLM_ENOTSUP);
    assert_non_null(strstr(knnlm_message(), "output.weight"));
    golden_close(&g);
    assert_int_equal(unlink(path), 0);
}

// ---------------------------------------------------------------- models of any shape

// Words enough for any vocabulary below.
static kn_tokenizer *word_tokenizer(int32_t size) {
    char text[4096] = "";
    size_t used = 0;
    kn_tokenizer *tokenizer = NULL;
    for (int32_t i = 0; i < size; i++) used += (size_t)snprintf(text + used, sizeof text - used, "w%d ", i);
    OK(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, size, text, used, NULL, &tokenizer));
    assert_int_equal(kn_tokenizer_size(tokenizer), size);
    return tokenizer;
}

static int32_t pick(kn_random *random, int32_t low, int32_t high) {
    return low + (int32_t)kn_random_below(random, (uint64_t)(high - low + 1));
}

static kn_config random_config(kn_random *random) {
    static const int32_t head_widths[] = {1, 3, 8, 31, 32, 33, 48, 64, 70};
    kn_config c = {.layers = pick(random, 1, 3),
                   .heads = pick(random, 1, 3),
                   .ffn = pick(random, 1, 100),
                   .context = pick(random, 40, 130),
                   .positions = (knnlm_positions)pick(random, 0, 1),
                   .activation = (knnlm_activation)pick(random, 0, 1),
                   .final_norm = pick(random, 0, 1),
                   .epsilon = 1e-5f,
                   .embedding_scale = (float)pick(random, 1, 6),
                   .bands = pick(random, 1, 4),
                   .band_factor = pick(random, 1, 2)};
    c.width = c.heads * head_widths[pick(random, 0, 8)];
    while (c.width < 16 || c.width % 2) c.width += c.heads;
    for (int32_t b = 0, end = 0; b < c.bands; b++) c.band_end[b] = end += pick(random, 2, 100);
    c.vocabulary = c.band_end[c.bands - 1];
    return c;
}

static void random_params(golden *g, kn_random *random) {
    g->params = test_alloc(g->layout.total, sizeof *g->params);
    g->exact_params = test_alloc(g->layout.total, sizeof *g->exact_params);
    kn_layout_fill(&g->config, &g->layout, random->state, g->params);
    for (size_t i = 0; i < g->layout.total; i++) {
        g->params[i] += (float)(0.1 * kn_random_normal(random));
        g->exact_params[i] = g->params[i];
    }
}

// A model of this shape with random weights, saved and opened, against the plain C model on random tokens.
static void check_shape(const kn_config *config, int length, int first, kn_random *random) {
    char path[64];
    int32_t *tokens = test_alloc((size_t)length, sizeof *tokens);
    golden g = {.name = "shape", .config = *config};
    for (int i = 0; i < length; i++) tokens[i] = pick(random, 0, config->vocabulary - 1);
    snprintf(path, sizeof path, "test_model_golden-%d.gguf", (int)getpid());
    OK(kn_layout_init(config, &g.layout));
    random_params(&g, random);
    kn_tokenizer *tokenizer = word_tokenizer(config->vocabulary);
    OK(kn_model_save(path, config, tokenizer, 0, g.params, KN_GGUF_F32));
    kn_lm *lm = open_model(path, KNNLM_PRECISION_F32);
    compare_window(&g, lm, tokens, length, first, tolerances[KNNLM_PRECISION_F32]);
    kn_lm_close(lm);
    kn_tokenizer_free(tokenizer);
    kn_layout_free(&g.layout);
    free(g.params);
    free(g.exact_params);
    free(tokens);
    assert_int_equal(unlink(path), 0);
}

static void models_of_any_shape_answer(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        kn_random random = {seed};
        kn_config config = random_config(&random);
        int length = pick(&random, 1, config.context < 100 ? config.context : 100);
        check_shape(&config, length, pick(&random, 0, length - 1), &random);
    }
}

// The paper's windows: 3072 tokens, the last 512 of them scored.
static void long_windows_work(void **state) {
    (void)state;
    kn_random random = {99};
    kn_config config = {.vocabulary = 20,
                        .width = 16,
                        .layers = 2,
                        .heads = 2,
                        .ffn = 16,
                        .context = 3072,
                        .positions = KNNLM_POSITIONS_SINUSOIDAL,
                        .activation = KNNLM_ACTIVATION_RELU,
                        .epsilon = 1e-5f,
                        .embedding_scale = 4,
                        .bands = 1,
                        .band_end = {20},
                        .band_factor = 4};
    check_shape(&config, 3072, 2560, &random);
}

int main(void) {
    const struct CMUnitTest child[] = {cmocka_unit_test(this_kernel_set_answers)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_agree),
        cmocka_unit_test(answers_are_torchs),
        cmocka_unit_test(description_is_right),
        cmocka_unit_test(every_kernel_set_answers),
        cmocka_unit_test(entropies_are_the_distributions),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(other_windows_change_nothing),
        cmocka_unit_test(large_batches_change_nothing),
        cmocka_unit_test(first_only_selects_rows),
        cmocka_unit_test(unwanted_results_change_nothing),
        cmocka_unit_test(sessions_give_the_same),
        cmocka_unit_test(sessions_give_the_same_together),
        cmocka_unit_test(session_refuses_to_overflow),
        cmocka_unit_test(sessions_are_apart),
        cmocka_unit_test(bad_windows_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(tap_names_are_read),
        cmocka_unit_test(long_windows_work),
        cmocka_unit_test(saved_models_are_the_same),
        cmocka_unit_test(untied_models_are_refused),
        cmocka_unit_test(models_of_any_shape_answer),
    };
    if (getenv(CHILD_VARIABLE)) return cmocka_run_group_tests(child, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
