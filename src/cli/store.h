// What the commands about stores share.
#ifndef KN_CLI_STORE_H
#define KN_CLI_STORE_H

#include "cli/texts.h"

// "1.23M entries, ..." on stderr, before the work.
void cli_print_plan(void *command, const knnlm_build_estimate *estimate);
// What is left to do when texts were read.
typedef struct cli_finish {
    const char *store;
    const knnlm_index_options *recipe; // NULL: nothing is indexed
    bool no_tune;                      // nor tuned on its own text, where that is worth while
    const cli_texts *texts;
    bool json;
} cli_finish;
// Indexes, tunes, and tells what there is now.
knnlm_status cli_finish_store(const cli_command *command, knnlm_model *model, const cli_finish *how,
                              const knnlm_build_result *built);
// How to index.
typedef struct cli_recipe {
    int64_t lists, train, probes, iterations, seed;
    const char *codes;
    uint64_t memory;
    bool paper, force;
} cli_recipe;
// One option a line.
// clang-format off
#define CLI_RECIPE_OPTIONS(r) \
    {0, "lists", CLI_INTEGER, &(r).lists, "N", "lists (default: by the number of entries)", 1, 1 << 24, NULL}, \
    {0, "codes", CLI_STRING, &(r).codes, "CODES", "pq64: 64 bytes per code; pq64x4: 64 parts of 4 bits; none; auto (default): where keys exceed memory", 0, 0, NULL}, \
    {0, "train", CLI_INTEGER, &(r).train, "N", "keys to learn from (default: 64 per list, 32 from 8192 lists on)", 1, 4294967295.0, NULL}, \
    {0, "probes", CLI_INTEGER, &(r).probes, "N", "lists that searches look at by default (default: 32, 64 of more than 16384)", 1, 1 << 24, NULL}, \
    {0, "iterations", CLI_INTEGER, &(r).iterations, "N", "of k-means (default: 10)", 1, 1000, NULL}, \
    {0, "seed", CLI_INTEGER, &(r).seed, "N", "of learning (default: 1)", 1, 1e15, NULL}, \
    {0, "paper", CLI_FLAG, &(r).paper, NULL, "4096 lists, pq64 codes, a million keys, 32 probes", 0, 0, NULL}
// clang-format on
// CLI_DONE or the exit code.
int cli_read_recipe(const cli_command *command, const cli_recipe *args, knnlm_index_options *out);
void cli_print_index(const knnlm_index_result *result);
json_t *cli_json_index(const knnlm_index_info *index); // null without lists
json_t *cli_json_indexed(const knnlm_index_result *result);
// The model that made the store: `given`, or the one that the store remembers. Checked against the store.
knnlm_status cli_open_maker(const char *given, const knnlm_store *store, const cli_common *common,
                            knnlm_model **out);
// Its path; released with free(). KNNLM_EINVAL: the store knows none, or it is gone.
knnlm_status cli_maker_of(const char *store, char **path);
// The store is the first positional argument, unless -s gave it.
int cli_take_store(const cli_command *command, const char **store, char ***rest, size_t *count);
// "2026-11-15 23:08:45 UTC"
const char *cli_time(int64_t seconds, char buffer[32]);
// A text on one line, cut to `max` bytes, of which the end or the beginning is kept; released with free().
// NULL: no memory.
char *cli_line(const char *text, size_t size, size_t max, bool keep_end);
// A name that need not be UTF-8, as JSON; null when it is not.
json_t *cli_json_name(const char *name, size_t size);
// Text that may begin or end inside a character, escaped where it does; NULL is no text.
json_t *cli_json_text(const char *text, size_t size);

#endif
