// /v1/chat/completions: messages to a prompt, and what was generated to a message.
#include "serve/completion.h"
#include "serve/json.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- messages to a prompt

// A base model knows a conversation as texts have it: who speaks, a colon, what he says. What the system is
// told stands before it. The answer ends where the user would speak again.
static const char *const speakers[][2] = {{"system", ""}, {"user", "User: "}, {"assistant", "Assistant: "}};
static const char users_turn[] = "\nUser:";

static const char *speaker(const char *role) {
    size_t i = 0;
    while (strcmp(speakers[i][0], role) != 0) i++;
    return speakers[i][1];
}

// Released with free(); NULL: no memory.
static char *write_plainly(const kn_completion_request *r) {
    const char *last = speaker("assistant");
    size_t size = strlen(last) + 1;
    for (size_t i = 0; i < r->message_count; i++)
        size += strlen(speaker(r->messages[i].role)) + strlen(r->messages[i].content) + 2;
    char *text = kn_alloc(size, 1), *at = text;
    for (size_t i = 0; text && i < r->message_count; i++) {
        at = stpcpy(at, speaker(r->messages[i].role));
        at = stpcpy(at, r->messages[i].content);
        at = stpcpy(at, *speaker(r->messages[i].role) ? "\n" : "\n\n");
    }
    if (text) strcpy(at, last);
    return text;
}

static bool read_plainly(kn_completion *a, kn_read_prompt *out, kn_http_error *err) {
    char *text = write_plainly(&a->r);
    if (!text) return kn_http_error_memory(err);
    kn_prompt p = {.text = text, .size = strlen(text)};
    bool fine = kn_prompt_read(a->x, &p, KN_PROMPT_CONTINUED, "messages", out, err);
    free(text);
    a->r.stops[a->r.stop_count++] = users_turn;
    return fine;
}

static bool take_memory(kn_completion *a, kn_http_error *err) {
    size_t size = 0;
    for (size_t i = 0; i < a->r.message_count; i++) size += 64 + strlen(a->r.messages[i].content);
    return kn_account_take(&a->x->account, size * (2 + KN_COST_TOKEN)) ||
           kn_account_error(&a->x->account, "messages", err);
}

bool kn_chat_read(kn_completion *a, kn_read_prompt *out, kn_http_error *err) {
    kn_tokens tokens = {0};
    *out = (kn_read_prompt){0};
    if (!take_memory(a, err)) return false;
    knnlm_status status = kn_lm_chat(a->model->lm, a->r.messages, a->r.message_count, &tokens);
    out->tokens = tokens.ids;
    out->count = tokens.count;
    if (status == KNNLM_OK) return kn_prompt_check(a->x, out->count, "messages", err);
    kn_read_prompt_free(out);
    if (status != KNNLM_ENOTSUP) return kn_http_error_status(err, status, knnlm_message());
    return read_plainly(a, out, err);
}

// ---------------------------------------------------------------- what was generated

// Tokens may be parts of characters: their bytes tell more than their text.
static json_t *bytes_json(const kn_tokenizer *t, int32_t token) {
    char *text;
    size_t size;
    if (kn_tokenizer_decode(t, &token, 1, &text, &size) != KNNLM_OK) return json_null();
    json_t *list = json_array();
    for (size_t i = 0; i < size; i++) json_array_append_new(list, json_integer((unsigned char)text[i]));
    free(text);
    return list;
}

static json_t *entry_json(const kn_tokenizer *t, int32_t token, double log) {
    return json_pack("{s:o, s:f, s:o}", "token", kn_json_token(t, token), "logprob", kn_json_log(log),
                     "bytes", bytes_json(t, token));
}

json_t *kn_chat_logprob(const kn_completion *a, const kn_generated *g) {
    const kn_tokenizer *t = kn_lm_tokenizer(a->model->lm);
    json_t *entry = entry_json(t, g->token, g->p), *top = json_array();
    for (size_t i = 0; i < g->top_count; i++)
        json_array_append_new(top, entry_json(t, g->top[i], g->top_p[i]));
    json_object_set_new(entry, "top_logprobs", top);
    return entry;
}

// A stream says once whose words these are.
static json_t *delta_json(kn_choice *choice, json_t *text) {
    json_t *delta = json_pack("{s:o}", "content", text);
    if (!choice->spoken) json_object_set_new(delta, "role", json_string("assistant"));
    choice->spoken = true;
    return delta;
}

json_t *kn_chat_choice(const kn_completion *a, kn_choice *choice, json_t *text, json_t *logprobs) {
    json_t *message = a->r.stream
                          ? delta_json(choice, text)
                          : json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal");
    json_t *logs = logprobs ? json_pack("{s:o, s:n}", "content", logprobs, "refusal") : json_null();
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)choice->number,
                     a->r.stream ? "delta" : "message", message, "logprobs", logs, "finish_reason",
                     choice->finish);
}
