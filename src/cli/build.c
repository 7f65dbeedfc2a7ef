// knnlm build: texts into a new store.
#include "base/distance.h"
#include "base/keys.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/model.h"
#include "cli/store.h"
#include "cli/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    const char *model, *store, *tap, *project;
    cli_texts texts;
    int keys, distance;
    int64_t min_context, segment;
    uint64_t memory;
    bool force, no_index, no_tune;
    int64_t shards;
    const char *local;
    cli_recipe recipe;
} args = {.tap = "ffn", .min_context = -1, .texts = {.split = KNNLM_SPLIT_FILE}};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "model that reads the texts (required)", 0, 0, NULL},
    {'o', "output", CLI_STRING, &args.store, "STORE", "directory of the store (required); an interrupted build goes on", 0, 0, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "file"),
    {0, "min-context", CLI_INTEGER, &args.min_context, "N", "tokens before every target (default: half the model's window)", 0, 1 << 20, NULL},
    {0, "tap", CLI_STRING, &args.tap, "TAP", "ffn, ffn-raw, attention, attention-raw, output-norm or output, with @LAYER (default: ffn)", 0, 0, NULL},
    {0, "keys", CLI_CHOICE, &args.keys, "TYPE", "f16, f32, int8 or none (default: f16)", 0, 0, kn_key_type_names},
    {0, "project", CLI_STRING, &args.project, "pca:N", "keep N dimensions of the keys, learnt from a sample", 0, 0, NULL},
    {0, "distance", CLI_CHOICE, &args.distance, "D", "l2, ip or cosine: what searches will use (default: l2, squared)", 0, 0, kn_distance_names},
    {0, "segment", CLI_INTEGER, &args.segment, "N", "entries per commit (default: 65536, fewer for large models)", 1, KNNLM_SEGMENT_MAX, NULL},
    {0, "memory", CLI_BYTES, &args.memory, "SIZE", "most memory to use, such as 2G", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.force, NULL, "go on although disk or memory seem too small", 0, 0, NULL},
    {0, "shards", CLI_INTEGER, &args.shards, "N", "make the store of N shards, which the ranks of an mpirun share", 1, 4096, NULL},
    {0, "local", CLI_STRING, &args.local, "DIRECTORY", "with --shards: where each machine keeps its shards (default: in the store)", 0, 0, NULL},
    {0, "no-index", CLI_FLAG, &args.no_index, NULL, "stop after the datastore: searches look at every entry", 0, 0, NULL},
    {0, "no-tune", CLI_FLAG, &args.no_tune, NULL, "do not tune it on its own text at the end", 0, 0, NULL},
    CLI_RECIPE_OPTIONS(args.recipe),
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static int parse_project(int32_t *dimensions) {
    char *end;
    *dimensions = 0;
    if (!args.project) return CLI_DONE;
    long n = strncmp(args.project, "pca:", 4) == 0 ? strtol(args.project + 4, &end, 10) : 0;
    if (n < 1 || n > INT32_MAX || *end) // the model tells how many are too many
        return cli_usage(&cli_build, "--project %s: not pca:N with N above 0", args.project);
    *dimensions = (int32_t)n;
    return CLI_DONE;
}

// A recipe that was asked for is followed, also where none would be needed.
static bool recipe_said(void) {
    const cli_recipe *r = &args.recipe;
    return r->lists || r->codes || r->train || r->paper;
}

static knnlm_build_options make_options(int32_t project) {
    knnlm_build_options o = knnlm_build_options_default();
    o.split = (knnlm_split)args.texts.split;
    o.split_given = true;
    o.tap = args.tap;
    o.min_context = (int32_t)args.min_context;
    o.keys = (knnlm_keys)args.keys;
    o.distance = (knnlm_distance)args.distance;
    o.project = project;
    o.segment = (uint32_t)args.segment;
    o.memory = args.memory;
    o.force = args.force;
    o.planned = cli_print_plan;
    o.planned_context = (void *)(uintptr_t)&cli_build;
    o.progress = cli_progress;
    o.texts = cli_texts_read(&args.texts);
    o.shards = (size_t)args.shards;
    o.local = args.local;
    return o;
}

static knnlm_status build(const char *const *texts, size_t count, int32_t project,
                          const knnlm_index_options *recipe) {
    knnlm_build_options o = make_options(project);
    knnlm_build_result result;
    knnlm_model *model;
    KN_TRY(cli_open_model(args.model, &args.common, &model));
    knnlm_status status = knnlm_build(model, args.store, texts, count, &o, &result);
    if (status == KNNLM_OK)
        status = cli_finish_store(&cli_build, model,
                                  &(cli_finish){args.store, args.no_index ? NULL : recipe, args.no_tune,
                                                &args.texts, args.common.json},
                                  &result);
    knnlm_model_close(model);
    cli_progress_clear();
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int32_t project;
    knnlm_index_options recipe;
    int code = cli_parse(&cli_build, options, sizeof options / sizeof *options, argc, argv, &texts, &count);
    if (code >= 0) return code;
    if (!args.model) return cli_usage(&cli_build, "no -m FILE to read with");
    if (!args.store || !*args.store) return cli_usage(&cli_build, "no -o STORE to write to");
    if (cli_is_standard(args.store)) return cli_usage(&cli_build, "-o -: a store is a directory");
    if (count == 0) return cli_usage(&cli_build, "no text to remember");
    if (args.local && !args.shards) return cli_usage(&cli_build, "--local DIRECTORY is for --shards N");
    if (args.local && *args.local != '/')
        return cli_usage(&cli_build, "--local %s: not an absolute path", args.local);
    code = parse_project(&project);
    if (code == CLI_DONE) code = cli_read_recipe(&cli_build, &args.recipe, &recipe);
    if (code == CLI_DONE) code = cli_start(&cli_build, &args.common);
    if (code != CLI_DONE) return code;
    recipe.memory = args.memory;
    recipe.force = args.force;
    recipe.always = recipe_said();
    cli_catch_interrupts();
    knnlm_status status = build((const char *const *)texts, count, project, &recipe);
    cli_texts_report(&args.texts, &cli_build);
    cli_texts_free(&args.texts);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_build);
}

const cli_command cli_build = {
    .name = "build",
    .summary = "remember every context of a text collection in a datastore",
    .usage = "-m MODEL -o STORE TEXT... [options]",
    .examples = "  knnlm build -m models/small.gguf -o books.store books/\n"
                "  knnlm build -m my.gguf -o wiki.store --documents wiki wiki.txt.zst\n"
                "  knnlm build -m my.gguf -o mail.store --documents jsonl --field body --name-field id "
                "mail.jsonl.gz\n"
                "  knnlm build -m my.gguf -o docs.store --include '*.md' --exclude node_modules project/\n"
                "  knnlm build -m my.gguf -o small.store --keys int8 --project pca:128 notes/\n"
                "  mpirun -n 4 knnlm build -m my.gguf -o big.store --shards 4 crawl/\n"
                "Interrupted? The same command goes on where it was.\n",
    .run = run,
};
