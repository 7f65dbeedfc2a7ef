#include "serve/complaint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool kn_complain(kn_complaint *c, unsigned status, const char *code, const char *param, const char *format,
                 ...) {
    va_list arguments;
    *c = (kn_complaint){.status = status, .code = code};
    snprintf(c->param, sizeof c->param, "%s", param ? param : "");
    va_start(arguments, format);
    vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
    if (status == 429 || status == 503) c->retry_after = 1;
    return false;
}

bool kn_complain_memory(kn_complaint *c) {
    return kn_complain(c, 503, "out_of_memory", NULL, "not enough memory for this now: try again");
}

bool kn_complain_status(kn_complaint *c, knnlm_status status, const char *message) {
    if (status == KNNLM_ENOMEM) return kn_complain_memory(c);
    bool request = status == KNNLM_EINVAL || status == KNNLM_ENOTSUP;
    return kn_complain(c, request ? 400 : 500, NULL, NULL, "%s", message);
}

// The `count` bytes at `at` become the `size` bytes of `text`, which are not more and may be some of them.
static void shrink(char *at, size_t count, const char *text, size_t size) {
    memmove(at, text, size);
    memmove(at + size, at + count, strlen(at + count) + 1);
}

void kn_complaint_hide(kn_complaint *c, const char *path, const char *name) {
    size_t size = strlen(path), named = strlen(name);
    if (size == 0 || named > size) return;
    for (char *at = c->message; (at = strstr(at, path)); at += named) shrink(at, size, name, named);
}

void kn_complaint_hide_folders(kn_complaint *c) {
    for (char *at = c->message; *at; at += *at != 0) {
        if (*at != '/' || (at > c->message && !strchr(" (\"", at[-1]))) continue;
        size_t size = strcspn(at, " ),\"");
        if (at[size - 1] == ':') size--;
        const char *name = at + size;
        while (name[-1] != '/') name--;
        shrink(at, size, name, (size_t)(at + size - name));
    }
}

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

json_t *kn_complaint_json(const kn_complaint *c) {
    // A message may quote what the client sent, cut in the middle of a character.
    json_t *message = json_string(c->message);
    if (!message) message = json_string("the request is wrong, and so are the characters in it");
    json_t *param = *c->param ? json_string(c->param) : json_null();
    if (!param) param = json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", message, "type", type_of(c->status),
                     "param", param, "code", c->code);
}
