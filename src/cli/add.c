// knnlm add: more texts into a store.
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/store.h"
#include "cli/texts.h"

static struct {
    cli_common common;
    const char *model, *store;
    cli_texts texts;
    uint64_t memory;
    bool force, no_tune;
} args = {.texts = {.split = -1}};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model that made the store (default: where it was then)", 0, 0, NULL},
    CLI_TEXTS_OPTIONS(args.texts, "as the store was built"),
    {0, "memory", CLI_BYTES, &args.memory, "SIZE", "most memory to use, such as 2G", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.force, NULL, "go on although disk or memory seem too small", 0, 0, NULL},
    {0, "no-tune", CLI_FLAG, &args.no_tune, NULL, "do not tune it on its own text at the end", 0, 0, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static knnlm_status open_model(knnlm_model **out) {
    knnlm_store *store;
    KN_TRY(knnlm_store_open(args.store, &store));
    knnlm_status status = cli_open_maker(args.model, store, &args.common, out);
    knnlm_store_close(store);
    return status;
}

static knnlm_status add(const char *const *texts, size_t count) {
    knnlm_build_options o = knnlm_build_options_default();
    knnlm_index_options as_ever = knnlm_index_options_default();
    knnlm_build_result result;
    knnlm_model *model;
    o.split_given = args.texts.split >= 0;
    if (o.split_given) o.split = (knnlm_split)args.texts.split;
    o.texts = cli_texts_read(&args.texts);
    o.memory = as_ever.memory = args.memory;
    o.force = args.force;
    o.planned = cli_print_plan;
    o.planned_context = (void *)(uintptr_t)&cli_add;
    o.progress = as_ever.progress = cli_progress;
    KN_TRY(open_model(&model));
    knnlm_status status = knnlm_build_add(model, args.store, texts, count, &o, &result);
    if (status == KNNLM_OK)
        status = cli_finish_store(
            &cli_add, model, &(cli_finish){args.store, &as_ever, args.no_tune, &args.texts, args.common.json},
            &result);
    knnlm_model_close(model);
    cli_progress_clear();
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int code = cli_parse(&cli_add, options, sizeof options / sizeof *options, argc, argv, &texts, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_add, &args.store, &texts, &count);
    if (code != CLI_DONE) return code;
    if (count == 0) return cli_usage(&cli_add, "no text to add");
    code = cli_start(&cli_add, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    knnlm_status status = add((const char *const *)texts, count);
    cli_texts_report(&args.texts, &cli_add);
    cli_texts_free(&args.texts);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_add);
}

const cli_command cli_add = {
    .name = "add",
    .summary = "add documents to a store; unchanged ones are recognised, changed ones replaced",
    .usage = "STORE TEXT... [options]",
    .examples = "  knnlm add notes.store notes/\n"
                "  knnlm add notes.store -m models/small.gguf today.txt\n",
    .run = run,
};
