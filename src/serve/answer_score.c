// /v1/score: every token of a text, given those before it.
#include "serve/json.h"
#include "serve/prompt.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"
#include "store/contents.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *at_temperatures(const kn_score_text *a, size_t i) {
    json_t *list = json_array();
    for (size_t t = 0; t < a->temperature_count; t++)
        json_array_append_new(list, kn_json_exp(a->knn_at[i * a->temperature_count + t]));
    return list;
}

static json_t *token_json(const kn_served_model *m, const kn_read_prompt *p, const kn_score_text *a,
                          size_t i) {
    const kn_score_result *v = &a->results[i];
    json_t *json = json_pack("{s:i, s:o, s:I, s:f, s:f, s:f, s:o, s:f, s:o, s:f}", "token", p->tokens[i],
                             "text", kn_json_token(kn_lm_tokenizer(m->lm), p->tokens[i]), "offset",
                             (json_int_t)p->offsets[i], "logprob", kn_json_log(v->p), "p", exp(v->p), "p_lm",
                             exp(v->lm), "p_knn", kn_json_exp(v->knn), "lambda", v->lambda, "nearest",
                             kn_json_real(v->nearest), "entropy", v->entropy);
    if (a->knn_at) json_object_set_new(json, "p_knn_at", at_temperatures(a, i));
    return json;
}

static json_t *score_json(const kn_exchange *x, const kn_read_prompt *p, const kn_score_text *a) {
    const kn_served_model *m = x->model;
    json_t *tokens = json_array();
    double lm = 0, mixed = 0;
    for (size_t i = 0; i < p->count && !x->account.shortage; i++) {
        lm -= a->results[i].lm;
        mixed -= a->results[i].p;
        json_array_append_new(tokens, token_json(m, p, a, i));
    }
    double n = (double)p->count;
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "object", "score", "model", m->name, "count",
                     (json_int_t)p->count, "ppl", kn_json_real(exp(mixed / n)), "ppl_lm",
                     kn_json_real(exp(lm / n)), "tokens", tokens);
}

// ---------------------------------------------------------------- what documents did

static json_t *gain_json(const kn_exchange *x, const kn_request_gain *g) {
    const char *store = kn_served_name(x->model->served, g->of.store);
    return json_pack("{s:o, s:o, s:I, s:f}", "store", kn_json_text(store, strlen(store)), "document",
                     kn_json_text(g->name, g->name_size), "entry", (json_int_t)g->of.entry, "gain",
                     g->of.gain);
}

static json_t *gains_json(const kn_exchange *x, const kn_selection *selection, const kn_request_gains *g) {
    json_t *stores = json_array(), *documents = json_array();
    double sum = 0;
    for (size_t i = 0; i < kn_served_count(x->model->served); i++) {
        const char *name = kn_served_name(x->model->served, i);
        if (!(selection->stores >> i & 1)) continue;
        json_array_append_new(
            stores, json_pack("{s:o, s:f}", "store", kn_json_text(name, strlen(name)), "gain", g->stores[i]));
        sum += g->stores[i];
    }
    for (size_t i = 0; i < g->count && !x->account.shortage; i++)
        json_array_append_new(documents, gain_json(x, &g->listed[i]));
    return json_pack("{s:f, s:o, s:o, s:{s:I, s:f}}", "total", sum, "stores", stores, "documents", documents,
                     "others", "documents", (json_int_t)(g->documents - g->count), "gain", g->others);
}

// ---------------------------------------------------------------- a request

// Of a page of names, and of sums for every document.
static bool take_gains(kn_exchange *x, size_t documents, kn_http_error *err) {
    return !documents ||
           (kn_account_take(&x->account, kn_served_gain_bytes(x->model->served)) &&
            kn_account_expect(&x->account, documents * KN_COST_GAIN)) ||
           kn_account_error(&x->account, "documents", err);
}

static json_t *score(kn_exchange *x, const kn_score_request *r, const kn_read_prompt *p, kn_http_error *err) {
    kn_request_task task = {
        .kind = KN_REQUEST_SCORE, .tokens = p->tokens, .count = p->count, .gains_wanted = r->documents};
    kn_score_text *a = &task.scoring;
    kn_request_job job;
    json_t *json = NULL;
    size_t each = KN_COST_SCORE + r->knn.temperature_count * KN_COST_TEMPERATURE;
    if (!kn_account_expect(&x->account, p->count * each)) {
        kn_account_error(&x->account, r->text.text ? "text" : "tokens", err);
        return NULL;
    }
    if (!take_gains(x, r->documents, err) || !kn_exchange_take_choice(x, &r->knn, 1, err) ||
        !kn_served_select(x->model->served, &r->knn, false, &task.selection, err))
        return NULL;
    task.selection.without_content = r->knn.exclude_self;
    kn_content_hash(p->text, p->size, task.selection.content);
    *a = (kn_score_text){.temperatures = r->knn.temperatures, .temperature_count = r->knn.temperature_count};
    a->results = kn_alloc(p->count + 1, sizeof *a->results);
    if (a->temperature_count) a->knn_at = kn_alloc(p->count * a->temperature_count + 1, sizeof *a->knn_at);
    kn_request_job_init(&job);
    if (!a->results || (a->temperature_count && !a->knn_at))
        kn_http_error_memory(err);
    else if (kn_exchange_run(x, &job, &task, 1, err))
        json = score_json(x, p, &task.scoring);
    if (json && r->knn.exclude_self)
        json_object_set_new(
            json, "excluded",
            json_integer((json_int_t)kn_served_copies(x->model->served, task.selection.content)));
    if (json && r->documents) json_object_set_new(json, "gain", gains_json(x, &task.selection, &task.gains));
    kn_request_job_destroy(&job);
    kn_request_gains_free(&task.gains);
    free(a->results);
    free(a->knn_at);
    return json;
}

enum MHD_Result kn_answer_score(kn_exchange *x) {
    kn_http_error err = {0};
    kn_score_request r;
    kn_read_prompt p = {0};
    json_t *json = NULL;
    if (kn_score_parse(x->request, &r, &err) &&
        kn_prompt_read(x, &r.text, KN_PROMPT_TEXT, r.text.text ? "text" : "tokens", &p, &err))
        json = score(x, &r, &p, &err);
    enum MHD_Result result = json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
    kn_score_free(&r);
    kn_read_prompt_free(&p);
    return result;
}
