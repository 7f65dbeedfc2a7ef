// What add and sync share: the options, and the run.
#ifndef KN_CLI_ADDITION_H
#define KN_CLI_ADDITION_H

#include "cli/model.h"
#include "cli/store.h"

typedef struct cli_addition {
    cli_common common;
    const char *model, *store;
    cli_texts texts;
    uint64_t memory;
    bool force, no_tune;
} cli_addition;

// One option a line.
// clang-format off
#define CLI_ADDITION_OPTIONS(a) \
    {'s', "store", CLI_STRING, &(a).store, "STORE", "the store (or the first argument)", 0, 0, NULL}, \
    {'m', "model", CLI_STRING, &(a).model, "FILE", "the model that made the store (default: where it was then)", 0, 0, NULL}, \
    CLI_TEXTS_OPTIONS((a).texts, "as the store was built"), \
    {0, "memory", CLI_BYTES, &(a).memory, "SIZE", "most memory to use, such as 2G", 0, 0, NULL}, \
    {0, "force", CLI_FLAG, &(a).force, NULL, "go on although disk or memory seem too small", 0, 0, NULL}, \
    {0, "no-tune", CLI_FLAG, &(a).no_tune, NULL, "do not tune it on its own text at the end", 0, 0, NULL}, \
    CLI_ENGINE_OPTION((a).common), \
    CLI_ACCEPT_OPTION((a).common), \
    CLI_COMMON_OPTIONS((a).common)
// clang-format on

// What is done with the texts: knnlm_build_add, or knnlm_build_sync.
typedef knnlm_status cli_adder(knnlm_model *model, const char *store, const char *const *texts, size_t count,
                               const knnlm_build_options *options, knnlm_build_result *result);
// Reads the texts into the store with the model that made it, indexes, tunes, and tells.
knnlm_status cli_add_texts(const cli_command *command, cli_addition *a, cli_adder *adder,
                           const char *const *texts, size_t count);
// How the texts are read, for who looks at them otherwise.
knnlm_build_options cli_addition_options(const cli_command *command, cli_addition *a);
// Parses, with `missing` the complaint about no texts; CLI_DONE: then it is for the command to work, else the
// exit code, less one below 0.
int cli_begin_addition(const cli_command *command, const cli_option *options, size_t option_count,
                       cli_addition *a, const char *missing, int argc, char **argv, char ***texts,
                       size_t *count);
// Tells what was skipped; the exit code.
int cli_end_addition(const cli_command *command, cli_addition *a, knnlm_status status);

#endif
