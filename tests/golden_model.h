// The golden models of tests/golden, opened for a test: the model file, its parameters, and what torch
// answered.
#ifndef GOLDEN_MODEL_H
#define GOLDEN_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lm/native/config.h"
#include "reference_model.h"

#define GOLDEN_NAMES                                                                                         \
    { "adaptive", "gpt2", "plain", "cpu" }
enum { GOLDEN_COUNT = 4, GOLDEN_PATH = 512 };

// A call that must succeed; its message is the test's otherwise.
#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        knnlm_status assert_status_ = (call);                                                                \
        if (assert_status_ != KNNLM_OK) fail_msg("%s: %s", #call, knnlm_message());                          \
    } while (0)

typedef struct golden {
    const char *name;
    char path[GOLDEN_PATH]; // of the model
    kn_gguf *model, *answers;
    kn_config config;
    kn_layout layout;
    float *params;
    double *exact_params; // the same in f64
    size_t windows, rows, picked;
    const int32_t *inputs, *targets, *lengths, *picked_rows;
    const float *logprobs, *entropies, *distribution; // distribution: of the picked rows
    double loss;
} golden;

static inline void *test_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

static inline const void *golden_tensor(const kn_gguf *file, const char *name, size_t *count) {
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, name);
    if (!t) fail_msg("no golden tensor %s", name);
    if (count) *count = (size_t)(t->dims[0] * t->dims[1]);
    return t->data;
}

static inline void golden_read_answers(golden *g) {
    bool found;
    g->lengths = golden_tensor(g->answers, "lengths", &g->windows);
    g->inputs = golden_tensor(g->answers, "inputs", &g->rows);
    g->targets = golden_tensor(g->answers, "targets", NULL);
    g->picked_rows = golden_tensor(g->answers, "rows", &g->picked);
    g->logprobs = golden_tensor(g->answers, "logprobs", NULL);
    g->entropies = golden_tensor(g->answers, "entropies", NULL);
    g->distribution = golden_tensor(g->answers, "distribution", NULL);
    assert_ok(kn_gguf_get_f64(g->answers, "golden.loss", &g->loss, &found));
    assert_true(found);
}

static inline void golden_open(golden *g, const char *name) {
    char answers[GOLDEN_PATH];
    *g = (golden){.name = name};
    snprintf(g->path, sizeof g->path, "%s/tests/golden/%s.model.gguf", KN_SOURCE_DIR, name);
    snprintf(answers, sizeof answers, "%s/tests/golden/%s.golden.gguf", KN_SOURCE_DIR, name);
    assert_ok(kn_gguf_open(g->path, &g->model));
    assert_ok(kn_gguf_open(answers, &g->answers));
    assert_ok(kn_config_load(g->model, &g->config));
    assert_ok(kn_layout_init(&g->config, &g->layout));
    g->params = test_alloc(g->layout.total, sizeof *g->params);
    g->exact_params = test_alloc(g->layout.total, sizeof *g->exact_params);
    assert_ok(kn_model_load_params(g->model, &g->config, &g->layout, g->params));
    for (size_t i = 0; i < g->layout.total; i++) g->exact_params[i] = g->params[i];
    golden_read_answers(g);
}

static inline void golden_close(golden *g) {
    kn_gguf_close(g->model);
    kn_gguf_close(g->answers);
    kn_layout_free(&g->layout);
    free(g->params);
    free(g->exact_params);
}

static inline reference golden_reference(const golden *g) {
    return (reference){&g->config, &g->layout, g->exact_params};
}

// Largest difference of two arrays, relative to the largest magnitude of the second (at least `floor`): what
// an f32 computation gets wrong is in proportion to the row it stands in.
static inline double worst_difference(const float *a, const float *b, size_t n, double floor) {
    double worst = 0, size = floor;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= worst)) worst = difference; // a NaN is the worst of all
        size = fmax(size, fabs((double)b[i]));
    }
    return worst / size;
}

static inline void assert_close(const char *what, const float *a, const float *b, size_t n,
                                double tolerance) {
    double difference = worst_difference(a, b, n, 1e-3);
    if (getenv("KN_TEST_VERBOSE")) print_message("    %-40s %.2e\n", what, difference);
    if (!(difference <= tolerance))
        fail_msg("%s: differs by %.3g, %.3g allowed", what, difference, tolerance);
}

#endif
