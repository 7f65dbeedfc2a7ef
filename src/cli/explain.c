// knnlm explain: what model and neighbours say of a context, and where the neighbours are from.
#include "cli/input.h"
#include "cli/mixture.h"
#include "cli/model.h"
#include "cli/store.h"
#include "cli/texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    cli_mixture mixture;
    const char *model, *target, *text;
    cli_texts texts;
    int64_t words, shown, around, best, worst, score, context;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model that made the store (default: where it was then)", 0, 0, NULL},
    CLI_STORES_OPTIONS(args.mixture),
    CLI_MIXTURE_OPTIONS(args.mixture),
    CLI_PROBES_OPTIONS(args.mixture),
    CLI_FILTER_OPTIONS(args.mixture),
    {0, "target", CLI_STRING, &args.target, "WORD", "show this word too, whatever its probability, token by token", 0, 0, NULL},
    {0, "words", CLI_INTEGER, &args.words, "N", "words shown, the most probable (default: 8)", 0, 1000, NULL},
    {0, "show", CLI_INTEGER, &args.shown, "N", "neighbours shown (default: 8; with --text 3)", 0, 1000, NULL},
    {0, "around", CLI_INTEGER, &args.around, "N", "tokens shown on both sides of a neighbour (default: 12)", 0, 1000, NULL},
    {0, "text", CLI_STRING, &args.text, "FILE", "look through this text instead of one context", 0, 0, NULL},
    {0, "best", CLI_INTEGER, &args.best, "N", "with --text: tokens where neighbours helped most (default: 5)", 0, 10000, NULL},
    {0, "worst", CLI_INTEGER, &args.worst, "N", "with --text: tokens where they hurt most (default: 5)", 0, 10000, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "as the store's, else file"),
    {0, "score", CLI_INTEGER, &args.score, "N", "with --text: tokens scored a window", 1, 1 << 20, NULL},
    {0, "context", CLI_INTEGER, &args.context, "N", "with --text: tokens before them", 0, 1 << 20, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// ---------------------------------------------------------------- pieces of text

static char *token_text(const knnlm_model *model, int32_t token) {
    char *text, *line;
    size_t size;
    if (knnlm_model_decode(model, &token, 1, &text, &size) != KNNLM_OK) return NULL;
    line = cli_line(text, size, 40, false);
    knnlm_free(text);
    return line;
}

static const char *or_empty(const char *text) {
    return text ? text : "";
}

// ---------------------------------------------------------------- for people

enum { BEFORE = 60, AFTER = 30 }; // bytes of a neighbour's text on its line

static void print_neighbor(const knnlm_neighbor *n, int32_t target) {
    char *before = cli_line(or_empty(n->origin.before), n->origin.before_size, BEFORE, true),
         *word = cli_line(or_empty(n->origin.word), n->origin.word_size, 40, false),
         *after = cli_line(or_empty(n->origin.after), n->origin.after_size, AFTER, false);
    printf("  %7.4f %10.4g %c %s[%s]%s\n", n->share, n->distance, n->origin.entry.token == target ? '*' : ' ',
           or_empty(before), or_empty(word), or_empty(after));
    printf("                       ");
    cli_put_text(stdout, n->origin.document.name, n->origin.document.name_size);
    printf(", token %" PRIu64 "\n", n->origin.entry.position);
    free(before);
    free(word);
    free(after);
}

static void print_neighbors(const knnlm_neighbor *shown, size_t count, int32_t target) {
    if (count) printf("    share   distance   context [what followed it]\n");
    for (size_t i = 0; i < count; i++) print_neighbor(&shown[i], target);
}

// Their products; p_kNN NAN: there are no stores.
static knnlm_word product_of(const knnlm_word *words, size_t count) {
    knnlm_word all = {.lm = 1, .knn = 1, .p = 1};
    for (size_t i = 0; i < count; i++) {
        all.lm *= words[i].lm;
        all.knn *= words[i].knn;
        all.p *= words[i].p;
    }
    return all;
}

static void print_probabilities(const knnlm_word *w) {
    printf(" %7.4f %7.4f ", w->p, w->lm);
    if (isnan(w->knn))
        printf("      -");
    else
        printf("%7.4f", w->knn);
}

// A word of several tokens: each after those before it, and all of them.
static void print_target(const knnlm_model *model, const knnlm_explanation *e) {
    if (e->target_count < 2) return;
    printf("\nthe target's tokens, each after those before it, and their product\n");
    for (size_t i = 0; i < e->target_count; i++) {
        char *text = token_text(model, e->targets[i].token);
        print_probabilities(&e->targets[i]);
        printf("   \"%s\"\n", or_empty(text));
        free(text);
    }
    knnlm_word all = product_of(e->targets, e->target_count);
    printf(" %7.3g %7.3g ", all.p, all.lm);
    if (!isnan(all.knn)) printf("%7.3g", all.knn);
    printf("%s   %s\n", isnan(all.knn) ? "      -" : "", args.target);
}

static void print_explanation(const knnlm_model *model, const knnlm_explanation *e) {
    printf("context          %zu tokens%s; entropy %.3f nats", e->tokens,
           e->cut ? " (the last; it has more)" : "", e->entropy);
    if (!isnan(e->nearest)) printf("; nearest distance %.4g, lambda %.4g", e->nearest, e->lambda);
    printf("\n\n       p    p_LM   p_kNN   word\n");
    for (size_t i = 0; i < e->word_count; i++) {
        const knnlm_word *w = &e->words[i];
        char *text = token_text(model, w->token);
        print_probabilities(w);
        printf("   \"%s\"%s\n", or_empty(text), w->token == e->target ? "  <" : "");
        free(text);
    }
    print_target(model, e);
    printf("\n");
    print_neighbors(e->neighbors, e->neighbor_count, e->target);
}

static void print_gain(const knnlm_model *model, const knnlm_token_gain *x) {
    char *before = cli_line(x->before, x->before_size, 100, true), *word = token_text(model, x->token);
    printf("\n%s[%s]\n", or_empty(before), or_empty(word));
    printf("  p_LM %.3g, p_kNN %.3g, ", exp(x->lm), isnan(x->knn) ? 0 : exp(x->knn));
    if (!isnan(x->cache)) printf("p_cache %.3g, ", exp(x->cache));
    printf("lambda %.3g: p %.3g, %+.3f nats\n  ", x->lambda, exp(x->p), x->p - x->lm);
    cli_put_line(stdout, x->document);
    printf(", token %" PRIu64 ", byte %" PRIu64 "\n", x->position, x->offset);
    print_neighbors(x->neighbors, x->neighbor_count, x->token);
    free(before);
    free(word);
}

static void print_gains(const knnlm_model *model, const knnlm_token_gains *m) {
    printf("tokens           %" PRIu64 "\nmodel alone      %.3f\nwith neighbours  %.3f\n", m->tokens,
           m->ppl_lm, m->ppl);
    if (m->best_count) printf("\n== where neighbours helped most\n");
    for (size_t i = 0; i < m->best_count; i++) print_gain(model, &m->best[i]);
    if (m->worst_count) printf("\n== where they hurt most\n");
    for (size_t i = 0; i < m->worst_count; i++) print_gain(model, &m->worst[i]);
}

// ---------------------------------------------------------------- JSON

static json_t *json_neighbors(const knnlm_neighbor *shown, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const knnlm_neighbor *n = &shown[i];
        const knnlm_origin *o = &n->origin;
        cli_json_append(list,
                        json_pack("{s:I, s:I, s:i, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:I}", "store",
                                  (json_int_t)n->store, "entry", (json_int_t)o->entry.id, "token",
                                  o->entry.token, "share", n->share, "distance", n->distance, "before",
                                  cli_json_text(o->before, o->before_size), "text",
                                  cli_json_text(o->word, o->word_size), "after",
                                  cli_json_text(o->after, o->after_size), "document",
                                  cli_json_name(o->document.name, o->document.name_size), "position",
                                  (json_int_t)o->entry.position, "offset", (json_int_t)o->entry.offset));
    }
    return list;
}

static json_t *json_token(const knnlm_model *model, int32_t token) {
    char *text;
    size_t size;
    if (knnlm_model_decode(model, &token, 1, &text, &size) != KNNLM_OK) return json_null();
    json_t *out = cli_json_text(text, size);
    knnlm_free(text);
    return out;
}

static json_t *json_target(const knnlm_model *model, const knnlm_explanation *e) {
    json_t *tokens = json_array();
    knnlm_word all = product_of(e->targets, e->target_count);
    if (!e->target_count) {
        json_decref(tokens);
        return json_null();
    }
    for (size_t i = 0; i < e->target_count; i++) {
        const knnlm_word *w = &e->targets[i];
        cli_json_append(tokens, json_pack("{s:i, s:o, s:f, s:o?, s:f}", "token", w->token, "text",
                                          json_token(model, w->token), "p_lm", w->lm, "p_knn",
                                          json_real(w->knn), "p", w->p));
    }
    return json_pack("{s:f, s:o?, s:f, s:o}", "p_lm", all.lm, "p_knn", json_real(all.knn), "p", all.p,
                     "tokens", tokens);
}

static json_t *json_explanation(const knnlm_model *model, const knnlm_explanation *e) {
    json_t *words = json_array();
    for (size_t i = 0; i < e->word_count; i++) {
        const knnlm_word *w = &e->words[i];
        cli_json_append(words, json_pack("{s:i, s:o, s:f, s:o?, s:f, s:b}", "token", w->token, "text",
                                         json_token(model, w->token), "p_lm", w->lm, "p_knn",
                                         json_real(w->knn), "p", w->p, "target", w->token == e->target));
    }
    return json_pack("{s:I, s:b, s:f, s:o?, s:f, s:o, s:o, s:o}", "tokens", (json_int_t)e->tokens, "cut",
                     e->cut, "lambda", e->lambda, "nearest", json_real(e->nearest), "entropy", e->entropy,
                     "words", words, "target", json_target(model, e), "neighbors",
                     json_neighbors(e->neighbors, e->neighbor_count));
}

static json_t *json_gains(const knnlm_model *model, const knnlm_token_gain *gains, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const knnlm_token_gain *x = &gains[i];
        cli_json_append(list, json_pack("{s:o?, s:I, s:I, s:i, s:o, s:o, s:f, s:o?, s:o?, s:o?, s:f, s:o}",
                                        "document", json_string(x->document), "position",
                                        (json_int_t)x->position, "offset", (json_int_t)x->offset, "token",
                                        x->token, "text", json_token(model, x->token), "before",
                                        cli_json_text(x->before, x->before_size), "logprob_lm", x->lm,
                                        "logprob_knn", json_real(x->knn), "logprob_cache",
                                        json_real(x->cache), "logprob", json_real(x->p), "lambda", x->lambda,
                                        "neighbors", json_neighbors(x->neighbors, x->neighbor_count)));
    }
    return list;
}

// ---------------------------------------------------------------- the command

static knnlm_status explain_text(const knnlm_model *model, knnlm_mixture *m) {
    knnlm_explain_texts_options o = knnlm_explain_texts_options_default();
    knnlm_token_gains gains;
    o.score = (int32_t)args.score;
    o.context = (int32_t)args.context;
    o.split_given = args.texts.split >= 0;
    if (o.split_given) o.split = (knnlm_split)args.texts.split;
    o.texts = cli_texts_read(&args.texts);
    o.best = (size_t)args.best;
    o.worst = (size_t)args.worst;
    if (args.shown >= 0) o.neighbors = (size_t)args.shown;
    o.around = (size_t)args.around;
    o.progress = cli_progress;
    knnlm_status status = knnlm_explain_texts(m, &args.text, 1, &o, &gains);
    cli_progress_clear();
    cli_texts_report(&args.texts, &cli_explain);
    if (status != KNNLM_OK) return status;
    if (args.common.json)
        cli_print_json(json_pack(
            "{s:I, s:f, s:o?, s:o, s:o, s:o}", "tokens", (json_int_t)gains.tokens, "ppl_lm", gains.ppl_lm,
            "ppl", json_real(gains.ppl), "best", json_gains(model, gains.best, gains.best_count), "worst",
            json_gains(model, gains.worst, gains.worst_count), "skipped_files", cli_texts_json(&args.texts)));
    else
        print_gains(model, &gains);
    knnlm_token_gains_free(&gains);
    return KNNLM_OK;
}

static knnlm_status explain_context(const knnlm_model *model, knnlm_mixture *m, const char *context) {
    knnlm_explain_options o = knnlm_explain_options_default();
    knnlm_explanation e;
    o.target = args.target;
    o.words = (size_t)args.words;
    if (args.shown >= 0) o.neighbors = (size_t)args.shown;
    o.around = (size_t)args.around;
    KN_TRY(knnlm_explain(m, context, &o, &e));
    if (args.common.json)
        cli_print_json(json_explanation(model, &e));
    else
        print_explanation(model, &e);
    knnlm_explanation_free(&e);
    return KNNLM_OK;
}

static knnlm_status explain(const knnlm_mixture_options *mix, const char *context) {
    knnlm_mixture *m;
    knnlm_model *model;
    KN_TRY(cli_open_model(args.model, &args.common, &model));
    knnlm_status status = knnlm_mixture_open(model, mix, &m);
    if (status == KNNLM_OK) {
        status = args.text ? explain_text(model, m) : explain_context(model, m, context);
        knnlm_mixture_close(m);
    }
    knnlm_model_close(model);
    return status;
}

// The context comes first: while it is typed, nothing else need wait.
static knnlm_status read_and_explain(const knnlm_mixture_options *mix, const char *context) {
    cli_text text = {0};
    if (args.text) return explain(mix, NULL);
    KN_TRY(cli_text_take(&text, context));
    knnlm_status status =
        strlen(text.data) == text.size
            ? explain(mix, text.data)
            : kn_fail(KNNLM_EDATA, "the context has a NUL character at byte %zu", strlen(text.data));
    cli_text_free(&text);
    return status;
}

static int check_usage(size_t count) {
    if (args.text && (count || args.target))
        return cli_usage(&cli_explain, "--text is in place of a context and target");
    if (!args.text && count != 1)
        return cli_usage(&cli_explain, "one context, in quotes (or - for standard input, or --text FILE)");
    return CLI_DONE;
}

static int run(int argc, char **argv) {
    knnlm_mixture_options mix;
    char **rest;
    size_t count;
    cli_mixture_init(&args.mixture);
    args.context = args.texts.split = -1;
    args.shown = -1;
    args.words = 8;
    args.around = 12;
    args.best = args.worst = 5;
    int code = cli_parse(&cli_explain, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_mixture_read(&cli_explain, &args.mixture, &mix);
    if (code == CLI_DONE) code = cli_mixture_find_model(&cli_explain, &args.mixture, &args.model);
    if (code == CLI_DONE) code = cli_start(&cli_explain, &args.common);
    cli_catch_interrupts();
    if (code == CLI_DONE && read_and_explain(&mix, count ? rest[0] : NULL) != KNNLM_OK)
        code = cli_fail(&cli_explain);
    cli_texts_free(&args.texts);
    cli_mixture_free(&args.mixture);
    return code;
}

const cli_command cli_explain = {
    .name = "explain",
    .summary = "show what the model and the neighbours say of a context, and where the neighbours are from",
    .usage = "[-m MODEL] -s STORE \"CONTEXT\" [options]",
    .examples = "  knnlm explain -s my.store \"The capital of France is\"\n"
                "  knnlm explain -s my.store \"The capital of France is\" --target Paris\n"
                "  knnlm explain -s my.store - <context.txt\n"
                "  knnlm explain -m my.gguf -s my.store --text test.txt --best 10 --worst 10\n",
    .run = run,
};
