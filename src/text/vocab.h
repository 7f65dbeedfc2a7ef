// Lists of byte strings, and vocabularies: such a list with a hash from string to its number.
#ifndef KN_TEXT_VOCAB_H
#define KN_TEXT_VOCAB_H

#include "base/memory.h"

// Strings one after another, each with a NUL after it. Zero-initialise.
typedef struct kn_strings {
    char *bytes;
    size_t *starts;
    size_t count, used, byte_capacity, start_capacity; // starts[count] = used
} kn_strings;

knnlm_status kn_strings_add(kn_strings *s, const char *data, size_t size);
void kn_strings_free(kn_strings *s);
static inline const char *kn_strings_at(const kn_strings *s, size_t i) {
    return s->bytes + s->starts[i];
}
static inline size_t kn_strings_size(const kn_strings *s, size_t i) {
    return s->starts[i + 1] - s->starts[i] - 1;
}

// Zero-initialise. At most INT32_MAX strings.
typedef struct kn_vocab {
    kn_strings strings;
    uint64_t *slots; // hash tag << 32 | number + 1; 0 when free
    size_t slot_count;
} kn_vocab;

// The number of the string, added when it is new.
knnlm_status kn_vocab_intern(kn_vocab *v, const char *data, size_t size, int32_t *number);
// Adds a string that must be new; a duplicate is KNNLM_EDATA.
knnlm_status kn_vocab_add(kn_vocab *v, const char *data, size_t size);
int32_t kn_vocab_find(const kn_vocab *v, const char *data, size_t size); // -1 when absent
void kn_vocab_free(kn_vocab *v);
static inline int32_t kn_vocab_count(const kn_vocab *v) {
    return (int32_t)v->strings.count;
}

// How often each string was seen. Zero-initialise.
typedef struct kn_counts {
    kn_vocab words;
    uint64_t *counts;
    size_t capacity;
} kn_counts;

knnlm_status kn_counts_add(kn_counts *c, const char *word, size_t size, uint64_t times);
void kn_counts_free(kn_counts *c);

#endif
