// Parses the header of a GGUF file: keys and tensors, each checked against the size of the file.
#include "base/gguf_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The least bytes that a value (length and one byte of key, kind, one byte) and a tensor (length and one byte
// of name, number of dimensions, one of them, type, offset) take: no file holds more of them than its size
// allows.
enum { STRING_MIN = 8, VALUE_MIN = 8 + 1 + 4 + 1, TENSOR_MIN = 8 + 1 + 4 + 8 + 4 + 8 };

// Where in the file we are, and in what, for messages.
struct cursor {
    const kn_gguf *file;
    size_t at;
    const char *what; // "header", "key", "tensor"
    const char *name; // of the key or tensor; NULL while it is not known
    size_t ordinal;   // the how-manieth key or tensor, from 1; 0 in the header
};

// ---- messages

enum { PLACE_CAPACITY = 160, QUOTED_MAX = 80 };

// Names come from the file: only what is printable reaches a terminal.
static void place_text(const struct cursor *c, char text[PLACE_CAPACITY]) {
    if (!c->ordinal)
        snprintf(text, PLACE_CAPACITY, "%s", c->what);
    else if (!c->name)
        snprintf(text, PLACE_CAPACITY, "%s number %zu", c->what, c->ordinal);
    else
        snprintf(text, PLACE_CAPACITY, "%s \"%.*s\"", c->what, QUOTED_MAX, c->name);
    for (char *p = text; *p; p++)
        if (!isprint((unsigned char)*p)) *p = '?';
}

static knnlm_status __attribute__((format(printf, 3, 4), cold))
malformed(const struct cursor *c, knnlm_status status, const char *format, ...) {
    char place[PLACE_CAPACITY], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    place_text(c, place);
    return kn_fail(status, "%s: %s at byte %zu: %s", c->file->path, place, c->at, text);
}

static knnlm_status truncated(const struct cursor *c, uint64_t missing) {
    char place[PLACE_CAPACITY];
    place_text(c, place);
    return kn_fail(KNNLM_EDATA, "%s: truncated: %s at byte %zu needs %" PRIu64 " more bytes", c->file->path,
                   place, c->at, missing);
}

// ---- pieces

static size_t remaining(const struct cursor *c) {
    return c->file->size - c->at;
}

static knnlm_status need(const struct cursor *c, uint64_t size) {
    return size <= remaining(c) ? KNNLM_OK : truncated(c, size - remaining(c));
}

static knnlm_status take(struct cursor *c, void *out, size_t size) {
    KN_TRY(need(c, size));
    memcpy(out, c->file->data + c->at, size);
    c->at += size;
    return KNNLM_OK;
}

static knnlm_status take_string(struct cursor *c, const char **data, size_t *size) {
    uint64_t length;
    KN_TRY(take(c, &length, sizeof length));
    KN_TRY(need(c, length));
    *data = (const char *)c->file->data + c->at;
    *size = (size_t)length;
    c->at += *size;
    return KNNLM_OK;
}

static knnlm_status take_name(struct cursor *c, size_t longest, char **name) {
    size_t start = c->at, size;
    const char *data;
    KN_TRY(take_string(c, &data, &size));
    const char *flaw = size == 0               ? "its name is empty"
                       : memchr(data, 0, size) ? "its name holds a NUL"
                                               : NULL;
    if (flaw || size > longest) {
        c->at = start;
        return flaw ? malformed(c, KNNLM_EDATA, "%s", flaw)
                    : malformed(c, KNNLM_EDATA, "its name has %zu bytes, more than %zu", size, longest);
    }
    *name = kn_strndup(data, size);
    c->name = *name;
    return *name ? KNNLM_OK : KNNLM_ENOMEM;
}

// ---- header

static knnlm_status take_version(struct cursor *c) {
    uint32_t version;
    if (remaining(c) < 4 || memcmp(c->file->data, KN_GGUF_MAGIC, 4) != 0)
        return kn_fail(KNNLM_EDATA, "%s: not a GGUF file: it does not begin with \"GGUF\"", c->file->path);
    c->at = 4;
    KN_TRY(take(c, &version, sizeof version));
    c->at = 4;
    // Read in the other byte order a small version has only high bits.
    if (version && (version & 0xffff) == 0)
        return malformed(c, KNNLM_ENOTSUP, "a big-endian GGUF file: only little-endian ones can be read");
    if (version < KN_GGUF_VERSION_OLDEST || version > KN_GGUF_VERSION)
        return malformed(c, KNNLM_ENOTSUP, "GGUF version %" PRIu32 ": only versions 2 and 3 can be read",
                         version);
    c->at = 8;
    return KNNLM_OK;
}

static knnlm_status take_count(struct cursor *c, const char *of, size_t min, size_t *count) {
    size_t start = c->at;
    int64_t n;
    KN_TRY(take(c, &n, sizeof n));
    if (n < 0 || (uint64_t)n > remaining(c) / min) {
        c->at = start;
        return malformed(c, KNNLM_EDATA, "%" PRId64 " %s cannot be in a file of %zu bytes", n, of,
                         c->file->size);
    }
    *count = (size_t)n;
    return KNNLM_OK;
}

// ---- values

static knnlm_status take_kind(struct cursor *c, kn_gguf_kind *kind) {
    uint32_t number;
    KN_TRY(take(c, &number, sizeof number));
    if (number >= KN_GGUF_KINDS) {
        c->at -= sizeof number;
        return malformed(c, KNNLM_EDATA, "unknown type %" PRIu32 " of a value", number);
    }
    *kind = (kn_gguf_kind)number;
    return KNNLM_OK;
}

static knnlm_status skip_scalars(struct cursor *c, kn_gguf_value *value) {
    size_t bytes;
    if (!kn_mul(value->count, kn_gguf_kind_size(value->kind), &bytes))
        return malformed(c, KNNLM_EDATA, "%zu elements overflow", value->count);
    KN_TRY(need(c, bytes));
    c->at += bytes;
    return KNNLM_OK;
}

static knnlm_status index_strings(struct cursor *c, kn_gguf_value *value) {
    const char *data;
    size_t size;
    if (value->count > remaining(c) / STRING_MIN)
        return malformed(c, KNNLM_EDATA, "%zu strings cannot be in a file of %zu bytes", value->count,
                         c->file->size);
    if (!(value->places = kn_alloc(value->count, sizeof *value->places))) return KNNLM_ENOMEM;
    for (size_t i = 0; i < value->count; i++) {
        value->places[i] = c->at;
        KN_TRY(take_string(c, &data, &size));
    }
    return KNNLM_OK;
}

static knnlm_status copy_string(struct cursor *c, kn_gguf_value *value) {
    const char *data;
    KN_TRY(take_string(c, &data, &value->text_size));
    value->text = kn_strndup(data, value->text_size);
    return value->text ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status take_array_head(struct cursor *c, kn_gguf_value *value) {
    uint64_t count;
    value->is_array = true;
    KN_TRY(take_kind(c, &value->kind));
    if (value->kind == KN_GGUF_KIND_ARRAY)
        return malformed(c, KNNLM_EDATA, "arrays of arrays cannot be read");
    KN_TRY(take(c, &count, sizeof count));
    value->count = (size_t)count;
    return KNNLM_OK;
}

static knnlm_status take_value(struct cursor *c, kn_gguf_value *value) {
    KN_TRY(take_name(c, KN_GGUF_KEY_MAX, &value->key));
    KN_TRY(take_kind(c, &value->kind));
    value->count = 1;
    if (value->kind == KN_GGUF_KIND_ARRAY) KN_TRY(take_array_head(c, value));
    value->data = c->file->data + c->at;
    if (value->kind != KN_GGUF_KIND_STRING) return skip_scalars(c, value);
    return value->is_array ? index_strings(c, value) : copy_string(c, value);
}

static knnlm_status take_values(struct cursor *c, kn_gguf *file, size_t count) {
    c->what = "key";
    for (size_t i = 0; i < count; i++) {
        c->name = NULL;
        c->ordinal = i + 1;
        KN_TRY(kn_grow(&file->values, &file->values_capacity, i + 1, sizeof *file->values));
        file->values[i] = (kn_gguf_value){0};
        file->n_values = i + 1;
        KN_TRY(take_value(c, &file->values[i]));
    }
    return KNNLM_OK;
}

// ---- tensors

static knnlm_status take_tensor(struct cursor *c, kn_gguf_tensor *tensor, uint64_t *offset) {
    char *name = NULL;
    size_t start = c->at;
    KN_TRY(take_name(c, KN_GGUF_NAME_MAX, &name));
    tensor->name = name;
    KN_TRY(take(c, &tensor->n_dims, sizeof tensor->n_dims));
    for (uint32_t i = 0; i < KN_GGUF_DIMS_MAX; i++) {
        tensor->dims[i] = 1;
        if (i < tensor->n_dims) KN_TRY(take(c, &tensor->dims[i], sizeof tensor->dims[i]));
    }
    KN_TRY(take(c, &tensor->type, sizeof tensor->type));
    KN_TRY(take(c, offset, sizeof *offset));
    const char *flaw = kn_gguf_tensor_measure(tensor->type, tensor->n_dims, tensor->dims, &tensor->size);
    if (flaw) {
        c->at = start;
        return malformed(c, KNNLM_EDATA, "%s", flaw);
    }
    return KNNLM_OK;
}

static knnlm_status take_tensors(struct cursor *c, kn_gguf *file, size_t count, uint64_t *offsets) {
    c->what = "tensor";
    for (size_t i = 0; i < count; i++) {
        c->name = NULL;
        c->ordinal = i + 1;
        KN_TRY(kn_grow(&file->tensors, &file->tensors_capacity, i + 1, sizeof *file->tensors));
        file->tensors[i] = (kn_gguf_tensor){0};
        file->n_tensors = i + 1;
        KN_TRY(take_tensor(c, &file->tensors[i], &offsets[i]));
    }
    return KNNLM_OK;
}

static knnlm_status place_tensor(struct cursor *c, kn_gguf_tensor *tensor, uint64_t offset,
                                 size_t alignment) {
    size_t start = c->at, room = start < c->file->size ? remaining(c) : 0;
    c->name = tensor->name;
    if (offset % alignment)
        return malformed(c, KNNLM_EDATA, "its offset %" PRIu64 " is no multiple of %zu", offset, alignment);
    if (offset >= room)
        return malformed(c, KNNLM_EDATA, "its data at offset %" PRIu64 " is outside the file of %zu bytes",
                         offset, c->file->size);
    c->at = start + (size_t)offset;
    KN_TRY(need(c, tensor->size));
    tensor->data = c->file->data + c->at;
    c->at = start;
    return KNNLM_OK;
}

static int by_data(const void *a, const void *b) {
    const kn_gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

// A tensor of a type not known still has a first byte.
static knnlm_status check_overlaps(const kn_gguf *file, const kn_gguf_tensor **sorted) {
    for (size_t i = 0; i < file->n_tensors; i++) sorted[i] = &file->tensors[i];
    qsort(sorted, file->n_tensors, sizeof *sorted, by_data);
    for (size_t i = 1; i < file->n_tensors; i++) {
        const kn_gguf_tensor *before = sorted[i - 1];
        if (before->data + (before->size ? before->size : 1) > sorted[i]->data) {
            struct cursor c = {file, (size_t)(sorted[i]->data - file->data), "tensor", sorted[i]->name, i};
            return malformed(&c, KNNLM_EDATA, "its data overlaps that of \"%s\"", before->name);
        }
    }
    return KNNLM_OK;
}

static knnlm_status read_alignment(const kn_gguf *file, size_t *alignment) {
    int64_t value = KN_GGUF_ALIGNMENT;
    bool found;
    KN_TRY(kn_gguf_get_i64(file, KN_GGUF_ALIGNMENT_KEY, &value, &found));
    if (value < 0 || !kn_gguf_alignment_valid((uint64_t)value))
        return kn_fail(KNNLM_EDATA, "%s: key \"%s\" is %" PRId64 ": no power of two from %d on", file->path,
                       KN_GGUF_ALIGNMENT_KEY, value, KN_GGUF_ALIGNMENT_MIN);
    *alignment = (size_t)value;
    return KNNLM_OK;
}

static knnlm_status place_tensors(struct cursor *c, kn_gguf *file, const uint64_t *offsets) {
    size_t alignment = 0;
    KN_TRY(read_alignment(file, &alignment));
    if (!kn_gguf_align(c->at, alignment, &c->at))
        return malformed(c, KNNLM_EDATA, "an alignment of %zu overflows", alignment);
    for (size_t i = 0; i < file->n_tensors; i++) {
        c->ordinal = i + 1;
        KN_TRY(place_tensor(c, &file->tensors[i], offsets[i], alignment));
    }
    const kn_gguf_tensor **sorted = kn_alloc(file->n_tensors, sizeof *sorted);
    knnlm_status status = sorted ? check_overlaps(file, sorted) : KNNLM_ENOMEM;
    free(sorted);
    return status;
}

// ---- names

static int by_name(const void *a, const void *b) {
    const kn_gguf_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static knnlm_status sort_names(const struct cursor *c, kn_gguf_name *names, size_t count) {
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1].name, names[i].name) == 0) {
            struct cursor twice = *c;
            twice.name = names[i].name;
            return malformed(&twice, KNNLM_EDATA, "it is there more than once");
        }
    }
    return KNNLM_OK;
}

static knnlm_status index_values(const struct cursor *c, kn_gguf *file) {
    file->value_names = kn_alloc(file->n_values, sizeof *file->value_names);
    if (!file->value_names) return KNNLM_ENOMEM;
    for (size_t i = 0; i < file->n_values; i++) file->value_names[i] = (kn_gguf_name){file->values[i].key, i};
    return sort_names(c, file->value_names, file->n_values);
}

static knnlm_status index_tensors(const struct cursor *c, kn_gguf *file) {
    file->tensor_names = kn_alloc(file->n_tensors, sizeof *file->tensor_names);
    if (!file->tensor_names) return KNNLM_ENOMEM;
    for (size_t i = 0; i < file->n_tensors; i++)
        file->tensor_names[i] = (kn_gguf_name){file->tensors[i].name, i};
    return sort_names(c, file->tensor_names, file->n_tensors);
}

// ---- the whole

static knnlm_status parse_tensors(struct cursor *c, kn_gguf *file, size_t count) {
    uint64_t *offsets = kn_alloc(count, sizeof *offsets);
    if (!offsets) return KNNLM_ENOMEM;
    knnlm_status status = take_tensors(c, file, count, offsets);
    if (status == KNNLM_OK) status = index_tensors(c, file);
    if (status == KNNLM_OK) status = place_tensors(c, file, offsets);
    free(offsets);
    return status;
}

static knnlm_status parse(kn_gguf *file) {
    struct cursor c = {.file = file, .what = "header"};
    size_t n_tensors = 0, n_values = 0;
    KN_TRY(take_version(&c));
    KN_TRY(take_count(&c, "tensors", TENSOR_MIN, &n_tensors));
    KN_TRY(take_count(&c, "keys", VALUE_MIN, &n_values));
    KN_TRY(take_values(&c, file, n_values));
    KN_TRY(index_values(&c, file));
    return parse_tensors(&c, file, n_tensors);
}

static knnlm_status file_new(const char *name, kn_gguf **out) {
    kn_gguf *file = kn_alloc(1, sizeof *file);
    if (!file || !(file->path = kn_strdup(name))) {
        free(file);
        return KNNLM_ENOMEM;
    }
    *out = file;
    return KNNLM_OK;
}

static knnlm_status parse_or_close(kn_gguf *file, const uint8_t *data, size_t size, kn_gguf **out) {
    file->data = data;
    file->size = size;
    knnlm_status status = parse(file);
    if (status == KNNLM_OK)
        *out = file;
    else
        kn_gguf_close(file);
    return status;
}

knnlm_status kn_gguf_parse(const char *name, const uint8_t *data, size_t size, kn_gguf **out) {
    kn_gguf *file;
    *out = NULL;
    KN_TRY(file_new(name, &file));
    return parse_or_close(file, data, size, out);
}

knnlm_status kn_gguf_open(const char *path, kn_gguf **out) {
    kn_gguf *file;
    *out = NULL;
    KN_TRY(file_new(path, &file));
    knnlm_status status = kn_map_open(path, &file->map);
    if (status == KNNLM_OK) return parse_or_close(file, file->map.data, file->map.size, out);
    kn_gguf_close(file);
    return status;
}

void kn_gguf_close(kn_gguf *file) {
    if (!file) return;
    for (size_t i = 0; i < file->n_values; i++) {
        free(file->values[i].key);
        free(file->values[i].text);
        free(file->values[i].places);
    }
    for (size_t i = 0; i < file->n_tensors; i++) free((void *)(uintptr_t)file->tensors[i].name);
    free(file->values);
    free(file->tensors);
    free(file->value_names);
    free(file->tensor_names);
    kn_map_close(&file->map);
    free(file->path);
    free(file);
}
