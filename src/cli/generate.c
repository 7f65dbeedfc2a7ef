// knnlm generate: words after a prompt.
#include "base/threads.h"
#include "cli/generate_show.h"
#include "cli/input.h"
#include "cli/mixture.h"
#include "cli/model.h"
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
    int64_t tokens, top_k, seed, repeat_last, dry_length, around;
    double temperature, top_p, min_p, repeat_penalty, dry_multiplier, dry_base, skip_entropy;
    bool sources, no_echo, no_fallback, no_carry, ignore_end;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model (default: the one that the first store was made with)", 0, 0, NULL},
    {'p', "prompt", CLI_STRING, &args.prompt, "TEXT", "what the text begins with; - or none: standard input", 0, 0, NULL},
    {'n', "tokens", CLI_INTEGER, &args.tokens, "N", "tokens at most (default: 128)", 1, 1e9, NULL},
    {0, "temp", CLI_NUMBER, &args.temperature, "T", "of drawing words, 0: always the most probable token (default: 0.8); that of the neighbours is --temperature", 0, 1e6, NULL},
    {0, "top-k", CLI_INTEGER, &args.top_k, "N", "draw from so many of the most probable tokens; 0: all (default: 40)", 0, INT32_MAX, NULL},
    {0, "top-p", CLI_NUMBER, &args.top_p, "P", "from the fewest that have this probability; 1: all (default: 0.95)", 0, 1, NULL},
    {0, "min-p", CLI_NUMBER, &args.min_p, "P", "from those of at least this part of the most probable one's; 0: all (default: 0.05)", 0, 1, NULL},
    {0, "repeat-penalty", CLI_NUMBER, &args.repeat_penalty, "R", "multiplies the log-probability of recent tokens; above 1 they become rarer (default: 1)", 0.01, 100, NULL},
    {0, "repeat-last", CLI_INTEGER, &args.repeat_last, "N", "how many are recent (default: 64)", 0, 1e9, NULL},
    {0, "dry-multiplier", CLI_NUMBER, &args.dry_multiplier, "M", "words that would repeat more than a few tokens of the text become rarer (DRY), by M and more; 0: do not (default: 0.8; with --temp 0: 0)", 0, 100, NULL},
    {0, "dry-base", CLI_NUMBER, &args.dry_base, "B", "... by M B^(repeated tokens - L) of log p (default: 1.75)", 1, 100, NULL},
    {0, "dry-allowed-length", CLI_INTEGER, &args.dry_length, "L", "... if so many tokens or more are repeated already (default: 2)", 1, 1e9, NULL},
    {0, "stop", CLI_LIST, &args.stops, "TEXT", "end before this; may be given several times", 0, 0, NULL},
    {0, "ignore-end", CLI_FLAG, &args.ignore_end, NULL, "go on after a token that ends the text", 0, 0, NULL},
    {0, "seed", CLI_INTEGER, &args.seed, "N", "same seed, same text (default: another one each time)", 0, 1e15, NULL},
    {0, "sources", CLI_FLAG, &args.sources, NULL, "mark passages of the stores that the text took up, with footnotes on where they are from", 0, 0, NULL},
    {0, "around", CLI_INTEGER, &args.around, "N", "with --sources: tokens shown on both sides (default: 12)", 0, 1000, NULL},
    {0, "no-echo", CLI_FLAG, &args.no_echo, NULL, "leave the prompt out of what is printed", 0, 0, NULL},
    {0, "skip-entropy", CLI_NUMBER, &args.skip_entropy, "X", "no search where the model's entropy is below X nats: it speaks alone", 0, 100, NULL},
    {0, "no-fallback", CLI_FLAG, &args.no_fallback, NULL, "lambda stays where neighbours are farther or less certain than while tuning", 0, 0, NULL},
    {0, "no-carry", CLI_FLAG, &args.no_carry, NULL, "neighbours do not carry a word through that they began", 0, 0, NULL},
    CLI_STORES_OPTIONS(args.mixture),
    CLI_MIXTURE_OPTIONS(args.mixture),
    CLI_PROBES_OPTIONS(args.mixture),
    CLI_FILTER_OPTIONS(args.mixture),
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// ---------------------------------------------------------------- the prompt

typedef struct prompt {
    cli_text text;
    int32_t *tokens;
    size_t count; // of them
    bool space;   // at its end, which the first word brings
} prompt;

static knnlm_status encode_prompt(const knnlm_model *model, prompt *p) {
    KN_TRY(cli_text_check(&p->text, "the prompt"));
    return knnlm_model_encode_prompt(model, p->text.data, p->text.size, &p->tokens, &p->count, &p->space);
}

// ---------------------------------------------------------------- results

typedef struct outcome {
    const knnlm_text *text;
    const knnlm_text_options *options;
    const prompt *prompt;
    knnlm_text_info info;
    double seconds;
} outcome;

static const char *finish_name(knnlm_finish finish) {
    static const char *const names[] = {
        [KNNLM_FINISH_NOT] = "interrupted", [KNNLM_FINISH_LENGTH] = "length", [KNNLM_FINISH_STOP] = "stop"};
    return names[finish];
}

static json_t *json_store(const knnlm_mixture_store *s) {
    return json_pack("{s:o?, s:I, s:f, s:f, s:b, s:b}", "path", json_string(s->path), "k", (json_int_t)s->k,
                     "lambda", s->lambda, "temperature", s->temperature, "adaptive", s->adaptive, "fallback",
                     s->fallback);
}

static json_t *json_settings(const knnlm_text_options *o, const knnlm_mixture *m) {
    json_t *stores = json_array(), *stops = cli_json_list(&args.stops);
    knnlm_mixture_info info;
    knnlm_mixture_describe(m, &info);
    json_t *cache = info.cache ? json_pack("{s:I, s:f, s:f}", "size", (json_int_t)info.cache, "lambda",
                                           info.cache_lambda, "temperature", info.cache_temperature)
                               : json_null();
    for (size_t i = 0; i < info.store_count; i++) cli_json_append(stores, json_store(&info.stores[i]));
    return json_pack(
        "{s:I, s:I, s:f, s:i, s:f, s:f, s:f, s:I, s:o, s:f, s:I, s:b, s:b, s:o, s:o, s:o?, s:o, s:o}", "seed",
        (json_int_t)o->seed, "tokens", (json_int_t)o->tokens, "temperature", o->temperature, "top_k",
        o->top_k, "top_p", o->top_p, "min_p", o->min_p, "repeat_penalty", o->repeat_penalty, "repeat_last",
        (json_int_t)o->repeat_last, "dry_multiplier",
        o->dry_multiplier < 0 ? json_null() : json_real(o->dry_multiplier), "dry_base", o->dry_base,
        "dry_allowed_length", (json_int_t)o->dry_allowed_length, "ignore_end", o->ignore_end, "carry",
        !o->no_carry, "stop", stops, "stores", stores, "cache", cache, "only",
        cli_json_list(&args.mixture.only), "not", cli_json_list(&args.mixture.except));
}

static void print_json(const knnlm_model *model, const knnlm_mixture *m, const outcome *x) {
    knnlm_model_info info;
    size_t size;
    const char *words = knnlm_text_read(x->text, &size);
    knnlm_model_describe(model, &info);
    cli_print_json(json_pack(
        "{s:o?, s:s, s:s, s:i, s:o, s:I, s:b, s:o, s:s, s:o, s:o, s:o, s:f, s:o?, s:f, s:f}", "model",
        json_string(info.path), "engine", info.engine, "kernels", info.kernels, "threads", kn_threads(),
        "prompt", cli_json_text(x->prompt->text.data, x->prompt->text.size), "prompt_tokens",
        (json_int_t)x->prompt->count, "cut", x->info.cut, "text", cli_json_text(words, size), "finish",
        finish_name(x->info.finish), "tokens", cli_json_generated(x->text), "sources",
        cli_json_sources(x->text), "settings", json_settings(x->options, m), "seconds", x->seconds,
        "tokens_per_second", json_real((double)x->info.generated / x->seconds), "seconds_lm",
        x->info.seconds_lm, "seconds_search", x->info.seconds_search));
}

static void print_times(const outcome *x) {
    char seconds[32], rate[32];
    size_t n = x->info.generated;
    fprintf(
        stderr, "%zu tokens after %zu in %s, %s tokens/s: model %.0f%%, search %.0f%%; seed %" PRIu64 "\n", n,
        x->prompt->count, cli_duration(x->seconds, seconds), cli_count((double)n / x->seconds, rate),
        100 * x->info.seconds_lm / x->seconds, 100 * x->info.seconds_search / x->seconds, x->options->seed);
}

// ---------------------------------------------------------------- the work

// Until it is finished, or somebody has had enough.
static knnlm_status step_all(knnlm_text *text, cli_stream *stream) {
    knnlm_finish finish = KNNLM_FINISH_NOT;
    while (finish == KNNLM_FINISH_NOT && !cli_interrupted() && !ferror(stdout)) {
        KN_TRY(knnlm_text_step(text, &finish));
        if (stream) cli_stream_more(stream, text);
    }
    return KNNLM_OK;
}

static knnlm_status generate_from(const knnlm_model *model, const knnlm_mixture *m,
                                  const knnlm_text_options *o, const prompt *p, knnlm_text *text) {
    cli_stream stream;
    outcome x = {.text = text, .options = o, .prompt = p};
    double begun = kn_seconds();
    if (!args.common.json)
        cli_stream_begin(&stream, p->text.data, args.no_echo ? 0 : p->text.size - p->space, o->sources);
    knnlm_status status = step_all(text, args.common.json ? NULL : &stream);
    x.seconds = kn_seconds() - begun;
    knnlm_text_describe(text, &x.info);
    if (args.common.json && status == KNNLM_OK) print_json(model, m, &x);
    if (!args.common.json) cli_stream_end(&stream, text);
    if (status == KNNLM_OK && args.common.verbose) print_times(&x);
    if (status == KNNLM_OK && cli_interrupted())
        status = kn_fail(KNNLM_ESTOPPED, "stopped after %zu tokens", x.info.generated);
    return status;
}

static knnlm_status generate(const knnlm_model *model, knnlm_mixture *m, const knnlm_text_options *options,
                             prompt *p) {
    knnlm_text *text;
    knnlm_text_options o = *options;
    KN_TRY(encode_prompt(model, p));
    o.begin_with_space = p->space;
    KN_TRY(knnlm_text_open(m, p->tokens, p->count, &o, &text));
    knnlm_status status = generate_from(model, m, &o, p, text);
    knnlm_text_close(text);
    return status;
}

static knnlm_status open_and_generate(const knnlm_mixture_options *mix, const knnlm_text_options *o,
                                      prompt *p) {
    knnlm_mixture *m;
    knnlm_model *model;
    KN_TRY(cli_open_model(args.model, &args.common, &model));
    knnlm_status status = knnlm_mixture_open(model, mix, &m);
    if (status == KNNLM_OK) {
        status = generate(model, m, o, p);
        knnlm_mixture_close(m);
    }
    knnlm_model_close(model);
    return status;
}

// The prompt comes first: while it is typed, nothing else need wait.
static knnlm_status read_and_generate(const knnlm_mixture_options *mix, const knnlm_text_options *o) {
    prompt p = {0};
    cli_catch_interrupts();
    knnlm_status status = cli_text_take(&p.text, args.prompt);
    if (status == KNNLM_OK) status = open_and_generate(mix, o, &p);
    cli_text_free(&p.text);
    knnlm_free(p.tokens);
    return status;
}

// ---------------------------------------------------------------- the command

static int check_usage(size_t count) {
    const cli_mixture *m = &args.mixture;
    if (count) return cli_usage(&cli_generate, "the prompt comes after -p, in quotes");
    if (args.sources && !m->stores.count)
        return cli_usage(&cli_generate, "--sources are of a store: name it with -s");
    if ((args.no_fallback || args.no_carry || args.skip_entropy > 0) && !m->stores.count)
        return cli_usage(&cli_generate, "neighbours are of a store: name it with -s");
    if (m->cache <= 0 && (!isnan(m->cache_lambda) || !isnan(m->cache_temperature)))
        return cli_usage(&cli_generate, "the cache has a size: --cache N");
    for (size_t i = 0; i < args.stops.count; i++)
        if (!*args.stops.items[i]) return cli_usage(&cli_generate, "--stop is empty");
    return CLI_DONE;
}

static uint64_t choose_seed(void) {
    uint64_t seed = 0;
    if (args.seed >= 0) return (uint64_t)args.seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(1e9 * kn_seconds());
    return seed % 1000000000;
}

static knnlm_text_options make_options(void) {
    knnlm_text_options o = knnlm_text_options_default();
    o.tokens = (size_t)args.tokens;
    o.seed = choose_seed();
    o.temperature = args.temperature;
    o.top_k = (int32_t)args.top_k;
    o.top_p = args.top_p;
    o.min_p = args.min_p;
    o.repeat_penalty = args.repeat_penalty;
    o.repeat_last = (size_t)args.repeat_last;
    o.dry_multiplier = args.dry_multiplier;
    o.dry_base = args.dry_base;
    o.dry_allowed_length = (size_t)args.dry_length;
    o.stops = args.stops.items;
    o.stop_count = args.stops.count;
    o.sources = args.sources || args.common.json;
    o.around = (size_t)args.around;
    o.keep_lambda = args.no_fallback;
    o.ignore_end = args.ignore_end;
    o.no_carry = args.no_carry;
    return o;
}

static void defaults(void) {
    knnlm_text_options o = knnlm_text_options_default();
    cli_mixture_init(&args.mixture);
    args.tokens = (int64_t)o.tokens;
    args.around = (int64_t)o.around;
    args.temperature = o.temperature;
    args.top_k = o.top_k;
    args.top_p = o.top_p;
    args.min_p = o.min_p;
    args.repeat_penalty = o.repeat_penalty;
    args.repeat_last = (int64_t)o.repeat_last;
    args.dry_multiplier = o.dry_multiplier;
    args.dry_base = o.dry_base;
    args.dry_length = (int64_t)o.dry_allowed_length;
    args.seed = -1;
}

static int run(int argc, char **argv) {
    knnlm_mixture_options mix;
    char **rest;
    size_t count;
    defaults();
    int code = cli_parse(&cli_generate, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_mixture_read(&cli_generate, &args.mixture, &mix);
    if (code == CLI_DONE) code = cli_mixture_find_model(&cli_generate, &args.mixture, &args.model);
    if (code == CLI_DONE) code = cli_start(&cli_generate, &args.common);
    if (code == CLI_DONE) {
        knnlm_text_options o = make_options();
        mix.fallback = !args.no_fallback;
        mix.skip_entropy = args.skip_entropy;
        // Not as tuned: a text that feeds on its own words soon says nothing else. Who wants it asks for it.
        if (mix.cache < 0) mix.cache = 0;
        if (read_and_generate(&mix, &o) != KNNLM_OK) code = cli_fail(&cli_generate);
    }
    cli_mixture_free(&args.mixture);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a text, and show which passages of the stores the words came from",
    .usage = "[-m MODEL] [-s STORE]... -p PROMPT [options]",
    .examples = "  knnlm generate -s my.store -p \"The capital of France\" --sources\n"
                "  knnlm generate -s my.store -p \"Once\" -n 50 --temp 0\n"
                "  knnlm generate -m my.gguf -n 400 --seed 1 --stop \"==\" <beginning.txt\n",
    .run = run,
};
