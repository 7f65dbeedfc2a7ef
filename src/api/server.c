// The public functions that serve.
#include "api/api.h"
#include "serve/serve.h"

#include <semaphore.h>
#include <stdlib.h>

struct knnlm_server {
    kn_server *server;
    double patience;
    size_t wanted, loaded; // models
    bool failed;           // to load one
    sem_t stopped;
};

API_DEFAULTS(knnlm_server_options, .host = "127.0.0.1", .port = 8080, .queue = 256, .parallel = 8,
             .max_tokens = 16384, .max_body = 16 << 20, .max_memory = 1 << 30, .connections = 512,
             .timeout = 300, .patience = 5, .models = 1)

// ---------------------------------------------------------------- checking

static knnlm_status check_range(const char *name, size_t value, size_t min, size_t max) {
    if (value >= min && value <= max) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "`%s` %zu: not from %zu to %zu", name, value, min, max);
}

static knnlm_status check_clients(const knnlm_server_options *o) {
    if (!o->host) return kn_fail(KNNLM_EINVAL, "no `host` to listen on");
    if (o->api_key && !*o->api_key) return kn_fail(KNNLM_EINVAL, "`api_key`: is empty");
    if (o->api_key && o->no_key) return kn_fail(KNNLM_EINVAL, "an `api_key` and `no_key`");
    if (o->allowed_host_count > KNNLM_ALLOWED_HOSTS_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu `allowed_hosts`: at most %d", o->allowed_host_count,
                       KNNLM_ALLOWED_HOSTS_MAX);
    return KNNLM_OK;
}

enum {
    QUEUE_MAX = 1 << 20,
    PARALLEL_MAX = 256,
    TOKENS_MAX = 1 << 24,
    CONNECTIONS_MAX = 10000,
    MEMORY_MIN = 1000000
};
static const double timeout_min = 0.1, seconds_max = 1e6;

static knnlm_status check(const knnlm_server_options *o) {
    KN_TRY(check_clients(o));
    KN_TRY(check_range("queue", o->queue, 1, QUEUE_MAX));
    KN_TRY(check_range("parallel", o->parallel, 1, PARALLEL_MAX));
    KN_TRY(check_range("max_tokens", o->max_tokens, 1, TOKENS_MAX));
    KN_TRY(check_range("connections", o->connections, 1, CONNECTIONS_MAX));
    KN_TRY(check_range("per_address", o->per_address, 0, CONNECTIONS_MAX));
    KN_TRY(check_range("models", o->models, 1, KN_MODELS_MAX));
    if (o->max_memory < MEMORY_MIN)
        return kn_fail(KNNLM_EINVAL, "`max_memory` %zu: at least %d", o->max_memory, MEMORY_MIN);
    if (!(o->timeout >= timeout_min && o->timeout <= seconds_max))
        return kn_fail(KNNLM_EINVAL, "`timeout` %g: not from %g to %g", o->timeout, timeout_min, seconds_max);
    if (!(o->patience >= 0 && o->patience <= seconds_max))
        return kn_fail(KNNLM_EINVAL, "`patience` %g: not from 0 to %g", o->patience, seconds_max);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- serving

knnlm_status knnlm_server_read_key(const char *path, char **key) {
    *key = NULL;
    return kn_serve_read_key(path, key);
}

knnlm_status knnlm_server_open(const knnlm_server_options *options, knnlm_server **out) {
    knnlm_server_options o;
    *out = NULL;
    KN_TRY(API_TAKE(knnlm_server_options, options, &o));
    KN_TRY(check(&o));
    knnlm_server *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    knnlm_status status = kn_server_open(&o, &s->server);
    if (status != KNNLM_OK) {
        free(s);
        return status;
    }
    s->patience = o.patience;
    s->wanted = o.models;
    sem_init(&s->stopped, 0, 0);
    *out = s;
    return KNNLM_OK;
}

const char *knnlm_server_url(const knnlm_server *s) {
    return kn_server_url(s->server);
}

knnlm_status knnlm_server_load(knnlm_server *s, knnlm_model *model, const knnlm_mixture_options *mixture) {
    kn_store_choice choices[KN_STORES_MAX];
    kn_mixture_options mix;
    if (s->failed)
        return kn_fail(KNNLM_EINVAL,
                       "a server loads a model once, and this one could not: it can only be closed");
    if (s->loaded == s->wanted)
        return kn_fail(KNNLM_EINVAL, "a server loads a model once, and has all its `models`: %zu", s->wanted);
    KN_TRY(api_mixture_options(mixture, choices, &mix));
    knnlm_status status = kn_server_load(s->server, (kn_lm *)model, &mix);
    s->failed = status != KNNLM_OK;
    s->loaded += status == KNNLM_OK;
    return status;
}

knnlm_status knnlm_server_run(knnlm_server *s) {
    if (!s->loaded) return kn_fail(KNNLM_EINVAL, "the server has no model");
    if (s->loaded < s->wanted)
        return kn_fail(KNNLM_EINVAL, "the server has %zu of its %zu `models`", s->loaded, s->wanted);
    while (sem_wait(&s->stopped)) continue; // a signal's handler, or a debugger's doing
    sem_post(&s->stopped);                  // it stays stopped
    return KNNLM_OK;
}

void knnlm_server_stop(knnlm_server *s) {
    sem_post(&s->stopped);
}

knnlm_status knnlm_server_set_key(knnlm_server *s, const char *key) {
    if (!key || !*key) return kn_fail(KNNLM_EINVAL, "the key is empty");
    return kn_server_set_key(s->server, key);
}

knnlm_status knnlm_server_reopen_log(knnlm_server *s) {
    return kn_server_reopen_log(s->server);
}

void knnlm_server_close(knnlm_server *s) {
    if (!s) return;
    kn_server_close(s->server, s->patience);
    sem_destroy(&s->stopped);
    free(s);
}
