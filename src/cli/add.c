// knnlm add: more texts into a store.
#include "cli/addition.h"

static cli_addition args = {.texts = {.split = -1}};

static const cli_option options[] = {CLI_ADDITION_OPTIONS(args)};

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int code = cli_begin_addition(&cli_add, options, sizeof options / sizeof *options, &args,
                                  "no text to add", argc, argv, &texts, &count);
    if (code != CLI_DONE) return -1 - code;
    return cli_end_addition(
        &cli_add, &args, cli_add_texts(&cli_add, &args, knnlm_build_add, (const char *const *)texts, count));
}

const cli_command cli_add = {
    .name = "add",
    .summary = "add documents to a store; unchanged ones are recognised, changed ones replaced",
    .usage = "STORE TEXT... [options]",
    .examples = "  knnlm add notes.store notes/\n"
                "  knnlm add notes.store -m models/small.gguf today.txt\n",
    .run = run,
};
