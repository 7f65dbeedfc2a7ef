// Bodies of requests: JSON to what is asked for.
#include "serve/request.h"

#include "base/memory.h"
#include "serve/members.h"

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

// ---------------------------------------------------------------- texts

void kn_prompt_free(kn_prompt *p) {
    free(p->tokens);
    *p = (kn_prompt){0};
}

static bool ids_of(const kn_members *f, const char *name, const json_t *list, kn_prompt *out) {
    const json_t *value;
    size_t i;
    out->count = json_array_size(list);
    out->tokens = malloc((out->count + 1) * sizeof *out->tokens);
    if (!out->tokens) return kn_http_error_memory(f->err);
    json_array_foreach (list, i, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
            return kn_member_refuse(f, name, "made of token ids");
        out->tokens[i] = (int32_t)json_integer_value(value);
    }
    return true;
}

static bool prompt_of(const kn_members *f, const char *name, const json_t *value, kn_prompt *out) {
    *out = (kn_prompt){0};
    if (json_is_array(value)) return ids_of(f, name, value, out);
    if (!json_is_string(value))
        return kn_member_refuse(f, name, "a string, strings, token ids, or lists of token ids");
    out->text = json_string_value(value);
    out->size = json_string_length(value);
    return true;
}

// A list of ids is one prompt, a list of anything else is several.
static bool is_ids(const json_t *value) {
    return json_is_array(value) && (json_array_size(value) == 0 || json_is_number(json_array_get(value, 0)));
}

bool kn_prompts_parse(const json_t *root, const char *name, size_t max, kn_prompt **out, size_t *count,
                      kn_http_error *err) {
    kn_members f = {root, "", err};
    const json_t *value = kn_member_get(&f, name), *one;
    bool several = json_is_array(value) && !is_ids(value);
    size_t all = several ? json_array_size(value) : 1, i;
    if (all > max)
        return kn_http_error_set(err, 400, NULL, name, "%zu of '%s': at most %zu at a time", all, name, max);
    *out = kn_alloc(all, sizeof **out);
    if (!*out) return kn_http_error_memory(err);
    *count = all;
    if (!several) return prompt_of(&f, name, value, *out);
    json_array_foreach (value, i, one)
        if (!prompt_of(&f, name, one, &(*out)[i])) return false;
    return true;
}

// `text` or `tokens`, under the names given; one of them.
static bool take_text(const kn_members *f, const char *name, kn_prompt *out) {
    const json_t *ids = kn_member_get(f, "tokens");
    bool text = kn_member_get(f, name) != NULL;
    if (text == (ids != NULL))
        return kn_http_error_set(f->err, 400, NULL, name, "either '%s' or 'tokens' is needed", name);
    if (text) return kn_member_string(f, name, &out->text, &out->size);
    if (!json_is_array(ids)) return kn_member_refuse(f, "tokens", "a list of token ids");
    return ids_of(f, "tokens", ids, out);
}

// ---------------------------------------------------------------- the others

bool kn_score_parse(const json_t *root, kn_score_request *out, kn_http_error *err) {
    kn_members f = {root, "", err};
    *out = (kn_score_request){0};
    return kn_knn_parse(root, &out->knn, err) &&
           kn_member_size(&f, "documents", 0, KN_DOCUMENT_GAINS_MAX, &out->documents) &&
           take_text(&f, "text", &out->text);
}

void kn_score_free(kn_score_request *r) {
    kn_prompt_free(&r->text);
    kn_knn_free(&r->knn);
}

bool kn_explain_parse(const json_t *root, kn_explain_request *out, kn_http_error *err) {
    kn_members f = {root, "", err};
    *out = (kn_explain_request){.target_token = -1, .words = 8, .neighbors = 8, .around = 12};
    return kn_knn_parse(root, &out->knn, err) && kn_member_name(&f, "target", &out->target) &&
           kn_member_integer(&f, "target_token", 0, INT32_MAX, &out->target_token) &&
           kn_member_size(&f, "words", 0, KN_EXPLAINED_MAX, &out->words) &&
           kn_member_size(&f, "neighbors", 0, KN_EXPLAINED_MAX, &out->neighbors) &&
           kn_member_size(&f, "around", 0, 200, &out->around) && take_text(&f, "context", &out->context);
}

void kn_explain_free(kn_explain_request *r) {
    kn_prompt_free(&r->context);
    kn_knn_free(&r->knn);
}

bool kn_tokenize_parse(const json_t *root, kn_prompt *out, bool *special, kn_http_error *err) {
    kn_members f = {root, "", err};
    const char *name = kn_member_get(&f, "prompt") ? "prompt" : "content";
    *out = (kn_prompt){0};
    *special = false;
    if (!kn_member_string(&f, name, &out->text, &out->size) ||
        !kn_member_flag(&f, "add_special_tokens", special))
        return false;
    return out->text || kn_http_error_set(err, 400, NULL, "prompt", "'prompt' is needed: a string");
}

bool kn_detokenize_parse(const json_t *root, kn_prompt *out, kn_http_error *err) {
    kn_members f = {root, "", err};
    const json_t *ids = kn_member_get(&f, "tokens");
    *out = (kn_prompt){0};
    if (!json_is_array(ids)) return kn_member_refuse(&f, "tokens", "a list of token ids");
    return ids_of(&f, "tokens", ids, out);
}

bool kn_tune_parse(const json_t *root, kn_prompt *text, kn_http_error *err) {
    kn_members f = {root, "", err};
    *text = (kn_prompt){0};
    if (!kn_member_string(&f, "text", &text->text, &text->size)) return false;
    return !text->text || text->size || kn_member_refuse(&f, "text", "a string that is not empty");
}

bool kn_document_parse(const json_t *root, const char **name, kn_prompt *text, kn_http_error *err) {
    kn_members f = {root, "", err};
    *name = NULL;
    *text = (kn_prompt){0};
    if (!kn_member_name(&f, "name", name) || !kn_member_string(&f, "text", &text->text, &text->size))
        return false;
    if (!*name || !**name || strlen(*name) > 4096)
        return kn_member_refuse(&f, "name", "a string of 1 to 4096 bytes");
    if (strcmp(*name, "<stdin>") == 0)
        return kn_member_refuse(&f, "name", "another one"); // of no document in particular
    return text->size > 0 || kn_member_refuse(&f, "text", "a string that is not empty");
}

// ---------------------------------------------------------------- embeddings

// One of two names; *second: the second one.
static bool take_choice(const kn_members *f, const char *name, const char *const *names, const char *wanted,
                        bool *second) {
    const char *given = NULL;
    if (!kn_member_name(f, name, &given)) return false;
    if (!given) return true;
    *second = strcmp(given, names[1]) == 0;
    return *second || strcmp(given, names[0]) == 0 || kn_member_refuse(f, name, wanted);
}

bool kn_embedding_parse(const json_t *root, int64_t width, kn_embedding_request *out, kn_http_error *err) {
    static const char *const formats[] = {"float", "base64"}, *const poolings[] = {"mean", "last"};
    kn_members f = {root, "", err};
    bool normalize = true;
    int64_t dimensions = width;
    *out = (kn_embedding_request){0};
    const json_t *input = kn_member_get(&f, "input");
    if (!input || (json_is_array(input) && json_array_size(input) == 0))
        return kn_member_refuse(&f, "input", "a string, strings, token ids, or lists of token ids");
    if (!kn_prompts_parse(root, "input", KN_INPUTS_MAX, &out->inputs, &out->input_count, err) ||
        !take_choice(&f, "encoding_format", formats, "float or base64", &out->base64) ||
        !take_choice(&f, "pooling", poolings, "mean or last", &out->last) ||
        !kn_member_flag(&f, "normalize", &normalize) ||
        !kn_member_integer(&f, "dimensions", width, width, &dimensions))
        return false;
    out->keep_length = !normalize;
    return true;
}

void kn_embedding_free(kn_embedding_request *r) {
    for (size_t i = 0; i < r->input_count; i++) kn_prompt_free(&r->inputs[i]);
    free(r->inputs);
    *r = (kn_embedding_request){0};
}
