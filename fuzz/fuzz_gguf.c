// Any bytes as a GGUF file: everything that can be asked of what was accepted is asked.
#include "base/gguf.h"

#include <stdlib.h>

enum { VALUES_MAX = 1 << 16, ELEMENTS_MAX = 1 << 10 };

static volatile uint64_t sink; // keeps the reads from being optimised away

static void read_bytes(const void *data, size_t size) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) sink += bytes[i];
}

static void read_element(const kn_gguf *file, const char *key, size_t index) {
    const char *text;
    size_t size;
    int64_t integer;
    double real;
    if (kn_gguf_array_string(file, key, index, &text, &size) == KNNLM_OK) read_bytes(text, size);
    if (kn_gguf_array_i64(file, key, index, &integer) == KNNLM_OK) sink += (uint64_t)integer;
    if (kn_gguf_array_f64(file, key, index, &real) == KNNLM_OK) read_bytes(&real, sizeof real);
}

static void read_key(const kn_gguf *file, const char *key) {
    int64_t integer;
    double real;
    bool truth, found;
    const char *text;
    size_t count = 0;
    if (kn_gguf_get_i64(file, key, &integer, &found) == KNNLM_OK) sink += (uint64_t)integer;
    if (kn_gguf_get_f64(file, key, &real, &found) == KNNLM_OK) read_bytes(&real, sizeof real);
    if (kn_gguf_get_bool(file, key, &truth, &found) == KNNLM_OK) sink += truth;
    if (kn_gguf_get_string(file, key, &text, &found) == KNNLM_OK)
        for (const char *p = text; *p; p++) sink += (uint8_t)*p;
    if (!found) abort(); // a key of the file is in the file
    if (kn_gguf_get_array(file, key, &count, &found) != KNNLM_OK) return;
    for (size_t i = 0; i < count && i < ELEMENTS_MAX; i++) read_element(file, key, i);
    read_element(file, key, count ? count - 1 : 0);
    read_element(file, key, count);
}

static size_t element_count(const kn_gguf_tensor *tensor) {
    size_t count = 1;
    for (int i = 0; i < KN_GGUF_DIMS_MAX; i++) count *= (size_t)tensor->dims[i];
    return count;
}

static void read_tensor(const kn_gguf *file, const kn_gguf_tensor *tensor) {
    static float values[VALUES_MAX];
    size_t count = element_count(tensor), n = count < VALUES_MAX ? count : VALUES_MAX;
    if (kn_gguf_tensor_find(file, tensor->name) != tensor) abort();
    read_bytes(tensor->data, tensor->size ? tensor->size : 1);
    if (kn_gguf_tensor_f32(tensor, 0, n, values) == KNNLM_OK) read_bytes(values, n * sizeof *values);
    size_t tail = (count - n) / 32 * 32; // the last values are the nearest to the end of the file
    if (count - tail <= VALUES_MAX && kn_gguf_tensor_f32(tensor, tail, count - tail, values) == KNNLM_OK)
        read_bytes(values, (count - tail) * sizeof *values);
    if (kn_gguf_tensor_f32(tensor, count, 1, values) == KNNLM_OK) abort();
    kn_gguf_tensor_release(file, tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_gguf *file;
    if (kn_gguf_parse("fuzz", data, size, &file) != KNNLM_OK) return 0;
    for (size_t i = 0; i < kn_gguf_key_count(file); i++) read_key(file, kn_gguf_key_at(file, i));
    for (size_t i = 0; i < kn_gguf_tensor_count(file); i++) read_tensor(file, kn_gguf_tensor_at(file, i));
    kn_gguf_close(file);
    return 0;
}
