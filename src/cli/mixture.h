// The options of commands that mix neighbours in: which stores, how they are searched, how they are weighed.
#ifndef KN_CLI_MIXTURE_H
#define KN_CLI_MIXTURE_H

#include "base/distance.h"
#include "cli/model.h"

enum { CLI_NEIGHBORS_MAX = 1 << 20 };

typedef struct cli_mixture {
    cli_list stores;       // STORE or STORE=L[,T[,K]]
    cli_list only, except; // documents that count, and do not
    int64_t k, probes, cache;
    double lambda, temperature, cache_lambda, cache_temperature, fraction;
    bool codes, exact, fixed, bins, include_self;
    int distance;
    uint64_t memory;
    char *paths[CLI_LIST_MAX], *model;
    double weights[CLI_LIST_MAX], temperatures[CLI_LIST_MAX]; // NAN: not given
    int64_t ks[CLI_LIST_MAX];                                 // 0: not given
} cli_mixture;

// One option a line.
// clang-format off
// Stores, and how much they weigh: `tune` finds that.
#define CLI_STORES_OPTIONS(m) \
    {'s', "store", CLI_LIST, &(m).stores, "STORE", "neighbours come from here; may be given several times; STORE=L,T,K: lambda, temperature and k of its own", 0, 0, NULL}, \
    {0, "lambda", CLI_NUMBER, &(m).lambda, "L", "weight of the neighbours (default: as tuned, else 0.25)", 0, 1, NULL}, \
    {0, "cache-lambda", CLI_NUMBER, &(m).cache_lambda, "L", "weight of the cache (default: as tuned, else 0.1)", 0, 1, NULL}
#define CLI_MIXTURE_OPTIONS(m) \
    {'k', "neighbors", CLI_INTEGER, &(m).k, "K", "neighbours of a token (default: as tuned, else 1024)", 1, CLI_NEIGHBORS_MAX, NULL}, \
    {0, "fraction", CLI_NUMBER, &(m).fraction, "F", "about this part of the store's documents counts, the same ones every time: what a smaller store would give", 1e-6, 1, NULL}, \
    {0, "temperature", CLI_NUMBER, &(m).temperature, "T", "of the neighbours, p ~ exp(-distance / T) (default: as tuned, else 1)", KNNLM_TEMPERATURE_MIN, KNNLM_TEMPERATURE_MAX, NULL}, \
    {0, "exact", CLI_FLAG, &(m).exact, NULL, "distances of the keys (default)", 0, 0, NULL}, \
    {0, "codes", CLI_FLAG, &(m).codes, NULL, "distances of the index's codes", 0, 0, NULL}, \
    {0, "distance", CLI_CHOICE, &(m).distance, "M", "l2 (squared), ip or cosine, in place of the store's own", 0, 0, kn_distance_names}, \
    {0, "metric", CLI_CHOICE, &(m).distance, "M", NULL, 0, 0, kn_distance_names}, \
    {0, "fixed", CLI_FLAG, &(m).fixed, NULL, "one lambda for all tokens, although the store has a gate", 0, 0, NULL}, \
    {0, "bins", CLI_FLAG, &(m).bins, NULL, "lambda by bins of distance and entropy, although the store has a gate", 0, 0, NULL}, \
    {0, "include-self", CLI_FLAG, &(m).include_self, NULL, "a document that is in the store may find itself", 0, 0, NULL}, \
    {0, "memory", CLI_BYTES, &(m).memory, "SIZE", "most memory for the lists of stores, such as 4G; they are read as they are needed (default: what there is)", 0, 0, NULL}, \
    {0, "cache", CLI_INTEGER, &(m).cache, "N", "also mix in the last N states of the text itself; 0: do not (default: as tuned; generate and serve: 0)", 0, 1 << 24, NULL}, \
    {0, "cache-temperature", CLI_NUMBER, &(m).cache_temperature, "T", "of the cache (default: as tuned, else 1)", KNNLM_TEMPERATURE_MIN, KNNLM_TEMPERATURE_MAX, NULL}
#define CLI_FILTER_OPTIONS(m) \
    {0, "only", CLI_LIST, &(m).only, "NAME", "only documents of this name (* and ? as in a shell) count; may be given several times", 0, 0, NULL}, \
    {0, "not", CLI_LIST, &(m).except, "NAME", "documents of this name do not count; may be given several times", 0, 0, NULL}
// `tune` has several numbers of them.
#define CLI_PROBES_OPTIONS(m) \
    {0, "probes", CLI_INTEGER, &(m).probes, "N", "lists looked at (default: as tuned, else the index's); as many as there are: all entries", 1, 1 << 24, NULL}, \
    {0, "probe", CLI_INTEGER, &(m).probes, "N", NULL, 1, 1 << 24, NULL}
// clang-format on

// Before parsing: what nobody gave.
void cli_mixture_init(cli_mixture *m);
// The names in a filter of documents, as JSON.
json_t *cli_json_list(const cli_list *list);
// After it: CLI_DONE, or the exit code. `out` points into `m`.
int cli_mixture_read(const cli_command *command, cli_mixture *m, knnlm_mixture_options *out);
// After that: the model that the first store remembers, where none was given. CLI_DONE, or the exit code;
// *model is then `m`'s.
int cli_mixture_find_model(const cli_command *command, cli_mixture *m, const char **model);
// Before any work: refuses an output that is a file of one of the stores, or would lie among them.
knnlm_status cli_mixture_check_output(const cli_mixture *m, const char *output);
void cli_mixture_free(cli_mixture *m);

#endif
