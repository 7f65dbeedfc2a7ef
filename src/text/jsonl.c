// Reads lines of JSON.
#include "text/jsonl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct place {
    const char *path;
    uint64_t number;
} place;

static bool is_blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!strchr(" \t\r\n", line[i]) || !line[i]) return false;
    return true;
}

static knnlm_status parse(const char *line, size_t size, const place *at, json_t **out) {
    json_error_t error;
    *out = json_loadb(line, size, JSON_ALLOW_NUL, &error);
    if (json_is_object(*out)) return KNNLM_OK;
    if (*out)
        return kn_fail(KNNLM_EDATA, "%s:%" PRIu64 ": not a JSON object (is it not JSON lines? see `split`)",
                       at->path, at->number);
    return kn_fail(KNNLM_EDATA, "%s:%" PRIu64 ": not JSON: %s at byte %d (is it not JSON lines? see `split`)",
                   at->path, at->number, error.text, error.position);
}

static knnlm_status find_text(const json_t *object, const char *field, const place *at, kn_json_line *out) {
    const json_t *text = json_object_get(object, field);
    if (!json_is_string(text))
        return kn_fail(KNNLM_EDATA, "%s:%" PRIu64 ": %s \"%s\" (`field` names the text's member)", at->path,
                       at->number, text ? "no string is its" : "it has no member", field);
    out->text = json_string_value(text);
    out->size = json_string_length(text);
    return KNNLM_OK;
}

static knnlm_status put_name(const json_t *object, const char *name_field, const place *at, kn_buffer *name) {
    char number[32];
    const json_t *own = name_field ? json_object_get(object, name_field) : NULL;
    name->size = 0;
    KN_TRY(kn_buffer_put_text(name, at->path));
    KN_TRY(kn_buffer_put_text(name, "#"));
    if (json_is_string(own) && strlen(json_string_value(own)) != json_string_length(own))
        return kn_fail(KNNLM_EDATA, "%s:%" PRIu64 ": \"%s\" has a NUL character (`name_field`)", at->path,
                       at->number, name_field);
    if (json_is_string(own)) {
        KN_TRY(kn_buffer_put(name, json_string_value(own), json_string_length(own)));
    } else {
        if (name_field && !json_is_integer(own))
            return kn_fail(KNNLM_EDATA, "%s:%" PRIu64 ": no string or whole number \"%s\" (`name_field`)",
                           at->path, at->number, name_field);
        int64_t value = own ? json_integer_value(own) : (int64_t)at->number;
        snprintf(number, sizeof number, "%" PRId64, value);
        KN_TRY(kn_buffer_put_text(name, number));
    }
    return kn_buffer_put(name, "", 1);
}

knnlm_status kn_json_line_read(const char *line, size_t size, const char *path, uint64_t number,
                               const char *field, const char *name_field, kn_buffer *name,
                               kn_json_line *out) {
    place at = {path, number};
    *out = (kn_json_line){0};
    if (is_blank(line, size)) return KNNLM_OK;
    knnlm_status status = parse(line, size, &at, &out->object);
    if (status == KNNLM_OK) status = find_text(out->object, field, &at, out);
    if (status == KNNLM_OK) status = put_name(out->object, name_field, &at, name);
    if (status != KNNLM_OK) kn_json_line_free(out);
    return status;
}

void kn_json_line_free(kn_json_line *line) {
    json_decref(line->object);
    *line = (kn_json_line){0};
}
