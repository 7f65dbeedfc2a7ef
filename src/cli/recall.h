// knnlm verify --recall.
#ifndef KN_CLI_RECALL_H
#define KN_CLI_RECALL_H

#include "cli/cli.h"

typedef struct cli_recall_wish {
    bool wanted;
    int64_t queries, k;
    uint64_t memory;
    const char *plot; // an SVG file, or NULL
} cli_recall_wish;

// Prints a table, or gives it as JSON (`json` not NULL).
knnlm_status cli_recall(const knnlm_store *store, const cli_recall_wish *wish, json_t **json);

#endif
