// Sessions and long windows of models that remember otherwise than a Llama does: recurrent ones, whose state
// cannot forget a part, hybrids of both kinds, and those that attend to a sliding window. They give what
// windows give. tests/golden/make_archs.py makes the models, with NumPy: without it the test is skipped.
#include "expect.h"

#include "base/threads.h"
#include "lm/lm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PYTHON "PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "
#define TESTS KN_SOURCE_DIR "/tests/"

// Attention windows are 8 tokens in gemma3 and mellum, contexts 64, in the long ones 4096.
static const char *const models[] = {"mamba", "jamba", "falcon-h1", "gemma3", "mellum", "qwen2moe"};
enum { MODELS = sizeof models / sizeof *models, CONTEXT = 64, LONG = 1500 };

// Rounding; GELU, of the Gemma, is looked up in a table of f16.
static const double TOLERANCE = 1e-4, GELU_TOLERANCE = 2e-3;

static char folder[] = "/tmp/knnlm-sessions-XXXXXX";

static bool command(const char *format, const char *a, const char *b) {
    char text[1024];
    int n = snprintf(text, sizeof text, format, folder, a, folder, b, b);
    return n > 0 && n < (int)sizeof text && system(text) == 0;
}

static bool make_models(void) {
    bool made = command(PYTHON TESTS "golden/make_archs.py %s", "", "");
    for (size_t i = 0; made && i < MODELS; i++)
        made = command(PYTHON TESTS "gguf_edit.py %s/%s.gguf %s/%s-long.gguf %s.context_length=4096",
                       models[i], models[i]);
    return made;
}

// ---------------------------------------------------------------- a model, a text, what windows give

typedef struct fixture {
    kn_lm *lm;
    kn_tap tap;
    double tolerance;
    size_t vocabulary, width, length;
    int32_t *tokens;
    float *distribution, *keys; // of the whole text in a window
} fixture;

static kn_lm *open_model(const char *name, const char *kind) {
    char path[256];
    kn_lm *lm = NULL;
    snprintf(path, sizeof path, "%s/%s%s.gguf", folder, name, kind);
    OK(kn_lm_open(path, &(kn_lm_options){.precision = KNNLM_PRECISION_F32, .engine = KNNLM_ENGINE_LLAMA},
                  &lm));
    return lm;
}

static int32_t *make_tokens(size_t count, size_t vocabulary, uint32_t seed) {
    int32_t *tokens = test_alloc(count, sizeof *tokens);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        tokens[i] = (int32_t)((seed >> 8) % vocabulary);
    }
    return tokens;
}

static void run_text(fixture *d) {
    kn_window w = {.inputs = d->tokens, .length = (int32_t)d->length};
    OK(kn_lm_run(d->lm, &w, 1, d->tap, &(kn_lm_output){.distribution = d->distribution, .keys = d->keys}));
}

static fixture fixture_open(const char *name, const char *kind, kn_tap tap, size_t length) {
    fixture d = {.lm = open_model(name, kind), .tap = tap, .length = length};
    d.tolerance = strcmp(name, "gemma3") == 0 ? GELU_TOLERANCE : TOLERANCE;
    d.vocabulary = (size_t)kn_lm_describe(d.lm)->vocabulary;
    d.width = (size_t)kn_lm_describe(d.lm)->key_width;
    d.tokens = make_tokens(length, d.vocabulary, 1);
    d.distribution = test_alloc(length * d.vocabulary, sizeof(float));
    d.keys = test_alloc(length * d.width, sizeof(float));
    run_text(&d);
    return d;
}

static void fixture_close(fixture *d) {
    free(d->tokens);
    free(d->distribution);
    free(d->keys);
    kn_lm_close(d->lm);
}

static void assert_near(const fixture *d, const char *what, size_t at, const float *a, const float *b,
                        size_t n) {
    double worst = 0, size = 1e-3;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= worst)) worst = difference; // a NaN is the worst of all
        size = fmax(size, fabs((double)b[i]));
    }
    if (!(worst / size <= d->tolerance))
        fail_msg("%s: %s at %zu differs by %.3g, %.3g allowed", kn_lm_describe(d->lm)->architecture, what, at,
                 worst / size, d->tolerance);
}

static void assert_row(const fixture *d, size_t at, const float *distribution, const float *key) {
    assert_near(d, "distribution", at, distribution, d->distribution + at * d->vocabulary, d->vocabulary);
    assert_near(d, "key", at, key, d->keys + at * d->width, d->width);
}

// Feeds the text up to `end` in pieces; after each, the results are those of the window.
static void feed(const fixture *d, kn_session *s, size_t end, size_t piece) {
    float *distribution = test_alloc(d->vocabulary, sizeof(float)),
          *key = test_alloc(d->width, sizeof(float));
    while (kn_session_length(s) < end) {
        size_t at = kn_session_length(s), n = end - at < piece ? end - at : piece;
        OK(kn_session_feed(s, d->tokens + at, n, d->tap,
                           &(kn_lm_output){.distribution = distribution, .keys = key}));
        assert_int_equal(kn_session_length(s), at + n);
        assert_row(d, at + n - 1, distribution, key);
    }
    free(distribution);
    free(key);
}

static const kn_tap taps[] = {{KN_TAP_ATTENTION, 0},
                              {KN_TAP_OUTPUT, 1},
                              {KN_TAP_OUTPUT, -1},
                              {KN_TAP_OUTPUT_NORM, -1},
                              {KN_TAP_ATTENTION_RAW, 2}};
enum { TAPS = sizeof taps / sizeof *taps };

// ---------------------------------------------------------------- tests

static void sessions_give_what_windows_give(void **state) {
    const size_t pieces[] = {1, 3, 7, 64, 20};
    (void)state;
    for (size_t i = 0; i < MODELS; i++)
        for (size_t t = 0; t < TAPS; t++) {
            fixture d = fixture_open(models[i], "", taps[t], CONTEXT);
            kn_session *s;
            OK(kn_session_open(d.lm, &s));
            feed(&d, s, CONTEXT, pieces[t]);
            kn_session_close(s);
            fixture_close(&d);
        }
}

static void cut_sessions_go_on(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        fixture d = fixture_open(models[i], "", (kn_tap){KN_TAP_OUTPUT, -1}, CONTEXT);
        kn_session *s;
        OK(kn_session_open(d.lm, &s));
        feed(&d, s, 40, 40);
        const size_t cuts[] = {39, 20, 3, 30,
                               0,  1,  50}; // farther back than the attention's window, and not at all
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            size_t length = kn_session_length(s);
            kn_session_cut(s, cuts[c]);
            length = cuts[c] < length ? cuts[c] : length;
            assert_int_equal(kn_session_length(s), length);
            feed(&d, s, length + 14 < CONTEXT ? length + 14 : CONTEXT, c % 2 ? 1 : 5);
        }
        // Twice in a row, with nothing read between.
        kn_session_cut(s, 30);
        kn_session_cut(s, 11);
        feed(&d, s, CONTEXT, 9);
        kn_session_close(s);
        fixture_close(&d);
    }
}

// What is forgotten leaves no trace: other tokens were there.
static void cut_tokens_leave_no_trace(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        fixture d = fixture_open(models[i], "", (kn_tap){KN_TAP_OUTPUT_NORM, -1}, CONTEXT);
        int32_t *others = make_tokens(CONTEXT, d.vocabulary, 77);
        kn_session *s;
        OK(kn_session_open(d.lm, &s));
        for (size_t kept = 0; kept < 40; kept += 13) {
            kn_session_cut(s, 0);
            feed(&d, s, kept, 6);
            OK(kn_session_feed(s, others, CONTEXT - kept, d.tap, &(kn_lm_output){0}));
            kn_session_cut(s, kept);
            feed(&d, s, CONTEXT, 10);
        }
        kn_session_close(s);
        free(others);
        fixture_close(&d);
    }
}

// Two sessions take turns, and windows run between, with keys alone as well.
static void sessions_are_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        fixture d = fixture_open(models[i], "", (kn_tap){KN_TAP_ATTENTION, 1}, CONTEXT);
        kn_window w = {.inputs = d.tokens + 5, .length = 31};
        float *keys = test_alloc(31 * d.width, sizeof(float));
        kn_session *a, *b;
        OK(kn_session_open(d.lm, &a));
        OK(kn_session_open(d.lm, &b));
        for (size_t end = 8; end <= 48; end += 8) {
            feed(&d, a, end, 2);
            feed(&d, b, end - 3, 5);
            OK(kn_lm_run(d.lm, &w, 1, d.tap, &(kn_lm_output){.keys = keys}));
        }
        kn_session_close(a);
        kn_session_close(b);
        free(keys);
        fixture_close(&d);
    }
}

// Sessions, each with a text of its own and what windows give of it.
enum { TOGETHER = 4 };
typedef struct company {
    kn_session *sessions[TOGETHER];
    int32_t *tokens[TOGETHER];
    float *distribution[TOGETHER], *keys[TOGETHER];
} company;

static company company_open(fixture *d, size_t length) {
    company c;
    for (size_t i = 0; i < TOGETHER; i++) {
        c.tokens[i] = make_tokens(length, d->vocabulary, (uint32_t)(10 + i));
        c.distribution[i] = test_alloc(length * d->vocabulary, sizeof(float));
        c.keys[i] = test_alloc(length * d->width, sizeof(float));
        kn_window w = {.inputs = c.tokens[i], .length = (int32_t)length};
        OK(kn_lm_run(d->lm, &w, 1, d->tap,
                     &(kn_lm_output){.distribution = c.distribution[i], .keys = c.keys[i]}));
        OK(kn_session_open(d->lm, &c.sessions[i]));
    }
    return c;
}

static void company_close(company *c) {
    for (size_t i = 0; i < TOGETHER; i++) {
        if (c->sessions[i]) kn_session_close(c->sessions[i]);
        free(c->tokens[i]);
        free(c->distribution[i]);
        free(c->keys[i]);
    }
}

// Those that are open take a step.
static void company_step(const fixture *d, const company *c) {
    kn_session *sessions[TOGETHER];
    int32_t tokens[TOGETHER];
    size_t numbers[TOGETHER], n = 0;
    float *distribution = test_alloc(TOGETHER * d->vocabulary, sizeof(float)),
          *keys = test_alloc(TOGETHER * d->width, sizeof(float));
    for (size_t i = TOGETHER; i-- > 0;) {
        if (!c->sessions[i]) continue;
        numbers[n] = i;
        sessions[n] = c->sessions[i];
        tokens[n++] = c->tokens[i][kn_session_length(c->sessions[i])];
    }
    OK(kn_sessions_feed(sessions, n, tokens, d->tap,
                        &(kn_lm_output){.distribution = distribution, .keys = keys}));
    for (size_t j = 0; j < n; j++) {
        size_t i = numbers[j], at = kn_session_length(sessions[j]) - 1;
        assert_near(d, "distribution in company", at, distribution + j * d->vocabulary,
                    c->distribution[i] + at * d->vocabulary, d->vocabulary);
        assert_near(d, "key in company", at, keys + j * d->width, c->keys[i] + at * d->width, d->width);
    }
    free(distribution);
    free(keys);
}

// Prompts of several lengths, then steps together; one leaves, another comes back to its beginning. In long
// ones sessions outgrow the room that they have at first, one after another.
static void sessions_step_together(void **state) {
    const size_t lengths[] = {CONTEXT, 1040}, prompts[][TOGETHER] = {{1, 30, 12, 7}, {1019, 3, 1017, 500}};
    (void)state;
    for (size_t i = 0; i < MODELS; i++)
        for (size_t kind = 0; kind < 2; kind++) {
            fixture d = fixture_open(models[i], kind ? "-long" : "", (kn_tap){KN_TAP_OUTPUT, -1}, CONTEXT);
            company c = company_open(&d, lengths[kind]);
            for (size_t j = 0; j < TOGETHER; j++)
                OK(kn_session_feed(c.sessions[j], c.tokens[j], prompts[kind][j], d.tap, &(kn_lm_output){0}));
            for (size_t step = 0; step < 12; step++) {
                company_step(&d, &c);
                if (step == 4) kn_session_cut(c.sessions[3], 2);
                if (step != 7) continue;
                kn_session_close(c.sessions[1]);
                c.sessions[1] = NULL;
            }
            company_close(&c);
            fixture_close(&d);
        }
}

// A window and a session longer than llama.cpp takes at a time; with keys alone the model stops at the tap.
static void long_texts_go_through_in_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        fixture d = fixture_open(models[i], "-long", taps[i % 3], LONG);
        float *keys = test_alloc(LONG * d.width, sizeof(float));
        kn_window w = {.inputs = d.tokens, .length = LONG};
        OK(kn_lm_run(d.lm, &w, 1, d.tap, &(kn_lm_output){.keys = keys}));
        assert_memory_equal(keys, d.keys, LONG * d.width * sizeof *keys);
        w.first = LONG - 1;
        OK(kn_lm_run(d.lm, &w, 1, d.tap, &(kn_lm_output){.keys = keys}));
        assert_near(&d, "last key", LONG - 1, keys, d.keys + (LONG - 1) * d.width, d.width);
        kn_session *s;
        OK(kn_session_open(d.lm, &s));
        feed(&d, s, LONG - 10, 700);
        kn_session_cut(s, LONG - 20);
        feed(&d, s, LONG, 15);
        kn_session_close(s);
        free(keys);
        fixture_close(&d);
    }
}

// What a window gives does not depend on those beside it, to the last bit; its first rows may be unwanted.
static void company_changes_no_bit(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        fixture d = fixture_open(models[i], "", (kn_tap){KN_TAP_OUTPUT, -1}, CONTEXT);
        float *alone = test_alloc(CONTEXT * d.width, sizeof(float)),
              *together = test_alloc(4 * CONTEXT * d.width, sizeof(float));
        for (int32_t n = 1; n < CONTEXT - 1; n += 3) {
            kn_window w[] = {{.inputs = d.tokens, .length = n},
                             {.inputs = d.tokens + 1, .length = n + 1, .first = n / 2},
                             {.inputs = d.tokens, .length = n, .first = n - 1},
                             {.inputs = d.tokens + 2, .length = 1 + n / 2}};
            size_t row = 0;
            OK(kn_lm_run(d.lm, w, 4, d.tap, &(kn_lm_output){.keys = together}));
            for (size_t j = 0; j < 4; j++) {
                size_t rows = (size_t)(w[j].length - w[j].first);
                OK(kn_lm_run(d.lm, &w[j], 1, d.tap, &(kn_lm_output){.keys = alone}));
                if (memcmp(alone, together + row * d.width, rows * d.width * sizeof *alone) != 0)
                    fail_msg("%s: %d tokens, the last %zu asked for: not the same alone", models[i],
                             w[j].length, rows);
                row += rows;
            }
        }
        free(alone);
        free(together);
        fixture_close(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_give_what_windows_give), cmocka_unit_test(cut_sessions_go_on),
        cmocka_unit_test(cut_tokens_leave_no_trace),       cmocka_unit_test(sessions_are_apart),
        cmocka_unit_test(sessions_step_together),          cmocka_unit_test(long_texts_go_through_in_pieces),
        cmocka_unit_test(company_changes_no_bit),
    };
    if (!kn_llama_release() || !kn_llama_folder() ||
        system("/usr/bin/python3 -c 'import numpy' 2>/dev/null")) {
        print_message("skipped: no llama.cpp, or no python3 with NumPy to make the models\n");
        return 77;
    }
    // llama.cpp's threads spin where they wait for each other: on a busy machine two are slower than one by
    // far.
    if (!mkdtemp(folder) || kn_threads_set(1) != KNNLM_OK) return 1;
    int failures = make_models() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    if (!command("rm -r %s", "", "")) failures++;
    return failures;
}
