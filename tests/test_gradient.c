// The backward pass against torch, against finite differences of the plain reference model, and, with
// dropout, against its own loss.
#include "golden_model.h"

#include "base/random.h"
#include "base/threads.h"
#include "train/gradient.h"

static const char *const names[GOLDEN_COUNT] = GOLDEN_NAMES;

// ---------------------------------------------------------------- a gradient at hand

// A gradient workspace over some model, and what it computes.
typedef struct trial {
    const kn_config *config;
    const kn_layout *layout;
    kn_gradient *workspace;
    float *grads;
    double loss;
} trial;

static trial trial_open(const kn_config *config, const kn_layout *layout, const kn_kernels *kernels,
                        size_t rows, const float *params) {
    trial t = {.config = config, .layout = layout, .grads = test_alloc(layout->total, sizeof(float))};
    OK(kn_gradient_open(config, layout, kernels, rows, &t.workspace));
    kn_gradient_set(t.workspace, params);
    return t;
}

static void trial_close(trial *t) {
    kn_gradient_close(t->workspace);
    free(t->grads);
}

static void trial_clear(trial *t) {
    memset(t->grads, 0, t->layout->total * sizeof *t->grads);
    t->loss = 0;
}

static const kn_param *param_named(const kn_layout *layout, const char *name) {
    for (size_t i = 0; i < layout->count; i++)
        if (strcmp(layout->params[i].name, name) == 0) return &layout->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static size_t param_size(const kn_param *p) {
    return p->rows * p->columns;
}

static const kn_kernels *f32_kernels(void) {
    return kn_math_kernels(KNNLM_PRECISION_F32);
}

// Adds all golden windows; neighbours of one length go together.
static void add_golden(trial *t, const golden *g, float scale, const kn_dropout *dropout) {
    size_t row = 0;
    for (size_t i = 0; i < g->windows;) {
        size_t length = (size_t)g->lengths[i], count = 1;
        while (i + count < g->windows && (size_t)g->lengths[i + count] == length) count++;
        OK(kn_gradient_add(t->workspace, g->inputs + row, g->targets + row, count, length, scale, dropout,
                           t->grads, &t->loss));
        i += count;
        row += count * length;
    }
    assert_int_equal(row, g->rows);
}

static trial golden_trial(const golden *g, const kn_kernels *kernels) {
    return trial_open(&g->config, &g->layout, kernels, g->rows, g->params);
}

static double norm_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

// |a - b| / |b|
static double relative_error(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum) / (norm_of(b, n) + 1e-6);
}

static double cosine(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum / (norm_of(a, n) * norm_of(b, n) + 1e-30);
}

// ---------------------------------------------------------------- against torch

static void compare_param(const golden *g, const trial *t, const kn_param *p, double tolerance) {
    char name[KN_GGUF_NAME_MAX + 8];
    size_t count;
    snprintf(name, sizeof name, "grad.%s", p->name);
    const float *expected = golden_tensor(g->answers, name, &count);
    assert_int_equal(count, param_size(p));
    double error = relative_error(t->grads + p->offset, expected, count);
    if (getenv("KN_TEST_VERBOSE")) print_message("    %s: %-30s %.2e\n", g->name, p->name, error);
    if (!(error < tolerance)) fail_msg("%s: %s is off by %.3g of itself", g->name, name, error);
}

static void compare_with_torch(const golden *g, const kn_kernels *kernels) {
    trial t = golden_trial(g, kernels);
    add_golden(&t, g, 1, NULL);
    if (!(fabs(t.loss - g->loss) < 1e-5 * g->loss))
        fail_msg("%s: loss %.9g, torch %.9g", g->name, t.loss, g->loss);
    for (size_t i = 0; i < g->layout.count; i++) compare_param(g, &t, &g->layout.params[i], 1e-4);
    trial_close(&t);
}

static void compare_rounded(const golden *g, const kn_kernels *kernels) {
    trial exact = golden_trial(g, f32_kernels()), t = golden_trial(g, kernels);
    add_golden(&exact, g, 1, NULL);
    add_golden(&t, g, 1, NULL);
    double whole = cosine(t.grads, exact.grads, g->layout.total);
    if (!(whole > 0.999)) fail_msg("%s by %s: cosine of gradients %.6f", g->name, kernels->name, whole);
    for (size_t i = 0; i < g->layout.count; i++) {
        const kn_param *p = &g->layout.params[i];
        double part = cosine(t.grads + p->offset, exact.grads + p->offset, param_size(p));
        if (getenv("KN_TEST_VERBOSE")) print_message("    %s: %-30s cosine %.6f\n", g->name, p->name, part);
        if (!(part > 0.99)) fail_msg("%s by %s: cosine of %s %.6f", g->name, kernels->name, p->name, part);
    }
    trial_close(&exact);
    trial_close(&t);
}

static void gradients_are_torchs(void **state) {
    (void)state;
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        for (size_t k = 0; k < count; k++)
            if (sets[k]->precision == KNNLM_PRECISION_F32) compare_with_torch(&g, sets[k]);
        golden_close(&g);
    }
}

static void rounded_gradients_point_the_same_way(void **state) {
    (void)state;
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        for (size_t k = 0; k < count; k++)
            if (sets[k]->precision != KNNLM_PRECISION_F32) compare_rounded(&g, sets[k]);
        golden_close(&g);
    }
}

// ---------------------------------------------------------------- against finite differences

// A model of any shape with random weights, norms and biases included, and one window for it.
typedef struct sample {
    kn_config config;
    kn_layout layout;
    float *params;
    double *exact;
    int32_t inputs[64], targets[64];
    int length;
} sample;

static void sample_open(sample *s, const kn_config *config, int length, uint64_t seed) {
    kn_random random = {seed};
    *s = (sample){.config = *config, .length = length};
    OK(kn_config_validate(config, "sample"));
    OK(kn_layout_init(config, &s->layout));
    s->params = test_alloc(s->layout.total, sizeof *s->params);
    s->exact = test_alloc(s->layout.total, sizeof *s->exact);
    kn_layout_fill(config, &s->layout, seed, s->params);
    for (size_t i = 0; i < s->layout.total; i++) {
        s->params[i] += (float)(0.1 * kn_random_normal(&random));
        s->exact[i] = s->params[i];
    }
    for (int i = 0; i < length; i++) {
        s->inputs[i] = (int32_t)kn_random_below(&random, (uint64_t)config->vocabulary);
        s->targets[i] = (int32_t)kn_random_below(&random, (uint64_t)config->vocabulary);
    }
}

static void sample_close(sample *s) {
    kn_layout_free(&s->layout);
    free(s->params);
    free(s->exact);
}

// Derivative of the reference's loss by one parameter.
static double slope(sample *s, size_t at) {
    kn_reference r = {&s->config, &s->layout, s->exact};
    double kept = s->exact[at], step = 1e-5;
    s->exact[at] = kept + step;
    double up = reference_loss(&r, s->inputs, s->targets, s->length);
    s->exact[at] = kept - step;
    double down = reference_loss(&r, s->inputs, s->targets, s->length);
    s->exact[at] = kept;
    return (up - down) / (2 * step);
}

static size_t largest_at(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(x[best])) best = i;
    return best;
}

// The entry with the largest gradient and a few others, against slopes.
static void check_slopes(sample *s, const trial *t, const kn_param *p, kn_random *random) {
    const float *grads = t->grads + p->offset;
    size_t n = param_size(p), largest = largest_at(grads, n);
    double tolerance = 1e-4 * fabs((double)grads[largest]) + 1e-5;
    for (int i = 0; i < 3; i++) {
        size_t at = i == 0 ? largest : (size_t)kn_random_below(random, n);
        double expected = slope(s, p->offset + at);
        if (!(fabs(grads[at] - expected) <= tolerance))
            fail_msg("%s[%zu]: gradient %.9g, slope %.9g", p->name, at, (double)grads[at], expected);
    }
}

static void compare_with_slopes(const kn_config *config, int length, uint64_t seed) {
    sample s;
    kn_random random = {seed};
    sample_open(&s, config, length, seed);
    trial t = trial_open(&s.config, &s.layout, f32_kernels(), (size_t)length, s.params);
    kn_reference r = {&s.config, &s.layout, s.exact};
    OK(kn_gradient_add(t.workspace, s.inputs, s.targets, 1, (size_t)length, 1, NULL, t.grads, &t.loss));
    double expected = reference_loss(&r, s.inputs, s.targets, length);
    if (!(fabs(t.loss - expected) < 1e-5 * expected)) fail_msg("loss %.9g, reference %.9g", t.loss, expected);
    for (size_t i = 0; i < s.layout.count; i++) check_slopes(&s, &t, &s.layout.params[i], &random);
    trial_close(&t);
    sample_close(&s);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        compare_with_slopes(&g.config, 11, 40 + i);
        golden_close(&g);
    }
}

// Shapes that no preset has: every switch the other way, bands of every number, single heads, single words.
static void gradients_of_odd_models_are_slopes(void **state) {
    (void)state;
    const kn_config odd[] = {
        {.vocabulary = 40,
         .width = 16,
         .layers = 1,
         .heads = 1,
         .ffn = 1,
         .context = 8,
         .final_norm = true,
         .positions = KNNLM_POSITIONS_LEARNED,
         .activation = KNNLM_ACTIVATION_RELU,
         .epsilon = 1e-3f,
         .embedding_scale = 0.5f,
         .bands = 2,
         .band_end = {39, 40},
         .band_factor = 2},
        {.vocabulary = 70,
         .width = 64,
         .layers = 1,
         .heads = 64,
         .ffn = 33,
         .context = 40,
         .final_norm = true,
         .positions = KNNLM_POSITIONS_SINUSOIDAL,
         .activation = KNNLM_ACTIVATION_GELU,
         .epsilon = 1e-5f,
         .embedding_scale = 3,
         .bands = 4,
         .band_end = {1, 33, 66, 70},
         .band_factor = 4},
        {.vocabulary = 65,
         .width = 36,
         .layers = 2,
         .heads = 3,
         .ffn = 64,
         .context = 40,
         .final_norm = false,
         .positions = KNNLM_POSITIONS_LEARNED,
         .activation = KNNLM_ACTIVATION_GELU,
         .epsilon = 1e-5f,
         .embedding_scale = 1,
         .bands = 3,
         .band_end = {31, 32, 65},
         .band_factor = 1},
        {.vocabulary = 2,
         .width = 4,
         .layers = 2,
         .heads = 1,
         .ffn = 3,
         .context = 3,
         .final_norm = false,
         .positions = KNNLM_POSITIONS_SINUSOIDAL,
         .activation = KNNLM_ACTIVATION_RELU,
         .epsilon = 1e-2f,
         .embedding_scale = 2,
         .bands = 1,
         .band_end = {2},
         .band_factor = 4},
    };
    const int lengths[] = {8, 35, 33, 1};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) compare_with_slopes(&odd[i], lengths[i], 60 + i);
}

#define MODERN                                                                                               \
    .vocabulary = 50, .width = 32, .layers = 2, .heads = 2, .ffn = 40, .context = 64, .rope_base = 100,      \
    .final_norm = true, .positions = KNNLM_POSITIONS_ROTARY, .epsilon = 1e-3f, .embedding_scale = 2,         \
    .bands = 1, .band_end = {50}, .band_factor = 4

// What has come since the paper: each by itself, and as Llama and Qwen3 have them together.
static void gradients_of_modern_models_are_slopes(void **state) {
    (void)state;
    const kn_config modern[] = {
        {MODERN, .activation = KNNLM_ACTIVATION_GELU},
        {MODERN, .activation = KNNLM_ACTIVATION_RELU2, .no_bias = true, .window = 7},
        {MODERN, .activation = KNNLM_ACTIVATION_SWIGLU, .qk_norm = true},
        {MODERN, .activation = KNNLM_ACTIVATION_GELU, .norm = KNNLM_NORM_RMS, .no_bias = true, .window = 33},
        {MODERN, .activation = KNNLM_ACTIVATION_SWIGLU, .norm = KNNLM_NORM_RMS, .no_bias = true},
        {MODERN, .activation = KNNLM_ACTIVATION_SWIGLU, .norm = KNNLM_NORM_RMS, .no_bias = true,
         .qk_norm = true, .window = 20},
        {MODERN, .activation = KNNLM_ACTIVATION_RELU2, .norm = KNNLM_NORM_RMS, .qk_norm = true, .window = 1},
    };
    const int lengths[] = {33, 40, 11, 64, 35, 64, 34};
    for (size_t i = 0; i < sizeof modern / sizeof *modern; i++)
        compare_with_slopes(&modern[i], lengths[i], 80 + i);
}

// ---------------------------------------------------------------- adding up

static void scale_and_sum(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "adaptive");
    trial once = golden_trial(&g, f32_kernels()), twice = golden_trial(&g, f32_kernels());
    add_golden(&once, &g, 1, NULL);
    add_golden(&twice, &g, 0.25f, NULL);
    add_golden(&twice, &g, 0.5f, NULL);
    assert_true(fabs(twice.loss - 2 * once.loss) < 1e-9 * once.loss); // the scale is the gradient's alone
    for (size_t i = 0; i < g.layout.total; i++) once.grads[i] *= 0.75f;
    assert_true(relative_error(twice.grads, once.grads, g.layout.total) < 1e-6);
    trial_close(&once);
    trial_close(&twice);
    golden_close(&g);
}

// More rows than the softmax takes at a time, from the golden tokens over and over.
static void check_large_batch(const golden *g) {
    enum { LENGTH = 9, WINDOWS = 130, ROWS = WINDOWS * LENGTH };
    static int32_t inputs[ROWS], targets[ROWS];
    trial together = trial_open(&g->config, &g->layout, f32_kernels(), ROWS, g->params),
          apart = golden_trial(g, f32_kernels());
    for (size_t i = 0; i < ROWS; i++) {
        inputs[i] = g->inputs[i % g->rows];
        targets[i] = g->targets[i % g->rows];
    }
    OK(kn_gradient_add(together.workspace, inputs, targets, WINDOWS, LENGTH, 1, NULL, together.grads,
                       &together.loss));
    for (size_t i = 0; i < WINDOWS; i++)
        OK(kn_gradient_add(apart.workspace, inputs + i * LENGTH, targets + i * LENGTH, 1, LENGTH, 1, NULL,
                           apart.grads, &apart.loss));
    assert_true(fabs(together.loss - apart.loss) < 1e-6 * apart.loss);
    for (size_t i = 0; i < g->layout.count; i++) {
        const kn_param *p = &g->layout.params[i];
        double error = relative_error(together.grads + p->offset, apart.grads + p->offset, param_size(p));
        if (!(error < 1e-5)) fail_msg("%s: %s differs by %.3g between batches", g->name, p->name, error);
    }
    trial_close(&together);
    trial_close(&apart);
}

static void batch_is_the_sum_of_its_windows(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        check_large_batch(&g);
        golden_close(&g);
    }
}

// New parameters are taken over by kn_gradient_set, all of them.
static void new_parameters_count(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        float *other = test_alloc(g.layout.total, sizeof *other);
        kn_layout_fill(&g.config, &g.layout, 5, other);
        trial t = trial_open(&g.config, &g.layout, f32_kernels(), g.rows, other);
        add_golden(&t, &g, 1, NULL);
        assert_true(fabs(t.loss - g.loss) > 1e-3 * g.loss);
        memcpy(other, g.params, g.layout.total * sizeof *other);
        kn_gradient_set(t.workspace, other);
        trial_clear(&t);
        add_golden(&t, &g, 1, NULL);
        for (size_t p = 0; p < g.layout.count; p++) compare_param(&g, &t, &g.layout.params[p], 1e-4);
        trial_close(&t);
        free(other);
        golden_close(&g);
    }
}

static void check_threads(const golden *g, const kn_kernels *kernels) {
    const kn_dropout dropout = {.residual = 0.3f, .attention = 0.1f, .activation = 0.1f, .key = 9};
    trial one = golden_trial(g, kernels), more = golden_trial(g, kernels);
    OK(kn_threads_set(1));
    add_golden(&one, g, 0.5f, &dropout);
    for (int threads = 2; threads <= 3; threads++) {
        OK(kn_threads_set(threads));
        // A workspace made for these threads, and below one that has to make do with another number of them.
        trial fresh = golden_trial(g, kernels);
        trial *both[] = {&fresh, &more};
        for (size_t i = 0; i < 2; i++) {
            trial_clear(both[i]);
            add_golden(both[i], g, 0.5f, &dropout);
            assert_memory_equal(both[i]->grads, one.grads, g->layout.total * sizeof *one.grads);
            assert_memory_equal(&both[i]->loss, &one.loss, sizeof one.loss);
        }
        trial_close(&fresh);
    }
    OK(kn_threads_set(1));
    trial_close(&one);
    trial_close(&more);
}

// Every set of kernels on one model, the one that serves on all.
static void threads_change_nothing(void **state) {
    (void)state;
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        for (size_t k = 0; k < count; k++)
            if (i == 0 || k == 0) check_threads(&g, sets[k]);
        golden_close(&g);
    }
}

// ---------------------------------------------------------------- dropout

static void same_key_same_gradient(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "adaptive");
    trial a = golden_trial(&g, f32_kernels()), b = golden_trial(&g, f32_kernels());
    kn_dropout dropout = {.residual = 0.2f, .attention = 0.3f, .activation = 0.4f, .key = 77};
    add_golden(&a, &g, 1, &dropout);
    add_golden(&b, &g, 1, &dropout);
    assert_memory_equal(a.grads, b.grads, g.layout.total * sizeof *a.grads);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    trial_clear(&b);
    dropout.key = 78;
    add_golden(&b, &g, 1, &dropout);
    assert_true(fabs(a.loss - b.loss) > 1e-4 * a.loss);
    assert_true(cosine(a.grads, b.grads, g.layout.total) < 0.99);
    trial_close(&a);
    trial_close(&b);
    golden_close(&g);
}

static void dropping_nothing_is_no_dropout(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "cpu");
    trial a = golden_trial(&g, f32_kernels()), b = golden_trial(&g, f32_kernels());
    add_golden(&a, &g, 1, NULL);
    add_golden(&b, &g, 1, &(kn_dropout){.key = 3});
    assert_memory_equal(a.grads, b.grads, g.layout.total * sizeof *a.grads);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    trial_close(&a);
    trial_close(&b);
    golden_close(&g);
}

// The loss after a step of `distance` along `direction` (of norm `norm`) within one parameter.
static double loss_after(const golden *g, trial *t, float *params, const kn_param *p, const float *direction,
                         double distance, const kn_dropout *dropout) {
    size_t n = param_size(p);
    double norm = norm_of(direction, n);
    for (size_t i = 0; i < n; i++)
        params[p->offset + i] = (float)(g->params[p->offset + i] + distance * direction[i] / norm);
    kn_gradient_set(t->workspace, params);
    t->loss = 0;
    add_golden(t, g, 1, dropout);
    memcpy(params + p->offset, g->params + p->offset, n * sizeof *params);
    return t->loss;
}

// Along a parameter's gradient the loss rises by the gradient's norm. The step is as long as makes the loss
// rise by `rise`: far above the rounding of f32, little enough that curvature does not count.
static void check_rise(const golden *g, const trial *at, trial *t, float *params, const kn_param *p,
                       const kn_dropout *dropout) {
    const double rise = 0.05;
    const float *direction = at->grads + p->offset;
    double norm = norm_of(direction, param_size(p)), distance = rise / norm;
    if (norm < 1e-3) fail_msg("%s: the gradient of %s vanishes", g->name, p->name);
    double up = loss_after(g, t, params, p, direction, distance, dropout);
    double down = loss_after(g, t, params, p, direction, -distance, dropout);
    double error = fabs((up - down) / (2 * rise) - 1);
    if (getenv("KN_TEST_VERBOSE")) print_message("    %s: %-30s rise off by %.2e\n", g->name, p->name, error);
    if (!(error < 0.03))
        fail_msg("%s: along the gradient of %s the loss rises %.4g times as much", g->name, p->name,
                 (up - down) / (2 * rise));
}

static void check_rises(const golden *g, const kn_dropout *dropout) {
    trial at = golden_trial(g, f32_kernels()), t = golden_trial(g, f32_kernels());
    free(t.grads);
    t.grads = NULL; // the loss alone is asked for
    float *params = test_alloc(g->layout.total, sizeof *params);
    memcpy(params, g->params, g->layout.total * sizeof *params);
    add_golden(&at, g, 1, dropout);
    for (size_t i = 0; i < g->layout.count; i++)
        check_rise(g, &at, &t, params, &g->layout.params[i], dropout);
    trial_close(&at);
    trial_close(&t);
    free(params);
}

// All kinds of dropout together, and on two models each alone; with a wrong mask on the way back the slope
// would not match.
static void loss_rises_along_the_gradient(void **state) {
    (void)state;
    const kn_dropout kinds[] = {
        {.residual = 0.2f, .attention = 0.3f, .activation = 0.1f, .key = 14},
        {.residual = 0.3f, .key = 11},
        {.attention = 0.4f, .key = 12},
        {.activation = 0.5f, .key = 13},
    };
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        golden g;
        golden_open(&g, names[i]);
        g.windows = 3; // enough, and quick
        g.rows = (size_t)(g.lengths[0] + g.lengths[1] + g.lengths[2]);
        for (size_t k = 0; k < (i < 2 ? 4 : 1); k++) check_rises(&g, &kinds[k]);
        golden_close(&g);
    }
}

// ---- which units were dropped, read off the gradient of single-token windows
//
// In a window of one token the gradient of the bias that a unit adds (or of its position, or of the column
// that reads it) is zero exactly when the unit was dropped.

typedef struct unit_group {
    const char *param;
    size_t first, step, count, width; // unit i: entries first + i * step, `width` of them, of the parameter
} unit_group;

enum { GROUP_MAX = 256 };

static void read_dropped(const trial *t, const unit_group *group, bool *dropped) {
    const float *grads = t->grads + param_named(t->layout, group->param)->offset;
    for (size_t i = 0; i < group->count; i++) {
        dropped[i] = true;
        for (size_t j = 0; j < group->width; j++)
            if (grads[group->first + i * group->step + j] != 0) dropped[i] = false;
    }
}

typedef struct tally {
    size_t units, dropped[8], both[8][8];
} tally;

// Counts drops over many keys, group by group and pair by pair (unit i of one against unit i of the other).
static tally tally_drops(const golden *g, kn_dropout dropout, const unit_group *groups, size_t count,
                         size_t windows, size_t length) {
    enum { KEYS = 150 };
    bool dropped[8][GROUP_MAX];
    trial t = golden_trial(g, f32_kernels());
    tally sum = {0};
    for (uint64_t key = 0; key < KEYS; key++) {
        dropout.key = key;
        trial_clear(&t);
        OK(kn_gradient_add(t.workspace, g->inputs, g->targets, windows, length, 1, &dropout, t.grads,
                           &t.loss));
        for (size_t i = 0; i < count; i++) read_dropped(&t, &groups[i], dropped[i]);
        for (size_t u = 0; u < groups[0].count; u++, sum.units++) {
            for (size_t i = 0; i < count; i++) {
                sum.dropped[i] += dropped[i][u];
                for (size_t j = 0; j < count; j++) sum.both[i][j] += dropped[i][u] && dropped[j][u];
            }
        }
    }
    trial_close(&t);
    return sum;
}

// `dropped` of `units` is what probability p gives, within 4.5 standard deviations.
static void assert_rate(const char *what, size_t dropped, size_t units, double p) {
    double rate = (double)dropped / (double)units, deviation = sqrt(p * (1 - p) / (double)units);
    if (getenv("KN_TEST_VERBOSE")) print_message("    %-40s %.4f (%.4f)\n", what, rate, p);
    if (!(fabs(rate - p) <= 4.5 * deviation)) fail_msg("%s: dropped %.4f, %.4f expected", what, rate, p);
}

// Every group is dropped at rate p, and independently of every other.
static void check_drops(const golden *g, kn_dropout dropout, double p, const unit_group *groups, size_t count,
                        size_t length) {
    tally sum = tally_drops(g, dropout, groups, count, 1, length);
    for (size_t i = 0; i < count; i++) {
        assert_rate(groups[i].param, sum.dropped[i], sum.units, p);
        for (size_t j = 0; j < i; j++) {
            char what[160];
            snprintf(what, sizeof what, "%s and %s", groups[i].param, groups[j].param);
            assert_rate(what, sum.both[i][j], sum.units, p * p);
        }
    }
}

static void keep_rates_are_right(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "gpt2");
    size_t d = (size_t)g.config.width, f = (size_t)g.config.ffn, h = d / (size_t)g.config.heads;
    const unit_group residual[] = {{"position_embd.weight", 0, 1, d, 1},
                                   {"blk.0.attn_output.bias", 0, 1, d, 1},
                                   {"blk.0.ffn_down.bias", 0, 1, d, 1},
                                   {"blk.1.attn_output.bias", 0, 1, d, 1},
                                   {"blk.1.ffn_down.bias", 0, 1, d, 1}};
    const unit_group activation[] = {{"blk.0.ffn_up.bias", 0, 1, f, 1}, {"blk.1.ffn_up.bias", 0, 1, f, 1}};
    const unit_group attention[] = {{"blk.0.attn_qkv.bias", 2 * d, h, d / h, h},
                                    {"blk.1.attn_qkv.bias", 2 * d, h, d / h, h}};
    const unit_group heads[] = {{"blk.1.attn_qkv.bias", 2 * d, h, 1, h},
                                {"blk.1.attn_qkv.bias", 2 * d + h, h, 1, h},
                                {"blk.1.attn_qkv.bias", 2 * d + 3 * h, h, 1, h}};
    const unit_group positions[] = {{"position_embd.weight", 0, 1, d, 1},
                                    {"position_embd.weight", d, 1, d, 1},
                                    {"position_embd.weight", 2 * d, 1, d, 1}};
    check_drops(&g, (kn_dropout){.residual = 0.3f}, 0.3, residual, 5, 1);
    check_drops(&g, (kn_dropout){.residual = 0.3f}, 0.3, positions, 3, 3);
    check_drops(&g, (kn_dropout){.activation = 0.2f}, 0.2, activation, 2, 1);
    check_drops(&g, (kn_dropout){.attention = 0.4f}, 0.4, attention, 2, 1);
    check_drops(&g, (kn_dropout){.attention = 0.4f}, 0.4, heads, 3, 1);
    golden_close(&g);
}

// Two windows of a batch are dropped apart: a gradient that both add to vanishes only where both were
// dropped.
static void windows_are_dropped_apart(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "gpt2");
    size_t d = (size_t)g.config.width, h = d / (size_t)g.config.heads;
    const unit_group embedding = {"position_embd.weight", 0, 1, d, 1};
    const unit_group hidden = {"blk.0.ffn_up.bias", 0, 1, (size_t)g.config.ffn, 1};
    const unit_group attention = {"blk.0.attn_qkv.bias", 2 * d, h, d / h, h};
    tally sum = tally_drops(&g, (kn_dropout){.residual = 0.5f}, &embedding, 1, 2, 1);
    assert_rate("embedding of both windows", sum.dropped[0], sum.units, 0.25);
    sum = tally_drops(&g, (kn_dropout){.activation = 0.5f}, &hidden, 1, 2, 1);
    assert_rate("hidden unit of both windows", sum.dropped[0], sum.units, 0.25);
    sum = tally_drops(&g, (kn_dropout){.attention = 0.5f}, &attention, 1, 2, 1);
    assert_rate("attention of both windows", sum.dropped[0], sum.units, 0.25);
    golden_close(&g);
}

// What is kept is made larger by 1/(1-p), in every set of kernels, the same units in all; pieces give what
// the whole gives.
static void kernels_drop_alike(void **state) {
    (void)state;
    enum { N = 100003 };
    size_t count;
    const kn_kernels *const *sets = kn_math_available(&count);
    float *first = test_alloc(N, sizeof *first), *x = test_alloc(N, sizeof *x);
    const float p = 0.3f;
    for (size_t k = 0; k < count; k++) {
        size_t kept = 0;
        for (size_t i = 0; i < N; i++) x[i] = 2;
        for (size_t at = 0, piece = 1; at < N; at += piece, piece = piece % 97 + 1) {
            if (piece > N - at) piece = N - at;
            sets[k]->dropout(x + at, piece, p, 12345, (uint32_t)at);
        }
        for (size_t i = 0; i < N; i++) {
            kept += x[i] != 0;
            assert_true(x[i] == 0 || fabsf(x[i] - 2 / (1 - p)) < 1e-5f);
        }
        assert_rate(sets[k]->name, N - kept, N, p);
        if (k == 0) memcpy(first, x, N * sizeof *x);
        for (size_t i = 0; i < N; i++) assert_int_equal(x[i] == 0, first[i] == 0);
    }
    free(first);
    free(x);
}

// ---------------------------------------------------------------- what is refused

static void assert_refused(trial *t, const int32_t *inputs, const int32_t *targets, size_t windows,
                           size_t length) {
    kn_fail(KNNLM_EINVAL, "stale");
    assert_int_equal(
        kn_gradient_add(t->workspace, inputs, targets, windows, length, 1, NULL, t->grads, &t->loss),
        KNNLM_EINVAL);
    assert_string_not_equal(knnlm_message(), "stale");
    assert_true(t->loss == 0);
    for (size_t i = 0; i < t->layout->total; i++) assert_true(t->grads[i] == 0);
}

static void bad_batches_are_refused(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "gpt2");
    const int32_t bad[] = {-1, g.config.vocabulary, INT32_MAX, INT32_MIN}, good[3] = {0, 1, 2};
    trial t = golden_trial(&g, f32_kernels());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t wrong[3] = {0, 1, bad[i]};
        assert_refused(&t, wrong, good, 1, 3);
        assert_refused(&t, good, wrong, 3, 1);
    }
    assert_refused(&t, g.inputs, g.targets, 1, (size_t)g.config.context + 1); // too long
    assert_refused(&t, g.inputs, g.targets, g.rows + 1, 1);                   // too many rows
    assert_refused(&t, g.inputs, g.targets, SIZE_MAX, 2);                     // more than can be counted
    OK(kn_gradient_add(t.workspace, good, good, 1, 3, 1, NULL, t.grads, &t.loss));
    trial_close(&t);
    golden_close(&g);
}

int main(void) {
    kn_threads_set(1); // the batches are tiny: waking others costs more than the work; one test has more
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_torchs),
        cmocka_unit_test(rounded_gradients_point_the_same_way),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(gradients_of_odd_models_are_slopes),
        cmocka_unit_test(gradients_of_modern_models_are_slopes),
        cmocka_unit_test(scale_and_sum),
        cmocka_unit_test(batch_is_the_sum_of_its_windows),
        cmocka_unit_test(new_parameters_count),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(same_key_same_gradient),
        cmocka_unit_test(dropping_nothing_is_no_dropout),
        cmocka_unit_test(loss_rises_along_the_gradient),
        cmocka_unit_test(keep_rates_are_right),
        cmocka_unit_test(windows_are_dropped_apart),
        cmocka_unit_test(kernels_drop_alike),
        cmocka_unit_test(bad_batches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
