// Bytes that go from one rank to another: values put one after another, and taken out in the same order.
//
// Ranks run the same program on machines of one kind, so numbers go as they lie in memory. Failures are
// remembered: who put or took many values asks once at the end.
#ifndef KN_RANKS_MESSAGE_H
#define KN_RANKS_MESSAGE_H

#include "base/memory.h"

typedef struct kn_message {
    uint8_t *data;
    size_t size, capacity;
    size_t taken;
    bool failed; // no memory for what was put, or more was taken than there is
} kn_message;

void kn_message_free(kn_message *m);
// Empties it: its memory is used again, which the system need not clear another time.
void kn_message_clear(kn_message *m);
void kn_message_put(kn_message *m, const void *data, size_t size);
// Room for `size` bytes, to be filled by the caller before the next put; NULL: there is none.
void *kn_message_room(kn_message *m, size_t size);
// The same, filled up to a multiple of 8 bytes, so that what comes after it lies well.
void *kn_message_room_padded(kn_message *m, size_t size);
void kn_message_put_padded(kn_message *m, const void *data, size_t size);
// Zeros where there is no more.
void kn_message_take(kn_message *m, void *out, size_t size);
// The next `size` bytes where they lie, which is on a multiple of 8 when all before them were multiples of 8
// long; NULL: there are fewer.
const void *kn_message_view(kn_message *m, size_t size);
const void *kn_message_view_padded(kn_message *m, size_t size);
// KNNLM_ENOMEM: something put is missing. KNNLM_EDATA: more was taken than there is.
knnlm_status kn_message_sent(const kn_message *m);
knnlm_status kn_message_read(const kn_message *m);

static inline void kn_message_put_number(kn_message *m, uint64_t value) {
    kn_message_put(m, &value, sizeof value);
}
static inline uint64_t kn_message_take_number(kn_message *m) {
    uint64_t value;
    kn_message_take(m, &value, sizeof value);
    return value;
}
static inline void kn_message_put_real(kn_message *m, double value) {
    kn_message_put(m, &value, sizeof value);
}
static inline double kn_message_take_real(kn_message *m) {
    double value;
    kn_message_take(m, &value, sizeof value);
    return value;
}
// A text of `size` bytes, and one that ends with a NUL or is NULL.
void kn_message_put_bytes(kn_message *m, const char *text, size_t size);
void kn_message_put_text(kn_message *m, const char *text);
// Where it lies in the message, with a NUL after it; NULL as it was put.
const char *kn_message_take_text(kn_message *m);
const char *kn_message_take_bytes(kn_message *m, size_t *size);
// Texts in an array: the array is the caller's to free, the texts are the message's.
void kn_message_put_texts(kn_message *m, const char *const *texts, size_t count);
knnlm_status kn_message_take_texts(kn_message *m, const char ***texts, size_t *count);

#endif
