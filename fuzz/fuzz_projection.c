// Any bytes as a projection: one that opens and is small projects a vector.
#include "base/threads.h"
#include "index/projection.h"
#include "memory_file.h"

enum { WIDTH_MAX = 4096 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return kn_threads_set(1) == KNNLM_OK ? 0 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static float in[WIDTH_MAX], out[WIDTH_MAX];
    kn_pca pca;
    memory_file file = memory_file_open(data, size);
    if (kn_projection_open(file.path, &pca) == KNNLM_OK) {
        for (size_t i = 0; i < WIDTH_MAX; i++) in[i] = (float)i;
        if (pca.in <= WIDTH_MAX && pca.out <= WIDTH_MAX) kn_pca_apply(&pca, in, 1, out);
        kn_pca_free(&pca);
    }
    memory_file_close(&file);
    return 0;
}
