// Reads and writes NumPy's .npy files.
#include "store/npy.h"

#include "base/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *code;
    size_t size;
} types[KN_NPY_TYPES] = {{"float16", "f2", 2}, {"float32", "f4", 4}, {"int8", "i1", 1},  {"int16", "i2", 2},
                         {"int32", "i4", 4},   {"int64", "i8", 8},   {"uint8", "u1", 1}, {"uint16", "u2", 2},
                         {"uint32", "u4", 4},  {"uint64", "u8", 8}};

const char *kn_npy_type_name(kn_npy_type type) {
    return types[type].name;
}

size_t kn_npy_type_size(kn_npy_type type) {
    return types[type].size;
}

// ---------------------------------------------------------------- the header's dictionary

typedef struct header {
    const char *name; // of the file
    const char *at, *end;
    bool has_descr, has_order, has_shape;
    kn_npy *out;
} header;

enum { DESCR_MAX = 64 };

static knnlm_status malformed(const header *h, const char *what) {
    return kn_fail(KNNLM_EDATA, "%s: a damaged .npy header: %s", h->name, what);
}

static void skip_spaces(header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\t' || *h->at == '\n' || *h->at == '\r')) h->at++;
}

// Takes `c`, after spaces, when it is next.
static bool take(header *h, char c) {
    skip_spaces(h);
    if (h->at == h->end || *h->at != c) return false;
    h->at++;
    return true;
}

static bool take_word(header *h, const char *word) {
    size_t n = strlen(word);
    skip_spaces(h);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n) != 0) return false;
    h->at += n;
    return true;
}

// A string in quotes; NumPy writes none with escapes.
static knnlm_status take_string(header *h, char out[DESCR_MAX]) {
    skip_spaces(h);
    char quote = h->at < h->end ? *h->at : 0;
    if (quote != '\'' && quote != '"') return malformed(h, "no string where one belongs");
    const char *start = ++h->at;
    while (h->at < h->end && *h->at != quote) h->at++;
    size_t n = (size_t)(h->at - start);
    if (h->at == h->end || n >= DESCR_MAX || memchr(start, 0, n) || memchr(start, '\\', n))
        return malformed(h, "a string without end, or too long");
    h->at++;
    memcpy(out, start, n);
    out[n] = 0;
    return KNNLM_OK;
}

static knnlm_status take_number(header *h, size_t *out) {
    const char *start = h->at;
    *out = 0;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
        if (!kn_mul(*out, 10, out) || !kn_add(*out, (size_t)(*h->at - '0'), out))
            return malformed(h, "a size beyond all memory");
    if (h->at == start) return malformed(h, "no number where one belongs");
    if (h->at < h->end && *h->at == 'L') h->at++; // of Python 2
    return KNNLM_OK;
}

static knnlm_status parse_descr(header *h) {
    char text[DESCR_MAX];
    skip_spaces(h);
    if (h->at < h->end && *h->at == '[') return kn_fail(KNNLM_ENOTSUP, "%s: an array of structures", h->name);
    KN_TRY(take_string(h, text));
    for (int i = 0; i < KN_NPY_TYPES; i++) {
        bool order = text[0] == '<' || (text[0] == '|' && types[i].size == 1);
        if (!order || strcmp(text + 1, types[i].code) != 0) continue;
        h->out->type = (kn_npy_type)i;
        h->has_descr = true;
        return KNNLM_OK;
    }
    for (char *c = text; *c; c++) // the message is one line of text whatever the file
        if (*c < ' ' || *c > '~') return malformed(h, "an impossible element type");
    return kn_fail(KNNLM_ENOTSUP,
                   "%s: elements are '%s': little-endian integers, float16 and float32 can be read", h->name,
                   text);
}

static knnlm_status parse_order(header *h) {
    h->has_order = true;
    if (take_word(h, "False")) return KNNLM_OK;
    if (!take_word(h, "True")) return malformed(h, "fortran_order is neither True nor False");
    return kn_fail(KNNLM_ENOTSUP, "%s: an array in Fortran order: save numpy.ascontiguousarray of it",
                   h->name);
}

static knnlm_status parse_shape(header *h) {
    kn_npy *o = h->out;
    h->has_shape = true;
    o->n_dims = 0;
    if (!take(h, '(')) return malformed(h, "a shape without parentheses");
    while (!take(h, ')')) {
        if (o->n_dims == KN_NPY_DIMS_MAX)
            return kn_fail(KNNLM_ENOTSUP, "%s: an array of more than %d dimensions", h->name,
                           KN_NPY_DIMS_MAX);
        KN_TRY(take_number(h, &o->dims[o->n_dims++]));
        if (take(h, ',')) continue;
        // (3) is no tuple in Python
        if (o->n_dims == 1 || !take(h, ')')) return malformed(h, "a shape without end");
        break;
    }
    return KNNLM_OK;
}

static knnlm_status parse_member(header *h) {
    char key[DESCR_MAX];
    KN_TRY(take_string(h, key));
    if (!take(h, ':')) return malformed(h, "a key without a value");
    if (strcmp(key, "descr") == 0 && !h->has_descr) return parse_descr(h);
    if (strcmp(key, "fortran_order") == 0 && !h->has_order) return parse_order(h);
    if (strcmp(key, "shape") == 0 && !h->has_shape) return parse_shape(h);
    return malformed(h, "a key that is unknown, or there twice");
}

static knnlm_status parse_dictionary(header *h) {
    if (!take(h, '{')) return malformed(h, "no dictionary");
    while (!take(h, '}')) {
        KN_TRY(parse_member(h));
        if (take(h, ',')) continue;
        if (!take(h, '}')) return malformed(h, "a dictionary without end");
        break;
    }
    skip_spaces(h);
    if (h->at != h->end) return malformed(h, "more than a dictionary");
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return malformed(h, "descr, fortran_order or shape is missing");
    return KNNLM_OK;
}

// ---------------------------------------------------------------- reading

bool kn_npy_is(const kn_map *file) {
    return file->size >= KN_NPY_MAGIC_SIZE && memcmp(file->data, KN_NPY_MAGIC, KN_NPY_MAGIC_SIZE) == 0;
}

// Where the dictionary begins and ends.
static knnlm_status find_dictionary(const char *name, const uint8_t *data, size_t size, size_t *from,
                                    size_t *to) {
    if (size < KN_NPY_MAGIC_SIZE + 4 || memcmp(data, KN_NPY_MAGIC, KN_NPY_MAGIC_SIZE) != 0)
        return kn_fail(KNNLM_EDATA, "%s: not a .npy file", name);
    int major = data[6], minor = data[7];
    if (major < 1 || major > 2 || minor != 0)
        return kn_fail(KNNLM_ENOTSUP, "%s: .npy version %d.%d: 1.0 and 2.0 can be read", name, major, minor);
    *from = major == 1 ? 10 : 12;
    if (size < *from) return kn_fail(KNNLM_EDATA, "%s: cut off in its .npy header", name);
    size_t length = (size_t)data[8] | (size_t)data[9] << 8;
    if (major == 2) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > size - *from) return kn_fail(KNNLM_EDATA, "%s: cut off in its .npy header", name);
    *to = *from + length;
    return KNNLM_OK;
}

static bool measure(kn_npy *npy) {
    npy->count = 1;
    for (uint32_t i = 0; i < npy->n_dims; i++)
        if (!kn_mul(npy->count, npy->dims[i], &npy->count)) return false;
    return kn_mul(npy->count, types[npy->type].size, &npy->size);
}

knnlm_status kn_npy_parse(const char *name, const uint8_t *data, size_t size, kn_npy *out) {
    size_t from = 0, to = 0;
    kn_npy npy = {.dims = {1, 1, 1, 1}};
    KN_TRY(find_dictionary(name, data, size, &from, &to));
    header h = {.name = name, .at = (const char *)data + from, .end = (const char *)data + to, .out = &npy};
    KN_TRY(parse_dictionary(&h));
    if (!measure(&npy) || npy.size != size - to)
        return kn_fail(KNNLM_EDATA,
                       "%s: %zu bytes after its .npy header: its shape wants %zu of %s: cut off?", name,
                       size - to, npy.count, types[npy.type].name);
    npy.data = npy.size ? data + to : NULL;
    *out = npy;
    return KNNLM_OK;
}

knnlm_status kn_npy_open(const char *path, kn_npy *out) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    knnlm_status status = kn_npy_parse(path, map.data, map.size, out);
    if (status == KNNLM_OK)
        out->map = map;
    else
        kn_map_close(&map);
    return status;
}

void kn_npy_close(kn_npy *npy) {
    kn_map_close(&npy->map);
    *npy = (kn_npy){0};
}

// ---------------------------------------------------------------- elements

static int64_t load_integer(kn_npy_type type, const uint8_t *at) {
    uint64_t bits = 0;
    memcpy(&bits, at, types[type].size);
    switch (type) {
    case KN_NPY_I8:
        return (int8_t)bits;
    case KN_NPY_I16:
        return (int16_t)bits;
    case KN_NPY_I32:
        return (int32_t)bits;
    case KN_NPY_U64:
        return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    default: // as wide as i64, or unsigned and narrower
        return (int64_t)bits;
    }
}

void kn_npy_integers(const kn_npy *npy, size_t first, size_t count, int64_t *out) {
    size_t size = types[npy->type].size;
    for (size_t i = 0; i < count; i++) out[i] = load_integer(npy->type, npy->data + (first + i) * size);
}

void kn_npy_floats(const kn_npy *npy, size_t first, size_t count, float *out) {
    if (!count) return;
    if (npy->type == KN_NPY_F16)
        kn_f32_from_f16(out, npy->data + 2 * first, count);
    else
        memcpy(out, npy->data + 4 * first, 4 * count);
}

// ---------------------------------------------------------------- writing

struct kn_npy_writer {
    kn_file_writer *file;
    char *path;
    size_t size, count, put; // of an element; elements in all, and so far
};

enum { HEADER_MAX = 256 }; // a shape of four numbers of 20 digits takes less

// The whole header. Returns its bytes, a multiple of KN_NPY_ALIGN.
static size_t print_header(char out[HEADER_MAX], kn_npy_type type, uint32_t n_dims, const size_t *dims) {
    char shape[KN_NPY_DIMS_MAX * 24] = "";
    for (uint32_t i = 0; i < n_dims; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%zu%s", i ? " " : "", dims[i],
                 n_dims == 1 || i + 1 < n_dims ? "," : "");
    memset(out, ' ', HEADER_MAX);
    memcpy(out, KN_NPY_MAGIC "\1\0", 8);
    int n = snprintf(out + 10, HEADER_MAX - 10, "{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }",
                     types[type].size == 1 ? "|" : "<", types[type].code, shape);
    size_t end = 10 + (size_t)n, whole = (end + 1 + KN_NPY_ALIGN - 1) / KN_NPY_ALIGN * KN_NPY_ALIGN;
    out[end] = ' ';
    out[whole - 1] = '\n';
    out[8] = (char)((whole - 10) & 0xff);
    out[9] = (char)((whole - 10) >> 8);
    return whole;
}

knnlm_status kn_npy_create(const char *path, kn_npy_type type, uint32_t n_dims, const size_t *dims,
                           kn_npy_writer **out) {
    char text[HEADER_MAX];
    kn_npy shape = {.type = type, .n_dims = n_dims};
    if (n_dims > KN_NPY_DIMS_MAX) return kn_fail(KNNLM_EINVAL, "%s: too many dimensions", path);
    for (uint32_t i = 0; i < n_dims; i++) shape.dims[i] = dims[i];
    if (!measure(&shape)) return kn_fail(KNNLM_EINVAL, "%s: an array beyond all memory", path);
    kn_npy_writer *w = kn_alloc(1, sizeof *w);
    if (!w) return KNNLM_ENOMEM;
    w->size = types[type].size;
    w->count = shape.count;
    w->path = kn_strdup(path);
    knnlm_status status = w->path ? kn_file_writer_open(path, &w->file) : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        status = kn_file_writer_put(w->file, text, print_header(text, type, n_dims, dims));
    if (status != KNNLM_OK)
        kn_npy_abort(w);
    else
        *out = w;
    return status;
}

knnlm_status kn_npy_put(kn_npy_writer *w, const void *elements, size_t count) {
    w->put += count;
    return kn_file_writer_put(w->file, elements, count * w->size);
}

void kn_npy_abort(kn_npy_writer *w) {
    if (!w) return;
    kn_file_writer_abort(w->file);
    free(w->path);
    free(w);
}

knnlm_status kn_npy_commit(kn_npy_writer *w) {
    knnlm_status status = KNNLM_OK;
    if (w->put != w->count)
        status =
            kn_fail(KNNLM_EINVAL, "%s: %zu elements put into an array of %zu", w->path, w->put, w->count);
    if (status == KNNLM_OK) {
        status = kn_file_writer_commit(w->file);
        w->file = NULL;
    }
    kn_npy_abort(w);
    return status;
}
