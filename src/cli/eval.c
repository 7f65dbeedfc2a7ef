// knnlm eval: perplexity of texts, alone and with stores.
#include "base/file.h"
#include "base/threads.h"
#include "cli/input.h"
#include "cli/mixture.h"
#include "cli/model.h"
#include "cli/texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    cli_mixture mixture;
    const char *model, *per_token, *report;
    cli_texts texts;
    int64_t score, context, report_tokens;
    bool fallback;
    double skip_entropy;
    cli_list ngram;
    int64_t order;
    double ngram_lambda;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "model to score with (default: the one that the first store was made with)", 0, 0, NULL},
    CLI_STORES_OPTIONS(args.mixture),
    CLI_MIXTURE_OPTIONS(args.mixture),
    CLI_PROBES_OPTIONS(args.mixture),
    CLI_FILTER_OPTIONS(args.mixture),
    {0, "skip-entropy", CLI_NUMBER, &args.skip_entropy, "X", "no search where the model's entropy is below X nats: it speaks alone (knnlm tune tells what that costs)", 0, 100, NULL},
    {0, "fallback", CLI_FLAG, &args.fallback, NULL, "lambda falls to 0 where neighbours are farther or less certain than while tuning", 0, 0, NULL},
    {0, "ngram", CLI_LIST, &args.ngram, "TEXT", "mix in an n-gram model (modified Kneser-Ney) of this text, as the paper compares neighbours with; may be given again", 0, 0, NULL},
    {0, "ngram-order", CLI_INTEGER, &args.order, "N", "its longest n-grams (default: 5)", 1, KNNLM_NGRAM_MAX, NULL},
    {0, "ngram-lambda", CLI_NUMBER, &args.ngram_lambda, "X", "its weight (default: 0.1); what each would give is told in --json", 0, 1, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "as the store's, else file"),
    {0, "score", CLI_INTEGER, &args.score, "N", "tokens scored a window (default: half the window, at most 512)", 1, 1 << 20, NULL},
    {0, "context", CLI_INTEGER, &args.context, "N", "tokens before them (default: what the model's window leaves)", 0, 1 << 20, NULL},
    {0, "per-token", CLI_STRING, &args.per_token, "FILE", "write one tab-separated row a token; -: to standard output, and the figures to standard error", 0, 0, NULL},
    {0, "report", CLI_STRING, &args.report, "FILE", "write an HTML page (-: likewise): figures, curves, the text with its neighbours", 0, 0, NULL},
    {0, "report-tokens", CLI_INTEGER, &args.report_tokens, "N", "tokens shown there at most (default: 5000)", 1, 1000000, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// The weight of the n-gram model under which the text is most probable.
static size_t best_point(const knnlm_eval_ngram *n) {
    size_t best = 0;
    for (size_t i = 1; i < KNNLM_TUNE_CURVE; i++)
        if (n->by_lambda[i] < n->by_lambda[best]) best = i;
    return best;
}

// ---------------------------------------------------------------- JSON

static const char *distances_of(const knnlm_eval_store *s) {
    return s->codes ? "codes" : "exact";
}

static json_t *json_stores(const knnlm_eval_result *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->store_count; i++) {
        const knnlm_eval_store *s = &r->stores[i];
        cli_json_append(list,
                        json_pack("{s:o?, s:I, s:f, s:f, s:I, s:I, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:f}",
                                  "path", json_string(s->path), "entries", (json_int_t)s->entries, "lambda",
                                  s->lambda, "temperature", s->temperature, "k", (json_int_t)s->k, "probes",
                                  (json_int_t)s->probes, "distances", distances_of(s), "distance",
                                  knnlm_distance_name(s->distance), "adaptive", s->adaptive, "gated",
                                  s->gated, "fallback", s->fallback, "tuned", s->tuned, "tuned_on_this_text",
                                  s->tuned_here, "found", s->found));
    }
    return list;
}

// Of the first store, as most runs have one.
static json_t *json_mixture(const knnlm_eval_result *r) {
    const knnlm_eval_store *s = &r->stores[0];
    json_t *o = json_object();
    if (r->store_count)
        json_object_update_new(o, json_pack("{s:f, s:f, s:I, s:I, s:s, s:b}", "lambda", s->lambda,
                                            "temperature", s->temperature, "k", (json_int_t)s->k, "probes",
                                            (json_int_t)s->probes, "distances", distances_of(s), "fallback",
                                            s->fallback));
    if (r->cache)
        json_object_set_new(o, "cache",
                            json_pack("{s:I, s:f, s:f}", "size", (json_int_t)r->cache, "lambda",
                                      r->cache_lambda, "temperature", r->cache_temperature));
    json_object_set_new(o, "stores", json_stores(r));
    json_object_set_new(o, "only", cli_json_list(&args.mixture.only));
    json_object_set_new(o, "fraction", json_real(args.mixture.fraction > 0 ? args.mixture.fraction : 1));
    json_object_set_new(o, "not", cli_json_list(&args.mixture.except));
    json_object_set_new(o, "own_documents", json_integer((json_int_t)r->own_documents));
    json_object_set_new(o, "skip_entropy", json_real(r->skip_entropy));
    json_object_set_new(o, "skipped", json_real(r->skipped));
    return o;
}

static json_t *json_ngram(const knnlm_eval_result *r) {
    const knnlm_eval_ngram *n = &r->ngram;
    json_t *curve = json_array(), *grams = json_array();
    for (size_t i = 0; i < KNNLM_TUNE_CURVE; i++)
        cli_json_append(curve, json_pack("[f, o?]", n->lambdas[i], json_real(n->by_lambda[i])));
    for (int32_t i = 0; i < n->order; i++) cli_json_append(grams, json_integer((json_int_t)n->grams[i]));
    size_t best = best_point(n);
    return json_pack("{s:i, s:I, s:o, s:o?, s:o?, s:f, s:f, s:o?, s:o, s:f}", "order", n->order, "tokens",
                     (json_int_t)n->tokens, "grams", grams, "ppl", json_real(r->mixed.ppl), "ppl_alone",
                     json_real(n->score.ppl), "lambda", n->lambda, "best_lambda", n->lambdas[best],
                     "best_ppl", json_real(n->by_lambda[best]), "by_lambda", curve, "seconds", n->seconds);
}

// What a search of a shard for one token costs a network, both ways; 0: there are no shards.
static double bytes_per_query(void) {
    uint64_t queries, bytes;
    knnlm_shards_asked(&queries, &bytes);
    return queries ? (double)bytes / (double)queries : 0;
}

static void print_json(const knnlm_model_info *info, const knnlm_eval_result *r) {
    json_t *o = json_pack(
        "{s:o?, s:s, s:I, s:I, s:I, s:I, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:{s:b, "
        "s:i, s:i, s:s, s:i, s:s}}",
        "model", json_string(info->path), "fingerprint", info->fingerprint, "documents",
        (json_int_t)r->documents, "tokens", (json_int_t)r->tokens, "words", (json_int_t)r->words, "bytes",
        (json_int_t)r->bytes, "ppl_lm", json_real(r->lm.ppl), "ppl", json_real(r->mixed.ppl), "ppl_word",
        json_real(r->mixed.ppl_word), "bits_per_byte", json_real(r->mixed.bits_per_byte), "nll_lm",
        json_real(r->lm.nll), "nll", json_real(r->mixed.nll), "seconds_lm", json_real(r->seconds_lm),
        "seconds_search", json_real(r->seconds_search), "seconds", json_real(r->seconds), "tokens_per_second",
        json_real(r->tokens_per_second), "settings", "stream", r->stream, "score", r->score, "context",
        r->context, "documents", knnlm_split_name(r->split), "threads", kn_threads(), "kernels",
        info->kernels);
    json_object_update_new(o, json_mixture(r));
    if (r->ngram.order) json_object_set_new(o, "ngram", json_ngram(r));
    json_object_set_new(o, "skipped_files", cli_texts_json(&args.texts));
    if (bytes_per_query() > 0) json_object_set_new(o, "bytes_per_query", json_real(bytes_per_query()));
    cli_print_json(o);
}

// ---------------------------------------------------------------- text

static void print_perplexity(const char *label, const knnlm_score *s, bool words) {
    char text[32];
    printf("%-16s %s per token", label, cli_perplexity(s->ppl, text));
    if (words) printf(", %s per word", cli_perplexity(s->ppl_word, text));
    printf("; %.4f bits per byte\n", s->bits_per_byte);
}

// Why the lambda of a store is a mean.
static const char *weighed(const knnlm_eval_store *s) {
    if (s->gated) return " in the mean (by its gate)";
    if (s->adaptive) return s->fallback ? " in the mean (by bins, falling back)" : " in the mean (by bins)";
    return s->fallback ? " in the mean (falling back)" : "";
}

static void print_store(const knnlm_eval_store *s) {
    char entries[32];
    printf("neighbours       %s: %s entries, k %zu, lambda %.4g%s, temperature %.4g, %s distances (%s), ",
           s->path, cli_count((double)s->entries, entries), s->k, s->lambda, weighed(s), s->temperature,
           distances_of(s), knnlm_distance_name(s->distance));
    if (s->probes)
        printf("%" PRIu32 " lists\n", s->probes);
    else
        printf("all entries\n");
    printf("                 %.1f%% of the tokens are among their neighbours' values\n", 100 * s->found);
}

static void print_names(const char *label, const cli_list *names) {
    for (size_t i = 0; i < names->count; i++) printf("%s %s", i ? "," : label, names->items[i]);
}

static void print_filter(const cli_mixture *m) {
    if (!m->only.count && !m->except.count) return;
    printf("documents        of their neighbours:");
    print_names(" only", &m->only);
    print_names(m->only.count ? "; not" : " all but", &m->except);
    printf("\n");
}

static void print_mixture(const knnlm_eval_result *r) {
    for (size_t i = 0; i < r->store_count; i++) print_store(&r->stores[i]);
    print_filter(&args.mixture);
    if (r->cache)
        printf("cache            %zu states, lambda %.4g, temperature %.4g\n", r->cache, r->cache_lambda,
               r->cache_temperature);
    if (r->skip_entropy > 0)
        printf("skipped          %.1f%% of the searches: the model's entropy was below %.4g nats\n",
               100 * r->skipped, r->skip_entropy);
    if (r->own_documents)
        printf("own text         %" PRIu64 " documents are in a store: each was scored without itself\n",
               r->own_documents);
}

static void print_ngram(const knnlm_eval_ngram *n) {
    char tokens[32], alone[32], best[32];
    size_t point = best_point(n);
    printf("n-gram model     order %d, %s tokens, lambda %.4g; alone %s per token; best on this text: lambda "
           "%.2f, %s\n",
           n->order, cli_count((double)n->tokens, tokens), n->lambda, cli_perplexity(n->score.ppl, alone),
           n->lambdas[point], cli_perplexity(n->by_lambda[point], best));
}

static void print_text(const knnlm_eval_result *r) {
    char rate[32], seconds[32], lm[32], search[32];
    bool mixed = r->store_count || r->cache || r->ngram.order;
    printf("documents        %llu\n", (unsigned long long)r->documents);
    printf("tokens           %llu\n", (unsigned long long)r->tokens);
    printf("words            %llu\n", (unsigned long long)r->words);
    printf("bytes            %llu\n", (unsigned long long)r->bytes);
    print_perplexity(mixed ? "model alone" : "perplexity", &r->lm, r->words);
    if (mixed)
        print_perplexity(r->store_count || r->cache ? "with neighbours" : "with n-grams", &r->mixed,
                         r->words);
    print_mixture(r);
    if (r->ngram.order) print_ngram(&r->ngram);
    if (r->stream)
        printf("windows          none: each document was read as a stream\n");
    else
        printf("windows          %d tokens scored after up to %d\n", r->score, r->context);
    printf("time             %s, %s tokens/s", cli_duration(r->seconds, seconds),
           cli_count(r->tokens_per_second, rate));
    if (mixed)
        printf(" (model %s, neighbours %s)", cli_duration(r->seconds_lm, lm),
               cli_duration(r->seconds_search, search));
    printf("\n");
    if (args.common.verbose && bytes_per_query() > 0)
        printf("network          %.0f bytes per token and shard\n", bytes_per_query());
}

static void tell(const char *store, const char *what) {
    fprintf(stderr, "knnlm eval: ");
    cli_put_line(stderr, store);
    fprintf(stderr, " %s\n", what);
}

// What a reader of the figures must know, on stderr: it is true of JSON too.
static void warn(const knnlm_eval_result *r) {
    for (size_t i = 0; i < r->store_count; i++) {
        const knnlm_eval_store *s = &r->stores[i];
        if (s->tuned_here) tell(s->path, "was tuned on (part of) this text: report another");
        if (!s->tuned) tell(s->path, "is not tuned: knnlm tune finds its lambda, temperature and k");
    }
}

// ---------------------------------------------------------------- the command

static bool writes_to_stdout(void) {
    return (args.per_token && cli_is_standard(args.per_token)) ||
           (args.report && cli_is_standard(args.report));
}

static knnlm_status check_outputs(const char *const *paths, size_t count) {
    const char *const outputs[] = {args.per_token, args.report};
    if (outputs[0] && outputs[1] && strcmp(outputs[0], outputs[1]) == 0)
        return kn_fail(KNNLM_EINVAL, "%s: --per-token and --report write to two files", outputs[0]);
    for (size_t i = 0; i < 2; i++) {
        if (!outputs[i]) continue;
        KN_TRY(cli_check_output(outputs[i], paths, count));
        KN_TRY(cli_check_output(outputs[i], args.ngram.items, args.ngram.count));
        KN_TRY(cli_check_output(outputs[i], &args.model, 1));
        KN_TRY(cli_mixture_check_output(&args.mixture, outputs[i]));
        KN_TRY(kn_writer_try(outputs[i]));
    }
    return KNNLM_OK;
}

static knnlm_eval_options make_options(void) {
    knnlm_eval_options o = knnlm_eval_options_default();
    o.score = (int32_t)args.score;
    o.context = (int32_t)args.context;
    o.split_given = args.texts.split >= 0;
    if (o.split_given) o.split = (knnlm_split)args.texts.split;
    o.texts = cli_texts_read(&args.texts);
    o.per_token = args.per_token;
    o.report = args.report;
    o.report_tokens = (uint64_t)args.report_tokens;
    o.ngram = args.ngram.items;
    o.ngram_count = args.ngram.count;
    o.ngram_order = (int32_t)args.order;
    o.ngram_lambda = args.ngram_lambda;
    o.progress = cli_progress;
    return o;
}

static knnlm_status evaluate(const char *const *paths, size_t count, const knnlm_mixture_options *mix) {
    knnlm_eval_options o = make_options();
    knnlm_eval_result result;
    knnlm_model_info info;
    knnlm_model *model;
    KN_TRY(check_outputs(paths, count));
    KN_TRY(cli_open_model(args.model, &args.common, &model));
    knnlm_status status = knnlm_eval(model, paths, count, mix, &o, &result);
    cli_progress_clear();
    cli_texts_report(&args.texts, &cli_eval);
    knnlm_model_describe(model, &info);
    if (writes_to_stdout()) cli_results_to_stderr();
    if (status == KNNLM_OK && args.common.json)
        print_json(&info, &result);
    else if (status == KNNLM_OK)
        print_text(&result);
    if (status == KNNLM_OK) warn(&result);
    knnlm_model_close(model);
    return status;
}

static int run(int argc, char **argv) {
    knnlm_mixture_options mix;
    char **paths;
    size_t count;
    args.context = args.texts.split = -1;
    args.report_tokens = 5000;
    args.order = 5;
    args.ngram_lambda = 0.1;
    cli_mixture_init(&args.mixture);
    int code = cli_parse(&cli_eval, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (count == 0) return cli_usage(&cli_eval, "no text to score");
    if (args.report && !args.mixture.stores.count && args.mixture.cache <= 0)
        return cli_usage(&cli_eval, "--report shows what neighbours do: give a store, or a cache");
    if (args.fallback && !args.mixture.stores.count)
        return cli_usage(&cli_eval, "--fallback is about the neighbours of a store: name it with -s");
    if (args.skip_entropy > 0 && !args.mixture.stores.count)
        return cli_usage(&cli_eval, "--skip-entropy is about searching a store: name it with -s");
    code = cli_mixture_read(&cli_eval, &args.mixture, &mix);
    if (code == CLI_DONE) code = cli_mixture_find_model(&cli_eval, &args.mixture, &args.model);
    if (code == CLI_DONE) code = cli_start(&cli_eval, &args.common);
    if (code == CLI_DONE) mix.fallback = args.fallback;
    if (code == CLI_DONE) mix.skip_entropy = args.skip_entropy;
    cli_catch_interrupts();
    if (code == CLI_DONE && evaluate((const char *const *)paths, count, &mix) != KNNLM_OK)
        code = cli_fail(&cli_eval);
    cli_texts_free(&args.texts);
    cli_mixture_free(&args.mixture);
    return code;
}

const cli_command cli_eval = {
    .name = "eval",
    .summary = "score text: perplexity of the model alone, and with neighbours from stores",
    .usage = "[-m MODEL] [-s STORE]... TEXT... [options]",
    .examples =
        "  knnlm eval -m models/small.gguf book.txt notes/\n"
        "  knnlm eval -s my.store test.txt                     as tuned (knnlm tune), with the store's own "
        "model\n"
        "  knnlm eval -m my.gguf -s a.store=.2 -s b.store=.1 test.txt\n"
        "  knnlm eval -m my.gguf -s my.store -k 1024 --lambda .25 --temperature 10 --probes 32 test.txt\n"
        "  knnlm eval -m my.gguf -s my.store --report page.html test.txt\n"
        "  zcat log.gz | knnlm eval -m my.gguf --per-token - - | cut -f 4,6\n",
    .run = run,
};
