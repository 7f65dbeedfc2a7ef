// Built without llama.cpp: what stands in for its engine.
#include "lm/engine.h"

const char *kn_llama_release(void) {
    return NULL;
}

const char *kn_llama_folder(void) {
    return NULL;
}

knnlm_status kn_llama_open(const char *path, const kn_lm_options *options, kn_lm **out) {
    (void)options;
    (void)out;
    return kn_fail(
        KNNLM_ENOTSUP,
        "%s: needs llama.cpp, and this was built without it: run scripts/get-llama, then build again", path);
}
