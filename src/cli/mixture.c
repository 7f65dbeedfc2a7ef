#include "cli/mixture.h"

#include "base/file.h"
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

// "L", "L,T" or "L,T,K"; false: none of them.
static bool read_settings(const char *text, kn_store_choice *out) {
    char *end;
    out->weight = strtod(text, &end);
    bool good = end > text && out->weight >= 0 && out->weight <= 1;
    if (good && *end == ',') {
        text = end + 1;
        out->temperature = strtod(text, &end);
        good =
            end > text && out->temperature >= KN_TEMPERATURE_LEAST && out->temperature <= KN_TEMPERATURE_MOST;
    }
    if (good && *end == ',') {
        text = end + 1;
        out->k = strtoll(text, &end, 10);
        good = end > text && out->k >= 1 && out->k <= CLI_NEIGHBORS_MOST;
    }
    return good && !*end;
}

// STORE, or STORE=L[,T[,K]]; a store whose name has "=" in it is itself.
static int read_store(const cli_command *command, cli_mixture *m, size_t i) {
    const char *text = m->stores.items[i], *sign = kn_store_exists(text) ? NULL : strrchr(text, '=');
    kn_store_choice *choice = &m->choices[i];
    *choice = (kn_store_choice){.weight = NAN, .temperature = NAN};
    if (sign && !read_settings(sign + 1, choice))
        return cli_usage(command, "--store %s: after the = stand a weight from 0 to 1, a temperature and k",
                         text);
    choice->path = m->paths[i] = kn_strndup(text, sign ? (size_t)(sign - text) : strlen(text));
    return m->paths[i] ? CLI_DONE : cli_fail(command);
}

// Options that nothing would obey are a mistake.
static int check_use(const cli_command *command, const cli_mixture *m) {
    bool of_stores = m->k || m->probes || !isnan(m->lambda) || !isnan(m->temperature) || m->codes ||
                     m->exact || m->metric >= 0 || m->fixed || m->include_self;
    bool of_cache = !isnan(m->cache_lambda) || !isnan(m->cache_temperature);
    if (m->exact && m->codes) return cli_usage(command, "--exact and --codes are each other's contrary");
    if (of_stores && !m->stores.count)
        return cli_usage(command, "neighbours are of a store: name it with -s");
    if (of_cache && !m->stores.count && m->cache <= 0)
        return cli_usage(command, "the cache has a size: --cache N");
    return CLI_DONE;
}

int cli_mixture_read(const cli_command *command, cli_mixture *m, kn_mixture_options *out) {
    int use = check_use(command, m);
    if (use != CLI_DONE) return use;
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
                                .cache_temperature = m->cache_temperature,
                                .warn = cli_warn};
    return CLI_DONE;
}

knnlm_status cli_mixture_check_output(const cli_mixture *m, const char *output) {
    for (size_t i = 0; i < m->stores.count; i++)
        if (kn_store_exists(m->paths[i]) && kn_file_within(output, m->paths[i]))
            return kn_fail(KNNLM_EINVAL, "%s: is in the store %s: write to another directory", output,
                           m->paths[i]);
    return KNNLM_OK;
}
