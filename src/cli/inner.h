// For the commands that still go round the public header: models and mixtures as the rooms have them.
#ifndef KN_CLI_INNER_H
#define KN_CLI_INNER_H

#include "cli/mixture.h"
#include "cli/model.h"
#include "knn/mixture.h"

// A public model is a kn_lm under another name.
static inline knnlm_status cli_open_lm(const char *path, const cli_common *common, kn_lm **out) {
    knnlm_model *model;
    KN_TRY(cli_open_model(path, common, &model));
    *out = (kn_lm *)model;
    return KNNLM_OK;
}

// As cli_mixture_read; `choices` is the memory of *out.
static inline int cli_mixture_read_inner(const cli_command *command, cli_mixture *m,
                                         kn_store_choice choices[CLI_LIST_MAX], kn_mixture_options *out) {
    knnlm_mixture_options o;
    int code = cli_mixture_read(command, m, &o);
    if (code != CLI_DONE) return code;
    for (size_t i = 0; i < o.store_count; i++)
        choices[i] = (kn_store_choice){
            .path = o.stores[i], .weight = o.weights[i], .temperature = o.temperatures[i], .k = o.ks[i]};
    *out = (kn_mixture_options){.stores = choices,
                                .store_count = o.store_count,
                                .k = (int64_t)o.k,
                                .probes = o.probes,
                                .lambda = o.lambda,
                                .temperature = o.temperature,
                                .codes = o.codes,
                                .exact = o.exact,
                                .distance = o.distance,
                                .fixed = o.fixed,
                                .include_self = o.include_self,
                                .cache = o.cache,
                                .cache_lambda = o.cache_lambda,
                                .cache_temperature = o.cache_temperature,
                                .warn = o.warn};
    return CLI_DONE;
}

#endif
