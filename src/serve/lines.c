// Documents of a request: a JSON object is one, JSON lines are many.
#include "serve/lines.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DOCUMENTS_MAX = 100000 };

bool kn_is_lines(const char *type) {
    static const char *const types[] = {"application/x-ndjson", "application/jsonl", "application/jsonlines"};
    size_t size = type ? strcspn(type, "; \t") : 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == size && strncasecmp(type, types[i], size) == 0) return true;
    return false;
}

void kn_document_list_free(kn_document_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free((char *)list->items[i].name);
        free((char *)list->items[i].text);
    }
    free(list->items);
    *list = (kn_document_list){0};
}

// A copy, as the work outlives the request; and what reading it will take.
static bool add(kn_account *account, const char *name, const kn_prompt *text, kn_document_list *out,
                kn_http_error *err) {
    if (!kn_account_take(account, strlen(name) + text->size * (1 + KN_COST_TOKEN)))
        return kn_account_error(account, "text", err);
    if (kn_grow(&out->items, &out->capacity, out->count + 1, sizeof *out->items) != KNNLM_OK)
        return kn_http_error_memory(err);
    kn_new_document *d = &out->items[out->count++];
    *d = (kn_new_document){kn_strdup(name), kn_strndup(text->text, text->size), text->size};
    return (d->name && d->text) || kn_http_error_memory(err);
}

static bool add_object(const json_t *root, kn_account *account, kn_document_list *out, kn_http_error *err) {
    const char *name;
    kn_prompt text;
    return kn_document_parse(root, &name, &text, err) && add(account, name, &text, out, err);
}

static bool in_line(kn_http_error *err, size_t line) {
    char message[sizeof err->message];
    memcpy(message, err->message, sizeof message);
    snprintf(err->message, sizeof err->message, "line %zu: %.360s", line, message);
    return false;
}

static bool add_line(const char *text, size_t size, size_t line, kn_account *account, kn_document_list *out,
                     kn_http_error *err) {
    size_t blank = 0;
    while (blank < size && strchr(" \t\r", text[blank]) && text[blank]) blank++;
    if (blank == size) return true;
    if (out->count == DOCUMENTS_MAX)
        return kn_http_error_set(err, 400, NULL, NULL, "more than %d documents: send them in parts",
                                 DOCUMENTS_MAX);
    json_t *root = kn_request_load(text, size, err);
    if (!root) return in_line(err, line);
    bool fine = add_object(root, account, out, err) || in_line(err, line);
    json_decref(root);
    return fine;
}

static bool add_lines(const kn_exchange *x, kn_account *account, kn_document_list *out, kn_http_error *err) {
    const char *at = x->body, *end = x->body + x->size;
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (!add_line(at, (size_t)(stop - at), line, account, out, err)) return false;
        at = stop + 1;
    }
    return out->count || kn_http_error_set(err, 400, NULL, NULL, "the body has no documents");
}

bool kn_document_list_read(const kn_exchange *x, kn_account *account, kn_document_list *out,
                           kn_http_error *err) {
    *out = (kn_document_list){0};
    if (x->request) return add_object(x->request, account, out, err);
    return add_lines(x, account, out, err);
}
