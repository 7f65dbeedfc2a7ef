// Writes a GGUF file: keys first, then the tensors' headers, then their data.
#include "base/convert.h"
#include "base/gguf_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct announced {
    char *name;
    kn_gguf_type type;
    uint32_t n_dims;
    int64_t dims[KN_GGUF_DIMS_MAX];
    size_t size, offset;
};

struct bytes {
    uint8_t *data;
    size_t size, capacity;
};

struct kn_gguf_writer {
    char *path;
    kn_file_writer *out;
    struct bytes values;
    char **keys;
    struct announced *tensors;
    size_t n_keys, n_tensors, keys_capacity, tensors_capacity;
    size_t alignment, data_size; // data_size: of the tensors announced, each padded
    bool began;                  // the header is written: only data may follow
    size_t current, put;         // the tensor whose data comes next, and the bytes of it that came
    knnlm_status failed;
    char *reason;
};

// ---- failing

// The first failure is kept, so that a caller who looks only at commit's result misses none.
static knnlm_status keep(kn_gguf_writer *w, knnlm_status status) {
    if (status == KNNLM_OK || w->failed) return status;
    w->failed = status;
    w->reason = strdup(knnlm_message());
    return status;
}

static knnlm_status check_order(const kn_gguf_writer *w, const char *what, const char *name) {
    if (!w->began) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: %s \"%s\" was put after the first data", w->path, what, name);
}

// ---- values

static knnlm_status append(struct bytes *to, const void *data, size_t size) {
    size_t needed;
    if (!kn_add(to->size, size, &needed)) return kn_fail(KNNLM_ENOMEM, "the values of a GGUF file overflow");
    KN_TRY(kn_grow(&to->data, &to->capacity, needed, 1));
    if (size) memcpy(to->data + to->size, data, size);
    to->size = needed;
    return KNNLM_OK;
}

static knnlm_status append_u32(struct bytes *to, uint32_t value) {
    return append(to, &value, sizeof value);
}

static knnlm_status append_u64(struct bytes *to, uint64_t value) {
    return append(to, &value, sizeof value);
}

static knnlm_status append_string(struct bytes *to, const char *data, size_t size) {
    KN_TRY(append_u64(to, size));
    return append(to, data, size);
}

static knnlm_status add_key(kn_gguf_writer *w, const char *key) {
    size_t length = strlen(key);
    KN_TRY(check_order(w, "key", key));
    if (length == 0 || length > KN_GGUF_KEY_MAX)
        return kn_fail(KNNLM_EINVAL, "%s: a key of %zu bytes: 1 to %d are possible", w->path, length,
                       KN_GGUF_KEY_MAX);
    for (size_t i = 0; i < w->n_keys; i++)
        if (strcmp(w->keys[i], key) == 0)
            return kn_fail(KNNLM_EINVAL, "%s: key \"%s\" was put twice", w->path, key);
    KN_TRY(kn_grow(&w->keys, &w->keys_capacity, w->n_keys + 1, sizeof *w->keys));
    if (!(w->keys[w->n_keys] = kn_strdup(key))) return KNNLM_ENOMEM;
    w->n_keys++;
    return append_string(&w->values, key, length);
}

static knnlm_status put_scalar(kn_gguf_writer *w, const char *key, kn_gguf_kind kind, const void *value) {
    KN_TRY(add_key(w, key));
    KN_TRY(append_u32(&w->values, kind));
    return append(&w->values, value, kn_gguf_kind_size(kind));
}

static knnlm_status put_array_head(kn_gguf_writer *w, const char *key, kn_gguf_kind kind, size_t count) {
    KN_TRY(add_key(w, key));
    KN_TRY(append_u32(&w->values, KN_GGUF_KIND_ARRAY));
    KN_TRY(append_u32(&w->values, kind));
    return append_u64(&w->values, count);
}

static knnlm_status put_array(kn_gguf_writer *w, const char *key, kn_gguf_kind kind, const void *data,
                              size_t count) {
    size_t size;
    if (!kn_mul(count, kn_gguf_kind_size(kind), &size))
        return kn_fail(KNNLM_EINVAL, "%s: key \"%s\": %zu elements overflow", w->path, key, count);
    KN_TRY(put_array_head(w, key, kind, count));
    return append(&w->values, data, size);
}

static knnlm_status put_alignment(kn_gguf_writer *w, uint32_t alignment) {
    if (!kn_gguf_alignment_valid(alignment))
        return kn_fail(KNNLM_EINVAL, "%s: an alignment of %u is no power of two from %d on", w->path,
                       alignment, KN_GGUF_ALIGNMENT_MIN);
    if (w->n_tensors)
        return kn_fail(KNNLM_EINVAL, "%s: the alignment was put after the first tensor", w->path);
    w->alignment = alignment;
    return KNNLM_OK;
}

static knnlm_status put_u32(kn_gguf_writer *w, const char *key, uint32_t value) {
    if (strcmp(key, KN_GGUF_ALIGNMENT_KEY) == 0) KN_TRY(put_alignment(w, value));
    return put_scalar(w, key, KN_GGUF_KIND_U32, &value);
}

static knnlm_status put_string(kn_gguf_writer *w, const char *key, const char *value) {
    KN_TRY(add_key(w, key));
    KN_TRY(append_u32(&w->values, KN_GGUF_KIND_STRING));
    return append_string(&w->values, value, strlen(value));
}

static knnlm_status put_strings(kn_gguf_writer *w, const char *key, const char *const *values,
                                const size_t *sizes, size_t count) {
    KN_TRY(put_array_head(w, key, KN_GGUF_KIND_STRING, count));
    for (size_t i = 0; i < count; i++)
        KN_TRY(append_string(&w->values, values[i], sizes ? sizes[i] : strlen(values[i])));
    return KNNLM_OK;
}

knnlm_status kn_gguf_put_u32(kn_gguf_writer *w, const char *key, uint32_t value) {
    return keep(w, put_u32(w, key, value));
}

knnlm_status kn_gguf_put_u64(kn_gguf_writer *w, const char *key, uint64_t value) {
    return keep(w, put_scalar(w, key, KN_GGUF_KIND_U64, &value));
}

knnlm_status kn_gguf_put_f32(kn_gguf_writer *w, const char *key, float value) {
    return keep(w, put_scalar(w, key, KN_GGUF_KIND_F32, &value));
}

knnlm_status kn_gguf_put_f64(kn_gguf_writer *w, const char *key, double value) {
    return keep(w, put_scalar(w, key, KN_GGUF_KIND_F64, &value));
}

knnlm_status kn_gguf_put_bool(kn_gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    return keep(w, put_scalar(w, key, KN_GGUF_KIND_BOOL, &byte));
}

knnlm_status kn_gguf_put_string(kn_gguf_writer *w, const char *key, const char *value) {
    return keep(w, put_string(w, key, value));
}

knnlm_status kn_gguf_put_strings(kn_gguf_writer *w, const char *key, const char *const *values,
                                 const size_t *sizes, size_t count) {
    return keep(w, put_strings(w, key, values, sizes, count));
}

knnlm_status kn_gguf_put_i32s(kn_gguf_writer *w, const char *key, const int32_t *values, size_t count) {
    return keep(w, put_array(w, key, KN_GGUF_KIND_I32, values, count));
}

knnlm_status kn_gguf_put_f32s(kn_gguf_writer *w, const char *key, const float *values, size_t count) {
    return keep(w, put_array(w, key, KN_GGUF_KIND_F32, values, count));
}

// ---- tensors

// ggml keeps a name with its NUL in 64 bytes and refuses files with longer ones.
static knnlm_status check_tensor_name(const kn_gguf_writer *w, const char *name) {
    size_t length = strlen(name);
    KN_TRY(check_order(w, "tensor", name));
    if (length == 0 || length >= KN_GGUF_NAME_MAX)
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": a name has 1 to %d bytes", w->path, name,
                       KN_GGUF_NAME_MAX - 1);
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0)
            return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\" was put twice", w->path, name);
    return KNNLM_OK;
}

static knnlm_status measure(const kn_gguf_writer *w, struct announced *tensor, const char *name,
                            const int64_t *dims) {
    size_t block_values, block_bytes;
    if (!kn_gguf_type_block(tensor->type, &block_values, &block_bytes))
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": type %d cannot be written", w->path, name,
                       (int)tensor->type);
    const char *flaw = kn_gguf_tensor_measure(tensor->type, tensor->n_dims, dims, &tensor->size);
    return flaw ? kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": %s", w->path, name, flaw) : KNNLM_OK;
}

static knnlm_status put_tensor(kn_gguf_writer *w, const char *name, kn_gguf_type type, uint32_t n_dims,
                               const int64_t *dims) {
    struct announced tensor = {.type = type, .n_dims = n_dims, .offset = w->data_size};
    size_t end;
    KN_TRY(check_tensor_name(w, name));
    KN_TRY(measure(w, &tensor, name, dims));
    memcpy(tensor.dims, dims, n_dims * sizeof *dims);
    if (!kn_add(w->data_size, tensor.size, &end) || !kn_gguf_align(end, w->alignment, &end))
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": the file's size overflows", w->path, name);
    KN_TRY(kn_grow(&w->tensors, &w->tensors_capacity, w->n_tensors + 1, sizeof *w->tensors));
    if (!(tensor.name = kn_strdup(name))) return KNNLM_ENOMEM;
    w->tensors[w->n_tensors++] = tensor;
    w->data_size = end;
    return KNNLM_OK;
}

knnlm_status kn_gguf_put_tensor(kn_gguf_writer *w, const char *name, kn_gguf_type type, uint32_t n_dims,
                                const int64_t *dims) {
    return keep(w, put_tensor(w, name, type, n_dims, dims));
}

// ---- header

static knnlm_status pad(kn_gguf_writer *w) {
    static const uint8_t zeros[64];
    size_t excess = (size_t)(kn_file_writer_offset(w->out) % w->alignment);
    for (size_t left = excess ? w->alignment - excess : 0; left;) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        KN_TRY(kn_file_writer_put(w->out, zeros, n));
        left -= n;
    }
    return KNNLM_OK;
}

static knnlm_status append_tensor(struct bytes *to, const struct announced *tensor) {
    KN_TRY(append_string(to, tensor->name, strlen(tensor->name)));
    KN_TRY(append_u32(to, tensor->n_dims));
    KN_TRY(append(to, tensor->dims, tensor->n_dims * sizeof *tensor->dims));
    KN_TRY(append_u32(to, (uint32_t)tensor->type));
    return append_u64(to, tensor->offset);
}

static knnlm_status write_table(kn_gguf_writer *w) {
    struct bytes table = {0};
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < w->n_tensors && status == KNNLM_OK; i++)
        status = append_tensor(&table, &w->tensors[i]);
    if (status == KNNLM_OK) status = kn_file_writer_put(w->out, table.data, table.size);
    free(table.data);
    return status;
}

static knnlm_status begin(kn_gguf_writer *w) {
    uint32_t version = KN_GGUF_VERSION;
    uint64_t counts[2] = {w->n_tensors, w->n_keys};
    if (w->began) return KNNLM_OK;
    w->began = true;
    KN_TRY(kn_file_writer_put(w->out, KN_GGUF_MAGIC, 4));
    KN_TRY(kn_file_writer_put(w->out, &version, sizeof version));
    KN_TRY(kn_file_writer_put(w->out, counts, sizeof counts));
    KN_TRY(kn_file_writer_put(w->out, w->values.data, w->values.size));
    KN_TRY(write_table(w));
    return pad(w);
}

// ---- data

static knnlm_status check_room(const kn_gguf_writer *w, size_t size) {
    if (w->current == w->n_tensors)
        return kn_fail(KNNLM_EINVAL, "%s: data was put after that of the last tensor announced", w->path);
    const struct announced *tensor = &w->tensors[w->current];
    if (size > tensor->size - w->put)
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\" takes %zu more bytes, but %zu were put", w->path,
                       tensor->name, tensor->size - w->put, size);
    return KNNLM_OK;
}

// The caller has checked the room.
static knnlm_status put_bytes(kn_gguf_writer *w, const void *data, size_t size) {
    KN_TRY(kn_file_writer_put(w->out, data, size));
    w->put += size;
    if (w->put < w->tensors[w->current].size) return KNNLM_OK;
    w->current++;
    w->put = 0;
    return pad(w);
}

static knnlm_status put_raw(kn_gguf_writer *w, const void *data, size_t size) {
    KN_TRY(begin(w));
    if (!size) return KNNLM_OK;
    KN_TRY(check_room(w, size));
    return put_bytes(w, data, size);
}

enum { CHUNK_VALUES = 4096 };

static knnlm_status convert(const kn_gguf_writer *w, const struct announced *tensor, uint8_t *out,
                            const float *in, size_t count) {
    switch (tensor->type) {
    case KN_GGUF_F16:
        kn_f16_from_f32(out, in, count);
        return KNNLM_OK;
    case KN_GGUF_BF16:
        kn_bf16_from_f32(out, in, count);
        return KNNLM_OK;
    default:
        break;
    }
    if (kn_q8_0_from_f32(out, in, count / KN_Q8_0_VALUES)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": a value is not finite or too large for Q8_0", w->path,
                   tensor->name);
}

static knnlm_status put_converted(kn_gguf_writer *w, const float *values, size_t count, size_t block_values,
                                  size_t block_bytes) {
    uint8_t chunk[CHUNK_VALUES * sizeof(uint16_t)];
    const struct announced tensor = w->tensors[w->current];
    for (size_t done = 0; done < count;) {
        size_t n = count - done < CHUNK_VALUES ? count - done : CHUNK_VALUES;
        KN_TRY(convert(w, &tensor, chunk, values + done, n));
        KN_TRY(put_bytes(w, chunk, n / block_values * block_bytes));
        done += n;
    }
    return KNNLM_OK;
}

static knnlm_status put_f32_data(kn_gguf_writer *w, const float *values, size_t count) {
    size_t block_values, block_bytes, size;
    KN_TRY(begin(w));
    if (!count) return KNNLM_OK;
    KN_TRY(check_room(w, 0));
    const struct announced *tensor = &w->tensors[w->current];
    kn_gguf_type_block(tensor->type, &block_values, &block_bytes);
    if (tensor->type == KN_GGUF_I32 || tensor->type == KN_GGUF_I64)
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\" holds integers: put its data as raw bytes", w->path,
                       tensor->name);
    if (count % block_values)
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\": %zu values are no whole number of blocks of %zu",
                       w->path, tensor->name, count, block_values);
    if (!kn_mul(count / block_values, block_bytes, &size)) size = SIZE_MAX;
    KN_TRY(check_room(w, size));
    if (tensor->type == KN_GGUF_F32) return put_bytes(w, values, size);
    return put_converted(w, values, count, block_values, block_bytes);
}

knnlm_status kn_gguf_put_data_f32(kn_gguf_writer *w, const float *values, size_t count) {
    return keep(w, put_f32_data(w, values, count));
}

knnlm_status kn_gguf_put_data_raw(kn_gguf_writer *w, const void *data, size_t size) {
    return keep(w, put_raw(w, data, size));
}

// ---- opening and ending

static void writer_free(kn_gguf_writer *w) {
    kn_file_writer_abort(w->out);
    for (size_t i = 0; i < w->n_keys; i++) free(w->keys[i]);
    for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].name);
    free(w->keys);
    free(w->tensors);
    free(w->values.data);
    free(w->reason);
    free(w->path);
    free(w);
}

knnlm_status kn_gguf_writer_open(const char *path, kn_gguf_writer **out) {
    kn_gguf_writer *w = kn_alloc(1, sizeof *w);
    *out = NULL;
    if (!w) return KNNLM_ENOMEM;
    w->alignment = KN_GGUF_ALIGNMENT;
    w->path = kn_strdup(path);
    knnlm_status status = w->path ? kn_file_writer_open(path, &w->out) : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        *out = w;
    else
        writer_free(w);
    return status;
}

static knnlm_status finish(kn_gguf_writer *w) {
    if (w->failed) return kn_fail(w->failed, "%s", w->reason ? w->reason : knnlm_status_name(w->failed));
    KN_TRY(begin(w));
    if (w->current < w->n_tensors)
        return kn_fail(KNNLM_EINVAL, "%s: tensor \"%s\" lacks %zu bytes of its data", w->path,
                       w->tensors[w->current].name, w->tensors[w->current].size - w->put);
    kn_file_writer *writer = w->out;
    w->out = NULL;
    return kn_file_writer_commit(writer);
}

knnlm_status kn_gguf_writer_commit(kn_gguf_writer *w) {
    knnlm_status status = finish(w);
    writer_free(w);
    return status;
}

void kn_gguf_writer_abort(kn_gguf_writer *w) {
    if (w) writer_free(w);
}
