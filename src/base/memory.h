// Memory: sizes are multiplied and added only through the checked functions here.
#ifndef KN_BASE_MEMORY_H
#define KN_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// *out = a * b (a + b); false when the result does not fit.
static inline bool kn_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool kn_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline size_t kn_min(size_t a, size_t b) {
    return a < b ? a : b;
}
static inline size_t kn_max(size_t a, size_t b) {
    return a > b ? a : b;
}

// The next `bytes` of the scratch memory at `base`, of which *used are taken: each piece begins on a cache
// line.
static inline void *kn_take(char *base, size_t *used, size_t bytes) {
    void *piece = base + *used;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

// `count` elements of `size` bytes, zeroed; NULL when they do not fit (message set). Released with free().
void *kn_alloc(size_t count, size_t size) __attribute__((malloc));

// The same, aligned to a cache line, not zeroed, on huge pages when large; released with kn_free_aligned.
void *kn_alloc_aligned(size_t count, size_t size);
void kn_free_aligned(void *memory);

// Grows *array (elements of `size` bytes, *capacity of them) to hold at least `needed`; content kept.
knnlm_status kn_grow(void *array, size_t *capacity, size_t needed, size_t size);

// A copy of `text` (of its first `length` bytes, NUL added); NULL when out of memory (message set).
char *kn_strdup(const char *text);
char *kn_strndup(const char *text, size_t length);

// Resident memory of this process now, and its highest so far, in bytes.
uint64_t kn_memory_resident(void);
uint64_t kn_memory_peak(void);
// Of the machine.
uint64_t kn_memory_total(void);

#endif
