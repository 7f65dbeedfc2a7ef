// knnlm train: a model from texts.
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/texts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Each in the order of its public enum.
static const char *const kinds[] = {"word", "bpe", "wordpiece", NULL};
static const char *const types[] = {"f32", "f16", "bf16", "q8_0", NULL};
static const char *const optimizers[] = {"adamw", "nesterov", "muon", NULL};
static const char *const schedules[] = {"cosine", "linear", "constant", "plateau", "restarts", NULL};
static const char *const positions[] = {"sinusoidal", "learned", "rotary", NULL};
static const char *const activations[] = {"relu", "gelu", "relu2", "swiglu", NULL};
static const char *const norms[] = {"layer", "rms", NULL};

// The arguments; -1 and NULL: not given, the preset or the default decides.
typedef struct settings {
    cli_common common;
    const char *valid, *output, *from, *preset, *tokenizer_file, *bands, *log;
    cli_texts texts;
    int kind, type, optimizer, schedule, positions, activation, norm;
    int64_t vocabulary, vocabulary_sample, width, layers, heads, ffn, context, window;
    int64_t steps, length, batch, micro, warmup, period, seed, valid_every, save_every, report_every,
        valid_tokens;
    double epochs, minutes, rate, floor, tail, clip, decay, momentum, beta1, beta2, dropout,
        attention_dropout, activation_dropout, save_seconds;
    bool resume, force, no_bias, qk_norm;
} settings;

static settings args;
enum { UNSAID = -1 };

// One option a line.
// clang-format off
static const settings not_given = {
    .kind = UNSAID, .type = 1, .optimizer = 0, .schedule = UNSAID, .positions = UNSAID,
    .activation = UNSAID, .norm = UNSAID, .window = UNSAID, .vocabulary = UNSAID, .vocabulary_sample = UNSAID, .width = UNSAID, .layers = UNSAID, .heads = UNSAID,
    .ffn = UNSAID, .context = UNSAID, .steps = UNSAID, .length = UNSAID, .batch = 8192, .micro = UNSAID, .warmup = UNSAID,
    .period = UNSAID, .seed = 1, .valid_every = 200, .save_every = 0, .report_every = 10, .valid_tokens = 1 << 17,
    .epochs = UNSAID, .minutes = UNSAID, .rate = UNSAID, .floor = 0.05, .tail = 0.2, .clip = UNSAID, .decay = UNSAID, .momentum = 0.99, .beta1 = 0.9,
    .beta2 = 0.98, .save_seconds = 300,
};

static const cli_option options[] = {
    {'o', "output", CLI_STRING, &args.output, "FILE", "model to write (required)", 0, 0, NULL},
    {0, "valid", CLI_STRING, &args.valid, "TEXT", "validation text; the best model on it is kept", 0, 0, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "file"),
    {0, "from", CLI_STRING, &args.from, "MODEL", "go on from this model, with its shape and tokenizer; the optimiser begins anew", 0, 0, NULL},
    {0, "preset", CLI_STRING, &args.preset, "NAME", "tiny, small (default), base, stream, stream-tiny, gpt2-tiny, gpt2, paper-bpe, wiki103", 0, 0, NULL},
    {0, "tokenizer", CLI_CHOICE, &args.kind, "KIND", "bpe (default), word or wordpiece", 0, 0, kinds},
    {0, "tokenizer-file", CLI_STRING, &args.tokenizer_file, "FILE", "tokenizer.json, vocab.txt or GGUF to take it from", 0, 0, NULL},
    {0, "vocab", CLI_INTEGER, &args.vocabulary, "N", "tokens to train (default 16000; 0: every word)", 0, 1 << 24, NULL},
    {0, "vocab-sample", CLI_INTEGER, &args.vocabulary_sample, "MB", "text the tokenizer is trained on (default 100)", 1, 1 << 20, NULL},
    {0, "width", CLI_INTEGER, &args.width, "N", "width of the model (default: the preset's; man knnlm has them)", 4, 32768, NULL},
    {0, "layers", CLI_INTEGER, &args.layers, "N", "layers", 1, 256, NULL},
    {0, "heads", CLI_INTEGER, &args.heads, "N", "attention heads", 1, 32768, NULL},
    {0, "ffn", CLI_INTEGER, &args.ffn, "N", "width of the feed-forward part", 1, 131072, NULL},
    {0, "context", CLI_INTEGER, &args.context, "N", "longest window", 1, 1 << 20, NULL},
    {0, "positions", CLI_CHOICE, &args.positions, "HOW", "sinusoidal, learned or rotary", 0, 0, positions},
    {0, "activation", CLI_CHOICE, &args.activation, "F", "relu, gelu, relu2 (squared) or swiglu (gated)", 0, 0, activations},
    {0, "norm", CLI_CHOICE, &args.norm, "KIND", "layer (LayerNorm) or rms (RMSNorm)", 0, 0, norms},
    {0, "no-bias", CLI_FLAG, &args.no_bias, NULL, "matrices and norms have no biases", 0, 0, NULL},
    {0, "qk-norm", CLI_FLAG, &args.qk_norm, NULL, "RMSNorm of queries and keys (rotary positions)", 0, 0, NULL},
    {0, "window", CLI_INTEGER, &args.window, "N", "attention sees the last N positions, 0: all (rotary positions)", 0, 1 << 20, NULL},
    {0, "bands", CLI_STRING, &args.bands, "A,B", "adaptive embeddings and softmax with these cutoffs", 0, 0, NULL},
    {0, "steps", CLI_INTEGER, &args.steps, "N", "updates (default 1000)", 1, 1e12, NULL},
    {0, "epochs", CLI_NUMBER, &args.epochs, "X", "or so many times over the text", 1e-6, 1e6, NULL},
    {0, "minutes", CLI_NUMBER, &args.minutes, "X", "or about so long, by the speed of the first updates", 1e-3, 1e6, NULL},
    {0, "length", CLI_INTEGER, &args.length, "N", "tokens of a window (default: the context; with --from, as it was trained)", 1, 1 << 20, NULL},
    {0, "batch", CLI_INTEGER, &args.batch, "N", "tokens of an update (default 8192)", 1, 1 << 28, NULL},
    {0, "micro", CLI_INTEGER, &args.micro, "N", "tokens in memory at a time (default 4096)", 1, 1 << 28, NULL},
    {0, "optimizer", CLI_CHOICE, &args.optimizer, "NAME", "adamw (default), nesterov (the paper's) or muon", 0, 0, optimizers},
    {0, "schedule", CLI_CHOICE, &args.schedule, "NAME", "cosine (default), linear, constant, plateau or restarts (the paper's; nesterov's default)", 0, 0, schedules},
    {0, "rate", CLI_NUMBER, &args.rate, "X", "peak learning rate (default .001; nesterov 1)", 0, 1e6, NULL},
    {0, "floor", CLI_NUMBER, &args.floor, "X", "lowest rate as a part of the peak (default .05)", 0, 1, NULL},
    {0, "tail", CLI_NUMBER, &args.tail, "X", "part of the updates that plateau descends over (default .2)", 0, 1, NULL},
    {0, "warmup", CLI_INTEGER, &args.warmup, "N", "updates of warm-up (default: 1 in 20, at most 1000; nesterov 16000)", 0, 1e12, NULL},
    {0, "period", CLI_INTEGER, &args.period, "N", "updates of the first cosine of restarts (default 270000)", 1, 1e12, NULL},
    {0, "clip", CLI_NUMBER, &args.clip, "X", "largest norm of the gradient (default 1; nesterov .1)", 0, 1e9, NULL},
    {0, "decay", CLI_NUMBER, &args.decay, "X", "weight decay (default .05; nesterov 0)", 0, 10, NULL},
    {0, "momentum", CLI_NUMBER, &args.momentum, "X", "of nesterov (default .99)", 0, 1, NULL},
    {0, "beta1", CLI_NUMBER, &args.beta1, "X", "of adamw (default .9)", 0, 0.999999, NULL},
    {0, "beta2", CLI_NUMBER, &args.beta2, "X", "of adamw (default .98)", 0, 0.999999, NULL},
    {0, "dropout", CLI_NUMBER, &args.dropout, "P", "of embeddings and of each part's output (default 0)", 0, 0.99, NULL},
    {0, "attention-dropout", CLI_NUMBER, &args.attention_dropout, "P", "of attention weights (default 0)", 0, 0.99, NULL},
    {0, "activation-dropout", CLI_NUMBER, &args.activation_dropout, "P", "inside the feed-forward part (default 0)", 0, 0.99, NULL},
    {0, "type", CLI_CHOICE, &args.type, "T", "of the model file: f16 (default), f32, bf16, q8_0", 0, 0, types},
    {0, "valid-every", CLI_INTEGER, &args.valid_every, "N", "updates between validations (default 200)", 0, 1e12, NULL},
    {0, "valid-tokens", CLI_INTEGER, &args.valid_tokens, "N", "tokens validated, 0: all (default 131072)", 0, 1e12, NULL},
    {0, "save-every", CLI_INTEGER, &args.save_every, "N", "updates between checkpoints (default: every 5 minutes)", 0, 1e12, NULL},
    {0, "save-seconds", CLI_NUMBER, &args.save_seconds, "S", "seconds between checkpoints, 0: none (default 300)", 0, 1e9, NULL},
    {0, "report-every", CLI_INTEGER, &args.report_every, "N", "updates between lines of progress (default 10)", 1, 1e12, NULL},
    {0, "log", CLI_STRING, &args.log, "FILE", "CSV of the run: step, tokens, seconds, loss, valid_loss, rate, norm", 0, 0, NULL},
    {0, "resume", CLI_FLAG, &args.resume, NULL, "go on from OUTPUT.checkpoint", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.force, NULL, "replace a model or a checkpoint that is there already", 0, 0, NULL},
    {0, "seed", CLI_INTEGER, &args.seed, "N", "of weights, order and dropout (default 1)", 0, 9e15, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// What a model given by --from decides.
static const char *const shape[] = {"preset",  "tokenizer", "tokenizer-file", "vocab", "vocab-sample",
                                    "width",   "layers",    "heads",          "ffn",   "context",
                                    "window",  "positions", "activation",     "norm",  "no-bias",
                                    "qk-norm", "bands"};

static bool is_given(const cli_option *o) {
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

// The first option of the shape that was given; NULL: none.
static const char *shape_given(void) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (size_t j = 0; j < sizeof shape / sizeof *shape; j++)
            if (strcmp(options[i].name, shape[j]) == 0 && is_given(&options[i])) return shape[j];
    return NULL;
}

// ---------------------------------------------------------------- what is printed

typedef struct listener {
    FILE *log;
    bool terminal;
} listener;

static void write_log(FILE *log, const knnlm_train_report *r) {
    fprintf(log, "%lld,%llu,%.1f,%.5f,", (long long)r->step, (unsigned long long)r->tokens, r->seconds,
            r->loss);
    if (!isnan(r->valid_loss)) fprintf(log, "%.5f", r->valid_loss);
    fprintf(log, ",%.6g,%.4f\n", r->rate, r->norm);
    fflush(log);
}

static void on_report(void *context, const knnlm_train_report *r) {
    listener *l = context;
    char left[32], rate[32], line[256], valid[64] = "";
    if (isnan(r->loss)) return; // nothing was left to do
    if (l->log) write_log(l->log, r);
    if (!isnan(r->valid_loss))
        snprintf(valid, sizeof valid, "  valid ppl %.3f%s", exp(r->valid_loss), r->best ? " (best)" : "");
    snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  ppl %.2f  %s tok/s  %s left%s",
             (long long)r->step, (long long)r->steps, r->loss, exp(r->loss),
             cli_count(r->tokens_per_second, rate), cli_duration(r->seconds_left, left), valid);
    bool stays = !l->terminal || *valid;
    if (l->terminal) cli_progress_clear();
    if (stays && (l->terminal || args.common.verbose))
        fprintf(stderr, "%s\n", line);
    else if (l->terminal)
        cli_progress_line(line);
}

static bool on_stop(void *context) {
    (void)context;
    return cli_interrupted();
}

static void begin_log(FILE *log) {
    int failed = ftruncate(fileno(log), 0); // of a pipe, where it does not matter
    (void)failed;
    fprintf(log, "step,tokens,seconds,loss,valid_loss,rate,norm\n");
}

static void on_plan(void *context, const knnlm_train_plan *p) {
    const listener *l = context;
    char tokens[32], count[32];
    if (l->log && !args.resume) begin_log(l->log);
    cli_progress_clear();
    fprintf(
        stderr, "%s tokens of text, %s parameters, %lld updates of %zu tokens (%.2f epochs), %s kernels\n",
        cli_count((double)p->tokens, tokens), cli_count((double)p->parameters, count), (long long)p->steps,
        p->batch, (double)p->steps * (double)p->batch / (double)p->tokens, p->kernels);
}

static void print_json(const knnlm_train_result *r) {
    const knnlm_train_report *last = &r->last;
    json_t *j = json_pack("{s:o?, s:I, s:I, s:I, s:o?, s:o?, s:o?, s:s}", "model", json_string(args.output),
                          "parameters", (json_int_t)r->parameters, "steps", (json_int_t)last->step, "tokens",
                          (json_int_t)last->tokens, "loss", json_real(last->loss), "seconds",
                          json_real(last->seconds), "tokens_per_second", json_real(last->tokens_per_second),
                          "kernels", r->kernels);
    json_object_set_new(j, "skipped_files", cli_texts_json(&args.texts));
    if (args.from) json_object_set_new(j, "from", json_string(args.from));
    if (isfinite(last->best_loss)) json_object_set_new(j, "valid_ppl", json_real(exp(last->best_loss)));
    cli_print_json(j);
}

static void print_result(const knnlm_train_result *r) {
    const knnlm_train_report *last = &r->last;
    char count[32], seconds[32], rate[32];
    if (args.common.json) {
        print_json(r);
        return;
    }
    printf("%s: %s parameters, %lld updates in %s, %s tok/s", args.output,
           cli_count((double)r->parameters, count), (long long)last->step,
           cli_duration(last->seconds, seconds), cli_count(last->tokens_per_second, rate));
    if (isfinite(last->best_loss))
        printf(", best validation perplexity %.2f per token", exp(last->best_loss));
    printf("\n");
}

// ---------------------------------------------------------------- settings to options

enum { BANDS_MAX = 64 };

// "A,B": the cutoffs.
static knnlm_status read_bands(const char *text, int32_t bands[BANDS_MAX], size_t *count) {
    char *end;
    *count = 0;
    for (const char *at = text; *at; at = *end ? end + 1 : end) {
        long cutoff = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || cutoff < 1 || cutoff > 1 << 24 || *count == BANDS_MAX)
            return kn_fail(KNNLM_EINVAL, "--bands %s: growing numbers with commas", text);
        bands[(*count)++] = (int32_t)cutoff;
    }
    return KNNLM_OK;
}

static void set_shape(knnlm_train_options *o) {
    o->preset = args.preset;
    o->tokenizer = args.kind;
    o->tokenizer_file = args.tokenizer_file;
    o->vocabulary = (int32_t)args.vocabulary;
    o->vocabulary_sample = args.vocabulary_sample;
    o->width = (int32_t)args.width;
    o->layers = (int32_t)args.layers;
    o->heads = (int32_t)args.heads;
    o->ffn = (int32_t)args.ffn;
    o->context = (int32_t)args.context;
    o->window = (int32_t)args.window;
    o->positions = args.positions;
    o->activation = args.activation;
    o->norm = args.norm;
    o->no_bias = args.no_bias;
    o->qk_norm = args.qk_norm;
}

static void set_optimizer(knnlm_train_options *o) {
    o->optimizer = (knnlm_optimizer)args.optimizer;
    o->schedule = args.schedule;
    o->rate = args.rate;
    o->floor = args.floor;
    o->tail = args.tail;
    o->warmup = args.warmup;
    o->period = args.period;
    o->clip = args.clip;
    o->decay = args.decay;
    o->momentum = args.momentum;
    o->beta1 = args.beta1;
    o->beta2 = args.beta2;
    o->dropout = args.dropout;
    o->attention_dropout = args.attention_dropout;
    o->activation_dropout = args.activation_dropout;
}

static void set_run(knnlm_train_options *o) {
    o->valid = args.valid;
    o->split = (knnlm_split)args.texts.split;
    o->texts = cli_texts_read(&args.texts);
    o->from = args.from;
    o->steps = args.steps;
    o->epochs = args.epochs;
    o->minutes = args.minutes;
    o->length = args.length;
    o->batch = args.batch;
    o->micro = args.micro;
    o->seed = (uint64_t)args.seed;
    o->precision = (knnlm_precision)args.common.precision;
    o->type = (knnlm_type)args.type;
    o->valid_every = args.valid_every;
    o->save_every = args.save_every;
    o->report_every = args.report_every;
    o->save_seconds = args.save_seconds;
    o->valid_tokens = args.valid_tokens;
    o->resume = args.resume;
    o->force = args.force;
}

// ---------------------------------------------------------------- the run

static knnlm_status check_output(const char *output, const char *const *paths, size_t count) {
    KN_TRY(cli_check_output(output, paths, count));
    KN_TRY(cli_check_output(output, &args.from, 1));
    return cli_check_output(output, &args.valid, 1);
}

// What is read is not written over.
static knnlm_status check_outputs(const char *const *paths, size_t count) {
    size_t size = strlen(args.output) + sizeof ".checkpoint";
    char *checkpoint = kn_alloc(size, 1);
    if (!checkpoint) return KNNLM_ENOMEM;
    snprintf(checkpoint, size, "%s.checkpoint", args.output);
    knnlm_status status = check_output(args.output, paths, count);
    if (status == KNNLM_OK) status = check_output(checkpoint, paths, count);
    if (status == KNNLM_OK && args.log) status = check_output(args.log, paths, count);
    const char *const written[] = {args.output, checkpoint};
    for (size_t i = 0; i < 2 && status == KNNLM_OK && args.log; i++)
        if (strcmp(args.log, written[i]) == 0 || kn_file_same(args.log, written[i]))
            status = kn_fail(KNNLM_EINVAL, "--log %s: is written as %s", args.log, written[i]);
    free(checkpoint);
    return status;
}

// A log of a run before is emptied only when this one begins.
static knnlm_status open_log(listener *l) {
    if (!args.log) return KNNLM_OK;
    l->log = cli_is_standard(args.log) ? fdopen(dup(STDOUT_FILENO), "a") : fopen(args.log, "a");
    return l->log ? KNNLM_OK : kn_fail_errno(KNNLM_EIO, errno, "%s: cannot write", args.log);
}

static knnlm_status train(const char *const *paths, size_t count, listener *l) {
    knnlm_train_options o = knnlm_train_options_default();
    knnlm_train_result result;
    int32_t bands[BANDS_MAX];
    set_shape(&o);
    set_optimizer(&o);
    set_run(&o);
    if (args.bands) {
        KN_TRY(read_bands(args.bands, bands, &o.band_count));
        o.bands = bands;
    }
    KN_TRY(check_outputs(paths, count));
    KN_TRY(open_log(l));
    o.planned = on_plan;
    o.report = on_report;
    o.stop = on_stop;
    o.listener = l;
    o.progress = cli_progress;
    KN_TRY(knnlm_train(paths, count, args.output, &o, &result));
    cli_progress_clear();
    if (l->log && cli_is_standard(args.log)) cli_results_to_stderr();
    print_result(&result);
    return KNNLM_OK;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    args = not_given;
    int code = cli_parse(&cli_train, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (count == 0) return cli_usage(&cli_train, "no text to train on");
    if (!args.output) return cli_usage(&cli_train, "no -o FILE to write the model to");
    if (cli_is_standard(args.output))
        return cli_usage(&cli_train, "-o -: a model is a file, with its checkpoint beside it");
    if ((args.steps != UNSAID) + (args.epochs != UNSAID) + (args.minutes != UNSAID) > 1)
        return cli_usage(&cli_train, "one of --steps, --epochs and --minutes");
    if (args.resume && args.force)
        return cli_usage(&cli_train, "one of --resume (go on with the run) and --force (replace it)");
    if (args.from && shape_given())
        return cli_usage(&cli_train, "--%s: with --from, the model decides this", shape_given());
    code = cli_start(&cli_train, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    listener l = {.terminal = cli_terminal(STDERR_FILENO)};
    knnlm_status status = train((const char *const *)paths, count, &l);
    if (l.log && (ferror(l.log) | fclose(l.log)) && status == KNNLM_OK)
        status = kn_fail(KNNLM_EIO, "%s: cannot write all of the log", args.log);
    cli_texts_report(&args.texts, &cli_train);
    cli_texts_free(&args.texts);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_train);
}

const cli_command cli_train = {
    .name = "train",
    .summary = "train a model on text, from scratch or from another model",
    .usage = "TEXT... -o MODEL [options]",
    .examples = "  knnlm train corpus/ --valid held-out.txt -o my.gguf --preset tiny --minutes 10\n"
                "  knnlm train wiki.train.txt --valid wiki.valid.txt -o w.gguf --tokenizer word --vocab 0 "
                "--dropout .3\n"
                "  knnlm train corpus/ --valid held-out.txt -o my.gguf --preset tiny --steps 20000 --resume\n"
                "  knnlm train letters/ --from my.gguf -o letters.gguf --epochs 2\n",
    .run = run,
};
