// knnlm build: texts into a new store.
#include "base/distance.h"
#include "base/keys.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    const char *model, *store, *tap, *project;
    int split, keys, distance;
    int64_t min_context, segment;
    uint64_t memory;
    bool force, no_index;
    cli_recipe recipe;
} said = {.tap = "ffn", .min_context = -1};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &said.model, "FILE", "model that reads the texts (required)", 0, 0, NULL},
    {'o', "output", CLI_STRING, &said.store, "STORE", "directory of the store (required); an interrupted build goes on", 0, 0, NULL},
    {0, "documents", CLI_CHOICE, &said.split, "HOW", "file, or wiki: each \"= Title =\" section is a document", 0, 0, cli_splits},
    {0, "min-context", CLI_INTEGER, &said.min_context, "N", "tokens before every target (default: half the model's window)", 0, 1 << 20, NULL},
    {0, "tap", CLI_STRING, &said.tap, "TAP", "ffn, ffn-raw, attention, attention-raw, output-norm or output, with @LAYER (default: ffn)", 0, 0, NULL},
    {0, "keys", CLI_CHOICE, &said.keys, "TYPE", "f16, f32, int8 or none (default: f16)", 0, 0, kn_key_type_names},
    {0, "project", CLI_STRING, &said.project, "pca:N", "keep N dimensions of the keys, learnt from a sample", 0, 0, NULL},
    {0, "distance", CLI_CHOICE, &said.distance, "D", "l2, ip or cosine: what searches will use (default: l2, squared)", 0, 0, kn_distance_names},
    {0, "segment", CLI_INTEGER, &said.segment, "N", "entries a commit (default: 65536, fewer for large models)", 1, KNNLM_SEGMENT_MAX, NULL},
    {0, "memory", CLI_BYTES, &said.memory, "SIZE", "most memory to use, such as 2G", 0, 0, NULL},
    {0, "force", CLI_FLAG, &said.force, NULL, "go on although disk or memory seem too small", 0, 0, NULL},
    {0, "no-index", CLI_FLAG, &said.no_index, NULL, "stop after the datastore: searches look at every entry", 0, 0, NULL},
    CLI_RECIPE_OPTIONS(said.recipe),
    CLI_ENGINE_OPTION(said.common),
    CLI_ACCEPT_OPTION(said.common),
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

static int parse_project(int32_t *dimensions) {
    char *end;
    *dimensions = 0;
    if (!said.project) return CLI_DONE;
    long n = strncmp(said.project, "pca:", 4) == 0 ? strtol(said.project + 4, &end, 10) : 0;
    if (n < 1 || n > INT32_MAX || *end) // the model tells how many are too many
        return cli_usage(&cli_build, "--project %s: not pca:N with N above 0", said.project);
    *dimensions = (int32_t)n;
    return CLI_DONE;
}

// A recipe that was asked for is followed, also where none would be needed.
static bool recipe_said(void) {
    const cli_recipe *r = &said.recipe;
    return r->lists || r->codes || r->train || r->paper;
}

static knnlm_build_options make_options(int32_t project) {
    knnlm_build_options o = knnlm_build_options_default();
    o.split = (knnlm_split)said.split;
    o.split_given = true;
    o.tap = said.tap;
    o.min_context = (int32_t)said.min_context;
    o.keys = (knnlm_keys)said.keys;
    o.distance = (knnlm_distance)said.distance;
    o.project = project;
    o.segment = (uint32_t)said.segment;
    o.memory = said.memory;
    o.force = said.force;
    o.planned = cli_print_plan;
    o.planned_context = (void *)(uintptr_t)&cli_build;
    o.progress = cli_progress;
    return o;
}

static knnlm_status build(const char *const *texts, size_t count, int32_t project,
                          const knnlm_index_options *recipe) {
    knnlm_build_options o = make_options(project);
    knnlm_build_result result;
    knnlm_index_result index = {0};
    knnlm_model *model;
    KN_TRY(cli_open_model(said.model, &said.common, &model));
    knnlm_status status = knnlm_build(model, said.store, texts, count, &o, &result);
    if (status == KNNLM_OK && !said.no_index) status = knnlm_index_update(model, said.store, recipe, &index);
    knnlm_model_close(model);
    cli_progress_clear();
    if (status == KNNLM_OK)
        cli_print_built(&result, index.done ? &index : NULL, said.store, said.common.json);
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int32_t project;
    knnlm_index_options recipe;
    int code = cli_parse(&cli_build, options, sizeof options / sizeof *options, argc, argv, &texts, &count);
    if (code >= 0) return code;
    if (!said.model) return cli_usage(&cli_build, "no -m FILE to read with");
    if (!said.store || !*said.store) return cli_usage(&cli_build, "no -o STORE to write to");
    if (count == 0) return cli_usage(&cli_build, "no text to remember");
    code = parse_project(&project);
    if (code == CLI_DONE) code = cli_read_recipe(&cli_build, &said.recipe, &recipe);
    if (code == CLI_DONE) code = cli_start(&cli_build, &said.common);
    if (code != CLI_DONE) return code;
    recipe.memory = said.memory;
    recipe.force = said.force;
    recipe.always = recipe_said();
    cli_catch_interrupts();
    return build((const char *const *)texts, count, project, &recipe) == KNNLM_OK ? CLI_DONE
                                                                                  : cli_fail(&cli_build);
}

const cli_command cli_build = {
    .name = "build",
    .summary = "remember every context of a text collection in a datastore",
    .usage = "-m MODEL -o STORE TEXT... [options]",
    .examples = "  knnlm build -m models/small.gguf -o books.store books/\n"
                "  knnlm build -m my.gguf -o wiki.store --documents wiki wiki.txt.zst\n"
                "  knnlm build -m my.gguf -o small.store --keys int8 --project pca:128 notes/\n"
                "Interrupted? The same command goes on where it was.\n",
    .run = run,
};
