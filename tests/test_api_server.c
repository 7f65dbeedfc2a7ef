// A server by the public header: where it listens, what it answers before and after it has a model, how it
// ends, and what it refuses. Answers are held against scores that the header gives without a server.
#include "remembered.h"

#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

// ---------------------------------------------------------------- a client

static int port_of(const knnlm_server *server) {
    int port = 0;
    assert_int_equal(sscanf(knnlm_server_url(server), "http://127.0.0.1:%d/", &port), 1);
    assert_true(port > 0);
    return port;
}

// The status of the answer, 0: nobody listens; the whole of it in `answer`. `headers` are more than usual.
static int ask(int port, const char *what, const char *headers, const char *body, char *answer, size_t size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    char request[4096];
    size_t used = 0;
    int status = 0, n = snprintf(request, sizeof request,
                                 "%s HTTP/1.1\r\n%sConnection: close\r\n"
                                 "Content-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                                 what, strstr(headers, "Host:") ? "" : "Host: localhost\r\n", strlen(body),
                                 headers, body);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(client, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(client, request, (size_t)n, MSG_NOSIGNAL) == n)
        for (ssize_t got = 1; got > 0 && used + 1 < size; used += got > 0 ? (size_t)got : 0)
            got = recv(client, answer + used, size - 1 - used, 0);
    close(client);
    answer[used] = 0;
    sscanf(answer, "HTTP/1.1 %d", &status);
    return status;
}

static int get(int port, const char *path) {
    char head[100], answer[4096];
    snprintf(head, sizeof head, "GET %s", path);
    return ask(port, head, "", "", answer, sizeof answer);
}

static knnlm_server *open_server(const knnlm_server_options *given) {
    knnlm_server_options o = given ? *given : knnlm_server_options_default();
    knnlm_server *server;
    o.port = 0;
    OK(knnlm_server_open(&o, &server));
    return server;
}

// ---------------------------------------------------------------- its life

static void *run(void *server) {
    assert_int_equal(knnlm_server_run(server), KNNLM_OK);
    return NULL;
}

static void it_listens_serves_and_ends(void **state) {
    fixture *d = *state;
    const char *store;
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_server *server = open_server(NULL);
    pthread_t thread;
    int port = port_of(server);
    assert_int_equal(get(port, "/health"), 503);
    FAILS(KNNLM_EINVAL, "no model", knnlm_server_run(server));
    OK(knnlm_server_load(server, d->model, &mix));
    assert_int_equal(get(port, "/health"), 200);
    FAILS(KNNLM_EINVAL, "once", knnlm_server_load(server, d->model, &mix));
    assert_int_equal(pthread_create(&thread, NULL, run, server), 0);
    assert_int_equal(get(port, "/v1/models"), 200);
    knnlm_server_stop(server);
    pthread_join(thread, NULL);
    OK(knnlm_server_run(server)); // it stays stopped
    assert_int_equal(get(port, "/health"), 200);
    knnlm_server_close(server);
    assert_int_equal(get(port, "/health"), 0);
    knnlm_server_close(NULL);
}

static knnlm_server *interrupted;

static void stop(int number) {
    (void)number;
    knnlm_server_stop(interrupted);
}

static void a_handler_of_signals_stops_it(void **state) {
    fixture *d = *state;
    struct sigaction old, new = {.sa_handler = stop};
    interrupted = open_server(NULL);
    OK(knnlm_server_load(interrupted, d->model, NULL));
    sigaction(SIGALRM, &new, &old);
    alarm(1);
    OK(knnlm_server_run(interrupted));
    sigaction(SIGALRM, &old, NULL);
    knnlm_server_close(interrupted);
}

// ---------------------------------------------------------------- its answers

static double number_after(const char *text, const char *name) {
    const char *at = strstr(text, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

// Perplexities of a text, by the server and without it: the model alone, and with the store.
static void answers_are_those_of_the_mixture(void **state) {
    fixture *d = *state;
    const char *store;
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_mixture *m;
    knnlm_server *server = open_server(NULL), *other = open_server(NULL);
    float *p = test_alloc(2 * d->count, sizeof *p), *lm = p + d->count;
    double sum = 0, sum_lm = 0;
    char body[200], answer[1 << 16];
    OK(knnlm_mixture_open(d->model, &mix, &m));
    OK(knnlm_mixture_score(m, d->tokens, d->count, NULL, p, lm));
    for (size_t i = 0; i < d->count; i++) {
        sum -= (double)p[i];
        sum_lm -= (double)lm[i];
    }
    knnlm_mixture_close(m);
    OK(knnlm_server_load(server, d->model, &mix)); // the other has none: two do not disturb each other
    snprintf(body, sizeof body, "{\"text\": \"%.*s\\n\"}", (int)strlen(asked) - 1, asked);
    assert_int_equal(ask(port_of(server), "POST /v1/score", "", body, answer, sizeof answer), 200);
    assert_int_equal(number_after(answer, "\"count\":"), d->count);
    assert_true(fabs(log(number_after(answer, "\"ppl\":")) - sum / (double)d->count) < 1e-3);
    assert_true(fabs(log(number_after(answer, "\"ppl_lm\":")) - sum_lm / (double)d->count) < 1e-3);
    assert_int_equal(ask(port_of(other), "POST /v1/score", "", body, answer, sizeof answer), 503);
    knnlm_server_close(server);
    knnlm_server_close(other);
    free(p);
}

#define WITH_KEY "Authorization: Bearer secret\r\n"

static void options_are_obeyed(void **state) {
    fixture *d = *state;
    const char *store, *names[] = {"proxy.example"};
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_server_options o = knnlm_server_options_default();
    char key[] = "secret", answer[4096];
    o.api_key = key;
    o.read_only = true;
    o.max_body = 100;
    o.allowed_hosts = names;
    o.allowed_host_count = 1;
    knnlm_server *server = open_server(&o);
    names[0] = NULL; // options are copied
    memset(key, 'x', 6);
    OK(knnlm_server_load(server, d->model, &mix));
    int port = port_of(server);
    char longer[200] = "{\"text\": \"";
    memset(longer + strlen(longer), 'a', 100);
    strcat(longer, "\"}");
    assert_int_equal(get(port, "/v1/models"), 401);
    assert_int_equal(ask(port, "GET /v1/models", WITH_KEY, "", answer, sizeof answer), 200);
    assert_int_equal(
        ask(port, "GET /v1/models", WITH_KEY "Host: proxy.example\r\n", "", answer, sizeof answer), 200);
    assert_int_equal(
        ask(port, "GET /v1/models", WITH_KEY "Host: other.example\r\n", "", answer, sizeof answer), 403);
    assert_int_equal(ask(port, "POST /v1/stores/text/documents", WITH_KEY,
                         "{\"name\": \"a\", \"text\": \"b\"}", answer, sizeof answer),
                     403);
    assert_int_equal(ask(port, "POST /v1/score", WITH_KEY, longer, answer, sizeof answer), 413);
    knnlm_server_close(server);
}

static void note_warning(void *context, const char *path, const char *message) {
    atomic_int *heard = context;
    if (strstr(path, "text.store") && strstr(message, "MANIFEST")) ++*heard;
}

// What another process does to a store is looked at; where that cannot be read, it is told once.
static void damage_is_told(void **state) {
    fixture *d = *state;
    const char *store;
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_server_options o = knnlm_server_options_default();
    atomic_int heard = 0;
    char path[128];
    o.warn = note_warning;
    o.warn_context = &heard;
    knnlm_server *server = open_server(&o);
    OK(knnlm_server_load(server, d->model, &mix));
    snprintf(path, sizeof path, "%s/MANIFEST", d->store);
    FILE *f = fopen(path, "w");
    fputs("nothing", f);
    fclose(f);
    for (int i = 0; i < 100 && !heard; i++) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_int_equal(heard, 1);
    assert_int_equal(get(port_of(server), "/health"), 200);
    knnlm_server_close(server);
}

// ---------------------------------------------------------------- several models, another key, a log

static void models_are_chosen_by_name(void **state) {
    fixture *d = *state;
    const char *store;
    char answer[8192];
    knnlm_server_options o = knnlm_server_options_default();
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_model *other;
    o.models = 2;
    knnlm_server *server = open_server(&o);
    int port = port_of(server);
    OK(knnlm_model_open(KN_SOURCE_DIR "/tests/golden/plain.model.gguf", NULL, &other));
    OK(knnlm_server_load(server, d->model, &mix));
    assert_int_equal(get(port, "/health"), 503); // until both are there
    FAILS(KNNLM_EINVAL, "1 of its 2", knnlm_server_run(server));
    OK(knnlm_server_load(server, other, NULL));
    assert_int_equal(get(port, "/health"), 200);
    assert_int_equal(get(port, "/v1/models/plain.model"), 200);
    const char *named = "{\"prompt\": \"a\", \"max_tokens\": 1, \"model\": \"plain.model\"}";
    assert_int_equal(ask(port, "POST /v1/completions", "", named, answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\"model\":\"plain.model\""));
    const char *unknown = "{\"prompt\": \"a\", \"model\": \"nobody\"}";
    assert_int_equal(ask(port, "POST /v1/completions", "", unknown, answer, sizeof answer), 404);
    FAILS(KNNLM_EINVAL, "once", knnlm_server_load(server, other, NULL));
    knnlm_server_close(server);
    knnlm_model_close(other);
}

static size_t lines_of(const char *path) {
    FILE *f = fopen(path, "r");
    size_t lines = 0;
    for (int c; f && (c = getc(f)) != EOF;) lines += c == '\n';
    if (f) fclose(f);
    return lines;
}

static void keys_and_logs_are_changed_on_the_way(void **state) {
    fixture *d = *state;
    char path[96], old[100], answer[4096];
    knnlm_server_options o = knnlm_server_options_default();
    snprintf(path, sizeof path, "%s/access", d->folder);
    snprintf(old, sizeof old, "%s.1", path);
    o.api_key = "first";
    o.access_log = path;
    knnlm_server *server = open_server(&o);
    OK(knnlm_server_load(server, d->model, NULL));
    int port = port_of(server);
    static const char first[] = "Authorization: Bearer first\r\n", second[] = "Authorization: Bearer 2\r\n";
    assert_int_equal(ask(port, "GET /v1/models", first, "", answer, sizeof answer), 200);
    OK(knnlm_server_set_key(server, "2"));
    assert_int_equal(ask(port, "GET /v1/models", first, "", answer, sizeof answer), 401);
    assert_int_equal(rename(path, old), 0);
    OK(knnlm_server_reopen_log(server));
    assert_int_equal(ask(port, "GET /v1/models", second, "", answer, sizeof answer), 200);
    FAILS(KNNLM_EINVAL, "empty", knnlm_server_set_key(server, ""));
    knnlm_server_close(server);
    assert_int_equal(lines_of(old), 2);
    assert_int_equal(lines_of(path), 1);
    server = open_server(NULL);
    FAILS(KNNLM_EINVAL, "no key", knnlm_server_set_key(server, "x"));
    OK(knnlm_server_reopen_log(server));
    knnlm_server_close(server);
}

// ---------------------------------------------------------------- what is refused

#define REFUSED(status, text, field, value)                                                                  \
    do {                                                                                                     \
        knnlm_server_options o = knnlm_server_options_default();                                             \
        knnlm_server *server = (knnlm_server *)&o;                                                           \
        o.port = 0;                                                                                          \
        o.field = value;                                                                                     \
        FAILS(status, text, knnlm_server_open(&o, &server));                                                 \
        assert_null(server);                                                                                 \
    } while (0)

static void options_that_make_no_sense(void **state) {
    const char *names[KNNLM_ALLOWED_HOSTS_MAX + 1] = {0};
    knnlm_server_options o = knnlm_server_options_default();
    knnlm_server *first, *second;
    (void)state;
    REFUSED(KNNLM_EINVAL, "`host`", host, NULL);
    REFUSED(KNNLM_EINVAL, "`host` nowhere.invalid", host, "nowhere.invalid");
    REFUSED(KNNLM_EINVAL, "give an `api_key`, or say `no_key`", host, "0.0.0.0");
    REFUSED(KNNLM_EINVAL, "`api_key`", api_key, "");
    REFUSED(KNNLM_EINVAL, "`queue`", queue, 0);
    REFUSED(KNNLM_EINVAL, "`parallel`", parallel, 0);
    REFUSED(KNNLM_EINVAL, "`parallel`", parallel, SIZE_MAX);
    REFUSED(KNNLM_EINVAL, "`max_tokens`", max_tokens, 0);
    REFUSED(KNNLM_EINVAL, "`max_memory`", max_memory, 999999);
    REFUSED(KNNLM_EINVAL, "`connections`", connections, 0);
    REFUSED(KNNLM_EINVAL, "`connections`", connections, SIZE_MAX);
    REFUSED(KNNLM_EINVAL, "`per_address`", per_address, 10001);
    REFUSED(KNNLM_EINVAL, "`models`", models, 0);
    REFUSED(KNNLM_EINVAL, "`models`", models, 17);
    REFUSED(KNNLM_EIO, "/nowhere/log", access_log, "/nowhere/log");
    REFUSED(KNNLM_EINVAL, "`timeout`", timeout, 0);
    REFUSED(KNNLM_EINVAL, "`timeout`", timeout, NAN);
    REFUSED(KNNLM_EINVAL, "`patience`", patience, -1);
    o.allowed_hosts = names;
    o.allowed_host_count = KNNLM_ALLOWED_HOSTS_MAX + 1;
    FAILS(KNNLM_EINVAL, "17 `allowed_hosts`", knnlm_server_open(&o, &first));
    o = knnlm_server_options_default();
    o.api_key = "key";
    o.no_key = true;
    FAILS(KNNLM_EINVAL, "`no_key`", knnlm_server_open(&o, &first));
    first = open_server(NULL);
    o = knnlm_server_options_default();
    o.port = (uint16_t)port_of(first);
    FAILS(KNNLM_EIO, "cannot be listened on", knnlm_server_open(&o, &second));
    knnlm_server_close(first);
}

static void stores_that_do_not_fit(void **state) {
    fixture *d = *state;
    const char *missing[] = {"/nowhere/at.store"}, *twice[] = {d->store, d->store}, *store;
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_server *server = open_server(NULL);
    knnlm_model *other;
    mix.lambda = 2;
    FAILS(KNNLM_EINVAL, "lambda", knnlm_server_load(server, d->model, &mix));
    mix = options_of(d, &store);
    mix.stores = missing;
    FAILS(KNNLM_EIO, missing[0], knnlm_server_load(server, d->model, &mix));
    FAILS(KNNLM_EINVAL, "once", knnlm_server_load(server, d->model, NULL));
    FAILS(KNNLM_EINVAL, "no model", knnlm_server_run(server));
    assert_int_equal(get(port_of(server), "/health"), 503);
    knnlm_server_close(server);

    server = open_server(NULL);
    mix.stores = twice;
    mix.store_count = 2;
    FAILS(KNNLM_EINVAL, "another store is called \"text\"", knnlm_server_load(server, d->model, &mix));
    knnlm_server_close(server);
    server = open_server(NULL);
    mix = options_of(d, &store);
    OK(knnlm_model_open(KN_SOURCE_DIR "/tests/golden/plain.model.gguf", NULL, &other));
    FAILS(KNNLM_EINVAL, "plain.model.gguf", knnlm_server_load(server, other, &mix));
    knnlm_server_close(server);
    knnlm_model_close(other);
}

static void keys_are_read_from_files(void **state) {
    fixture *d = *state;
    char path[96], *key = path;
    snprintf(path, sizeof path, "%s/key", d->folder);
    FAILS(KNNLM_EIO, path, knnlm_server_read_key(path, &key));
    assert_null(key);
    FILE *f = fopen(path, "w");
    fputs("a-key\nanother\n", f);
    fclose(f);
    chmod(path, 0644);
    FAILS(KNNLM_EINVAL, "everybody", knnlm_server_read_key(path, &key));
    chmod(path, 0600);
    OK(knnlm_server_read_key(path, &key));
    assert_string_equal(key, "a-key");
    knnlm_free(key);
    f = fopen(path, "w");
    fclose(f);
    FAILS(KNNLM_EDATA, "first line", knnlm_server_read_key(path, &key));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(it_listens_serves_and_ends),
        TEST(a_handler_of_signals_stops_it),
        TEST(answers_are_those_of_the_mixture),
        TEST(options_are_obeyed),
        TEST(damage_is_told),
        TEST(models_are_chosen_by_name),
        TEST(keys_and_logs_are_changed_on_the_way),
        cmocka_unit_test(options_that_make_no_sense),
        TEST(stores_that_do_not_fit),
        TEST(keys_are_read_from_files),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
