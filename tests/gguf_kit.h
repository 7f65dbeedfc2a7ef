// What the tests of GGUF files share: files written by hand, independent of the writer, and read from memory.
#ifndef KN_TESTS_GGUF_KIT_H
#define KN_TESTS_GGUF_KIT_H

#include "expect.h"

#include "base/convert.h"
#include "base/gguf.h"

#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t data[8192];
    size_t size;
};

static inline void raw(struct bytes *b, const void *data, size_t size) {
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void number(struct bytes *b, uint64_t value, int size) {
    for (int i = 0; i < size; i++) raw(b, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static inline void string(struct bytes *b, const char *text) {
    number(b, strlen(text), 8);
    raw(b, text, strlen(text));
}

static inline void key(struct bytes *b, const char *name, uint32_t type) {
    string(b, name);
    number(b, type, 4);
}

static inline void scalar(struct bytes *b, const char *name, uint32_t type, uint64_t value, int size) {
    key(b, name, type);
    number(b, value, size);
}

static inline void array(struct bytes *b, const char *name, uint32_t type, uint64_t count) {
    key(b, name, 9);
    number(b, type, 4);
    number(b, count, 8);
}

static inline void header(struct bytes *b, uint64_t tensors, uint64_t values) {
    raw(b, "GGUF", 4);
    number(b, 3, 4);
    number(b, tensors, 8);
    number(b, values, 8);
}

static inline void tensor(struct bytes *b, const char *name, uint32_t n_dims, const int64_t *dims,
                          uint32_t type, uint64_t offset) {
    string(b, name);
    number(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) number(b, (uint64_t)dims[i], 8);
    number(b, type, 4);
    number(b, offset, 8);
}

static inline void pad(struct bytes *b, size_t alignment) {
    while (b->size % alignment) number(b, 0, 1);
}

static inline void floats(struct bytes *b, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) number(b, kn_f32_bits(values[i]), 4);
}

static inline knnlm_status parse(const struct bytes *b, kn_gguf **out) {
    // A copy of the exact size on the heap, so that sanitizers see any step outside.
    static uint8_t *copy;
    free(copy);
    copy = malloc(b->size ? b->size : 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->size);
    knnlm_status status = kn_gguf_parse("model.gguf", copy, b->size, out);
    if (status != KNNLM_OK) {
        free(copy);
        copy = NULL;
    }
    return status;
}

#endif
