#include "eval/eval.h"
#include "base/threads.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    const char *model, *per_token;
    int split;
    int64_t score, context;
} said;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &said.model, "FILE", "model to score with (required)", 0, 0, NULL},
    {0, "documents", CLI_CHOICE, &said.split, "HOW", "file, or wiki: each \"= Title =\" section is a document", 0, 0, kn_split_names},
    {0, "score", CLI_INTEGER, &said.score, "N", "tokens scored a window (default: half the context, at most 512)", 1, 1 << 20, NULL},
    {0, "context", CLI_INTEGER, &said.context, "N", "tokens before them (default: what the model's context leaves)", 0, 1 << 20, NULL},
    {0, "per-token", CLI_STRING, &said.per_token, "FILE", "write one tab-separated row a token", 0, 0, NULL},
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

static void print_json(const kn_lm_info *info, const kn_eval_result *r) {
    const kn_read_totals *t = &r->totals;
    cli_print_json(json_pack(
        "{s:o?, s:s, s:I, s:I, s:I, s:I, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?, s:{s:i, s:i, s:s, s:i, s:s}}",
        "model", json_string(info->path), "fingerprint", info->fingerprint, "documents",
        (json_int_t)t->documents, "tokens", (json_int_t)t->tokens, "words", (json_int_t)t->words, "bytes",
        (json_int_t)t->bytes, "ppl", json_real(r->ppl), "ppl_word", json_real(r->ppl_word), "bits_per_byte",
        json_real(r->bits_per_byte), "nll", json_real(r->nll), "seconds", json_real(r->seconds),
        "tokens_per_second", json_real(r->tokens_per_second), "settings", "score", r->score, "context",
        r->context, "documents", kn_split_names[said.split], "threads", kn_threads(), "kernels",
        info->kernels));
}

static void print_text(const kn_eval_result *r) {
    const kn_read_totals *t = &r->totals;
    char rate[32], seconds[32];
    printf("documents        %llu\n", (unsigned long long)t->documents);
    printf("tokens           %llu\n", (unsigned long long)t->tokens);
    printf("words            %llu\n", (unsigned long long)t->words);
    printf("bytes            %llu\n", (unsigned long long)t->bytes);
    printf("perplexity       %.3f per token", r->ppl);
    if (t->words) printf(", %.3f per word", r->ppl_word);
    printf("\n");
    printf("bits per byte    %.4f\n", r->bits_per_byte);
    printf("windows          %d tokens scored after up to %d\n", r->score, r->context);
    printf("time             %s, %s tokens/s\n", cli_duration(r->seconds, seconds),
           cli_count(r->tokens_per_second, rate));
}

static knnlm_status evaluate(const char *const *paths, size_t count) {
    kn_lm_options lm_options = {(kn_precision)said.common.precision};
    kn_eval_options o = {.read = {.score = (int32_t)said.score,
                                  .context = (int32_t)said.context,
                                  .split = (kn_split)said.split,
                                  .tap = KN_TAP_DEFAULT},
                         .per_token = said.per_token};
    kn_eval_result result;
    kn_lm *lm;
    if (said.per_token) {
        KN_TRY(cli_check_output(said.per_token, paths, count));
        KN_TRY(cli_check_output(said.per_token, &said.model, 1));
    }
    KN_TRY(kn_lm_open(said.model, &lm_options, &lm));
    knnlm_status status = kn_eval_run(lm, paths, count, &o, &cli_progress, &result);
    cli_progress_clear();
    if (status == KNNLM_OK && said.common.json)
        print_json(kn_lm_describe(lm), &result);
    else if (status == KNNLM_OK)
        print_text(&result);
    kn_lm_close(lm);
    return status;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    said.context = -1;
    int code = cli_parse(&cli_eval, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (!said.model) return cli_usage(&cli_eval, "no -m FILE to score with");
    if (count == 0) return cli_usage(&cli_eval, "no text to score");
    code = cli_start(&cli_eval, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    return evaluate((const char *const *)paths, count) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_eval);
}

const cli_command cli_eval = {
    .name = "eval",
    .summary = "score text: perplexity per token and per word, bits per byte",
    .usage = "-m MODEL TEXT... [options]",
    .examples = "  knnlm eval -m models/small.gguf book.txt notes/\n"
                "  knnlm eval -m my.gguf --score 512 --context 512 --json test.txt.zst\n"
                "  zcat log.gz | knnlm eval -m my.gguf --per-token rows.tsv -\n",
    .run = run,
};
