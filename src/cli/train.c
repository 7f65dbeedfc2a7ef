#include "cli/cli.h"
#include "train/checkpoint.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {"word", "bpe", "wordpiece", NULL};
static const char *const types[] = {"f32", "f16", "bf16", "q8_0", NULL};
static const kn_gguf_type type_values[] = {KN_GGUF_F32, KN_GGUF_F16, KN_GGUF_BF16, KN_GGUF_Q8_0};
static const char *const optimizers[] = {"adamw", "nesterov", "muon", NULL};
static const char *const schedules[] = {"cosine", "linear", "constant", "plateau", "restarts", NULL};
static const char *const positions[] = {"sinusoidal", "learned", "rotary", NULL};
static const char *const activations[] = {"relu", "gelu", "relu2", "swiglu", NULL};
static const char *const norms[] = {"layer", "rms", NULL};

// What the user said; -1 and NULL: not said, the preset or the default decides.
typedef struct settings {
    cli_common common;
    const char *valid, *output, *from, *preset, *tokenizer_file, *bands, *log;
    int split, kind, type, optimizer, schedule, positions, activation, norm;
    int64_t vocabulary, vocabulary_sample, width, layers, heads, ffn, context, window;
    int64_t steps, length, batch, micro, warmup, period, seed, valid_every, save_every, report_every,
        valid_tokens;
    double epochs, minutes, rate, floor, tail, clip, decay, momentum, beta1, beta2, dropout,
        attention_dropout, activation_dropout, save_seconds;
    bool resume, force, no_bias, qk_norm;
} settings;

static settings said;
enum { UNSAID = -1 };

// One option a line.
// clang-format off
static const settings unsaid = {
    .kind = UNSAID, .type = 1, .optimizer = 0, .schedule = UNSAID, .positions = UNSAID,
    .activation = UNSAID, .norm = UNSAID, .window = UNSAID, .vocabulary = UNSAID, .vocabulary_sample = UNSAID, .width = UNSAID, .layers = UNSAID, .heads = UNSAID,
    .ffn = UNSAID, .context = UNSAID, .steps = UNSAID, .length = UNSAID, .batch = 8192, .micro = UNSAID, .warmup = UNSAID,
    .period = UNSAID, .seed = 1, .valid_every = 200, .save_every = 0, .report_every = 10, .valid_tokens = 1 << 17,
    .epochs = UNSAID, .minutes = UNSAID, .rate = UNSAID, .floor = 0.05, .tail = 0.2, .clip = UNSAID, .decay = UNSAID, .momentum = 0.99, .beta1 = 0.9,
    .beta2 = 0.98, .save_seconds = 300,
};

static const cli_option options[] = {
    {'o', "output", CLI_STRING, &said.output, "FILE", "model to write (required)", 0, 0, NULL},
    {0, "valid", CLI_STRING, &said.valid, "TEXT", "validation text; the best model on it is kept", 0, 0, NULL},
    {0, "documents", CLI_CHOICE, &said.split, "HOW", "file, or wiki: each \"= Title =\" section is a document", 0, 0, kn_split_names},
    {0, "from", CLI_STRING, &said.from, "MODEL", "go on from this model, with its shape and tokenizer; the optimiser begins anew", 0, 0, NULL},
    {0, "preset", CLI_STRING, &said.preset, "NAME", "tiny, small (default), base, stream, stream-tiny, gpt2-tiny, gpt2, paper-bpe, wiki103", 0, 0, NULL},
    {0, "tokenizer", CLI_CHOICE, &said.kind, "KIND", "bpe (default), word or wordpiece", 0, 0, kinds},
    {0, "tokenizer-file", CLI_STRING, &said.tokenizer_file, "FILE", "tokenizer.json, vocab.txt or GGUF to take it from", 0, 0, NULL},
    {0, "vocab", CLI_INTEGER, &said.vocabulary, "N", "tokens to train (default 16000; 0: every word)", 0, 1 << 24, NULL},
    {0, "vocab-sample", CLI_INTEGER, &said.vocabulary_sample, "MB", "text the tokenizer is trained on (default 100)", 1, 1 << 20, NULL},
    {0, "width", CLI_INTEGER, &said.width, "N", "width of the model (default: the preset's, as below)", 4, 32768, NULL},
    {0, "layers", CLI_INTEGER, &said.layers, "N", "layers", 1, 256, NULL},
    {0, "heads", CLI_INTEGER, &said.heads, "N", "attention heads", 1, 32768, NULL},
    {0, "ffn", CLI_INTEGER, &said.ffn, "N", "width of the feed-forward part", 1, 131072, NULL},
    {0, "context", CLI_INTEGER, &said.context, "N", "longest window", 1, 1 << 20, NULL},
    {0, "positions", CLI_CHOICE, &said.positions, "HOW", "sinusoidal, learned or rotary", 0, 0, positions},
    {0, "activation", CLI_CHOICE, &said.activation, "F", "relu, gelu, relu2 (squared) or swiglu (gated)", 0, 0, activations},
    {0, "norm", CLI_CHOICE, &said.norm, "KIND", "layer (LayerNorm) or rms (RMSNorm)", 0, 0, norms},
    {0, "no-bias", CLI_FLAG, &said.no_bias, NULL, "matrices and norms have no biases", 0, 0, NULL},
    {0, "qk-norm", CLI_FLAG, &said.qk_norm, NULL, "RMSNorm of queries and keys (rotary positions)", 0, 0, NULL},
    {0, "window", CLI_INTEGER, &said.window, "N", "attention sees the last N positions, 0: all (rotary positions)", 0, 1 << 20, NULL},
    {0, "bands", CLI_STRING, &said.bands, "A,B", "adaptive embeddings and softmax with these cutoffs", 0, 0, NULL},
    {0, "steps", CLI_INTEGER, &said.steps, "N", "updates (default 1000)", 1, 1e12, NULL},
    {0, "epochs", CLI_NUMBER, &said.epochs, "X", "or so many times over the text", 1e-6, 1e6, NULL},
    {0, "minutes", CLI_NUMBER, &said.minutes, "X", "or about so long, by the speed of the first updates", 1e-3, 1e6, NULL},
    {0, "length", CLI_INTEGER, &said.length, "N", "tokens of a window (default: the context; with --from, as it was trained)", 1, 1 << 20, NULL},
    {0, "batch", CLI_INTEGER, &said.batch, "N", "tokens of an update (default 8192)", 1, 1 << 28, NULL},
    {0, "micro", CLI_INTEGER, &said.micro, "N", "tokens in memory at a time (default 4096)", 1, 1 << 28, NULL},
    {0, "optimizer", CLI_CHOICE, &said.optimizer, "NAME", "adamw (default), nesterov (the paper's) or muon", 0, 0, optimizers},
    {0, "schedule", CLI_CHOICE, &said.schedule, "NAME", "cosine, linear, constant, plateau or restarts (the paper's)", 0, 0, schedules},
    {0, "rate", CLI_NUMBER, &said.rate, "X", "peak learning rate (default .001; nesterov 1)", 0, 1e6, NULL},
    {0, "floor", CLI_NUMBER, &said.floor, "X", "lowest rate as a part of the peak (default .05)", 0, 1, NULL},
    {0, "tail", CLI_NUMBER, &said.tail, "X", "part of the updates that plateau descends over (default .2)", 0, 1, NULL},
    {0, "warmup", CLI_INTEGER, &said.warmup, "N", "updates of warm-up (default: 1 in 20, at most 1000)", 0, 1e12, NULL},
    {0, "period", CLI_INTEGER, &said.period, "N", "updates of the first cosine of restarts (default 270000)", 1, 1e12, NULL},
    {0, "clip", CLI_NUMBER, &said.clip, "X", "largest norm of the gradient (default 1; nesterov .1)", 0, 1e9, NULL},
    {0, "decay", CLI_NUMBER, &said.decay, "X", "weight decay (default .05; nesterov 0)", 0, 10, NULL},
    {0, "momentum", CLI_NUMBER, &said.momentum, "X", "of nesterov (default .99)", 0, 1, NULL},
    {0, "beta1", CLI_NUMBER, &said.beta1, "X", "of adamw (default .9)", 0, 1, NULL},
    {0, "beta2", CLI_NUMBER, &said.beta2, "X", "of adamw (default .98)", 0, 1, NULL},
    {0, "dropout", CLI_NUMBER, &said.dropout, "P", "of embeddings and of each part's output (default 0)", 0, 0.99, NULL},
    {0, "attention-dropout", CLI_NUMBER, &said.attention_dropout, "P", "of attention weights (default 0)", 0, 0.99, NULL},
    {0, "activation-dropout", CLI_NUMBER, &said.activation_dropout, "P", "inside the feed-forward part (default 0)", 0, 0.99, NULL},
    {0, "type", CLI_CHOICE, &said.type, "T", "of the model file: f16 (default), f32, bf16, q8_0", 0, 0, types},
    {0, "valid-every", CLI_INTEGER, &said.valid_every, "N", "updates between validations (default 200)", 0, 1e12, NULL},
    {0, "valid-tokens", CLI_INTEGER, &said.valid_tokens, "N", "tokens validated, 0: all (default 131072)", 0, 1e12, NULL},
    {0, "save-every", CLI_INTEGER, &said.save_every, "N", "updates between checkpoints (default: every 5 minutes)", 0, 1e12, NULL},
    {0, "save-seconds", CLI_NUMBER, &said.save_seconds, "S", "seconds between checkpoints, 0: none (default 300)", 0, 1e9, NULL},
    {0, "report-every", CLI_INTEGER, &said.report_every, "N", "updates between lines of progress (default 10)", 1, 1e12, NULL},
    {0, "log", CLI_STRING, &said.log, "FILE", "CSV of the run: step, tokens, seconds, loss, valid_loss, rate, norm", 0, 0, NULL},
    {0, "resume", CLI_FLAG, &said.resume, NULL, "go on from OUTPUT.checkpoint", 0, 0, NULL},
    {0, "force", CLI_FLAG, &said.force, NULL, "replace a model or a checkpoint that is there already", 0, 0, NULL},
    {0, "seed", CLI_INTEGER, &said.seed, "N", "of weights, order and dropout (default 1)", 0, 9e15, NULL},
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

// What a model given by --from decides.
static const char *const shape[] = {"preset",  "tokenizer", "tokenizer-file", "vocab", "vocab-sample",
                                    "width",   "layers",    "heads",          "ffn",   "context",
                                    "window",  "positions", "activation",     "norm",  "no-bias",
                                    "qk-norm", "bands"};

static bool is_said(const cli_option *o) {
    switch (o->kind) {
    case CLI_FLAG:
        return *(const bool *)o->value;
    case CLI_STRING:
        return *(const char *const *)o->value != NULL;
    case CLI_CHOICE:
        return *(const int *)o->value != UNSAID;
    case CLI_NUMBER:
        return *(const double *)o->value != UNSAID;
    default:
        return *(const int64_t *)o->value != UNSAID;
    }
}

// The first option of the shape that was said; NULL: none.
static const char *shape_said(void) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (size_t j = 0; j < sizeof shape / sizeof *shape; j++)
            if (strcmp(options[i].name, shape[j]) == 0 && is_said(&options[i])) return shape[j];
    return NULL;
}

// ---------------------------------------------------------------- what is printed

typedef struct listener {
    FILE *log;
    bool terminal;
    kn_train_report last;
} listener;

static void write_log(FILE *log, const kn_train_report *r) {
    fprintf(log, "%lld,%llu,%.1f,%.5f,", (long long)r->step, (unsigned long long)r->tokens, r->seconds,
            r->loss);
    if (!isnan(r->valid_loss)) fprintf(log, "%.5f", r->valid_loss);
    fprintf(log, ",%.6g,%.4f\n", r->rate, r->norm);
    fflush(log);
}

static void on_report(void *context, const kn_train_report *r) {
    listener *l = context;
    char left[32], rate[32];
    l->last = *r;
    if (isnan(r->loss)) return; // nothing was left to do
    if (l->log) write_log(l->log, r);
    if (l->terminal || said.common.verbose) {
        if (l->terminal) fprintf(stderr, "\r\033[K");
        fprintf(stderr, "step %lld/%lld  loss %.4f  ppl %.2f  %s tok/s  %s left", (long long)r->step,
                (long long)r->steps, r->loss, exp(r->loss), cli_count(r->tokens_per_second, rate),
                cli_duration(r->seconds_left, left));
        if (!isnan(r->valid_loss))
            fprintf(stderr, "  valid ppl %.3f%s", exp(r->valid_loss), r->best ? " (best)" : "");
        if (!l->terminal || !isnan(r->valid_loss)) fprintf(stderr, "\n");
    }
}

static bool on_stop(void *context) {
    (void)context;
    return cli_interrupted();
}

static void print_result(const kn_train_options *o, const listener *l, uint64_t parameters) {
    const kn_train_report *last = &l->last;
    if (said.common.json) {
        json_t *j = json_pack(
            "{s:o?, s:I, s:I, s:I, s:o?, s:o?, s:o?, s:s}", "model", json_string(o->output), "parameters",
            (json_int_t)parameters, "steps", (json_int_t)last->step, "tokens", (json_int_t)last->tokens,
            "loss", json_real(last->loss), "seconds", json_real(last->seconds), "tokens_per_second",
            json_real(last->tokens_per_second), "kernels", kn_math_kernels(o->precision)->name);
        if (said.from) json_object_set_new(j, "from", json_string(said.from));
        if (isfinite(last->best_loss)) json_object_set_new(j, "valid_ppl", json_real(exp(last->best_loss)));
        cli_print_json(j);
        return;
    }
    char count[32], seconds[32], rate[32];
    printf("%s: %s parameters, %lld updates in %s, %s tok/s", o->output, cli_count((double)parameters, count),
           (long long)l->last.step, cli_duration(l->last.seconds, seconds),
           cli_count(l->last.tokens_per_second, rate));
    if (isfinite(l->last.best_loss))
        printf(", best validation perplexity %.2f per token", exp(l->last.best_loss));
    printf("\n");
}

// ---------------------------------------------------------------- settings to options

static knnlm_status set_bands(kn_config *c, const char *text) {
    char *end;
    c->bands = 1;
    for (const char *at = text; *at; at = *end ? end + 1 : end) {
        long cutoff = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || cutoff < 1 || cutoff > 1 << 24 || c->bands == KN_BANDS_MAX)
            return kn_fail(KNNLM_EINVAL, "--bands %s: up to %d growing numbers with commas", text,
                           KN_BANDS_MAX - 1);
        c->band_end[c->bands++ - 1] = (int32_t)cutoff;
    }
    return KNNLM_OK;
}

static void override(int32_t *value, int64_t given) {
    if (given != UNSAID) *value = (int32_t)given;
}

static knnlm_status set_config(kn_config *c, int32_t vocabulary) {
    KN_TRY(kn_config_preset(said.preset ? said.preset : "small", c));
    bool scaled = c->embedding_scale != 1;
    override(&c->width, said.width);
    override(&c->layers, said.layers);
    override(&c->heads, said.heads);
    override(&c->context, said.context);
    c->ffn = said.ffn != UNSAID ? (int32_t)said.ffn : said.width != UNSAID ? 4 * c->width : c->ffn;
    if (said.positions != UNSAID) c->positions = (knnlm_positions)said.positions;
    if (said.activation != UNSAID) c->activation = (knnlm_activation)said.activation;
    if (said.norm != UNSAID) c->norm = (knnlm_norm)said.norm;
    if (said.no_bias) c->no_bias = true;
    if (said.qk_norm) c->qk_norm = true;
    override(&c->window, said.window);
    if (c->positions == KNNLM_POSITIONS_ROTARY && c->rope_base == 0) c->rope_base = 10000;
    if (said.bands) KN_TRY(set_bands(c, said.bands));
    if (scaled) c->embedding_scale = sqrtf((float)c->width);
    kn_config_set_vocabulary(c, vocabulary);
    return kn_config_validate(c, "the model asked for");
}

static knnlm_status make_tokenizer(const char *const *paths, size_t count, kn_tokenizer **out) {
    char *text;
    size_t size;
    if (said.tokenizer_file) return kn_tokenizer_open(said.tokenizer_file, out);
    knnlm_tokenizer_kind kind = said.kind != UNSAID ? (knnlm_tokenizer_kind)said.kind : KNNLM_TOKENIZER_BPE;
    int64_t vocabulary = said.vocabulary != UNSAID ? said.vocabulary : 16000;
    int64_t sample = said.vocabulary_sample != UNSAID ? said.vocabulary_sample : 100;
    if (kind == KNNLM_TOKENIZER_WORDPIECE)
        return kn_fail(KNNLM_EINVAL, "--tokenizer wordpiece: give its vocab.txt by --tokenizer-file");
    size_t limit = kind == KNNLM_TOKENIZER_WORD ? SIZE_MAX : (size_t)sample << 20;
    KN_TRY(kn_corpus_text(paths, count, limit, &cli_progress, &text, &size));
    knnlm_status status = kn_tokenizer_train(kind, (int32_t)vocabulary, text, size, &cli_progress, out);
    free(text);
    cli_progress_clear();
    return status;
}

static void set_optimizer(kn_train_options *o) {
    bool paper = said.optimizer == KNNLM_OPTIMIZER_NESTEROV;
    o->optimizer.kind = (knnlm_optimizer)said.optimizer;
    o->optimizer.beta1 = (float)said.beta1;
    o->optimizer.beta2 = (float)said.beta2;
    o->optimizer.momentum = (float)said.momentum;
    o->optimizer.decay = said.decay != UNSAID ? (float)said.decay : paper ? 0.0f : 0.05f;
    o->optimizer.clip = said.clip != UNSAID ? (float)said.clip : paper ? 0.1f : 1.0f;
    o->schedule.kind = said.schedule != UNSAID ? (knnlm_schedule)said.schedule
                       : paper                 ? KNNLM_SCHEDULE_RESTARTS
                                               : KNNLM_SCHEDULE_COSINE;
    o->schedule.rate = said.rate != UNSAID ? said.rate : paper ? 1.0 : 1e-3;
    o->schedule.floor = said.floor;
    o->schedule.tail = said.tail;
    o->schedule.steps = o->steps;
    o->schedule.warmup = said.warmup != UNSAID  ? said.warmup
                         : paper                ? 16000
                         : o->steps / 20 < 1000 ? o->steps / 20
                                                : 1000;
    o->schedule.warmup_from = paper ? 1e-7 : 0;
    o->schedule.period = said.period != UNSAID ? said.period : 270000;
}

static void set_run(kn_train_options *o) {
    o->output = said.output;
    o->type = type_values[said.type];
    o->resume = said.resume;
    o->length = said.length != UNSAID ? (size_t)said.length
                                      : (size_t)(o->start ? o->start->length : o->config.context);
    o->batch = ((size_t)said.batch + o->length - 1) / o->length * o->length;
    size_t micro = said.micro != UNSAID ? (size_t)said.micro : 4096;
    o->micro = micro < o->length ? o->length : micro / o->length * o->length;
    if (o->micro > o->batch) o->micro = o->batch;
    if (said.epochs != UNSAID)
        o->steps = (int64_t)ceil(said.epochs * (double)(o->corpus->count - 1) / (double)o->batch);
    else if (said.steps != UNSAID)
        o->steps = said.steps;
    o->dropout =
        (kn_dropout){(float)said.dropout, (float)said.attention_dropout, (float)said.activation_dropout, 0};
    o->seed = (uint64_t)said.seed;
    o->precision = (knnlm_precision)said.common.precision;
    o->valid_every = said.valid_every;
    o->save_every = said.save_every;
    o->save_seconds = said.save_seconds;
    o->report_every = said.report_every;
    o->valid_tokens = (size_t)said.valid_tokens;
}

// Updates that fit in the minutes given, from the time a few of them take (thrown away afterwards).
typedef struct probe {
    double speed, seconds;
} probe;

static void on_probe(void *context, const kn_train_report *r) {
    *(probe *)context = (probe){r->tokens_per_second, r->seconds};
}

static bool probe_over(void *context) {
    return cli_interrupted() || ((probe *)context)->seconds > 4;
}

static knnlm_status steps_for_minutes(kn_train_options *o) {
    kn_train_options trial = *o;
    probe p = {0};
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
    if (cli_interrupted()) return kn_fail(KNNLM_ESTOPPED, "stopped before the training began");
    if (status != KNNLM_ESTOPPED) return status;
    o->steps = (int64_t)(said.minutes * 60 * p.speed / (double)o->batch);
    if (o->steps < 1) o->steps = 1;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the run

typedef struct inputs {
    kn_start start; // the model of --from, or what the run to be resumed began with
    kn_tokenizer *tokenizer;
    kn_corpus corpus, valid;
    char *checkpoint; // its path
} inputs;

static knnlm_status check_output(const char *output, const char *const *paths, size_t count) {
    KN_TRY(cli_check_output(output, paths, count));
    KN_TRY(cli_check_output(output, &said.from, 1));
    return cli_check_output(output, &said.valid, 1);
}

// Hours of work are not replaced by a command that was only meant to begin others.
static knnlm_status check_new(const inputs *in) {
    if (said.resume || said.force) return KNNLM_OK;
    if (kn_file_same(in->checkpoint, in->checkpoint))
        return kn_fail(KNNLM_EINVAL,
                       "%s: has another run: go on with it by --resume, or replace it by --force",
                       in->checkpoint);
    if (kn_file_same(said.output, said.output))
        return kn_fail(KNNLM_EINVAL, "%s: exists: name another file, or replace it by --force", said.output);
    return KNNLM_OK;
}

// A run that could not be saved is refused before it begins.
static knnlm_status check_outputs(inputs *in, const char *const *paths, size_t count) {
    size_t size = strlen(said.output) + sizeof ".checkpoint";
    in->checkpoint = kn_alloc(size, 1);
    if (!in->checkpoint) return KNNLM_ENOMEM;
    snprintf(in->checkpoint, size, "%s.checkpoint", said.output);
    KN_TRY(kn_writer_try(said.output));
    KN_TRY(kn_writer_try(in->checkpoint));
    KN_TRY(check_output(said.output, paths, count));
    KN_TRY(check_output(in->checkpoint, paths, count));
    KN_TRY(check_new(in));
    return said.log ? check_output(said.log, paths, count) : KNNLM_OK;
}

// Where the run begins: anew (*start NULL), from a model, or where a checkpoint stands. What cannot be is
// told before the text is read.
static knnlm_status set_start(inputs *in, kn_train_options *o) {
    if (said.resume)
        KN_TRY(kn_start_resume(in->checkpoint, said.from, &cli_progress, &in->start));
    else if (said.from)
        KN_TRY(kn_start_open(said.from, &cli_progress, &in->start));
    if (!*in->start.fingerprint) return set_config(&o->config, 1 << 16);
    o->start = &in->start;
    o->config = in->start.config;
    if (shape_said())
        return kn_fail(KNNLM_EINVAL, "%s: the run began from a model, which decides --%s: resume without it",
                       in->checkpoint, shape_said());
    if (said.length > o->config.context)
        return kn_fail(KNNLM_EINVAL, "--length %lld: the context of %s is %d", (long long)said.length,
                       said.from ? said.from : in->checkpoint, o->config.context);
    return KNNLM_OK;
}

static knnlm_status read_inputs(inputs *in, const char *const *paths, size_t count) {
    if (!in->start.tokenizer) KN_TRY(make_tokenizer(paths, count, &in->tokenizer));
    const kn_tokenizer *t = in->start.tokenizer ? in->start.tokenizer : in->tokenizer;
    KN_TRY(kn_corpus_read(t, paths, count, (knnlm_split)said.split, &cli_progress, &in->corpus));
    if (said.valid)
        KN_TRY(kn_corpus_read(t, &said.valid, 1, (knnlm_split)said.split, &cli_progress, &in->valid));
    cli_progress_clear();
    return KNNLM_OK;
}

static knnlm_status print_plan(const kn_train_options *o, uint64_t *parameters) {
    kn_layout layout;
    char tokens[32], count[32];
    KN_TRY(kn_layout_init(&o->config, &layout));
    *parameters = layout.total;
    kn_layout_free(&layout);
    uint64_t disk, need = *parameters * 16;
    KN_TRY(kn_disk_free(o->output, &disk));
    if (disk < need)
        return kn_fail(KNNLM_EIO, "%s: checkpoints need %.1f GB, the disk has %.1f GB free", o->output,
                       (double)need / 1e9, (double)disk / 1e9);
    fprintf(stderr,
            "%s tokens of text, %s parameters, %lld updates of %zu tokens (%.2f epochs), %s kernels\n",
            cli_count((double)o->corpus->count, tokens), cli_count((double)*parameters, count),
            (long long)o->steps, o->batch, (double)o->steps * (double)o->batch / (double)o->corpus->count,
            kn_math_kernels(o->precision)->name);
    return KNNLM_OK;
}

static knnlm_status open_log(listener *l) {
    if (!said.log) return KNNLM_OK;
    l->log = fopen(said.log, said.resume ? "a" : "w");
    if (!l->log) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot write", said.log);
    if (!said.resume) fprintf(l->log, "step,tokens,seconds,loss,valid_loss,rate,norm\n");
    return KNNLM_OK;
}

static knnlm_status train(const char *const *paths, size_t count, inputs *in, listener *l) {
    kn_train_options o;
    uint64_t parameters;
    kn_train_defaults(&o);
    KN_TRY(check_outputs(in, paths, count));
    KN_TRY(set_start(in, &o));
    KN_TRY(read_inputs(in, paths, count));
    o.tokenizer = in->start.tokenizer ? in->start.tokenizer : in->tokenizer;
    o.corpus = &in->corpus;
    o.valid = said.valid ? &in->valid : NULL;
    if (!o.start) KN_TRY(set_config(&o.config, kn_tokenizer_size(o.tokenizer)));
    set_run(&o);
    set_optimizer(&o);
    if (said.minutes != UNSAID) {
        // The run that is resumed measured its speed once: another number of steps would be another schedule.
        KN_TRY(said.resume ? kn_checkpoint_steps(in->checkpoint, &o.steps) : steps_for_minutes(&o));
        set_optimizer(&o);
    }
    KN_TRY(print_plan(&o, &parameters));
    KN_TRY(open_log(l));
    o.report = on_report;
    o.stop = on_stop;
    o.context = l;
    KN_TRY(kn_train_run(&o));
    if (l->terminal) fprintf(stderr, "\r\033[K");
    print_result(&o, l, parameters);
    return KNNLM_OK;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    said = unsaid;
    int code = cli_parse(&cli_train, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (count == 0) return cli_usage(&cli_train, "no text to train on");
    if (!said.output) return cli_usage(&cli_train, "no -o FILE to write the model to");
    if ((said.steps != UNSAID) + (said.epochs != UNSAID) + (said.minutes != UNSAID) > 1)
        return cli_usage(&cli_train, "one of --steps, --epochs and --minutes");
    if (said.resume && said.force)
        return cli_usage(&cli_train, "one of --resume (go on with the run) and --force (replace it)");
    if (said.from && shape_said())
        return cli_usage(&cli_train, "--%s: with --from, the model decides this", shape_said());
    code = cli_start(&cli_train, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    inputs in = {0};
    listener l = {.terminal = isatty(STDERR_FILENO)};
    knnlm_status status = train((const char *const *)paths, count, &in, &l);
    kn_start_free(&in.start);
    kn_tokenizer_free(in.tokenizer);
    kn_corpus_free(&in.corpus);
    kn_corpus_free(&in.valid);
    free(in.checkpoint);
    if (l.log && (ferror(l.log) | fclose(l.log)) && status == KNNLM_OK)
        status = kn_fail(KNNLM_EIO, "%s: cannot write all of the log", said.log);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_train);
}

const cli_command cli_train = {
    .name = "train",
    .summary = "train a model on text, from scratch or from another model",
    .usage = "TEXT... -o MODEL [options]",
    .examples = "  knnlm train corpus/ --valid held-out.txt -o my.gguf --preset tiny --minutes 10\n"
                "  knnlm train wiki.train.txt --valid wiki.valid.txt -o w.gguf --tokenizer word --vocab 0 "
                "--dropout .3\n"
                "  knnlm train corpus/ -o my.gguf --steps 20000 --resume\n"
                "  knnlm train letters/ --from my.gguf -o letters.gguf --epochs 2\n",
    .run = run,
};
