// The public functions that read and write NumPy's arrays.
#include "api/api.h"
#include "store/npy.h"
#include "text/input.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- reading

static knnlm_status copy_rows(const char *path, const kn_npy *npy, float **data, size_t *rows,
                              size_t *columns) {
    bool floats = npy->type == KN_NPY_F16 || npy->type == KN_NPY_F32;
    if (!floats || npy->n_dims != 2)
        return kn_fail(KNNLM_ENOTSUP, "%s: %u dimensions of %s: vectors are (n, d) of float16 or float32",
                       path, npy->n_dims, kn_npy_type_name(npy->type));
    *data = kn_alloc(npy->count, sizeof **data);
    if (!*data) return KNNLM_ENOMEM;
    kn_npy_floats(npy, 0, npy->count, *data);
    *rows = npy->dims[0];
    *columns = npy->dims[1];
    return KNNLM_OK;
}

// What cannot be mapped is read whole.
static knnlm_status read_standard(const kn_progress *progress, float **data, size_t *rows, size_t *columns) {
    static const char name[] = "<stdin>";
    kn_buffer bytes = {0};
    const char *trouble;
    kn_stream *input;
    kn_npy npy;
    KN_TRY(kn_input_open("-", progress, &trouble, &input));
    knnlm_status status = kn_stream_read_all(input, SIZE_MAX, &bytes);
    kn_stream_close(input);
    if (status == KNNLM_OK) status = kn_npy_parse(name, (const uint8_t *)bytes.data, bytes.size, &npy);
    if (status == KNNLM_OK) status = copy_rows(name, &npy, data, rows, columns);
    free(bytes.data);
    return status;
}

knnlm_status knnlm_array_read(const char *path, const knnlm_progress *progress, float **data, size_t *rows,
                              size_t *columns) {
    kn_npy npy;
    *data = NULL;
    if (strcmp(path, "-") == 0) return read_standard(progress, data, rows, columns);
    KN_TRY(kn_npy_open(path, &npy));
    knnlm_status status = copy_rows(path, &npy, data, rows, columns);
    kn_npy_close(&npy);
    return status;
}

// ---------------------------------------------------------------- writing

static const kn_npy_type types[] = {
    [KNNLM_ARRAY_F16] = KN_NPY_F16,   [KNNLM_ARRAY_F32] = KN_NPY_F32,   [KNNLM_ARRAY_INT64] = KN_NPY_I64,
    [KNNLM_ARRAY_INT32] = KN_NPY_I32, [KNNLM_ARRAY_INT16] = KN_NPY_I16, [KNNLM_ARRAY_UINT16] = KN_NPY_U16,
};

knnlm_status knnlm_array_write(const char *path, knnlm_array_type type, const void *data, size_t rows,
                               size_t columns) {
    const size_t dims[] = {rows, columns};
    kn_npy_writer *w;
    if (type <= KNNLM_ARRAY_ANY || type > KNNLM_ARRAY_UINT16)
        return kn_fail(KNNLM_EINVAL, "%s: no type of array is %d", path, (int)type);
    KN_TRY(kn_npy_create(path, types[type], 2, dims, &w));
    knnlm_status status = kn_npy_put(w, data, rows * columns);
    if (status == KNNLM_OK) return kn_npy_commit(w);
    kn_npy_abort(w);
    return status;
}
