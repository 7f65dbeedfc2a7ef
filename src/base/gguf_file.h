// What a GGUF file is made of: shared by gguf_parse.c (bytes to this), gguf_read.c (questions to this) and
// gguf_write.c (the types alone). Not a door: others include gguf.h.
#ifndef KN_BASE_GGUF_FILE_H
#define KN_BASE_GGUF_FILE_H

#include "base/file.h"
#include "base/gguf.h"

#define KN_GGUF_MAGIC "GGUF"
enum {
    KN_GGUF_VERSION = 3,
    KN_GGUF_VERSION_OLDEST = 2, // the same layout; version 1 had 32-bit counts
    KN_GGUF_ALIGNMENT = 32,
    KN_GGUF_ALIGNMENT_MIN = 8,
    KN_GGUF_KEY_MAX = 65535,
};
#define KN_GGUF_ALIGNMENT_KEY "general.alignment"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are read in place: the host is little-endian");

typedef enum kn_gguf_kind { // of values
    KN_GGUF_KIND_U8,
    KN_GGUF_KIND_I8,
    KN_GGUF_KIND_U16,
    KN_GGUF_KIND_I16,
    KN_GGUF_KIND_U32,
    KN_GGUF_KIND_I32,
    KN_GGUF_KIND_F32,
    KN_GGUF_KIND_BOOL,
    KN_GGUF_KIND_STRING,
    KN_GGUF_KIND_ARRAY,
    KN_GGUF_KIND_U64,
    KN_GGUF_KIND_I64,
    KN_GGUF_KIND_F64,
    KN_GGUF_KINDS
} kn_gguf_kind;

typedef struct kn_gguf_value {
    char *key;
    kn_gguf_kind kind; // of the value; of the elements when it is an array
    bool is_array;
    size_t count;        // elements; 1 when it is no array
    const uint8_t *data; // the value or the first element; of a string, its length
    char *text;          // of a string value: a copy with a NUL after it
    size_t text_size;
    uint64_t *places; // of an array of strings: where in the file each begins
} kn_gguf_value;

typedef struct kn_gguf_name {
    const char *name;
    size_t index;
} kn_gguf_name;

struct kn_gguf {
    char *path;
    kn_map map; // empty when the bytes are the caller's
    const uint8_t *data;
    size_t size;
    kn_gguf_value *values;
    kn_gguf_tensor *tensors;
    kn_gguf_name *value_names, *tensor_names; // sorted
    size_t n_values, n_tensors, values_capacity, tensors_capacity;
};

// Bytes of a value of `kind`; 0 for strings and arrays.
size_t kn_gguf_kind_size(kn_gguf_kind kind);
const char *kn_gguf_kind_name(kn_gguf_kind kind);

// Values in a block of `type` and its bytes; false for a type not known.
bool kn_gguf_type_block(int32_t type, size_t *values, size_t *bytes);
// ggml's name of `type`, or "?".
const char *kn_gguf_type_name(int32_t type);

// *size = bytes of a tensor (0 for a type not known). A reason in English when the shape is impossible, else
// NULL.
const char *kn_gguf_tensor_measure(int32_t type, uint32_t n_dims, const int64_t *dims, size_t *size);

bool kn_gguf_alignment_valid(uint64_t alignment);

// *out = `value` rounded up to a multiple of `alignment`, a power of two; false when that does not fit.
bool kn_gguf_align(size_t value, size_t alignment, size_t *out);

#endif
