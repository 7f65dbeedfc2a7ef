// Options of commands that mix neighbours in.
#include "cli/mixture.h"

#include "base/file.h"
#include "base/memory.h"
#include "cli/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cli_mixture_init(cli_mixture *m) {
    *m = (cli_mixture){.cache = -1,
                       .lambda = NAN,
                       .temperature = NAN,
                       .cache_lambda = NAN,
                       .cache_temperature = NAN,
                       .distance = -1};
}

void cli_mixture_free(cli_mixture *m) {
    for (size_t i = 0; i < m->stores.count; i++) free(m->paths[i]);
    free(m->model);
}

// "L", "L,T" or "L,T,K"; false: none of them.
static bool read_settings(const char *text, cli_mixture *m, size_t i) {
    char *end;
    double *weight = &m->weights[i], *temperature = &m->temperatures[i];
    *weight = strtod(text, &end);
    bool good = end > text && *weight >= 0 && *weight <= 1;
    if (good && *end == ',') {
        text = end + 1;
        *temperature = strtod(text, &end);
        good = end > text && *temperature >= KNNLM_TEMPERATURE_MIN && *temperature <= KNNLM_TEMPERATURE_MAX;
    }
    if (good && *end == ',') {
        text = end + 1;
        m->ks[i] = strtoll(text, &end, 10);
        good = end > text && m->ks[i] >= 1 && m->ks[i] <= CLI_NEIGHBORS_MAX;
    }
    return good && !*end;
}

// STORE, or STORE=L[,T[,K]]; a store whose name has "=" in it is itself.
static int read_store(const cli_command *command, cli_mixture *m, size_t i) {
    const char *text = m->stores.items[i], *sign = knnlm_store_exists(text) ? NULL : strrchr(text, '=');
    m->weights[i] = m->temperatures[i] = NAN;
    if (sign && !read_settings(sign + 1, m, i))
        return cli_usage(command, "--store %s: after the = stand a weight from 0 to 1, a temperature and k",
                         text);
    m->paths[i] = kn_strndup(text, sign ? (size_t)(sign - text) : strlen(text));
    return m->paths[i] ? CLI_DONE : cli_fail(command);
}

json_t *cli_json_list(const cli_list *list) {
    json_t *out = json_array();
    for (size_t i = 0; i < list->count; i++)
        cli_json_append(out, cli_json_text(list->items[i], strlen(list->items[i])));
    return out;
}

// Options that nothing would obey are a mistake.
static int check_use(const cli_command *command, const cli_mixture *m) {
    bool of_stores = m->k || m->probes || !isnan(m->lambda) || !isnan(m->temperature) || m->codes ||
                     m->exact || m->distance >= 0 || m->fixed || m->bins || m->include_self ||
                     m->only.count || m->except.count || m->fraction > 0;
    bool of_cache = !isnan(m->cache_lambda) || !isnan(m->cache_temperature);
    if (m->exact && m->codes) return cli_usage(command, "--exact and --codes are each other's contrary");
    if (of_stores && !m->stores.count)
        return cli_usage(command, "neighbours are of a store: name it with -s");
    if (of_cache && !m->stores.count && m->cache <= 0)
        return cli_usage(command, "the cache has a size: --cache N");
    return CLI_DONE;
}

int cli_mixture_read(const cli_command *command, cli_mixture *m, knnlm_mixture_options *out) {
    int use = check_use(command, m);
    if (use != CLI_DONE) return use;
    for (size_t i = 0; i < m->stores.count; i++) {
        int code = read_store(command, m, i);
        if (code != CLI_DONE) return code;
    }
    *out = knnlm_mixture_options_default();
    out->stores = (const char *const *)m->paths;
    out->store_count = m->stores.count;
    out->weights = m->weights;
    out->temperatures = m->temperatures;
    out->ks = m->ks;
    out->k = (size_t)m->k;
    out->probes = (uint32_t)m->probes;
    out->lambda = m->lambda;
    out->temperature = m->temperature;
    out->codes = m->codes;
    out->exact = m->exact;
    out->distance = m->distance;
    out->fixed = m->fixed;
    out->bins = m->bins;
    out->include_self = m->include_self;
    out->cache = m->cache;
    out->cache_lambda = m->cache_lambda;
    out->cache_temperature = m->cache_temperature;
    out->memory = m->memory;
    out->only = m->only.items;
    out->only_count = m->only.count;
    out->except = m->except.items;
    out->except_count = m->except.count;
    out->fraction = m->fraction;
    out->warn = cli_warn;
    return CLI_DONE;
}

int cli_mixture_find_model(const cli_command *command, cli_mixture *m, const char **model) {
    if (*model) return CLI_DONE;
    if (!m->stores.count)
        return cli_usage(command, "no -m FILE (with -s STORE it may be left out: stores know theirs)");
    if (cli_maker_of(m->paths[0], &m->model) != KNNLM_OK) return cli_fail(command);
    *model = m->model;
    return CLI_DONE;
}

knnlm_status cli_mixture_check_output(const cli_mixture *m, const char *output) {
    if (strcmp(output, "-") == 0) return KNNLM_OK;
    for (size_t i = 0; i < m->stores.count; i++)
        if (knnlm_store_exists(m->paths[i]) && kn_file_within(output, m->paths[i]))
            return kn_fail(KNNLM_EINVAL, "%s: is in the store %s: write to another directory", output,
                           m->paths[i]);
    return KNNLM_OK;
}
