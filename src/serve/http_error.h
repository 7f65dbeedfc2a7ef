// What is wrong with a request, as it is told to the client. Not a door: only this room includes it.
#ifndef KN_SERVE_HTTP_ERROR_H
#define KN_SERVE_HTTP_ERROR_H

#include "base/status.h"

#include <stdbool.h>

typedef struct kn_http_error {
    unsigned status;  // of HTTP; 0: nothing is wrong
    const char *code; // a constant, or NULL
    char param[64];   // the member at fault, or empty
    char message[400];
    int retry_after; // seconds; 0: not given
} kn_http_error;

// Always false, so that checks end with it.
bool kn_http_error_set(kn_http_error *err, unsigned status, const char *code, const char *param,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));
// Out of memory: 503.
bool kn_http_error_memory(kn_http_error *err);
// What the library reported last in this thread.
bool kn_http_error_status(kn_http_error *err, knnlm_status status, const char *message);
// Every `path` in the message becomes `name`; absolute paths that are left lose their folders, unless the
// client is quoted.
void kn_http_error_hide_path(kn_http_error *err, const char *path, const char *name);
void kn_http_error_hide_folders(kn_http_error *err);

#endif
