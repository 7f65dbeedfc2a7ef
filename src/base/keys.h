// How the numbers of a key lie on disk, in one table: to add a form, add its row and its two conversions.
#ifndef KN_BASE_KEYS_H
#define KN_BASE_KEYS_H

#include "knnlm.h"

#include <stdbool.h>
#include <stddef.h>

enum { KN_KEY_TYPES = KNNLM_KEYS_NONE + 1 };

typedef struct kn_key_form {
    size_t bytes; // of a number
    bool scaled;  // each key has an f32 that its numbers are multiples of
    // Whether numbers (bytes in all) are all finite; NULL: they always are.
    bool (*finite)(const void *data, size_t bytes);
    // count keys of d numbers to rows, and back. `scales` (count) where the form is scaled. What does not fit
    // narrows to what is not finite. NULL: keys are not kept.
    void (*narrow)(void *rows, float *scales, const float *keys, size_t count, size_t d);
    void (*widen)(float *keys, const void *rows, const float *scales, size_t count, size_t d);
} kn_key_form;

extern const char *const kn_key_type_names[]; // "f16", ..., NULL
const kn_key_form *kn_key_form_of(knnlm_keys type);
size_t kn_key_row_bytes(knnlm_keys type, size_t d); // of one key as rows lie, without its scale
size_t kn_key_bytes(knnlm_keys type, size_t d);     // its scale included
bool kn_key_values_finite(knnlm_keys type, const void *data, size_t bytes);

#endif
