// Pieces of text and their numbers to the choices of an answer.
#include "serve/completion.h"

#include "serve/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- parts

kn_slice kn_slice_open(const kn_completion *a) {
    bool logs = a->r.logprobs >= 0, knn = a->r.knn.explain;
    kn_slice s = {0};
    if (logs) {
        s.tokens = json_array();
        s.logprobs = json_array();
        s.tops = json_array();
        s.offsets = json_array();
    }
    if (knn) {
        s.knn_tokens = json_array();
        s.sources = json_array();
    }
    return s;
}

static bool put_text(kn_slice *slice, const char *text, size_t size) {
    if (kn_grow(&slice->text, &slice->capacity, slice->size + size + 1, 1) != KNNLM_OK) return false;
    memcpy(slice->text + slice->size, text, size);
    slice->size += size;
    slice->text[slice->size] = 0;
    return true;
}

// OpenAI counts characters.
static size_t count_chars(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

// Different tokens may have one text: the more probable stays.
static void put_top(json_t *top, const kn_tokenizer *t, int32_t token, double log) {
    json_t *name = kn_json_token(t, token);
    const char *key = json_is_string(name) ? json_string_value(name) : "";
    size_t size = json_is_string(name) ? json_string_length(name) : 0;
    const json_t *there = json_object_getn(top, key, size);
    if (!there || json_real_value(there) < log) json_object_setn_new_nocheck(top, key, size, json_real(log));
    json_decref(name);
}

// ---------------------------------------------------------------- the prompt

static void put_scored(const kn_completion *a, const kn_choice *choice, kn_slice *slice, size_t i,
                       size_t chars) {
    const kn_read_prompt *p = &a->prompts[choice->prompt];
    const kn_asked *s = &a->tasks[choice->prompt].asked;
    const kn_tokenizer *t = kn_lm_tokenizer(a->server->lm);
    bool first = i == 0 && !p->own_start;
    json_array_append_new(slice->tokens, kn_json_token(t, p->tokens[i]));
    json_array_append_new(slice->offsets, json_integer((json_int_t)chars));
    if (first) {
        json_array_append_new(slice->logprobs, json_null());
        json_array_append_new(slice->tops, json_null());
        return;
    }
    json_t *top = json_object();
    for (size_t j = 0; j < s->top; j++)
        put_top(top, t, s->ranked[i * s->top + j], kn_json_log(s->ranked_p[i * s->top + j]));
    put_top(top, t, p->tokens[i], kn_json_log(s->own_p[i]));
    json_array_append_new(slice->logprobs, json_real(kn_json_log(s->own_p[i])));
    json_array_append_new(slice->tops, top);
}

// A start token that was brought along is the first entry, which has no probability.
static void put_start(const kn_completion *a, kn_slice *slice) {
    const kn_tokenizer *t = kn_lm_tokenizer(a->server->lm);
    json_array_append_new(slice->tokens, kn_json_token(t, kn_tokenizer_start(t)));
    json_array_append_new(slice->offsets, json_integer(0));
    json_array_append_new(slice->logprobs, json_null());
    json_array_append_new(slice->tops, json_null());
}

bool kn_slice_prompt(const kn_completion *a, kn_choice *choice, kn_slice *slice) {
    const kn_read_prompt *p = &a->prompts[choice->prompt];
    json_t *text = kn_json_text(p->text, p->size);
    bool fine = text && put_text(slice, json_string_value(text), json_string_length(text));
    if (slice->tokens && p->own_start) put_start(a, slice);
    size_t chars = 0, at = 0;
    for (size_t i = 0; i < p->count && slice->tokens && !a->x->account.shortage; i++) {
        size_t to = kn_least((size_t)p->offsets[i], p->size);
        if (to > at) chars += count_chars(p->text + at, to - at);
        at = kn_most(at, to);
        put_scored(a, choice, slice, i, chars);
    }
    choice->base = text ? count_chars(json_string_value(text), json_string_length(text)) : 0;
    choice->echoed = true;
    json_decref(text);
    return fine;
}

// ---------------------------------------------------------------- what was generated

static void put_generated(const kn_completion *a, const kn_choice *choice, kn_slice *slice,
                          const json_t *token) {
    const kn_tokenizer *t = kn_lm_tokenizer(a->server->lm);
    const json_t *pair;
    json_t *top = json_object();
    size_t i;
    double log = json_real_value(json_object_get(token, "logprob"));
    json_array_foreach (json_object_get(token, "top"), i, pair)
        put_top(top, t, (int32_t)json_integer_value(json_array_get(pair, 0)),
                json_real_value(json_array_get(pair, 1)));
    put_top(top, t, (int32_t)json_integer_value(json_object_get(token, "token")), log);
    json_array_append(slice->tokens, json_object_get(token, "text"));
    json_array_append(slice->logprobs, json_object_get(token, "logprob"));
    json_array_append_new(slice->tops, top);
    json_array_append_new(slice->offsets, json_integer((json_int_t)choice->base +
                                                       json_integer_value(json_object_get(token, "chars"))));
}

static const char *finish_of(const json_t *piece) {
    const char *finish = json_string_value(json_object_get(piece, "finish"));
    return !finish ? NULL : strcmp(finish, "stop") == 0 ? "stop" : "length";
}

static void put_sources(kn_slice *slice, const json_t *piece, bool all) {
    json_t *sources = json_object_get(piece, "sources");
    if (all) json_array_clear(slice->sources); // the last piece has all of them, as they ended
    if (sources) json_array_extend(slice->sources, sources);
}

bool kn_slice_piece(const kn_completion *a, kn_choice *choice, json_t *piece, kn_slice *slice) {
    const json_t *text = json_object_get(piece, "text");
    const char *bytes = json_string_value(text);
    size_t size = json_string_length(text), i;
    json_t *token;
    choice->finish = finish_of(piece);
    json_array_foreach (json_object_get(piece, "tokens"), i, token) {
        if (slice->tokens) put_generated(a, choice, slice, token);
        json_object_del(token, "top");
        json_object_del(token, "chars");
        if (slice->knn_tokens) json_array_append(slice->knn_tokens, token);
    }
    token = json_object_get(piece, "end");
    if (slice->tokens && json_is_object(token)) put_generated(a, choice, slice, token);
    if (slice->sources) put_sources(slice, piece, choice->finish != NULL);
    return put_text(slice, bytes, size);
}

json_t *kn_slice_close(const kn_choice *choice, kn_slice *slice) {
    json_t *logs =
        slice->tokens ? json_pack("{s:o, s:o, s:o, s:o}", "tokens", slice->tokens, "token_logprobs",
                                  slice->logprobs, "top_logprobs", slice->tops, "text_offset", slice->offsets)
                      : json_null();
    json_t *json = json_pack("{s:o, s:I, s:o, s:s?}", "text", kn_json_text(slice->text, slice->size), "index",
                             (json_int_t)choice->number, "logprobs", logs, "finish_reason", choice->finish);
    if (slice->knn_tokens)
        json_object_set_new(json, "knn",
                            json_pack("{s:o, s:o}", "tokens", slice->knn_tokens, "sources", slice->sources));
    free(slice->text);
    *slice = (kn_slice){0};
    return json;
}

// ---------------------------------------------------------------- pieces

// What fell off scoring, in the shape of what sequences give.
static json_t *next_piece(kn_completion *a, kn_choice *choice) {
    const kn_asked *s = &a->tasks[choice->prompt].asked;
    const kn_read_prompt *p = &a->prompts[choice->prompt];
    const kn_tokenizer *t = kn_lm_tokenizer(a->server->lm);
    const kn_verdict *v = &s->next_verdict;
    bool ends = kn_lm_ends(a->server->lm, s->next);
    json_t *top = json_array();
    for (size_t i = 0; i < s->top; i++)
        json_array_append_new(top, json_pack("[i, f]", s->ranked[p->count * s->top + i],
                                             kn_json_log(s->ranked_p[p->count * s->top + i])));
    json_t *text =
        ends ? json_string("") : kn_json_after(t, p->count ? p->tokens[p->count - 1] : -1, s->next);
    return json_pack("{s:o, s:s, s:[{s:i, s:o, s:f, s:o, s:i}]}", "text", text, "finish",
                     ends ? "stop" : "length", "tokens", "token", s->next, "text", kn_json_token(t, s->next),
                     "logprob", kn_json_log(v->p), "top", top, "chars", 0);
}

json_t *kn_choice_take(kn_completion *a, kn_choice *choice) {
    json_t *piece = NULL;
    if (!choice->task) {
        bool fell = a->score_count && a->tasks[choice->prompt].next_wanted && !choice->next_made;
        choice->next_made = true;
        return fell ? next_piece(a, choice) : NULL;
    }
    pthread_mutex_lock(&a->job.lock);
    if (choice->taken < json_array_size(choice->task->pieces)) {
        piece = json_incref(json_array_get(choice->task->pieces, choice->taken));
        json_array_set_new(choice->task->pieces, choice->taken++, json_null());
    }
    pthread_mutex_unlock(&a->job.lock);
    return piece;
}

// ---------------------------------------------------------------- around it

json_t *kn_completion_usage(const kn_completion *a) {
    size_t prompt = 0, generated = 0;
    for (size_t i = 0; i < a->r.prompt_count; i++) prompt += a->prompts[i].count + a->prompts[i].own_start;
    for (size_t i = 0; i < a->choice_count; i++) {
        const kn_choice *choice = &a->choices[i];
        if (choice->task)
            generated += choice->task->generated;
        else if (a->score_count && a->tasks[choice->prompt].next_wanted)
            generated++;
    }
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)prompt, "completion_tokens",
                     (json_int_t)generated, "total_tokens", (json_int_t)(prompt + generated));
}

json_t *kn_completion_frame(const kn_completion *a, json_t *choices, bool usage) {
    const char *model = a->server->model;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", a->id, "object", "text_completion", "created",
                  (json_int_t)a->created, "model", kn_json_text(model, strlen(model)), "choices", choices);
    if (usage) json_object_set_new(json, "usage", kn_completion_usage(a));
    return json;
}
