// Requests for completions and for chat: what is to be generated, and how.
#include "serve/request.h"

#include "base/memory.h"
#include "serve/members.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- what both have

static bool take_stop(const kn_members *f, const json_t *value, kn_completion_request *out) {
    if (!json_is_string(value) || kn_member_has_nul(value))
        return kn_member_refuse(f, "stop", "a string without NUL, or at most 16 of them");
    if (json_string_length(value)) out->stops[out->stop_count++] = json_string_value(value);
    return true;
}

static bool take_stops(const kn_members *f, kn_completion_request *out) {
    const json_t *value = kn_member_get(f, "stop"), *one;
    size_t i;
    if (!value) return true;
    if (json_is_string(value)) return take_stop(f, value, out);
    if (!json_is_array(value) || json_array_size(value) > KN_STOPS_MAX)
        return kn_member_refuse(f, "stop", "a string or at most 16 of them");
    json_array_foreach (value, i, one)
        if (!take_stop(f, one, out)) return false;
    return true;
}

static bool take_sampling(const kn_members *f, kn_sampling *s) {
    *s = kn_sampling_default(); // but for OpenAI's: from all tokens, as they are
    s->temperature = s->top_p = 1;
    s->min_p = 0;
    int64_t top_k = 0, length = (int64_t)s->dry_allowed_length;
    bool fine = kn_member_number(f, "temperature", 0, 100, &s->temperature) &&
                kn_member_number(f, "top_p", 0, 1, &s->top_p) &&
                kn_member_number(f, "min_p", 0, 1, &s->min_p) &&
                kn_member_integer(f, "top_k", -1, INT32_MAX, &top_k) &&
                kn_member_number(f, "repeat_penalty", 0.01, 100, &s->repeat_penalty) &&
                kn_member_number(f, "dry_multiplier", 0, 100, &s->dry_multiplier) &&
                kn_member_number(f, "dry_base", 1, 100, &s->dry_base) &&
                kn_member_integer(f, "dry_allowed_length", 1, INT32_MAX, &length) &&
                kn_member_number(f, "presence_penalty", -2, 2, &s->presence_penalty) &&
                kn_member_number(f, "frequency_penalty", -2, 2, &s->frequency_penalty);
    s->dry_allowed_length = (size_t)length;
    s->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    if (s->top_p < 1e-9) s->top_p = 1e-9; // the most probable token is always left
    return fine;
}

// {"50256": -100}: ids as JSON's keys can be, in decimal.
static bool take_bias(const kn_members *f, const char *key, const json_t *value, kn_logit_bias *out) {
    char *end;
    unsigned long id = strtoul(key, &end, 10);
    double bias = json_is_number(value) ? json_number_value(value) : NAN;
    if (*key < '0' || *key > '9' || *end || strlen(key) > 10 || id > INT32_MAX)
        return kn_member_refuse(f, "logit_bias", "an object whose names are token ids");
    if (!(bias >= -100 && bias <= 100))
        return kn_member_refuse(f, "logit_bias", "an object of numbers from -100 to 100");
    *out = (kn_logit_bias){(int32_t)id, bias};
    return true;
}

static bool take_biases(const kn_members *f, kn_completion_request *out) {
    const json_t *object = kn_member_get(f, "logit_bias"), *value;
    const char *key;
    if (!object) return true;
    if (!json_is_object(object) || json_object_size(object) > KN_BIASES_MAX)
        return kn_member_refuse(f, "logit_bias", "an object of at most 1024 numbers by token id");
    out->biases = kn_alloc(json_object_size(object) + 1, sizeof *out->biases);
    if (!out->biases) return kn_http_error_memory(f->err);
    json_object_foreach ((json_t *)object, key, value)
        if (!take_bias(f, key, value, &out->biases[out->bias_count++])) return false;
    return true;
}

static bool take_stream(const kn_members *f, kn_completion_request *out) {
    const json_t *options = kn_member_get(f, "stream_options");
    if (!kn_member_flag(f, "stream", &out->stream)) return false;
    if (!options) return true;
    if (!json_is_object(options)) return kn_member_refuse(f, "stream_options", "an object");
    kn_members inner = {options, "stream_options.", f->err};
    return kn_member_flag(&inner, "include_usage", &out->include_usage);
}

static bool take_choices(const kn_members *f, kn_completion_request *out) {
    int64_t seed = 0;
    out->choices = 1;
    out->seed_given = kn_member_get(f, "seed") != NULL;
    if (!kn_member_size(f, "n", 1, KN_CHOICES_MAX, &out->choices) ||
        !kn_member_integer(f, "seed", INT64_MIN, INT64_MAX, &seed))
        return false;
    out->seed = (uint64_t)seed;
    out->best_of = out->choices;
    return true;
}

static bool take_common(const kn_members *f, kn_completion_request *out) {
    return take_sampling(f, &out->sampling) && take_stops(f, out) && take_choices(f, out) &&
           take_stream(f, out) && take_biases(f, out) && kn_knn_parse(f->object, &out->knn, f->err);
}

void kn_completion_free(kn_completion_request *r) {
    for (size_t i = 0; i < r->prompt_count; i++) kn_prompt_free(&r->prompts[i]);
    for (size_t i = 0; i < r->message_count; i++) free((char *)r->messages[i].content);
    free(r->prompts);
    free(r->messages);
    free(r->biases);
    kn_knn_free(&r->knn);
    *r = (kn_completion_request){0};
}

// ---------------------------------------------------------------- completions

static bool take_prompts(const kn_members *f, kn_completion_request *out) {
    if (kn_member_get(f, "prompt"))
        return kn_prompts_parse(f->object, "prompt", KN_PROMPTS_MAX, &out->prompts, &out->prompt_count,
                                f->err);
    out->prompts = kn_alloc(1, sizeof *out->prompts);
    if (!out->prompts) return kn_http_error_memory(f->err);
    out->prompts[out->prompt_count++] = (kn_prompt){.text = ""};
    return true;
}

static bool take_logprobs(const kn_members *f, kn_completion_request *out) {
    int64_t logprobs = -1;
    out->logprobs = -1;
    if (json_is_false(kn_member_get(f, "logprobs"))) return true;
    if (!kn_member_integer(f, "logprobs", 0, KN_LOGPROBS_MAX, &logprobs)) return false;
    out->logprobs = (int)logprobs;
    return true;
}

static bool take_length(const kn_members *f, kn_completion_request *out) {
    out->max_tokens = 16;
    if (!kn_member_size(f, "max_tokens", 0, INT32_MAX, &out->max_tokens) ||
        !kn_member_flag(f, "echo", &out->echo))
        return false;
    return out->max_tokens || out->echo || kn_member_refuse(f, "max_tokens", "at least 1, or 'echo' true");
}

static bool take_best_of(const kn_members *f, kn_completion_request *out) {
    if (!kn_member_size(f, "best_of", out->choices, KN_CHOICES_MAX, &out->best_of)) return false;
    if (out->best_of > out->choices && out->stream)
        return kn_http_error_set(f->err, 400, NULL, "best_of",
                                 "'best_of' above 'n' cannot be streamed: the best is known at the end");
    if (out->prompt_count * out->best_of <= KN_PROMPTS_MAX) return true;
    return kn_http_error_set(f->err, 400, NULL, out->best_of > out->choices ? "best_of" : "n",
                             "%zu prompts, %zu choices of each: at most %d in all", out->prompt_count,
                             out->best_of, KN_PROMPTS_MAX);
}

// What OpenAI has and we have not is refused rather than left out of the answer.
static bool refuse_suffix(const kn_members *f) {
    const json_t *suffix = kn_member_get(f, "suffix");
    if (!suffix || (json_is_string(suffix) && json_string_length(suffix) == 0)) return true;
    return kn_http_error_set(f->err, 400, NULL, "suffix", "'suffix' is not supported");
}

bool kn_completion_parse(const json_t *root, kn_completion_request *out, kn_http_error *err) {
    kn_members f = {root, "", err};
    *out = (kn_completion_request){0};
    return take_prompts(&f, out) && take_common(&f, out) && take_length(&f, out) && take_best_of(&f, out) &&
           take_logprobs(&f, out) && refuse_suffix(&f);
}

// ---------------------------------------------------------------- chat

static bool refuse_message(const kn_members *f, size_t number, const char *wanted) {
    char name[40];
    snprintf(name, sizeof name, "messages[%zu]", number);
    return kn_member_refuse(f, name, wanted);
}

// Text of one part; NULL: it is none.
static const char *part_text(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    if (!type || strcmp(type, "text") != 0 || !json_is_string(text) || kn_member_has_nul(text)) return NULL;
    return json_string_value(text);
}

// A string, or parts of type "text", which are joined.
static bool take_content(const kn_members *f, size_t number, const json_t *content, kn_chat_message *out) {
    size_t size = 1, i;
    const json_t *part;
    if (json_is_string(content) && !kn_member_has_nul(content)) {
        out->content = kn_strdup(json_string_value(content));
        return out->content || kn_http_error_memory(f->err);
    }
    bool silent = !content || json_is_null(content); // as an assistant is where a tool was called
    if (!json_is_array(content) && !(silent && strcmp(out->role, "assistant") == 0))
        return refuse_message(f, number, "an object whose 'content' is a string without NUL, or text parts");
    json_array_foreach (content, i, part) {
        if (!part_text(part))
            return refuse_message(f, number, "text: parts of other types are not understood");
        size += strlen(part_text(part));
    }
    char *joined = kn_alloc(size, 1);
    out->content = joined;
    if (!joined) return kn_http_error_memory(f->err);
    json_array_foreach (content, i, part) joined = stpcpy(joined, part_text(part));
    return true;
}

static bool take_message(const kn_members *f, size_t number, const json_t *value, kn_chat_message *out) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(value, "role"));
    if (role && strcmp(role, "developer") == 0) role = "system"; // its newer name
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) out->role = roles[i];
    if (!out->role)
        return refuse_message(f, number, "an object whose 'role' is system, developer, user or assistant");
    return take_content(f, number, json_object_get(value, "content"), out);
}

static bool take_messages(const kn_members *f, kn_completion_request *out) {
    const json_t *list = kn_member_get(f, "messages"), *value;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > KN_MESSAGES_MAX)
        return kn_member_refuse(f, "messages", "a list of 1 to 4096 messages");
    out->messages = kn_alloc(json_array_size(list), sizeof *out->messages);
    if (!out->messages) return kn_http_error_memory(f->err);
    json_array_foreach (list, i, value)
        if (!take_message(f, i, value, &out->messages[out->message_count++])) return false;
    return true;
}

static bool take_chat_logprobs(const kn_members *f, kn_completion_request *out) {
    bool wanted = false;
    size_t top = 0;
    if (!kn_member_flag(f, "logprobs", &wanted) ||
        !kn_member_size(f, "top_logprobs", 0, KN_LOGPROBS_MAX, &top))
        return false;
    if (top && !wanted) return kn_member_refuse(f, "top_logprobs", "left out where 'logprobs' is not true");
    out->logprobs = wanted ? (int)top : -1;
    return true;
}

// 0: as many as there is room for, within reason.
static bool take_chat_length(const kn_members *f, kn_completion_request *out) {
    return kn_member_size(f, "max_tokens", 1, INT32_MAX, &out->max_tokens) &&
           kn_member_size(f, "max_completion_tokens", 1, INT32_MAX, &out->max_tokens);
}

static bool refuse_tools(const kn_members *f) {
    static const char *const names[] = {"tools", "functions"};
    const json_t *format = kn_member_get(f, "response_format");
    const char *type = format ? json_string_value(json_object_get(format, "type")) : "text";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *list = kn_member_get(f, names[i]);
        if (list && !(json_is_array(list) && json_array_size(list) == 0))
            return kn_http_error_set(f->err, 400, NULL, names[i], "'%s' are not supported", names[i]);
    }
    return (type && strcmp(type, "text") == 0) ||
           kn_member_refuse(f, "response_format", "{\"type\": \"text\"}: others are not supported");
}

bool kn_chat_parse(const json_t *root, kn_completion_request *out, kn_http_error *err) {
    kn_members f = {root, "", err};
    *out = (kn_completion_request){.chat = true};
    out->prompts = kn_alloc(1, sizeof *out->prompts); // filled in by whoever knows the model's template
    if (!out->prompts) return kn_http_error_memory(err);
    out->prompt_count = 1;
    return take_messages(&f, out) && take_common(&f, out) && take_chat_length(&f, out) &&
           take_chat_logprobs(&f, out) && refuse_tools(&f);
}
