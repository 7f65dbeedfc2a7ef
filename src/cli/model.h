// The options of commands that open a model, beside -m.
#ifndef KN_CLI_MODEL_H
#define KN_CLI_MODEL_H

#include "cli/cli.h"

extern const char *const cli_engines[];

// One option a line. The second is for commands that read a store with the model.
// clang-format off
#define CLI_ENGINE_OPTION(common) \
    {0, "engine", CLI_CHOICE, &(common).engine, "E", "auto, native or llama (default: auto, by the file)", 0, 0, cli_engines}
#define CLI_ACCEPT_OPTION(common) \
    {0, "accept-model", CLI_FLAG, &(common).accept_model, NULL, "use a store that another model made (the same one requantised, say)", 0, 0, NULL}
// clang-format on

knnlm_status cli_open_model(const char *path, const cli_common *common, knnlm_model **out);

#endif
