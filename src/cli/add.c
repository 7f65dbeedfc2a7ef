#include "cli/cli.h"
#include "cli/model.h"
#include "cli/store.h"

#include <string.h>

static struct {
    cli_common common;
    const char *model, *store;
    int split;
    uint64_t memory;
    bool force;
} said = {.split = -1};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &said.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {'m', "model", CLI_STRING, &said.model, "FILE", "the model that made the store (default: where it was then)", 0, 0, NULL},
    {0, "documents", CLI_CHOICE, &said.split, "HOW", "file, or wiki (default: as the store was built)", 0, 0, kn_split_names},
    {0, "memory", CLI_BYTES, &said.memory, "SIZE", "most memory to use, such as 2G", 0, 0, NULL},
    {0, "force", CLI_FLAG, &said.force, NULL, "go on although disk or memory seem too small", 0, 0, NULL},
    CLI_ENGINE_OPTION(said.common),
    CLI_ACCEPT_OPTION(said.common),
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

static knnlm_split split_of(const kn_store *store) {
    bool wiki = strcmp(kn_store_describe(store)->settings.split, kn_split_names[KNNLM_SPLIT_WIKI]) == 0;
    return said.split >= 0 ? (knnlm_split)said.split : wiki ? KNNLM_SPLIT_WIKI : KNNLM_SPLIT_FILE;
}

static knnlm_status add(const char *const *texts, size_t count) {
    kn_build_options o = {.tap = KN_TAP_DEFAULT,
                          .memory = said.memory,
                          .force = said.force,
                          .planned = cli_print_plan,
                          .planned_context = (void *)(uintptr_t)&cli_add};
    static const kn_recipe as_ever = {.seed = 1};
    kn_build_result result;
    kn_index_result index;
    bool indexed = false;
    kn_store *store;
    kn_lm *lm;
    KN_TRY(kn_store_open(said.store, &store));
    knnlm_status status = cli_open_maker(said.model, store, &said.common, &lm);
    o.split = split_of(store);
    kn_store_close(store);
    if (status != KNNLM_OK) return status;
    status = kn_build_add(lm, said.store, texts, count, &o, &cli_progress, &result);
    if (status == KNNLM_OK)
        status = kn_build_index(said.store, &as_ever, false, lm, &cli_progress, &indexed, &index);
    kn_lm_close(lm);
    cli_progress_clear();
    if (status == KNNLM_OK) cli_print_built(&result, indexed ? &index : NULL, said.store, said.common.json);
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int code = cli_parse(&cli_add, options, sizeof options / sizeof *options, argc, argv, &texts, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_add, &said.store, &texts, &count);
    if (code != CLI_DONE) return code;
    if (count == 0) return cli_usage(&cli_add, "no text to add");
    code = cli_start(&cli_add, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    return add((const char *const *)texts, count) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_add);
}

const cli_command cli_add = {
    .name = "add",
    .summary = "add documents to a store; unchanged ones are recognised, changed ones replaced",
    .usage = "STORE TEXT... [options]",
    .examples = "  knnlm add notes.store notes/\n"
                "  knnlm add notes.store -m models/small.gguf today.txt\n",
    .run = run,
};
