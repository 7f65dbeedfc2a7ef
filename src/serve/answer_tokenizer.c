// /tokenize, /detokenize and /tokenizer_info.
#include "serve/json.h"
#include "serve/prompt.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

// Where there is no memory for a longer list, a million further attempts would each ask the system for it.
static void put_ids(const kn_exchange *x, const kn_tokens *tokens, json_t *list) {
    for (size_t i = 0; i < tokens->count && !x->account.shortage; i++)
        json_array_append_new(list, json_integer(tokens->ids[i]));
}

// Harnesses ask for the id of the start token by its name, which as text is ordinary text.
static bool names_start(const kn_tokenizer *t, const kn_prompt *p) {
    const char *start = kn_tokenizer_piece(t, kn_tokenizer_start(t));
    return start && strlen(start) == p->size && memcmp(start, p->text, p->size) == 0;
}

static json_t *tokenize(kn_exchange *x, const kn_prompt *p, bool special, kn_http_error *err) {
    const kn_served_model *m = x->model;
    const kn_tokenizer *t = kn_lm_tokenizer(m->lm);
    kn_tokens tokens = {0};
    knnlm_status status = KNNLM_OK;
    bool fits = true;
    if (!kn_account_take(&x->account, p->size * sizeof *tokens.ids)) {
        kn_account_error(&x->account, "prompt", err);
        return NULL;
    }
    json_t *list = json_array();
    if (names_start(t, p)) {
        json_array_append_new(list, json_integer(kn_tokenizer_start(t)));
    } else {
        if (special) json_array_append_new(list, json_integer(kn_tokenizer_start(t)));
        status = kn_tokenizer_encode(t, p->text, p->size, &tokens);
        fits = status != KNNLM_OK || kn_account_expect(&x->account, tokens.count * KN_COST_ID);
        if (status == KNNLM_OK && fits) put_ids(x, &tokens, list);
    }
    kn_tokens_free(&tokens);
    if (status != KNNLM_OK || !fits) {
        json_decref(list);
        if (fits)
            kn_http_error_status(err, status, knnlm_message());
        else
            kn_account_error(&x->account, "prompt", err);
        return NULL;
    }
    return json_pack("{s:o, s:I, s:i}", "tokens", list, "count", (json_int_t)json_array_size(list),
                     "max_model_len", kn_lm_describe(m->lm)->context);
}

enum MHD_Result kn_answer_tokenize(kn_exchange *x) {
    kn_http_error err = {0};
    kn_prompt p;
    bool special;
    json_t *json = NULL;
    if (kn_tokenize_parse(x->request, &p, &special, &err)) json = tokenize(x, &p, special, &err);
    return json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
}

static json_t *detokenize(kn_exchange *x, const kn_prompt *p, kn_http_error *err) {
    const kn_served_model *m = x->model;
    char *text;
    size_t size;
    if (!kn_ids_check(x, p, "tokens", KN_COST_TEXT, err)) return NULL;
    if (kn_tokenizer_decode(kn_lm_tokenizer(m->lm), p->tokens, p->count, &text, &size) != KNNLM_OK) {
        kn_http_error_status(err, KNNLM_ENOMEM, knnlm_message());
        return NULL;
    }
    json_t *json = kn_json_text(text, size);
    free(text);
    return json_pack("{s:O, s:o}", "prompt", json, "content", json);
}

enum MHD_Result kn_answer_detokenize(kn_exchange *x) {
    kn_http_error err = {0};
    kn_prompt p;
    json_t *json = NULL;
    if (kn_detokenize_parse(x->request, &p, &err)) json = detokenize(x, &p, &err);
    enum MHD_Result result = json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
    kn_prompt_free(&p);
    return result;
}

enum MHD_Result kn_answer_tokenizer_info(kn_exchange *x) {
    const kn_tokenizer *t = kn_lm_tokenizer(x->model->lm);
    const kn_lm_info *info = kn_lm_describe(x->model->lm);
    int32_t start = kn_tokenizer_start(t), end = start;
    for (int32_t i = 0; i < info->vocabulary && end == start; i++)
        if (i != start && kn_lm_ends(x->model->lm, i)) end = i;
    const char *begins = kn_tokenizer_piece(t, start), *ends = kn_tokenizer_piece(t, end);
    const char *template = kn_lm_chat_template(x->model->lm);
    return kn_reply(x, 200,
                    json_pack("{s:s, s:s?, s:s?, s:s?, s:i, s:i, s:i, s:i, s:o}", "tokenizer_class",
                              kn_tokenizer_kind_name(kn_tokenizer_kind_of(t)), "bos_token", begins,
                              "eos_token", ends, "pad_token", ends, "bos_token_id", start, "eos_token_id",
                              end, "vocab_size", info->vocabulary, "model_max_length", info->context,
                              "chat_template",
                              template ? kn_json_text(template, strlen(template)) : json_null()));
}
