// The engine on llama.cpp: what must not matter. Threads, batches, other windows, `first` and unwanted
// results change nothing.
#include "llama_kit.h"

// ---------------------------------------------------------------- models, windows, results

static void assert_same_bits(const results *a, const results *b) {
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->out.logprobs, b->out.logprobs, a->rows * sizeof(float));
    assert_memory_equal(a->out.entropies, b->out.entropies, a->rows * sizeof(float));
    assert_memory_equal(a->out.distribution, b->out.distribution, a->rows * a->vocabulary * sizeof(float));
    assert_memory_equal(a->out.keys, b->out.keys, a->rows * a->width * sizeof(float));
}

// ---------------------------------------------------------------- what must not matter

static void threads_change_nothing(void **state) {
    fixture *d = *state;
    results one = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    OK(kn_threads_set(2));
    results two = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    assert_same_bits(&two, &one);
    OK(kn_threads_set(1));
    results_free(&one);
    results_free(&two);
}

static void running_again_changes_nothing(void **state) {
    fixture *d = *state;
    results once = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    results again = run_windows(d->lm, &d->golden.windows, KN_TAP_DEFAULT);
    assert_same_bits(&again, &once);
    results_free(&once);
    results_free(&again);
}

static void other_windows_change_nothing(void **state) {
    fixture *d = *state;
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
    fixture *d = *state;
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

// The last layer is where llama.cpp itself leaves rows out, the others where the engine has to.
static void first_only_selects_rows(void **state) {
    for (int point = 0; point < TAPS; point++)
        for (int32_t layer = 0; layer < LAYERS; layer++)
            compare_firsts(*state, (kn_tap){(kn_tap_point)point, layer});
}

static void unwanted_results_change_nothing(void **state) {
    for (int point = 0; point < TAPS; point++)
        for (int32_t layer = 0; layer < LAYERS; layer++)
            compare_unwanted(*state, (kn_tap){(kn_tap_point)point, layer});
}

static void keys_need_no_targets(void **state) {
    fixture *d = *state;
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
    fixture *d = *state;
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
    fixture *d = *state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(threads_change_nothing),
        WITH_FIXTURE(running_again_changes_nothing),
        WITH_FIXTURE(other_windows_change_nothing),
        WITH_FIXTURE(company_changes_no_bit),
        WITH_FIXTURE(large_batches_change_nothing),
        WITH_FIXTURE(first_only_selects_rows),
        WITH_FIXTURE(unwanted_results_change_nothing),
        WITH_FIXTURE(keys_need_no_targets),
        WITH_FIXTURE(negative_layers_count_from_the_end),
        WITH_FIXTURE(models_are_apart),
    };
    RUN_WITH_LLAMA(tests);
}
