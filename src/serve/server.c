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
    return had ? kn_watch_open(o->timeout, o->connections, &s->watch) : KNNLM_ENOMEM;
}

knnlm_status kn_server_open(const knnlm_server_options *options, kn_server **out) {
    kn_server *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->o = *options;
    s->created = (int64_t)time(NULL);
    kn_ticket_lock_init(&s->model_lock);
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
    if (s->ready) kn_served_hide_paths(s->served, err);
    if (s->ready) kn_http_error_hide_path(err, kn_lm_describe(s->lm)->path, s->model);
    kn_http_error_hide_folders(err);
}

const char *kn_server_url(const kn_server *s) {
    return s->url;
}

static char *model_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    return kn_strndup(name, n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n);
}

knnlm_status kn_server_load(kn_server *s, kn_lm *lm, const kn_mixture_options *mix) {
    kn_engine_options o = {s->o.parallel, s->o.queue};
    s->lm = lm;
    s->model = model_name(kn_lm_describe(lm)->path);
    if (!s->model) return KNNLM_ENOMEM;
    KN_TRY(kn_served_open(lm, &s->model_lock, mix, &s->served));
    KN_TRY(kn_served_refresh(s->served, s->o.warn, s->o.warn_context));
    KN_TRY(kn_server_engine_open(lm, &s->model_lock, s->served, &s->metrics, &o, &s->engine));
    s->ready = true;
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
    s->hurry = true; // whoever still waits is late now
    wait_for_answers(s, 2);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    kn_server_engine_close(s->engine);
    kn_served_close(s->served);
    kn_watch_close(s->watch);
    kn_ticket_lock_destroy(&s->model_lock);
    free(s->model);
    free(s->host);
    free(s->api_key);
    free(s->cors);
    for (size_t i = 0; i < KNNLM_ALLOWED_HOSTS_MAX; i++) free(s->allowed_hosts[i]);
    free(s);
}
