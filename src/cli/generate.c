// knnlm generate: words after a prompt.
#include "base/file.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "cli/generate_show.h"
#include "cli/inner.h"
#include "cli/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static struct {
    cli_common common;
    cli_mixture mixture;
    const char *model, *prompt;
    cli_list stops;
    int64_t tokens, top_k, seed, repeat_last, around;
    double temperature, top_p, min_p, repeat_penalty;
    bool sources, no_echo, no_fallback, ignore_end;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model (required)", 0, 0, NULL},
    {'p', "prompt", CLI_STRING, &args.prompt, "TEXT", "what the text begins with; - or none: standard input", 0, 0, NULL},
    {'n', "tokens", CLI_INTEGER, &args.tokens, "N", "tokens at most (default: 128)", 1, 1e9, NULL},
    {0, "temp", CLI_NUMBER, &args.temperature, "T", "of drawing: 0: always the most probable token (default: 0.8)", 0, 1e6, NULL},
    {0, "top-k", CLI_INTEGER, &args.top_k, "N", "draw from so many of the most probable tokens; 0: all (default: 40)", 0, INT32_MAX, NULL},
    {0, "top-p", CLI_NUMBER, &args.top_p, "P", "from the fewest that have this probability; 1: all (default: 0.95)", 0, 1, NULL},
    {0, "min-p", CLI_NUMBER, &args.min_p, "P", "from those of at least this part of the most probable one's; 0: all (default: 0.05)", 0, 1, NULL},
    {0, "repeat-penalty", CLI_NUMBER, &args.repeat_penalty, "R", "multiplies the log-probability of recent tokens; above 1 they become rarer (default: 1)", 0.01, 100, NULL},
    {0, "repeat-last", CLI_INTEGER, &args.repeat_last, "N", "how many are recent (default: 64)", 0, 1e9, NULL},
    {0, "stop", CLI_LIST, &args.stops, "TEXT", "end before this; may be given several times", 0, 0, NULL},
    {0, "ignore-end", CLI_FLAG, &args.ignore_end, NULL, "go on after a token that ends the text", 0, 0, NULL},
    {0, "seed", CLI_INTEGER, &args.seed, "N", "same seed, same text (default: another one each time)", 0, 1e15, NULL},
    {0, "sources", CLI_FLAG, &args.sources, NULL, "mark what the neighbours carried, with footnotes on where it is from", 0, 0, NULL},
    {0, "around", CLI_INTEGER, &args.around, "N", "with --sources: tokens shown on both sides (default: 12)", 0, 1000, NULL},
    {0, "no-echo", CLI_FLAG, &args.no_echo, NULL, "leave the prompt out of what is printed", 0, 0, NULL},
    {0, "no-fallback", CLI_FLAG, &args.no_fallback, NULL, "lambda stays where neighbours are farther or less certain than while tuning", 0, 0, NULL},
    CLI_MIXTURE_OPTIONS(args.mixture),
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// ---------------------------------------------------------------- the prompt

typedef struct prompt {
    char *text;
    size_t size;
    kn_tokens tokens;
} prompt;

// The line end that echo and editors leave is no part of it.
static knnlm_status read_input(prompt *p) {
    size_t capacity = 0;
    do {
        KN_TRY(kn_grow(&p->text, &capacity, p->size + 65536, 1));
        p->size += fread(p->text + p->size, 1, 65536, stdin);
    } while (!feof(stdin) && !ferror(stdin));
    if (ferror(stdin)) return kn_fail(KNNLM_EIO, "standard input cannot be read");
    if (p->size && p->text[p->size - 1] == '\n') p->size--;
    return KNNLM_OK;
}

static knnlm_status read_prompt(prompt *p) {
    bool input = !args.prompt || strcmp(args.prompt, "-") == 0;
    if (input) return read_input(p);
    p->text = kn_strdup(args.prompt);
    p->size = strlen(args.prompt);
    return p->text ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status encode_prompt(const kn_lm *lm, prompt *p) {
    size_t valid = kn_utf8_valid(p->text, p->size);
    if (valid < p->size) return kn_fail(KNNLM_EDATA, "the prompt is not UTF-8 at byte %zu", valid);
    return kn_tokenizer_encode(kn_lm_tokenizer(lm), p->text, p->size, &p->tokens);
}

// ---------------------------------------------------------------- results

typedef struct outcome {
    const kn_sequence *sequence;
    const kn_generate_options *options;
    const prompt *prompt;
    kn_generator_times times;
    double seconds;
} outcome;

static const char *finish_name(const kn_sequence *s) {
    static const char *const names[] = {"interrupted", "length", "stop"};
    return names[kn_sequence_finish(s)];
}

static json_t *json_store(const kn_mixture_store *s) {
    return json_pack("{s:o?, s:I, s:f, s:f, s:b, s:b}", "path", json_string(s->store->path), "k",
                     (json_int_t)s->k, "lambda", s->lambda, "temperature", s->temperature, "adaptive",
                     s->adaptive, "fallback", s->fallback);
}

static json_t *json_settings(const kn_generate_options *o, const kn_mixture *m) {
    const kn_sampling *s = &o->sampling;
    json_t *stores = json_array(), *stops = json_array();
    const kn_mixture_info *info = kn_mixture_describe(m);
    for (size_t i = 0; i < info->count; i++) cli_json_append(stores, json_store(&info->stores[i]));
    for (size_t i = 0; i < o->stop_count; i++)
        cli_json_append(stops, cli_json_text(o->stops[i], strlen(o->stops[i])));
    return json_pack("{s:I, s:I, s:f, s:i, s:f, s:f, s:f, s:I, s:b, s:o, s:o}", "seed", (json_int_t)o->seed,
                     "tokens", (json_int_t)o->tokens, "temperature", s->temperature, "top_k", s->top_k,
                     "top_p", s->top_p, "min_p", s->min_p, "repeat_penalty", s->repeat_penalty, "repeat_last",
                     (json_int_t)s->repeat_last, "ignore_end", o->ignore_end, "stop", stops, "stores",
                     stores);
}

static void print_json(const kn_lm *lm, const kn_mixture *m, const outcome *x) {
    const kn_lm_info *info = kn_lm_describe(lm);
    size_t size, generated = kn_sequence_generated(x->sequence);
    const char *text = kn_sequence_text(x->sequence, &size);
    cli_print_json(
        json_pack("{s:o?, s:s, s:s, s:i, s:o, s:I, s:b, s:o, s:s, s:o, s:o, s:o, s:f, s:o?, s:f, s:f}",
                  "model", json_string(info->path), "engine", info->engine, "kernels", info->kernels,
                  "threads", kn_threads(), "prompt", cli_json_text(x->prompt->text, x->prompt->size),
                  "prompt_tokens", (json_int_t)x->prompt->tokens.count, "cut", kn_sequence_cut(x->sequence),
                  "text", cli_json_text(text, size), "finish", finish_name(x->sequence), "tokens",
                  cli_json_generated(x->sequence), "sources", cli_json_sources(x->sequence), "settings",
                  json_settings(x->options, m), "seconds", x->seconds, "tokens_per_second",
                  json_real((double)generated / x->seconds), "seconds_lm", x->times.model, "seconds_search",
                  x->times.search));
}

static void print_times(const outcome *x) {
    char seconds[32], rate[32];
    size_t n = kn_sequence_generated(x->sequence);
    fprintf(
        stderr, "%zu tokens after %zu in %s, %s tokens/s: model %.0f%%, search %.0f%%; seed %" PRIu64 "\n", n,
        x->prompt->tokens.count, cli_duration(x->seconds, seconds), cli_count((double)n / x->seconds, rate),
        100 * x->times.model / x->seconds, 100 * x->times.search / x->seconds, x->options->seed);
}

// ---------------------------------------------------------------- the work

// Until it is finished, or somebody has had enough.
static knnlm_status step_all(kn_generator *g, kn_sequence *s, const kn_mixture *m, cli_stream *stream) {
    while (kn_sequence_finish(s) == KNNLM_FINISH_NOT && !cli_interrupted() && !ferror(stdout)) {
        KN_TRY(kn_generator_step(g, &s, &m, 1));
        if (stream) cli_stream_more(stream, s);
    }
    return KNNLM_OK;
}

static knnlm_status generate_from(kn_lm *lm, const kn_mixture *m, const kn_generate_options *o,
                                  const prompt *p, kn_generator *g, kn_sequence *s) {
    cli_stream stream;
    outcome x = {.sequence = s, .options = o, .prompt = p};
    double begun = kn_seconds();
    if (!args.common.json) cli_stream_begin(&stream, p->text, args.no_echo ? 0 : p->size, o->sources);
    knnlm_status status = step_all(g, s, m, args.common.json ? NULL : &stream);
    x.seconds = kn_seconds() - begun;
    x.times = kn_generator_spent(g);
    if (args.common.json && status == KNNLM_OK) print_json(lm, m, &x);
    if (!args.common.json) cli_stream_end(&stream, s);
    if (status == KNNLM_OK && args.common.verbose) print_times(&x);
    if (status == KNNLM_OK && cli_interrupted())
        status = kn_fail(KNNLM_ESTOPPED, "stopped after %zu tokens", kn_sequence_generated(s));
    return status;
}

static knnlm_status generate(kn_lm *lm, const kn_mixture *m, const kn_generate_options *o, prompt *p) {
    kn_sequence *sequence = NULL;
    kn_generator *generator = NULL;
    knnlm_status status = encode_prompt(lm, p);
    if (status == KNNLM_OK) status = kn_generator_open(lm, 1, &generator);
    if (status == KNNLM_OK) status = kn_sequence_open(lm, o, p->tokens.ids, p->tokens.count, &sequence);
    if (status == KNNLM_OK) status = generate_from(lm, m, o, p, generator, sequence);
    kn_sequence_close(sequence);
    kn_generator_close(generator);
    return status;
}

static knnlm_status open_and_generate(const kn_mixture_options *mix, const kn_generate_options *o,
                                      prompt *p) {
    kn_mixture *m;
    kn_lm *lm;
    KN_TRY(cli_open_lm(args.model, &args.common, &lm));
    knnlm_status status = kn_mixture_open(lm, mix, &m);
    if (status == KNNLM_OK) {
        status = generate(lm, m, o, p);
        kn_mixture_close(m);
    }
    kn_lm_close(lm);
    return status;
}

// The prompt comes first: while it is typed, Ctrl-C ends the process as it ends any other.
static knnlm_status read_and_generate(const kn_mixture_options *mix, const kn_generate_options *o) {
    prompt p = {.tokens = {0}};
    knnlm_status status = read_prompt(&p);
    cli_catch_interrupts();
    if (status == KNNLM_OK) status = open_and_generate(mix, o, &p);
    free(p.text);
    kn_tokens_free(&p.tokens);
    return status;
}

// ---------------------------------------------------------------- the command

static int check_usage(size_t count) {
    const cli_mixture *m = &args.mixture;
    if (!args.model) return cli_usage(&cli_generate, "no -m FILE");
    if (count) return cli_usage(&cli_generate, "the prompt comes after -p, in quotes");
    if (args.sources && !m->stores.count)
        return cli_usage(&cli_generate, "--sources are of a store: name it with -s");
    if (args.no_fallback && !m->stores.count)
        return cli_usage(&cli_generate, "neighbours are of a store: name it with -s");
    if (m->cache > 0 || !isnan(m->cache_lambda) || !isnan(m->cache_temperature))
        return cli_usage(&cli_generate, "the cache is of eval and tune: generation has none");
    for (size_t i = 0; i < args.stops.count; i++)
        if (!*args.stops.items[i]) return cli_usage(&cli_generate, "--stop is empty");
    return CLI_DONE;
}

static kn_generate_options options_said(void) {
    uint64_t seed = 0;
    if (args.seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)(1e9 * kn_seconds());
    return (kn_generate_options){.sampling = {.temperature = args.temperature,
                                              .top_k = (int32_t)args.top_k,
                                              .top_p = args.top_p,
                                              .min_p = args.min_p,
                                              .repeat_penalty = args.repeat_penalty,
                                              .repeat_last = (size_t)args.repeat_last},
                                 .seed = args.seed < 0 ? seed % 1000000000 : (uint64_t)args.seed,
                                 .tokens = (size_t)args.tokens,
                                 .stops = args.stops.items,
                                 .stop_count = args.stops.count,
                                 .sources = args.sources || args.common.json,
                                 .around = (size_t)args.around,
                                 .ignore_end = args.ignore_end};
}

static void init_said(void) {
    kn_generate_options o = kn_generate_options_default();
    cli_mixture_init(&args.mixture);
    args.tokens = (int64_t)o.tokens;
    args.around = (int64_t)o.around;
    args.temperature = o.sampling.temperature;
    args.top_k = o.sampling.top_k;
    args.top_p = o.sampling.top_p;
    args.min_p = o.sampling.min_p;
    args.repeat_penalty = o.sampling.repeat_penalty;
    args.repeat_last = (int64_t)o.sampling.repeat_last;
    args.seed = -1;
}

static int run(int argc, char **argv) {
    kn_store_choice choices[CLI_LIST_MAX];
    kn_mixture_options mix;
    char **rest;
    size_t count;
    init_said();
    int code = cli_parse(&cli_generate, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_mixture_read_inner(&cli_generate, &args.mixture, choices, &mix);
    if (code == CLI_DONE) code = cli_start(&cli_generate, &args.common);
    if (code == CLI_DONE) {
        kn_generate_options o = options_said();
        mix.fallback = !args.no_fallback;
        if (read_and_generate(&mix, &o) != KNNLM_OK) code = cli_fail(&cli_generate);
    }
    cli_mixture_free(&args.mixture);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a text, and show which passages of the stores the words came from",
    .usage = "-m MODEL [-s STORE]... -p PROMPT [options]",
    .examples = "  knnlm generate -m my.gguf -s my.store -p \"The capital of France\" --sources\n"
                "  knnlm generate -m my.gguf -s my.store -p \"Once\" -n 50 --temp 0\n"
                "  knnlm generate -m my.gguf -n 400 --seed 1 --stop \"==\" <beginning.txt\n",
    .run = run,
};
