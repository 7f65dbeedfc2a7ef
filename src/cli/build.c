#include "build/build.h"
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
    {0, "documents", CLI_CHOICE, &said.split, "HOW", "file, or wiki: each \"= Title =\" section is a document", 0, 0, kn_split_names},
    {0, "min-context", CLI_INTEGER, &said.min_context, "N", "tokens before every target (default: half the model's window)", 0, 1 << 20, NULL},
    {0, "tap", CLI_STRING, &said.tap, "TAP", "ffn, ffn-raw, attention, attention-raw, output-norm or output, with @LAYER (default: ffn)", 0, 0, NULL},
    {0, "keys", CLI_CHOICE, &said.keys, "TYPE", "f16, f32, int8 or none (default: f16)", 0, 0, kn_key_type_names},
    {0, "project", CLI_STRING, &said.project, "pca:N", "keep N dimensions of the keys, learnt from a sample", 0, 0, NULL},
    {0, "distance", CLI_CHOICE, &said.distance, "D", "l2, ip or cosine: what searches will use (default: l2, squared)", 0, 0, kn_distance_names},
    {0, "segment", CLI_INTEGER, &said.segment, "N", "entries a commit (default: 65536, fewer for large models)", 1, KN_STORE_SEGMENT_MAX, NULL},
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

static knnlm_status build(const char *const *texts, size_t count, int32_t project, const kn_recipe *recipe) {
    kn_build_options o = {.split = (knnlm_split)said.split,
                          .min_context = (int32_t)said.min_context,
                          .keys = (knnlm_keys)said.keys,
                          .distance = (knnlm_distance)said.distance,
                          .project = project,
                          .segment = (uint32_t)said.segment,
                          .memory = said.memory,
                          .force = said.force,
                          .planned = cli_print_plan,
                          .planned_context = (void *)(uintptr_t)&cli_build};
    kn_build_result result;
    kn_index_result index;
    bool indexed = false;
    kn_lm *lm;
    KN_TRY(kn_tap_parse(said.tap, &o.tap));
    KN_TRY(cli_open_model(said.model, &said.common, &lm));
    knnlm_status status = kn_build(lm, said.store, texts, count, &o, &cli_progress, &result);
    if (status == KNNLM_OK && !said.no_index)
        status = kn_build_index(said.store, recipe, recipe_said(), lm, &cli_progress, &indexed, &index);
    kn_lm_close(lm);
    cli_progress_clear();
    if (status == KNNLM_OK) cli_print_built(&result, indexed ? &index : NULL, said.store, said.common.json);
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int32_t project;
    kn_recipe recipe;
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
