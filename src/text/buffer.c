// Grows bytes.
#include "text/buffer.h"

#include <string.h>

knnlm_status kn_buffer_put(kn_buffer *b, const char *data, size_t size) {
    size_t needed;
    if (!kn_add(b->size, size, &needed)) return kn_fail(KNNLM_ENOMEM, "out of memory: %zu more bytes", size);
    KN_TRY(kn_grow(&b->data, &b->capacity, needed, 1));
    if (size) memcpy(b->data + b->size, data, size);
    b->size = needed;
    return KNNLM_OK;
}
