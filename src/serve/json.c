// Texts, numbers and errors of ours as JSON.
#include "serve/json.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "generate/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *mended(const char *text, size_t size) {
    kn_text whole = {0};
    json_t *json = NULL;
    if (kn_text_append(&whole, text, size) == KNNLM_OK && kn_text_end(&whole) == KNNLM_OK)
        json = json_stringn_nocheck(whole.data, whole.size);
    kn_text_free(&whole);
    return json;
}

json_t *kn_json_text(const char *text, size_t size) {
    if (!text) return json_string("");
    return kn_utf8_valid(text, size) == size ? json_stringn_nocheck(text, size) : mended(text, size);
}

static json_t *as_bytes(const char *text, size_t size) {
    static const char prefix[] = "bytes:";
    char *out = kn_alloc(sizeof prefix + 4 * size, 1);
    if (!out) return NULL;
    size_t used = sizeof prefix - 1;
    memcpy(out, prefix, used);
    for (size_t i = 0; i < size; i++)
        used += (size_t)snprintf(out + used, 5, "\\x%02x", (unsigned char)text[i]);
    json_t *json = json_stringn_nocheck(out, used);
    free(out);
    return json;
}

json_t *kn_json_token(const kn_tokenizer *t, int32_t token) {
    char *text;
    size_t size;
    if (kn_tokenizer_decode(t, &token, 1, &text, &size) != KNNLM_OK) return json_null();
    // Special tokens stand for no text: their name tells them apart.
    const char *piece = size == 0 ? kn_tokenizer_piece(t, token) : NULL;
    json_t *json = piece                               ? json_string(piece)
                   : kn_utf8_valid(text, size) == size ? json_stringn_nocheck(text, size)
                                                       : as_bytes(text, size);
    free(text);
    return json ? json : json_null();
}

json_t *kn_json_after(const kn_tokenizer *t, int32_t previous, int32_t token) {
    char *text;
    size_t size;
    if (kn_piece_after(t, previous, token, &text, &size) != KNNLM_OK) return json_string("");
    json_t *json = kn_json_text(text, size);
    free(text);
    return json;
}

json_t *kn_json_exp(double log) {
    return isnan(log) ? json_null() : json_real(exp(log));
}

json_t *kn_json_real(double number) {
    return isfinite(number) ? json_real(number) : json_null();
}

double kn_json_log(double log) {
    return log < -9999 || isnan(log) ? -9999 : log;
}

// ---------------------------------------------------------------- errors

static const char *type_of(unsigned status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 504:
        return "timeout_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

json_t *kn_json_error(const kn_http_error *err) {
    // A message may quote what the client sent, cut in the middle of a character.
    json_t *message = json_string(err->message);
    if (!message) message = json_string("the request is wrong, and so are the characters in it");
    json_t *param = *err->param ? json_string(err->param) : json_null();
    if (!param) param = json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", message, "type", type_of(err->status),
                     "param", param, "code", err->code);
}
