// The table of endpoints, and how a request finds its row.
#include "serve/routes.h"

#include "serve/page.h"
#include "serve/percent.h"

#include <stdio.h>
#include <string.h>

enum {
    KEY = KN_NEEDS_KEY,
    MODEL = KN_NEEDS_MODEL,
    BODY = KN_NEEDS_BODY,
    WRITE = KN_NEEDS_WRITE,
    LINES = KN_TAKES_LINES,
};

// clang-format off
static const kn_route routes[] = {
    {"POST", "/v1/completions", kn_answer_completions, "completions", KEY | MODEL | BODY},
    {"POST", "/v1/chat/completions", kn_answer_chat, "chat", KEY | MODEL | BODY},
    {"POST", "/v1/embeddings", kn_answer_embeddings, "embeddings", KEY | MODEL | BODY},
    {"POST", "/v1/score", kn_answer_score, "score", KEY | MODEL | BODY},
    {"POST", "/v1/explain", kn_answer_explain, "explain", KEY | MODEL | BODY},
    {"GET", "/v1/stores", kn_answer_stores, "stores", KEY | MODEL},
    {"GET", "/v1/stores/*", kn_answer_store, "stores", KEY | MODEL},
    {"GET", "/v1/stores/*/documents", kn_answer_documents, "documents", KEY | MODEL},
    {"POST", "/v1/stores/*/documents", kn_answer_add_document, "documents", KEY | MODEL | BODY | LINES | WRITE},
    {"GET", "/v1/stores/*/documents/**", kn_answer_document, "documents", KEY | MODEL},
    {"DELETE", "/v1/stores/*/documents/**", kn_answer_remove_document, "documents", KEY | MODEL | WRITE},
    {"GET", "/v1/stores/*/entries/*", kn_answer_entry, "entries", KEY | MODEL},
    {"POST", "/v1/stores/*/compact", kn_answer_compact, "upkeep", KEY | MODEL | WRITE},
    {"POST", "/v1/stores/*/tune", kn_answer_tune, "upkeep", KEY | MODEL | BODY | WRITE},
    {"POST", "/v1/stores/*/verify", kn_answer_verify, "upkeep", KEY | MODEL},
    {"GET", "/v1/jobs", kn_answer_jobs, "jobs", KEY | MODEL},
    {"GET", "/v1/jobs/*", kn_answer_job, "jobs", KEY | MODEL},
    {"DELETE", "/v1/jobs/*", kn_answer_cancel_job, "jobs", KEY | MODEL},
    {"GET", "/v1/models", kn_answer_models, "models", KEY | MODEL},
    {"GET", "/v1/models/**", kn_answer_model, "models", KEY | MODEL},
    {"POST", "/tokenize", kn_answer_tokenize, "tokenize", KEY | MODEL | BODY},
    {"POST", "/detokenize", kn_answer_detokenize, "detokenize", KEY | MODEL | BODY},
    {"GET", "/tokenizer_info", kn_answer_tokenizer_info, "tokenizer_info", KEY | MODEL},
    {"GET", "/health", kn_answer_health, "health", 0},
    {"GET", "/version", kn_answer_version, "version", 0},
    {"GET", "/openapi.json", kn_answer_openapi, "openapi", 0},
    {"GET", "/metrics", kn_answer_metrics, "metrics", KEY},
    {"GET", NULL, kn_answer_page, "page", 0}, // the files of the page
    {NULL, NULL, NULL, "none", KEY},          // whatever matches no other row
};
// clang-format on
enum { ROUTES = sizeof routes / sizeof *routes, NONE = ROUTES - 1 };
_Static_assert(sizeof routes / sizeof *routes <= KN_METRIC_ENDPOINTS,
               "the metrics have a place for each row");

const kn_route *kn_route_none(void) {
    return &routes[NONE];
}

// ---------------------------------------------------------------- what reads the table

size_t kn_route_number(const kn_route *r) {
    size_t i = 0;
    while (strcmp(routes[i].label, r->label) != 0) i++;
    return i;
}

size_t kn_route_labels(const char **out) {
    for (size_t i = 0; i < ROUTES; i++) out[i] = routes[i].label;
    return ROUTES;
}

// In one order, whatever that of the rows.
void kn_route_methods(char *out, size_t size) {
    static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
    size_t used = 0;
    *out = 0;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        size_t row = 0;
        while (row < NONE && strcmp(routes[row].method, methods[m]) != 0) row++;
        if (row < NONE && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", methods[m]);
    }
}

// ---------------------------------------------------------------- finding a row

// Whether the path, segment by segment, is the route's; those that stars stand for go to the exchange.
static bool matches(const kn_route *r, const char *path, kn_exchange *x) {
    const char *want = r->path;
    x->segment_count = 0;
    x->rest = NULL;
    if (!want) return kn_page_find(path) != NULL;
    while (*want == '/' && *path == '/') {
        size_t n = strcspn(++want, "/"), have = strcspn(++path, "/");
        if (n == 2 && strncmp(want, "**", 2) == 0) {
            x->rest = (char *)path;
            return *path != 0;
        }
        if (n == 1 && *want == '*') {
            if (have == 0 || x->segment_count == KN_SEGMENTS_MAX) return false;
            x->segments[x->segment_count++] = path;
        } else if (n != have || strncmp(want, path, n) != 0) {
            return false;
        }
        want += n;
        path += have;
    }
    return *want == 0 && *path == 0;
}

bool kn_route_decode(kn_exchange *x) {
    for (size_t i = 0; i < x->segment_count; i++) {
        char *segment = (char *)x->segments[i];
        size_t n = strcspn(segment, "/");
        segment[n] = 0;
        if (!kn_percent_decode(segment, n, false)) return false;
    }
    return !x->rest || kn_percent_decode(x->rest, strlen(x->rest), false);
}

static bool allows(const kn_route *r, const char *method) {
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

// "GET, HEAD": HEAD is asked as GET is.
static void list_method(const kn_route *r, char *out, size_t size) {
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s%s", used ? ", " : "", r->method,
             strcmp(r->method, "GET") == 0 ? ", HEAD" : "");
}

const kn_route *kn_route_find(kn_exchange *x, const char *method, char *allowed, size_t size) {
    *allowed = 0;
    for (size_t i = 0; i < NONE; i++) {
        if (!matches(&routes[i], x->path, x)) continue;
        if (allows(&routes[i], method)) return &routes[i];
        list_method(&routes[i], allowed, size);
    }
    return &routes[NONE];
}
