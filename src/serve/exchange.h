// An exchange: a request and its answer. Not a door: only this room includes it.
#ifndef KN_SERVE_EXCHANGE_H
#define KN_SERVE_EXCHANGE_H

#include "serve/account.h"
#include "serve/engine.h"
#include "serve/serve.h"

#include <jansson.h>
#include <microhttpd.h>

enum { KN_SEGMENTS_MAX = 8 };

typedef struct kn_exchange {
    kn_server *server;
    struct MHD_Connection *connection;
    double begun;
    char method[8];
    uint64_t sent; // bytes of the answer's body
    kn_account account;
    const struct kn_route *route;
    struct kn_served_model *model; // that the request is for, where the route needs one
    char *path;                    // segments that stars stand for are decoded in place
    const char *segments[KN_SEGMENTS_MAX];
    size_t segment_count;
    char *rest; // what "**" stands for, with its slashes
    bool may_write;
    char *body;
    size_t size, capacity;
    json_t *request; // the body, where the route needs one; until the answer returns
    bool last;       // the connection ends with the answer
    unsigned status; // answered; 0: not yet
} kn_exchange;

// A header of the request, or NULL.
const char *kn_exchange_header(const kn_exchange *x, const char *name);
// A text of the query, decoded, "" when there is none; released with free(). NULL: not properly encoded.
char *kn_exchange_text(kn_exchange *x, const char *name);
// A number of the query, or `otherwise`; false: something else is there (error set).
bool kn_exchange_number(kn_exchange *x, const char *name, uint64_t max, uint64_t otherwise, uint64_t *out,
                        kn_http_error *err);

// Sets x->model: the one whose store the path names, or that the request names, else the first. False: there
// are several, and none has that name (error set).
bool kn_exchange_choose_model(kn_exchange *x, kn_http_error *err);

// Whether the client has closed the connection.
bool kn_exchange_gone(const kn_exchange *x);
bool kn_exchange_late(const kn_exchange *x);
// Why it is: always false.
bool kn_exchange_late_error(const kn_exchange *x, kn_http_error *err);

// Runs the tasks and waits for them; false: with an error, also when the client is gone.
bool kn_exchange_run(kn_exchange *x, kn_request_job *job, kn_request_task *tasks, size_t count,
                     kn_http_error *err);

#endif
