// knnlm info of a store.
#ifndef KN_CLI_INFO_STORE_H
#define KN_CLI_INFO_STORE_H

#include "cli/cli.h"

typedef struct cli_info_wish {
    bool json, documents;
    int64_t entry;  // to show; negative: none
    int64_t around; // tokens of text before and after it
} cli_info_wish;

knnlm_status cli_info_store(const char *path, const cli_info_wish *wish);

#endif
