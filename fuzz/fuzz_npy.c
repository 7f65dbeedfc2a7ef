// Any bytes as an .npy file: what parses has exactly the elements that its shape says.
#include "store/npy.h"

#include <stdlib.h>

enum { SOME = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_npy npy;
    int64_t integers[SOME];
    float floats[SOME];
    if (kn_npy_parse("fuzz", data, size, &npy) != KNNLM_OK) return 0;
    size_t n = kn_min(npy.count, SOME), elements = 1;
    for (uint32_t i = 0; i < KN_NPY_DIMS_MAX; i++) elements *= npy.dims[i];
    if (elements != npy.count || npy.size != npy.count * kn_npy_type_size(npy.type) || npy.size > size)
        abort();
    bool real = npy.type == KN_NPY_F16 || npy.type == KN_NPY_F32;
    if (real) kn_npy_floats(&npy, npy.count - n, n, floats);
    if (!real) kn_npy_integers(&npy, npy.count - n, n, integers);
    kn_npy_close(&npy);
    return 0;
}
