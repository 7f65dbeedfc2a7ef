// Documents of a request: one of a JSON object, or many of JSON lines. Not a door: only this room includes
// it.
#ifndef KN_SERVE_LINES_H
#define KN_SERVE_LINES_H

#include "serve/exchange.h"

typedef struct kn_document_list {
    kn_new_document *items; // strings are the list's
    size_t count, capacity;
} kn_document_list;

// Whether a body of this Content-Type (NULL: none was sent) is JSON lines.
bool kn_is_lines(const char *type);
// The documents of the request, with memory of the account. To be freed whatever it returns. False: something
// is wrong with one of them, and the line is named (error set).
bool kn_document_list_read(const kn_exchange *x, kn_account *account, kn_document_list *out,
                           kn_http_error *err);
void kn_document_list_free(kn_document_list *list);

#endif
