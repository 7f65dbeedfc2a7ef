// The training loop: updates, validation, checkpoints, reports.
#include "train/train.h"

#include "base/memory.h"
#include "base/random.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kn_train_defaults(kn_train_options *o) {
    *o = (kn_train_options){
        .type = KN_GGUF_F16,
        .steps = 1000,
        .batch = 8192,
        .micro = 4096,
        .schedule = {KNNLM_SCHEDULE_COSINE, 1e-3, 100, 0, 0, 0.05, 0.2, 270000, 2.0, 0.75},
        .optimizer = {KNNLM_OPTIMIZER_ADAMW, 0.9f, 0.98f, 1e-8f, 0.99f, 0.95f, 0.05f, 1.0f},
        .seed = 1,
        .report_every = 10,
        .valid_every = 200,
        .save_seconds = 300,
        .valid_tokens = 1 << 17,
    };
}

typedef struct run {
    const kn_train_options *o;
    kn_layout layout;
    const kn_kernels *k;
    kn_gradient *gradient;
    kn_train_state state;
    kn_order order;
    float *grads;
    int32_t *inputs, *targets; // of a micro-batch
    char *checkpoint;          // path
    double started, saved;     // seconds
    int64_t first_step;
    double loss; // sum since the last report
    uint64_t loss_tokens;
    double last_norm;
} run;

static knnlm_status init(run *r) {
    const kn_train_options *o = r->o;
    size_t path = strlen(o->output ? o->output : "") + 16;
    KN_TRY(kn_layout_init(&o->config, &r->layout));
    r->k = kn_math_kernels(o->precision);
    KN_TRY(kn_order_init(&r->order, o->corpus->count, o->length, o->seed));
    KN_TRY(kn_gradient_open(&o->config, &r->layout, r->k, o->micro, &r->gradient));
    KN_TRY(kn_optimizer_init(&r->state.optimizer, &o->optimizer, &r->layout, r->k));
    r->state.params = kn_alloc_aligned(r->layout.total, sizeof(float));
    r->grads = kn_alloc_aligned(r->layout.total, sizeof(float));
    r->inputs = kn_alloc(o->micro, sizeof *r->inputs);
    r->targets = kn_alloc(o->micro, sizeof *r->targets);
    r->checkpoint = kn_alloc(path, 1);
    if (!r->state.params || !r->grads || !r->inputs || !r->targets || !r->checkpoint) return KNNLM_ENOMEM;
    if (o->output) snprintf(r->checkpoint, path, "%s.checkpoint", o->output);
    r->state.best = INFINITY;
    if (o->resume) return kn_checkpoint_load(r->checkpoint, o, &r->layout, &r->state);
    if (o->start) return kn_model_load_params(o->start->file, &o->config, &r->layout, r->state.params);
    kn_layout_fill(&o->config, &r->layout, o->seed, r->state.params);
    return KNNLM_OK;
}

static void release(run *r) {
    kn_gradient_close(r->gradient);
    kn_optimizer_free(&r->state.optimizer);
    kn_order_free(&r->order);
    kn_layout_free(&r->layout);
    kn_free_aligned(r->state.params);
    kn_free_aligned(r->grads);
    free(r->inputs);
    free(r->targets);
    free(r->checkpoint);
}

// Loss and gradient of `count` windows from number `first` on.
static knnlm_status add_windows(run *r, uint64_t first, size_t count, const kn_dropout *dropout) {
    const kn_train_options *o = r->o;
    for (size_t i = 0; i < count; i++) {
        size_t at;
        KN_TRY(kn_order_at(&r->order, first + i, &at));
        memcpy(r->inputs + i * o->length, o->corpus->tokens + at, o->length * sizeof *r->inputs);
        memcpy(r->targets + i * o->length, o->corpus->tokens + at + 1, o->length * sizeof *r->targets);
    }
    return kn_gradient_add(r->gradient, r->inputs, r->targets, count, o->length, 1.0f / (float)o->batch,
                           dropout, r->grads, &r->loss);
}

static knnlm_status step(run *r) {
    const kn_train_options *o = r->o;
    size_t windows = o->batch / o->length, at_once = o->micro / o->length;
    uint64_t first = (uint64_t)r->state.step * windows;
    kn_dropout dropout = o->dropout;
    bool drops = dropout.residual > 0 || dropout.attention > 0 || dropout.activation > 0;
    memset(r->grads, 0, r->layout.total * sizeof *r->grads);
    kn_gradient_set(r->gradient, r->state.params);
    for (size_t done = 0; done < windows; done += at_once) {
        size_t n = windows - done < at_once ? windows - done : at_once;
        dropout.key = kn_mix64(o->seed ^ kn_mix64((uint64_t)r->state.step * windows + done));
        KN_TRY(add_windows(r, first + done, n, drops ? &dropout : NULL));
    }
    r->loss_tokens += windows * o->length;
    KN_TRY(kn_optimizer_update(&r->state.optimizer, r->state.params, r->grads,
                               kn_schedule_rate(&o->schedule, r->state.step), &r->last_norm));
    if (!isfinite(r->last_norm) || !isfinite(r->loss))
        return kn_fail(
            KNNLM_EDATA,
            "the loss is no longer a number at step %lld; the last checkpoint is kept: try a lower `rate`",
            (long long)r->state.step);
    r->state.step++;
    return KNNLM_OK;
}

// Mean loss over the validation text, in windows of the training length one after another.
static knnlm_status validate(run *r, double *loss) {
    const kn_train_options *o = r->o;
    size_t limit = o->valid->count - 1, at_once = o->micro / o->length;
    if (o->valid_tokens && limit > o->valid_tokens) limit = o->valid_tokens;
    double sum = 0;
    size_t at = 0, tokens = 0;
    kn_gradient_set(r->gradient, r->state.params);
    while (at < limit) {
        size_t length = limit - at < o->length ? limit - at : o->length;
        size_t windows = (limit - at) / length < at_once ? (limit - at) / length : at_once;
        KN_TRY(kn_gradient_add(r->gradient, o->valid->tokens + at, o->valid->tokens + at + 1, windows, length,
                               0, NULL, NULL, &sum));
        at += windows * length;
        tokens = at;
    }
    *loss = sum / (double)tokens;
    return KNNLM_OK;
}

static knnlm_status save_model(run *r) {
    if (!r->o->output) return KNNLM_OK;
    return kn_model_save(r->o->output, &r->o->config, r->o->tokenizer, (int32_t)r->o->length, r->state.params,
                         r->o->type);
}

static bool due(int64_t step, int64_t every, bool last) {
    return last || (every > 0 && step % every == 0);
}

static void report(run *r, knnlm_train_report *report) {
    const kn_train_options *o = r->o;
    report->step = r->state.step;
    report->steps = o->steps;
    report->norm = r->last_norm;
    report->loss = r->loss_tokens ? r->loss / (double)r->loss_tokens : NAN;
    report->rate = kn_schedule_rate(&o->schedule, r->state.step - 1);
    report->seconds = kn_seconds() - r->started;
    report->best_loss = r->state.best;
    report->tokens = (uint64_t)r->state.step * o->batch;
    report->tokens_per_second = (double)(r->state.step - r->first_step) * (double)o->batch / report->seconds;
    report->seconds_left = (double)(o->steps - r->state.step) * (double)o->batch / report->tokens_per_second;
    r->loss = 0;
    r->loss_tokens = 0;
    if (o->report) o->report(o->context, report);
}

static knnlm_status validate_and_keep(run *r, knnlm_train_report *report) {
    KN_TRY(validate(r, &report->valid_loss));
    report->best = report->valid_loss < r->state.best;
    if (!report->best) return KNNLM_OK;
    r->state.best = report->valid_loss;
    return save_model(r);
}

static knnlm_status save_run(run *r) {
    if (!r->o->output) return KNNLM_OK;
    KN_TRY(kn_checkpoint_save(r->checkpoint, r->o, &r->layout, &r->state));
    r->saved = kn_seconds();
    return r->o->valid ? KNNLM_OK : save_model(r);
}

// Validation, checkpoint and report that are due after a step; *stop when the listener asks for it.
static knnlm_status after_step(run *r, bool *stop) {
    const kn_train_options *o = r->o;
    bool last = r->state.step >= o->steps;
    bool validated = o->valid && due(r->state.step, o->valid_every, last);
    knnlm_train_report now = {.valid_loss = NAN};
    *stop = !last && o->stop && o->stop(o->context);
    // Also when it is to stop: the resumed run begins after this step, and must know the best as if it had
    // not stopped.
    if (validated) KN_TRY(validate_and_keep(r, &now));
    now.saved = *stop || due(r->state.step, o->save_every, last) ||
                (o->save_seconds > 0 && kn_seconds() - r->saved > o->save_seconds);
    if (now.saved) KN_TRY(save_run(r));
    if (due(r->state.step, o->report_every, last) || validated) report(r, &now);
    return KNNLM_OK;
}

static knnlm_status run_steps(run *r) {
    const kn_train_options *o = r->o;
    bool stop = false;
    r->started = r->saved = kn_seconds();
    r->first_step = r->state.step;
    if (r->state.step >= o->steps) report(r, &(knnlm_train_report){.valid_loss = NAN});
    while (r->state.step < o->steps && !stop) {
        KN_TRY(step(r));
        KN_TRY(after_step(r, &stop));
    }
    if (!stop) return KNNLM_OK;
    if (!o->output) return kn_fail(KNNLM_ESTOPPED, "stopped");
    return kn_fail(KNNLM_ESTOPPED, "stopped at step %lld; %s has the run: go on with `resume`",
                   (long long)r->state.step, r->checkpoint);
}

static knnlm_status check_options(const kn_train_options *o) {
    KN_TRY(kn_config_validate(&o->config, "the model asked for"));
    if (o->length < 1 || o->length > (size_t)o->config.context)
        return kn_fail(KNNLM_EINVAL, "`length` %zu: from 1 to the context of %d", o->length,
                       o->config.context);
    if (o->batch < o->length || o->batch % o->length)
        return kn_fail(KNNLM_EINVAL, "`batch` %zu tokens: a multiple of the window's %zu", o->batch,
                       o->length);
    if (o->micro < o->length)
        return kn_fail(KNNLM_EINVAL, "`micro` %zu tokens: at least a window's %zu", o->micro, o->length);
    if (o->steps < 1) return kn_fail(KNNLM_EINVAL, "`steps` %lld: at least one", (long long)o->steps);
    if (o->valid && o->valid->count < 2) return kn_fail(KNNLM_EDATA, "the validation text is empty");
    return KNNLM_OK;
}

knnlm_status kn_train_run(const kn_train_options *o) {
    KN_TRY(check_options(o));
    run r = {.o = o};
    knnlm_status status = init(&r);
    if (status == KNNLM_OK) status = run_steps(&r);
    release(&r);
    return status;
}
