// What the tests of imports and exports share: a store to export, arrays to import, and what must come out.
#ifndef KN_TESTS_INTEROP_KIT_H
#define KN_TESTS_INTEROP_KIT_H

#include "folder.h"

#include "base/random.h"
#include "base/utf8.h"
#include "store/interop.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

static inline size_t files_in(const char *path) {
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *e; (e = readdir(directory));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(directory);
    return count;
}

// ---------------------------------------------------------------- a store to export

enum { D = 6, SEGMENT = 7, VOCABULARY = 500, DOCUMENTS = 8 };

// Lengths: several segments, one, none; documents 2 and 6 will be removed, 3 has no offsets.
static const size_t lengths[DOCUMENTS] = {3, 0, 9, 25, 1, 7, 8, 0};
static const char *const names[DOCUMENTS] = {
    "plain",    "empty", "removed", "tab\tline\nreturn\rback\\slash", "caf\xc3\xa9", "not UTF-8 \xff\xc3",
    "\x01\x7f", ""};

static inline bool is_removed(size_t i) {
    return i == 2 || i == 6;
}
static inline bool has_offsets(size_t i) {
    return i != 3;
}
static inline int32_t token_of(size_t document, size_t position) {
    return (int32_t)((document * 97 + position * 31) % VOCABULARY);
}
static inline uint64_t offset_of(size_t document, size_t position) {
    return position * 4 + document;
}
static inline float key_of(size_t document, size_t position, size_t i) {
    return (float)((int)((document * 131 + position * 17 + i * 29) % 1000) - 500) / 37;
}

static inline kn_store_document record_of(size_t i) {
    return (kn_store_document){.name = names[i],
                               .name_size = strlen(names[i]),
                               .path = "texts/all.txt",
                               .path_size = i % 2 ? 13 : 0,
                               .source_offset = 1000 * i,
                               .bytes = 200 + i,
                               .tokens = lengths[i],
                               .hash = {0xfedcba9876543210u + i, i ? 0xffffffffffffffffu - i : 0},
                               .added = 1700000000 + (int64_t)(i * 86399),
                               .has_offsets = has_offsets(i)};
}

static inline void add_document(kn_store_writer *w, size_t i) {
    int32_t tokens[32];
    uint64_t offsets[32];
    float keys[32 * D];
    kn_store_document d = record_of(i);
    for (size_t p = 0; p < lengths[i]; p++) {
        tokens[p] = token_of(i, p);
        offsets[p] = offset_of(i, p);
        for (size_t j = 0; j < D; j++) keys[p * D + j] = key_of(i, p, j);
    }
    OK(kn_store_writer_document(w, &d));
    bool none = kn_store_writer_settings(w)->key_type == KNNLM_KEYS_NONE;
    OK(kn_store_writer_append(w, tokens, offsets, none ? NULL : keys, lengths[i]));
}

static inline const char *make_store(const char *name, knnlm_keys type) {
    const char *path = at(name);
    kn_store_settings settings = {
        .vocabulary = VOCABULARY, .key_type = type, .dimension = D, .model_dimension = D, .segment = SEGMENT};
    kn_store_writer *w;
    discard(path);
    OK(kn_store_create(path, &settings, &w));
    for (size_t i = 0; i < DOCUMENTS; i++) add_document(w, i);
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    OK(kn_store_write(path, &w));
    for (size_t i = 0; i < DOCUMENTS; i++)
        if (is_removed(i)) OK(kn_store_writer_remove(w, i));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    return path;
}

static inline size_t live_entries(void) {
    size_t n = 0;
    for (size_t i = 0; i < DOCUMENTS; i++) n += is_removed(i) ? 0 : lengths[i];
    return n;
}

static inline knnlm_status export(const char *store, const char *directory, const kn_export_options *o,
                                  kn_export_totals *totals) {
    kn_store *s;
    OK(kn_store_open(store, &s));
    knnlm_status status = kn_store_export(s, directory, o, NULL, totals);
    kn_store_close(s);
    return status;
}

// As the numbers of the store are: exact for f32, the nearest f16, within half a step of int8.
static inline void check_key(const float *got, size_t document, size_t position, knnlm_keys type) {
    double largest = 0;
    for (size_t j = 0; j < D; j++) largest = fmax(largest, fabs((double)key_of(document, position, j)));
    double allowed = type == KNNLM_KEYS_F32 ? 0 : type == KNNLM_KEYS_F16 ? largest * 0x1p-11 : largest / 253;
    for (size_t j = 0; j < D; j++)
        assert_true(fabs((double)got[j] - (double)key_of(document, position, j)) <= allowed);
}

static inline void check_text(const char *path, const char *expected) {
    char *got;
    size_t size;
    OK(kn_file_read(path, &got, &size));
    assert_string_equal(got, expected);
    free(got);
}

static inline bool stop(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)total;
    (void)unit;
    return done < *(const uint64_t *)context;
}

// ---------------------------------------------------------------- raw arrays

enum { N = 40 };

static inline size_t element_size(knnlm_array_type type) {
    return type == KNNLM_ARRAY_INT64 ? 8 : type == KNNLM_ARRAY_F32 || type == KNNLM_ARRAY_INT32 ? 4 : 2;
}

// Small whole numbers, that f16 holds exactly.
static inline float raw_key(size_t row, size_t i) {
    return (float)((int)(row * 7 + i * 3) % 201 - 100);
}

// By arithmetic: the library does it on bits.
static inline uint16_t whole_f16(int x) {
    int magnitude = x < 0 ? -x : x, exponent = 0;
    if (!x) return 0;
    while (magnitude >> (exponent + 1)) exponent++;
    return (uint16_t)((x < 0 ? 0x8000 : 0) + ((exponent + 15) << 10) +
                      ((magnitude << (10 - exponent)) - 1024));
}

static inline void put_keys(const char *name, knnlm_array_type type) {
    static float keys[N * D];
    static uint16_t halves[N * D];
    for (size_t i = 0; i < N * D; i++) {
        keys[i] = raw_key(i / D, i % D);
        halves[i] = whole_f16((int)keys[i]);
    }
    bool f32 = type == KNNLM_ARRAY_F32;
    put(name, f32 ? (const void *)keys : halves, N * D * element_size(type));
}

static inline void put_values(const char *name, knnlm_array_type type, const int64_t *values) {
    uint8_t bytes[N * 8];
    size_t size = element_size(type);
    for (size_t i = 0; i < N; i++) memcpy(bytes + i * size, &values[i], size); // little-endian
    put(name, bytes, N * size);
}

static inline void small_values(int64_t out[N]) {
    for (size_t i = 0; i < N; i++) out[i] = (int64_t)(i * 61 % VOCABULARY);
}

static inline void put_pair(knnlm_array_type key, knnlm_array_type value) {
    int64_t values[N];
    small_values(values);
    put_keys("dstore_keys.npy", key);
    put_values("dstore_vals.npy", value, values);
}

static inline kn_import_options raw_options(void) {
    return (kn_import_options){.keys = at("dstore_keys.npy"), .values = at("dstore_vals.npy")};
}

// ---------------------------------------------------------------- values

static inline void write_npy(const char *name, kn_npy_type type, uint32_t n_dims, const size_t *dims,
                             const void *data) {
    kn_npy_writer *w;
    size_t count = 1;
    for (uint32_t i = 0; i < n_dims; i++) count *= dims[i];
    OK(kn_npy_create(at(name), type, n_dims, dims, &w));
    OK(kn_npy_put(w, data, count));
    OK(kn_npy_commit(w));
}

#endif
