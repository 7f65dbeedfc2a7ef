// Chunks of text and their numbers to the choices of an answer.
#include "serve/completion.h"

#include "base/utf8.h"
#include "generate/text.h"
#include "serve/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- parts

kn_slice kn_slice_open(const kn_completion *a) {
    bool logs = a->r.logprobs >= 0, knn = a->r.knn.explain;
    kn_slice s = {0};
    if (logs) s.tokens = json_array();
    if (logs && !a->r.chat) {
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

static bool put_bytes(kn_slice *slice, const char *text, size_t size) {
    if (kn_grow(&slice->text, &slice->capacity, slice->size + size + 1, 1) != KNNLM_OK) return false;
    if (size) memcpy(slice->text + slice->size, text, size);
    slice->size += size;
    slice->text[slice->size] = 0;
    return true;
}

// What is no character becomes U+FFFD here: two halves that meet do not make one.
static bool put_text(kn_slice *slice, const char *text, size_t size) {
    if (kn_utf8_valid(text, size) == size) return put_bytes(slice, text, size);
    kn_text whole = {0};
    bool fine = kn_text_append(&whole, text, size) == KNNLM_OK && kn_text_end(&whole) == KNNLM_OK &&
                put_bytes(slice, whole.data, whole.size);
    kn_text_free(&whole);
    return fine;
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
    const kn_score_text *s = &a->tasks[choice->prompt].scoring;
    const kn_tokenizer *t = kn_lm_tokenizer(a->model->lm);
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
    const kn_tokenizer *t = kn_lm_tokenizer(a->model->lm);
    json_array_append_new(slice->tokens, kn_json_token(t, kn_tokenizer_start(t)));
    json_array_append_new(slice->offsets, json_integer(0));
    json_array_append_new(slice->logprobs, json_null());
    json_array_append_new(slice->tops, json_null());
}

bool kn_slice_prompt(const kn_completion *a, kn_choice *choice, kn_slice *slice) {
    const kn_read_prompt *p = &a->prompts[choice->prompt];
    bool fine = put_text(slice, p->text, p->size);
    if (slice->tokens && p->own_start) put_start(a, slice);
    size_t chars = 0, at = 0;
    for (size_t i = 0; i < p->count && slice->tokens && !a->x->account.shortage; i++) {
        size_t to = kn_min((size_t)p->offsets[i], p->size);
        if (to > at) chars += count_chars(p->text + at, to - at);
        at = kn_max(at, to);
        put_scored(a, choice, slice, i, chars);
    }
    choice->base = fine ? count_chars(slice->text, slice->size) : 0;
    choice->echoed = true;
    return fine;
}

// ---------------------------------------------------------------- what was generated

static void put_logprobs(const kn_completion *a, const kn_choice *choice, kn_slice *slice,
                         const kn_chunk_token *token) {
    const kn_tokenizer *t = kn_lm_tokenizer(a->model->lm);
    const kn_generated *g = &token->generated;
    if (a->r.chat) {
        json_array_append_new(slice->tokens, kn_chat_logprob(a, g));
        return;
    }
    json_t *top = json_object();
    double log = kn_json_log(g->p);
    for (size_t i = 0; i < g->top_count; i++) put_top(top, t, g->top[i], kn_json_log(g->top_p[i]));
    put_top(top, t, g->token, log);
    json_array_append_new(slice->tokens, kn_json_token(t, g->token));
    json_array_append_new(slice->logprobs, json_real(log));
    json_array_append_new(slice->tops, top);
    size_t chars = token->chars - kn_min(token->chars, choice->skipped);
    json_array_append_new(slice->offsets, json_integer((json_int_t)(choice->base + chars)));
}

static json_t *token_json(const kn_completion *a, const kn_generated *g) {
    return json_pack("{s:i, s:o, s:f, s:f, s:o, s:o, s:f, s:o, s:o}", "token", g->token, "text",
                     kn_json_token(kn_lm_tokenizer(a->model->lm), g->token), "logprob", kn_json_log(g->p),
                     "p", exp(g->p), "p_lm", kn_json_exp(g->lm), "p_knn", kn_json_exp(g->knn), "lambda",
                     g->lambda, "nearest", kn_json_real(g->nearest), "source",
                     g->source ? json_integer((json_int_t)g->source) : json_null());
}

static json_t *source_json(const kn_completion *a, const kn_source *s, size_t number) {
    const char *store = kn_served_name_of(a->model->served, s->store_path);
    json_t *footnote = s->footnote ? json_integer((json_int_t)s->footnote) : json_null();
    return json_pack("{s:I, s:o, s:o, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:b, s:b, s:f, s:I, s:I, s:I, s:I}",
                     "number", (json_int_t)number, "footnote", footnote, "store",
                     kn_json_text(store, strlen(store)), "entry", (json_int_t)s->entry, "document",
                     kn_json_text(s->document, s->document_size), "position", (json_int_t)s->position,
                     "offset", (json_int_t)s->offset, "before", kn_json_text(s->before, s->before_size),
                     "text", kn_json_text(s->text, s->text_size), "after",
                     kn_json_text(s->after, s->after_size), "begins", s->begins, "ends", s->ends, "share",
                     s->share, "first", (json_int_t)s->first, "tokens", (json_int_t)s->tokens, "differ",
                     (json_int_t)s->differ, "length", (json_int_t)s->length);
}

static void put_sources(const kn_completion *a, kn_slice *slice, const kn_chunk *chunk) {
    // An answer in one has all of them once, as they ended: the last chunk has them so.
    if (chunk->finish != KNNLM_FINISH_NOT) json_array_clear(slice->sources);
    for (size_t i = 0; i < chunk->source_count; i++)
        json_array_append_new(slice->sources,
                              source_json(a, &chunk->sources[i], chunk->first_source + i + 1));
}

bool kn_slice_chunk(const kn_completion *a, kn_choice *choice, const kn_chunk *chunk, kn_slice *slice) {
    static const char *const names[] = {
        [KNNLM_FINISH_NOT] = NULL, [KNNLM_FINISH_LENGTH] = "length", [KNNLM_FINISH_STOP] = "stop"};
    choice->finish = names[chunk->finish];
    size_t skip = choice->space && chunk->size && chunk->text[0] == ' ';
    if (chunk->size) choice->space = false;
    choice->skipped += skip;
    for (size_t i = 0; i < chunk->token_count; i++) {
        const kn_chunk_token *token = &chunk->tokens[i];
        if (slice->tokens) put_logprobs(a, choice, slice, token);
        if (slice->knn_tokens) json_array_append_new(slice->knn_tokens, token_json(a, &token->generated));
    }
    if (slice->tokens && chunk->ended) put_logprobs(a, choice, slice, &chunk->end);
    if (slice->sources) put_sources(a, slice, chunk);
    return put_text(slice, chunk->text + skip, chunk->size - skip);
}

static json_t *plain_choice(const kn_choice *choice, const kn_slice *slice, json_t *text) {
    json_t *logs =
        slice->tokens ? json_pack("{s:o, s:o, s:o, s:o}", "tokens", slice->tokens, "token_logprobs",
                                  slice->logprobs, "top_logprobs", slice->tops, "text_offset", slice->offsets)
                      : json_null();
    return json_pack("{s:o, s:I, s:o, s:s?}", "text", text, "index", (json_int_t)choice->number, "logprobs",
                     logs, "finish_reason", choice->finish);
}

json_t *kn_slice_close(const kn_completion *a, kn_choice *choice, kn_slice *slice) {
    json_t *text = kn_json_text(slice->text, slice->size);
    json_t *json =
        a->r.chat ? kn_chat_choice(a, choice, text, slice->tokens) : plain_choice(choice, slice, text);
    if (slice->knn_tokens)
        json_object_set_new(json, "knn",
                            json_pack("{s:o, s:o}", "tokens", slice->knn_tokens, "sources", slice->sources));
    free(slice->text);
    *slice = (kn_slice){0};
    return json;
}

// ---------------------------------------------------------------- chunks

// What fell off scoring, in the shape of what sequences give.
static kn_chunk *next_chunk(const kn_completion *a, const kn_choice *choice) {
    const kn_score_text *s = &a->tasks[choice->prompt].scoring;
    const kn_read_prompt *p = &a->prompts[choice->prompt];
    const kn_tokenizer *t = kn_lm_tokenizer(a->model->lm);
    kn_generated g = {.token = s->next,
                      .p = s->next_verdict.p,
                      .top = s->ranked + p->count * s->top,
                      .top_p = s->ranked_p + p->count * s->top,
                      .top_count = s->top};
    bool ends = kn_lm_ends(a->model->lm, s->next);
    int32_t last = p->count ? p->tokens[p->count - 1] : -1;
    char *text = ends ? kn_strdup("") : NULL;
    size_t size = 0;
    if (ends ? !text : kn_piece_after(t, last, s->next, &text, &size) != KNNLM_OK) return NULL;
    return kn_chunk_of_token(&g, text, size, ends ? KNNLM_FINISH_STOP : KNNLM_FINISH_LENGTH);
}

bool kn_choice_take(kn_completion *a, kn_choice *choice, kn_chunk **out) {
    *out = NULL;
    if (!choice->task) {
        bool fell = a->score_count && a->tasks[choice->prompt].next_wanted && !choice->next_made;
        choice->next_made = true;
        if (fell) *out = next_chunk(a, choice);
        return !fell || *out;
    }
    pthread_mutex_lock(&a->job.lock);
    *out = kn_chunk_queue_take(&choice->task->chunks);
    pthread_mutex_unlock(&a->job.lock);
    return true;
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
    const char *model = a->model->name;
    const char *object = !a->r.chat    ? "text_completion"
                         : a->r.stream ? "chat.completion.chunk"
                                       : "chat.completion";
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", a->id, "object", object, "created",
                  (json_int_t)a->created, "model", kn_json_text(model, strlen(model)), "choices", choices);
    if (usage) json_object_set_new(json, "usage", kn_completion_usage(a));
    return json;
}
