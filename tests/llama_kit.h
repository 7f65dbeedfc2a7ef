// What the tests of the engine on llama.cpp share: models, windows and results, and the golden model with
// what NumPy says of it.
#ifndef KN_TESTS_LLAMA_KIT_H
#define KN_TESTS_LLAMA_KIT_H

#include "expect.h"

#include "base/gguf.h"
#include "base/threads.h"
#include "lm/lm.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define GOLDEN KN_SOURCE_DIR "/tests/golden/"
#define LLAMA GOLDEN "llama.model.gguf"
#define PARALLEL GOLDEN "parallel.model.gguf"
#define ENCODER GOLDEN "encoder.model.gguf"
#define SHARED GOLDEN "shared.model.gguf"
enum { TAPS = 6, LAYERS = 3 };

// What f32 may differ by, relative to the largest value of the array: llama.cpp itself was measured at 5e-7
// from NumPy. GELU it looks up in a table of f16; by default its keys and values are f16, too.
static const double F32_TOLERANCE = 2e-5, GELU_TOLERANCE = 1e-3, F16_TOLERANCE = 2e-2;

// An array against one of the right numbers.
static inline void assert_near(const char *what, const float *a, const float *b, size_t n, double tolerance) {
    double worst = 0, size = 1e-3;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= worst)) worst = difference; // a NaN is the worst of all
        size = fmax(size, fabs((double)b[i]));
    }
    if (getenv("KN_TEST_VERBOSE")) print_message("    %-40s %.2e\n", what, worst / size);
    if (!(worst / size <= tolerance))
        fail_msg("%s: differs by %.3g, %.3g allowed", what, worst / size, tolerance);
}

// ---------------------------------------------------------------- models, windows, results

static inline kn_lm *open_with(const char *path, knnlm_engine engine) {
    kn_lm *lm = NULL;
    OK(kn_lm_open(path, &(kn_lm_options){.precision = KNNLM_PRECISION_F32, .engine = engine}, &lm));
    assert_non_null(lm);
    return lm;
}

static inline void assert_refused(const char *path, knnlm_engine engine, knnlm_status status,
                                  const char *text) {
    kn_lm *lm = NULL;
    FAILS(status, text, kn_lm_open(path, &(kn_lm_options){.engine = engine}, &lm));
    assert_null(lm);
}

// Windows over tokens that lie one after another.
typedef struct windows {
    kn_window *all;
    size_t count, rows;
} windows;

static inline windows windows_make(const int32_t *inputs, const int32_t *targets, const int32_t *lengths,
                                   size_t count) {
    windows w = {test_alloc(count, sizeof *w.all), count, 0};
    for (size_t i = 0; i < count; i++) {
        w.all[i] = (kn_window){.inputs = inputs + w.rows, .targets = targets + w.rows, .length = lengths[i]};
        w.rows += (size_t)lengths[i];
    }
    return w;
}

// Everything that a run can give.
typedef struct results {
    kn_lm_output out;
    size_t rows, vocabulary, width;
} results;

static inline results results_make(const kn_lm *lm, size_t rows) {
    size_t v = (size_t)kn_lm_describe(lm)->vocabulary, d = (size_t)kn_lm_describe(lm)->key_width;
    return (results){.out = {.logprobs = test_alloc(rows, sizeof(float)),
                             .entropies = test_alloc(rows, sizeof(float)),
                             .distribution = test_alloc(rows * v, sizeof(float)),
                             .keys = test_alloc(rows * d, sizeof(float))},
                     .rows = rows,
                     .vocabulary = v,
                     .width = d};
}

static inline void results_free(results *r) {
    free(r->out.logprobs);
    free(r->out.entropies);
    free(r->out.distribution);
    free(r->out.keys);
}

static inline results run_windows(kn_lm *lm, const windows *w, kn_tap tap) {
    results r = results_make(lm, w->rows);
    OK(kn_lm_run(lm, w->all, w->count, tap, &r.out));
    return r;
}

// Rows [at, at + rows) of `all` are rows [from, from + rows) of `part`.
static inline void assert_rows(const results *part, size_t from, const results *all, size_t at, size_t rows,
                               double tolerance) {
    size_t v = all->vocabulary, d = all->width;
    assert_near("log-probabilities", part->out.logprobs + from, all->out.logprobs + at, rows, tolerance);
    assert_near("entropies", part->out.entropies + from, all->out.entropies + at, rows, tolerance);
    assert_near("distribution", part->out.distribution + from * v, all->out.distribution + at * v, rows * v,
                tolerance);
    assert_near("keys", part->out.keys + from * d, all->out.keys + at * d, rows * d, tolerance);
}

// ---------------------------------------------------------------- the golden model

typedef struct golden {
    kn_gguf *answers;
    windows windows;
    const int32_t *picked; // rows given in full
    size_t picked_count;
} golden;

static inline const void *tensor_of(const kn_gguf *file, const char *name, size_t *count) {
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, name);
    if (!t) fail_msg("no golden tensor %s", name);
    if (count) *count = (size_t)(t->dims[0] * t->dims[1]);
    return t->data;
}

static inline golden golden_open(void) {
    golden g;
    size_t count, rows;
    OK(kn_gguf_open(GOLDEN "llama.golden.gguf", &g.answers));
    const int32_t *lengths = tensor_of(g.answers, "lengths", &count);
    const int32_t *inputs = tensor_of(g.answers, "inputs", &rows);
    g.windows = windows_make(inputs, tensor_of(g.answers, "targets", NULL), lengths, count);
    g.picked = tensor_of(g.answers, "rows", &g.picked_count);
    assert_int_equal(g.windows.rows, rows);
    return g;
}

static inline void golden_close(golden *g) {
    free(g->windows.all);
    kn_gguf_close(g->answers);
}

// The golden model opened with its answers, for a test.
typedef struct fixture {
    golden golden;
    kn_lm *lm;
} fixture;

static inline int fixture_open(void **state) {
    fixture *d = test_alloc(1, sizeof *d);
    d->golden = golden_open();
    d->lm = open_with(LLAMA, KNNLM_ENGINE_LLAMA);
    *state = d;
    return 0;
}

static inline int fixture_close(void **state) {
    fixture *d = *state;
    kn_lm_close(d->lm);
    golden_close(&d->golden);
    free(d);
    return 0;
}

// ---------------------------------------------------------------- what must not matter

// More windows and more rows than llama.cpp takes at a time.
static inline void large_batches_change_nothing(void **state) {
    enum { TIMES = 50 };
    fixture *d = *state;
    const windows *w = &d->golden.windows;
    const kn_tap tap = {KN_TAP_ATTENTION_RAW, -1};
    windows many = {test_alloc(TIMES * w->count, sizeof *many.all), TIMES * w->count, TIMES * w->rows};
    for (size_t i = 0; i < TIMES; i++) memcpy(many.all + i * w->count, w->all, w->count * sizeof *many.all);
    results once = run_windows(d->lm, w, tap), all = run_windows(d->lm, &many, tap);
    for (size_t i = 0; i < TIMES; i++) assert_rows(&all, i * w->rows, &once, 0, w->rows, F32_TOLERANCE);
    free(many.all);
    results_free(&once);
    results_free(&all);
}

// Windows of unequal lengths and firsts in one batch: the rows below `first` are missing, the others stay.
static inline void compare_firsts(fixture *d, kn_tap tap) {
    const windows *w = &d->golden.windows;
    windows part = {test_alloc(w->count, sizeof *part.all), w->count, 0};
    for (size_t i = 0; i < w->count; i++) {
        part.all[i] = w->all[i];
        part.all[i].first = w->all[i].length * (int32_t)(i % 4) / 4;
        if (i + 1 == w->count) part.all[i].first = w->all[i].length - 1;
        part.rows += (size_t)(part.all[i].length - part.all[i].first);
    }
    results all = run_windows(d->lm, w, tap), some = run_windows(d->lm, &part, tap);
    for (size_t i = 0, row = 0, taken = 0; i < w->count; row += (size_t)w->all[i++].length) {
        size_t first = (size_t)part.all[i].first, count = (size_t)part.all[i].length - first;
        assert_rows(&some, taken, &all, row + first, count, F32_TOLERANCE);
        taken += count;
    }
    free(part.all);
    results_free(&all);
    results_free(&some);
}

// Every result asked for alone, each tap; with keys alone the model stops at the tap, and must be fit for use
// after.
static inline void compare_unwanted(fixture *d, kn_tap tap) {
    const windows *w = &d->golden.windows;
    results all = run_windows(d->lm, w, tap), less = results_make(d->lm, w->rows);
    OK(kn_lm_run(d->lm, w->all, w->count, tap, &(kn_lm_output){.keys = less.out.keys}));
    OK(kn_lm_run(d->lm, w->all, w->count, tap, &(kn_lm_output){.logprobs = less.out.logprobs}));
    OK(kn_lm_run(d->lm, w->all, w->count, tap, &(kn_lm_output){.entropies = less.out.entropies}));
    OK(kn_lm_run(d->lm, w->all, w->count, tap, &(kn_lm_output){.distribution = less.out.distribution}));
    assert_rows(&less, 0, &all, 0, w->rows, F32_TOLERANCE);
    results_free(&all);
    results_free(&less);
}

// ---------------------------------------------------------------- sessions

// Feeds the rest of a window in pieces of `piece` tokens; after each, the results are those of a whole run.
static inline void feed_in_pieces(kn_session *s, const results *all, const kn_window *w, size_t row,
                                  size_t piece, kn_tap tap) {
    size_t n = (size_t)w->length, v = all->vocabulary, d = all->width;
    float *distribution = test_alloc(v, sizeof *distribution), *key = test_alloc(d, sizeof *key), entropy;
    kn_lm_output out = {.distribution = distribution, .keys = key, .entropies = &entropy};
    for (size_t at = kn_session_length(s); at < n;) {
        size_t count = n - at < piece ? n - at : piece;
        OK(kn_session_feed(s, w->inputs + at, count, tap, &out));
        at += count;
        assert_int_equal(kn_session_length(s), at);
        assert_near("session: distribution", distribution, all->out.distribution + (row + at - 1) * v, v,
                    F32_TOLERANCE);
        assert_near("session: key", key, all->out.keys + (row + at - 1) * d, d, F32_TOLERANCE);
        assert_near("session: entropy", &entropy, all->out.entropies + row + at - 1, 1, F32_TOLERANCE);
    }
    free(distribution);
    free(key);
}

// Every token's results at once, in pieces: those of a whole run.
static inline void score_in_pieces(kn_session *s, const results *all, const kn_window *w, size_t row,
                                   size_t piece, kn_tap tap) {
    size_t n = (size_t)w->length, d = all->width;
    float *logprobs = test_alloc(n, sizeof *logprobs), *keys = test_alloc(n * d, sizeof *keys);
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < piece ? n - at : piece;
        kn_lm_output out = {.logprobs = logprobs + at, .keys = keys + at * d};
        OK(kn_session_score(s, w->inputs + at, w->targets + at, count, tap, &out));
    }
    assert_near("scored: log-probabilities", logprobs, all->out.logprobs + row, n, F32_TOLERANCE);
    assert_near("scored: keys", keys, all->out.keys + row * d, n * d, F32_TOLERANCE);
    free(logprobs);
    free(keys);
}

// ---------------------------------------------------------------- text

static inline kn_tokens encode(const kn_tokenizer *t, const char *text, size_t size) {
    kn_tokens tokens = {.with_offsets = true};
    OK(kn_tokenizer_encode(t, text, size, &tokens));
    for (size_t i = 0; i < tokens.count; i++) {
        assert_in_range(tokens.ids[i], 0, kn_tokenizer_size(t) - 1);
        assert_true(tokens.offsets[i] < size);
        if (i > 0) assert_true(tokens.offsets[i] >= tokens.offsets[i - 1]);
    }
    if (tokens.count > 0) assert_int_equal(tokens.offsets[0], 0);
    return tokens;
}

static const struct {
    const char *text;
    size_t size;
} texts[] = {
#define TEXT(literal)                                                                                        \
    { literal, sizeof(literal) - 1 }
    TEXT(""),
    TEXT(" "),
    TEXT("    "),
    TEXT("\n"),
    TEXT("a"),
    TEXT(" the cat"),
    TEXT("   the  cat   "),
    TEXT("the cat\n\nthe hat\r\n\tis"),
    TEXT("It's 1,000 ... they'll; <s></s><unk><0x41><|endoftext|>"),
    TEXT(
        "caf\xC3\xA9 na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 e\xCC\x81 \xC2\xA0 \xE2\x80\x94"),
    TEXT("zero \0 inside"), // a character like any other
#undef TEXT
};
enum { TEXTS = COUNT(texts) };

// ---------------------------------------------------------------- a model that lacks taps

static const int32_t few_tokens[] = {266, 116, 257, 32, 99, 264, 262, 258, 32, 104, 264};

// What one layer puts out is what the next one takes in.
static inline void other_taps_are_there(void **state) {
    (void)state;
    const int32_t length = 10;
    windows w = windows_make(few_tokens, few_tokens + 1, &length, 1);
    kn_lm *lm = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    const kn_tap outs[] = {{KN_TAP_OUTPUT, 0}, {KN_TAP_OUTPUT_NORM, 0}},
                 ins[] = {{KN_TAP_ATTENTION_RAW, 1}, {KN_TAP_ATTENTION, 1}},
                 rest[] = {{KN_TAP_ATTENTION_RAW, 0},
                           {KN_TAP_ATTENTION, 0},
                           {KN_TAP_OUTPUT, 1},
                           {KN_TAP_OUTPUT_NORM, 1}};
    for (size_t i = 0; i < 2; i++) {
        results a = run_windows(lm, &w, outs[i]), b = run_windows(lm, &w, ins[i]);
        assert_rows(&a, 0, &b, 0, w.rows, F32_TOLERANCE);
        results_free(&a);
        results_free(&b);
    }
    for (size_t i = 0; i < 4; i++) {
        double size = 0;
        results r = run_windows(lm, &w, rest[i]);
        for (size_t k = 0; k < r.rows * r.width; k++) size += fabs((double)r.out.keys[k]);
        assert_true(size > 1 && isfinite(size));
        results_free(&r);
    }
    free(w.all);
    kn_lm_close(lm);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

// In main: 77 where there is no llama.cpp.
#define RUN_WITH_LLAMA(tests)                                                                                \
    do {                                                                                                     \
        if (!kn_llama_release()) {                                                                           \
            print_message("skipped: built without llama.cpp\n");                                             \
            return 77;                                                                                       \
        }                                                                                                    \
        /* Its threads spin while they wait for each other: on a busy machine two are far slower than one.   \
         */                                                                                                  \
        if (kn_threads_set(1) != KNNLM_OK) return 1;                                                         \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                    \
    } while (0)

#endif
