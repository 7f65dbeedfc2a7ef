// libmicrohttpd without sockets: its functions that src/serve calls, in place of the library's own. A fuzz
// target asks a server as the library would, headers first, then the body in pieces, and reads the answer;
// all in the calling thread, but for the server's engine. One source file of a target may include this.
#ifndef FUZZ_HTTP_KIT_H
#define FUZZ_HTTP_KIT_H

#include "base/memory.h"
#include "serve/serve.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_FIELDS_MAX = 64, HTTP_BODY_MAX = 8 << 20, HTTP_BLOCK_MAX = 64 << 10 };

typedef struct http_field {
    enum MHD_ValueKind kind;
    char *name, *value; // value NULL: an argument without "="
} http_field;

struct MHD_Daemon {
    MHD_AccessHandlerCallback handle;
    void *handle_context;
    MHD_RequestCompletedCallback completed;
    void *completed_context;
    MHD_NotifyConnectionCallback connection;
    void *connection_context;
    union MHD_DaemonInfo info;
};

struct MHD_Response {
    char *data; // what was copied or given; NULL with a callback
    size_t size;
    MHD_ContentReaderCallback read;
    MHD_ContentReaderFreeCallback release;
    void *context;
    size_t block;
    http_field fields[HTTP_FIELDS_MAX];
    size_t field_count, references;
};

struct MHD_Connection {
    struct MHD_Daemon *daemon;
    http_field fields[HTTP_FIELDS_MAX];
    size_t field_count;
    struct MHD_Response *response;
    unsigned status;
    int fds[2]; // ours, the client's
    struct sockaddr_in address;
    union MHD_ConnectionInfo info;
    void *socket_context;
};

static struct MHD_Daemon *http_daemon; // the one that was started last

static inline void http_die(const char *what) {
    fprintf(stderr, "http_kit: %s\n", what);
    abort();
}

static inline char *http_copy(const char *text, size_t size) {
    char *copy = malloc(size + 1);
    if (!copy) abort();
    if (size) memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

static inline void http_add(http_field *fields, size_t *count, enum MHD_ValueKind kind, char *name,
                            char *value) {
    if (*count == HTTP_FIELDS_MAX) {
        free(name);
        free(value);
        return;
    }
    fields[(*count)++] = (http_field){kind, name, value};
}

static inline void http_free_fields(http_field *fields, size_t *count) {
    for (size_t i = 0; i < *count; i++) {
        free(fields[i].name);
        free(fields[i].value);
    }
    *count = 0;
}

static inline const char *http_find(const http_field *fields, size_t count, enum MHD_ValueKind kind,
                                    const char *name) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].kind & kind && strcasecmp(fields[i].name, name) == 0) return fields[i].value;
    return NULL;
}

// ---------------------------------------------------------------- the library's face

static inline void http_take_option(struct MHD_Daemon *d, enum MHD_OPTION option, va_list *list) {
    switch (option) {
    case MHD_OPTION_NOTIFY_COMPLETED:
        d->completed = va_arg(*list, MHD_RequestCompletedCallback);
        d->completed_context = va_arg(*list, void *);
        break;
    case MHD_OPTION_NOTIFY_CONNECTION:
        d->connection = va_arg(*list, MHD_NotifyConnectionCallback);
        d->connection_context = va_arg(*list, void *);
        break;
    case MHD_OPTION_UNESCAPE_CALLBACK: // ours decodes nothing, as the server's
    case MHD_OPTION_EXTERNAL_LOGGER:
        (void)va_arg(*list, void (*)(void));
        (void)va_arg(*list, void *);
        break;
    case MHD_OPTION_SOCK_ADDR:
        (void)va_arg(*list, void *);
        break;
    case MHD_OPTION_CONNECTION_MEMORY_LIMIT:
    case MHD_OPTION_CONNECTION_MEMORY_INCREMENT:
    case MHD_OPTION_THREAD_STACK_SIZE:
        (void)va_arg(*list, size_t);
        break;
    case MHD_OPTION_CONNECTION_LIMIT:
    case MHD_OPTION_CONNECTION_TIMEOUT:
    case MHD_OPTION_PER_IP_CONNECTION_LIMIT:
    case MHD_OPTION_STRICT_FOR_CLIENT:
    case MHD_OPTION_LISTENING_ADDRESS_REUSE:
    case MHD_OPTION_LISTEN_BACKLOG_SIZE:
    case MHD_OPTION_LISTEN_SOCKET:
        (void)va_arg(*list, unsigned);
        break;
    default:
        http_die("an option that it does not know: add it to http_take_option");
    }
}

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                    void *accept_context, MHD_AccessHandlerCallback handle,
                                    void *handle_context, ...) {
    struct MHD_Daemon *d = calloc(1, sizeof *d);
    va_list list;
    (void)flags;
    (void)accept;
    (void)accept_context;
    if (!d) abort();
    *d = (struct MHD_Daemon){.handle = handle, .handle_context = handle_context, .info.port = port};
    va_start(list, handle_context);
    for (int option; (option = va_arg(list, int)) != MHD_OPTION_END;) http_take_option(d, option, &list);
    va_end(list);
    return http_daemon = d;
}

MHD_socket MHD_quiesce_daemon(struct MHD_Daemon *d) {
    (void)d;
    return MHD_INVALID_SOCKET;
}

void MHD_stop_daemon(struct MHD_Daemon *d) {
    free(d);
}

const union MHD_DaemonInfo *MHD_get_daemon_info(struct MHD_Daemon *d, enum MHD_DaemonInfoType type, ...) {
    return type == MHD_DAEMON_INFO_BIND_PORT ? &d->info : NULL;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *c,
                                                        enum MHD_ConnectionInfoType type, ...) {
    switch (type) {
    case MHD_CONNECTION_INFO_CONNECTION_FD:
        c->info.connect_fd = c->fds[0];
        break;
    case MHD_CONNECTION_INFO_CLIENT_ADDRESS:
        c->info.client_addr = (struct sockaddr *)&c->address;
        break;
    case MHD_CONNECTION_INFO_SOCKET_CONTEXT:
        c->info.socket_context = c->socket_context;
        break;
    default:
        return NULL;
    }
    return &c->info;
}

enum MHD_Result MHD_set_connection_option(struct MHD_Connection *c, enum MHD_CONNECTION_OPTION option, ...) {
    (void)c;
    (void)option;
    return MHD_YES;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *c, enum MHD_ValueKind kind, const char *key) {
    return http_find(c->fields, c->field_count, kind, key);
}

int MHD_get_connection_values(struct MHD_Connection *c, enum MHD_ValueKind kind, MHD_KeyValueIterator iterate,
                              void *context) {
    int count = 0;
    for (size_t i = 0; i < c->field_count; i++) {
        if (!(c->fields[i].kind & kind)) continue;
        count++;
        if (iterate && !iterate(context, c->fields[i].kind, c->fields[i].name, c->fields[i].value)) break;
    }
    return count;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *data,
                                                     enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *r = calloc(1, sizeof *r);
    if (!r) abort();
    *r = (struct MHD_Response){
        .data = mode == MHD_RESPMEM_MUST_FREE ? data : http_copy(data, size), .size = size, .references = 1};
    return r;
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t size, size_t block,
                                                       MHD_ContentReaderCallback read, void *context,
                                                       MHD_ContentReaderFreeCallback release) {
    struct MHD_Response *r = calloc(1, sizeof *r);
    (void)size;
    if (!r || block > HTTP_BLOCK_MAX) abort();
    *r = (struct MHD_Response){
        .read = read, .release = release, .context = context, .block = block, .references = 1};
    return r;
}

// As the library has it: no line ends in a value.
enum MHD_Result MHD_add_response_header(struct MHD_Response *r, const char *name, const char *value) {
    if (!*value || strpbrk(value, "\r\n")) return MHD_NO;
    http_add(r->fields, &r->field_count, MHD_HEADER_KIND, http_copy(name, strlen(name)),
             http_copy(value, strlen(value)));
    return MHD_YES;
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *r) {
    if (c->response) http_die("answered twice");
    r->references++;
    c->response = r;
    c->status = status;
    return MHD_YES;
}

void MHD_destroy_response(struct MHD_Response *r) {
    if (--r->references) return;
    if (r->release) r->release(r->context);
    http_free_fields(r->fields, &r->field_count);
    free(r->data);
    free(r);
}

// ---------------------------------------------------------------- asking

typedef struct http_answer {
    unsigned status; // 0: the connection was closed without one
    char *body;      // with a NUL after it
    size_t size;
    http_field fields[HTTP_FIELDS_MAX];
    size_t field_count;
} http_answer;

static inline const char *http_header(const http_answer *a, const char *name) {
    return http_find(a->fields, a->field_count, MHD_HEADER_KIND, name);
}

static inline void http_answer_free(http_answer *a) {
    http_free_fields(a->fields, &a->field_count);
    free(a->body);
}

// "a=b&c": as the library cuts a query.
static inline void http_take_query(struct MHD_Connection *c, const char *query) {
    while (*query) {
        size_t n = strcspn(query, "&"), name = strcspn(query, "=&");
        http_add(c->fields, &c->field_count, MHD_GET_ARGUMENT_KIND, http_copy(query, name),
                 name < n ? http_copy(query + name + 1, n - name - 1) : NULL);
        query += n + (query[n] == '&');
    }
}

static inline struct MHD_Connection *http_connect(struct MHD_Daemon *d) {
    struct MHD_Connection *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->daemon = d;
    c->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, c->fds) != 0) abort();
    if (d->connection)
        d->connection(d->connection_context, c, &c->socket_context, MHD_CONNECTION_NOTIFY_STARTED);
    return c;
}

static inline void http_disconnect(struct MHD_Connection *c) {
    struct MHD_Daemon *d = c->daemon;
    if (d->connection)
        d->connection(d->connection_context, c, &c->socket_context, MHD_CONNECTION_NOTIFY_CLOSED);
    close(c->fds[0]);
    close(c->fds[1]);
    free(c);
}

static inline void http_read(struct MHD_Response *r, http_answer *a) {
    static char block[HTTP_BLOCK_MAX];
    size_t capacity = 0;
    for (ssize_t n; (n = r->read(r->context, a->size, block, r->block)) >= 0;) {
        if (a->size + (size_t)n > HTTP_BODY_MAX) http_die("the answer does not end");
        if (kn_grow(&a->body, &capacity, a->size + (size_t)n + 1, 1) != KNNLM_OK) abort();
        memcpy(a->body + a->size, block, (size_t)n);
        a->size += (size_t)n;
    }
    if (a->body) a->body[a->size] = 0;
}

static inline void http_take_answer(struct MHD_Connection *c, http_answer *a) {
    struct MHD_Response *r = c->response;
    *a = (http_answer){.status = c->status};
    if (!r) return;
    if (r->read) {
        http_read(r, a);
    } else {
        a->body = http_copy(r->data, r->size);
        a->size = r->size;
    }
    memcpy(a->fields, r->fields, sizeof a->fields);
    a->field_count = r->field_count;
    r->field_count = 0;
}

static inline bool http_call(struct MHD_Connection *c, const char *method, const char *url, const char *body,
                             size_t size, void **state) {
    struct MHD_Daemon *d = c->daemon;
    size_t left = size;
    bool go_on = d->handle(d->handle_context, c, url, method, "HTTP/1.1", body, &left, state) == MHD_YES;
    if (go_on && left) http_die("a part of the body was not taken");
    return go_on;
}

// The server's handler, as often as the library calls it: with nothing, with the body in two pieces, with its
// end.
static inline void http_handle(struct MHD_Connection *c, const char *method, const char *url,
                               const char *body, size_t size, void **state) {
    size_t half = size / 2;
    if (!http_call(c, method, url, NULL, 0, state) || c->response) return;
    if (half && !http_call(c, method, url, body, half, state)) return;
    if (size && !http_call(c, method, url, body + half, size - half, state)) return;
    http_call(c, method, url, NULL, 0, state);
}

// One request over a connection, whose headers were added before. `target` is the path with its query.
static inline void http_ask(struct MHD_Connection *c, const char *method, const char *target,
                            const char *body, size_t size, http_answer *out) {
    struct MHD_Daemon *d = c->daemon;
    void *state = NULL;
    size_t n = strcspn(target, "?");
    char *url = http_copy(target, n);
    if (target[n]) http_take_query(c, target + n + 1);
    http_handle(c, method, url, body, size, &state);
    http_take_answer(c, out);
    if (d->completed)
        d->completed(d->completed_context, c, &state,
                     c->response ? MHD_REQUEST_TERMINATED_COMPLETED_OK : MHD_REQUEST_TERMINATED_WITH_ERROR);
    if (c->response) MHD_destroy_response(c->response);
    http_free_fields(c->fields, &c->field_count);
    c->response = NULL;
    c->status = 0;
    free(url);
}

#endif
