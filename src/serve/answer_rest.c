// The paths that need no turn of the model: what it is, its tokenizer, how the server fares, the page.
#include "serve/http.h"
#include "serve/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the model

static json_t *model_json(const kn_server *s) {
    const kn_lm_info *info = kn_lm_describe(s->lm);
    return json_pack("{s:o, s:s, s:I, s:s, s:{s:s, s:s, s:i, s:i, s:I, s:s}}", "id",
                     kn_json_text(s->model, strlen(s->model)), "object", "model", "created",
                     (json_int_t)s->created, "owned_by", "knnlm", "meta", "architecture", info->architecture,
                     "engine", info->engine, "vocabulary", info->vocabulary, "context", info->context,
                     "parameters", (json_int_t)info->parameters, "fingerprint", info->fingerprint);
}

enum MHD_Result kn_answer_models(kn_exchange *x) {
    return kn_reply(x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(x->server)));
}

enum MHD_Result kn_answer_model(kn_exchange *x) {
    kn_complaint c;
    if (strcmp(x->rest, x->server->model) == 0) return kn_reply(x, 200, model_json(x->server));
    kn_complain(&c, 404, "model_not_found", NULL, "no model is called '%.100s'", x->rest);
    return kn_reply_complaint(x, &c);
}

// ---------------------------------------------------------------- the tokenizer

static json_t *ids_json(const int32_t *tokens, size_t count, json_t *list) {
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_integer(tokens[i]));
    return list;
}

// Harnesses ask for the id of the start token by its name, which as text is ordinary text.
static bool names_start(const kn_tokenizer *t, const kn_prompt *p) {
    const char *start = kn_tokenizer_piece(t, kn_tokenizer_start(t));
    return start && strlen(start) == p->size && memcmp(start, p->text, p->size) == 0;
}

static json_t *tokenize(kn_exchange *x, const kn_prompt *p, bool special, kn_complaint *c) {
    const kn_server *s = x->server;
    const kn_tokenizer *t = kn_lm_tokenizer(s->lm);
    kn_tokens tokens = {0};
    knnlm_status status = KNNLM_OK;
    bool fits = true;
    if (!kn_account_take(&x->account, p->size * sizeof *tokens.ids)) {
        kn_account_complain(&x->account, "prompt", c);
        return NULL;
    }
    json_t *list = json_array();
    if (names_start(t, p)) {
        json_array_append_new(list, json_integer(kn_tokenizer_start(t)));
    } else {
        if (special) json_array_append_new(list, json_integer(kn_tokenizer_start(t)));
        status = kn_tokenizer_encode(t, p->text, p->size, &tokens);
        fits = status != KNNLM_OK || kn_account_expect(&x->account, tokens.count * KN_COST_ID);
        if (status == KNNLM_OK && fits) ids_json(tokens.ids, tokens.count, list);
    }
    kn_tokens_free(&tokens);
    if (status != KNNLM_OK || !fits) {
        json_decref(list);
        if (fits)
            kn_complain_status(c, status, knnlm_message());
        else
            kn_account_complain(&x->account, "prompt", c);
        return NULL;
    }
    return json_pack("{s:o, s:I, s:i}", "tokens", list, "count", (json_int_t)json_array_size(list),
                     "max_model_len", kn_lm_describe(s->lm)->context);
}

enum MHD_Result kn_answer_tokenize(kn_exchange *x) {
    kn_complaint c = {0};
    kn_prompt p;
    bool special;
    enum MHD_Result result;
    json_t *root = kn_exchange_json(x, &result), *json = NULL;
    if (!root) return result;
    if (kn_tokenize_parse(root, &p, &special, &c)) json = tokenize(x, &p, special, &c);
    result = json ? kn_reply(x, 200, json) : kn_reply_complaint(x, &c);
    json_decref(root);
    return result;
}

static json_t *detokenize(kn_exchange *x, const kn_prompt *p, kn_complaint *c) {
    const kn_server *s = x->server;
    char *text;
    size_t size;
    if (!kn_ids_check(x, p, "tokens", KN_COST_TEXT, c)) return NULL;
    if (kn_tokenizer_decode(kn_lm_tokenizer(s->lm), p->tokens, p->count, &text, &size) != KNNLM_OK) {
        kn_complain_status(c, KNNLM_ENOMEM, knnlm_message());
        return NULL;
    }
    json_t *json = kn_json_text(text, size);
    free(text);
    return json_pack("{s:O, s:o}", "prompt", json, "content", json);
}

enum MHD_Result kn_answer_detokenize(kn_exchange *x) {
    kn_complaint c = {0};
    kn_prompt p;
    enum MHD_Result result;
    json_t *root = kn_exchange_json(x, &result), *json = NULL;
    if (!root) return result;
    if (kn_detokenize_parse(root, &p, &c)) json = detokenize(x, &p, &c);
    result = json ? kn_reply(x, 200, json) : kn_reply_complaint(x, &c);
    kn_prompt_free(&p);
    json_decref(root);
    return result;
}

enum MHD_Result kn_answer_tokenizer_info(kn_exchange *x) {
    const kn_tokenizer *t = kn_lm_tokenizer(x->server->lm);
    const kn_lm_info *info = kn_lm_describe(x->server->lm);
    int32_t start = kn_tokenizer_start(t), end = start;
    for (int32_t i = 0; i < info->vocabulary && end == start; i++)
        if (i != start && kn_lm_ends(x->server->lm, i)) end = i;
    const char *begins = kn_tokenizer_piece(t, start), *ends = kn_tokenizer_piece(t, end);
    return kn_reply(x, 200,
                    json_pack("{s:s, s:s?, s:s?, s:s?, s:i, s:i, s:i, s:i, s:n}", "tokenizer_class",
                              kn_tokenizer_kind_name(kn_tokenizer_kind_of(t)), "bos_token", begins,
                              "eos_token", ends, "pad_token", ends, "bos_token_id", start, "eos_token_id",
                              end, "vocab_size", info->vocabulary, "model_max_length", info->context,
                              "chat_template"));
}

// ---------------------------------------------------------------- the server

enum MHD_Result kn_answer_health(kn_exchange *x) {
    kn_complaint c;
    if (x->server->ready) return kn_reply(x, 200, json_pack("{s:s}", "status", "ok"));
    kn_complain(&c, 503, "loading", NULL, "the model is being opened");
    return kn_reply_complaint(x, &c);
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
    for (size_t i = 0; i < kn_shelf_count(s->shelf); i++) {
        fputs("knnlm_store_entries{store=\"", out);
        for (const char *c = kn_shelf_name(s->shelf, i); *c; c++) {
            if (*c == '"' || *c == '\\') fputc('\\', out);
            if (*c != '\n') fputc(*c, out);
        }
        fprintf(out, "\"} %" PRIu64 "\n", kn_shelf_entries(s->shelf, i));
    }
}

enum MHD_Result kn_answer_metrics(kn_exchange *x) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return MHD_NO;
    kn_metrics_print(&x->server->metrics, kn_endpoints, kn_endpoint_count(), out);
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
