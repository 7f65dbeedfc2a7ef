// The public functions that tell what this library is, and the names of its settings.
#include "api/api.h"
#include "base/threads.h"

#include <stdlib.h>

const char *knnlm_kernels(size_t number) {
    size_t count;
    const kn_kernels *const *kernels = kn_math_available(&count);
    return number < count ? kernels[number]->name : NULL;
}

const char *knnlm_llama_release(void) {
    return kn_llama_release();
}

const char *knnlm_llama_folder(void) {
    return kn_llama_folder();
}

void knnlm_free(void *memory) {
    free(memory);
}

knnlm_status knnlm_threads_set(int threads) {
    return kn_threads_set(threads);
}

const char *knnlm_keys_name(knnlm_keys keys) {
    return (unsigned)keys < KN_KEY_TYPES ? kn_key_type_names[keys] : "?";
}

const char *knnlm_distance_name(knnlm_distance distance) {
    return (unsigned)distance < KN_DISTANCES ? kn_distance_names[distance] : "?";
}

const char *knnlm_split_name(knnlm_split split) {
    return (unsigned)split <= KNNLM_SPLIT_JSONL ? kn_split_names[split] : "?";
}
