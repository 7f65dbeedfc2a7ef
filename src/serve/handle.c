// libmicrohttpd's callbacks: a request comes in, is checked as early as it can be, and is answered.
#include "serve/handle.h"

#include "serve/guard.h"
#include "serve/lines.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"
#include "serve/watch.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// ---------------------------------------------------------------- the head

static enum MHD_Result refuse(kn_exchange *x, unsigned status, const char *code, const char *message) {
    kn_http_error err;
    kn_http_error_set(&err, status, code, NULL, "%s", message);
    return kn_reply_error(x, &err);
}

// One of the few beyond the limit that are let in to be told so.
static enum MHD_Result refuse_connection(kn_exchange *x) {
    kn_http_error err;
    kn_http_error_set(&err, 503, "too_many_connections", NULL, "too many connections: try again");
    x->last = true;
    return kn_reply_error(x, &err);
}

// What the row of the table asks for, as far as the head shows it. Sets x->status when it is not there.
static enum MHD_Result check_needs(kn_exchange *x) {
    const kn_server *s = x->server;
    kn_http_error err;
    if (s->ending) return refuse(x, 503, "shutting_down", "the server is shutting down");
    if (!s->ready && x->route->needs & KN_NEEDS_MODEL)
        return refuse(x, 503, "loading", "the model is being opened");
    x->may_write = x->route->needs & KN_NEEDS_WRITE && !s->o.read_only;
    return kn_guard_length(x, &err) ? MHD_YES : kn_reply_error(x, &err);
}

// What can be refused before the body has come is. Sets x->status when it was.
static enum MHD_Result check_head(kn_exchange *x, const char *url, const char *method) {
    const kn_server *s = x->server;
    char allowed[64];
    kn_http_error err;
    x->path = kn_strdup(url);
    if (!x->path) return MHD_NO;
    snprintf(x->method, sizeof x->method, "%s", method);
    if (s->metrics.connections > s->o.connections) return refuse_connection(x);
    if (!kn_guard_check(x, &err)) return kn_reply_error(x, &err);
    if (kn_guard_is_preflight(x, method)) return kn_guard_preflight(x);
    x->route = kn_route_find(x, method, allowed, sizeof allowed);
    if (x->route->needs & KN_NEEDS_KEY && !kn_guard_has_key(x))
        return refuse(x, 401, "invalid_api_key", "the API key is missing or wrong");
    if (!x->route->answer && *allowed) return kn_reply_not_allowed(x, allowed);
    if (!x->route->answer) return refuse(x, 404, "not_found", "there is nothing at this path");
    if (!kn_route_decode(x)) return refuse(x, 400, NULL, "the path is not properly percent-encoded");
    return check_needs(x);
}

// ---------------------------------------------------------------- the body

enum { LET_BY = 1 << 30 }; // bytes of a body that was refused

static enum MHD_Result let_by(kn_exchange *x, size_t *size) {
    bool end = *size == 0;
    x->size += *size;
    *size = 0;
    return end || x->size > LET_BY || kn_watch_is_late(x->begun) ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_body(kn_exchange *x, const char *data, size_t *size) {
    kn_http_error err;
    if (!kn_guard_body(x, *size, &err)) {
        kn_reply_past_body(x, &err);
        return x->status ? let_by(x, size) : MHD_NO;
    }
    memcpy(x->body + x->size, data, *size);
    x->size += *size;
    *size = 0;
    return kn_watch_is_late(x->begun) || kn_exchange_late(x) ? MHD_NO : MHD_YES;
}

// ---------------------------------------------------------------- the answer

// A body that is no JSON may have taken more memory than a request has: that is told instead.
static bool parse_body(kn_exchange *x, kn_http_error *err) {
    kn_account *a = &x->account;
    if (!kn_account_parse_begin(a, x->size)) return kn_account_error(a, NULL, err);
    x->request = kn_request_load(x->body ? x->body : "", x->size, err);
    if (!kn_account_parse_end(a)) {
        json_decref(x->request); // NULL is allowed
        x->request = NULL;
    }
    return x->request || (a->shortage && kn_account_error(a, NULL, err));
}

static enum MHD_Result answer(kn_exchange *x) {
    kn_http_error err;
    unsigned needs = x->route->needs;
    bool lines = needs & KN_TAKES_LINES && kn_is_lines(kn_exchange_header(x, "Content-Type"));
    if (needs & KN_NEEDS_BODY && !lines && !parse_body(x, &err)) return kn_reply_error(x, &err);
    bool known = !(needs & KN_NEEDS_MODEL) || kn_exchange_choose_model(x, &err);
    enum MHD_Result result = known ? x->route->answer(x) : kn_reply_error(x, &err);
    json_decref(x->request);
    x->request = NULL;
    return result;
}

static kn_exchange *exchange_open(kn_server *s, struct MHD_Connection *connection) {
    kn_exchange *x = kn_alloc(1, sizeof *x);
    if (!x) return NULL;
    *x =
        (kn_exchange){.server = s, .connection = connection, .begun = kn_seconds(), .route = kn_route_none()};
    kn_account_open(&x->account, &s->budget);
    atomic_fetch_add(&s->answering, 1);
    kn_watch_asked(s->watch, connection);
    return x;
}

enum MHD_Result kn_handle_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **state) {
    kn_exchange *x = *state;
    (void)version;
    if (!x) {
        x = *state = exchange_open(context, connection);
        return x ? check_head(x, url, method) : MHD_NO;
    }
    if (x->status) return let_by(x, size); // answered already
    return *size ? take_body(x, data, size) : answer(x);
}

enum { CLIENT_LEFT = 499 }; // in the log alone

static void note_access(const kn_server *s, const kn_exchange *x) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    char from[INET6_ADDRSTRLEN] = "-";
    if (!s->log || !x->path) return;
    if (address && address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, from, sizeof from);
    else if (address && address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, from, sizeof from);
    kn_access_log_write(s->log, &(kn_access){.address = from,
                                             .method = x->method,
                                             .path = x->route->path ? x->route->path : x->path,
                                             .status = x->status ? x->status : CLIENT_LEFT,
                                             .bytes = x->sent,
                                             .seconds = kn_seconds() - x->begun});
}

// A large request or answer was a million small pieces of JSON, which its thread's heap would keep.
enum { LARGE = 1 << 20 };

void kn_handle_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code) {
    kn_server *s = context;
    kn_exchange *x = *state;
    (void)code;
    kn_watch_rest(s->watch, connection);
    if (!x) return;
    if (x->status)
        kn_metrics_request(&s->metrics, kn_route_number(x->route), x->status, kn_seconds() - x->begun);
    note_access(s, x);
    bool large = x->account.reserved > LARGE;
    kn_account_close(&x->account);
    free(x->path);
    free(x->body);
    free(x);
    *state = NULL;
    if (large) malloc_trim(0);
    atomic_fetch_sub(&s->answering, 1);
}

// ---------------------------------------------------------------- connections

// The system would take megabytes of an answer that nobody reads, and the client would seem to have read
// them.
enum { SEND_BUFFER = 128 << 10 };

static void bound_buffer(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &(int){SEND_BUFFER}, sizeof(int));
}

void kn_handle_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code) {
    kn_server *s = context;
    (void)state;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        atomic_fetch_add(&s->metrics.connections, 1);
        bound_buffer(connection);
        kn_watch_enter(s->watch, connection);
    } else {
        atomic_fetch_sub(&s->metrics.connections, 1);
        kn_watch_leave(s->watch, connection);
    }
}
