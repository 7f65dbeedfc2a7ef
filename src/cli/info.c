#include "cli/cli.h"
#include "lm/lm.h"

#include <stdio.h>

static struct { cli_common common; } said;

static const cli_option options[] = {CLI_COMMON_OPTIONS(said.common)};

static void print_json(const kn_lm_info *i, const char *tokenizer) {
    json_t *j =
        json_pack("{s:o?, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model",
                  json_string(i->path), "architecture", i->architecture, "engine", i->engine, "fingerprint",
                  i->fingerprint, "tokenizer", tokenizer, "parameters", (json_int_t)i->parameters, "bytes",
                  (json_int_t)i->file_bytes, "vocabulary", i->vocabulary, "width", i->width, "key_width",
                  i->key_width, "layers", i->layers, "heads", i->heads, "ffn", i->ffn, "context", i->context);
    cli_print_json(j);
}

static void print_text(const kn_lm_info *i, const char *tokenizer) {
    char count[32], bytes[32];
    printf("model            %s\n", i->path);
    printf("architecture     %s (%s engine, %s kernels)\n", i->architecture, i->engine, i->kernels);
    printf("size             %s parameters, %sB\n", cli_count((double)i->parameters, count),
           cli_count((double)i->file_bytes, bytes));
    printf("shape            %d layers, width %d, %d heads, feed-forward %d\n", i->layers, i->width, i->heads,
           i->ffn);
    printf("context          %d tokens\n", i->context);
    printf("tokenizer        %s, %d tokens\n", tokenizer, i->vocabulary);
    printf("fingerprint      %s\n", i->fingerprint);
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    kn_lm *lm;
    int code = cli_parse(&cli_info, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (count != 1) return cli_usage(&cli_info, "one model file to describe");
    code = cli_start(&cli_info, &said.common);
    if (code != CLI_DONE) return code;
    kn_lm_options lm_options = {(kn_precision)said.common.precision};
    if (kn_lm_open(paths[0], &lm_options, &lm) != KNNLM_OK) return cli_fail(&cli_info);
    const char *tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(kn_lm_tokenizer(lm)));
    if (said.common.json)
        print_json(kn_lm_describe(lm), tokenizer);
    else
        print_text(kn_lm_describe(lm), tokenizer);
    kn_lm_close(lm);
    return CLI_DONE;
}

const cli_command cli_info = {
    .name = "info",
    .summary = "describe a model file",
    .usage = "MODEL [options]",
    .examples = "  knnlm info models/small.gguf\n  knnlm info --json my.gguf\n",
    .run = run,
};
