// Bodies of requests: JSON to what is asked for.
#include "serve/request.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *kn_request_load(const char *body, size_t size, kn_http_error *err) {
    json_error_t error;
    json_t *root = json_loadb(body, size, JSON_ALLOW_NUL, &error);
    if (!root)
        kn_http_error_set(err, 400, NULL, NULL, "the body is not JSON: line %d, column %d: %s", error.line,
                          error.column, error.text);
    else if (!json_is_object(root)) {
        kn_http_error_set(err, 400, NULL, NULL, "the body is not a JSON object");
        json_decref(root);
        root = NULL;
    }
    return root;
}

// ---------------------------------------------------------------- members

// Where members are read from; the first thing wrong with one of them ends it all.
typedef struct form {
    const json_t *object;
    const char *within; // "knn.", or ""
    kn_http_error *err;
} form;

static bool refuse(const form *f, const char *name, const char *wanted) {
    char param[64];
    snprintf(param, sizeof param, "%s%s", f->within, name);
    return kn_http_error_set(f->err, 400, NULL, param, "'%s' must be %s", param, wanted);
}

// NULL: left out.
static const json_t *member(const form *f, const char *name) {
    const json_t *value = json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

static bool take_number(const form *f, const char *name, double min, double max, double *out) {
    const json_t *value = member(f, name);
    char wanted[80];
    if (!value) return true;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (number >= min && number <= max) {
        *out = number;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
    return refuse(f, name, wanted);
}

static bool take_integer(const form *f, const char *name, int64_t min, int64_t max, int64_t *out) {
    const json_t *value = member(f, name);
    char wanted[80];
    if (!value) return true;
    if (json_is_integer(value) && json_integer_value(value) >= min && json_integer_value(value) <= max) {
        *out = json_integer_value(value);
        return true;
    }
    snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)min, (long long)max);
    return refuse(f, name, wanted);
}

static bool take_size(const form *f, const char *name, size_t min, size_t max, size_t *out) {
    int64_t number = (int64_t)*out;
    if (!take_integer(f, name, (int64_t)min, (int64_t)max, &number)) return false;
    *out = (size_t)number;
    return true;
}

static bool take_flag(const form *f, const char *name, bool *out) {
    const json_t *value = member(f, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return refuse(f, name, "true or false");
    *out = json_is_true(value);
    return true;
}

static bool take_string(const form *f, const char *name, const char **out, size_t *size) {
    const json_t *value = member(f, name);
    if (!value) return true;
    if (!json_is_string(value)) return refuse(f, name, "a string");
    *out = json_string_value(value);
    *size = json_string_length(value);
    return true;
}

static bool has_nul(const json_t *string) {
    return strlen(json_string_value(string)) != json_string_length(string);
}

// Texts may have any character; names and words have no NUL.
static bool take_name(const form *f, const char *name, const char **out) {
    const json_t *value = member(f, name);
    if (!value) return true;
    if (!json_is_string(value) || has_nul(value)) return refuse(f, name, "a string without NUL");
    *out = json_string_value(value);
    return true;
}

// ---------------------------------------------------------------- knn

static bool take_temperatures(const form *f, kn_knn_request *out) {
    const json_t *list = member(f, "temperatures"), *value;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > KN_TEMPERATURES_MAX)
        return refuse(f, "temperatures", "a list of at most 64 numbers");
    json_array_foreach (list, i, value) {
        double t = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(t >= KN_TEMPERATURE_MIN && t <= KN_TEMPERATURE_MAX))
            return refuse(f, "temperatures", "numbers above 0");
        out->temperatures[out->temperature_count++] = t;
    }
    return true;
}

static bool take_stores(const form *f, kn_knn_request *out) {
    const json_t *list = member(f, "stores"), *value;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list)) return refuse(f, "stores", "a list of names");
    out->stores = kn_alloc(json_array_size(list) + 1, sizeof *out->stores);
    if (!out->stores) return kn_http_error_memory(f->err);
    json_array_foreach (list, i, value) {
        if (!json_is_string(value)) return refuse(f, "stores", "a list of names");
        out->stores[out->store_count++] = json_string_value(value);
    }
    return true;
}

static const char *const knn_members[] = {"lambda",  "temperature",  "k",     "stores", "fallback",
                                          "explain", "temperatures", "carry", "cache"};

// A member that is misspelt would silently change what is measured.
static bool known_members(const form *f) {
    const char *name;
    const json_t *value;
    json_object_foreach ((json_t *)f->object, name, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof knn_members / sizeof *knn_members; i++)
            known |= strcmp(name, knn_members[i]) == 0;
        if (!known)
            return kn_http_error_set(f->err, 400, NULL, "knn",
                                     "'knn' has no member '%.40s': it has lambda, "
                                     "temperature, k, stores, fallback, carry, cache, explain, temperatures",
                                     name);
    }
    return true;
}

static bool take_knn(const form *outer, kn_knn_request *out) {
    const json_t *object = member(outer, "knn");
    *out =
        (kn_knn_request){.lambda = NAN, .temperature = NAN, .fallback = true, .carry = true, .cache = true};
    if (!object) return true;
    if (!json_is_object(object)) return refuse(outer, "knn", "an object");
    form f = {object, "knn.", outer->err};
    return known_members(&f) && take_number(&f, "lambda", 0, 1, &out->lambda) &&
           take_number(&f, "temperature", KN_TEMPERATURE_MIN, KN_TEMPERATURE_MAX, &out->temperature) &&
           take_integer(&f, "k", 1, KN_NEIGHBORS_MAX, &out->k) && take_stores(&f, out) &&
           take_flag(&f, "fallback", &out->fallback) && take_flag(&f, "explain", &out->explain) &&
           take_flag(&f, "carry", &out->carry) && take_flag(&f, "cache", &out->cache) &&
           take_temperatures(&f, out);
}

static void free_knn(kn_knn_request *knn) {
    free(knn->stores);
    *knn = (kn_knn_request){0};
}

// ---------------------------------------------------------------- texts

void kn_prompt_free(kn_prompt *p) {
    free(p->tokens);
    *p = (kn_prompt){0};
}

static bool ids_of(const form *f, const char *name, const json_t *list, kn_prompt *out) {
    const json_t *value;
    size_t i;
    out->count = json_array_size(list);
    out->tokens = malloc((out->count + 1) * sizeof *out->tokens);
    if (!out->tokens) return kn_http_error_memory(f->err);
    json_array_foreach (list, i, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
            return refuse(f, name, "made of token ids");
        out->tokens[i] = (int32_t)json_integer_value(value);
    }
    return true;
}

static bool prompt_of(const form *f, const char *name, const json_t *value, kn_prompt *out) {
    *out = (kn_prompt){0};
    if (json_is_array(value)) return ids_of(f, name, value, out);
    if (!json_is_string(value)) return refuse(f, name, "a string, strings, token ids, or lists of token ids");
    out->text = json_string_value(value);
    out->size = json_string_length(value);
    return true;
}

// A list of ids is one prompt, a list of anything else is several.
static bool is_ids(const json_t *value) {
    return json_is_array(value) && (json_array_size(value) == 0 || json_is_number(json_array_get(value, 0)));
}

static bool take_prompts(const form *f, kn_completion_request *out) {
    const json_t *value = member(f, "prompt"), *one;
    bool several = value && json_is_array(value) && !is_ids(value);
    size_t count = several ? json_array_size(value) : 1, i;
    if (count > KN_PROMPTS_MAX)
        return kn_http_error_set(f->err, 400, NULL, "prompt", "%zu prompts: at most %d at a time", count,
                                 KN_PROMPTS_MAX);
    out->prompts = calloc(count, sizeof *out->prompts);
    if (!out->prompts) return kn_http_error_memory(f->err);
    out->prompt_count = count;
    if (!value) out->prompts[0].text = "";
    if (!value) return true;
    if (!several) return prompt_of(f, "prompt", value, &out->prompts[0]);
    json_array_foreach (value, i, one)
        if (!prompt_of(f, "prompt", one, &out->prompts[i])) return false;
    return true;
}

// `text` or `tokens`, under the names given; one of them.
static bool take_text(const form *f, const char *name, kn_prompt *out) {
    const json_t *ids = member(f, "tokens");
    bool text = member(f, name) != NULL;
    if (text == (ids != NULL))
        return kn_http_error_set(f->err, 400, NULL, name, "either '%s' or 'tokens' is needed", name);
    if (text) return take_string(f, name, &out->text, &out->size);
    if (!json_is_array(ids)) return refuse(f, "tokens", "a list of token ids");
    return ids_of(f, "tokens", ids, out);
}

// ---------------------------------------------------------------- completions

static bool take_stop(const form *f, const json_t *value, kn_completion_request *out) {
    if (!json_is_string(value) || has_nul(value))
        return refuse(f, "stop", "a string without NUL, or at most 16 of them");
    if (json_string_length(value)) out->stops[out->stop_count++] = json_string_value(value);
    return true;
}

static bool take_stops(const form *f, kn_completion_request *out) {
    const json_t *value = member(f, "stop"), *one;
    size_t i;
    if (!value) return true;
    if (json_is_string(value)) return take_stop(f, value, out);
    if (!json_is_array(value) || json_array_size(value) > KN_STOPS_MAX)
        return refuse(f, "stop", "a string or at most 16 of them");
    json_array_foreach (value, i, one)
        if (!take_stop(f, one, out)) return false;
    return true;
}

static bool take_sampling(const form *f, kn_sampling *s) {
    int64_t top_k = 0;
    *s = (kn_sampling){.temperature = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last = 64};
    bool fine = take_number(f, "temperature", 0, 100, &s->temperature) &&
                take_number(f, "top_p", 0, 1, &s->top_p) && take_number(f, "min_p", 0, 1, &s->min_p) &&
                take_integer(f, "top_k", -1, INT32_MAX, &top_k) &&
                take_number(f, "repeat_penalty", 0.01, 100, &s->repeat_penalty) &&
                take_number(f, "presence_penalty", -2, 2, &s->presence_penalty) &&
                take_number(f, "frequency_penalty", -2, 2, &s->frequency_penalty);
    s->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    if (s->top_p < 1e-9) s->top_p = 1e-9; // the most probable token is always left
    return fine;
}

static bool take_stream(const form *f, kn_completion_request *out) {
    const json_t *options = member(f, "stream_options");
    if (!take_flag(f, "stream", &out->stream)) return false;
    if (!options) return true;
    if (!json_is_object(options)) return refuse(f, "stream_options", "an object");
    form inner = {options, "stream_options.", f->err};
    return take_flag(&inner, "include_usage", &out->include_usage);
}

static bool take_logprobs(const form *f, kn_completion_request *out) {
    int64_t logprobs = -1;
    out->logprobs = -1;
    if (json_is_false(member(f, "logprobs"))) return true;
    if (!take_integer(f, "logprobs", 0, KN_LOGPROBS_MAX, &logprobs)) return false;
    out->logprobs = (int)logprobs;
    return true;
}

// What OpenAI has and we have not is refused rather than left out of the answer.
static bool refuse_others(const form *f, const kn_completion_request *out) {
    const json_t *suffix = member(f, "suffix"), *bias = member(f, "logit_bias");
    int64_t best = (int64_t)out->choices;
    if (suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        return kn_http_error_set(f->err, 400, NULL, "suffix", "'suffix' is not supported");
    if (bias && !(json_is_object(bias) && json_object_size(bias) == 0))
        return kn_http_error_set(f->err, 400, NULL, "logit_bias", "'logit_bias' is not supported");
    if (!take_integer(f, "best_of", INT64_MIN, INT64_MAX, &best)) return false;
    if (best != (int64_t)out->choices)
        return kn_http_error_set(f->err, 400, NULL, "best_of",
                                 "'best_of' is only supported where it equals 'n'");
    return true;
}

static bool take_lengths(const form *f, kn_completion_request *out) {
    int64_t seed = 0;
    out->max_tokens = 16;
    out->choices = 1;
    out->seed_given = member(f, "seed") != NULL;
    if (!take_size(f, "max_tokens", 0, INT32_MAX, &out->max_tokens) ||
        !take_size(f, "n", 1, KN_CHOICES_MAX, &out->choices) ||
        !take_integer(f, "seed", INT64_MIN, INT64_MAX, &seed) || !take_flag(f, "echo", &out->echo))
        return false;
    out->seed = (uint64_t)seed;
    if (out->prompt_count * out->choices > KN_PROMPTS_MAX)
        return kn_http_error_set(f->err, 400, NULL, "n",
                                 "%zu prompts, %zu choices of each: at most %d in all", out->prompt_count,
                                 out->choices, KN_PROMPTS_MAX);
    if (out->max_tokens == 0 && !out->echo) return refuse(f, "max_tokens", "at least 1, or 'echo' true");
    return true;
}

bool kn_completion_parse(const json_t *root, kn_completion_request *out, kn_http_error *err) {
    form f = {root, "", err};
    *out = (kn_completion_request){0};
    return take_prompts(&f, out) && take_sampling(&f, &out->sampling) && take_stops(&f, out) &&
           take_lengths(&f, out) && take_stream(&f, out) && take_logprobs(&f, out) &&
           take_knn(&f, &out->knn) && refuse_others(&f, out);
}

void kn_completion_free(kn_completion_request *r) {
    for (size_t i = 0; i < r->prompt_count; i++) kn_prompt_free(&r->prompts[i]);
    free(r->prompts);
    free_knn(&r->knn);
    *r = (kn_completion_request){0};
}

// ---------------------------------------------------------------- the others

bool kn_score_parse(const json_t *root, kn_score_request *out, kn_http_error *err) {
    form f = {root, "", err};
    *out = (kn_score_request){0};
    return take_knn(&f, &out->knn) && take_text(&f, "text", &out->text);
}

void kn_score_free(kn_score_request *r) {
    kn_prompt_free(&r->text);
    free_knn(&r->knn);
}

bool kn_explain_parse(const json_t *root, kn_explain_request *out, kn_http_error *err) {
    form f = {root, "", err};
    *out = (kn_explain_request){.target_token = -1, .words = 8, .neighbors = 8, .around = 12};
    return take_knn(&f, &out->knn) && take_name(&f, "target", &out->target) &&
           take_integer(&f, "target_token", 0, INT32_MAX, &out->target_token) &&
           take_size(&f, "words", 0, KN_EXPLAINED_MAX, &out->words) &&
           take_size(&f, "neighbors", 0, KN_EXPLAINED_MAX, &out->neighbors) &&
           take_size(&f, "around", 0, 200, &out->around) && take_text(&f, "context", &out->context);
}

void kn_explain_free(kn_explain_request *r) {
    kn_prompt_free(&r->context);
    free_knn(&r->knn);
}

bool kn_tokenize_parse(const json_t *root, kn_prompt *out, bool *special, kn_http_error *err) {
    form f = {root, "", err};
    const char *name = member(&f, "prompt") ? "prompt" : "content";
    *out = (kn_prompt){0};
    *special = false;
    if (!take_string(&f, name, &out->text, &out->size) || !take_flag(&f, "add_special_tokens", special))
        return false;
    return out->text || kn_http_error_set(err, 400, NULL, "prompt", "'prompt' is needed: a string");
}

bool kn_detokenize_parse(const json_t *root, kn_prompt *out, kn_http_error *err) {
    form f = {root, "", err};
    const json_t *ids = member(&f, "tokens");
    *out = (kn_prompt){0};
    if (!json_is_array(ids)) return refuse(&f, "tokens", "a list of token ids");
    return ids_of(&f, "tokens", ids, out);
}

bool kn_document_parse(const json_t *root, const char **name, kn_prompt *text, kn_http_error *err) {
    form f = {root, "", err};
    *name = NULL;
    *text = (kn_prompt){0};
    if (!take_name(&f, "name", name) || !take_string(&f, "text", &text->text, &text->size)) return false;
    if (!*name || !**name || strlen(*name) > 4096) return refuse(&f, "name", "a string of 1 to 4096 bytes");
    if (strcmp(*name, "<stdin>") == 0)
        return refuse(&f, "name", "another one"); // of no document in particular
    return text->size > 0 || refuse(&f, "text", "a string that is not empty");
}
