// NumPy's .npy files: one array with its shape.
//
//   1. "\x93NUMPY", u8 major (1 or 2), u8 minor (0)
//   2. u16 (version 1) or u32 (version 2) bytes of 3
//   3. a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, padded with spaces,
//   then a line end; 1 to 3 are a multiple of 64 bytes (16 in old files; not required here)
//   4. the elements, row after row
// Little-endian arrays in C order are read and written. A file is hostile until proven otherwise: its shape
// is reconciled with its size before anyone sees it.
#ifndef KN_STORE_NPY_H
#define KN_STORE_NPY_H

#include "base/file.h"

#define KN_NPY_MAGIC "\x93NUMPY"
enum { KN_NPY_MAGIC_SIZE = 6, KN_NPY_ALIGN = 64, KN_NPY_DIMS_MAX = 4 };

typedef enum kn_npy_type {
    KN_NPY_F16,
    KN_NPY_F32,
    KN_NPY_I8,
    KN_NPY_I16,
    KN_NPY_I32,
    KN_NPY_I64,
    KN_NPY_U8,
    KN_NPY_U16,
    KN_NPY_U32,
    KN_NPY_U64,
    KN_NPY_TYPES
} kn_npy_type;
const char *kn_npy_type_name(kn_npy_type type); // NumPy's: "float16", ..., "uint64"
size_t kn_npy_type_size(kn_npy_type type);

// ---- reading

typedef struct kn_npy {
    kn_map map; // empty when the bytes are the caller's
    kn_npy_type type;
    uint32_t n_dims;
    size_t dims[KN_NPY_DIMS_MAX]; // unused ones are 1
    const uint8_t *data;          // of any alignment; NULL without elements
    size_t count, size;           // elements, bytes
} kn_npy;

// Whether a file begins as .npy files do.
bool kn_npy_is(const kn_map *file);
// Maps the file. KNNLM_EIO: cannot be read; KNNLM_EDATA: malformed; KNNLM_ENOTSUP: another version, element
// type or order. *out is set only when it went well.
knnlm_status kn_npy_open(const char *path, kn_npy *out);
// From bytes that outlive the result (fuzzing, tests). `name` is used in messages.
knnlm_status kn_npy_parse(const char *name, const uint8_t *data, size_t size, kn_npy *out);
void kn_npy_close(kn_npy *npy);

// Elements [first, first + count) of an array of integers or of floats. Of u64, what is beyond i64 is the
// largest i64.
void kn_npy_integers(const kn_npy *npy, size_t first, size_t count, int64_t *out);
void kn_npy_floats(const kn_npy *npy, size_t first, size_t count, float *out);

// ---- writing: the shape first, then the elements in any pieces, then commit

typedef struct kn_npy_writer kn_npy_writer;
knnlm_status kn_npy_create(const char *path, kn_npy_type type, uint32_t n_dims, const size_t *dims,
                           kn_npy_writer **out);
knnlm_status kn_npy_put(kn_npy_writer *w, const void *elements, size_t count);
// Both release the writer, whatever they return; NULL is allowed for abort. Commit replaces the file
// atomically; KNNLM_EINVAL: more or fewer elements were put than the shape has.
knnlm_status kn_npy_commit(kn_npy_writer *w);
void kn_npy_abort(kn_npy_writer *w);

#endif
