// What the engine on llama.cpp refuses, and how: missing taps, encoders, damaged files, bad windows. It
// prints nothing.
#include "llama_kit.h"

#include <sys/stat.h>

// ---------------------------------------------------------------- a model that lacks taps

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
    void *data = test_alloc(*size, 1);
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
    fixture *d = *state;
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
static long long printed_by(const char *path, const fixture *d) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_taps_are_told),
        cmocka_unit_test(other_taps_are_there),
        cmocka_unit_test(encoders_are_refused),
        cmocka_unit_test(each_engine_has_its_files),
        cmocka_unit_test(truncated_files_are_refused),
        WITH_FIXTURE(bad_windows_are_refused),
        WITH_FIXTURE(nothing_is_printed),
    };
    RUN_WITH_LLAMA(tests);
}
