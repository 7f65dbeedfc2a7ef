// Texts into a store that is there already.
#include "cli/addition.h"

static knnlm_status open_model(const cli_addition *a, knnlm_model **out) {
    knnlm_store *store;
    KN_TRY(knnlm_store_open(a->store, &store));
    knnlm_status status = cli_open_maker(a->model, store, &a->common, out);
    knnlm_store_close(store);
    return status;
}

knnlm_build_options cli_addition_options(const cli_command *command, cli_addition *a) {
    knnlm_build_options o = knnlm_build_options_default();
    o.split_given = a->texts.split >= 0;
    if (o.split_given) o.split = (knnlm_split)a->texts.split;
    o.texts = cli_texts_read(&a->texts);
    o.memory = a->memory;
    o.force = a->force;
    o.planned = cli_print_plan;
    o.planned_context = (void *)(uintptr_t)command;
    o.progress = cli_progress;
    return o;
}

knnlm_status cli_add_texts(const cli_command *command, cli_addition *a, cli_adder *adder,
                           const char *const *texts, size_t count) {
    knnlm_build_options o = cli_addition_options(command, a);
    knnlm_index_options as_ever = knnlm_index_options_default();
    knnlm_build_result result;
    knnlm_model *model;
    as_ever.memory = a->memory;
    as_ever.progress = cli_progress;
    KN_TRY(open_model(a, &model));
    knnlm_status status = adder(model, a->store, texts, count, &o, &result);
    if (status == KNNLM_OK)
        status = cli_finish_store(command, model,
                                  &(cli_finish){a->store, &as_ever, a->no_tune, &a->texts, a->common.json},
                                  &result);
    knnlm_model_close(model);
    cli_progress_clear();
    return status;
}

int cli_begin_addition(const cli_command *command, const cli_option *options, size_t option_count,
                       cli_addition *a, const char *missing, int argc, char **argv, char ***texts,
                       size_t *count) {
    int code = cli_parse(command, options, option_count, argc, argv, texts, count);
    if (code >= 0) return -1 - code;
    code = cli_take_store(command, &a->store, texts, count);
    if (code == CLI_DONE && *count == 0) code = cli_usage(command, "%s", missing);
    if (code == CLI_DONE) code = cli_start(command, &a->common);
    if (code != CLI_DONE) return -1 - code;
    cli_catch_interrupts();
    return CLI_DONE;
}

int cli_end_addition(const cli_command *command, cli_addition *a, knnlm_status status) {
    cli_texts_report(&a->texts, command);
    cli_texts_free(&a->texts);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(command);
}
