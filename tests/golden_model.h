// The golden models of tests/golden, opened for a test: the model file, its parameters, and what torch
// answered.
#ifndef GOLDEN_MODEL_H
#define GOLDEN_MODEL_H

#include "expect.h"
#include "lm/native/config.h"
#include "lm/native/reference.h"

#include <math.h>
#include <stdio.h>

#define GOLDEN_NAMES                                                                                         \
    { "adaptive", "gpt2", "plain", "cpu" }
enum { GOLDEN_COUNT = 4, GOLDEN_PATH = 512 };

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
    OK(kn_gguf_get_f64(g->answers, "golden.loss", &g->loss, &found));
    assert_true(found);
}

static inline void golden_open(golden *g, const char *name) {
    char answers[GOLDEN_PATH];
    *g = (golden){.name = name};
    snprintf(g->path, sizeof g->path, "%s/tests/golden/%s.model.gguf", KN_SOURCE_DIR, name);
    snprintf(answers, sizeof answers, "%s/tests/golden/%s.golden.gguf", KN_SOURCE_DIR, name);
    OK(kn_gguf_open(g->path, &g->model));
    OK(kn_gguf_open(answers, &g->answers));
    OK(kn_config_load(g->model, &g->config));
    OK(kn_layout_init(&g->config, &g->layout));
    g->params = test_alloc(g->layout.total, sizeof *g->params);
    g->exact_params = test_alloc(g->layout.total, sizeof *g->exact_params);
    OK(kn_model_load_params(g->model, &g->config, &g->layout, g->params));
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

static inline kn_reference golden_reference(const golden *g) {
    return (kn_reference){&g->config, &g->layout, g->exact_params};
}

static inline double reference_loss(const kn_reference *r, const int32_t *inputs, const int32_t *targets,
                                    int length) {
    double loss;
    OK(kn_reference_loss(r, inputs, targets, length, &loss));
    return loss;
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
