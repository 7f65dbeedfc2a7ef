// Training: a run that stops goes on bit for bit, the schedules and optimizers are their formulas, and what
// cannot go well is refused or stops with the checkpoint kept.
#include "golden_model.h"

#include "base/file.h"
#include "base/random.h"
#include "base/threads.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <unistd.h>

// ---------------------------------------------------------------- a small run

enum { WORDS = 40, TOKENS = 700, VALID_TOKENS = 90 };

typedef struct bench {
    char folder[64], output[2][128], checkpoint[2][160];
    kn_tokenizer *tokenizer;
    int32_t tokens[TOKENS], valid_tokens[VALID_TOKENS];
    kn_corpus corpus, valid;
} bench;

static void fill_corpus(kn_corpus *c, int32_t *tokens, size_t count, uint64_t seed, int32_t vocabulary) {
    kn_random random = {seed};
    for (size_t i = 0; i < count; i++)
        tokens[i] = (int32_t)((i * 3 + kn_random_below(&random, 4)) % (uint64_t)vocabulary);
    *c = (kn_corpus){.tokens = tokens, .count = count, .hash = seed};
}

static int bench_open(void **state) {
    char text[WORDS * 8] = "";
    bench *b = test_alloc(1, sizeof *b);
    for (int i = 0; i < WORDS; i++) sprintf(text + strlen(text), "w%d ", i);
    OK(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, text, strlen(text), NULL, &b->tokenizer));
    fill_corpus(&b->corpus, b->tokens, TOKENS, 11, kn_tokenizer_size(b->tokenizer));
    fill_corpus(&b->valid, b->valid_tokens, VALID_TOKENS, 12, kn_tokenizer_size(b->tokenizer));
    test_folder(b->folder, sizeof b->folder);
    for (int i = 0; i < 2; i++) {
        snprintf(b->output[i], sizeof b->output[i], "%s/%d.gguf", b->folder, i);
        snprintf(b->checkpoint[i], sizeof b->checkpoint[i], "%s/%d.gguf.checkpoint", b->folder, i);
    }
    *state = b;
    return 0;
}

static void remove_files(bench *b) {
    for (int i = 0; i < 2; i++) {
        unlink(b->output[i]);
        unlink(b->checkpoint[i]);
    }
}

static int bench_close(void **state) {
    bench *b = *state;
    remove_files(b);
    assert_int_equal(rmdir(b->folder), 0); // nothing else was left there
    kn_tokenizer_free(b->tokenizer);
    free(b);
    return 0;
}

static kn_train_options small_run(bench *b, int output) {
    kn_train_options o;
    kn_train_defaults(&o);
    OK(kn_config_preset("tiny", &o.config));
    o.config.width = 16;
    o.config.layers = 2;
    o.config.heads = 2;
    o.config.ffn = 24;
    o.config.context = 16;
    kn_config_set_vocabulary(&o.config, kn_tokenizer_size(b->tokenizer));
    o.tokenizer = b->tokenizer;
    o.corpus = &b->corpus;
    o.valid = &b->valid;
    o.output = b->output[output];
    o.length = 12;
    o.batch = 60;
    o.micro = 24;
    o.steps = o.schedule.steps = 9;
    o.schedule.warmup = 2;
    o.valid_every = 2;
    o.save_seconds = 0;
    return o;
}

// What a listener saw, and when it wants the run to stop.
typedef struct watch {
    int64_t stop_after, asked;
    int reports;
    knnlm_train_report last;
} watch;

static bool stop_now(void *context) {
    watch *w = context;
    return ++w->asked == w->stop_after;
}

static void keep_report(void *context, const knnlm_train_report *r) {
    watch *w = context;
    w->reports++;
    w->last = *r;
}

static knnlm_status watched_run(kn_train_options *o, watch *w) {
    o->report = keep_report;
    o->stop = stop_now;
    o->context = w;
    return kn_train_run(o);
}

static void assert_same_file(const char *a, const char *b) {
    kn_map left, right;
    OK(kn_map_open(a, &left));
    OK(kn_map_open(b, &right));
    assert_int_equal(left.size, right.size);
    assert_memory_equal(left.data, right.data, left.size);
    kn_map_close(&left);
    kn_map_close(&right);
}

// ---------------------------------------------------------------- stopping and going on

// One run without a stop, one that stops after `first` updates and goes on: the same model, the same state.
static void compare_runs(bench *b, const kn_train_options *settings, int64_t first) {
    kn_train_options whole = *settings, parts = *settings;
    watch uncut = {0}, cut = {.stop_after = first}, rest = {0};
    remove_files(b);
    whole.output = b->output[0];
    parts.output = b->output[1];
    OK(watched_run(&whole, &uncut));
    assert_int_equal(watched_run(&parts, &cut), KNNLM_ESTOPPED);
    assert_non_null(strstr(knnlm_message(), "`resume`"));
    parts.resume = true;
    OK(watched_run(&parts, &rest));
    assert_int_equal(rest.last.step, settings->steps);
    assert_same_file(b->output[0], b->output[1]);
    assert_same_file(b->checkpoint[0], b->checkpoint[1]);
}

static void resumes_bit_for_bit(void **state) {
    kn_train_options o = small_run(*state, 0);
    o.dropout = (kn_dropout){.residual = 0.2f, .attention = 0.1f, .activation = 0.15f};
    compare_runs(*state, &o, 3);
    compare_runs(*state, &o, 4); // validation was due
    o.valid = NULL;
    compare_runs(*state, &o, 8);
    o.valid = small_run(*state, 0).valid;
    o.optimizer.kind = KNNLM_OPTIMIZER_NESTEROV;
    o.schedule.kind = KNNLM_SCHEDULE_RESTARTS;
    o.schedule.rate = 0.1;
    o.schedule.period = 3;
    compare_runs(*state, &o, 5);
}

static void threads_change_nothing(void **state) {
    bench *b = *state;
    remove_files(b);
    for (int i = 0; i < 2; i++) {
        kn_train_options o = small_run(b, i);
        o.dropout.residual = 0.3f;
        OK(kn_threads_set(i == 0 ? 1 : 3));
        OK(kn_train_run(&o));
    }
    OK(kn_threads_set(1));
    assert_same_file(b->output[0], b->output[1]);
    assert_same_file(b->checkpoint[0], b->checkpoint[1]);
}

static void nothing_left_to_do(void **state) {
    bench *b = *state;
    kn_train_options o = small_run(b, 0);
    watch first = {0}, again = {0};
    char *before, *after;
    size_t size, size_after;
    remove_files(b);
    OK(watched_run(&o, &first));
    OK(kn_file_read(b->output[0], &before, &size));
    o.resume = true;
    OK(watched_run(&o, &again));
    assert_int_equal(again.reports, 1);
    assert_int_equal(again.last.step, o.steps);
    assert_true(isnan(again.last.loss));
    assert_true(isfinite(again.last.best_loss) && again.last.best_loss == first.last.best_loss);
    OK(kn_file_read(b->output[0], &after, &size_after));
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    o.steps++; // and one more step is one more
    OK(watched_run(&o, &again));
    assert_int_equal(again.last.step, o.steps);
}

static void trial_writes_nothing(void **state) {
    bench *b = *state;
    kn_train_options o = small_run(b, 0);
    watch w = {.stop_after = 3};
    remove_files(b);
    o.output = NULL;
    assert_int_equal(watched_run(&o, &w), KNNLM_ESTOPPED);
    DIR *folder = opendir(b->folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) assert_int_equal(entry->d_name[0], '.');
    closedir(folder);
}

// ---------------------------------------------------------------- refusals

static void assert_refused(const kn_train_options *o, knnlm_status status, const char *says) {
    knnlm_status got = kn_train_run(o);
    if (got != status) fail_msg("%s rather than a complaint about \"%s\"", knnlm_status_name(got), says);
    if (!strstr(knnlm_message(), says)) fail_msg("\"%s\" does not say \"%s\"", knnlm_message(), says);
}

static void other_runs_are_refused(void **state) {
    bench *b = *state;
    kn_corpus other = b->corpus;
    kn_train_options o = small_run(b, 0), changed;
    remove_files(b);
    OK(kn_train_run(&o));
    o.resume = true;
    o.steps = 10;
    other.hash++;
#define REFUSED(change, says)                                                                                \
    changed = o;                                                                                             \
    change;                                                                                                  \
    assert_refused(&changed, KNNLM_EINVAL, says)
    REFUSED(changed.seed = 2, "seed");
    REFUSED(changed.corpus = &other, "text");
    REFUSED(changed.length = 10, "window length");
    REFUSED(changed.batch = 72, "batch");
    REFUSED(changed.config.layers = 1, "`layers` 2, not 1");
    REFUSED(changed.config.layers = 3, "`layers`");
    REFUSED(changed.config.heads = 4, "`heads` 2, not 4");
    REFUSED(changed.config.width = 32, "`width`");
    REFUSED(changed.config.ffn = 25, "`ffn`");
    REFUSED(changed.config.context = 15, "`context`");
    REFUSED(changed.config.activation = KNNLM_ACTIVATION_RELU, "`activation`");
    REFUSED(changed.config.positions = KNNLM_POSITIONS_LEARNED, "`positions`");
    REFUSED(changed.config.embedding_scale = 1, "embedding scale");
    REFUSED(changed.config.final_norm = false, "final norm");
#undef REFUSED
    changed = o; // what may change
    changed.schedule.rate = 1e-4;
    changed.dropout.residual = 0.5f;
    changed.micro = 12;
    OK(kn_train_run(&changed));
    assert_int_equal(rename(b->output[0], b->checkpoint[0]), 0);
    assert_refused(&o, KNNLM_EDATA, "not a checkpoint");
    unlink(b->checkpoint[0]);
    assert_refused(&o, KNNLM_EIO, b->checkpoint[0]);
}

static void bad_settings_are_refused(void **state) {
    bench *b = *state;
    kn_corpus small = b->corpus, none = b->valid;
    kn_train_options o = small_run(b, 0), changed;
    small.count = 12;
    none.count = 1;
#define REFUSED(status, change, says)                                                                        \
    changed = o;                                                                                             \
    change;                                                                                                  \
    assert_refused(&changed, status, says)
    REFUSED(KNNLM_EDATA, changed.corpus = &small, "12 tokens of text");
    REFUSED(KNNLM_EDATA, changed.valid = &none, "validation text");
    REFUSED(KNNLM_EINVAL, changed.length = 17, "`length`");
    REFUSED(KNNLM_EINVAL, changed.batch = 61, "`batch`");
    REFUSED(KNNLM_EINVAL, changed.micro = 11, "`micro`");
    REFUSED(KNNLM_EINVAL, changed.steps = 0, "`steps`");
    REFUSED(KNNLM_EIO, changed.output = "/nonexistent/model.gguf", "/nonexistent/model.gguf");
#undef REFUSED
    small.count = 13; // one window, and no more
    o.corpus = &small;
    OK(kn_train_run(&o));
    none.count = 2; // one token to validate on
    o.valid = &none;
    OK(kn_train_run(&o));
}

static void numbers_that_leave_stop_the_run(void **state) {
    bench *b = *state;
    kn_train_options o = small_run(b, 0);
    kn_gguf *file;
    remove_files(b);
    o.valid = NULL;
    o.save_every = 1;
    o.steps = 3;
    OK(kn_train_run(&o));
    o.resume = true;
    o.steps = 60;
    o.optimizer.clip = 0;
    o.schedule = (kn_schedule){.kind = KNNLM_SCHEDULE_CONSTANT, .rate = 1e18};
    assert_refused(&o, KNNLM_EDATA, "no longer a number");
    OK(kn_gguf_open(b->checkpoint[0], &file));
    for (size_t i = 0; i < kn_gguf_tensor_count(file); i++) {
        const kn_gguf_tensor *t = kn_gguf_tensor_at(file, i);
        const float *values = (const float *)(const void *)t->data;
        for (size_t j = 0; j < t->size / sizeof *values; j++) assert_false(isnan(values[j]));
    }
    kn_gguf_close(file);
}

// ---------------------------------------------------------------- order

static void every_window_once(void **state) {
    static const size_t cases[][2] = {{TOKENS, 12}, {13, 12}, {24, 12}, {25, 12}, {37, 12}, {1000, 1}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        kn_order order;
        size_t tokens = cases[c][0], length = cases[c][1], first, again;
        OK(kn_order_init(&order, tokens, length, 5));
        size_t windows = kn_order_windows(&order);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            unsigned char *seen = test_alloc(tokens, 1);
            for (size_t i = 0; i < windows; i++) {
                OK(kn_order_at(&order, epoch * windows + i, &first));
                assert_in_range(first, 0, tokens - 1 - length);
                for (size_t j = first; j < first + length; j++) assert_int_equal(seen[j]++, 0);
            }
            free(seen);
        }
        OK(kn_order_at(&order, 0, &again)); // from anywhere to anywhere
        OK(kn_order_at(&order, 3 * windows - 1, &again));
        assert_int_equal(first, again);
        kn_order_free(&order);
    }
}

// Of two orders that have nothing to do with each other a window is within 1% of the same time with a
// probability of 2%, and the part of 5000 that is has a standard deviation of 0.2%.
static void epochs_differ(void **state) {
    enum { WINDOWS = 5000, NEAR = WINDOWS / 100, EPOCHS = 4 };
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        kn_order order;
        size_t *times = test_alloc(WINDOWS, sizeof *times), first, near[EPOCHS] = {0};
        OK(kn_order_init(&order, WINDOWS + 1, 1, seed));
        for (size_t i = 0; i < EPOCHS * WINDOWS; i++) {
            size_t epoch = i / WINDOWS, time = i % WINDOWS;
            OK(kn_order_at(&order, i, &first));
            if (!epoch) times[first] = time;
            near[epoch] += (time > times[first] ? time - times[first] : times[first] - time) <= NEAR;
        }
        for (size_t epoch = 1; epoch < EPOCHS; epoch++) assert_in_range(near[epoch], 50, 150);
        free(times);
        kn_order_free(&order);
    }
}

// ---------------------------------------------------------------- schedules

static void assert_rate(const kn_schedule *s, int64_t step, double want) {
    double got = kn_schedule_rate(s, step);
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("step %lld: %.12g, not %.12g", (long long)step, got, want);
}

static void rates_are_their_formulas(void **state) {
    (void)state;
    kn_schedule s = {.rate = 0.01, .warmup = 10, .steps = 110, .floor = 0.1, .tail = 0.25};
    for (s.kind = KNNLM_SCHEDULE_COSINE; s.kind <= KNNLM_SCHEDULE_PLATEAU; s.kind++) {
        for (int64_t i = 0; i < 10; i++) assert_rate(&s, i, 0.01 * (double)(i + 1) / 10);
        for (int64_t i = 10; i < 115; i++) {
            double part = fmin((double)(i - 10) / 100, 1), left = fmax((110 - (double)i) / 27.5, 0);
            double want[] = {0.001 + 0.009 * (1 + cos(M_PI * part)) / 2, 0.01 - 0.009 * part, 0.01,
                             left < 1 ? 0.001 + 0.009 * left : 0.01};
            assert_rate(&s, i, want[s.kind]);
        }
    }
    s = (kn_schedule){.kind = KNNLM_SCHEDULE_COSINE, .rate = 0.01, .steps = 1}; // one step, no warm-up
    assert_rate(&s, 0, 0.01);
}

// fairseq's cosine schedule as the paper ran it, by the closed form of the number of restarts.
static void the_papers_restarts(void **state) {
    static const int64_t steps[] = {0,      1,      15999,  16000,  16001,  100000, 285999,
                                    286000, 286001, 500000, 825999, 826000, 1000000};
    (void)state;
    kn_schedule s = {.kind = KNNLM_SCHEDULE_RESTARTS,
                     .rate = 1,
                     .warmup = 16000,
                     .steps = 286000,
                     .warmup_from = 1e-7,
                     .floor = 1e-4,
                     .period = 270000,
                     .period_growth = 2,
                     .peak_shrink = 0.75};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double t = (double)(steps[i] - 16000), want;
        if (t < 0) {
            want = 1e-7 + (1 - 1e-7) * (double)(steps[i] + 1) / 16000;
        } else {
            double n = floor(log2(1 + t / 270000)), length = exp2(n) * 270000;
            double peak = pow(0.75, n), low = 1e-4 * peak, at = t - (exp2(n) - 1) * 270000;
            want = low + (peak - low) * (1 + cos(M_PI * at / length)) / 2;
        }
        assert_rate(&s, steps[i], want);
    }
}

// ---------------------------------------------------------------- optimizers

enum { UPDATES = 4, CLIPPED = 2 }; // the gradient of one update is above the clip

static double gradient_at(size_t i, int update) {
    return sin((double)i * 0.7 + update) * (update == CLIPPED ? 0.5 : 0.01);
}

// One parameter in double, by the definitions.
static void update_plainly(const kn_optimizer_options *p, double *w, double *m, double *v, double g,
                           double rate, double rate_before, double decay, int updates) {
    *w -= rate * decay * *w;
    if (p->kind == KNNLM_OPTIMIZER_ADAMW) {
        *m = (double)p->beta1 * *m + (1 - (double)p->beta1) * g;
        *v = (double)p->beta2 * *v + (1 - (double)p->beta2) * g * g;
        double mean = *m / (1 - pow((double)p->beta1, updates)),
               square = *v / (1 - pow((double)p->beta2, updates));
        *w -= rate * mean / (sqrt(square) + (double)p->epsilon);
        return;
    }
    double momentum = (double)p->momentum;
    *m *= rate_before > 0 ? rate / rate_before : 1; // fairseq's NAG keeps it in units of the rate
    *w += momentum * momentum * *m - (1 + momentum) * rate * g;
    *m = momentum * *m - rate * g;
}

static void check_optimizer(bench *b, knnlm_optimizer kind) {
    kn_train_options o = small_run(b, 0);
    kn_layout layout;
    kn_optimizer optimizer;
    kn_optimizer_options p = o.optimizer;
    p.kind = kind;
    p.clip = 1;
    OK(kn_layout_init(&o.config, &layout));
    OK(kn_optimizer_init(&optimizer, &p, &layout, kn_math_kernels(KNNLM_PRECISION_F32)));
    size_t n = layout.total;
    float *params = test_alloc(n, sizeof *params), *grads = test_alloc(n, sizeof *grads);
    double *w = test_alloc(n, sizeof *w), *m = test_alloc(n, sizeof *m), *v = test_alloc(n, sizeof *v),
           before = 0;
    bool *decays = test_alloc(n, sizeof *decays);
    for (size_t i = 0; i < layout.count; i++)
        for (size_t j = 0; j < layout.params[i].rows * layout.params[i].columns; j++)
            decays[layout.params[i].offset + j] = !layout.params[i].is_vector;
    for (size_t i = 0; i < n; i++) w[i] = params[i] = (float)cos((double)i);
    for (int update = 1; update <= UPDATES; update++) {
        double rate = 0.01 / update, squares = 0, norm;
        for (size_t i = 0; i < n; i++) squares += pow(grads[i] = (float)gradient_at(i, update), 2);
        kn_optimizer_update(&optimizer, params, grads, rate, &norm);
        assert_true(fabs(norm - sqrt(squares)) < 1e-5 * norm);
        assert_int_equal(norm > 1, update == CLIPPED);
        for (size_t i = 0; i < n; i++)
            update_plainly(&p, &w[i], &m[i], &v[i], grads[i] / fmax(norm, 1), rate, before,
                           decays[i] ? (double)p.decay : 0, update);
        before = rate;
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabs(w[i] - (double)params[i]) < 2e-5))
            fail_msg("parameter %zu: %g, not %g", i, (double)params[i], w[i]);
    memcpy(w, params, n * sizeof *params); // a gradient that is no number changes nothing
    double norm;
    grads[n / 2] = NAN;
    kn_optimizer_update(&optimizer, params, grads, 0.1, &norm);
    assert_false(isfinite(norm));
    assert_memory_equal(w, params, n * sizeof *params);
    void *all[] = {params, grads, w, m, v, decays};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    kn_optimizer_free(&optimizer);
    kn_layout_free(&layout);
}

static void updates_are_their_formulas(void **state) {
    check_optimizer(*state, KNNLM_OPTIMIZER_ADAMW);
    check_optimizer(*state, KNNLM_OPTIMIZER_NESTEROV);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_bit_for_bit),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(nothing_left_to_do),
        cmocka_unit_test(trial_writes_nothing),
        cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(every_window_once),
        cmocka_unit_test(epochs_differ),
        cmocka_unit_test(numbers_that_leave_stop_the_run),
        cmocka_unit_test(rates_are_their_formulas),
        cmocka_unit_test(the_papers_restarts),
        cmocka_unit_test(updates_are_their_formulas),
    };
    return cmocka_run_group_tests(tests, bench_open, bench_close);
}
