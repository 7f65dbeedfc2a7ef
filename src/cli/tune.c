// knnlm tune: the best settings of a store on a text.
#include "base/file.h"
#include "cli/input.h"
#include "cli/mixture.h"
#include "cli/model.h"
#include "cli/plot.h"
#include "cli/texts.h"
#include "cli/tune_edges.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    cli_mixture mixture;
    const char *model, *probe_list, *plot;
    cli_texts texts;
    int64_t score, context;
    bool dry, own;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model that made the store (default: where it was then)", 0, 0, NULL},
    {'s', "store", CLI_LIST, &args.mixture.stores, "STORE", "neighbours come from here; may be given several times", 0, 0, NULL},
    {0, "lambda", CLI_NUMBER, &args.mixture.lambda, "L", NULL, 0, 1, NULL}, // known, to be refused with a reason
    {0, "cache-lambda", CLI_NUMBER, &args.mixture.cache_lambda, "L", NULL, 0, 1, NULL},
    {0, "own", CLI_FLAG, &args.own, NULL, "in place of TEXT, some of the store's own, as build does: a first guess", 0, 0, NULL},
    CLI_MIXTURE_OPTIONS(args.mixture),
    {0, "probes", CLI_STRING, &args.probe_list, "LIST", "numbers of lists to try, such as 4,8,16,32, or auto: half, as many as and twice the index's; the fewest that are as good are kept, or more where the model takes much longer", 0, 0, NULL},
    {0, "probe", CLI_STRING, &args.probe_list, "LIST", NULL, 0, 0, NULL},
    {0, "plot", CLI_STRING, &args.plot, "PREFIX", "draw perplexity by k and by lambda: PREFIX-k.svg, PREFIX-lambda.svg", 0, 0, NULL},
    {0, "dry-run", CLI_FLAG, &args.dry, NULL, "write nothing into the store", 0, 0, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "as the store's, else file"),
    {0, "score", CLI_INTEGER, &args.score, "N", "tokens scored a window (default: half the window, at most 512)", 1, 1 << 20, NULL},
    {0, "context", CLI_INTEGER, &args.context, "N", "tokens before them (default: what the model's window leaves)", 0, 1 << 20, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static knnlm_tune_result result;

// ---------------------------------------------------------------- curves

// Of the first store's points (with the cache, where there is one, the last round of them): the best of each
// k.
typedef struct by_k {
    double k[64], ppl[64];
    const knnlm_tune_point *points[64];
    size_t count;
} by_k;

static bool counts(const knnlm_tune_point *p) {
    const knnlm_tune_point *best = &result.stores[0].best;
    return p->store == best->store && (best->cache_lambda > 0) == (p->cache_lambda > 0);
}

static by_k best_by_k(void) {
    by_k c = {.count = 0};
    for (size_t i = 0; i < result.point_count; i++) {
        const knnlm_tune_point *p = &result.points[i];
        size_t j = 0;
        if (!counts(p)) continue;
        while (j < c.count && c.points[j]->k != p->k) j++;
        if (j == c.count) {
            if (c.count == 64) continue;
            c.count++;
            c.points[j] = p;
        }
        if (p->ppl < c.points[j]->ppl) c.points[j] = p;
    }
    for (size_t j = 0; j < c.count; j++) {
        c.k[j] = (double)c.points[j]->k;
        c.ppl[j] = c.points[j]->ppl;
    }
    return c;
}

static knnlm_status draw(const char *suffix, const cli_plot *plot) {
    char path[4096];
    snprintf(path, sizeof path, "%s-%s.svg", args.plot, suffix);
    return cli_plot_write(path, plot);
}

// The paper's figures 4 and 5.
static knnlm_status plot(void) {
    by_k c = best_by_k();
    char chosen_k[64], chosen_lambda[64];
    const double ends_k[] = {1, c.count ? c.k[c.count - 1] : 1}, ends_lambda[] = {0, 1},
                 alone[] = {result.ppl_lm, result.ppl_lm};
    const cli_curve k_curves[] = {
        {.name = "with neighbours", .x = c.k, .y = c.ppl, .count = c.count},
        {.name = "model alone", .x = ends_k, .y = alone, .count = 2, .dashed = true}};
    const cli_curve lambda_curves[] = {
        {.name = "with neighbours", .x = result.lambdas, .y = result.by_lambda, .count = KNNLM_TUNE_CURVE},
        {.name = "model alone", .x = ends_lambda, .y = alone, .count = 2, .dashed = true}};
    const cli_axis ppl = {.label = "perplexity"};
    snprintf(chosen_k, sizeof chosen_k, "k %" PRId64, result.tuned.k);
    snprintf(chosen_lambda, sizeof chosen_lambda, "lambda %.3f", result.tuned.lambda);
    KN_TRY(draw("k", &(cli_plot){.title = "Perplexity by the number of neighbours",
                                 .x = {.label = "neighbours (k)", .log = true},
                                 .y = ppl,
                                 .curves = k_curves,
                                 .count = 2,
                                 .marked = chosen_k,
                                 .marked_x = (double)result.tuned.k}));
    // At a weight of 1, what no neighbour has is impossible: the curve's end would hide the rest.
    cli_axis lambda_axis = {.label = "perplexity", .low = 0.98 * result.ppl, .high = 1.3 * result.ppl_lm};
    return draw("lambda", &(cli_plot){.title = "Perplexity by the weight of the neighbours",
                                      .x = {.label = "lambda"},
                                      .y = lambda_axis,
                                      .curves = lambda_curves,
                                      .count = 2,
                                      .marked = chosen_lambda,
                                      .marked_x = result.tuned.lambda});
}

// ---------------------------------------------------------------- text

static void print_row(const knnlm_tune_point *p, bool chosen) {
    printf("%8zu %12.4g %9.4f %11.3f%s\n", p->k, p->temperature, p->lambda, p->ppl, chosen ? "  <" : "");
}

static void print_table(void) {
    by_k c = best_by_k();
    const knnlm_tune_point *best = &result.stores[0].best;
    printf("\n       k  temperature    lambda  perplexity (at the best temperature and lambda of each k)\n");
    for (size_t j = 0; j < c.count; j++) print_row(c.points[j], c.points[j]->k == best->k);
    printf("\n       k  temperature    lambda  perplexity (at the best k)\n");
    for (size_t i = 0; i < result.point_count; i++) {
        const knnlm_tune_point *p = &result.points[i];
        if (counts(p) && p->k == best->k) print_row(p, p->ppl == best->ppl);
    }
    printf("\n");
}

static const knnlm_tune_point *best_of_way(size_t way) {
    const knnlm_tune_point *best = NULL;
    for (size_t i = 0; i < result.point_count; i++) {
        const knnlm_tune_point *p = &result.points[i];
        if (p->store == way && (!best || p->ppl < best->ppl)) best = p;
    }
    return best;
}

static void print_tried_probes(void) {
    const knnlm_tune_point *best;
    for (size_t way = 0; (best = best_of_way(way)); way++) {
        char lists[32] = "all";
        if (best->probes) snprintf(lists, sizeof lists, "%" PRIu32, best->probes);
        printf("lists            %s: perplexity %.3f, searched in %.1f s\n", lists, best->ppl,
               result.way_seconds[way]);
    }
}

static void print_one(void) {
    const knnlm_tuned *t = &result.tuned;
    print_table();
    if (args.probe_list) print_tried_probes();
    printf("model alone      %.3f\n", result.ppl_lm);
    if (!isnan(result.ppl_cache)) printf("with the cache   %.3f\n", result.ppl_cache);
    printf("with neighbours  %.3f: lambda %.4f, temperature %.4g, k %" PRId64, result.ppl, t->lambda,
           t->temperature, t->k);
    if (t->probes) printf(", %" PRId64 " lists", t->probes);
    if (t->cache)
        printf("; cache of %" PRId64 ": lambda %.4f, temperature %.4g", t->cache, t->cache_lambda,
               t->cache_temperature);
    printf("\n");
    if (!isnan(result.ppl_adaptive))
        printf("lambda by bins   %.3f: %" PRIu32 " bins of the nearest distance by %" PRIu32
               " of the entropy (%.3f on halves they were not fitted on)\n",
               result.ppl_adaptive, t->distance_bins, t->entropy_bins, result.ppl_adaptive_checked);
    else if (!isnan(result.ppl_adaptive_checked))
        printf("lambda by bins   no better on text they were not fitted on (%.3f): not used\n",
               result.ppl_adaptive_checked);
    if (!isnan(result.ppl_gate))
        printf("by its gate      %.3f (%.3f on halves it was not fitted on); text of other kinds %.3f, alone "
               "%.3f\n",
               result.ppl_gate, result.ppl_gate_checked, result.ppl_foreign, result.ppl_foreign_lm);
}

// To four digits, never up: in sum weights stay within 1.
static double shortened(double weight) {
    return floor(1e4 * weight) / 1e4;
}

// How to evaluate with what was found, where no store remembers it.
static void print_command(void) {
    printf("all together     %.3f: knnlm eval -m %s", result.ppl, args.model);
    for (size_t i = 0; i < result.store_count; i++)
        printf(" -s %s=%.4f,%.4g,%zu", result.stores[i].path, shortened(result.stores[i].lambda),
               result.stores[i].best.temperature, result.stores[i].best.k);
    if (!isnan(result.ppl_cache))
        printf(" --cache %" PRId64 " --cache-lambda %.4f --cache-temperature %.4g", args.mixture.cache,
               shortened(result.cache_lambda), result.cache_temperature);
    printf("\n");
}

static void print_several(void) {
    printf("model alone      %.3f\n", result.ppl_lm);
    if (!isnan(result.ppl_cache)) printf("with the cache   %.3f\n", result.ppl_cache);
    for (size_t i = 0; i < result.store_count; i++)
        printf("%-16s %.3f alone at k %zu, temperature %.4g; lambda %.4f beside the others\n",
               result.stores[i].path, result.stores[i].best.ppl, result.stores[i].best.k,
               result.stores[i].best.temperature, result.stores[i].lambda);
    print_command();
}

// Of 10, 30 and 50 tokens in a hundred.
static void print_skips(void) {
    printf("skipping         ");
    for (size_t i = 0; i < 5; i += 2)
        printf("%s%.3f without %.0f%% of the searches (eval --skip-entropy %.3g)", i ? ", " : "",
               result.skips[i].ppl, 100 * result.skips[i].skipped, result.skips[i].entropy);
    printf("\n");
}

static cli_tune_edges edges_of(size_t store) {
    size_t k = args.mixture.k > 0 ? (size_t)args.mixture.k : 1024;
    return cli_tune_edges_of(&result, store, k, !isnan(args.mixture.temperature));
}

static void print_edges(void) {
    for (size_t i = 0; i < result.store_count; i++) {
        cli_tune_edges edges = edges_of(i);
        cli_tune_edges_print(&edges);
    }
}

static void print_written(void) {
    const char *mixed = result.tuned.gate            ? "its gate (eval --bins, --fixed: the others)"
                        : result.tuned.distance_bins ? "lambda by bins (eval --fixed: one lambda)"
                                                     : "one lambda";
    if (!result.written) {
        printf("written          nothing; these figures are of the text that was tuned on\n");
        return;
    }
    printf("mixed by         %s\n", mixed);
    printf("written          into %s; these figures are of the text it was tuned on: report another "
           "(knnlm eval)\n",
           result.stores[0].path);
}

static void print_text(void) {
    char search[32], sweep[32], tokens[32];
    if (result.tuned.known)
        print_one();
    else
        print_several();
    print_edges();
    if (result.store_count) print_skips();
    printf("tokens           %s\n", cli_count((double)result.tokens, tokens));
    printf("time             %s searching, %s for %zu settings\n",
           cli_duration(result.seconds_search, search), cli_duration(result.seconds_sweep, sweep),
           result.settings);
    print_written();
}

// ---------------------------------------------------------------- JSON

static json_t *json_point(const knnlm_tune_point *p) {
    return json_pack("{s:I, s:I, s:o?, s:f, s:f, s:o?, s:I}", "k", (json_int_t)p->k, "probes",
                     (json_int_t)p->probes, "temperature", json_real(p->temperature), "lambda", p->lambda,
                     "cache_lambda", p->cache_lambda, "ppl", json_real(p->ppl), "store",
                     (json_int_t)p->store);
}

static json_t *json_points(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < result.point_count; i++) cli_json_append(list, json_point(&result.points[i]));
    return list;
}

static json_t *json_lambdas(void) {
    json_t *list = json_array();
    for (size_t i = 0; result.tuned.known && i < KNNLM_TUNE_CURVE; i++)
        cli_json_append(
            list, json_pack("[f, o]", result.lambdas[i],
                            isfinite(result.by_lambda[i]) ? json_real(result.by_lambda[i]) : json_null()));
    return list;
}

static json_t *json_skips(void) {
    json_t *list = json_array();
    for (size_t i = 0; result.store_count && i < KNNLM_TUNE_SKIPS; i++)
        cli_json_append(list, json_pack("{s:f, s:f, s:o?}", "entropy", result.skips[i].entropy, "skipped",
                                        result.skips[i].skipped, "ppl", json_real(result.skips[i].ppl)));
    return list;
}

static json_t *json_stores(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < result.store_count; i++) {
        json_t *one = json_point(&result.stores[i].best);
        json_object_set_new(one, "path", json_string(result.stores[i].path));
        json_object_set_new(one, "lambda", json_real(result.stores[i].lambda));
        cli_tune_edges edges = edges_of(i);
        json_object_set_new(one, "edges", cli_tune_edges_json(&edges));
        cli_json_append(list, one);
    }
    return list;
}

static void print_json(void) {
    const knnlm_tuned *t = &result.tuned;
    cli_print_json(json_pack(
        "{s:o?, s:I, s:f, s:f, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:f, s:f, s:I, s:I, s:{s:I, s:f, "
        "s:f}, s:{s:I, s:I}, s:b, "
        "s:b, s:f, "
        "s:f, s:f, s:I, s:o, s:o, s:o, s:o, s:o}",
        "model", json_string(args.model), "tokens", (json_int_t)result.tokens, "ppl_lm", result.ppl_lm, "ppl",
        result.ppl, "ppl_cache", json_real(result.ppl_cache), "ppl_adaptive", json_real(result.ppl_adaptive),
        "ppl_adaptive_checked", json_real(result.ppl_adaptive_checked), "ppl_gate",
        json_real(result.ppl_gate), "ppl_gate_checked", json_real(result.ppl_gate_checked), "ppl_foreign",
        json_real(result.ppl_foreign), "ppl_foreign_lm", json_real(result.ppl_foreign_lm), "lambda",
        t->lambda, "temperature", t->temperature, "k", (json_int_t)t->k, "probes", (json_int_t)t->probes,
        "cache", "size", (json_int_t)(args.mixture.cache > 0 ? args.mixture.cache : 0), "lambda",
        result.cache_lambda, "temperature", result.cache_temperature, "bins", "distances",
        (json_int_t)t->distance_bins, "entropies", (json_int_t)t->entropy_bins, "reported_on_tuning_text",
        true, "written", result.written, "seconds_search", result.seconds_search, "seconds_sweep",
        result.seconds_sweep, "seconds", result.seconds, "settings", (json_int_t)result.settings, "stores",
        json_stores(), "points", json_points(), "by_lambda", json_lambdas(), "by_skip", json_skips(),
        "skipped_files", cli_texts_json(&args.texts)));
}

// ---------------------------------------------------------------- the command

enum { FEW = 1000, PROBES_MAX = 12 }; // FEW: tokens; what is tuned on fewer is not to be trusted

static void print_plan(void *context, uint64_t tokens, uint64_t bytes) {
    char count[32], size[32];
    (void)context;
    if (tokens < FEW)
        fprintf(stderr, "knnlm tune: only %" PRIu64 " tokens: what they tell is mostly chance\n", tokens);
    fprintf(stderr, "knnlm tune: %s tokens, %sB for their neighbours\n", cli_count((double)tokens, count),
            cli_count((double)bytes, size));
}

// "4,8,16": how many were read; 0: not such a list.
static size_t read_probes(const char *text, int64_t probes[PROBES_MAX]) {
    size_t count = 0;
    for (char *end; count < PROBES_MAX; text = end + 1) {
        probes[count] = strtoll(text, &end, 10);
        if (end == text || probes[count] < 1 || probes[count] > 1 << 24 || (*end && *end != ',')) return 0;
        count++;
        if (!*end) return count;
    }
    return 0;
}

// Whether both curves can be written, before the work.
static knnlm_status check_plot(const char *const *paths, size_t count) {
    static const char *const suffixes[] = {"k", "lambda"};
    char path[4096];
    for (size_t i = 0; args.plot && i < 2; i++) {
        if (snprintf(path, sizeof path, "%s-%s.svg", args.plot, suffixes[i]) >= (int)sizeof path)
            return kn_fail(KNNLM_EINVAL, "--plot: the name is too long");
        KN_TRY(cli_check_output(path, paths, count));
        KN_TRY(cli_check_output(path, &args.model, 1));
        KN_TRY(cli_mixture_check_output(&args.mixture, path));
        KN_TRY(kn_writer_try(path));
    }
    return KNNLM_OK;
}

static knnlm_status tune(const char *const *paths, size_t count, const knnlm_mixture_options *mix,
                         const int64_t *probes, size_t probe_count) {
    knnlm_tune_options o = knnlm_tune_options_default();
    knnlm_model *model;
    o.score = (int32_t)args.score;
    o.context = (int32_t)args.context;
    o.split_given = args.texts.split >= 0;
    if (o.split_given) o.split = (knnlm_split)args.texts.split;
    o.texts = cli_texts_read(&args.texts);
    o.probes = probes;
    o.probe_count = probe_count;
    o.auto_probes = args.probe_list && !probe_count;
    o.dry_run = args.dry;
    o.own = args.own;
    o.planned = print_plan;
    o.progress = cli_progress;
    KN_TRY(check_plot(paths, count));
    KN_TRY(cli_open_model(args.model, &args.common, &model));
    knnlm_status status = knnlm_tune(model, paths, count, mix, &o, &result);
    knnlm_model_close(model);
    cli_progress_clear();
    cli_texts_report(&args.texts, &cli_tune);
    if (status != KNNLM_OK) return status;
    if (args.common.json)
        print_json();
    else
        print_text();
    if (args.plot && result.tuned.known) status = plot();
    knnlm_tune_result_free(&result);
    return status;
}

static int check_usage(size_t count) {
    if (args.own && count) return cli_usage(&cli_tune, "--own or a text to tune on, one at a time");
    if (args.own && args.mixture.stores.count != 1)
        return cli_usage(&cli_tune, "--own tunes one store at a time");
    if (!args.own && !count)
        return cli_usage(&cli_tune, "no text to tune on (--own: some of the store's own, a first guess)");
    if (!isnan(args.mixture.lambda) || !isnan(args.mixture.cache_lambda))
        return cli_usage(&cli_tune, "lambda is what tuning finds: it cannot be given");
    for (size_t i = 0; i < args.mixture.stores.count; i++)
        if (!isnan(args.mixture.weights[i]))
            return cli_usage(&cli_tune, "--store %s: what stands after the = is what tuning finds",
                             args.mixture.stores.items[i]);
    if (args.plot && args.mixture.stores.count != 1)
        return cli_usage(&cli_tune, "--plot draws the curves of one store");
    return CLI_DONE;
}

static int run(int argc, char **argv) {
    knnlm_mixture_options mix;
    int64_t probes[PROBES_MAX];
    char **paths;
    size_t count, probe_count = 0;
    cli_spooled spooled = {0};
    args.context = args.texts.split = -1;
    cli_mixture_init(&args.mixture);
    int code = cli_parse(&cli_tune, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    bool automatic = args.probe_list && strcmp(args.probe_list, "auto") == 0;
    if (args.probe_list && !automatic && !(probe_count = read_probes(args.probe_list, probes)))
        return cli_usage(&cli_tune, "--probes %s: not a list of numbers such as 4,8,16,32, nor auto",
                         args.probe_list);
    code = cli_mixture_read(&cli_tune, &args.mixture, &mix);
    if (code == CLI_DONE) code = check_usage(count);
    if (code == CLI_DONE) code = cli_mixture_find_model(&cli_tune, &args.mixture, &args.model);
    if (code == CLI_DONE) code = cli_start(&cli_tune, &args.common);
    cli_catch_interrupts();
    if (code == CLI_DONE && (cli_spool(paths, count, &spooled) != KNNLM_OK ||
                             tune((const char *const *)paths, count, &mix, probes, probe_count) != KNNLM_OK))
        code = cli_fail(&cli_tune);
    cli_spooled_free(&spooled);
    cli_texts_free(&args.texts);
    cli_mixture_free(&args.mixture);
    return code;
}

const cli_command cli_tune = {
    .name = "tune",
    .summary = "find lambda, temperature, k and the rest on validation text, and keep them in the store",
    .usage = "[-m MODEL] -s STORE TEXT... [options]",
    .examples = "  knnlm tune -s my.store valid.txt\n"
                "  knnlm tune -m my.gguf -s my.store --cache 2000 --plot curves valid.txt\n"
                "  knnlm tune -m my.gguf -s my.store --probes 4,8,16,32,64 valid.txt\n"
                "  knnlm tune -m my.gguf -s wiki.store -s notes.store --dry-run valid.txt\n",
    .run = run,
};
