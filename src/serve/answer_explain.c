// /v1/explain: why a word is probable after a context.
#include "serve/json.h"
#include "serve/prompt.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

// Appends the tokens of the target.
static bool find_target(const kn_served_model *m, const kn_explain_request *r, const char *context,
                        kn_tokens *out, kn_http_error *err) {
    int32_t vocabulary = kn_lm_describe(m->lm)->vocabulary;
    if (r->target && r->target_token >= 0)
        return kn_http_error_set(err, 400, NULL, "target", "either 'target' or 'target_token'");
    if (r->target_token >= vocabulary)
        return kn_http_error_set(err, 400, NULL, "target_token", "'target_token' must be below %d",
                                 vocabulary);
    if (r->target_token >= 0)
        return kn_tokens_push(out, (int32_t)r->target_token, 0) == KNNLM_OK || kn_http_error_memory(err);
    if (!r->target) return true;
    knnlm_status status = kn_explain_target(m->lm, context, r->target, out);
    return status == KNNLM_OK || kn_http_error_set(err, 400, NULL, "target", "'target': %s", knnlm_message());
}

// The context as the target's first letter sees it: without a space that was left to it. Of ids nobody knows;
// they are taken to end with a word.
static char *context_text(const kn_explain_request *r, const kn_read_prompt *p) {
    if (!r->context.text) return kn_strdup("x");
    return kn_strndup(r->context.text, r->context.size - p->space);
}

// The context's tokens, then the target's.
static bool find_tokens(kn_exchange *x, const kn_explain_request *r, const kn_read_prompt *p, kn_tokens *out,
                        kn_http_error *err) {
    char *context = context_text(r, p);
    knnlm_status status = context ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < p->count && status == KNNLM_OK; i++) status = kn_tokens_push(out, p->tokens[i], 0);
    bool fine = status == KNNLM_OK ? find_target(x->model, r, context, out, err) : kn_http_error_memory(err);
    free(context);
    return fine;
}

static json_t *words_json(const kn_served_model *m, const kn_explanation *x) {
    json_t *words = json_array();
    for (size_t i = 0; i < x->word_count; i++) {
        const knnlm_word *w = &x->words[i];
        json_array_append_new(words, json_pack("{s:i, s:o, s:f, s:f, s:o, s:b}", "token", w->token, "text",
                                               kn_json_token(kn_lm_tokenizer(m->lm), w->token), "p", w->p,
                                               "p_lm", w->lm, "p_knn", kn_json_real(w->knn), "target",
                                               w->token == x->target));
    }
    return words;
}

// All tokens of the target, each after those before it, and their products.
static json_t *target_json(const kn_served_model *m, const kn_explanation *x) {
    double p = 1, lm = 1, knn = 1;
    json_t *tokens = json_array();
    for (size_t i = 0; i < x->target_count; i++) {
        const knnlm_word *w = &x->targets[i];
        p *= w->p;
        lm *= w->lm;
        knn *= w->knn;
        json_array_append_new(tokens, json_pack("{s:i, s:o, s:f, s:f, s:o}", "token", w->token, "text",
                                                kn_json_token(kn_lm_tokenizer(m->lm), w->token), "p", w->p,
                                                "p_lm", w->lm, "p_knn", kn_json_real(w->knn)));
    }
    if (x->target_count)
        return json_pack("{s:f, s:f, s:o, s:o}", "p", p, "p_lm", lm, "p_knn", kn_json_real(knn), "tokens",
                         tokens);
    json_decref(tokens);
    return json_null();
}

static json_t *neighbor_json(const kn_served_model *m, const kn_neighbor_detail *n) {
    const kn_origin *o = &n->origin;
    const char *store = kn_served_name(m->served, n->store);
    return json_pack("{s:o, s:I, s:i, s:o, s:o, s:o, s:f, s:o, s:o, s:I, s:I}", "store",
                     kn_json_text(store, strlen(store)), "entry", (json_int_t)n->id, "token", n->value,
                     "text", kn_json_text(o->word, o->word_size), "before",
                     kn_json_text(o->before, o->before_size), "after", kn_json_text(o->after, o->after_size),
                     "share", n->share, "distance", kn_json_real(n->distance), "document",
                     kn_json_text(o->document.name, o->document.name_size), "position",
                     (json_int_t)o->entry.position, "offset", (json_int_t)o->entry.offset);
}

static json_t *explanation_json(const kn_served_model *m, const kn_explanation *x) {
    json_t *neighbors = json_array();
    for (size_t i = 0; i < x->neighbor_count; i++)
        json_array_append_new(neighbors, neighbor_json(m, &x->neighbors[i]));
    return json_pack("{s:I, s:b, s:f, s:o, s:f, s:o, s:o, s:o, s:s, s:o}", "tokens", (json_int_t)x->tokens,
                     "cut", x->cut, "lambda", x->lambda, "nearest", kn_json_real(x->nearest), "entropy",
                     x->entropy, "words", words_json(m, x), "target", target_json(m, x), "neighbors",
                     neighbors, "object", "explanation", "model", kn_json_text(m->name, strlen(m->name)));
}

static json_t *explain(kn_exchange *x, const kn_explain_request *r, const kn_tokens *tokens, size_t context,
                       kn_http_error *err) {
    kn_request_task task = {.kind = KN_REQUEST_EXPLAIN,
                            .tokens = tokens->ids,
                            .count = context,
                            .targets = tokens->count - context,
                            .words = r->words,
                            .neighbors = r->neighbors,
                            .around = r->around};
    kn_request_job job;
    size_t each = 1000 + 2 * r->around * KN_COST_TEXT * 8; // tokens of eight bytes
    if (!kn_account_expect(&x->account, (r->words + r->neighbors) * each)) {
        kn_account_error(&x->account, "neighbors", err);
        return NULL;
    }
    if (!kn_served_select(x->model->served, &r->knn, false, &task.selection, err)) return NULL;
    task.selection.always = true; // it is about neighbours
    kn_request_job_init(&job);
    bool done = kn_exchange_run(x, &job, &task, 1, err);
    kn_request_job_destroy(&job);
    json_t *json = done ? explanation_json(x->model, &task.explanation.found) : NULL;
    kn_request_explanation_free(&task.explanation);
    return json;
}

enum MHD_Result kn_answer_explain(kn_exchange *x) {
    kn_http_error err = {0};
    kn_explain_request r;
    kn_read_prompt p = {0};
    kn_tokens tokens = {0};
    json_t *json = NULL;
    if (kn_explain_parse(x->request, &r, &err) &&
        kn_prompt_read(x, &r.context, KN_PROMPT_CONTINUED, r.context.text ? "context" : "tokens", &p, &err) &&
        find_tokens(x, &r, &p, &tokens, &err))
        json = explain(x, &r, &tokens, p.count, &err);
    enum MHD_Result result = json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
    kn_explain_free(&r);
    kn_read_prompt_free(&p);
    kn_tokens_free(&tokens);
    return result;
}
