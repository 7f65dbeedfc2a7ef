// Indexes to and from FAISS: its IVFPQ file, which the paper's code and knn-transformers write.
//
// Packed, little-endian; size_t is u64, a vector is u64 n and its n elements:
//   1. "IwPQ"; header {i32 d; i64 entries; i64 2^20, twice; u8 trained; i32 metric (0 inner product, 1 L2)}
//   2. u64 lists; u64 probes
//   3. coarse quantizer: "IxF2" (L2) or "IxFI" (inner product); header as in 1; vector f32 (lists, d)
//   4. direct map: u8 type (0 none, 1 array, 2 hash table); vector i64; of a hash table, vector of pairs i64
//   5. u8 by_residual; u64 code bytes; PQ: u64 d, parts m, bits b; vector f32 (m, 2^b, d/m)
//   6. "ilar"; u64 lists; u64 code bytes; "full", vector u64 of the lists' sizes; or, where at most half of
//      the lists have entries, "sprs", vector u64 of list, size, list, size, ... of those
//   7. of each list that has entries, in order: codes u8 (n, code bytes), ids i64 (n)
// An id is the number of an entry. A file is hostile until proven otherwise: every count is reconciled with
// the file's size before anything is allocated.
#ifndef KN_INDEX_FAISS_H
#define KN_INDEX_FAISS_H

#include "base/file.h"
#include "store/interop.h"

#define KN_FAISS_IVFPQ "IwPQ"

typedef struct kn_faiss_totals {
    uint64_t entries;
    uint64_t left_out;         // export: removed entries, which are not in the file
    uint64_t documents, bytes; // import: of the store; export: bytes of the file
    int32_t dimension;
    uint32_t lists, probes, code_parts, code_bits;
    knnlm_distance distance;
    bool residuals;         // codes are of residuals
    bool restored;          // import: documents, by origins.npy and documents.tsv beside the values
    kn_npy_type value_type; // import: as values were read
} kn_faiss_totals;

// ---------------------------------------------------------------- export

// Writes the codes of an indexed store to `path`, whole or not at all; `force` goes on although the disk
// seems too small. KNNLM_EINVAL: the store has no index, no codes, or entries outside of its lists;
// KNNLM_ENOTSUP: cosine, which FAISS does not know; KNNLM_EDATA: the index is damaged; KNNLM_EIO;
// KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_faiss_export(const kn_store *store, const char *path, bool force, const kn_progress *progress,
                             kn_faiss_totals *out);

// ---------------------------------------------------------------- reading

// A file that was found sound, but for the numbers in it: floats may be anything, ids too.
typedef struct kn_faiss_file {
    kn_map map; // empty when the bytes are the caller's
    const char *path;
    const uint8_t *data; // all of it
    size_t d, lists, probes, code_parts, code_bits, code_bytes, entries;
    knnlm_distance distance;
    bool residuals;
    // In the file, of any alignment:
    const uint8_t *centroids, *code_centroids; // f32 (lists, d), (m, 2^b, d/m)
    const uint8_t *content;                    // 7.
    uint64_t *sizes;                           // (lists)
} kn_faiss_file;

// KNNLM_EDATA: malformed, told with its place; KNNLM_ENOTSUP: another type of index or parts of it that a
// store has no room for. `path` outlives the result.
knnlm_status kn_faiss_open(const char *path, kn_faiss_file *out);
// From bytes that outlive the result (fuzzing, tests). `name` is used in messages.
knnlm_status kn_faiss_parse(const char *name, const uint8_t *data, size_t size, kn_faiss_file *out);
void kn_faiss_close(kn_faiss_file *f);

// ---------------------------------------------------------------- import

typedef struct kn_faiss_import_options {
    const char *values; // as kn_store_import takes them, or NULL: token 0 everywhere
    knnlm_array_type value_type;
    bool force; // goes on although the disk seems too small
    // Of the new store. dimension 0: by the file. Distance, keys (none) and model_dimension are set by the
    // import; vocabulary 0: not known (1 without values).
    kn_store_settings settings;
} kn_faiss_import_options;

// A new store without keys, whose index is the file's: entries are numbered by the ids, which must be 0 to
// entries - 1. It is there when all of it is, or not at all. Fails as kn_faiss_open and kn_store_import do.
knnlm_status kn_faiss_import(const char *index_path, const kn_faiss_import_options *o, const char *store_path,
                             const kn_progress *progress, kn_faiss_totals *out);

#endif
