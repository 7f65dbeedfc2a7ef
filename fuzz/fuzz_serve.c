// Bodies of requests, end to end: a server with a tiny model and a store answers them, and what it answers is
// of the shape and within the bounds that docs/protocol.md tells.
//
// An input is a digit, which chooses the path, and the body. A document is added, and removed again, only
// where the sum of its bytes happens to be right: a change takes as long as a hundred answers. The others are
// refused by a server that is read only.
#include "server_kit.h"

static const char *const paths[] = {"/v1/completions",      "/v1/score",
                                    "/v1/explain",          "/tokenize",
                                    "/detokenize",          "/v1/stores/s/documents",
                                    "/v1/chat/completions", "/v1/embeddings"};
enum { COMPLETIONS, SCORE, DOCUMENTS = 5, PATHS = 8, CHANGES_MAX = 200, RARELY = 64, LATER = 202 };

static served server, read_only;
static char store[100];
static int changes; // of the store since it was made

static void renew(void) {
    knnlm_server_options o = server_options();
    if (server.server) {
        server_close(&server);
        server_close(&read_only);
    }
    server_make_store(store);
    server = server_open(&o, store);
    o.read_only = true;
    read_only = server_open(&o, store);
    changes = 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    server_need(kn_threads_set(1));
    folder_enter();
    snprintf(store, sizeof store, "%s/s.store", folder);
    renew();
    return 0;
}

// ---------------------------------------------------------------- judging

static double number(const json_t *object, const char *key, double otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static void expect_share(double x) {
    if (!(x >= 0 && x <= 1 + 1e-6)) http_die("a probability beyond 0 and 1");
}

static void judge_score(const json_t *root) {
    const json_t *token;
    size_t i;
    if ((double)json_array_size(json_object_get(root, "tokens")) != number(root, "count", -1))
        http_die("not as many tokens as it says");
    json_array_foreach (json_object_get(root, "tokens"), i, token) {
        expect_share(number(token, "p", -1));
        expect_share(number(token, "p_lm", -1));
        expect_share(number(token, "p_knn", 0));
        expect_share(number(token, "lambda", -1));
    }
}

// A token has its entry in each of the four.
static void judge_logprobs(const json_t *logprobs) {
    static const char *const lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    const json_t *log;
    size_t count = json_array_size(json_object_get(logprobs, "tokens")), i;
    for (size_t n = 0; n < 4; n++) {
        const json_t *list = json_object_get(logprobs, lists[n]);
        if (!json_is_array(list) || json_array_size(list) != count) http_die("lists of unequal length");
    }
    json_array_foreach (json_object_get(logprobs, "token_logprobs"), i, log)
        if (!json_is_null(log) && !(json_number_value(log) <= 1e-6)) http_die("a probability above 1");
}

static void judge_completion(const json_t *root) {
    const json_t *choice, *logprobs;
    size_t i;
    if (!json_array_size(json_object_get(root, "choices"))) http_die("no choices");
    json_array_foreach (json_object_get(root, "choices"), i, choice) {
        if (!json_is_string(json_object_get(choice, "text"))) http_die("a choice without text");
        if (!json_is_string(json_object_get(choice, "finish_reason"))) http_die("a choice that does not end");
        logprobs = json_object_get(choice, "logprobs");
        if (!logprobs) http_die("a choice without logprobs");
        if (!json_is_null(logprobs)) judge_logprobs(logprobs);
    }
}

static void judge_stream(const http_answer *a) {
    static const char end[] = "data: [DONE]\n\n";
    size_t n = sizeof end - 1;
    if (a->size < n || memcmp(a->body + a->size - n, end, n) != 0) http_die("the stream does not end well");
}

static void judge(int path, const http_answer *a) {
    server_check(a);
    if (a->status >= 300) return;
    if (!server_is_json(a)) {
        judge_stream(a);
        return;
    }
    json_t *root = server_json(a);
    if (path == COMPLETIONS) judge_completion(root);
    if (path == SCORE) judge_score(root);
    json_decref(root);
}

// ---------------------------------------------------------------- documents

// Every byte but a letter as %NN; released with free().
static char *encode(const char *name, size_t size) {
    char *out = malloc(3 * size + 1), *at = out;
    if (!out) abort();
    for (size_t i = 0; i < size; i++)
        at += sprintf(at, (name[i] | 32) >= 'a' && (name[i] | 32) <= 'z' ? "%c" : "%%%02X",
                      (unsigned char)name[i]);
    *at = 0;
    return out;
}

// What was added is there under its name, and goes again: the next input finds the store as it was.
static void withdraw(const char *body, size_t size) {
    json_t *root = json_loadb(body, size, JSON_ALLOW_NUL, NULL), *name = json_object_get(root, "name");
    char *encoded = encode(json_string_value(name), json_string_length(name)), *path;
    http_answer a;
    if (asprintf(&path, "%s/%s", paths[DOCUMENTS], encoded) < 0) abort();
    server_header(&server, "Host", "localhost");
    http_ask(server.connection, "DELETE", path, NULL, 0, &a);
    if (a.status != 200) http_die("added, and cannot be removed");
    http_answer_free(&a);
    free(path);
    free(encoded);
    json_decref(root);
    if (++changes == CHANGES_MAX) renew();
}

static bool is_added(const uint8_t *data, size_t size) {
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) sum += data[i];
    return sum % RARELY == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    http_answer a;
    if (!size || size - 1 > SERVER_BODY_MAX) return 0;
    int path = data[0] % PATHS;
    const char *body = (const char *)data + 1;
    served *s = path == DOCUMENTS && !is_added(data, size) ? &read_only : &server;
    server_header(s, "Host", "localhost");
    http_ask(s->connection, "POST", paths[path], body, size - 1, &a);
    judge(path, &a);
    if (path == DOCUMENTS && a.status == LATER)
        renew(); // whenever that job comes to it
    else if (path == DOCUMENTS && a.status < 300)
        withdraw(body, size - 1);
    http_answer_free(&a);
    return 0;
}
