// What the tests of stores share: documents that are a function of a number, a model of what a store must
// hold, and directories read into memory. Nothing here but OK and FAILS is cmocka's: threads use it too.
#ifndef STORE_KIT_H
#define STORE_KIT_H

#include "expect.h"

#include "base/random.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KIT_VOCABULARY = 1000, KIT_DIMENSION_MAX = 512, KIT_PATH = 512 };
#define KIT_EPOCH "1700000000"

// Not by calloc, nor by a malloc that a compiler makes one of: those are made to fail.
static inline void *kit_alloc(size_t count, size_t size) {
    size_t bytes = (count * size + 64) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    if (!memory) abort();
    return memset(memory, 0, bytes);
}

// ---------------------------------------------------------------- documents

// A document is its seed: name, tokens, offsets and keys follow from it. `count` of its tokens are stored.
typedef struct kit_item {
    uint32_t seed;
    uint64_t tokens, count;
    bool removed;
} kit_item;

static inline uint64_t kit_number(uint64_t seed, uint64_t position, uint64_t which) {
    return kn_mix64(kn_mix64(kn_mix64(seed + 1) + position) + which);
}
static inline int32_t kit_token(uint64_t seed, uint64_t position) {
    return (int32_t)(kit_number(seed, position, 1) % KIT_VOCABULARY);
}
static inline uint64_t kit_offset(uint64_t seed, uint64_t position) {
    return seed % 4 == 3 ? 0 : 3 * position + seed % 3;
}
// Magnitudes from 2^-20 (below the normal f16) to 8.
static inline float kit_value(uint64_t seed, uint64_t position, size_t i) {
    uint64_t x = kit_number(seed, position, 2 + i);
    double unit = (double)(int64_t)x * 0x1p-63;
    return (float)ldexp(unit, x % 16 ? 3 : -20);
}
static inline void kit_keys(float *out, uint64_t seed, uint64_t first, size_t count, size_t d) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < d; j++) out[i * d + j] = kit_value(seed, first + i, j);
}

typedef struct kit_names {
    char name[32], path[48];
} kit_names;

static inline kn_store_document kit_document(const kit_item *item, kit_names *names) {
    unsigned seed = item->seed;
    snprintf(names->name, sizeof names->name, "document %u", seed);
    snprintf(names->path, sizeof names->path, "texts/%u\xff.txt", seed % 10); // not UTF-8
    return (kn_store_document){.name = names->name,
                               .path = names->path,
                               .name_size = strlen(names->name),
                               .path_size = seed % 7 ? strlen(names->path) : 0,
                               .source_offset = 100ull * seed,
                               .bytes = 3 * item->tokens + 5,
                               .tokens = item->tokens,
                               .hash = {kit_number(seed, 0, 0), kit_number(seed, 1, 0)},
                               .added = seed % 2 ? 1600000000 + (int64_t)seed : 0, // 0: now
                               .has_offsets = seed % 4 != 3};
}

static inline kn_store_settings kit_settings(knnlm_keys type, int32_t dimension, uint32_t segment) {
    return (kn_store_settings){.model = "models/tiny.gguf",
                               .model_fingerprint = "0123456789abcdef0123456789abcdef",
                               .tokenizer = "word",
                               .tokenizer_fingerprint = "fedcba9876543210fedcba9876543210",
                               .vocabulary = KIT_VOCABULARY,
                               .key_type = type,
                               .dimension = dimension,
                               .model_dimension = dimension,
                               .distance = KNNLM_DISTANCE_L2,
                               .tap = "ffn",
                               .split = "file",
                               .window = 128,
                               .min_context = 64,
                               .segment = segment};
}

// Appends entries [from, to) of a document, at most `piece` at a time.
static inline knnlm_status kit_append(kn_store_writer *w, const kit_item *item, uint64_t from, uint64_t to,
                                      size_t piece) {
    size_t d = (size_t)kn_store_writer_settings(w)->dimension;
    int32_t *tokens = kit_alloc(piece, sizeof *tokens);
    uint64_t *offsets = kit_alloc(piece, sizeof *offsets);
    float *keys = kit_alloc(piece * d, sizeof *keys);
    knnlm_status status = KNNLM_OK;
    while (from < to && status == KNNLM_OK) {
        size_t n = kn_min((size_t)(to - from), piece);
        for (size_t i = 0; i < n; i++) {
            tokens[i] = kit_token(item->seed, from + i);
            offsets[i] = kit_offset(item->seed, from + i);
        }
        kit_keys(keys, item->seed, from, n, d);
        bool none = kn_store_writer_settings(w)->key_type == KNNLM_KEYS_NONE, known = item->seed % 4 != 3;
        status = kn_store_writer_append(w, tokens, known ? offsets : NULL, none ? NULL : keys, n);
        from += n;
    }
    free(tokens);
    free(offsets);
    free(keys);
    return status;
}

static inline knnlm_status kit_add(kn_store_writer *w, const kit_item *items, size_t count, size_t piece) {
    for (size_t i = 0; i < count; i++) {
        kit_names names;
        kn_store_document d = kit_document(&items[i], &names);
        KN_TRY(kn_store_writer_document(w, &d));
        KN_TRY(kit_append(w, &items[i], 0, items[i].tokens, piece));
    }
    return KNNLM_OK;
}

static inline knnlm_status kit_build(const char *path, const kn_store_settings *settings,
                                     const kit_item *items, size_t count, size_t piece) {
    kn_store_writer *w;
    KN_TRY(kn_store_create(path, settings, &w));
    knnlm_status status = kit_add(w, items, count, piece);
    if (status == KNNLM_OK) status = kn_store_writer_commit(w);
    kn_store_writer_close(w);
    return status;
}

// ---------------------------------------------------------------- does a store hold exactly these?

static inline const char *kit_differs(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *kit_differs(const char *format, ...) {
    static _Thread_local char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

// The f16 nearest to x, ties to even, by arithmetic (the library does it on bits).
static inline float kit_round_f16(float x) {
    double step = ldexp(1, x == 0 || ilogb(x) < -14 ? -24 : ilogb(x) - 10);
    return (float)(nearbyint((double)x / step) * step);
}

static inline const char *kit_compare_key(const float *got, uint32_t seed, uint64_t position, size_t d,
                                          knnlm_keys type) {
    float exact[KIT_DIMENSION_MAX];
    double scale = 0;
    kit_keys(exact, seed, position, 1, d);
    for (size_t i = 0; i < d; i++) scale = fmax(scale, fabs((double)exact[i]) / 127);
    for (size_t i = 0; i < d; i++) {
        double allowed = type == KNNLM_KEYS_INT8 ? scale / 2 * (1 + 1e-5) : 0;
        float expected = type == KNNLM_KEYS_F16 ? kit_round_f16(exact[i]) : exact[i];
        if (!(fabs((double)got[i] - (double)expected) <= allowed))
            return kit_differs("key %u:%llu[%zu] is %.9g, not %.9g", seed, (unsigned long long)position, i,
                               (double)got[i], (double)expected);
    }
    return NULL;
}

static inline const char *kit_compare_record(const kn_store_document *got, const kit_item *item,
                                             uint64_t first) {
    kit_names names;
    kn_store_document d = kit_document(item, &names);
    if (got->name_size != d.name_size || memcmp(got->name, d.name, d.name_size) != 0)
        return kit_differs("a document is %.*s, not %s", (int)got->name_size, got->name, names.name);
    if (got->path_size != d.path_size || memcmp(got->path, d.path, d.path_size) != 0)
        return kit_differs("%s: its path differs", names.name);
    if (got->source_offset != d.source_offset || got->bytes != d.bytes || got->tokens != d.tokens)
        return kit_differs("%s: its sizes differ", names.name);
    if (got->hash[0] != d.hash[0] || got->hash[1] != d.hash[1] || got->has_offsets != d.has_offsets)
        return kit_differs("%s: its hash or flags differ", names.name);
    if (d.added ? got->added != d.added : got->added < 1) return kit_differs("%s: added when?", names.name);
    if (got->first != first || got->count != item->count || got->removed != item->removed)
        return kit_differs("%s: its entries are %llu+%llu%s, not %llu+%llu%s", names.name,
                           (unsigned long long)got->first, (unsigned long long)got->count,
                           got->removed ? " removed" : "", (unsigned long long)first,
                           (unsigned long long)item->count, item->removed ? " removed" : "");
    return NULL;
}

static inline const char *kit_compare_entry(const kn_store *s, uint64_t id, const kit_item *item,
                                            uint32_t document, uint64_t position) {
    kn_store_entry e;
    if (kn_store_entry_at(s, id, &e) != KNNLM_OK) return knnlm_message();
    if (e.id != id || e.document != document || e.position != position || e.removed != item->removed ||
        kn_store_entry_removed(s, id) != item->removed)
        return kit_differs("entry %llu is %u:%llu, not %u:%llu", (unsigned long long)id, e.document,
                           (unsigned long long)e.position, document, (unsigned long long)position);
    if (e.token != kit_token(item->seed, position) || e.offset != kit_offset(item->seed, position))
        return kit_differs("entry %llu has another token or offset", (unsigned long long)id);
    return NULL;
}

// The entries of one document, also read as one range.
static inline const char *kit_compare_entries(const kn_store *s, uint64_t first, const kit_item *item,
                                              uint32_t document) {
    const kn_store_settings *set = &kn_store_describe(s)->settings;
    size_t n = (size_t)item->count, d = (size_t)set->dimension;
    bool keyed = set->key_type != KNNLM_KEYS_NONE;
    int32_t *tokens = kit_alloc(n, sizeof *tokens);
    uint64_t *offsets = kit_alloc(n, sizeof *offsets);
    float *keys = kit_alloc(n * d, sizeof *keys);
    const char *reason = NULL;
    if (kn_store_tokens(s, first, n, tokens) != KNNLM_OK ||
        kn_store_offsets(s, first, n, offsets) != KNNLM_OK ||
        (keyed && kn_store_keys(s, first, n, keys) != KNNLM_OK))
        reason = knnlm_message();
    for (size_t i = 0; i < n && !reason; i++) {
        reason = kit_compare_entry(s, first + i, item, document, i);
        if (!reason && (tokens[i] != kit_token(item->seed, i) || offsets[i] != kit_offset(item->seed, i)))
            reason = kit_differs("document %u: the range differs at %zu", item->seed, i);
        if (!reason && keyed) reason = kit_compare_key(keys + i * d, item->seed, i, d, set->key_type);
    }
    free(tokens);
    free(offsets);
    free(keys);
    return reason;
}

// What differs between a store and the documents that it must hold, in this order, or NULL.
static inline const char *kit_compare(const kn_store *s, const kit_item *items, size_t count) {
    const kn_store_info *info = kn_store_describe(s);
    uint64_t first = 0, removed = 0, removed_entries = 0;
    if (info->documents != count)
        return kit_differs("%llu documents, not %zu", (unsigned long long)info->documents, count);
    for (size_t i = 0; i < count; i++) {
        kn_store_document d;
        if (kn_store_document_at(s, i, &d) != KNNLM_OK) return knnlm_message();
        const char *reason = kit_compare_record(&d, &items[i], first);
        if (!reason) reason = kit_compare_entries(s, first, &items[i], (uint32_t)i);
        if (reason) return reason;
        if (kn_store_document_removed(s, i) != items[i].removed) return "removed and not removed";
        first += items[i].count;
        removed += items[i].removed;
        removed_entries += items[i].removed ? items[i].count : 0;
    }
    if (info->entries != first || info->removed_documents != removed ||
        info->removed_entries != removed_entries)
        return kit_differs("%llu entries, %llu+%llu removed", (unsigned long long)info->entries,
                           (unsigned long long)info->removed_documents,
                           (unsigned long long)info->removed_entries);
    return NULL;
}

static inline void kit_print_problem(void *context, const knnlm_problem *p) {
    if (context) snprintf(context, 256, "%s: %s", p->file, p->what);
}

// Opens a store, compares it, and verifies that nothing is damaged. What is wrong, or NULL.
static inline const char *kit_check_store(const char *path, const kit_item *items, size_t count) {
    static _Thread_local char text[512];
    kn_store *s;
    knnlm_verify_result v;
    if (kn_store_open(path, &s) != KNNLM_OK) return knnlm_message();
    const char *reason = kit_compare(s, items, count);
    if (!reason && kn_store_verify(s, NULL, kit_print_problem, text, &v) != KNNLM_OK)
        reason = knnlm_message();
    else if (!reason) {
        free(v.document_damaged);
        if (v.problems) reason = text;
    }
    kn_store_close(s);
    return reason;
}

#define HOLDS(path, items, count)                                                                            \
    do {                                                                                                     \
        const char *reason_ = kit_check_store(path, items, count);                                           \
        if (reason_) fail_msg("%s: %s", path, reason_);                                                      \
    } while (0)

// ---------------------------------------------------------------- directories

typedef struct kit_file {
    char name[128];
    uint8_t *data;
    size_t size;
} kit_file;

typedef struct kit_image { // the files of a directory, sorted by name
    kit_file *files;
    size_t count;
} kit_image;

static inline void kit_join(char out[KIT_PATH], const char *directory, const char *name) {
    if (snprintf(out, KIT_PATH, "%s/%s", directory, name) >= KIT_PATH) abort();
}

// Deletes a directory and the directories in it.
static inline void kit_delete(const char *path) {
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory));) {
        char inner[KIT_PATH];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        kit_join(inner, path, e->d_name);
        if (unlink(inner) != 0) kit_delete(inner);
    }
    if (directory) closedir(directory);
    rmdir(path);
}

static inline void kit_write_file(const char *directory, const char *name, const void *data, size_t size) {
    char path[KIT_PATH];
    kit_join(path, directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

static inline void kit_read_file(const char *directory, const char *name, kit_file *out) {
    char path[KIT_PATH];
    struct stat st;
    kit_join(path, directory, name);
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &st) != 0) abort();
    *out = (kit_file){.data = kit_alloc((size_t)st.st_size, 1), .size = (size_t)st.st_size};
    if (snprintf(out->name, sizeof out->name, "%s", name) >= (int)sizeof out->name) abort();
    if (fread(out->data, 1, out->size, file) != out->size) abort();
    fclose(file);
}

static inline int kit_by_name(const void *a, const void *b) {
    return strcmp(((const kit_file *)a)->name, ((const kit_file *)b)->name);
}

// All files but LOCK.
static inline kit_image kit_read(const char *path) {
    kit_image image = {0};
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory));) {
        if (e->d_type == DT_DIR || strcmp(e->d_name, "LOCK") == 0) continue;
        image.files = realloc(image.files, (image.count + 1) * sizeof *image.files);
        if (!image.files) abort();
        kit_read_file(path, e->d_name, &image.files[image.count++]);
    }
    if (directory) closedir(directory);
    if (image.count) qsort(image.files, image.count, sizeof *image.files, kit_by_name);
    return image;
}

static inline void kit_write(const kit_image *image, const char *path) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST) abort();
    for (size_t i = 0; i < image->count; i++)
        kit_write_file(path, image->files[i].name, image->files[i].data, image->files[i].size);
}

static inline void kit_free(kit_image *image) {
    for (size_t i = 0; i < image->count; i++) free(image->files[i].data);
    free(image->files);
    *image = (kit_image){0};
}

static inline kit_file *kit_find(const kit_image *image, const char *name) {
    for (size_t i = 0; i < image->count; i++)
        if (strcmp(image->files[i].name, name) == 0) return &image->files[i];
    return NULL;
}

static inline bool kit_same_bytes(const kit_file *a, const kit_file *b) {
    return a && b && a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

// What differs between two directories, or NULL.
static inline const char *kit_compare_images(const kit_image *a, const kit_image *b) {
    if (a->count != b->count) return kit_differs("%zu files and %zu", a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->files[i].name, b->files[i].name) != 0)
            return kit_differs("%.100s and %.100s", a->files[i].name, b->files[i].name);
        if (!kit_same_bytes(&a->files[i], &b->files[i]))
            return kit_differs("%.100s differs", a->files[i].name);
    }
    return NULL;
}

static inline const char *kit_compare_directories(const char *a, const char *b) {
    kit_image left = kit_read(a), right = kit_read(b);
    const char *reason = kit_compare_images(&left, &right);
    kit_free(&left);
    kit_free(&right);
    return reason;
}

#define SAME_DIRECTORIES(a, b)                                                                               \
    do {                                                                                                     \
        const char *reason_ = kit_compare_directories(a, b);                                                 \
        if (reason_) fail_msg("%s and %s: %s", a, b, reason_);                                               \
    } while (0)

#endif
