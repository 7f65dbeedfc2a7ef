// Parses FAISS's IVFPQ files: inverted lists of product-quantized codes.
#include "index/faiss.h"

#include "index/note.h"
#include "index/pq.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FOURCC = 4, METRIC_IP = 0, METRIC_L2 = 1, MAP_HASH = 2 };

typedef struct reader {
    const char *path;
    const uint8_t *data;
    size_t size, at;
} reader;

// ---------------------------------------------------------------- steps through the file

// `count` elements of `size` bytes.
static knnlm_status take(reader *r, uint64_t count, size_t size, const char *what, const uint8_t **out) {
    size_t bytes;
    *out = NULL;
    if (!kn_mul((size_t)count, size, &bytes) || bytes > r->size - r->at)
        return kn_fail(KNNLM_EDATA, "%s: ends at byte %zu, in the midst of %s from byte %zu on", r->path,
                       r->size, what, r->at);
    *out = r->data + r->at;
    r->at += bytes;
    return KNNLM_OK;
}

static knnlm_status take_into(reader *r, void *out, size_t size, const char *what) {
    const uint8_t *bytes;
    KN_TRY(take(r, 1, size, what, &bytes));
    memcpy(out, bytes, size);
    return KNNLM_OK;
}

static knnlm_status take_vector(reader *r, size_t size, const char *what, uint64_t *count,
                                const uint8_t **out) {
    KN_TRY(take_into(r, count, sizeof *count, what));
    return take(r, *count, size, what, out);
}

// A u64 that must be `expected`.
static knnlm_status take_same(reader *r, uint64_t expected, const char *what) {
    uint64_t value;
    KN_TRY(take_into(r, &value, sizeof value, what));
    if (value == expected) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: byte %zu: %s: %" PRIu64 ", not %" PRIu64, r->path, r->at - sizeof value,
                   what, value, expected);
}

// Four letters, and a NUL after them.
static knnlm_status take_fourcc(reader *r, const char *what, char out[FOURCC + 1]) {
    KN_TRY(take_into(r, out, FOURCC, what));
    out[FOURCC] = 0;
    for (size_t i = 0; i < FOURCC; i++)
        if (!isalnum((unsigned char)out[i]))
            return kn_fail(KNNLM_EDATA, "%s: byte %zu: not the four letters of %s", r->path, r->at - FOURCC,
                           what);
    return KNNLM_OK;
}

static bool is(const char *fourcc, const char *name) {
    return strcmp(fourcc, name) == 0;
}

// ---------------------------------------------------------------- headers

typedef struct header {
    uint64_t d, entries;
    uint8_t trained;
    int32_t metric;
} header;

static knnlm_status take_header(reader *r, const char *what, header *out) {
    int64_t dummies[2], entries;
    int32_t d;
    KN_TRY(take_into(r, &d, sizeof d, what));
    KN_TRY(take_into(r, &entries, sizeof entries, what));
    KN_TRY(take_into(r, dummies, sizeof dummies, what));
    KN_TRY(take_into(r, &out->trained, sizeof out->trained, what));
    KN_TRY(take_into(r, &out->metric, sizeof out->metric, what));
    if (d < 1 || entries < 0)
        return kn_fail(KNNLM_EDATA, "%s: %s before byte %zu has %" PRId64 " vectors of dimension %" PRId32,
                       r->path, what, r->at, entries, d);
    out->d = (uint64_t)d;
    out->entries = (uint64_t)entries;
    return KNNLM_OK;
}

static knnlm_status read_header(reader *r, kn_faiss_file *f) {
    header h;
    KN_TRY(take_header(r, "the header", &h));
    if (h.d > KN_STORE_DIMENSION_MAX || h.entries > KN_STORE_ENTRIES_MAX)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: %" PRIu64 " vectors of dimension %" PRIu64 ": a store has at most %" PRIu32
                       " of %d",
                       r->path, h.entries, h.d, KN_STORE_ENTRIES_MAX, KN_STORE_DIMENSION_MAX);
    if (!h.trained)
        return kn_fail(KNNLM_EDATA, "%s: is not trained: FAISS has it learn before it is filled", r->path);
    if (h.metric != METRIC_IP && h.metric != METRIC_L2)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: measures by FAISS's metric %" PRId32 ": L2 and inner product are read", r->path,
                       h.metric);
    f->d = (size_t)h.d;
    f->entries = (size_t)h.entries;
    f->distance = h.metric == METRIC_L2 ? KNNLM_DISTANCE_L2 : KNNLM_DISTANCE_IP;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- lists and codes

static knnlm_status read_lists(reader *r, kn_faiss_file *f) {
    uint64_t lists, probes;
    KN_TRY(take_into(r, &lists, sizeof lists, "the number of lists"));
    KN_TRY(take_into(r, &probes, sizeof probes, "the number of probes"));
    if (!lists) return kn_fail(KNNLM_EDATA, "%s: has no lists", r->path);
    if (lists > KN_INDEX_LISTS_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%s: %" PRIu64 " lists: at most %d are read", r->path, lists,
                       KN_INDEX_LISTS_MAX);
    f->lists = (size_t)lists;
    f->probes = probes < 1 ? 1 : probes < lists ? (size_t)probes : f->lists;
    return KNNLM_OK;
}

static knnlm_status read_quantizer(reader *r, kn_faiss_file *f) {
    char type[FOURCC + 1];
    header h;
    KN_TRY(take_fourcc(r, "the coarse quantizer", type));
    if (!is(type, "IxF2") && !is(type, "IxFI") && !is(type, "IxFl"))
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: its lists are found by an index of type '%s': flat ones (IxF2, IxFI) are read",
                       r->path, type);
    KN_TRY(take_header(r, "the coarse quantizer", &h));
    if (h.d != f->d || h.entries != f->lists)
        return kn_fail(KNNLM_EDATA,
                       "%s: its coarse quantizer has %" PRIu64 " vectors of dimension %" PRIu64
                       ", not %zu of %zu",
                       r->path, h.entries, h.d, f->lists, f->d);
    if (h.metric != (f->distance == KNNLM_DISTANCE_L2 ? METRIC_L2 : METRIC_IP))
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: finds lists by another metric than entries: a store has one for both", r->path);
    KN_TRY(take_same(r, f->lists * f->d, "numbers of the coarse quantizer"));
    return take(r, f->lists * f->d, sizeof(float), "the coarse quantizer", &f->centroids);
}

// From ids to places: FAISS makes it anew where it is wanted.
static knnlm_status skip_direct_map(reader *r) {
    uint64_t count;
    const uint8_t *skipped;
    uint8_t type;
    KN_TRY(take_into(r, &type, sizeof type, "the direct map"));
    if (type > MAP_HASH)
        return kn_fail(KNNLM_EDATA, "%s: byte %zu: a direct map of unknown type %d", r->path, r->at - 1,
                       type);
    KN_TRY(take_vector(r, sizeof(int64_t), "the direct map", &count, &skipped));
    return type == MAP_HASH ? take_vector(r, 2 * sizeof(int64_t), "the direct map", &count, &skipped)
                            : KNNLM_OK;
}

static knnlm_status check_code(const reader *r, const kn_faiss_file *f, uint64_t parts, uint64_t bits) {
    if (!parts || parts > f->d || f->d % parts)
        return kn_fail(KNNLM_EDATA, "%s: byte %zu: codes of %" PRIu64 " parts for %zu dimensions", r->path,
                       r->at - 2 * sizeof parts, parts, f->d);
    if (bits != 8 && bits != 4)
        return kn_fail(KNNLM_ENOTSUP, "%s: codes of %" PRIu64 " bits a part: 8 and 4 are read", r->path,
                       bits);
    if (parts > KN_PQ_PARTS_MAX || f->d / parts > KN_PQ_PART_MAX)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: codes of %" PRIu64 " parts of %zu dimensions: at most %d of %d are read", r->path,
                       parts, f->d / (size_t)parts, KN_PQ_PARTS_MAX, KN_PQ_PART_MAX);
    return KNNLM_OK;
}

static knnlm_status read_codes(reader *r, kn_faiss_file *f) {
    uint8_t residuals;
    uint64_t code_bytes, parts, bits;
    KN_TRY(take_into(r, &residuals, sizeof residuals, "the codes"));
    KN_TRY(take_into(r, &code_bytes, sizeof code_bytes, "the codes"));
    KN_TRY(take_same(r, f->d, "dimensions of the codes"));
    KN_TRY(take_into(r, &parts, sizeof parts, "the codes"));
    KN_TRY(take_into(r, &bits, sizeof bits, "the codes"));
    KN_TRY(check_code(r, f, parts, bits));
    f->residuals = residuals;
    f->code_parts = (size_t)parts;
    f->code_bits = (size_t)bits;
    f->code_bytes = (f->code_parts * f->code_bits + 7) / 8;
    if (code_bytes != f->code_bytes)
        return kn_fail(KNNLM_EDATA, "%s: codes of %" PRIu64 " bytes: %zu parts of %zu bits take %zu", r->path,
                       code_bytes, f->code_parts, f->code_bits, f->code_bytes);
    KN_TRY(take_same(r, f->d << bits, "numbers of the codes' centroids"));
    return take(r, f->d << bits, sizeof(float), "the codes' centroids", &f->code_centroids);
}

// ---------------------------------------------------------------- sizes of lists

static uint64_t u64_at(const uint8_t *numbers, size_t i) {
    uint64_t value;
    memcpy(&value, numbers + i * sizeof value, sizeof value);
    return value;
}

static knnlm_status read_full(reader *r, kn_faiss_file *f) {
    const uint8_t *numbers;
    KN_TRY(take_same(r, f->lists, "sizes of lists"));
    KN_TRY(take(r, f->lists, sizeof *f->sizes, "the sizes of lists", &numbers));
    memcpy(f->sizes, numbers, f->lists * sizeof *f->sizes);
    return KNNLM_OK;
}

static knnlm_status read_sparse(reader *r, kn_faiss_file *f) {
    const uint8_t *numbers;
    uint64_t count, next = 0;
    size_t at = r->at;
    KN_TRY(take_vector(r, sizeof(uint64_t), "the sizes of lists", &count, &numbers));
    if (count % 2) return kn_fail(KNNLM_EDATA, "%s: byte %zu: a list without size", r->path, at);
    for (size_t i = 0; i < count; i += 2) {
        uint64_t list = u64_at(numbers, i);
        if (list < next || list >= f->lists)
            return kn_fail(KNNLM_EDATA, "%s: byte %zu: list %" PRIu64 " is out of order, or none of %zu",
                           r->path, at + (i + 1) * sizeof list, list, f->lists);
        f->sizes[list] = u64_at(numbers, i + 1);
        next = list + 1;
    }
    return KNNLM_OK;
}

// All that is left of the file, and no more, is the content of the lists.
static knnlm_status check_content(const reader *r, const kn_faiss_file *f) {
    uint64_t total = 0;
    for (size_t l = 0; l < f->lists; l++) {
        if (f->sizes[l] > f->entries - total)
            return kn_fail(KNNLM_EDATA, "%s: list %zu has %" PRIu64 " entries: the header says %zu in all",
                           r->path, l, f->sizes[l], f->entries);
        total += f->sizes[l];
    }
    if (total != f->entries)
        return kn_fail(KNNLM_EDATA, "%s: its lists have %" PRIu64 " entries, its header says %zu", r->path,
                       total, f->entries);
    // Cannot overflow: 2^32 entries of 2^16 bytes.
    size_t expected = f->entries * (f->code_bytes + sizeof(int64_t));
    if (r->size - r->at == expected) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: %zu bytes after byte %zu: %zu entries take %zu", r->path,
                   r->size - r->at, r->at, f->entries, expected);
}

static knnlm_status read_content(reader *r, kn_faiss_file *f) {
    char type[FOURCC + 1];
    KN_TRY(take_fourcc(r, "the lists", type));
    if (!is(type, "ilar"))
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: keeps its lists by type '%s': those in the file itself (ilar) are read", r->path,
                       type);
    KN_TRY(take_same(r, f->lists, "lists"));
    KN_TRY(take_same(r, f->code_bytes, "bytes of a code"));
    KN_TRY(take_fourcc(r, "the sizes of lists", type));
    f->sizes = kn_alloc(f->lists, sizeof *f->sizes); // at most twice the centroids, which are there
    if (!f->sizes) return KNNLM_ENOMEM;
    if (!is(type, "full") && !is(type, "sprs"))
        return kn_fail(KNNLM_EDATA, "%s: byte %zu: sizes of lists of type '%s': full and sprs are known",
                       r->path, r->at - FOURCC, type);
    KN_TRY(is(type, "full") ? read_full(r, f) : read_sparse(r, f));
    KN_TRY(check_content(r, f));
    f->content = r->data + r->at;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the doors

static knnlm_status check_type(reader *r) {
    char type[FOURCC + 1];
    if (r->size < FOURCC || take_fourcc(r, "an index", type) != KNNLM_OK)
        return kn_fail(KNNLM_EDATA, "%s: is not a FAISS index", r->path);
    if (is(type, KN_FAISS_IVFPQ)) return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP,
                   "%s: a FAISS index of type '%s', or none: IVFPQ ('" KN_FAISS_IVFPQ "') is read", r->path,
                   type);
}

static knnlm_status parse(reader *r, kn_faiss_file *f) {
    KN_TRY(check_type(r));
    KN_TRY(read_header(r, f));
    KN_TRY(read_lists(r, f));
    KN_TRY(read_quantizer(r, f));
    KN_TRY(skip_direct_map(r));
    KN_TRY(read_codes(r, f));
    return read_content(r, f);
}

knnlm_status kn_faiss_parse(const char *name, const uint8_t *data, size_t size, kn_faiss_file *out) {
    reader r = {.path = name, .data = data, .size = size};
    *out = (kn_faiss_file){.path = name, .data = data};
    knnlm_status status = parse(&r, out);
    if (status != KNNLM_OK) kn_faiss_close(out);
    return status;
}

knnlm_status kn_faiss_open(const char *path, kn_faiss_file *out) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    knnlm_status status = kn_faiss_parse(path, map.data, map.size, out);
    if (status == KNNLM_OK)
        out->map = map;
    else
        kn_map_close(&map);
    return status;
}

void kn_faiss_close(kn_faiss_file *f) {
    free(f->sizes);
    kn_map_close(&f->map);
    *f = (kn_faiss_file){0};
}
