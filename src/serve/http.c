#include "serve/http.h"

#include "serve/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---------------------------------------------------------------- routes

enum { OPEN = 1, LOADING = 2 }; // needs no key; is answered before there is a model

struct kn_route {
    const char *method, *path; // "*": any one segment, "**": all that are left
    kn_answer *answer;
    const char *name; // in the metrics
    int flags;
};

static const struct kn_route routes[] = {
    {"POST", "/v1/completions", kn_answer_completions, "completions", 0},
    {"POST", "/v1/score", kn_answer_score, "score", 0},
    {"POST", "/v1/explain", kn_answer_explain, "explain", 0},
    {"GET", "/v1/stores", kn_answer_stores, "stores", 0},
    {"GET", "/v1/stores/*", kn_answer_store, "stores", 0},
    {"GET", "/v1/stores/*/documents", kn_answer_documents, "documents", 0},
    {"POST", "/v1/stores/*/documents", kn_answer_add_document, "documents", 0},
    {"DELETE", "/v1/stores/*/documents/**", kn_answer_remove_document, "documents", 0},
    {"GET", "/v1/stores/*/entries/*", kn_answer_entry, "entries", 0},
    {"GET", "/v1/models", kn_answer_models, "models", 0},
    {"GET", "/v1/models/**", kn_answer_model, "models", 0},
    {"POST", "/tokenize", kn_answer_tokenize, "tokenize", 0},
    {"POST", "/detokenize", kn_answer_detokenize, "detokenize", 0},
    {"GET", "/tokenizer_info", kn_answer_tokenizer_info, "tokenizer_info", 0},
    {"GET", "/health", kn_answer_health, "health", OPEN | LOADING},
    {"GET", "/metrics", kn_answer_metrics, "metrics", LOADING},
};
enum { ROUTES = sizeof routes / sizeof *routes };
static const struct kn_route page_route = {"GET", "/", kn_answer_page, "page", OPEN | LOADING};

const char *const kn_endpoints[] = {"completions", "score",   "explain",  "stores",     "documents",
                                    "entries",     "models",  "tokenize", "detokenize", "tokenizer_info",
                                    "health",      "metrics", "page",     "none"};
size_t kn_endpoint_count(void) {
    return sizeof kn_endpoints / sizeof *kn_endpoints;
}

static size_t endpoint_of(const struct kn_route *r) {
    size_t i = 0;
    while (r && i + 1 < kn_endpoint_count() && strcmp(kn_endpoints[i], r->name) != 0) i++;
    return r ? i : kn_endpoint_count() - 1;
}

// Whether the path, segment by segment, is the route's; those that stars stand for go to the exchange.
static bool matches(const struct kn_route *r, const char *path, kn_exchange *x) {
    const char *want = r->path;
    x->segment_count = 0;
    x->rest = NULL;
    while (*want == '/' && *path == '/') {
        size_t n = strcspn(++want, "/"), have = strcspn(++path, "/");
        if (n == 2 && strncmp(want, "**", 2) == 0) {
            x->rest = (char *)path;
            return *path != 0;
        }
        if (n == 1 && *want == '*') {
            if (have == 0 || x->segment_count == KN_SEGMENTS_MOST) return false;
            x->segments[x->segment_count++] = path;
        } else if (n != have || strncmp(want, path, n) != 0) {
            return false;
        }
        want += n;
        path += have;
    }
    return *want == 0 && *path == 0;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// Percent-decoding in place; false: broken, or a NUL.
static bool decode(char *text, size_t size, bool plus) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        char byte = plus && text[i] == '+' ? ' ' : text[i];
        if (byte == '%') {
            int high = i + 2 < size ? digit(text[i + 1]) : -1, low = high >= 0 ? digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            byte = (char)(high * 16 + low);
            i += 2;
        }
        if (byte == 0) return false;
        text[used++] = byte;
    }
    text[used] = 0;
    return true;
}

static bool decode_segments(kn_exchange *x) {
    for (size_t i = 0; i < x->segment_count; i++) {
        char *segment = (char *)x->segments[i];
        size_t n = strcspn(segment, "/");
        segment[n] = 0;
        if (!decode(segment, n, false)) return false;
    }
    return !x->rest || decode(x->rest, strlen(x->rest), false);
}

static bool allows(const struct kn_route *r, const char *method) {
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

// The route; NULL: none, with the methods that the path has in *allowed.
static const struct kn_route *find_route(kn_exchange *x, const char *method, char *allowed, size_t size) {
    *allowed = 0;
    for (size_t i = 0; i < ROUTES; i++) {
        if (!matches(&routes[i], x->path, x)) continue;
        if (allows(&routes[i], method)) return &routes[i];
        size_t used = strlen(allowed);
        snprintf(allowed + used, size - used, "%s%s", used ? ", " : "", routes[i].method);
        if (strcmp(routes[i].method, "GET") == 0) {
            used = strlen(allowed);
            snprintf(allowed + used, size - used, ", HEAD");
        }
    }
    if (!*allowed && kn_page_find(x->path)) {
        if (allows(&page_route, method)) return &page_route;
        snprintf(allowed, size, "GET, HEAD");
    }
    return NULL;
}

// ---------------------------------------------------------------- replies

const char *kn_exchange_header(const kn_exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static void add_cors(const kn_exchange *x, struct MHD_Response *response) {
    const char *origin = kn_exchange_header(x, "Origin");
    if (!x->server->cors || !origin) return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", x->server->cors);
    MHD_add_response_header(response, "Vary", "Origin");
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Retry-After");
}

enum MHD_Result kn_reply_response(kn_exchange *x, unsigned status, const char *type,
                                  struct MHD_Response *response) {
    if (!response) return MHD_NO;
    if (type) MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (x->last) MHD_add_response_header(response, "Connection", "close");
    add_cors(x, response);
    x->status = status;
    kn_watch_sending(x->server->watch, x->connection);
    enum MHD_Result result = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result kn_reply_copy(kn_exchange *x, unsigned status, const char *type, const void *data,
                              size_t size) {
    return kn_reply_response(x, status, type,
                             MHD_create_response_from_buffer(size, (void *)data, MHD_RESPMEM_MUST_COPY));
}

// ---- a text that is sent block by block, each within the time that the watch gives it

typedef struct sent {
    kn_watch *watch;
    struct MHD_Connection *connection;
    char *text;
    size_t size;
} sent;

static ssize_t send_block(void *context, uint64_t position, char *buffer, size_t max) {
    const sent *s = context;
    if (position >= s->size) return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = kn_least(max, s->size - (size_t)position);
    memcpy(buffer, s->text + position, n);
    kn_watch_sending(s->watch, s->connection);
    return (ssize_t)n;
}

static void free_sent(void *context) {
    sent *s = context;
    free(s->text);
    free(s);
}

// Takes the text.
static struct MHD_Response *open_text(kn_exchange *x, char *text) {
    sent *s = kn_alloc(1, sizeof *s);
    if (s) *s = (sent){x->server->watch, x->connection, text, strlen(text)};
    struct MHD_Response *response =
        s ? MHD_create_response_from_callback(s->size, KN_SEND_BLOCK, send_block, s, free_sent) : NULL;
    if (!response) {
        free(text);
        free(s);
    }
    return response;
}

// There is no memory to say anything else.
static struct MHD_Response *open_apology(void) {
    static char text[] = "{\"error\":{\"message\":\"out of memory: try again\",\"type\":\"server_error\","
                         "\"param\":null,\"code\":\"out_of_memory\"}}";
    return MHD_create_response_from_buffer(sizeof text - 1, text, MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply_text(kn_exchange *x, unsigned status, char *text, const kn_complaint *c,
                                  const char *allowed) {
    char seconds[16];
    struct MHD_Response *response = text ? open_text(x, text) : open_apology();
    if (!response) return MHD_NO;
    if (c && c->retry_after) {
        snprintf(seconds, sizeof seconds, "%d", c->retry_after);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (allowed) MHD_add_response_header(response, "Allow", allowed);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    return kn_reply_response(x, status, "application/json", response);
}

static char *print(json_t *take) {
    char *text = take ? json_dumps(take, JSON_COMPACT) : NULL;
    json_decref(take);
    return text;
}

enum MHD_Result kn_reply(kn_exchange *x, unsigned status, json_t *take) {
    char *text = print(take);
    // A list that lacks what there was no memory for is no answer.
    bool failed = kn_json_failed();
    if (text && !failed) return reply_text(x, status, text, NULL, NULL);
    kn_complaint c = {0};
    free(text);
    return kn_reply_complaint(x, &c);
}

void kn_server_hide_paths(const kn_server *s, kn_complaint *c) {
    if (s->ready) kn_shelf_hide_paths(s->shelf, c);
    if (s->ready) kn_complaint_hide(c, kn_lm_describe(s->lm)->path, s->model);
    kn_complaint_hide_folders(c);
}

enum MHD_Result kn_reply_complaint(kn_exchange *x, const kn_complaint *complaint) {
    kn_complaint c = *complaint;
    // Who found no memory for an answer need not have said so.
    if (!c.status) kn_account_complain(&x->account, NULL, &c);
    kn_account_pause(&x->account);
    kn_server_hide_paths(x->server, &c);
    char *text = print(kn_complaint_json(&c));
    return reply_text(x, text ? c.status : 503, text, &c, NULL);
}

static enum MHD_Result refuse(kn_exchange *x, unsigned status, const char *code, const char *message) {
    kn_complaint c;
    kn_complain(&c, status, code, NULL, "%s", message);
    return kn_reply_complaint(x, &c);
}

// ---------------------------------------------------------------- a request

static bool body_is_announced_too_large(const kn_exchange *x) {
    const char *length = kn_exchange_header(x, "Content-Length");
    return length && strtoull(length, NULL, 10) > x->server->o.max_body;
}

static bool complain_of_body(const kn_exchange *x, kn_complaint *c) {
    return kn_complain(c, 413, "body_too_large", NULL, "the body has more than %zu bytes",
                       x->server->o.max_body);
}

static enum MHD_Result refuse_body(kn_exchange *x) {
    kn_complaint c;
    complain_of_body(x, &c);
    return kn_reply_complaint(x, &c);
}

// One of the few beyond the limit that are let in to be told so.
static enum MHD_Result refuse_connection(kn_exchange *x) {
    kn_complaint c;
    kn_complain(&c, 503, "too_many_connections", NULL, "too many connections: try again");
    x->last = true;
    return kn_reply_complaint(x, &c);
}

// What can be refused before the body has come is. Sets x->status when it was.
static enum MHD_Result check_early(kn_exchange *x, const char *url, const char *method) {
    kn_server *s = x->server;
    char allowed[64];
    kn_complaint c;
    x->path = kn_strdup(url);
    if (!x->path) return MHD_NO;
    if (s->metrics.connections > s->o.connections) return refuse_connection(x);
    if (!kn_access_check(x, &c)) return kn_reply_complaint(x, &c);
    if (kn_access_is_preflight(x, method)) return kn_access_preflight(x);
    x->route = find_route(x, method, allowed, sizeof allowed);
    x->endpoint = endpoint_of(x->route);
    if (!(x->route && x->route->flags & OPEN) && !kn_access_has_key(x))
        return refuse(x, 401, "invalid_api_key", "the API key is missing or wrong");
    if (!x->route && *allowed) {
        kn_complain(&c, 405, "method_not_allowed", NULL, "this path takes %s", allowed);
        return reply_text(x, 405, print(kn_complaint_json(&c)), &c, allowed);
    }
    if (!x->route) return refuse(x, 404, "not_found", "there is nothing at this path");
    if (!decode_segments(x)) return refuse(x, 400, NULL, "the path is not properly percent-encoded");
    if (s->ending) return refuse(x, 503, "shutting_down", "the server is shutting down");
    if (!s->ready && !(x->route->flags & LOADING))
        return refuse(x, 503, "loading", "the model is being opened");
    return body_is_announced_too_large(x) ? refuse_body(x) : MHD_YES;
}

// libmicrohttpd answers no request before it has all of it, and this one may have no end: the answer is
// written past it, and what still comes is let by, so that the client reads it before the connection ends.
static void refuse_in_passing(kn_exchange *x, const kn_complaint *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char head[200];
    kn_account_pause(&x->account);
    char *body = print(kn_complaint_json(c));
    if (!body || !info) return free(body);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: application/json\r\n%s"
                     "Content-Length: %zu\r\n\r\n",
                     c->status == 413 ? "413 Content Too Large" : "503 Service Unavailable",
                     c->retry_after ? "Retry-After: 1\r\n" : "", strlen(body));
    x->status = c->status;
    x->last = true;
    if (send(info->connect_fd, head, (size_t)n, MSG_NOSIGNAL) == n)
        send(info->connect_fd, body, strlen(body), MSG_NOSIGNAL);
    free(body);
}

enum { LET_BY = 1 << 30 }; // bytes of a body that was refused

static enum MHD_Result let_by(kn_exchange *x, size_t *size) {
    bool end = *size == 0;
    x->size += *size;
    *size = 0;
    return end || x->size > LET_BY || kn_watch_is_late(x->begun) ? MHD_NO : MHD_YES;
}

// Room for so much more of the body.
static bool make_room(kn_exchange *x, size_t more, kn_complaint *c) {
    size_t before = x->capacity;
    if (x->size + more > x->server->o.max_body) return complain_of_body(x, c);
    if (kn_grow(&x->body, &x->capacity, x->size + more + 1, 1) != KNNLM_OK) return kn_complain_memory(c);
    return kn_account_take(&x->account, x->capacity - before) || kn_account_complain(&x->account, NULL, c);
}

static enum MHD_Result take_body(kn_exchange *x, const char *data, size_t *size) {
    kn_complaint c;
    if (!make_room(x, *size, &c)) {
        refuse_in_passing(x, &c);
        return x->status ? let_by(x, size) : MHD_NO;
    }
    memcpy(x->body + x->size, data, *size);
    x->size += *size;
    *size = 0;
    return kn_watch_is_late(x->begun) || kn_exchange_late(x) ? MHD_NO : MHD_YES;
}

static kn_exchange *exchange_open(kn_server *s, struct MHD_Connection *connection) {
    kn_exchange *x = kn_alloc(1, sizeof *x);
    if (!x) return NULL;
    *x = (kn_exchange){.server = s, .connection = connection, .begun = kn_seconds()};
    x->endpoint = kn_endpoint_count() - 1;
    kn_account_open(&x->account, &s->budget);
    atomic_fetch_add(&s->answering, 1);
    kn_watch_asked(s->watch, connection);
    return x;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data, size_t *size,
                              void **state) {
    kn_exchange *x = *state;
    (void)version;
    if (!x) {
        x = *state = exchange_open(context, connection);
        return x ? check_early(x, url, method) : MHD_NO;
    }
    if (x->status) return let_by(x, size); // answered already
    return *size ? take_body(x, data, size) : x->route->answer(x);
}

// A large request or answer was a million small pieces of JSON, which its thread's heap would keep.
enum { LARGE = 1 << 20 };

static void completed(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode code) {
    kn_server *s = context;
    kn_exchange *x = *state;
    (void)code;
    kn_watch_rest(s->watch, connection);
    if (!x) return;
    if (x->status) kn_metrics_request(&s->metrics, x->endpoint, x->status, kn_seconds() - x->begun);
    bool large = x->account.reserved > LARGE;
    kn_account_close(&x->account);
    free(x->path);
    free(x->body);
    free(x);
    *state = NULL;
    if (large) malloc_trim(0);
    atomic_fetch_sub(&s->answering, 1);
}

// ---------------------------------------------------------------- what answers need

bool kn_exchange_gone(const kn_exchange *x) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

bool kn_exchange_late(const kn_exchange *x) {
    return x->server->hurry || kn_seconds() - x->begun > x->server->o.timeout;
}

bool kn_exchange_complain_late(const kn_exchange *x, kn_complaint *c) {
    if (x->server->hurry) return kn_complain(c, 503, "shutting_down", NULL, "the server is shutting down");
    return kn_complain(c, 504, "timeout", NULL, "the request took longer than %g seconds",
                       x->server->o.timeout);
}

json_t *kn_exchange_json(kn_exchange *x, enum MHD_Result *result) {
    kn_complaint c;
    json_t *root = kn_request_load(x->body ? x->body : "", x->size, &c);
    if (!root && x->account.shortage) kn_account_complain(&x->account, NULL, &c);
    if (!root) *result = kn_reply_complaint(x, &c);
    return root;
}

char *kn_exchange_text(kn_exchange *x, const char *name) {
    const char *value = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    char *copy = kn_strdup(value ? value : "");
    if (!copy || decode(copy, strlen(copy), true)) return copy;
    free(copy);
    return NULL;
}

bool kn_exchange_number(kn_exchange *x, const char *name, uint64_t most, uint64_t otherwise, uint64_t *out,
                        kn_complaint *c) {
    const char *value = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    char *end;
    *out = otherwise;
    if (!value) return true;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (*value >= '0' && *value <= '9' && !*end && !errno && number <= most) {
        *out = number;
        return true;
    }
    return kn_complain(c, 400, NULL, name, "'%s' must be an integer from 0 to %llu", name,
                       (unsigned long long)most);
}

bool kn_exchange_run(kn_exchange *x, kn_job *job, kn_task *tasks, size_t count, kn_complaint *c) {
    bool gone = false, late = false;
    if (!kn_job_submit(x->server->engine, job, tasks, count, c)) return false;
    pthread_mutex_lock(&job->lock);
    while (job->open && !gone && !late) {
        kn_job_wait(job, job->changes);
        gone = kn_exchange_gone(x);
        late = kn_exchange_late(x);
    }
    bool over = job->open == 0;
    pthread_mutex_unlock(&job->lock);
    if (!over) kn_job_end(x->server->engine, job);
    if (!over && gone) {
        atomic_fetch_add(&x->server->metrics.gone, 1);
        return kn_complain(c, 400, NULL, NULL, "the client has closed the connection");
    }
    if (!over) return kn_exchange_complain_late(x, c);
    return job->status == KNNLM_OK || kn_complain_status(c, job->status, job->message);
}

// ---------------------------------------------------------------- the server

kn_serve_options kn_serve_options_default(void) {
    return (kn_serve_options){.host = "127.0.0.1",
                              .port = 8080,
                              .queue = 256,
                              .parallel = 8,
                              .max_tokens = 16384,
                              .max_body = 16 << 20,
                              .max_memory = 1 << 30,
                              .connections = 512,
                              .timeout = 300};
}

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

// The system would take megabytes of an answer that nobody reads, and the client would seem to have read
// them.
enum { SEND_BUFFER = 128 << 10 };

static void bound_buffer(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &(int){SEND_BUFFER}, sizeof(int));
}

static void connected(void *context, struct MHD_Connection *connection, void **state,
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
    if (code) return kn_fail(KNNLM_EINVAL, "--host %s: %s", s->host, gai_strerror(code));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    s->loopback = is_loopback(address);
    if (s->loopback || s->api_key || s->o.no_key) return KNNLM_OK;
    return kn_fail(
        KNNLM_EINVAL,
        "--host %s: other machines could ask, and change the stores: give an --api-key-file, or say "
        "--no-key",
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
    return s->loopback ? s->o.connections + SPARE : kn_most(s->o.connections / 4, 1);
}

static knnlm_status listen_on(kn_server *s) {
    struct sockaddr_storage address = {0};
    KN_TRY(resolve(s, &address));
    bool six = address.ss_family == AF_INET6;
    s->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            (six ? MHD_USE_IPv6 : 0),
        s->o.port, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED,
        completed, s, MHD_OPTION_NOTIFY_CONNECTION, connected, s, MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes,
        NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->o.connections + SPARE,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)per_address(s), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)KN_REST_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10),
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK, MHD_OPTION_END);
    if (!s->daemon)
        return kn_fail(KNNLM_EIO, "%s:%u cannot be listened on: %s (--port chooses another)", s->host,
                       s->o.port, strerror(errno));
    name_address(s);
    return KNNLM_OK;
}

static bool copy_option(char **out, const char *option) {
    *out = option ? kn_strdup(option) : NULL;
    return *out || !option;
}

static knnlm_status copy_options(kn_server *s) {
    const kn_serve_options *o = &s->o;
    bool had = copy_option(&s->host, o->host) && copy_option(&s->api_key, o->api_key) &&
               copy_option(&s->cors, o->cors);
    for (size_t i = 0; i < o->allowed_host_count && had; i++)
        had = copy_option(&s->allowed_hosts[i], o->allowed_hosts[i]);
    return had ? kn_watch_open(o->timeout, o->connections, &s->watch) : KNNLM_ENOMEM;
}

knnlm_status kn_server_open(const kn_serve_options *options, kn_server **out) {
    kn_server *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->o = *options;
    s->created = (int64_t)time(NULL);
    kn_turn_init(&s->turn);
    kn_budget_init(&s->budget, options->max_memory);
    knnlm_status status = copy_options(s);
    if (status == KNNLM_OK) status = listen_on(s);
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_server_close(s, 0);
    return status;
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
    KN_TRY(kn_shelf_open(lm, &s->turn, mix, !s->o.read_only, &s->shelf));
    KN_TRY(kn_shelf_refresh(s->shelf, s->o.warn));
    KN_TRY(kn_server_engine_open(lm, &s->turn, s->shelf, &s->metrics, &o, &s->engine));
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
    kn_shelf_close(s->shelf);
    kn_watch_close(s->watch);
    kn_turn_destroy(&s->turn);
    free(s->model);
    free(s->host);
    free(s->api_key);
    free(s->cors);
    for (size_t i = 0; i < KN_ALLOWED_HOSTS; i++) free(s->allowed_hosts[i]);
    free(s);
}
