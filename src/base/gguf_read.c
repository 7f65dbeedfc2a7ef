// Reads keys, arrays and tensors of a GGUF file that was parsed, in the type that the caller wants.
#include "base/convert.h"
#include "base/gguf_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *kn_gguf_path(const kn_gguf *file) {
    return file->path;
}

// ---- finding

static int name_compare(const void *key, const void *entry) {
    return strcmp(key, ((const kn_gguf_name *)entry)->name);
}

static const kn_gguf_name *name_find(const kn_gguf_name *names, size_t count, const char *name) {
    return bsearch(name, names, count, sizeof *names, name_compare);
}

static const kn_gguf_value *value_find(const kn_gguf *file, const char *key) {
    const kn_gguf_name *found = name_find(file->value_names, file->n_values, key);
    return found ? &file->values[found->index] : NULL;
}

size_t kn_gguf_key_count(const kn_gguf *file) {
    return file->n_values;
}

const char *kn_gguf_key_at(const kn_gguf *file, size_t index) {
    return file->values[index].key;
}

size_t kn_gguf_tensor_count(const kn_gguf *file) {
    return file->n_tensors;
}

const kn_gguf_tensor *kn_gguf_tensor_at(const kn_gguf *file, size_t index) {
    return &file->tensors[index];
}

const kn_gguf_tensor *kn_gguf_tensor_find(const kn_gguf *file, const char *name) {
    const kn_gguf_name *found = name_find(file->tensor_names, file->n_tensors, name);
    return found ? &file->tensors[found->index] : NULL;
}

void kn_gguf_tensor_release(const kn_gguf *file, const kn_gguf_tensor *tensor) {
    if (file->map.data) kn_map_release(&file->map, (size_t)(tensor->data - file->map.data), tensor->size);
}

// ---- values

static knnlm_status wrong_type(const kn_gguf *file, const kn_gguf_value *value, const char *wanted) {
    return kn_fail(KNNLM_EDATA, "%s: key \"%s\" is of type %s%s where %s was expected", file->path,
                   value->key, value->is_array ? "array of " : "", kn_gguf_kind_name(value->kind), wanted);
}

#define LOAD(type, data)                                                                                     \
    __extension__({                                                                                          \
        type load_value_;                                                                                    \
        memcpy(&load_value_, (data), sizeof load_value_);                                                    \
        load_value_;                                                                                         \
    })

static knnlm_status load_i64(const kn_gguf *file, const kn_gguf_value *value, size_t index, int64_t *out) {
    const uint8_t *data = value->data + index * kn_gguf_kind_size(value->kind);
    switch (value->kind) {
    case KN_GGUF_KIND_U8:
        *out = *data;
        return KNNLM_OK;
    case KN_GGUF_KIND_I8:
        *out = LOAD(int8_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_U16:
        *out = LOAD(uint16_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_I16:
        *out = LOAD(int16_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_U32:
        *out = LOAD(uint32_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_I32:
        *out = LOAD(int32_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_I64:
        *out = LOAD(int64_t, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_U64:
        *out = LOAD(int64_t, data);
        break;
    default:
        return wrong_type(file, value, "an integer");
    }
    if (*out >= 0) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: key \"%s\": %" PRIu64 " is too large", file->path, value->key,
                   (uint64_t)*out);
}

static knnlm_status load_f64(const kn_gguf *file, const kn_gguf_value *value, size_t index, double *out) {
    const uint8_t *data = value->data + index * kn_gguf_kind_size(value->kind);
    switch (value->kind) {
    case KN_GGUF_KIND_F32:
        *out = (double)LOAD(float, data);
        return KNNLM_OK;
    case KN_GGUF_KIND_F64:
        *out = LOAD(double, data);
        return KNNLM_OK;
    default:
        return wrong_type(file, value, "a floating-point number");
    }
}

bool kn_gguf_has(const kn_gguf *file, const char *key) {
    return value_find(file, key) != NULL;
}

// *value NULL when absent, which is no failure.
static knnlm_status scalar_find(const kn_gguf *file, const char *key, const char *wanted,
                                const kn_gguf_value **value, bool *found) {
    *value = value_find(file, key);
    *found = *value != NULL;
    return *value && (*value)->is_array ? wrong_type(file, *value, wanted) : KNNLM_OK;
}

knnlm_status kn_gguf_get_i64(const kn_gguf *file, const char *key, int64_t *value, bool *found) {
    const kn_gguf_value *entry;
    KN_TRY(scalar_find(file, key, "an integer", &entry, found));
    return entry ? load_i64(file, entry, 0, value) : KNNLM_OK;
}

knnlm_status kn_gguf_get_f64(const kn_gguf *file, const char *key, double *value, bool *found) {
    const kn_gguf_value *entry;
    KN_TRY(scalar_find(file, key, "a floating-point number", &entry, found));
    return entry ? load_f64(file, entry, 0, value) : KNNLM_OK;
}

knnlm_status kn_gguf_get_bool(const kn_gguf *file, const char *key, bool *value, bool *found) {
    const kn_gguf_value *entry;
    KN_TRY(scalar_find(file, key, "bool", &entry, found));
    if (!entry) return KNNLM_OK;
    if (entry->kind != KN_GGUF_KIND_BOOL) return wrong_type(file, entry, "bool");
    *value = *entry->data != 0;
    return KNNLM_OK;
}

knnlm_status kn_gguf_get_string(const kn_gguf *file, const char *key, const char **value, bool *found) {
    const kn_gguf_value *entry;
    KN_TRY(scalar_find(file, key, "string", &entry, found));
    if (!entry) return KNNLM_OK;
    if (entry->kind != KN_GGUF_KIND_STRING) return wrong_type(file, entry, "string");
    if (strlen(entry->text) != entry->text_size)
        return kn_fail(KNNLM_EDATA, "%s: key \"%s\": its string holds a NUL", file->path, key);
    *value = entry->text;
    return KNNLM_OK;
}

// ---- arrays

knnlm_status kn_gguf_get_array(const kn_gguf *file, const char *key, size_t *count, bool *found) {
    const kn_gguf_value *entry = value_find(file, key);
    *found = entry != NULL;
    if (!entry) return KNNLM_OK;
    if (!entry->is_array) return wrong_type(file, entry, "array");
    *count = entry->count;
    return KNNLM_OK;
}

static knnlm_status element_find(const kn_gguf *file, const char *key, size_t index,
                                 const kn_gguf_value **value) {
    *value = value_find(file, key);
    if (!*value) return kn_fail(KNNLM_EDATA, "%s: there is no key \"%s\"", file->path, key);
    if (!(*value)->is_array) return wrong_type(file, *value, "array");
    if (index >= (*value)->count)
        return kn_fail(KNNLM_EINVAL, "%s: key \"%s\" has no element %zu but %zu elements", file->path, key,
                       index, (*value)->count);
    return KNNLM_OK;
}

knnlm_status kn_gguf_array_string(const kn_gguf *file, const char *key, size_t index, const char **data,
                                  size_t *size) {
    const kn_gguf_value *entry;
    KN_TRY(element_find(file, key, index, &entry));
    if (entry->kind != KN_GGUF_KIND_STRING) return wrong_type(file, entry, "array of string");
    const uint8_t *string = file->data + entry->places[index];
    *size = (size_t)LOAD(uint64_t, string);
    *data = (const char *)string + sizeof(uint64_t);
    return KNNLM_OK;
}

knnlm_status kn_gguf_array_i64(const kn_gguf *file, const char *key, size_t index, int64_t *value) {
    const kn_gguf_value *entry;
    KN_TRY(element_find(file, key, index, &entry));
    return load_i64(file, entry, index, value);
}

knnlm_status kn_gguf_array_f64(const kn_gguf *file, const char *key, size_t index, double *value) {
    const kn_gguf_value *entry;
    KN_TRY(element_find(file, key, index, &entry));
    return load_f64(file, entry, index, value);
}

// ---- tensors

static size_t element_count(const kn_gguf_tensor *tensor) {
    size_t count = 1;
    for (uint32_t i = 0; i < KN_GGUF_DIMS_MAX; i++) count *= (size_t)tensor->dims[i];
    return count;
}

knnlm_status kn_gguf_tensor_f32(const kn_gguf_tensor *tensor, size_t first, size_t count, float *out) {
    size_t elements = element_count(tensor);
    if (first > elements || count > elements - first)
        return kn_fail(KNNLM_EINVAL, "tensor \"%s\" has %zu elements: %zu from %zu on are outside it",
                       tensor->name, elements, count, first);
    if (!count) return KNNLM_OK;
    switch (tensor->type) {
    case KN_GGUF_F32:
        memcpy(out, tensor->data + 4 * first, 4 * count);
        return KNNLM_OK;
    case KN_GGUF_F16:
        kn_f32_from_f16(out, tensor->data + 2 * first, count);
        return KNNLM_OK;
    case KN_GGUF_BF16:
        kn_f32_from_bf16(out, tensor->data + 2 * first, count);
        return KNNLM_OK;
    case KN_GGUF_Q8_0:
        break;
    default:
        return kn_fail(KNNLM_ENOTSUP,
                       "tensor \"%s\" is of type %" PRId32
                       " (%s): only F32, F16, BF16 and Q8_0 can be read as numbers",
                       tensor->name, tensor->type, kn_gguf_type_name(tensor->type));
    }
    if (first % KN_Q8_0_VALUES)
        return kn_fail(KNNLM_EINVAL, "tensor \"%s\": element %zu is not the first of a Q8_0 block",
                       tensor->name, first);
    kn_f32_from_q8_0(out, tensor->data + first / KN_Q8_0_VALUES * KN_Q8_0_BYTES, count);
    return KNNLM_OK;
}
