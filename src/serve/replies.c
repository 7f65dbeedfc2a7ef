// Sending: JSON, errors, copies, and answers that go out block by block.
#include "serve/replies.h"

#include "serve/gzip.h"
#include "serve/json.h"
#include "serve/server.h"
#include "serve/watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

// ---------------------------------------------------------------- a text, block by block

// Each block within the time that the watch gives it: a client that takes for ever (slow read) is cut off.
typedef struct sent {
    kn_watch *watch;
    struct MHD_Connection *connection;
    char *text;
    size_t size;
} sent;

static ssize_t send_block(void *context, uint64_t position, char *buffer, size_t max) {
    const sent *s = context;
    if (position >= s->size) return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = kn_min(max, s->size - (size_t)position);
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
static struct MHD_Response *open_text(kn_exchange *x, char *text, size_t size) {
    sent *s = kn_alloc(1, sizeof *s);
    if (s) *s = (sent){x->server->watch, x->connection, text, size};
    x->sent = size;
    struct MHD_Response *response =
        s ? MHD_create_response_from_callback(s->size, KN_SEND_BLOCK, send_block, s, free_sent) : NULL;
    if (!response) {
        free(text);
        free(s);
    }
    return response;
}

enum { WORTH_PACKING = 1400 }; // bytes: what fits one packet is not sent sooner

// NULL: it goes as it is.
static struct MHD_Response *open_packed(kn_exchange *x, const void *data, size_t size) {
    size_t packed;
    if (size < WORTH_PACKING || !kn_gzip_accepted(kn_exchange_header(x, "Accept-Encoding"))) return NULL;
    char *text = kn_gzip_pack(data, size, &packed);
    struct MHD_Response *response = text ? open_text(x, text, packed) : NULL;
    if (response) MHD_add_response_header(response, "Content-Encoding", "gzip");
    return response;
}

struct MHD_Response *kn_response_of(kn_exchange *x, const void *data, size_t size, bool lasts) {
    struct MHD_Response *response = open_packed(x, data, size);
    if (!response) x->sent = size;
    if (!response)
        response = MHD_create_response_from_buffer(size, (void *)data,
                                                   lasts ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    if (response) MHD_add_response_header(response, "Vary", "Accept-Encoding");
    return response;
}

enum MHD_Result kn_reply_copy(kn_exchange *x, unsigned status, const char *type, const void *data,
                              size_t size) {
    return kn_reply_response(x, status, type, kn_response_of(x, data, size, false));
}

// Takes the text, and sends it as it is or packed.
static struct MHD_Response *open_json(kn_exchange *x, char *text) {
    size_t size = strlen(text);
    struct MHD_Response *response = open_packed(x, text, size);
    if (response)
        free(text);
    else
        response = open_text(x, text, size);
    if (response) MHD_add_response_header(response, "Vary", "Accept-Encoding");
    return response;
}

// There is no memory to say anything else.
static struct MHD_Response *open_apology(void) {
    static char text[] = "{\"error\":{\"message\":\"out of memory: try again\",\"type\":\"server_error\","
                         "\"param\":null,\"code\":\"out_of_memory\"}}";
    return MHD_create_response_from_buffer(sizeof text - 1, text, MHD_RESPMEM_PERSISTENT);
}

// ---------------------------------------------------------------- JSON

// What an answer has beside its body; NULL: not given.
typedef struct extra {
    const kn_http_error *err;
    const char *allowed, *place;
} extra;

static enum MHD_Result reply_text(kn_exchange *x, unsigned status, char *text, extra e) {
    const kn_http_error *err = e.err;
    char seconds[16];
    struct MHD_Response *response = text ? open_json(x, text) : open_apology();
    if (!response) return MHD_NO;
    if (err && err->retry_after) {
        snprintf(seconds, sizeof seconds, "%d", err->retry_after);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (e.allowed) MHD_add_response_header(response, "Allow", e.allowed);
    if (e.place) MHD_add_response_header(response, "Location", e.place);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    return kn_reply_response(x, status, "application/json", response);
}

static char *print(json_t *take) {
    char *text = take ? json_dumps(take, JSON_COMPACT) : NULL;
    json_decref(take);
    return text;
}

enum MHD_Result kn_reply(kn_exchange *x, unsigned status, json_t *take) {
    return kn_reply_at(x, status, take, NULL);
}

enum MHD_Result kn_reply_at(kn_exchange *x, unsigned status, json_t *take, const char *place) {
    char *text = print(take);
    // A list that lacks what there was no memory for is no answer.
    bool failed = kn_json_failed();
    if (text && !failed) return reply_text(x, status, text, (extra){.place = place});
    kn_http_error err = {0};
    free(text);
    return kn_reply_error(x, &err);
}

enum MHD_Result kn_reply_error(kn_exchange *x, const kn_http_error *error) {
    kn_http_error err = *error;
    // Who found no memory for an answer need not have said so.
    if (!err.status) kn_account_error(&x->account, NULL, &err);
    kn_account_pause(&x->account);
    kn_server_hide_paths(x->server, &err);
    char *text = print(kn_json_error(&err));
    return reply_text(x, text ? err.status : 503, text, (extra){.err = &err});
}

enum MHD_Result kn_reply_not_allowed(kn_exchange *x, const char *allowed) {
    kn_http_error err;
    kn_http_error_set(&err, 405, "method_not_allowed", NULL, "this path takes %s", allowed);
    return reply_text(x, 405, print(kn_json_error(&err)), (extra){.err = &err, .allowed = allowed});
}

// libmicrohttpd answers no request before it has all of it, and this one may have no end: the answer is
// written past it, and what still comes is let by, so that the client reads it before the connection ends.
void kn_reply_past_body(kn_exchange *x, const kn_http_error *err) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char head[200];
    kn_account_pause(&x->account);
    char *body = print(kn_json_error(err));
    if (!body || !info) return free(body);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: application/json\r\n%s"
                     "Content-Length: %zu\r\n\r\n",
                     err->status == 413 ? "413 Content Too Large" : "503 Service Unavailable",
                     err->retry_after ? "Retry-After: 1\r\n" : "", strlen(body));
    x->status = err->status;
    x->last = true;
    if (send(info->connect_fd, head, (size_t)n, MSG_NOSIGNAL) == n)
        send(info->connect_fd, body, strlen(body), MSG_NOSIGNAL);
    free(body);
}
