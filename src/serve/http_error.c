// Errors as clients see them, without paths of this machine.
#include "serve/http_error.h"

#include "ranks/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool kn_http_error_set(kn_http_error *err, unsigned status, const char *code, const char *param,
                       const char *format, ...) {
    va_list arguments;
    *err = (kn_http_error){.status = status, .code = code};
    snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    va_start(arguments, format);
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    if (status == 429 || status == 503) err->retry_after = 1;
    return false;
}

bool kn_http_error_memory(kn_http_error *err) {
    return kn_http_error_set(err, 503, "out_of_memory", NULL, "not enough memory for this now: try again");
}

bool kn_http_error_status(kn_http_error *err, knnlm_status status, const char *message) {
    if (status == KNNLM_ENOMEM) return kn_http_error_memory(err);
    if (status == KNNLM_EIO && kn_ranks_check() != KNNLM_OK)
        return kn_http_error_set(err, 503, "rank_lost", NULL, "%s", knnlm_message());
    bool request = status == KNNLM_EINVAL || status == KNNLM_ENOTSUP;
    return kn_http_error_set(err, request ? 400 : 500, NULL, NULL, "%s", message);
}

// The `count` bytes at `at` become the `size` bytes of `text`, which are not more and may be some of them.
static void shrink(char *at, size_t count, const char *text, size_t size) {
    memmove(at, text, size);
    memmove(at + size, at + count, strlen(at + count) + 1);
}

void kn_http_error_hide_path(kn_http_error *err, const char *path, const char *name) {
    size_t size = strlen(path), named = strlen(name);
    if (size == 0 || named > size) return;
    for (char *at = err->message; (at = strstr(at, path)); at += named) shrink(at, size, name, named);
}

void kn_http_error_hide_folders(kn_http_error *err) {
    for (char *at = err->message; *at; at += *at != 0) {
        if (*at != '/' || (at > err->message && !strchr(" (\"", at[-1]))) continue;
        size_t size = strcspn(at, " ),\"");
        if (at[size - 1] == ':') size--;
        const char *name = at + size;
        while (name[-1] != '/') name--;
        shrink(at, size, name, (size_t)(at + size - name));
    }
}
