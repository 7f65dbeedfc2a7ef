// What answers need of their request: its headers, query, time, and a run of the engine.
#include "serve/exchange.h"

#include "serve/percent.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

const char *kn_exchange_header(const kn_exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

bool kn_exchange_gone(const kn_exchange *x) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

bool kn_exchange_late(const kn_exchange *x) {
    return x->server->hurry || kn_seconds() - x->begun > x->server->o.timeout;
}

bool kn_exchange_late_error(const kn_exchange *x, kn_http_error *err) {
    if (x->server->hurry)
        return kn_http_error_set(err, 503, "shutting_down", NULL, "the server is shutting down");
    return kn_http_error_set(err, 504, "timeout", NULL, "the request took longer than %g seconds",
                             x->server->o.timeout);
}

char *kn_exchange_text(kn_exchange *x, const char *name) {
    const char *value = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    char *copy = kn_strdup(value ? value : "");
    if (!copy || kn_percent_decode(copy, strlen(copy), true)) return copy;
    free(copy);
    return NULL;
}

bool kn_exchange_number(kn_exchange *x, const char *name, uint64_t max, uint64_t otherwise, uint64_t *out,
                        kn_http_error *err) {
    const char *value = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    char *end;
    *out = otherwise;
    if (!value) return true;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (*value >= '0' && *value <= '9' && !*end && !errno && number <= max) {
        *out = number;
        return true;
    }
    return kn_http_error_set(err, 400, NULL, name, "'%s' must be an integer from 0 to %llu", name,
                             (unsigned long long)max);
}

// In the body, or in the query of what has none; NULL: the request names none.
static const char *named_model(const kn_exchange *x) {
    if (x->request) return json_string_value(json_object_get(x->request, "model"));
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "model");
}

bool kn_exchange_choose_model(kn_exchange *x, kn_http_error *err) {
    static const char of_store[] = "/v1/stores/";
    kn_server *s = x->server;
    x->model = &s->models[0];
    if (s->model_count == 1) return true; // whatever clients call it
    if (strncmp(x->route->path, of_store, sizeof of_store - 1) == 0) {
        kn_served_model *m = kn_server_model_of_store(s, x->segments[0]);
        if (m) x->model = m; // else that one will say that it has none
        return true;
    }
    const char *name = named_model(x);
    if (!name || !*name) return true;
    x->model = kn_server_model(s, name);
    return x->model ||
           kn_http_error_set(err, 404, "model_not_found", "model", "no model is called '%.100s'", name);
}

bool kn_exchange_run(kn_exchange *x, kn_request_job *job, kn_request_task *tasks, size_t count,
                     kn_http_error *err) {
    bool gone = false, late = false;
    if (!kn_request_job_submit(x->model->engine, job, tasks, count, err)) return false;
    pthread_mutex_lock(&job->lock);
    while (job->open && !gone && !late) {
        kn_request_job_wait(job, job->changes);
        gone = kn_exchange_gone(x);
        late = kn_exchange_late(x);
    }
    bool over = job->open == 0;
    pthread_mutex_unlock(&job->lock);
    if (!over) kn_request_job_end(x->model->engine, job);
    if (!over && gone) {
        atomic_fetch_add(&x->server->metrics.gone, 1);
        return kn_http_error_set(err, 400, NULL, NULL, "the client has closed the connection");
    }
    if (!over) return kn_exchange_late_error(x, err);
    return job->status == KNNLM_OK || kn_http_error_status(err, job->status, job->message);
}
