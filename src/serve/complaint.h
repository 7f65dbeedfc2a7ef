// What is wrong with a request, as it is told to the client. Not a door: only this room includes it.
#ifndef KN_SERVE_COMPLAINT_H
#define KN_SERVE_COMPLAINT_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct kn_complaint {
    unsigned status;  // of HTTP; 0: nothing is wrong
    const char *code; // a constant, or NULL
    char param[64];   // the member at fault, or empty
    char message[400];
    int retry_after; // seconds; 0: not said
} kn_complaint;

// Always false, so that checks end with it.
bool kn_complain(kn_complaint *c, unsigned status, const char *code, const char *param, const char *format,
                 ...) __attribute__((format(printf, 5, 6)));
// Out of memory: 503.
bool kn_complain_memory(kn_complaint *c);
// What the library reported last in this thread.
bool kn_complain_status(kn_complaint *c, knnlm_status status, const char *message);
// Every `path` in the message becomes `name`; absolute paths that are left lose their folders, unless the
// client is quoted.
void kn_complaint_hide(kn_complaint *c, const char *path, const char *name);
void kn_complaint_hide_folders(kn_complaint *c);
// {"error": {...}}
json_t *kn_complaint_json(const kn_complaint *c);

#endif
