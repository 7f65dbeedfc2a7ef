// knnlm serve: the HTTP server.
#include "cli/mixture.h"
#include "cli/model.h"
#include "cli/notify.h"
#include "cli/serve_models.h"
#include "cli/settings.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    cli_common common;
    cli_mixture mixture;
    cli_list allowed_hosts, models;
    const char *host, *api_key, *key_file, *cors, *config, *access_log;
    int64_t port, queue, parallel, max_tokens, connections, per_address;
    uint64_t max_body, max_memory;
    double timeout;
    bool read_only, no_key, log_json;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_LIST, &args.models, "FILE", "the model (default: the one that the first store was made with); may be given several times: clients choose by name", 0, 0, NULL},
    {0, "config", CLI_STRING, &args.config, "FILE", "more options: lines NAME = VALUE (also KNNLM_SERVE_NAME in the environment)", 0, 0, NULL},
    CLI_STORES_OPTIONS(args.mixture),
    CLI_MIXTURE_OPTIONS(args.mixture),
    CLI_PROBES_OPTIONS(args.mixture),
    {0, "host", CLI_STRING, &args.host, "ADDRESS", "where to listen (default: 127.0.0.1, this machine only; 0.0.0.0: everywhere, with a key)", 0, 0, NULL},
    {0, "port", CLI_INTEGER, &args.port, "N", "default: 8080; 0: any that is free", 0, 65535, NULL},
    {0, "api-key", CLI_STRING, &args.api_key, "KEY", "ask clients for this key (default: $KNNLM_API_KEY, else none)", 0, 0, NULL},
    {0, "api-key-file", CLI_STRING, &args.key_file, "FILE", "the same, from the first line of a file that not everybody can read", 0, 0, NULL},
    {0, "no-key", CLI_FLAG, &args.no_key, NULL, "other machines may ask, and change stores, without a key", 0, 0, NULL},
    {0, "allowed-host", CLI_LIST, &args.allowed_hosts, "NAME", "clients may call the server so, behind a proxy for example; may be given several times", 0, 0, NULL},
    {0, "read-only", CLI_FLAG, &args.read_only, NULL, "no document is added to or removed from a store", 0, 0, NULL},
    {0, "access-log", CLI_STRING, &args.access_log, "FILE", "a line for each request, never its texts; -: on standard error (default: none)", 0, 0, NULL},
    {0, "access-log-json", CLI_FLAG, &args.log_json, NULL, "its lines are JSON", 0, 0, NULL},
    {0, "cors", CLI_STRING, &args.cors, "ORIGIN", "let pages of this origin ask, such as https://example.org; *: all (default: only our own)", 0, 0, NULL},
    {0, "parallel", CLI_INTEGER, &args.parallel, "N", "texts generated at a time (default: 8)", 1, 256, NULL},
    {0, "queue", CLI_INTEGER, &args.queue, "N", "requests that may wait; more are told to come again (default: 256)", 1, 1 << 20, NULL},
    {0, "max-tokens", CLI_INTEGER, &args.max_tokens, "N", "of a text, or of a prompt and its answer (default: 16384)", 1, 1 << 24, NULL},
    {0, "max-body", CLI_BYTES, &args.max_body, "SIZE", "of a request (default: 16M)", 0, 0, NULL},
    {0, "timeout", CLI_NUMBER, &args.timeout, "S", "seconds that a request may take (default: 300)", 0.1, 1e6, NULL},
    {0, "max-memory", CLI_BYTES, &args.max_memory, "SIZE", "of all requests at a time, half of it for one; more are told to come again (default: 1G)", 0, 0, NULL},
    {0, "connections", CLI_INTEGER, &args.connections, "N", "at a time (default: 512)", 1, 10000, NULL},
    {0, "connections-per-address", CLI_INTEGER, &args.per_address, "N", "of one client (default: a quarter of them; all on 127.0.0.1)", 1, 10000, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_ACCEPT_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static struct {
    sigset_t set;
    _Atomic(knnlm_server *) serving; // NULL: nothing yet
} signals;

static void complain(const char *what) {
    char text[1000];
    cli_message(knnlm_message(), text, sizeof text);
    fprintf(stderr, "knnlm serve: warning: %s: %s\n", what, text);
}

// SIGHUP: the log was renamed, or the key's file has another one. What cannot be had leaves things as they
// were.
static void reload(knnlm_server *server) {
    char *key = NULL;
    cli_notify("RELOADING=1");
    if (knnlm_server_reopen_log(server) != KNNLM_OK) complain("the access log stays where it was");
    if (args.key_file && (knnlm_server_read_key(args.key_file, &key) != KNNLM_OK ||
                          knnlm_server_set_key(server, key) != KNNLM_OK))
        complain("the key stays what it was");
    knnlm_free(key);
    cli_notify("READY=1");
}

// Before there is anything to serve, nothing is lost by ending at once.
static void *wait_for_signals(void *context) {
    int which = SIGHUP;
    (void)context;
    while (sigwait(&signals.set, &which) == 0 && which == SIGHUP) {
        knnlm_server *server = signals.serving;
        if (server) reload(server);
    }
    knnlm_server *server = signals.serving;
    if (!server) {
        fprintf(stderr, "knnlm serve: interrupted\n");
        _exit(CLI_FAILED);
    }
    cli_notify("STOPPING=1");
    knnlm_server_stop(server);
    return NULL;
}

// Signals are waited for rather than caught: all threads are started with them blocked.
static knnlm_status expect_signals(void) {
    pthread_t thread;
    sigemptyset(&signals.set);
    sigaddset(&signals.set, SIGINT);
    sigaddset(&signals.set, SIGTERM);
    sigaddset(&signals.set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals.set, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&thread, NULL, wait_for_signals, NULL))
        return kn_fail(KNNLM_ENOMEM, "cannot start a thread");
    pthread_detach(thread);
    return KNNLM_OK;
}

// Batches come and go by the ten megabytes: blocks of that size go back to the system when they are freed,
// rather than being cut up and kept. The first trim is here and not in one of the server's threads: where a
// sanitizer's allocator stands in for glibc's, it is the trim that sets glibc's up, and two at once would do
// that twice.
static void return_memory(void) {
    mallopt(M_ARENA_MAX, 2); // a heap per connection would keep the most that each ever took
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    malloc_trim(0);
}

static void print_json(const knnlm_server *server) {
    cli_print_json(json_pack("{s:o?, s:o?, s:o?}", "url", json_string(knnlm_server_url(server)), "models",
                             cli_json_list(&args.models), "stores", cli_json_list(&args.mixture.stores)));
}

static void print_text(const knnlm_server *server, size_t stores) {
    printf("%s serves %s", knnlm_server_url(server), args.models.items[0]);
    if (args.models.count > 1) printf(" and %zu more", args.models.count - 1);
    printf(" with %zu store%s\n", stores, stores == 1 ? "" : "s");
}

static void tell_ready(const knnlm_server *server, size_t stores) {
    if (args.common.json)
        print_json(server);
    else
        print_text(server, stores);
    fflush(stdout);
    cli_notify("READY=1");
}

static knnlm_status serve_models(knnlm_server *server, cli_models *models, const knnlm_mixture_options *mix) {
    KN_TRY(cli_models_load(&args.models, &args.common, mix, server, models));
    signals.serving = server;
    tell_ready(server, mix->store_count);
    KN_TRY(knnlm_server_run(server));
    if (args.common.verbose) fprintf(stderr, "knnlm serve: ending: requests that run are finished\n");
    return KNNLM_OK;
}

// The address is taken first: who cannot have it need not wait for the model.
static knnlm_status serve(const knnlm_server_options *o, const knnlm_mixture_options *mix) {
    knnlm_server *server;
    cli_models models = {0};
    return_memory();
    KN_TRY(expect_signals());
    KN_TRY(knnlm_server_open(o, &server));
    if (args.common.verbose)
        fprintf(stderr, "knnlm serve: %s answers 503 until the model is open\n", knnlm_server_url(server));
    knnlm_status status = serve_models(server, &models, mix);
    knnlm_server_close(server);
    cli_models_close(&models);
    return status;
}

static void warn(void *context, const char *store, const char *message) {
    (void)context;
    fprintf(stderr, "knnlm serve: warning: %s: served as it was before, since it cannot be opened: %s\n",
            store, message);
}

static knnlm_server_options make_options(const char *key) {
    knnlm_server_options o = knnlm_server_options_default();
    o.host = args.host;
    o.port = (uint16_t)args.port;
    o.api_key = key && *key ? key : NULL;
    o.no_key = args.no_key;
    o.allowed_hosts = args.allowed_hosts.items;
    o.allowed_host_count = args.allowed_hosts.count;
    o.cors = args.cors;
    o.read_only = args.read_only;
    o.queue = (size_t)args.queue;
    o.parallel = (size_t)args.parallel;
    o.max_tokens = (size_t)args.max_tokens;
    o.max_body = (size_t)args.max_body;
    o.max_memory = (size_t)args.max_memory;
    o.connections = (size_t)args.connections;
    o.per_address = (size_t)args.per_address;
    o.timeout = args.timeout;
    o.warn = warn;
    o.models = args.models.count;
    o.access_log = args.access_log;
    o.access_log_json = args.log_json;
    return o;
}

static void defaults(void) {
    knnlm_server_options o = knnlm_server_options_default();
    cli_mixture_init(&args.mixture);
    args.host = o.host;
    args.port = o.port;
    args.queue = (int64_t)o.queue;
    args.parallel = (int64_t)o.parallel;
    args.max_tokens = (int64_t)o.max_tokens;
    args.max_body = o.max_body;
    args.max_memory = o.max_memory;
    args.connections = (int64_t)o.connections;
    args.timeout = o.timeout;
}

// What a header can carry, as keys in files are (an empty one would let everybody in).
static bool is_key(const char *key) {
    size_t size = strlen(key), plain = 0;
    while (plain < size && key[plain] > ' ' && key[plain] <= '~') plain++;
    return size && size <= 1024 && plain == size;
}

static int check_usage(size_t count) {
    if (count) return cli_usage(&cli_serve, "stores are given with -s");
    if (args.max_memory < 1000000) return cli_usage(&cli_serve, "--max-memory: at least 1M");
    if (args.api_key && !is_key(args.api_key))
        return cli_usage(&cli_serve,
                         "--api-key: a key is 1 to 1024 printable ASCII characters without spaces");
    if (args.api_key && args.key_file) return cli_usage(&cli_serve, "either --api-key or --api-key-file");
    if (args.no_key && (args.api_key || args.key_file)) return cli_usage(&cli_serve, "a key and --no-key");
    if (args.log_json && !args.access_log)
        return cli_usage(&cli_serve, "--access-log-json is of --access-log");
    if (args.models.count > CLI_MODELS_MAX)
        return cli_usage(&cli_serve, "-m: at most %d models", CLI_MODELS_MAX);
    return CLI_DONE;
}

// The environment may have a key for other servers.
static knnlm_status serve_with_key(const knnlm_mixture_options *mix) {
    char *read = NULL;
    if (args.key_file) KN_TRY(knnlm_server_read_key(args.key_file, &read));
    const char *key = args.api_key ? args.api_key : read ? read : getenv("KNNLM_API_KEY");
    knnlm_server_options o = make_options(args.no_key ? NULL : key);
    knnlm_status status = serve(&o, mix);
    knnlm_free(read);
    return status;
}

// Without -m: the model that made the first store.
static int find_model(void) {
    const char *model = NULL;
    if (args.models.count) return CLI_DONE;
    int code = cli_mixture_find_model(&cli_serve, &args.mixture, &model);
    if (code == CLI_DONE) args.models.items[args.models.count++] = model;
    return code;
}

static int run_with(const cli_arguments *a) {
    knnlm_mixture_options mix;
    char **rest;
    size_t count;
    int code =
        cli_parse(&cli_serve, options, sizeof options / sizeof *options, a->count, a->words, &rest, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_mixture_read(&cli_serve, &args.mixture, &mix);
    if (code == CLI_DONE) code = find_model();
    if (code == CLI_DONE) code = cli_start(&cli_serve, &args.common);
    if (code == CLI_DONE && serve_with_key(&mix) != KNNLM_OK) code = cli_fail(&cli_serve);
    cli_mixture_free(&args.mixture);
    return code;
}

static int run(int argc, char **argv) {
    cli_arguments arguments;
    defaults();
    int code =
        cli_settings_read(&cli_serve, options, sizeof options / sizeof *options, argc, argv, &arguments);
    if (code == CLI_DONE) code = run_with(&arguments);
    cli_arguments_free(&arguments);
    return code;
}

const cli_command cli_serve = {
    .name = "serve",
    .summary = "answer over HTTP: OpenAI's completions and chat, scores, explanations, and a page to look at",
    .usage = "[-m MODEL] [-s STORE]... [options]",
    .examples = "  knnlm serve -s notes.store\n"
                "  knnlm serve -m my.gguf -s notes.store -s wiki.store --port 9000 --read-only\n"
                "  knnlm serve -m my.gguf -s notes.store --host 0.0.0.0 --api-key-file key\n"
                "  curl localhost:8080/v1/completions -d '{\"prompt\": \"Once upon\", \"max_tokens\": 20}'\n",
    .run = run,
};
