// GGUF version 3 files: named values and tensors in one file (little-endian):
//   1. "GGUF", u32 version, i64 tensors, i64 values
//   2. values: string key, i32 type, value; array: i32 element type, u64 n, elements; string: u64 length,
//   bytes
//   3. tensor table: string name, u32 dimensions, i64 sizes (first = columns), i32 type, u64 offset in 4.
//   4. padding to the alignment (32, or general.alignment), then the tensors' data, each padded likewise
// A file is hostile until proven otherwise: every count is reconciled with the file's size before anything is
// allocated.
#ifndef KN_BASE_GGUF_H
#define KN_BASE_GGUF_H

#include "base/status.h"

typedef enum kn_gguf_type { // of tensors
    KN_GGUF_F32 = 0,
    KN_GGUF_F16 = 1,
    KN_GGUF_Q8_0 = 8,
    KN_GGUF_I32 = 26,
    KN_GGUF_I64 = 27,
    KN_GGUF_BF16 = 30,
} kn_gguf_type;

enum { KN_GGUF_DIMS_MAX = 4, KN_GGUF_NAME_MAX = 64 };

// ---- reading: the file is mapped; a kn_gguf may be shared by threads

typedef struct kn_gguf kn_gguf;

typedef struct kn_gguf_tensor {
    const char *name; // NUL-terminated, owned by the file
    int32_t type;     // a kn_gguf_type, or another type of ggml's (size 0 then, data not checked)
    uint32_t n_dims;
    int64_t dims[KN_GGUF_DIMS_MAX]; // dims[0] = columns; unused ones are 1
    const uint8_t *data;            // in the mapping
    size_t size;                    // bytes
} kn_gguf_tensor;

// Malformed: KNNLM_EDATA; another version or byte order: KNNLM_ENOTSUP.
knnlm_status kn_gguf_open(const char *path, kn_gguf **out);
// From bytes that outlive the result (fuzzing, tests). `name` is used in messages.
knnlm_status kn_gguf_parse(const char *name, const uint8_t *data, size_t size, kn_gguf **out);
void kn_gguf_close(kn_gguf *file);
const char *kn_gguf_path(const kn_gguf *file);

size_t kn_gguf_tensor_count(const kn_gguf *file);
const kn_gguf_tensor *kn_gguf_tensor_at(const kn_gguf *file, size_t index);
const kn_gguf_tensor *kn_gguf_tensor_find(const kn_gguf *file, const char *name); // NULL when absent
// Hands the pages of a tensor's data back to the system (they can be read again).
void kn_gguf_tensor_release(const kn_gguf *file, const kn_gguf_tensor *tensor);

// The keys, in the order of the file.
size_t kn_gguf_key_count(const kn_gguf *file);
const char *kn_gguf_key_at(const kn_gguf *file, size_t index);

bool kn_gguf_has(const kn_gguf *file, const char *key);

// Typed values; any integer type serves for _i64, f32 and f64 for _f64. Absent: *found false, KNNLM_OK.
// Wrong type, or a number that does not fit: KNNLM_EDATA naming file and key.
knnlm_status kn_gguf_get_i64(const kn_gguf *file, const char *key, int64_t *value, bool *found);
knnlm_status kn_gguf_get_f64(const kn_gguf *file, const char *key, double *value, bool *found);
knnlm_status kn_gguf_get_bool(const kn_gguf *file, const char *key, bool *value, bool *found);
// The string is not NUL-terminated in the file; *value points to a NUL-terminated copy owned by the file.
// One that holds a NUL itself is KNNLM_EDATA.
knnlm_status kn_gguf_get_string(const kn_gguf *file, const char *key, const char **value, bool *found);
// Arrays: number of elements, then one by one, each found at once. An absent key or an element of another
// type is KNNLM_EDATA, an index past the end KNNLM_EINVAL. Strings may hold any bytes; *data is not
// NUL-terminated.
knnlm_status kn_gguf_get_array(const kn_gguf *file, const char *key, size_t *count, bool *found);
knnlm_status kn_gguf_array_string(const kn_gguf *file, const char *key, size_t index, const char **data,
                                  size_t *size);
knnlm_status kn_gguf_array_i64(const kn_gguf *file, const char *key, size_t index, int64_t *value);
knnlm_status kn_gguf_array_f64(const kn_gguf *file, const char *key, size_t index, double *value);

// Values of the tensor as f32: elements [first, first+count) in file order. F32, F16, BF16 and Q8_0 are
// known, others give KNNLM_ENOTSUP. For Q8_0 first is a multiple of 32. The message names the tensor, not the
// file.
knnlm_status kn_gguf_tensor_f32(const kn_gguf_tensor *tensor, size_t first, size_t count, float *out);

// ---- writing: values first, then the tensors announced, then their data in the same order, then commit

// Whatever fails is kept: commit then fails with the first message. Putting out of order, a key or a tensor
// twice, or more data than announced is KNNLM_EINVAL. A writer belongs to one thread.
typedef struct kn_gguf_writer kn_gguf_writer;

knnlm_status kn_gguf_writer_open(const char *path, kn_gguf_writer **out);
knnlm_status kn_gguf_put_u32(kn_gguf_writer *w, const char *key, uint32_t value);
knnlm_status kn_gguf_put_u64(kn_gguf_writer *w, const char *key, uint64_t value);
knnlm_status kn_gguf_put_f32(kn_gguf_writer *w, const char *key, float value);
knnlm_status kn_gguf_put_f64(kn_gguf_writer *w, const char *key, double value);
knnlm_status kn_gguf_put_bool(kn_gguf_writer *w, const char *key, bool value);
knnlm_status kn_gguf_put_string(kn_gguf_writer *w, const char *key, const char *value);
// `sizes` NULL: the strings end with NUL.
knnlm_status kn_gguf_put_strings(kn_gguf_writer *w, const char *key, const char *const *values,
                                 const size_t *sizes, size_t count);
knnlm_status kn_gguf_put_i32s(kn_gguf_writer *w, const char *key, const int32_t *values, size_t count);
knnlm_status kn_gguf_put_f32s(kn_gguf_writer *w, const char *key, const float *values, size_t count);
// Announces a tensor of `type` (f32, f16, bf16, q8_0, i32, i64).
knnlm_status kn_gguf_put_tensor(kn_gguf_writer *w, const char *name, kn_gguf_type type, uint32_t n_dims,
                                const int64_t *dims);
// The data of the next announced tensor, converted from f32 (rounded to nearest even), or as raw bytes of its
// type. It may come in pieces (for Q8_0 of whole blocks); a piece never spans two tensors.
knnlm_status kn_gguf_put_data_f32(kn_gguf_writer *w, const float *values, size_t count);
knnlm_status kn_gguf_put_data_raw(kn_gguf_writer *w, const void *data, size_t size);
// Both release the writer, whatever they return. Commit replaces the file atomically.
knnlm_status kn_gguf_writer_commit(kn_gguf_writer *w);
void kn_gguf_writer_abort(kn_gguf_writer *w);

#endif
