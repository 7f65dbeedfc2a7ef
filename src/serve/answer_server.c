// /health, /metrics and the page: how the server fares, before there is a model too.
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

static void print_gauge(FILE *out, const char *name, const char *help, uint64_t value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 "\n", name, help, name, name, value);
}

static void print_state(kn_server *s, FILE *out) {
    print_gauge(out, "knnlm_connections", "Connections open now.", s->metrics.connections);
    print_gauge(out, "knnlm_request_memory_bytes", "Memory reserved for requests.", s->budget.used);
    print_gauge(out, "process_resident_memory_bytes", "Resident memory.", kn_memory_resident());
    if (!s->ready) return;
    print_gauge(out, "knnlm_queue_length", "Requests that wait.", kn_server_engine_waiting(s->engine));
    print_gauge(out, "knnlm_active_tasks", "Texts and sequences at work.",
                kn_server_engine_running(s->engine));
    fprintf(out, "# HELP knnlm_store_entries Entries of a store.\n# TYPE knnlm_store_entries gauge\n");
    for (size_t i = 0; i < kn_served_count(s->served); i++) {
        fputs("knnlm_store_entries{store=\"", out);
        for (const char *c = kn_served_name(s->served, i); *c; c++) {
            if (*c == '"' || *c == '\\') fputc('\\', out);
            if (*c != '\n') fputc(*c, out);
        }
        fprintf(out, "\"} %" PRIu64 "\n", kn_served_entries(s->served, i));
    }
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
    struct MHD_Response *response =
        MHD_create_response_from_buffer(*f->size, (void *)f->data, MHD_RESPMEM_PERSISTENT);
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
