// /v1/embeddings: texts as vectors, which are the model's tapped states.
#include "serve/json.h"
#include "serve/prompt.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct embedding {
    kn_exchange *x;
    kn_embedding_request r;
    size_t width;
    kn_read_prompt *texts;
    kn_request_task *tasks;
    float *vectors; // (texts, width)
} embedding;

// ---------------------------------------------------------------- asking

static bool take_memory(const embedding *e, kn_http_error *err) {
    size_t each = e->width * (sizeof(float) + (e->r.base64 ? 32 : KN_COST_NUMBER)) + 1000;
    return kn_account_expect(&e->x->account, e->r.input_count * each) ||
           kn_account_error(&e->x->account, "input", err);
}

static bool read_texts(embedding *e, kn_http_error *err) {
    size_t n = e->r.input_count;
    e->texts = kn_alloc(n, sizeof *e->texts);
    e->tasks = kn_alloc(n, sizeof *e->tasks);
    if (!e->texts || !e->tasks) return kn_http_error_memory(err);
    for (size_t i = 0; i < n; i++)
        if (!kn_prompt_read(e->x, &e->r.inputs[i], 0, "input", &e->texts[i], err)) return false;
    return true;
}

static bool make_tasks(embedding *e, kn_http_error *err) {
    size_t n = e->r.input_count;
    e->vectors = kn_alloc(n * e->width, sizeof *e->vectors);
    if (!e->vectors) return kn_http_error_memory(err);
    for (size_t i = 0; i < n; i++)
        e->tasks[i] = (kn_request_task){.kind = KN_REQUEST_EMBED,
                                        .tokens = e->texts[i].tokens,
                                        .count = e->texts[i].count,
                                        .last_alone = e->r.last,
                                        .vector = e->vectors + i * e->width};
    return true;
}

static bool run(embedding *e, kn_http_error *err) {
    kn_request_job job;
    kn_request_job_init(&job);
    bool done = kn_exchange_run(e->x, &job, e->tasks, e->r.input_count, err);
    kn_request_job_destroy(&job);
    return done;
}

// ---------------------------------------------------------------- answering

// Of length 1, as OpenAI's: inner products are cosines.
static void normalize(float *vector, size_t width) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) sum += (double)vector[i] * (double)vector[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (size_t i = 0; i < width; i++) vector[i] = (float)((double)vector[i] * scale);
}

static json_t *numbers_json(const float *vector, size_t width) {
    json_t *list = json_array();
    for (size_t i = 0; i < width; i++) json_array_append_new(list, json_real((double)vector[i]));
    return list;
}

// Little-endian f32 in base64 (RFC 4648).
static json_t *base64_json(const float *vector, size_t width) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)vector;
    size_t size = width * sizeof *vector, used = 0;
    char *out = kn_alloc((size + 2) / 3 * 4 + 1, 1);
    if (!out) return NULL;
    for (size_t i = 0; i < size; i += 3) {
        unsigned long three = (unsigned long)bytes[i] << 16;
        if (i + 1 < size) three |= (unsigned long)bytes[i + 1] << 8;
        if (i + 2 < size) three |= bytes[i + 2];
        out[used++] = digits[three >> 18];
        out[used++] = digits[three >> 12 & 63];
        out[used++] = i + 1 < size ? digits[three >> 6 & 63] : '=';
        out[used++] = i + 2 < size ? digits[three & 63] : '=';
    }
    json_t *json = json_stringn_nocheck(out, used);
    free(out);
    return json;
}

static json_t *embeddings_json(const embedding *e) {
    const char *name = e->x->model->name;
    json_t *list = json_array();
    size_t tokens = 0;
    for (size_t i = 0; i < e->r.input_count && !e->x->account.shortage; i++) {
        float *vector = e->vectors + i * e->width;
        if (!e->r.keep_length) normalize(vector, e->width);
        json_t *json = e->r.base64 ? base64_json(vector, e->width) : numbers_json(vector, e->width);
        json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                                              (json_int_t)i, "embedding", json));
        tokens += e->texts[i].count;
    }
    return json_pack("{s:s, s:o, s:o, s:{s:I, s:I}}", "object", "list", "data", list, "model",
                     kn_json_text(name, strlen(name)), "usage", "prompt_tokens", (json_int_t)tokens,
                     "total_tokens", (json_int_t)tokens);
}

static void embedding_free(embedding *e) {
    for (size_t i = 0; e->texts && i < e->r.input_count; i++) kn_read_prompt_free(&e->texts[i]);
    kn_embedding_free(&e->r);
    free(e->texts);
    free(e->tasks);
    free(e->vectors);
}

enum MHD_Result kn_answer_embeddings(kn_exchange *x) {
    kn_http_error err = {0};
    embedding e = {.x = x, .width = (size_t)kn_lm_describe(x->model->lm)->key_width};
    bool done = kn_embedding_parse(x->request, (int64_t)e.width, &e.r, &err) && read_texts(&e, &err) &&
                take_memory(&e, &err) && make_tasks(&e, &err) && run(&e, &err);
    enum MHD_Result result = done ? kn_reply(x, 200, embeddings_json(&e)) : kn_reply_error(x, &err);
    embedding_free(&e);
    return result;
}
