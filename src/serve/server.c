// The server: opening, listening, loading the model, closing.
#include "serve/server.h"

#include "serve/handle.h"
#include "serve/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Documents are added by their connection's thread, through the model: it needs as much as a main thread has.
// Memory is only taken where it is touched.
enum { STACK = 8 << 20 };
// Connections that are only told that there are too many.
enum { SPARE = 32 };

// Paths and queries are decoded by us: names may have slashes of their own.
static size_t leave_escapes(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strlen(text);
}

static bool is_loopback(const struct sockaddr_storage *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    return address->ss_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                                         : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static knnlm_status resolve(kn_server *s, struct sockaddr_storage *address) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char port[8];
    snprintf(port, sizeof port, "%u", s->o.port);
    int code = getaddrinfo(s->host, port, &hints, &found);
    if (code) return kn_fail(KNNLM_EINVAL, "`host` %s: %s", s->host, gai_strerror(code));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    s->loopback = is_loopback(address);
    if (s->loopback || s->api_key || s->o.no_key) return KNNLM_OK;
    return kn_fail(
        KNNLM_EINVAL,
        "`host` %s: other machines could ask, and change the stores: give an `api_key`, or say `no_key`",
        s->host);
}

static void name_address(kn_server *s) {
    bool six = strchr(s->host, ':') != NULL;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(s->url, sizeof s->url, six ? "http://[%s]:%u/" : "http://%s:%u/", s->host,
             info ? info->port : s->o.port);
}

// One address cannot have all connections, but where all clients have one.
static size_t per_address(const kn_server *s) {
    if (s->o.per_address) return s->o.per_address;
    return s->loopback ? s->o.connections + SPARE : kn_max(s->o.connections / 4, 1);
}

static knnlm_status listen_on(kn_server *s) {
    struct sockaddr_storage address = {0};
    KN_TRY(resolve(s, &address));
    bool six = address.ss_family == AF_INET6;
    s->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            (six ? MHD_USE_IPv6 : 0),
        s->o.port, NULL, NULL, kn_handle_request, s, MHD_OPTION_SOCK_ADDR, &address,
        MHD_OPTION_NOTIFY_COMPLETED, kn_handle_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        kn_handle_connection, s, MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->o.connections + SPARE, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)per_address(s), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)KN_REST_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10), MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK,
        MHD_OPTION_END);
    if (!s->daemon)
        return kn_fail(KNNLM_EIO, "%s:%u cannot be listened on: %s (`port` chooses another)", s->host,
                       s->o.port, strerror(errno));
    name_address(s);
    return KNNLM_OK;
}

static bool copy_option(char **out, const char *option) {
    *out = option ? kn_strdup(option) : NULL;
    return *out || !option;
}

static knnlm_status copy_options(kn_server *s) {
    const knnlm_server_options *o = &s->o;
    bool had = copy_option(&s->host, o->host) && copy_option(&s->api_key, o->api_key) &&
               copy_option(&s->cors, o->cors);
    for (size_t i = 0; i < o->allowed_host_count && had; i++)
        had = copy_option(&s->allowed_hosts[i], o->allowed_hosts[i]);
    if (!had) return KNNLM_ENOMEM;
    if (o->access_log) KN_TRY(kn_access_log_open(o->access_log, o->access_log_json, &s->log));
    KN_TRY(kn_jobs_open(&s->jobs));
    return kn_watch_open(o->timeout, o->connections, &s->watch);
}

knnlm_status kn_server_open(const knnlm_server_options *options, kn_server **out) {
    kn_server *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->o = *options;
    s->created = (int64_t)time(NULL);
    kn_ticket_lock_init(&s->model_lock);
    pthread_mutex_init(&s->key_lock, NULL);
    kn_budget_init(&s->budget, options->max_memory);
    knnlm_status status = copy_options(s);
    if (status == KNNLM_OK) status = listen_on(s);
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_server_close(s, 0);
    return status;
}

void kn_server_hide_paths(const kn_server *s, kn_http_error *err) {
    for (size_t i = 0; s->ready && i < s->model_count; i++) {
        kn_served_hide_paths(s->models[i].served, err);
        kn_http_error_hide_path(err, kn_lm_describe(s->models[i].lm)->path, s->models[i].name);
    }
    kn_http_error_hide_folders(err);
}

const char *kn_server_url(const kn_server *s) {
    return s->url;
}

knnlm_status kn_server_set_key(kn_server *s, const char *key) {
    char *copy = kn_strdup(key);
    if (!copy) return KNNLM_ENOMEM;
    pthread_mutex_lock(&s->key_lock);
    bool had = s->api_key != NULL;
    if (had) free(s->api_key);
    if (had) s->api_key = copy;
    pthread_mutex_unlock(&s->key_lock);
    if (had) return KNNLM_OK;
    free(copy);
    return kn_fail(KNNLM_EINVAL, "the server asks for no key");
}

knnlm_status kn_server_reopen_log(kn_server *s) {
    return kn_access_log_reopen(s->log);
}

static char *model_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    return kn_strndup(name, n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n);
}

kn_served_model *kn_server_model(kn_server *s, const char *name) {
    for (size_t i = 0; i < s->model_count; i++)
        if (strcmp(s->models[i].name, name) == 0) return &s->models[i];
    return NULL;
}

kn_served_model *kn_server_model_of_store(kn_server *s, const char *store) {
    kn_http_error ignored;
    size_t number;
    for (size_t i = 0; i < s->model_count; i++)
        if (kn_served_find(s->models[i].served, store, &number, &ignored)) return &s->models[i];
    return NULL;
}

// Clients name models and stores: no name may mean two.
static knnlm_status check_names(kn_server *s, const kn_served_model *m) {
    const char *path = kn_lm_describe(m->lm)->path;
    if (kn_server_model(s, m->name))
        return kn_fail(KNNLM_EINVAL, "%s: another model is called \"%s\" too", path, m->name);
    for (size_t i = 0; i < kn_served_count(m->served); i++) {
        const char *store = kn_served_name(m->served, i);
        if (kn_server_model_of_store(s, store))
            return kn_fail(KNNLM_EINVAL, "%s: another model has a store called \"%s\" too", path, store);
    }
    return KNNLM_OK;
}

static knnlm_status open_model(kn_server *s, const kn_mixture_options *mix, kn_served_model *m) {
    kn_engine_options o = {s->o.parallel, s->o.queue};
    m->name = model_name(kn_lm_describe(m->lm)->path);
    if (!m->name) return KNNLM_ENOMEM;
    KN_TRY(kn_served_open(m->lm, &s->model_lock, mix, &m->served));
    KN_TRY(check_names(s, m));
    KN_TRY(kn_served_refresh(m->served, s->o.warn, s->o.warn_context));
    return kn_server_engine_open(m->lm, &s->model_lock, m->served, &s->metrics, &o, &m->engine);
}

static void close_model(kn_served_model *m) {
    kn_server_engine_close(m->engine);
    kn_served_close(m->served);
    free(m->name);
}

knnlm_status kn_server_load(kn_server *s, kn_lm *lm, const kn_mixture_options *mix) {
    kn_served_model m = {.lm = lm};
    knnlm_status status = open_model(s, mix, &m);
    if (status != KNNLM_OK) {
        close_model(&m);
        return status;
    }
    s->models[s->model_count++] = m;
    s->ready = s->model_count == s->o.models;
    return KNNLM_OK;
}

static void wait_for_answers(kn_server *s, double patience) {
    double until = kn_seconds() + patience;
    while (s->answering && kn_seconds() < until) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

void kn_server_close(kn_server *s, double patience) {
    if (!s) return;
    s->ending = true;
    MHD_socket listening = s->daemon ? MHD_quiesce_daemon(s->daemon) : MHD_INVALID_SOCKET;
    if (listening != MHD_INVALID_SOCKET) close(listening);
    wait_for_answers(s, patience);
    kn_jobs_hurry(s->jobs);
    s->hurry = true; // whoever still waits is late now
    wait_for_answers(s, 2);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    kn_jobs_close(s->jobs);
    for (size_t i = 0; i < s->model_count; i++) close_model(&s->models[i]);
    kn_watch_close(s->watch);
    kn_ticket_lock_destroy(&s->model_lock);
    kn_access_log_close(s->log);
    pthread_mutex_destroy(&s->key_lock);
    free(s->host);
    free(s->api_key);
    free(s->cors);
    for (size_t i = 0; i < KNNLM_ALLOWED_HOSTS_MAX; i++) free(s->allowed_hosts[i]);
    free(s);
}
