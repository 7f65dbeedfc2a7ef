// Where the best setting is the last that was tried, a better one may lie beyond.
#ifndef CLI_TUNE_EDGES_H
#define CLI_TUNE_EDGES_H

#include "knnlm.h"

#include <jansson.h>

// Of one store of the result, or of its number of probes: the end at which its best setting lies.
typedef struct cli_tune_edges {
    bool k;                      // the largest that was tried
    bool coldest, hottest;       // temperature
    bool probes_few, probes_all; // the least and the most of several that were tried
    knnlm_tune_point best;
} cli_tune_edges;

// `k`: neighbours that were asked for (a store of fewer entries has no more to give); `given`: the
// temperature was not tried out.
cli_tune_edges cli_tune_edges_of(const knnlm_tune_result *result, size_t store, size_t k, bool given);
// A line per edge, with what to try.
void cli_tune_edges_print(const cli_tune_edges *edges);
json_t *cli_tune_edges_json(const cli_tune_edges *edges);

#endif
