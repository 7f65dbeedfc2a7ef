// Muon's update of a matrix: an orthogonal direction, of AdamW's size, against the sign of the gradient.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct setup {
    kn_config config;
    kn_layout layout;
    float *params, *before, *grads;
} setup;

static void init(setup *s) {
    assert_int_equal(kn_config_preset("tiny", &s->config), KNNLM_OK);
    s->config.layers = 1;
    kn_config_set_vocabulary(&s->config, 50);
    assert_int_equal(kn_layout_init(&s->config, &s->layout), KNNLM_OK);
    s->params = kn_alloc(s->layout.total, sizeof(float));
    s->before = kn_alloc(s->layout.total, sizeof(float));
    s->grads = kn_alloc(s->layout.total, sizeof(float));
    kn_layout_fill(&s->config, &s->layout, 1, s->params);
    memcpy(s->before, s->params, s->layout.total * sizeof(float));
    kn_random random = {7};
    for (size_t i = 0; i < s->layout.total; i++) s->grads[i] = (float)kn_random_normal(&random);
}

static void finish(setup *s) {
    kn_layout_free(&s->layout);
    free(s->params);
    free(s->before);
    free(s->grads);
}

static const kn_optimizer_options options = {
    KNNLM_OPTIMIZER_MUON, 0.9f, 0.99f, 1e-8f, 0.0f, 0.95f, 0.0f, 0.0f};

static void update(setup *s, double rate) {
    kn_optimizer o;
    double norm;
    assert_int_equal(kn_optimizer_init(&o, &options, &s->layout, kn_math_kernels(KNNLM_PRECISION_F32)),
                     KNNLM_OK);
    assert_int_equal(kn_optimizer_update(&o, s->params, s->grads, rate, &norm), KNNLM_OK);
    assert_true(norm > 0);
    kn_optimizer_free(&o);
}

// The Gram matrix of the shorter side of (change / step): singular values between .6 and 1.3 put |G x| / |x|
// there squared.
static void assert_orthogonal(const float *change, size_t rows, size_t columns, double step) {
    size_t n = rows < columns ? rows : columns, m = rows < columns ? columns : rows;
    kn_random random = {3};
    for (int trial = 0; trial < 5; trial++) {
        double x[512], sum = 0, length = 0;
        for (size_t i = 0; i < n; i++) x[i] = kn_random_normal(&random);
        for (size_t j = 0; j < m; j++) {
            double y = 0;
            for (size_t i = 0; i < n; i++) y += x[i] * (double)change[rows < columns ? i * m + j : j * n + i];
            sum += y * y;
        }
        for (size_t i = 0; i < n; i++) length += x[i] * x[i];
        double stretch = sqrt(sum / length) / step;
        assert_true(stretch > 0.6 && stretch < 1.3);
    }
}

static void updates_are_orthogonal(void **state) {
    setup s;
    const double rate = 0.01;
    (void)state;
    init(&s);
    update(&s, rate);
    for (size_t i = 0; i < s.layout.count; i++) {
        const kn_param *p = &s.layout.params[i];
        if (!kn_muon_takes(p)) continue;
        size_t pieces = strstr(p->name, "attn_qkv") ? 3 : 1, rows = p->rows / pieces, n = rows * p->columns;
        float *change = kn_alloc(n, sizeof *change);
        for (size_t piece = 0; piece < pieces; piece++) {
            double along = 0, longer = (double)(rows > p->columns ? rows : p->columns);
            size_t at = p->offset + piece * n;
            for (size_t j = 0; j < n; j++) {
                change[j] = s.params[at + j] - s.before[at + j];
                along += (double)change[j] * (double)s.grads[at + j];
            }
            assert_orthogonal(change, rows, p->columns, rate * 0.2 * sqrt(longer));
            assert_true(along < 0); // downhill
        }
        free(change);
    }
    finish(&s);
}

// Embeddings and vectors are AdamW's: the first update of each entry is the rate, against the gradient's
// sign.
static void the_rest_is_adam(void **state) {
    setup s;
    (void)state;
    init(&s);
    update(&s, 0.01);
    for (size_t i = 0; i < s.layout.count; i++) {
        const kn_param *p = &s.layout.params[i];
        if (kn_muon_takes(p)) continue;
        for (size_t j = p->offset; j < p->offset + p->rows * p->columns; j++)
            if (fabsf(s.grads[j]) > 1e-3f)
                assert_true(fabs((double)(s.params[j] - s.before[j]) + (s.grads[j] > 0 ? 0.01 : -0.01)) <
                            1e-5);
    }
    finish(&s);
}

static void threads_change_nothing(void **state) {
    setup one, three;
    (void)state;
    init(&one);
    init(&three);
    assert_int_equal(kn_threads_set(1), KNNLM_OK);
    update(&one, 0.01);
    assert_int_equal(kn_threads_set(3), KNNLM_OK);
    update(&three, 0.01);
    assert_memory_equal(one.params, three.params, one.layout.total * sizeof(float));
    finish(&one);
    finish(&three);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_orthogonal),
        cmocka_unit_test(the_rest_is_adam),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
