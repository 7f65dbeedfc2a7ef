// Heads of requests, whatever method, path, query and headers: each is answered or refused as it must be, and
// nobody is let in who does not belong.
//
// An input is a digit, which chooses the server, and a request as it goes over the wire.
#include "server_kit.h"

#include <arpa/inet.h>

#define KEY "sesame"
#define FRIEND "https://friend.example"

enum { OPEN, LOCKED, LOADING, ANYBODY, SERVERS, TEXT_MAX = 4096 };
static served servers[SERVERS];

static void open_servers(const char *store) {
    knnlm_server_options o = server_options();
    servers[OPEN] = server_open(&o, store);
    o.read_only = true;
    servers[LOADING] = server_open(&o, NULL);
    o.cors = "*";
    servers[ANYBODY] = server_open(&o, store);
    o.api_key = KEY;
    o.cors = FRIEND;
    servers[LOCKED] = server_open(&o, store);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    char store[100];
    (void)argc;
    (void)argv;
    server_need(kn_threads_set(1));
    folder_enter();
    snprintf(store, sizeof store, "%s/s.store", folder);
    server_make_store(store);
    open_servers(store);
    return 0;
}

// ---------------------------------------------------------------- the request

typedef struct head {
    char *method, *target, *key, *origin, *host; // key: of Authorization; in `text`
    const char *body;
    size_t size;
    char text[TEXT_MAX + 1];
} head;

static char *take_line(char **at, char *end) {
    char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    *at = stop < end ? stop + 1 : end;
    *stop = 0;
    line[strcspn(line, "\r")] = 0;
    return line;
}

static void take_header(served *s, head *h, char *line) {
    size_t n = strcspn(line, ":");
    if (!n || !line[n]) return;
    line[n] = 0;
    char *value = line + n + 1 + strspn(line + n + 1, " \t");
    if (strcasecmp(line, "Authorization") == 0 && !h->key) h->key = value;
    if (strcasecmp(line, "Origin") == 0 && !h->origin) h->origin = value;
    if (strcasecmp(line, "Host") == 0 && !h->host) h->host = value;
    server_header(s, line, value);
}

// As libmicrohttpd: a path begins with "/", and nothing holds a NUL.
static bool take_head(served *s, head *h, const uint8_t *data, size_t size) {
    char *at = h->text, *end = h->text + size;
    if (memchr(data, 0, size)) return false;
    memcpy(h->text, data, size);
    *end = 0;
    h->method = take_line(&at, end);
    h->target = h->method + strcspn(h->method, " ");
    if (*h->target) *h->target++ = 0;
    h->target[strcspn(h->target, " ")] = 0;
    if (!*h->method || *h->target != '/') return false;
    for (char *line; at < end && *(line = take_line(&at, end));) take_header(s, h, line);
    h->body = at;
    h->size = (size_t)(end - at);
    return true;
}

// ---------------------------------------------------------------- judging

// Reads of the page and of the server's health need no key, nor does a browser that asks whether it may ask.
static bool needs_key(const head *h) {
    size_t n = strcspn(h->target, "?");
    if (strcmp(h->method, "OPTIONS") == 0) return false;
    const char *dot = memchr(h->target, '.', n);
    return !(n == 1 || (n == 7 && strncmp(h->target, "/health", 7) == 0) ||
             (dot && !memchr(h->target + 1, '/', n - 1)));
}

static void judge_locked(const head *h, const http_answer *a) {
    bool right = h->key && strncasecmp(h->key, "Bearer ", 7) == 0 && strcmp(h->key + 7, KEY) == 0;
    if (a->status < 300 && needs_key(h) && !right) http_die("let in without the key");
    const char *allowed = http_header(a, "Access-Control-Allow-Origin");
    if (allowed && strcmp(allowed, FRIEND) != 0) http_die("lets another origin read");
}

// A name or address of the machine that a client on it may call it by, with a port or without.
static bool is_own(const char *host) {
    char name[INET6_ADDRSTRLEN + 2];
    struct in_addr four;
    struct in6_addr six;
    size_t size = strlen(host), digits = 0;
    while (digits < size && strchr("0123456789", host[size - 1 - digits])) digits++;
    if (digits < size && host[size - 1 - digits] == ':') size -= digits + 1;
    if (size >= sizeof name) return false;
    memcpy(name, host, size);
    name[size] = 0;
    if (strcasecmp(name, "localhost") == 0) return true;
    if (inet_pton(AF_INET, name, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (size < 2 || name[0] != '[' || name[size - 1] != ']') return false;
    name[size - 1] = 0;
    return inet_pton(AF_INET6, name + 1, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static void judge(int number, const head *h, const http_answer *a) {
    server_check(a);
    if (number == LOCKED) judge_locked(h, a);
    if (number != ANYBODY && h->origin && a->status < 300 && strstr(h->origin, "evil"))
        http_die("let a foreign page in");
    // DNS rebinding: the page of another name, which leads here, is a page of ours to its browser.
    if (number != ANYBODY && a->status < 300 && !(h->host && is_own(h->host)))
        http_die("answered a foreign Host");
    if (a->status == 405 && !http_header(a, "Allow")) http_die("405 without Allow");
    if (a->status == 401 && !http_header(a, "WWW-Authenticate")) http_die("401 without WWW-Authenticate");
    if (!http_header(a, "X-Content-Type-Options")) http_die("an answer that may be sniffed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static head h;
    http_answer a;
    if (!size || size > TEXT_MAX) return 0;
    int number = data[0] % SERVERS;
    served *s = &servers[number];
    h = (head){0};
    if (!take_head(s, &h, data + 1, size - 1) || h.size > SERVER_BODY_MAX) {
        http_free_fields(s->connection->fields, &s->connection->field_count);
        return 0;
    }
    http_ask(s->connection, h.method, h.target, h.body, h.size, &a);
    judge(number, &h, &a);
    http_answer_free(&a);
    return 0;
}
