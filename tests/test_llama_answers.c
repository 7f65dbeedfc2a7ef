// The engine on llama.cpp against NumPy (tests/golden/make_llama.py) and against our own engine:
// probabilities, entropies, distributions, all taps of all layers.
#include "llama_kit.h"

#include <sys/stat.h>

// ---------------------------------------------------------------- the golden model

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
    fixture *d = *state;
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
    fixture *d = *state;
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
    fixture *d = *state;
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
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(answers_are_numpys),         WITH_FIXTURE(defaults_are_near),
        WITH_FIXTURE(description_is_right),       cmocka_unit_test(engines_agree),
        cmocka_unit_test(engines_agree_on_words),
    };
    RUN_WITH_LLAMA(tests);
}
