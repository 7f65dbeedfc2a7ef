// Status and message: how every function of the library says that it failed.
//
// A function that can fail returns a knnlm_status (0 is done) and leaves one line of text for people,
// kept per thread, that names the file or the argument, the place in it, and the remedy where one is known.
// The library never prints and never exits.
#ifndef KN_BASE_STATUS_H
#define KN_BASE_STATUS_H

#include "knnlm.h"

// Records the message of this thread and returns `status`, so that callers write `return kn_fail(...)`.
knnlm_status kn_fail(knnlm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

// Like kn_fail, with ": " and the text of the system error `error` appended.
knnlm_status kn_fail_errno(knnlm_status status, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

// Puts "prefix: " before this thread's message; for callers that know the file a callee does not.
knnlm_status kn_fail_in(knnlm_status status, const char *prefix);

// Returns early with the status of `call` when it failed.
#define KN_TRY(call)                                                                                         \
    do {                                                                                                     \
        knnlm_status kn_try_status_ = (call);                                                                \
        if (kn_try_status_ != KNNLM_OK) return kn_try_status_;                                               \
    } while (0)

#endif
