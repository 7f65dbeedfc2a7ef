// Sessions of the engine on llama.cpp give what windows give, for a Llama; test_llama_sessions.c has other
// kinds.
#include "llama_kit.h"

// ---------------------------------------------------------------- sessions

static void sessions_give_the_same(void **state) {
    fixture *d = *state;
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
            kn_session_cut(session, 0);
            score_in_pieces(session, &all, &w->all[i], row, pieces[p], taps[p]);
        }
        results_free(&all);
    }
    kn_session_close(session);
}

// After a cut, other tokens are read in place of those forgotten, which must leave no trace.
static void cut_tokens_leave_no_trace(void **state) {
    fixture *d = *state;
    const windows *w = &d->golden.windows;
    kn_window mixed = w->all[2];
    int32_t *inputs = test_alloc((size_t)mixed.length, sizeof *inputs);
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
    fixture *d = *state;
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

// Of f32 sums in series: 32, 8, 64 and 32 terms in a layer's attention, 32 and 64 in its feed-forward part,
// 32 in the head: with three layers 728 roundings of 2^-24, and as many on the other side.
static const double TOGETHER_TOLERANCE = 2 * 728 * 0x1p-24;

// A session that reads a window: a prompt, then a token at a time.
typedef struct reader {
    kn_session *session;
    size_t window, row;
} reader;

static reader reader_open(fixture *d, size_t window, size_t prompt) {
    const kn_window *all = d->golden.windows.all;
    reader r = {.window = window};
    for (size_t i = 0; i < window; i++) r.row += (size_t)all[i].length;
    OK(kn_session_open(d->lm, &r.session));
    OK(kn_session_feed(r.session, all[window].inputs, prompt, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    return r;
}

// One more token of each: every row is that of its own window.
static void step_together(const fixture *d, const results *all, const reader *readers, size_t count,
                          bool backwards) {
    kn_session *sessions[16];
    int32_t tokens[16];
    results got = results_make(d->lm, count);
    for (size_t i = 0; i < count; i++) {
        const reader *r = &readers[backwards ? count - 1 - i : i];
        sessions[i] = r->session;
        tokens[i] = d->golden.windows.all[r->window].inputs[kn_session_length(r->session)];
    }
    kn_lm_output wanted = {
        .distribution = got.out.distribution, .entropies = got.out.entropies, .keys = got.out.keys};
    OK(kn_sessions_feed(sessions, count, tokens, KN_TAP_DEFAULT, &wanted));
    for (size_t i = 0; i < count; i++) {
        const reader *r = &readers[backwards ? count - 1 - i : i];
        size_t row = r->row + kn_session_length(r->session) - 1, v = all->vocabulary, w = all->width;
        assert_near("together: distribution", got.out.distribution + i * v, all->out.distribution + row * v,
                    v, TOGETHER_TOLERANCE);
        assert_near("together: entropy", got.out.entropies + i, all->out.entropies + row, 1,
                    TOGETHER_TOLERANCE);
        assert_near("together: key", got.out.keys + i * w, all->out.keys + row * w, w, TOGETHER_TOLERANCE);
    }
    results_free(&got);
}

// Sessions step together while others come and go: who ends leaves a place that another one takes.
static void sessions_step_together(void **state) {
    fixture *d = *state;
    const windows *w = &d->golden.windows;
    results all = run_windows(d->lm, w, KN_TAP_DEFAULT);
    reader readers[16];
    size_t count = 0, opened = 0, most = 0;
    for (size_t step = 0; opened < 40 || count > 0; step++) {
        for (; opened < 40 && count < 1 + step % 12; opened++) {
            size_t window = opened % w->count, length = (size_t)w->all[window].length;
            if (length < 2) continue;
            readers[count++] = reader_open(d, window, 1 + opened % (length - 1));
        }
        most = count > most ? count : most;
        if (count) step_together(d, &all, readers, count, step % 2);
        for (size_t i = count; i-- > 0;) {
            if (kn_session_length(readers[i].session) < (size_t)w->all[readers[i].window].length) continue;
            kn_session_close(readers[i].session);
            readers[i] = readers[--count];
        }
    }
    assert_true(most >= 4);
    results_free(&all);
}

static void session_refuses_to_overflow(void **state) {
    fixture *d = *state;
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

// ---------------------------------------------------------------- a model that lacks taps

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
    float *key = test_alloc(all.width, sizeof *key);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(sessions_give_the_same),      WITH_FIXTURE(cut_tokens_leave_no_trace),
        WITH_FIXTURE(sessions_are_apart),          WITH_FIXTURE(sessions_step_together),
        WITH_FIXTURE(session_refuses_to_overflow), cmocka_unit_test(sessions_survive_a_missing_tap),
    };
    RUN_WITH_LLAMA(tests);
}
