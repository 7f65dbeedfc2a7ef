// Bytes that grow.
#ifndef KN_TEXT_BUFFER_H
#define KN_TEXT_BUFFER_H

#include "base/memory.h"

// Zero-initialise; released with free(data).
typedef struct kn_buffer {
    char *data;
    size_t size, capacity;
} kn_buffer;
knnlm_status kn_buffer_put(kn_buffer *b, const char *data, size_t size);
static inline knnlm_status kn_buffer_put_text(kn_buffer *b, const char *text) {
    return kn_buffer_put(b, text, __builtin_strlen(text));
}

#endif
