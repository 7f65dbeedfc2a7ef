// Who may ask: well-formed requests (request smuggling), to a name of ours (DNS rebinding), from pages that
// are let in (CSRF, CORS), with the key, and bodies of bounded size.
#include "serve/guard.h"

#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---------------------------------------------------------------- framing

typedef struct counted {
    size_t lengths, encodings, hosts;
} counted;

static enum MHD_Result count(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    counted *n = context;
    (void)kind;
    (void)value;
    n->lengths += strcasecmp(name, "Content-Length") == 0;
    n->encodings += strcasecmp(name, "Transfer-Encoding") == 0;
    n->hosts += strcasecmp(name, "Host") == 0;
    return MHD_YES;
}

// Where a proxy before us may read another length or another host out of a request than we do, what follows
// it on the connection could be somebody else's (request smuggling). The connection ends.
static bool check_framing(kn_exchange *x, kn_http_error *err) {
    counted n = {0};
    const char *encoding = kn_exchange_header(x, "Transfer-Encoding"), *wrong = NULL;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count, &n);
    if (n.lengths > 1)
        wrong = "Content-Length is given more than once";
    else if (n.lengths && n.encodings)
        wrong = "Content-Length and Transfer-Encoding exclude each other";
    else if (n.encodings > 1 || (encoding && strcasecmp(encoding, "chunked") != 0))
        wrong = "Transfer-Encoding must be chunked";
    else if (n.hosts != 1)
        wrong = n.hosts ? "Host is given more than once" : "Host is missing";
    if (!wrong) return true;
    x->last = true;
    return kn_http_error_set(err, 400, NULL, NULL, "%s", wrong);
}

// ---------------------------------------------------------------- hosts

typedef struct host_name {
    char text[256];
    bool six; // it was in brackets
} host_name;

static bool is_address(const host_name *h) {
    struct in_addr four;
    struct in6_addr six;
    return h->six ? inet_pton(AF_INET6, h->text, &six) == 1 : inet_pton(AF_INET, h->text, &four) == 1;
}

// NAME, NAME:PORT or [ADDRESS]:PORT, and nothing else: "[::1].example.org" is a name of somebody's.
static bool parse_host(const char *host, host_name *out) {
    out->six = *host == '[';
    host += out->six;
    size_t n = strcspn(host, out->six ? "]" : ":");
    if (n == 0 || n >= sizeof out->text) return false;
    memcpy(out->text, host, n);
    out->text[n] = 0;
    host += n;
    if (out->six && (*host++ != ']' || !is_address(out))) return false;
    return !*host || (*host == ':' && host[1 + strspn(host + 1, "0123456789")] == 0);
}

static bool is_loopback(const host_name *h) {
    struct in_addr four;
    struct in6_addr six;
    if (h->six) return inet_pton(AF_INET6, h->text, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
    if (inet_pton(AF_INET, h->text, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    return strcasecmp(h->text, "localhost") == 0;
}

static bool is_this_machine(const kn_server *s, const host_name *h) {
    char own[256] = "";
    if (is_loopback(h)) return true;
    if (s->loopback) return false;
    if (gethostname(own, sizeof own - 1)) *own = 0;
    return is_address(h) || strcasecmp(h->text, s->host) == 0 || (*own && strcasecmp(h->text, own) == 0);
}

static bool everybody(const kn_server *s) {
    return s->cors && strcmp(s->cors, "*") == 0;
}

// DNS rebinding: a page of evil.example, whose name suddenly leads here, would be a page of our own to its
// browser. Its requests still say which name they are for: only addresses, which no name service has a say
// in, and names that are known to be ours are answered.
static bool check_host(const kn_exchange *x, kn_http_error *err) {
    const kn_server *s = x->server;
    host_name h;
    if (everybody(s)) return true;
    bool fine = parse_host(kn_exchange_header(x, "Host"), &h);
    bool known = fine && is_this_machine(s, &h);
    for (size_t i = 0; i < s->o.allowed_host_count && fine && !known; i++)
        known = strcasecmp(s->allowed_hosts[i], h.text) == 0;
    if (known) return true;
    return kn_http_error_set(err, 403, "host", NULL,
                             "no name of this server (Host): --allowed-host adds one");
}

// ---------------------------------------------------------------- pages

// Browsers say which page asks. Other pages than our own are not let in, so that no page on the web can read
// or change the stores of who looks at it (CSRF).
static bool check_origin(const kn_exchange *x, kn_http_error *err) {
    const char *origin = kn_exchange_header(x, "Origin"), *host = kn_exchange_header(x, "Host");
    if (!origin || everybody(x->server)) return true;
    if (x->server->cors && strcmp(x->server->cors, origin) == 0) return true;
    const char *after = strncasecmp(origin, "http://", 7) == 0 ? origin + 7
                        : strncasecmp(origin, "https://", 8) == 0
                            ? origin + 8 // behind a proxy that speaks TLS
                            : NULL;
    if (after && strcasecmp(after, host) == 0) return true;
    return kn_http_error_set(err, 403, "origin", NULL, "pages of other origins are not let in (--cors)");
}

// What OpenAI's own client sends from a browser, and what else clients of such servers have.
static bool is_allowed_header(const char *name, size_t size) {
    static const char *const names[] = {"authorization", "content-type",        "accept",
                                        "user-agent",    "openai-organization", "openai-project",
                                        "openai-beta",   "idempotency-key"};
    static const char prefix[] = "x-stainless-";
    size_t rest = sizeof prefix - 1;
    if (size > rest && strncasecmp(name, prefix, rest) == 0) {
        for (size_t i = rest; i < size; i++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", name[i]))
                return false;
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == size && strncasecmp(name, names[i], size) == 0) return true;
    return false;
}

// Those of the headers asked for that are allowed, as many as fit.
static void list_allowed(const char *asked, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "Authorization, Content-Type");
    while (asked && *asked) {
        asked += strspn(asked, ", \t");
        size_t n = strcspn(asked, ", \t");
        if (n && is_allowed_header(asked, n) && used + n + 3 < size)
            used += (size_t)snprintf(out + used, size - used, ", %.*s", (int)n, asked);
        asked += n;
    }
}

enum MHD_Result kn_guard_preflight(kn_exchange *x) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    char methods[64], allowed[1024];
    kn_route_methods(methods, sizeof methods);
    list_allowed(kn_exchange_header(x, "Access-Control-Request-Headers"), allowed, sizeof allowed);
    if (response) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", methods);
        MHD_add_response_header(response, "Access-Control-Allow-Headers", allowed);
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
        MHD_add_response_header(response, "Vary", "Access-Control-Request-Headers");
    }
    return kn_reply_response(x, 204, NULL, response);
}

bool kn_guard_is_preflight(const kn_exchange *x, const char *method) {
    return x->server->cors && strcmp(method, "OPTIONS") == 0 &&
           kn_exchange_header(x, "Access-Control-Request-Method");
}

bool kn_guard_check(kn_exchange *x, kn_http_error *err) {
    return check_framing(x, err) && check_host(x, err) && check_origin(x, err);
}

// ---------------------------------------------------------------- keys

// The time taken tells nothing about how much of the key was right.
static bool same_key(const char *key, const char *given) {
    size_t n = strlen(key), m = strlen(given);
    unsigned char different = n != m;
    for (size_t i = 0; i < n; i++) different |= (unsigned char)(key[i] ^ (m ? given[i % m] : 0));
    return different == 0;
}

bool kn_guard_has_key(const kn_exchange *x) {
    static const char scheme[] = "Bearer ";
    const char *given = kn_exchange_header(x, "Authorization");
    if (!x->server->api_key) return true; // that there is one does not change
    if (!given || strncasecmp(given, scheme, sizeof scheme - 1) != 0) return false;
    pthread_mutex_lock(&x->server->key_lock);
    bool same = same_key(x->server->api_key, given + sizeof scheme - 1);
    pthread_mutex_unlock(&x->server->key_lock);
    return same;
}

// ---------------------------------------------------------------- bodies

static bool body_error(const kn_exchange *x, kn_http_error *err) {
    return kn_http_error_set(err, 413, "body_too_large", NULL, "the body has more than %zu bytes",
                             x->server->o.max_body);
}

bool kn_guard_length(const kn_exchange *x, kn_http_error *err) {
    const char *length = kn_exchange_header(x, "Content-Length");
    return !length || strtoull(length, NULL, 10) <= x->server->o.max_body || body_error(x, err);
}

bool kn_guard_body(kn_exchange *x, size_t more, kn_http_error *err) {
    size_t before = x->capacity;
    if (x->size + more > x->server->o.max_body) return body_error(x, err);
    if (kn_grow(&x->body, &x->capacity, x->size + more + 1, 1) != KNNLM_OK) return kn_http_error_memory(err);
    return kn_account_take(&x->account, x->capacity - before) || kn_account_error(&x->account, NULL, err);
}
