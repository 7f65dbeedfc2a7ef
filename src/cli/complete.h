// What the shells complete: they ask the command itself (scripts/completion), which knows its options.
#ifndef KN_CLI_COMPLETE_H
#define KN_CLI_COMPLETE_H

#include "cli/cli.h"

// `knnlm __complete WORD...`: the words after "knnlm", the last of which is to be completed. Prints a line
// for each that it can become, with what it means after a tab; a line ":files" says that files are meant.
int cli_complete(const cli_command *const *commands, size_t count, char **words, size_t word_count);
// In cli_parse: whether the options are wanted for that rather than for the work. They are told.
bool cli_complete_options(const cli_option *options, size_t count);

#endif
