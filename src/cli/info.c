// knnlm info: what a model or a store is.
#include "cli/cli.h"
#include "cli/info_store.h"
#include "cli/model.h"

#include <stdio.h>
#include <sys/stat.h>

static struct {
    cli_common common;
    cli_info_wish store;
} args = {.store = {.entry = -1, .around = 16}};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {0, "documents", CLI_FLAG, &args.store.documents, NULL, "of a store: list every document", 0, 0, NULL},
    {0, "entry", CLI_INTEGER, &args.store.entry, "ID", "of a store: show this entry, its origin and the text around it", 0, 4294967295.0, NULL},
    {0, "around", CLI_INTEGER, &args.store.around, "N", "tokens before and after it (default: 16)", 0, 1 << 20, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static void print_json(const knnlm_model_info *i) {
    json_t *j = json_pack("{s:o?, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
                          "model", json_string(i->path), "architecture", i->architecture, "engine", i->engine,
                          "fingerprint", i->fingerprint, "tokenizer", i->tokenizer, "parameters",
                          (json_int_t)i->parameters, "bytes", (json_int_t)i->file_bytes, "vocabulary",
                          i->vocabulary, "width", i->width, "key_width", i->key_width, "layers", i->layers,
                          "heads", i->heads, "ffn", i->ffn, "context", i->context, "window", i->window);
    cli_print_json(j);
}

static void print_text(const knnlm_model_info *i) {
    char count[32], bytes[32];
    printf("model            %s\n", i->path);
    printf("architecture     %s (%s engine, %s kernels)\n", i->architecture, i->engine, i->kernels);
    printf("size             %s parameters, %sB\n", cli_count((double)i->parameters, count),
           cli_count((double)i->file_bytes, bytes));
    printf("shape            %d layers, width %d, %d heads", i->layers, i->width, i->heads);
    if (i->ffn) printf(", feed-forward %d", i->ffn); // it may differ between layers
    printf("\n");
    printf("context          %d tokens", i->context);
    if (i->window < i->context) printf(", read %d at a time by default", i->window);
    printf("\n");
    printf("tokenizer        %s, %d tokens\n", i->tokenizer, i->vocabulary);
    printf("fingerprint      %s\n", i->fingerprint);
}

static knnlm_status info_model(const char *path) {
    knnlm_model *model;
    knnlm_model_info info;
    KN_TRY(cli_open_model(path, &args.common, &model));
    knnlm_model_describe(model, &info);
    if (args.common.json)
        print_json(&info);
    else
        print_text(&info);
    knnlm_model_close(model);
    return KNNLM_OK;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    struct stat st;
    int code = cli_parse(&cli_info, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (count != 1) return cli_usage(&cli_info, "one model file or store to describe");
    code = cli_start(&cli_info, &args.common);
    if (code != CLI_DONE) return code;
    args.store.json = args.common.json;
    bool directory = stat(paths[0], &st) == 0 && S_ISDIR(st.st_mode);
    if (!directory && (args.store.documents || args.store.entry >= 0))
        return cli_usage(&cli_info, "--documents and --entry are for stores");
    knnlm_status status = directory ? cli_info_store(paths[0], &args.store) : info_model(paths[0]);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_info);
}

const cli_command cli_info = {
    .name = "info",
    .summary = "describe a model file, a store, or an entry of a store",
    .usage = "MODEL|STORE [options]",
    .examples = "  knnlm info models/small.gguf\n"
                "  knnlm info --json my.store\n"
                "  knnlm info my.store --entry 123456 --around 40\n",
    .run = run,
};
