// Stores to and from the files of other programs: NumPy, the paper's code, knn-transformers.
//
// An export is a directory of four files, rows in the order of the documents, removed ones left out:
//   1. keys.npy       (N, d) float16 or float32; int8 keys as float32. Absent where the store keeps none
//   2. values.npy     (N,) int32: tokens
//   3. origins.npy    (N, 3) int64: document (a row of 4), position in it, byte offset in it (-1: not known)
//   4. documents.tsv  a line of names, then a row a document: number, name, path, bytes, tokens, hash
//   (XXH3-128,
//                     32 hexadecimal digits), added (UTC), source_offset; name and path escaped by
//                     kn_utf8_escape
// An import takes that, and the two pairs of raw arrays without header (the .npy of their names means
// nothing):
//   dstore_keys.npy, dstore_vals.npy of the paper's code: float32 or float16 (N, d); int64, or int16, (N, 1)
//   dstore_TYPE_N_D_keys.npy, _vals.npy of knn-transformers: float16 (N, d), int32 (N, 1)
#ifndef KN_STORE_INTEROP_H
#define KN_STORE_INTEROP_H

#include "store/npy.h"
#include "store/store.h"

// ---------------------------------------------------------------- export

typedef struct kn_export_options {
    bool convert;        // keys to key_type
    knnlm_keys key_type; // f16 or f32
    bool force;          // goes on although the disk seems too small
} kn_export_options;

typedef struct kn_export_totals {
    uint64_t entries, documents, bytes; // bytes: of the files
    int32_t dimension;                  // 0: the store keeps no keys, there is no keys.npy
    kn_npy_type key_type;
} kn_export_totals;

// `directory` is created when it is not there; files of an earlier export in it are replaced once all are
// written. `o` NULL: defaults. Only what is intact is exported. KNNLM_EIO: cannot be written, or the disk has
// no room; KNNLM_EDATA: the store is damaged, or a key does not fit float16; KNNLM_EINVAL: the directory is a
// store; KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_store_export(const kn_store *s, const char *directory, const kn_export_options *o,
                             const kn_progress *progress, kn_export_totals *out);

// ---------------------------------------------------------------- import

typedef struct kn_import_options {
    // `values` NULL: `keys` is a directory that holds one pair, or the keys of a pair (kn_import_find).
    // `keys` NULL: a store without keys; `entries` and settings.dimension are told, and `values` NULL is
    // token 0 everywhere.
    const char *keys, *values;
    const char *name; // of the one document that everything becomes; NULL: that of the values
    uint64_t entries; // 0: by the files
    knnlm_array_type key_type, value_type;
    bool convert; // keys to settings.key_type; else they stay as they are
    bool force;   // goes on although the disk seems too small
    // Of the new store. dimension 0: by the files; segment 0: the default; model_dimension is set by the
    // import.
    kn_store_settings settings;
    // Called when all entries are there, before the store is: to add an annex, of `room` bytes. May be NULL.
    knnlm_status (*add)(void *context, kn_store_writer *w);
    void *context;
    uint64_t room;
} kn_import_options;

typedef struct kn_import_totals {
    uint64_t entries, documents, bytes; // bytes: of the store
    int32_t dimension;
    kn_npy_type key_type, value_type; // as they were read
    bool restored;                    // documents, by origins.npy and documents.tsv
} kn_import_totals;

// The pair that `path`, a directory or a file of keys, stands for: NAMEkeys.npy and NAMEvals.npy or
// NAMEvalues.npy. Both names are released with free(). KNNLM_EINVAL: none, or several.
knnlm_status kn_import_find(const char *path, char **keys, char **values);

// A new store of the keys and values. Without origins.npy beside values.npy, everything is one document named
// after the values, without byte offsets. The store is there when all of it is, or not at all: what was made
// before a failure is deleted.
// KNNLM_EINVAL: the sizes do not tell N, d and types, or tell several; KNNLM_EDATA: they contradict what was
// given, or a file is malformed, or a token or key is impossible; KNNLM_EIO; KNNLM_ENOTSUP: another type of
// array, or too many entries; KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_store_import(const kn_import_options *o, const char *store_path, const kn_progress *progress,
                             kn_import_totals *out);

#endif
