// What the commands about stores share.
#ifndef KN_CLI_STORE_H
#define KN_CLI_STORE_H

#include "build/build.h"
#include "cli/cli.h"

// "1.23M entries, ..." on stderr, before the work.
void cli_print_plan(void *command, const kn_build_estimate *estimate);
void cli_print_built(const kn_build_result *result, const char *store, bool json);
// The model that made the store: `given`, or the one that the store remembers. Checked against the store.
knnlm_status cli_open_maker(const char *given, const kn_store *store, kn_precision precision, kn_lm **out);
// The store is the first positional argument, unless -s gave it.
int cli_take_store(const cli_command *command, const char **store, char ***rest, size_t *count);
// "2026-11-15 23:08:45 UTC"
const char *cli_time(int64_t seconds, char buffer[32]);
// A name that need not be UTF-8, as JSON; null when it is not.
json_t *cli_json_name(const char *name, size_t size);

#endif
