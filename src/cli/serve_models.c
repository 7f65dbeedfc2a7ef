// Opens the models of `serve`, and gives each the stores that it made.
#include "cli/serve_models.h"

#include <string.h>

// Stores of one model: arrays beside each other, as the header takes them.
typedef struct share {
    const char *stores[KNNLM_STORES_MAX];
    double weights[KNNLM_STORES_MAX], temperatures[KNNLM_STORES_MAX];
    int64_t ks[KNNLM_STORES_MAX];
    size_t count;
} share;

// Which model made the store: the fingerprint of its file decides.
static knnlm_status find_maker(const cli_models *m, const char *path, size_t *out) {
    knnlm_store *store;
    knnlm_store_info info;
    KN_TRY(knnlm_store_open(path, &store));
    knnlm_store_describe(store, &info);
    for (*out = 0; *out < m->count; ++*out) {
        knnlm_model_info model;
        knnlm_model_describe(m->models[*out], &model);
        if (strcmp(model.fingerprint, info.model_fingerprint) == 0) break;
    }
    knnlm_status status = KNNLM_OK;
    if (*out == m->count)
        status = kn_fail(KNNLM_EINVAL, "%s: none of the models made it (%s did)", path,
                         *info.model ? info.model : "one that it does not know");
    knnlm_store_close(store);
    return status;
}

static knnlm_status deal_out(const cli_models *m, const knnlm_mixture_options *mix, size_t number,
                             share *out) {
    out->count = 0;
    for (size_t i = 0; i < mix->store_count; i++) {
        size_t maker = 0;
        if (m->count > 1) KN_TRY(find_maker(m, mix->stores[i], &maker));
        if (maker != number) continue;
        if (out->count == KNNLM_STORES_MAX)
            return kn_fail(KNNLM_EINVAL, "more than %d stores of one model", KNNLM_STORES_MAX);
        out->stores[out->count] = mix->stores[i];
        out->weights[out->count] = mix->weights[i];
        out->temperatures[out->count] = mix->temperatures[i];
        out->ks[out->count++] = mix->ks[i];
    }
    return KNNLM_OK;
}

static knnlm_status load(const cli_models *m, const knnlm_mixture_options *mix, size_t number,
                         knnlm_server *server) {
    knnlm_mixture_options own = *mix;
    share s;
    KN_TRY(deal_out(m, mix, number, &s));
    own.stores = s.stores;
    own.store_count = s.count;
    own.weights = s.weights;
    own.temperatures = s.temperatures;
    own.ks = s.ks;
    return knnlm_server_load(server, m->models[number], &own);
}

knnlm_status cli_models_load(const cli_list *paths, const cli_common *common,
                             const knnlm_mixture_options *mix, knnlm_server *server, cli_models *out) {
    *out = (cli_models){0};
    for (size_t i = 0; i < paths->count; i++) {
        KN_TRY(cli_open_model(paths->items[i], common, &out->models[i]));
        out->count++;
    }
    for (size_t i = 0; i < out->count; i++) KN_TRY(load(out, mix, i, server));
    return KNNLM_OK;
}

void cli_models_close(cli_models *m) {
    for (size_t i = 0; i < m->count; i++) knnlm_model_close(m->models[i]);
    *m = (cli_models){0};
}
