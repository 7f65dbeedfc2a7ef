// A server with a tiny model and a store of a few words, asked without sockets.
#ifndef FUZZ_SERVER_KIT_H
#define FUZZ_SERVER_KIT_H

#include "base/threads.h"
#include "folder.h"
#include "http_kit.h"

#include <jansson.h>
#include <math.h>

// What a request may cost is small: an input is worth a millisecond.
enum { SERVER_BODY_MAX = 2048, SERVER_TOKENS_MAX = 8 };

typedef struct served {
    kn_lm *lm;
    kn_server *server;
    struct MHD_Connection *connection;
} served;

static const char server_model[] = KN_SOURCE_DIR "/tests/golden/shared.model.gguf";

static inline void server_need(knnlm_status status) {
    if (status != KNNLM_OK) http_die(knnlm_message());
}

static inline void server_write(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(text, 1, strlen(text), file) != strlen(text) || fclose(file) != 0) abort();
}

// The store is made anew, as FOLDER/NAME.store.
static inline void server_make_store(const char *path) {
    char command[200], text[160];
    const char *texts[] = {text};
    knnlm_model *model;
    knnlm_build_options o = knnlm_build_options_default();
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) abort();
    snprintf(text, sizeof text, "%s/told.txt", folder);
    server_write(text, "The cat sees the dog, and the dog sees a caf\xc3\xa9. The end.\n");
    server_need(knnlm_model_open(server_model, NULL, &model));
    o.force = true;
    server_need(knnlm_build(model, path, texts, 1, &o, NULL));
    knnlm_model_close(model);
}

static inline knnlm_server_options server_options(void) {
    knnlm_server_options o = knnlm_server_options_default();
    o.port = 1;
    o.max_body = SERVER_BODY_MAX;
    o.max_tokens = SERVER_TOKENS_MAX;
    return o;
}

// `store` NULL: the server has no model yet.
static inline served server_open(const knnlm_server_options *o, const char *store) {
    served s = {0};
    kn_store_choice choice = {.path = store, .weight = NAN, .temperature = NAN};
    kn_mixture_options mix = {.stores = &choice,
                              .store_count = 1,
                              .lambda = NAN,
                              .temperature = NAN,
                              .distance = -1,
                              .fallback = true,
                              .cache_lambda = NAN,
                              .cache_temperature = NAN};
    server_need(kn_server_open(o, &s.server));
    if (store) {
        server_need(kn_lm_open(server_model, NULL, &s.lm));
        server_need(kn_server_load(s.server, s.lm, &mix));
    }
    s.connection = http_connect(http_daemon);
    return s;
}

static inline void server_close(served *s) {
    http_disconnect(s->connection);
    kn_server_close(s->server, 1);
    kn_lm_close(s->lm);
}

static inline void server_header(served *s, const char *name, const char *value) {
    http_add(s->connection->fields, &s->connection->field_count, MHD_HEADER_KIND,
             http_copy(name, strlen(name)), http_copy(value, strlen(value)));
}

// ---------------------------------------------------------------- what every answer must be

// jansson reads no NUL in a key, which tokens of single bytes have: another control character stands for it.
static inline json_t *server_json(const http_answer *a) {
    char *copy = http_copy(a->body, a->size);
    for (char *at = copy; (at = strstr(at, "\\u0000")); at += 6) at[5] = '1';
    json_t *root = json_loadb(copy, a->size, JSON_DECODE_ANY, NULL);
    if (!root) {
        fprintf(stderr, "%s\n", copy);
        http_die("an answer that is no JSON");
    }
    free(copy);
    return root;
}

static inline bool server_is_json(const http_answer *a) {
    const char *type = http_header(a, "Content-Type");
    return type && strcmp(type, "application/json") == 0;
}

// An error is of OpenAI's shape; the server's own failure is none that an input may cause.
static inline void server_check(const http_answer *a) {
    if (a->status < 200 || a->status > 599) http_die("no such status");
    if (a->status == 500) http_die(a->body ? a->body : "500");
    if (a->status < 400) return;
    json_t *root = server_json(a), *error = json_object_get(root, "error");
    if (!json_is_string(json_object_get(error, "message")) || !json_is_string(json_object_get(error, "type")))
        http_die("an error without a message or type");
    json_decref(root);
}

#endif
