// The models that `serve` serves, and which of its stores each of them made.
#ifndef KN_CLI_SERVE_MODELS_H
#define KN_CLI_SERVE_MODELS_H

#include "cli/mixture.h"

enum { CLI_MODELS_MAX = 16 };

typedef struct cli_models {
    knnlm_model *models[CLI_MODELS_MAX];
    size_t count;
} cli_models;

// Opens the models at `paths` and loads each into the server, with those stores of `mix` that it made; one
// model alone has them all. KNNLM_EINVAL: no model made one of the stores; else as of opening and loading.
// To be closed after the server, whatever it returns.
knnlm_status cli_models_load(const cli_list *paths, const cli_common *common,
                             const knnlm_mixture_options *mix, knnlm_server *server, cli_models *out);
void cli_models_close(cli_models *models);

#endif
