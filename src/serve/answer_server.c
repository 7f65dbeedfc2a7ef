// /health, /version, /openapi.json, /metrics and the page: how the server fares, before there is a model too.
#include "serve/page.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <inttypes.h>
#include <stdlib.h>

enum MHD_Result kn_answer_health(kn_exchange *x) {
    kn_http_error err;
    if (x->server->ready) return kn_reply(x, 200, json_pack("{s:s}", "status", "ok"));
    kn_http_error_set(&err, 503, "loading", NULL, "the model is being opened");
    return kn_reply_error(x, &err);
}

enum MHD_Result kn_answer_version(kn_exchange *x) {
    return kn_reply(x, 200,
                    json_pack("{s:s, s:s, s:s?}", "name", "knnlm", "version", knnlm_version(), "llama",
                              kn_llama_release()));
}

enum MHD_Result kn_answer_openapi(kn_exchange *x) {
    extern const unsigned char kn_openapi[]; // src/serve/openapi.json
    extern const size_t kn_openapi_size;
    return kn_reply_response(x, 200, "application/json",
                             kn_response_of(x, kn_openapi, kn_openapi_size, true));
}

static void print_gauge(FILE *out, const char *name, const char *help, uint64_t value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 "\n", name, help, name, name, value);
}

// As a value of a label: quotes and backslashes escaped.
static void print_value(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if (*text != '\n') fputc(*text, out);
    }
}

static void print_stores(const kn_served_model *m, FILE *out) {
    for (size_t i = 0; i < kn_served_count(m->served); i++) {
        fputs("knnlm_store_entries{store=\"", out);
        print_value(out, kn_served_name(m->served, i));
        fprintf(out, "\"} %" PRIu64 "\n", kn_served_entries(m->served, i));
    }
}

static void print_state(kn_server *s, FILE *out) {
    size_t waiting = 0, running = 0;
    print_gauge(out, "knnlm_connections", "Connections open now.", s->metrics.connections);
    print_gauge(out, "knnlm_request_memory_bytes", "Memory reserved for requests.", s->budget.used);
    print_gauge(out, "process_resident_memory_bytes", "Resident memory.", kn_memory_resident());
    if (!s->ready) return;
    for (size_t i = 0; i < s->model_count; i++) {
        waiting += kn_server_engine_waiting(s->models[i].engine);
        running += kn_server_engine_running(s->models[i].engine);
    }
    print_gauge(out, "knnlm_queue_length", "Requests that wait.", waiting);
    print_gauge(out, "knnlm_jobs", "Jobs that wait or run.", kn_jobs_unfinished(s->jobs));
    print_gauge(out, "knnlm_active_tasks", "Texts and sequences at work.", running);
    fprintf(out, "# HELP knnlm_store_entries Entries of a store.\n# TYPE knnlm_store_entries gauge\n");
    for (size_t i = 0; i < s->model_count; i++) print_stores(&s->models[i], out);
}

enum MHD_Result kn_answer_metrics(kn_exchange *x) {
    char *text = NULL;
    size_t size = 0;
    const char *labels[KN_METRIC_ENDPOINTS];
    FILE *out = open_memstream(&text, &size);
    if (!out) return MHD_NO;
    kn_metrics_print(&x->server->metrics, labels, kn_route_labels(labels), out);
    print_state(x->server, out);
    fclose(out);
    enum MHD_Result result = kn_reply_copy(x, 200, "text/plain; version=0.0.4", text, size);
    free(text);
    return result;
}

enum MHD_Result kn_answer_page(kn_exchange *x) {
    const kn_page_file *f = kn_page_find(x->path);
    struct MHD_Response *response = kn_response_of(x, f->data, *f->size, true);
    if (response) {
        MHD_add_response_header(
            response, "Content-Security-Policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'");
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    }
    return kn_reply_response(x, 200, f->type, response);
}
