// Keeps the message of the last failure, one per thread.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_CAPACITY = 1024 };

static _Thread_local char message[MESSAGE_CAPACITY];

const char *knnlm_message(void) {
    return message;
}

const char *knnlm_status_name(knnlm_status status) {
    switch (status) {
    case KNNLM_OK:
        return "done";
    case KNNLM_EINVAL:
        return "invalid argument";
    case KNNLM_EIO:
        return "input or output failed";
    case KNNLM_EDATA:
        return "malformed data";
    case KNNLM_ENOMEM:
        return "out of memory";
    case KNNLM_ENOTSUP:
        return "not supported";
    case KNNLM_ESTOPPED:
        return "stopped";
    case KNNLM_EBUSY:
        return "busy";
    }
    return "unknown status";
}

knnlm_status kn_fail(knnlm_status status, const char *format, ...) {
    char text[MESSAGE_CAPACITY]; // the arguments may point into `message`
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, sizeof text);
    return status;
}

knnlm_status kn_fail_errno(knnlm_status status, int error, const char *format, ...) {
    char text[MESSAGE_CAPACITY];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kn_fail(status, "%s: %s", text, strerror(error));
}

knnlm_status kn_fail_in(knnlm_status status, const char *prefix) {
    return kn_fail(status, "%s: %s", prefix, message);
}

const char *knnlm_version(void) {
    return KNNLM_VERSION;
}
