// knnlm: nearest-neighbour language models. The one installed header.
//
// Conventions: every function that can fail returns a knnlm_status; 0 is done, and otherwise knnlm_message() has one
// line for people. Handles are opaque; what _open gives, _close takes back. The library never prints and never exits.
#ifndef KNNLM_H
#define KNNLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KNNLM_VERSION "0.1.0"

// ---------------------------------------------------------------- status

typedef enum knnlm_status {
    KNNLM_OK = 0,
    KNNLM_EINVAL,   // an argument or an option is wrong
    KNNLM_EIO,      // a file or a device failed
    KNNLM_EDATA,    // a file's content is malformed
    KNNLM_ENOMEM,   // memory could not be had
    KNNLM_ENOTSUP,  // well formed, but not something this build can do
    KNNLM_ESTOPPED, // interrupted by the user; what could be kept was kept
} knnlm_status;

// The message of the last failure in the calling thread; valid until the next failure in it. Never NULL.
const char *knnlm_message(void);
// A few words for a status; a constant. Any thread.
const char *knnlm_status_name(knnlm_status status);
// The version of the library linked, as KNNLM_VERSION. Any thread.
const char *knnlm_version(void);

#ifdef __cplusplus
}
#endif

#endif
