// From texts to a run: tokenizer, tokens, where to begin, how many updates; what cannot be is told early.
#include "train/texts.h"

#include "base/file.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct making {
    const knnlm_train_options *given;
    const char *const *texts;
    size_t count;
    const char *output;
    char *checkpoint; // its path
    kn_start start;   // the model of `from`, or what the run to be resumed began with
    kn_tokenizer *tokenizer;
    kn_corpus corpus, valid;
    knnlm_train_result *out;
} making;

// ---------------------------------------------------------------- outputs

// Hours of work are not replaced by a call that was only meant to begin others.
static knnlm_status check_new(const making *m) {
    if (m->given->resume || m->given->force) return KNNLM_OK;
    if (kn_file_same(m->checkpoint, m->checkpoint))
        return kn_fail(KNNLM_EINVAL,
                       "%s: has another run: go on with it by `resume`, or replace it by `force`",
                       m->checkpoint);
    if (kn_file_same(m->output, m->output))
        return kn_fail(KNNLM_EINVAL, "%s: exists: name another file, or replace it by `force`", m->output);
    return KNNLM_OK;
}

// A run that could not be saved is refused before it begins.
static knnlm_status check_outputs(making *m) {
    size_t size = strlen(m->output) + sizeof ".checkpoint";
    m->checkpoint = kn_alloc(size, 1);
    if (!m->checkpoint) return KNNLM_ENOMEM;
    snprintf(m->checkpoint, size, "%s.checkpoint", m->output);
    KN_TRY(kn_writer_try(m->output));
    KN_TRY(kn_writer_try(m->checkpoint));
    return check_new(m);
}

// ---------------------------------------------------------------- inputs

// Where the run begins: anew, from a model, or where a checkpoint stands. What cannot be is told before the
// text is read.
static knnlm_status set_start(making *m, kn_train_options *o) {
    const knnlm_train_options *g = m->given;
    if (g->resume)
        KN_TRY(kn_start_resume(m->checkpoint, g->from, &g->progress, &m->start));
    else if (g->from)
        KN_TRY(kn_start_open(g->from, &g->progress, &m->start));
    if (!*m->start.fingerprint) return kn_train_settings_config(g, 1 << 16, &o->config);
    o->start = &m->start;
    o->config = m->start.config;
    const char *shape = kn_train_settings_shape(g);
    if (shape)
        return kn_fail(KNNLM_EINVAL, "%s: the run began from a model, which decides `%s`: resume without it",
                       m->checkpoint, shape);
    if (g->length > o->config.context)
        return kn_fail(KNNLM_EINVAL, "`length` %lld: the context of %s is %d", (long long)g->length,
                       g->from ? g->from : m->checkpoint, o->config.context);
    return KNNLM_OK;
}

static knnlm_status make_tokenizer(making *m) {
    const knnlm_train_options *g = m->given;
    char *text;
    size_t size;
    if (g->tokenizer_file) return kn_tokenizer_open(g->tokenizer_file, &m->tokenizer);
    knnlm_tokenizer_kind kind = g->tokenizer >= 0 ? (knnlm_tokenizer_kind)g->tokenizer : KNNLM_TOKENIZER_BPE;
    int32_t vocabulary = g->vocabulary >= 0 ? g->vocabulary : 16000;
    int64_t sample = g->vocabulary_sample >= 0 ? g->vocabulary_sample : 100;
    if (kind == KNNLM_TOKENIZER_WORDPIECE)
        return kn_fail(KNNLM_EINVAL, "`tokenizer` wordpiece: give its vocab.txt by `tokenizer_file`");
    size_t limit = kind == KNNLM_TOKENIZER_WORD ? SIZE_MAX : (size_t)sample << 20;
    KN_TRY(kn_corpus_text(m->texts, m->count, g->texts, limit, &g->progress, &text, &size));
    knnlm_status status = kn_tokenizer_train(kind, vocabulary, text, size, &g->progress, &m->tokenizer);
    free(text);
    return status;
}

static knnlm_status read_inputs(making *m, kn_train_options *o) {
    const knnlm_train_options *g = m->given;
    if (!m->start.tokenizer) KN_TRY(make_tokenizer(m));
    o->tokenizer = m->start.tokenizer ? m->start.tokenizer : m->tokenizer;
    KN_TRY(kn_corpus_read(o->tokenizer, m->texts, m->count, g->texts, &g->progress, &m->corpus));
    o->corpus = &m->corpus;
    if (!g->valid) return KNNLM_OK;
    o->valid = &m->valid;
    return kn_corpus_read(o->tokenizer, &g->valid, 1, g->texts, &g->progress, &m->valid);
}

// ---------------------------------------------------------------- how long

// Updates that fit in the minutes given, from the time a few of them take (thrown away afterwards).
typedef struct probe {
    const knnlm_train_options *given;
    double speed, seconds;
} probe;

static bool asked_to_stop(const knnlm_train_options *g) {
    return g->stop && g->stop(g->listener);
}

static void on_probe(void *context, const knnlm_train_report *r) {
    probe *p = context;
    p->speed = r->tokens_per_second;
    p->seconds = r->seconds;
}

static bool probe_over(void *context) {
    const probe *p = context;
    return asked_to_stop(p->given) || p->seconds > 4;
}

static knnlm_status steps_for_minutes(const knnlm_train_options *g, kn_train_options *o) {
    kn_train_options trial = *o;
    probe p = {.given = g};
    trial.output = NULL;
    trial.valid = NULL;
    trial.steps = INT32_MAX;
    trial.schedule.rate = 1e-4;
    trial.report_every = 1;
    trial.report = on_probe;
    trial.stop = probe_over;
    trial.context = &p;
    trial.resume = false;
    knnlm_status status = kn_train_run(&trial);
    if (asked_to_stop(g)) return kn_fail(KNNLM_ESTOPPED, "stopped before the training began");
    if (status != KNNLM_ESTOPPED) return status;
    o->steps = (int64_t)(g->minutes * 60 * p.speed / (double)o->batch);
    if (o->steps < 1) o->steps = 1;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the run

static knnlm_status plan(const making *m, const kn_train_options *o) {
    kn_layout layout;
    uint64_t disk;
    KN_TRY(kn_layout_init(&o->config, &layout));
    uint64_t parameters = layout.total, need = parameters * 16;
    kn_layout_free(&layout);
    KN_TRY(kn_disk_free(o->output, &disk));
    if (disk < need)
        return kn_fail(KNNLM_EIO, "%s: checkpoints need %.1f GB, the disk has %.1f GB free", o->output,
                       (double)need / 1e9, (double)disk / 1e9);
    m->out->parameters = parameters;
    m->out->kernels = kn_math_kernels(o->precision)->name;
    knnlm_train_plan p = {.tokens = o->corpus->count,
                          .parameters = parameters,
                          .steps = o->steps,
                          .batch = o->batch,
                          .kernels = m->out->kernels};
    if (m->given->planned) m->given->planned(m->given->listener, &p);
    return KNNLM_OK;
}

static void on_report(void *context, const knnlm_train_report *r) {
    const making *m = context;
    m->out->last = *r;
    if (m->given->report) m->given->report(m->given->listener, r);
}

static bool on_stop(void *context) {
    return asked_to_stop(((const making *)context)->given);
}

// The schedule is the run's own where nobody says otherwise: it measured its speed once, and is warm already.
static knnlm_status resume_schedule(const making *m, kn_train_options *o) {
    const knnlm_train_options *g = m->given;
    int64_t steps, warmup = o->schedule.warmup;
    KN_TRY(kn_checkpoint_schedule(m->checkpoint, &steps, &warmup));
    if (g->minutes >= 0 || (g->steps < 0 && g->epochs < 0)) o->steps = steps;
    kn_train_settings_optimizer(g, o);
    if (g->warmup < 0) o->schedule.warmup = warmup;
    return KNNLM_OK;
}

static knnlm_status make(making *m) {
    const knnlm_train_options *g = m->given;
    kn_train_options o;
    kn_train_defaults(&o);
    o.output = m->output;
    KN_TRY(check_outputs(m));
    KN_TRY(set_start(m, &o));
    KN_TRY(read_inputs(m, &o));
    if (!o.start) KN_TRY(kn_train_settings_config(g, kn_tokenizer_size(o.tokenizer), &o.config));
    kn_train_settings_run(g, &o);
    kn_train_settings_optimizer(g, &o);
    if (g->resume) {
        KN_TRY(resume_schedule(m, &o));
    } else if (g->minutes >= 0) {
        KN_TRY(steps_for_minutes(g, &o));
        kn_train_settings_optimizer(g, &o);
    }
    KN_TRY(plan(m, &o));
    o.report = on_report;
    o.stop = on_stop;
    o.context = m;
    return kn_train_run(&o);
}

knnlm_status kn_train_texts(const char *const *texts, size_t count, const char *output,
                            const knnlm_train_options *options, knnlm_train_result *out) {
    making m = {.given = options, .texts = texts, .count = count, .output = output, .out = out};
    knnlm_status status = make(&m);
    kn_start_free(&m.start);
    kn_tokenizer_free(m.tokenizer);
    kn_corpus_free(&m.corpus);
    kn_corpus_free(&m.valid);
    free(m.checkpoint);
    return status;
}
