// A line for each request: who asked what, and how it went; never a text, a query or a name of a document.
// Not a door: only this room includes it.
#ifndef KN_SERVE_ACCESS_LOG_H
#define KN_SERVE_ACCESS_LOG_H

#include "base/status.h"

typedef struct kn_access_log kn_access_log;

typedef struct kn_access {
    const char *address, *method;
    const char *path; // of the table of endpoints; of what is in none, as it was asked for
    unsigned status;
    uint64_t bytes; // of the answer's body
    double seconds;
} kn_access;

// `path` is appended to; "-": standard error. KNNLM_EIO; KNNLM_ENOMEM.
knnlm_status kn_access_log_open(const char *path, bool json, kn_access_log **out);
void kn_access_log_close(kn_access_log *log); // NULL is allowed
// The file may have been renamed, and a new one is begun; where it cannot be, the old one stays. KNNLM_EIO.
knnlm_status kn_access_log_reopen(kn_access_log *log);
// Any thread. NULL: nothing happens.
void kn_access_log_write(kn_access_log *log, const kn_access *a);

#endif
