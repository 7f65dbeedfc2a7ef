// /v1/score and /v1/explain.
#include "serve/http.h"
#include "serve/json.h"

#include "eval/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- score

static json_t *at_temperatures(const kn_asked *a, size_t i) {
    json_t *list = json_array();
    for (size_t t = 0; t < a->temperature_count; t++)
        json_array_append_new(list, kn_json_exp(a->knn_at[i * a->temperature_count + t]));
    return list;
}

static json_t *token_json(const kn_server *s, const kn_read_prompt *p, const kn_asked *a, size_t i) {
    const kn_verdict *v = &a->verdicts[i];
    json_t *json = json_pack("{s:i, s:o, s:I, s:f, s:f, s:f, s:o, s:f, s:o, s:f}", "token", p->tokens[i],
                             "text", kn_json_token(kn_lm_tokenizer(s->lm), p->tokens[i]), "offset",
                             (json_int_t)p->offsets[i], "logprob", kn_json_log(v->p), "p", exp(v->p), "p_lm",
                             exp(v->lm), "p_knn", kn_json_exp(v->knn), "lambda", v->lambda, "nearest",
                             kn_json_real(v->nearest), "entropy", v->entropy);
    if (a->knn_at) json_object_set_new(json, "p_knn_at", at_temperatures(a, i));
    return json;
}

static json_t *score_json(const kn_exchange *x, const kn_read_prompt *p, const kn_asked *a) {
    const kn_server *s = x->server;
    json_t *tokens = json_array();
    double lm = 0, mixed = 0;
    for (size_t i = 0; i < p->count && !x->account.shortage; i++) {
        lm -= a->verdicts[i].lm;
        mixed -= a->verdicts[i].p;
        json_array_append_new(tokens, token_json(s, p, a, i));
    }
    double n = (double)p->count;
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "object", "score", "model", s->model, "count",
                     (json_int_t)p->count, "ppl", kn_json_real(exp(mixed / n)), "ppl_lm",
                     kn_json_real(exp(lm / n)), "tokens", tokens);
}

static json_t *score(kn_exchange *x, const kn_score_request *r, const kn_read_prompt *p, kn_complaint *c) {
    kn_task task = {.kind = KN_TASK_SCORE, .tokens = p->tokens, .count = p->count};
    kn_asked *a = &task.asked;
    kn_job job;
    json_t *json = NULL;
    size_t each = KN_COST_SCORE + r->knn.temperature_count * KN_COST_TEMPERATURE;
    if (!kn_account_expect(&x->account, p->count * each)) {
        kn_account_complain(&x->account, r->text.text ? "text" : "tokens", c);
        return NULL;
    }
    if (!kn_shelf_select(x->server->shelf, &r->knn, false, &task.selection, c)) return NULL;
    *a = (kn_asked){.temperatures = r->knn.temperatures, .temperature_count = r->knn.temperature_count};
    a->verdicts = kn_alloc(p->count + 1, sizeof *a->verdicts);
    if (a->temperature_count) a->knn_at = kn_alloc(p->count * a->temperature_count + 1, sizeof *a->knn_at);
    kn_job_init(&job);
    if (!a->verdicts || (a->temperature_count && !a->knn_at))
        kn_complain_memory(c);
    else if (kn_exchange_run(x, &job, &task, 1, c))
        json = score_json(x, p, &task.asked);
    kn_job_destroy(&job);
    free(a->verdicts);
    free(a->knn_at);
    return json;
}

enum MHD_Result kn_answer_score(kn_exchange *x) {
    kn_complaint c = {0};
    kn_score_request r;
    kn_read_prompt p = {0};
    enum MHD_Result result;
    json_t *root = kn_exchange_json(x, &result), *json = NULL;
    if (!root) return result;
    if (kn_score_parse(root, &r, &c) &&
        kn_prompt_read(x, &r.text, true, r.text.text ? "text" : "tokens", &p, &c))
        json = score(x, &r, &p, &c);
    result = json ? kn_reply(x, 200, json) : kn_reply_complaint(x, &c);
    kn_prompt_free(&r.text);
    kn_read_prompt_free(&p);
    json_decref(root);
    return result;
}

// ---------------------------------------------------------------- explain

static bool find_target(const kn_server *s, const kn_explain_request *r, int32_t *out, kn_complaint *c) {
    int32_t vocabulary = kn_lm_describe(s->lm)->vocabulary;
    bool more;
    *out = (int32_t)r->target_token;
    if (r->target && r->target_token >= 0)
        return kn_complain(c, 400, NULL, "target", "either 'target' or 'target_token'");
    if (r->target_token >= vocabulary)
        return kn_complain(c, 400, NULL, "target_token", "'target_token' must be below %d", vocabulary);
    if (!r->target) return true;
    knnlm_status status =
        kn_explain_target(s->lm, r->context.text ? r->context.text : "x", r->target, out, &more);
    return status == KNNLM_OK || kn_complain(c, 400, NULL, "target", "'target': %s", knnlm_message());
}

static json_t *explain(kn_exchange *x, const kn_explain_request *r, const kn_read_prompt *p,
                       kn_complaint *c) {
    kn_task task = {.kind = KN_TASK_EXPLAIN,
                    .tokens = p->tokens,
                    .count = p->count,
                    .words = r->words,
                    .neighbors = r->neighbors,
                    .around = r->around};
    kn_job job;
    size_t each = 1000 + 2 * r->around * KN_COST_TEXT * 8; // tokens of eight bytes
    if (!kn_account_expect(&x->account, (r->words + r->neighbors) * each)) {
        kn_account_complain(&x->account, "neighbors", c);
        return NULL;
    }
    if (!kn_shelf_select(x->server->shelf, &r->knn, false, &task.selection, c) ||
        !find_target(x->server, r, &task.target, c))
        return NULL;
    kn_job_init(&job);
    bool done = kn_exchange_run(x, &job, &task, 1, c);
    kn_job_destroy(&job);
    if (!done) {
        json_decref(task.answer);
        return NULL;
    }
    json_object_set_new(task.answer, "object", json_string("explanation"));
    json_object_set_new(task.answer, "model", json_string(x->server->model));
    return task.answer;
}

enum MHD_Result kn_answer_explain(kn_exchange *x) {
    kn_complaint c = {0};
    kn_explain_request r;
    kn_read_prompt p = {0};
    enum MHD_Result result;
    json_t *root = kn_exchange_json(x, &result), *json = NULL;
    if (!root) return result;
    if (kn_explain_parse(root, &r, &c) &&
        kn_prompt_read(x, &r.context, false, r.context.text ? "context" : "tokens", &p, &c))
        json = explain(x, &r, &p, &c);
    result = json ? kn_reply(x, 200, json) : kn_reply_complaint(x, &c);
    kn_prompt_free(&r.context);
    kn_read_prompt_free(&p);
    json_decref(root);
    return result;
}
