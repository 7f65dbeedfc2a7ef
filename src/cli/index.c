// knnlm index: sorts the entries of a store into lists.
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/store.h"

#include <stdio.h>
#include <string.h>

static struct {
    cli_common common;
    cli_recipe recipe;
    const char *store, *model;
    bool extend;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {'m', "model", CLI_STRING, &args.model, "FILE", "for a store without keys: the model that made it (default: where it was then)", 0, 0, NULL},
    CLI_RECIPE_OPTIONS(args.recipe),
    {0, "extend", CLI_FLAG, &args.extend, NULL, "only put what was added since into the lists", 0, 0, NULL},
    {0, "memory", CLI_BYTES, &args.recipe.memory, "SIZE", "most memory for keys at a time, such as 2G", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.recipe.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// A store without keys is read again by its model, straight into codes.
static knnlm_status open_reader(const knnlm_index_options *o, knnlm_model **out) {
    knnlm_store *store;
    knnlm_store_info info;
    *out = NULL;
    KN_TRY(knnlm_store_open(args.store, &store));
    knnlm_store_describe(store, &info);
    bool codes = o->codes && strncmp(o->codes, "pq", 2) == 0;
    bool reads = info.keys == KNNLM_KEYS_NONE && (codes || info.has_index);
    knnlm_status status = reads ? cli_open_maker(args.model, store, &args.common, out) : KNNLM_OK;
    knnlm_store_close(store);
    return status;
}

static knnlm_status make_index(const knnlm_index_options *o, knnlm_index_result *out) {
    knnlm_model *model;
    KN_TRY(open_reader(o, &model));
    knnlm_status status = knnlm_index(model, args.store, o, out);
    knnlm_model_close(model);
    return status;
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    knnlm_index_options recipe;
    knnlm_index_result result;
    int code = cli_parse(&cli_index, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_index, &args.store, &rest, &count);
    if (code != CLI_DONE) return code;
    if (count) return cli_usage(&cli_index, "one store at a time");
    code = cli_read_recipe(&cli_index, &args.recipe, &recipe);
    if (code == CLI_DONE) code = cli_start(&cli_index, &args.common);
    if (code != CLI_DONE) return code;
    recipe.extend = args.extend;
    cli_catch_interrupts();
    if (make_index(&recipe, &result) != KNNLM_OK) return cli_fail(&cli_index);
    cli_progress_clear();
    if (args.common.json)
        cli_print_json(cli_json_indexed(&result));
    else
        cli_print_index(&result);
    return CLI_DONE;
}

const cli_command cli_index = {
    .name = "index",
    .summary = "sort the entries of a store into lists, so that searches need not look at all of them",
    .usage = "STORE [options]",
    .examples = "  knnlm index wiki.store\n"
                "  knnlm index wiki.store --lists 4096 --codes pq64 --train 1000000\n"
                "  knnlm index wiki.store --paper\n",
    .run = run,
};
