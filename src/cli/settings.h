// Options of a long-running command from a file and from the environment, before those of its arguments.
#ifndef KN_CLI_SETTINGS_H
#define KN_CLI_SETTINGS_H

#include "cli/cli.h"

// Arguments as cli_parse takes them. Freed after the last use of what was parsed.
typedef struct cli_arguments {
    char **words;
    int count;
    size_t capacity;
    size_t own; // of the words after the first: these are ours
} cli_arguments;

// The lines "NAME = VALUE" of the file that --config or KNNLM_VERB_CONFIG names, then the environment's
// KNNLM_VERB_NAME (of options that may be given several times: values with ":" between them), then `argv`:
// what comes later counts, and lists add up. CLI_DONE, or the exit code.
int cli_settings_read(const cli_command *command, const cli_option *options, size_t count, int argc,
                      char **argv, cli_arguments *out);
void cli_arguments_free(cli_arguments *arguments);

#endif
