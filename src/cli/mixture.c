#include "cli/mixture.h"

#include "base/memory.h"
#include "store/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cli_mixture_init(cli_mixture *m) {
    *m = (cli_mixture){.cache = -1,
                       .lambda = NAN,
                       .temperature = NAN,
                       .cache_lambda = NAN,
                       .cache_temperature = NAN,
                       .metric = -1};
}

void cli_mixture_free(cli_mixture *m) {
    for (size_t i = 0; i < m->stores.count; i++) free(m->paths[i]);
}

// STORE, or STORE=WEIGHT; a store whose name has "=" in it is itself.
static int read_store(const cli_command *command, cli_mixture *m, size_t i) {
    const char *text = m->stores.items[i], *sign = strrchr(text, '=');
    double weight = NAN;
    if (sign && !kn_store_exists(text)) {
        char *end;
        weight = strtod(sign + 1, &end);
        if (end == sign + 1 || *end || !(weight >= 0 && weight <= 1))
            return cli_usage(command, "--store %s: the weight is not a number from 0 to 1", text);
    }
    m->paths[i] = kn_strndup(text, isnan(weight) ? strlen(text) : (size_t)(sign - text));
    if (!m->paths[i]) return cli_fail(command);
    m->choices[i] = (kn_store_choice){.path = m->paths[i], .weight = weight};
    return CLI_DONE;
}

int cli_mixture_read(const cli_command *command, cli_mixture *m, kn_mixture_options *out) {
    if (m->exact && m->codes) return cli_usage(command, "--exact and --codes are each other's contrary");
    for (size_t i = 0; i < m->stores.count; i++) {
        int code = read_store(command, m, i);
        if (code != CLI_DONE) return code;
    }
    *out = (kn_mixture_options){.stores = m->choices,
                                .store_count = m->stores.count,
                                .k = m->k,
                                .probes = m->probes,
                                .lambda = m->lambda,
                                .temperature = m->temperature,
                                .codes = m->codes,
                                .exact = m->exact,
                                .metric = m->metric,
                                .fixed = m->fixed,
                                .include_self = m->include_self,
                                .cache = m->cache,
                                .cache_lambda = m->cache_lambda,
                                .cache_temperature = m->cache_temperature};
    return CLI_DONE;
}
