// The engine on llama.cpp against NumPy (tests/golden/make_llama.py): log-probabilities, entropies,
// distributions, all taps of all layers, and the tokens of a text; then what must hold whatever the numbers
// are: threads, batches, `first`, sessions and unwanted results change nothing; and what is refused.
#include "expect.h"

#include "base/gguf.h"
#include "base/threads.h"
#include "lm/lm.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

// An array against one of the right numbers.
static void assert_near(const char *what, const float *a, const float *b, size_t n, double tolerance) {
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

static kn_lm *open_with(const char *path, knnlm_engine engine) {
    kn_lm *lm = NULL;
    OK(kn_lm_open(path, &(kn_lm_options){.precision = KNNLM_PRECISION_F32, .engine = engine}, &lm));
    assert_non_null(lm);
    return lm;
}

static void assert_refused(const char *path, knnlm_engine engine, knnlm_status status, const char *text) {
    kn_lm *lm = NULL;
    FAILS(status, text, kn_lm_open(path, &(kn_lm_options){.engine = engine}, &lm));
    assert_null(lm);
}

// Windows over tokens that lie one after another.
typedef struct windows {
    kn_window *all;
    size_t count, rows;
} windows;

static windows windows_make(const int32_t *inputs, const int32_t *targets, const int32_t *lengths,
                            size_t count) {
    windows w = {allocate(count, sizeof *w.all), count, 0};
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

static results results_make(const kn_lm *lm, size_t rows) {
    size_t v = (size_t)kn_lm_describe(lm)->vocabulary, d = (size_t)kn_lm_describe(lm)->key_width;
    return (results){.out = {.logprobs = allocate(rows, sizeof(float)),
                             .entropies = allocate(rows, sizeof(float)),
                             .distribution = allocate(rows * v, sizeof(float)),
                             .keys = allocate(rows * d, sizeof(float))},
                     .rows = rows,
                     .vocabulary = v,
                     .width = d};
}

static void results_free(results *r) {
    free(r->out.logprobs);
    free(r->out.entropies);
    free(r->out.distribution);
    free(r->out.keys);
}

static results run_windows(kn_lm *lm, const windows *w, kn_tap tap) {
    results r = results_make(lm, w->rows);
    OK(kn_lm_run(lm, w->all, w->count, tap, &r.out));
    return r;
}

// Rows [at, at + rows) of `all` are rows [from, from + rows) of `part`.
static void assert_rows(const results *part, size_t from, const results *all, size_t at, size_t rows,
                        double tolerance) {
    size_t v = all->vocabulary, d = all->width;
    assert_near("log-probabilities", part->out.logprobs + from, all->out.logprobs + at, rows, tolerance);
    assert_near("entropies", part->out.entropies + from, all->out.entropies + at, rows, tolerance);
    assert_near("distribution", part->out.distribution + from * v, all->out.distribution + at * v, rows * v,
                tolerance);
    assert_near("keys", part->out.keys + from * d, all->out.keys + at * d, rows * d, tolerance);
}

static void assert_same_bits(const results *a, const results *b) {
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->out.logprobs, b->out.logprobs, a->rows * sizeof(float));
    assert_memory_equal(a->out.entropies, b->out.entropies, a->rows * sizeof(float));
    assert_memory_equal(a->out.distribution, b->out.distribution, a->rows * a->vocabulary * sizeof(float));
    assert_memory_equal(a->out.keys, b->out.keys, a->rows * a->width * sizeof(float));
}

// ---------------------------------------------------------------- the golden model

typedef struct golden {
    kn_gguf *answers;
    windows windows;
    const int32_t *picked; // rows given in full
    size_t picked_count;
} golden;

static const void *tensor_of(const kn_gguf *file, const char *name, size_t *count) {
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, name);
    if (!t) fail_msg("no golden tensor %s", name);
    if (count) *count = (size_t)(t->dims[0] * t->dims[1]);
    return t->data;
}

static golden golden_open(void) {
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

static void golden_close(golden *g) {
    free(g->windows.all);
    kn_gguf_close(g->answers);
}

// The golden model opened with its answers, for a test.
typedef struct desk {
    golden golden;
    kn_lm *lm;
} desk;

static int desk_open(void **state) {
    desk *d = allocate(1, sizeof *d);
    d->golden = golden_open();
    d->lm = open_with(LLAMA, KNNLM_ENGINE_LLAMA);
    *state = d;
    return 0;
}

static int desk_close(void **state) {
    desk *d = *state;
    kn_lm_close(d->lm);
    golden_close(&d->golden);
    free(d);
    return 0;
}

// The picked rows of `all` (rows, width) against the golden tensor `name`.
static void compare_picked(const golden *g, const char *name, const float *all, size_t width,
                           double tolerance) {
    size_t count;
    const float *expected = tensor_of(g->answers, name, &count);
    assert_int_equal(count, g->picked_count * width);
    for (size_t i = 0; i < g->picked_count; i++)
        assert_near(name, all + (size_t)g->picked[i] * width, expected + i * width, width, tolerance);
}

static void compare_answers(const golden *g, const results *r, double tolerance) {
    assert_near("log-probabilities", r->out.logprobs, tensor_of(g->answers, "logprobs", NULL), r->rows,
                tolerance);
    assert_near("entropies", r->out.entropies, tensor_of(g->answers, "entropies", NULL), r->rows, tolerance);
    compare_picked(g, "distribution", r->out.distribution, r->vocabulary, tolerance);
}

static void answers_are_numpys(void **state) {
    desk *d = *state;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        for (int point = 0; point < TAPS; point++) {
            char name[32];
            results r = run_windows(d->lm, &d->golden.windows, (kn_tap){(kn_tap_point)point, layer});
            compare_answers(&d->golden, &r, F32_TOLERANCE);
            snprintf(name, sizeof name, "%s@%d", kn_tap_name((kn_tap_point)point), layer);
            compare_picked(&d->golden, name, r.out.keys, r.width, F32_TOLERANCE);
            results_free(&r);
        }
    }
}

// Whatever precision the engine chooses when nobody says.
static void defaults_are_near(void **state) {
    desk *d = *state;
    kn_lm *lm = NULL;
    OK(kn_lm_open(LLAMA, NULL, &lm));
    results r = run_windows(lm, &d->golden.windows, KN_TAP_DEFAULT);
    compare_answers(&d->golden, &r, F16_TOLERANCE);
    compare_picked(&d->golden, "ffn@2", r.out.keys, r.width, F16_TOLERANCE);
    results_free(&r);
    kn_lm_close(lm);
}

static uint64_t count_parameters(const char *path) {
    kn_gguf *file;
    uint64_t total = 0;
    OK(kn_gguf_open(path, &file));
    for (size_t i = 0; i < kn_gguf_tensor_count(file); i++) {
        const kn_gguf_tensor *t = kn_gguf_tensor_at(file, i);
        total += (uint64_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
    }
    kn_gguf_close(file);
    return total;
}

static void description_is_right(void **state) {
    desk *d = *state;
    struct stat file;
    kn_lm *automatic = open_with(LLAMA, KNNLM_ENGINE_AUTO);
    const kn_lm_info *info = kn_lm_describe(d->lm), *other = kn_lm_describe(automatic);
    assert_int_equal(stat(LLAMA, &file), 0);
    assert_string_equal(info->path, LLAMA);
    assert_string_equal(info->architecture, "llama");
    assert_string_equal(info->engine, other->engine);
    assert_string_equal(info->fingerprint, other->fingerprint);
    assert_int_equal(strlen(info->fingerprint), 32);
    assert_int_equal(info->vocabulary, kn_tokenizer_size(kn_lm_tokenizer(d->lm)));
    assert_int_equal(info->vocabulary, 362);
    assert_int_equal(info->width, 32);
    assert_int_equal(info->key_width, 32);
    assert_int_equal(info->layers, LAYERS);
    assert_int_equal(info->heads, 4);
    assert_int_equal(info->ffn, 64);
    assert_int_equal(info->context, 64);
    assert_int_equal(info->parameters, count_parameters(LLAMA));
    assert_int_equal(info->file_bytes, file.st_size);
    kn_lm_close(automatic);
}

// ---------------------------------------------------------------- what must not matter

static void threads_change_nothing(void **state) {
    desk *d = *state;
    results one = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    OK(kn_threads_set(2));
    results two = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    assert_same_bits(&two, &one);
    OK(kn_threads_set(1));
    results_free(&one);
    results_free(&two);
}

static void running_again_changes_nothing(void **state) {
    desk *d = *state;
    results once = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    results again = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    assert_same_bits(&again, &once);
    results_free(&once);
    results_free(&again);
}

static void other_windows_change_nothing(void **state) {
    desk *d = *state;
    const windows *w = &d->golden.windows;
    results all = run_windows(d->lm, w, KN_TAP_DEFAULT);
    for (size_t i = 0, row = 0; i < w->count; row += (size_t)w->all[i++].length) {
        windows single = {&w->all[i], 1, (size_t)w->all[i].length};
        results alone = run_windows(d->lm, &single, KN_TAP_DEFAULT);
        assert_rows(&alone, 0, &all, row, alone.rows, F32_TOLERANCE);
        results_free(&alone);
    }
    results_free(&all);
}

// To the last bit, at every length, with keys and values in f16 as usual: a store that was built in one go,
// in several or along with others is the same store.
static void company_changes_no_bit(void **state) {
    desk *d = *state;
    const kn_window *longest = &d->golden.windows.all[0];
    for (size_t i = 1; i < d->golden.windows.count; i++)
        if (d->golden.windows.all[i].length > longest->length) longest = &d->golden.windows.all[i];
    kn_lm *lm = NULL;
    OK(kn_lm_open(LLAMA, &(kn_lm_options){.engine = KNNLM_ENGINE_LLAMA}, &lm));
    for (int32_t n = 1; n < longest->length; n++) {
        kn_window pair[2] = {*longest, *longest};
        pair[0].length = n;
        pair[1].length = n + 1; // ran first, and side by side where that is not much longer
        windows both = {pair, 2, (size_t)(2 * n + 1)}, one = {pair, 1, (size_t)n};
        results together = run_windows(lm, &both, KN_TAP_DEFAULT),
                alone = run_windows(lm, &one, KN_TAP_DEFAULT);
        assert_rows(&together, 0, &alone, 0, alone.rows, 0);
        results_free(&together);
        results_free(&alone);
    }
    kn_lm_close(lm);
}

// More windows and more rows than llama.cpp takes at a time.
static void large_batches_change_nothing(void **state) {
    enum { TIMES = 50 };
    desk *d = *state;
    const windows *w = &d->golden.windows;
    const kn_tap tap = {KN_TAP_ATTENTION_RAW, -1};
    windows many = {allocate(TIMES * w->count, sizeof *many.all), TIMES * w->count, TIMES * w->rows};
    for (size_t i = 0; i < TIMES; i++) memcpy(many.all + i * w->count, w->all, w->count * sizeof *many.all);
    results once = run_windows(d->lm, w, tap), all = run_windows(d->lm, &many, tap);
    for (size_t i = 0; i < TIMES; i++) assert_rows(&all, i * w->rows, &once, 0, w->rows, F32_TOLERANCE);
    free(many.all);
    results_free(&once);
    results_free(&all);
}

// Windows of unequal lengths and firsts in one batch: the rows below `first` are missing, the others stay.
static void compare_firsts(desk *d, kn_tap tap) {
    const windows *w = &d->golden.windows;
    windows part = {allocate(w->count, sizeof *part.all), w->count, 0};
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

// The last layer is where llama.cpp itself leaves rows out, the others where the engine has to.
static void first_only_selects_rows(void **state) {
    for (int point = 0; point < TAPS; point++)
        for (int32_t layer = 0; layer < LAYERS; layer++)
            compare_firsts(*state, (kn_tap){(kn_tap_point)point, layer});
}

// Every result asked for alone, each tap; with keys alone the model stops at the tap, and must be fit for use
// after.
static void compare_unwanted(desk *d, kn_tap tap) {
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

static void unwanted_results_change_nothing(void **state) {
    for (int point = 0; point < TAPS; point++)
        for (int32_t layer = 0; layer < LAYERS; layer++)
            compare_unwanted(*state, (kn_tap){(kn_tap_point)point, layer});
}

static void keys_need_no_targets(void **state) {
    desk *d = *state;
    kn_window w = d->golden.windows.all[2];
    results all = results_make(d->lm, (size_t)w.length), keys = results_make(d->lm, (size_t)w.length);
    OK(kn_lm_run(d->lm, &w, 1, KN_TAP_DEFAULT, &all.out));
    w.targets = NULL;
    OK(kn_lm_run(d->lm, &w, 1, KN_TAP_DEFAULT, &(kn_lm_output){.keys = keys.out.keys}));
    assert_near("keys", keys.out.keys, all.out.keys, all.rows * all.width, F32_TOLERANCE);
    results_free(&all);
    results_free(&keys);
}

static void negative_layers_count_from_the_end(void **state) {
    desk *d = *state;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        char text[KN_TAP_TEXT], expected[KN_TAP_TEXT];
        kn_tap a = {KN_TAP_FFN_INPUT, layer}, b = {KN_TAP_FFN_INPUT, layer - LAYERS};
        results x = run_windows(d->lm, &d->golden.windows, a), y = run_windows(d->lm, &d->golden.windows, b);
        assert_same_bits(&x, &y);
        snprintf(expected, sizeof expected, "ffn@%d", layer);
        OK(kn_tap_print(d->lm, b, text));
        assert_string_equal(text, expected);
        results_free(&x);
        results_free(&y);
    }
}

// Two models of different shapes take turns.
static void models_are_apart(void **state) {
    desk *d = *state;
    const int32_t tokens[] = {266, 84, 257, 32, 99}, length = 4;
    windows few = windows_make(tokens, tokens + 1, &length, 1);
    kn_lm *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    kn_tap tap = {KN_TAP_OUTPUT, 0};
    results a = run_windows(d->lm, &d->golden.windows, tap), b = run_windows(other, &few, tap);
    for (int i = 0; i < 2; i++) {
        results c = run_windows(d->lm, &d->golden.windows, tap), e = run_windows(other, &few, tap);
        assert_same_bits(&c, &a);
        assert_same_bits(&e, &b);
        results_free(&c);
        results_free(&e);
    }
    kn_lm_close(other);
    results c = run_windows(d->lm, &d->golden.windows, tap);
    assert_same_bits(&c, &a);
    results_free(&a);
    results_free(&b);
    results_free(&c);
    free(few.all);
}

// ---------------------------------------------------------------- sessions

// Feeds the rest of a window in pieces of `piece` tokens; after each, the results are those of a whole run.
static void feed_in_pieces(kn_session *s, const results *all, const kn_window *w, size_t row, size_t piece,
                           kn_tap tap) {
    size_t n = (size_t)w->length, v = all->vocabulary, d = all->width;
    float *distribution = allocate(v, sizeof *distribution), *key = allocate(d, sizeof *key), entropy;
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

static void sessions_give_the_same(void **state) {
    desk *d = *state;
    const windows *w = &d->golden.windows;
    const size_t pieces[] = {1, 2, 7, 33, 64, 5};
    const kn_tap taps[] = {{KN_TAP_FFN_INPUT, -1},   {KN_TAP_OUTPUT, 0},        {KN_TAP_ATTENTION, -1},
                           {KN_TAP_OUTPUT_NORM, -1}, {KN_TAP_ATTENTION_RAW, 0}, {KN_TAP_FFN_INPUT_RAW, 1}};
    kn_session *session;
    OK(kn_session_open(d->lm, &session));
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        results all = run_windows(d->lm, w, taps[p]);
        for (size_t i = 0, row = 0; i < w->count; row += (size_t)w->all[i++].length) {
            kn_session_cut(session, 0);
            assert_int_equal(kn_session_length(session), 0);
            feed_in_pieces(session, &all, &w->all[i], row, pieces[p], taps[p]);
            // Forgetting the second half and reading it again leads to the same place.
            kn_session_cut(session, (size_t)w->all[i].length / 2);
            assert_int_equal(kn_session_length(session), w->all[i].length / 2);
            feed_in_pieces(session, &all, &w->all[i], row, 3, taps[p]);
        }
        results_free(&all);
    }
    kn_session_close(session);
}

// After a cut, other tokens are read in place of those forgotten, which must leave no trace.
static void cut_tokens_leave_no_trace(void **state) {
    desk *d = *state;
    const windows *w = &d->golden.windows;
    kn_window mixed = w->all[2];
    int32_t *inputs = allocate((size_t)mixed.length, sizeof *inputs);
    memcpy(inputs, w->all[4].inputs, (size_t)mixed.length * sizeof *inputs);
    memcpy(inputs, mixed.inputs, 10 * sizeof *inputs);
    mixed.inputs = inputs;
    windows single = {&mixed, 1, (size_t)mixed.length};
    results all = run_windows(d->lm, &single, KN_TAP_DEFAULT);
    kn_session *session;
    OK(kn_session_open(d->lm, &session));
    OK(kn_session_feed(session, w->all[2].inputs, (size_t)mixed.length, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    kn_session_cut(session, 10);
    feed_in_pieces(session, &all, &mixed, 0, 4, KN_TAP_DEFAULT);
    kn_session_close(session);
    results_free(&all);
    free(inputs);
}

// Two sessions take turns, with windows run between, and keys alone asked for between.
static void sessions_are_apart(void **state) {
    desk *d = *state;
    const windows *w = &d->golden.windows;
    results all = run_windows(d->lm, w, KN_TAP_DEFAULT);
    size_t first_row = w->rows - 64, second_row = first_row - 40;
    kn_session *a, *b;
    OK(kn_session_open(d->lm, &a));
    OK(kn_session_open(d->lm, &b));
    for (int32_t n = 8; n <= 40; n += 8) {
        kn_window first = w->all[5], second = w->all[4];
        first.length = second.length = n;
        feed_in_pieces(a, &all, &first, first_row, 2, KN_TAP_DEFAULT);
        feed_in_pieces(b, &all, &second, second_row, 3, KN_TAP_DEFAULT);
        results between = run_windows(d->lm, w, KN_TAP_DEFAULT);
        OK(kn_lm_run(d->lm, w->all, w->count, (kn_tap){KN_TAP_ATTENTION, 0},
                     &(kn_lm_output){.keys = between.out.keys}));
        results_free(&between);
    }
    kn_session_close(a);
    kn_session_close(b);
    results_free(&all);
}

static void session_refuses_to_overflow(void **state) {
    desk *d = *state;
    const kn_window *w = &d->golden.windows.all[5];
    const int32_t bad[] = {-1, kn_lm_describe(d->lm)->vocabulary};
    windows single = {d->golden.windows.all + 5, 1, 64};
    results all = run_windows(d->lm, &single, KN_TAP_DEFAULT);
    kn_session *session;
    OK(kn_session_open(d->lm, &session));
    OK(kn_session_feed(session, w->inputs, 60, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    FAILS(KNNLM_EINVAL, "context",
          kn_session_feed(session, w->inputs, 5, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    for (size_t i = 0; i < 2; i++)
        FAILS(KNNLM_EINVAL, "token",
              kn_session_feed(session, &bad[i], 1, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    assert_int_equal(kn_session_length(session), 60);
    feed_in_pieces(session, &all, w, 0, 4, KN_TAP_DEFAULT);
    kn_session_close(session);
    results_free(&all);
}

// ---------------------------------------------------------------- text

static kn_tokens encode(const kn_tokenizer *t, const char *text, size_t size) {
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

// decode(start, tokens) is the text.
static void assert_decoded(const kn_tokenizer *t, const kn_tokens *tokens, const char *text, size_t size) {
    int32_t *ids = allocate(tokens->count + 1, sizeof *ids);
    char *back = NULL;
    size_t back_size;
    ids[0] = kn_tokenizer_start(t);
    if (tokens->count > 0) memcpy(ids + 1, tokens->ids, tokens->count * sizeof *ids);
    OK(kn_tokenizer_decode(t, ids, tokens->count + 1, &back, &back_size));
    if (back_size != size || memcmp(back, text, size) != 0)
        fail_msg("\"%s\" came back as \"%s\" (%zu bytes)", text, back, back_size);
    assert_int_equal(back[back_size], 0);
    free(back);
    free(ids);
}

static void tokens_are_numpys(void **state) {
    desk *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    const char *text;
    bool found;
    size_t count;
    OK(kn_gguf_get_string(d->golden.answers, "golden.text", &text, &found));
    assert_true(found);
    const int32_t *ids = tensor_of(d->golden.answers, "tokens", &count);
    const int32_t *offsets = tensor_of(d->golden.answers, "offsets", NULL);
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tokens.ids[i], ids[i]);
        assert_int_equal(tokens.offsets[i], offsets[i]);
    }
    assert_decoded(t, &tokens, text, strlen(text));
    kn_tokens_free(&tokens);
}

// The pieces of a text and where they begin, written out.
static void assert_pieces(const kn_tokenizer *t, const char *text, const char *const *pieces,
                          const uint64_t *offsets, size_t count) {
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_int_equal(tokens.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(kn_tokenizer_piece(t, tokens.ids[i]), pieces[i]);
        assert_int_equal(tokens.offsets[i], offsets[i]);
    }
    kn_tokens_free(&tokens);
}

// A word of one piece begins at the space before it, but at the text's beginning, where there is none.
static void words_begin_where_they_stand(void **state) {
    desk *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    assert_pieces(t, "the cat was that cat", (const char *[]){"▁the", "▁cat", "▁was", "▁that", "▁cat"},
                  (uint64_t[]){0, 3, 7, 11, 16}, 5);
    // The space that is put before every text takes nothing away from those that the text has itself.
    assert_pieces(t, " the cat", (const char *[]){"▁", "▁the", "▁cat"}, (uint64_t[]){0, 0, 4}, 3);
    assert_pieces(t, "  the cat", (const char *[]){"▁▁", "▁the", "▁cat"}, (uint64_t[]){0, 1, 5}, 3);
    assert_pieces(t, "    ", (const char *[]){"▁▁▁▁", "▁"}, (uint64_t[]){0, 3}, 2);
}

// How many bytes of text a token stands for, by its piece: in byte-level vocabularies a character is a byte,
// in SentencePiece's only the sign for a space and "<0x41>" are.
static size_t bytes_of(const kn_tokenizer *t, int32_t id, bool byte_level) {
    const char *piece = kn_tokenizer_piece(t, id);
    size_t characters = 0, signs = 0;
    for (const char *p = piece; *p; p++) characters += ((unsigned char)*p & 0xC0) != 0x80;
    if (byte_level) return characters;
    if (strncmp(piece, "<0x", 3) == 0) return 1;
    for (const char *p = piece; (p = strstr(p, "▁")); p++) signs++;
    return strlen(piece) - signs * (strlen("▁") - 1);
}

// The tokens cover the text without a gap.
static void assert_laid(const kn_tokenizer *t, const kn_tokens *tokens, size_t size, bool byte_level) {
    size_t at = 0, before = byte_level ? 0 : 1; // the space put before it
    for (size_t i = 0; i < tokens->count; i++) {
        assert_int_equal(tokens->offsets[i], at > before ? at - before : 0);
        at += bytes_of(t, tokens->ids[i], byte_level);
    }
    if (size > 0) assert_int_equal(at - before, size);
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
enum { TEXTS = sizeof texts / sizeof *texts };

static void check_texts(const kn_tokenizer *t, bool byte_level) {
    for (size_t i = 0; i < TEXTS; i++) {
        kn_tokens tokens = encode(t, texts[i].text, texts[i].size);
        assert_laid(t, &tokens, texts[i].size, byte_level);
        assert_decoded(t, &tokens, texts[i].text, texts[i].size);
        if (texts[i].size == 0) assert_int_equal(tokens.count, 0);
        // Encoding appends, and one text knows nothing of the other.
        size_t once = tokens.count;
        OK(kn_tokenizer_encode(t, texts[i].text, texts[i].size, &tokens));
        assert_int_equal(tokens.count, 2 * once);
        if (once > 0) assert_memory_equal(tokens.ids, tokens.ids + once, once * sizeof *tokens.ids);
        if (once > 0) assert_int_equal(tokens.offsets[once], 0);
        kn_tokens_free(&tokens);
    }
}

static void check_long_text(const kn_tokenizer *t, bool byte_level) {
    const char line[] = "the cat was in the hat of Zo\xC3\xAB, and it  is that. 0123\n";
    size_t n = strlen(line), times = 3000;
    char *text = allocate(n * times + 1, 1);
    for (size_t i = 0; i < times; i++) memcpy(text + i * n, line, n);
    kn_tokens tokens = encode(t, text, n * times);
    assert_laid(t, &tokens, n * times, byte_level);
    assert_decoded(t, &tokens, text, n * times);
    kn_tokens_free(&tokens);
    free(text);
}

static void texts_come_back(void **state) {
    desk *d = *state;
    kn_lm *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    check_texts(kn_lm_tokenizer(d->lm), false);
    check_texts(kn_lm_tokenizer(other), true);
    check_long_text(kn_lm_tokenizer(d->lm), false);
    check_long_text(kn_lm_tokenizer(other), true);
    kn_lm_close(other);
}

// The sign that SentencePiece writes for a space is a space when it comes back; offsets are still the text's.
static void space_sign_is_a_space(void **state) {
    desk *d = *state;
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    const char text[] = "the▁the the▁cat";
    assert_pieces(t, text, (const char *[]){"▁the", "▁the", "▁the", "▁cat"}, (uint64_t[]){0, 3, 9, 13}, 4);
    kn_tokens tokens = encode(t, text, strlen(text));
    assert_decoded(t, &tokens, "the the the cat", 15);
    kn_tokens_free(&tokens);
}

// Bytes that are no UTF-8 are refused, or come back as they were.
static void check_invalid(const kn_tokenizer *t) {
    const char *const bad[] = {"\xFF",         "the \x80 cat", "the cat\xC3",      "\xE2\x96",
                               "\xE2\x82 the", "\xC0\xAF the", "\xED\xA0\x80 cat", "\xF4\x90\x80\x80",
                               "\xF0\x9F\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kn_tokens tokens = {.with_offsets = true};
        knnlm_status status = kn_tokenizer_encode(t, bad[i], strlen(bad[i]), &tokens);
        if (status == KNNLM_OK) {
            assert_decoded(t, &tokens, bad[i], strlen(bad[i]));
        } else {
            assert_int_equal(status, KNNLM_EDATA);
            assert_null(strchr(knnlm_message(), '\n'));
        }
        kn_tokens_free(&tokens);
    }
}

static void invalid_text_is_refused(void **state) {
    desk *d = *state;
    kn_lm *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    check_invalid(kn_lm_tokenizer(d->lm));
    check_invalid(kn_lm_tokenizer(other));
    kn_lm_close(other);
}

static void vocabulary_is_the_files(void **state) {
    desk *d = *state;
    kn_lm *again = open_with(LLAMA, KNNLM_ENGINE_AUTO), *other = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    int32_t size = kn_tokenizer_size(t), bad[] = {size, -1};
    char *text, mine[KN_FINGERPRINT], same[KN_FINGERPRINT], others[KN_FINGERPRINT];
    size_t bytes;
    assert_int_equal(kn_tokenizer_start(t), 1);
    assert_string_equal(kn_tokenizer_piece(t, 1), "<s>");
    assert_string_equal(kn_tokenizer_piece(t, 259), "▁t");
    for (int32_t i = 0; i < size; i++) assert_non_null(kn_tokenizer_piece(t, i));
    for (size_t i = 0; i < 2; i++) {
        assert_null(kn_tokenizer_piece(t, bad[i]));
        FAILS(KNNLM_EINVAL, "", kn_tokenizer_decode(t, &bad[i], 1, &text, &bytes));
    }
    kn_tokenizer_fingerprint(t, mine);
    kn_tokenizer_fingerprint(kn_lm_tokenizer(again), same);
    kn_tokenizer_fingerprint(kn_lm_tokenizer(other), others);
    assert_string_equal(mine, same);
    assert_string_not_equal(mine, others);
    assert_int_equal(kn_tokenizer_start(kn_lm_tokenizer(other)), 266);
    kn_lm_close(again);
    kn_lm_close(other);
}

// ---------------------------------------------------------------- a model that lacks taps

static const int32_t few_tokens[] = {266, 116, 257, 32, 99, 264, 262, 258, 32, 104, 264};

// The message names the file, and what may be asked for instead.
static void assert_no_tap(kn_lm *lm, const windows *w, kn_tap tap) {
    results r = results_make(lm, w->rows);
    FAILS(KNNLM_ENOTSUP, "parallel.model.gguf", kn_lm_run(lm, w->all, w->count, tap, &r.out));
    assert_non_null(strstr(knnlm_message(), "attention"));
    assert_non_null(strstr(knnlm_message(), "output-norm"));
    FAILS(KNNLM_ENOTSUP, "parallel.model.gguf",
          kn_lm_run(lm, w->all, w->count, tap, &(kn_lm_output){.keys = r.out.keys}));
    // Where no key is wanted, none is missed.
    OK(kn_lm_run(lm, w->all, w->count, tap, &(kn_lm_output){.logprobs = r.out.logprobs}));
    results_free(&r);
}

static void missing_taps_are_told(void **state) {
    (void)state;
    const int32_t length = 10;
    windows w = windows_make(few_tokens, few_tokens + 1, &length, 1);
    kn_lm *lm = open_with(PARALLEL, KNNLM_ENGINE_AUTO);
    assert_string_equal(kn_lm_describe(lm)->architecture, "falcon");
    for (int32_t layer = -2; layer < 2; layer++) {
        assert_no_tap(lm, &w, (kn_tap){KN_TAP_FFN_INPUT, layer});
        assert_no_tap(lm, &w, (kn_tap){KN_TAP_FFN_INPUT_RAW, layer});
    }
    free(w.all);
    kn_lm_close(lm);
}

// What one layer puts out is what the next one takes in.
static void other_taps_are_there(void **state) {
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

// A feed that fails has read nothing.
static void sessions_survive_a_missing_tap(void **state) {
    (void)state;
    const int32_t length = 10;
    const kn_tap there = {KN_TAP_OUTPUT, -1};
    windows w = windows_make(few_tokens, few_tokens + 1, &length, 1);
    kn_lm *lm = open_with(PARALLEL, KNNLM_ENGINE_LLAMA);
    results all = run_windows(lm, &w, there);
    kn_session *session;
    OK(kn_session_open(lm, &session));
    OK(kn_session_feed(session, few_tokens, 4, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    float *key = allocate(all.width, sizeof *key);
    FAILS(KNNLM_ENOTSUP, "parallel.model.gguf",
          kn_session_feed(session, few_tokens + 4, 3, KN_TAP_DEFAULT, &(kn_lm_output){.keys = key}));
    assert_int_equal(kn_session_length(session), 4);
    feed_in_pieces(session, &all, w.all, 0, 3, there);
    kn_session_close(session);
    free(key);
    results_free(&all);
    free(w.all);
    kn_lm_close(lm);
}

// ---------------------------------------------------------------- what is refused

static void encoders_are_refused(void **state) {
    (void)state;
    assert_refused(ENCODER, KNNLM_ENGINE_LLAMA, KNNLM_ENOTSUP, "encoder.model.gguf");
    assert_refused(ENCODER, KNNLM_ENGINE_AUTO, KNNLM_ENOTSUP, "encoder.model.gguf");
}

static void each_engine_has_its_files(void **state) {
    (void)state;
    assert_refused(LLAMA, KNNLM_ENGINE_NATIVE, KNNLM_ENOTSUP, "llama.model.gguf");
    assert_refused(PARALLEL, KNNLM_ENGINE_NATIVE, KNNLM_ENOTSUP, "parallel.model.gguf");
    assert_refused(GOLDEN "adaptive.model.gguf", KNNLM_ENGINE_LLAMA, KNNLM_ENOTSUP, "adaptive.model.gguf");
    for (int engine = KNNLM_ENGINE_AUTO; engine <= KNNLM_ENGINE_LLAMA; engine++) {
        assert_refused("no-such-file.gguf", (knnlm_engine)engine, KNNLM_EIO, "no-such-file.gguf");
        assert_refused(GOLDEN "llama.golden.gguf", (knnlm_engine)engine, KNNLM_EDATA, "llama.golden.gguf");
        assert_refused(GOLDEN "make_llama.py", (knnlm_engine)engine, KNNLM_EDATA, "make_llama.py");
    }
}

static void *read_model(size_t *size) {
    FILE *file = fopen(LLAMA, "rb");
    struct stat info;
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    *size = (size_t)info.st_size;
    void *data = allocate(*size, 1);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// Cut in the header, in the vocabulary, in the table of tensors, in their data, and by the last byte.
static void truncated_files_are_refused(void **state) {
    (void)state;
    char path[] = "test_llama_engine-XXXXXX";
    size_t size;
    char *data = read_model(&size);
    const size_t lengths[] = {0,    3,     4,     8,     23,       24,        100,     1000,
                              5000, 10000, 11000, 50000, size / 2, size - 64, size - 1};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_file(path, data, lengths[i]);
        assert_refused(path, KNNLM_ENGINE_LLAMA, KNNLM_EDATA, path);
        assert_refused(path, KNNLM_ENGINE_AUTO, KNNLM_EDATA, path);
    }
    write_file(path, data, size);
    kn_lm_close(open_with(path, KNNLM_ENGINE_LLAMA));
    assert_int_equal(unlink(path), 0);
    free(data);
}

static void bad_windows_are_refused(void **state) {
    desk *d = *state;
    kn_window w = d->golden.windows.all[1];
    const int32_t size = kn_lm_describe(d->lm)->vocabulary, bad[] = {-1, size, INT32_MAX};
    int32_t tokens[65] = {0};
    results r = results_make(d->lm, 65);
    for (size_t i = 0; i < 3; i++) {
        tokens[4] = bad[i];
        kn_window wrong = {.inputs = tokens, .targets = w.targets, .length = w.length};
        FAILS(KNNLM_EINVAL, "token", kn_lm_run(d->lm, &wrong, 1, KN_TAP_DEFAULT, &r.out));
    }
    tokens[4] = 0;
    kn_window longest = {.inputs = tokens, .targets = tokens, .length = 65};
    FAILS(KNNLM_EINVAL, "window", kn_lm_run(d->lm, &longest, 1, KN_TAP_DEFAULT, &r.out));
    longest.length = 64;
    OK(kn_lm_run(d->lm, &longest, 1, KN_TAP_DEFAULT, &r.out));
    FAILS(KNNLM_EINVAL, "layer", kn_lm_run(d->lm, &w, 1, (kn_tap){KN_TAP_OUTPUT, LAYERS}, &r.out));
    FAILS(KNNLM_EINVAL, "layer", kn_lm_run(d->lm, &w, 1, (kn_tap){KN_TAP_OUTPUT, -LAYERS - 1}, &r.out));
    OK(kn_lm_run(d->lm, NULL, 0, KN_TAP_DEFAULT, &r.out));
    results_free(&r);
}

// llama.cpp talks a lot; a library does not. Returns what was printed while `path` was opened and run.
static long long printed_by(const char *path, const desk *d) {
    FILE *file = tmpfile();
    kn_lm *lm = NULL;
    struct stat info;
    assert_non_null(file);
    fflush(stdout);
    fflush(stderr);
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    knnlm_status status = kn_lm_open(path, &(kn_lm_options){.engine = KNNLM_ENGINE_LLAMA}, &lm);
    if (status == KNNLM_OK) {
        results r = run_windows(lm, &d->golden.windows, KN_TAP_DEFAULT);
        results_free(&r);
        kn_lm_close(lm);
    }
    fflush(stdout);
    fflush(stderr);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    assert_int_equal(fstat(fileno(file), &info), 0);
    fclose(file);
    return info.st_size;
}

static void nothing_is_printed(void **state) {
    assert_int_equal(printed_by(LLAMA, *state), 0);
    assert_int_equal(printed_by(ENCODER, *state), 0);
    assert_int_equal(printed_by(GOLDEN "make_llama.py", *state), 0);
    assert_int_equal(printed_by(GOLDEN "adaptive.model.gguf", *state), 0);
}

// ---------------------------------------------------------------- two engines, one model

static void compare_engines(kn_lm *ours, kn_lm *theirs) {
    enum { ROWS = 80 };
    const kn_lm_info *a = kn_lm_describe(ours), *b = kn_lm_describe(theirs);
    const int32_t lengths[] = {1, 30, 9, 40};
    int32_t tokens[ROWS + 1];
    assert_string_not_equal(a->engine, b->engine);
    assert_string_equal(a->fingerprint, b->fingerprint);
    assert_true(a->vocabulary == b->vocabulary && a->layers == b->layers && a->width == b->width);
    assert_true(a->heads == b->heads && a->ffn == b->ffn && a->context == b->context);
    assert_int_equal(a->parameters, b->parameters);
    for (int32_t i = 0; i <= ROWS; i++) tokens[i] = i * 37 % a->vocabulary;
    windows w = windows_make(tokens, tokens + 1, lengths, 4);
    assert_int_equal(w.rows, ROWS);
    for (int point = 0; point < TAPS; point++) {
        for (int32_t layer = 0; layer < a->layers; layer++) {
            kn_tap tap = {(kn_tap_point)point, layer};
            results x = run_windows(ours, &w, tap), y = run_windows(theirs, &w, tap);
            assert_rows(&y, 0, &x, 0, ROWS, GELU_TOLERANCE);
            results_free(&x);
            results_free(&y);
        }
    }
    free(w.all);
}

static void assert_same_tokens(const kn_tokenizer *a, const kn_tokenizer *b) {
    assert_int_equal(kn_tokenizer_start(a), kn_tokenizer_start(b));
    for (size_t i = 0; i < TEXTS; i++) {
        kn_tokens x = encode(a, texts[i].text, texts[i].size), y = encode(b, texts[i].text, texts[i].size);
        assert_int_equal(x.count, y.count);
        for (size_t k = 0; k < x.count; k++) {
            assert_int_equal(x.ids[k], y.ids[k]);
            assert_int_equal(x.offsets[k], y.offsets[k]);
        }
        kn_tokens_free(&x);
        kn_tokens_free(&y);
    }
}

static void engines_agree(void **state) {
    (void)state;
    kn_lm *ours = open_with(SHARED, KNNLM_ENGINE_NATIVE), *theirs = open_with(SHARED, KNNLM_ENGINE_LLAMA);
    compare_engines(ours, theirs);
    assert_same_tokens(kn_lm_tokenizer(ours), kn_lm_tokenizer(theirs));
    kn_lm *automatic = open_with(SHARED, KNNLM_ENGINE_AUTO); // what is native stays native
    assert_string_equal(kn_lm_describe(automatic)->engine, kn_lm_describe(ours)->engine);
    kn_lm_close(automatic);
    kn_lm_close(ours);
    kn_lm_close(theirs);
}

// llama.cpp has no vocabularies of words: such a model is refused, unless the engine knows a way.
static void engines_agree_on_words(void **state) {
    (void)state;
    const char *path = GOLDEN "gpt2.model.gguf";
    kn_lm *theirs = NULL;
    const kn_lm_options options = {.precision = KNNLM_PRECISION_F32, .engine = KNNLM_ENGINE_LLAMA};
    if (kn_lm_open(path, &options, &theirs) != KNNLM_OK) {
        assert_refused(path, KNNLM_ENGINE_LLAMA, KNNLM_ENOTSUP, "gpt2.model.gguf");
        return;
    }
    kn_lm *ours = open_with(path, KNNLM_ENGINE_NATIVE);
    compare_engines(ours, theirs);
    kn_lm_close(ours);
    kn_lm_close(theirs);
}

int main(void) {
#define AT_DESK(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)
    const struct CMUnitTest tests[] = {
        AT_DESK(answers_are_numpys),
        AT_DESK(defaults_are_near),
        AT_DESK(description_is_right),
        AT_DESK(threads_change_nothing),
        AT_DESK(running_again_changes_nothing),
        AT_DESK(other_windows_change_nothing),
        AT_DESK(company_changes_no_bit),
        AT_DESK(large_batches_change_nothing),
        AT_DESK(first_only_selects_rows),
        AT_DESK(unwanted_results_change_nothing),
        AT_DESK(keys_need_no_targets),
        AT_DESK(negative_layers_count_from_the_end),
        AT_DESK(models_are_apart),
        AT_DESK(sessions_give_the_same),
        AT_DESK(cut_tokens_leave_no_trace),
        AT_DESK(sessions_are_apart),
        AT_DESK(session_refuses_to_overflow),
        AT_DESK(tokens_are_numpys),
        AT_DESK(words_begin_where_they_stand),
        AT_DESK(texts_come_back),
        AT_DESK(space_sign_is_a_space),
        AT_DESK(invalid_text_is_refused),
        AT_DESK(vocabulary_is_the_files),
        cmocka_unit_test(missing_taps_are_told),
        cmocka_unit_test(other_taps_are_there),
        cmocka_unit_test(sessions_survive_a_missing_tap),
        cmocka_unit_test(encoders_are_refused),
        cmocka_unit_test(each_engine_has_its_files),
        cmocka_unit_test(truncated_files_are_refused),
        AT_DESK(bad_windows_are_refused),
        AT_DESK(nothing_is_printed),
        cmocka_unit_test(engines_agree),
        cmocka_unit_test(engines_agree_on_words),
    };
    if (!kn_llama_release()) {
        print_message("skipped: built without llama.cpp\n");
        return 77;
    }
    // llama.cpp's threads spin where they wait for each other: on a busy machine two are slower than one by
    // far.
    if (kn_threads_set(1) != KNNLM_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
