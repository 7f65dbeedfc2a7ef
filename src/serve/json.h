// Texts and numbers of ours as JSON. Not a door: only this room includes it.
#ifndef KN_SERVE_JSON_H
#define KN_SERVE_JSON_H

#include "serve/http_error.h"
#include "text/tokenizer.h"

#include <jansson.h>

// Text that may begin or end inside a character: what is none becomes U+FFFD.
json_t *kn_json_text(const char *text, size_t size);
// A token's own text; "bytes:\xNN..." where it is not whole characters.
json_t *kn_json_token(const kn_tokenizer *t, int32_t token);
// What a token adds to the text after another (negative: at the beginning).
json_t *kn_json_after(const kn_tokenizer *t, int32_t previous, int32_t token);
// e^log, or null for NAN.
json_t *kn_json_exp(double log);
// null for what is no number.
json_t *kn_json_real(double number);
// As a logarithm: OpenAI's -9999 stands for that of 0, which JSON does not have.
double kn_json_log(double log);
// {"error": {...}}
json_t *kn_json_error(const kn_http_error *err);

#endif
