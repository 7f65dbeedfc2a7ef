// Saves, reads and checks projections of keys (PCA).
#include "index/projection.h"

#include "base/gguf.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char TYPE[] = "knnlm projection";
static const char MEAN[] = "projection.mean", COMPONENTS[] = "projection.components",
                  VARIANCES[] = "projection.variances", TOTAL[] = "projection.total";

// ---------------------------------------------------------------- saving

static knnlm_status put(kn_gguf_writer *w, const kn_pca *p) {
    int64_t dims[2] = {(int64_t)p->in, (int64_t)p->out};
    KN_TRY(kn_gguf_put_string(w, "general.type", TYPE));
    KN_TRY(kn_gguf_put_f64(w, TOTAL, p->total));
    KN_TRY(kn_gguf_put_tensor(w, MEAN, KN_GGUF_F32, 1, dims));
    KN_TRY(kn_gguf_put_tensor(w, COMPONENTS, KN_GGUF_F32, 2, dims));
    KN_TRY(kn_gguf_put_tensor(w, VARIANCES, KN_GGUF_F32, 1, dims + 1));
    KN_TRY(kn_gguf_put_data_f32(w, p->mean, p->in));
    KN_TRY(kn_gguf_put_data_f32(w, p->components, p->in * p->out));
    return kn_gguf_put_data_f32(w, p->variances, p->out);
}

knnlm_status kn_projection_save(const char *path, const kn_pca *p) {
    kn_gguf_writer *w;
    KN_TRY(kn_gguf_writer_open(path, &w));
    knnlm_status status = put(w, p);
    if (status == KNNLM_OK) return kn_gguf_writer_commit(w);
    kn_gguf_writer_abort(w);
    return status;
}

// ---------------------------------------------------------------- reading

static knnlm_status read_keys(const kn_gguf *file, double *total) {
    const char *type;
    bool found;
    KN_TRY(kn_gguf_get_string(file, "general.type", &type, &found));
    if (!found || strcmp(type, TYPE) != 0)
        return kn_fail(KNNLM_EDATA, "%s: no projection: general.type is not \"%s\"", kn_gguf_path(file),
                       TYPE);
    KN_TRY(kn_gguf_get_f64(file, TOTAL, total, &found));
    if (!found) return kn_fail(KNNLM_EDATA, "%s: no key \"%s\"", kn_gguf_path(file), TOTAL);
    return KNNLM_OK;
}

static knnlm_status find_tensor(const kn_gguf *file, const char *name, const kn_gguf_tensor **out) {
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, name);
    if (!t) return kn_fail(KNNLM_EDATA, "%s: no tensor \"%s\"", kn_gguf_path(file), name);
    if (t->type != KN_GGUF_F32)
        return kn_fail(KNNLM_EDATA, "%s: tensor \"%s\" is of type %d, not f32", kn_gguf_path(file), name,
                       (int)t->type);
    if (t->dims[2] != 1 || t->dims[3] != 1)
        return kn_fail(KNNLM_EDATA, "%s: tensor \"%s\" has more than two dimensions", kn_gguf_path(file),
                       name);
    *out = t;
    return KNNLM_OK;
}

// A tensor of (rows, columns) into `out`.
static knnlm_status read_tensor(const kn_gguf *file, const char *name, size_t rows, size_t columns,
                                float *out) {
    const kn_gguf_tensor *t;
    KN_TRY(find_tensor(file, name, &t));
    if (t->dims[1] != (int64_t)rows || t->dims[0] != (int64_t)columns)
        return kn_fail(KNNLM_EDATA, "%s: tensor \"%s\" is %lld x %lld, the components ask for %zu x %zu",
                       kn_gguf_path(file), name, (long long)t->dims[1], (long long)t->dims[0], rows, columns);
    KN_TRY(kn_gguf_tensor_f32(t, 0, rows * columns, out));
    for (size_t i = 0; i < rows * columns; i++)
        if (!isfinite(out[i]))
            return kn_fail(KNNLM_EDATA, "%s: tensor \"%s\" is not finite at (%zu, %zu)", kn_gguf_path(file),
                           name, i / columns, i % columns);
    return KNNLM_OK;
}

static knnlm_status make_room(const kn_gguf *file, kn_pca *p) {
    const kn_gguf_tensor *t;
    KN_TRY(find_tensor(file, COMPONENTS, &t));
    if (t->dims[0] < 1 || t->dims[0] > KN_PCA_MAX || t->dims[1] < 1 || t->dims[1] > t->dims[0])
        return kn_fail(KNNLM_EDATA, "%s: %lld components of %lld dimensions: none, or too many",
                       kn_gguf_path(file), (long long)t->dims[1], (long long)t->dims[0]);
    return kn_pca_init(p, (size_t)t->dims[0], (size_t)t->dims[1]);
}

// ---------------------------------------------------------------- checking

static knnlm_status check_variances(const kn_gguf *file, const kn_pca *p) {
    double sum = 0;
    for (size_t i = 0; i < p->out; i++) {
        if (p->variances[i] < 0 || (i > 0 && p->variances[i] > p->variances[i - 1]))
            return kn_fail(KNNLM_EDATA, "%s: variance %zu is negative, or larger than the one before it",
                           kn_gguf_path(file), i);
        sum += (double)p->variances[i];
    }
    // Rounding to f32 may lift the sum a little above the total.
    if (!isfinite(p->total) || sum > p->total * 1.001)
        return kn_fail(KNNLM_EDATA, "%s: a total variance of %g is less than that of the components, %g",
                       kn_gguf_path(file), p->total, sum);
    return KNNLM_OK;
}

// components . components, block by block: that should be one on the diagonal and zero elsewhere.
static void check_block(void *context, const float *block, size_t row, size_t column, size_t rows,
                        size_t columns) {
    atomic_bool *flawed = context;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            float wanted = row + r == column + c ? 1 : 0;
            if (!(fabsf(block[r * KN_CELL + c] - wanted) <= 1e-3f)) atomic_store(flawed, true);
        }
}

static knnlm_status check_components(const kn_gguf *file, const kn_pca *p) {
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_F32);
    atomic_bool flawed = false;
    void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, p->out, p->in));
    if (!lhs) return KNNLM_ENOMEM;
    kn_lhs_pack(k, lhs, p->components, p->in, p->out, p->in, false);
    kn_multiply(k, lhs, p->out, &p->packed, check_block, &flawed);
    kn_free_aligned(lhs);
    if (!flawed) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: the components are not orthonormal", kn_gguf_path(file));
}

// ---------------------------------------------------------------- opening

static knnlm_status fill(const kn_gguf *file, kn_pca *p) {
    KN_TRY(read_tensor(file, MEAN, 1, p->in, p->mean));
    KN_TRY(read_tensor(file, COMPONENTS, p->out, p->in, p->components));
    KN_TRY(read_tensor(file, VARIANCES, 1, p->out, p->variances));
    KN_TRY(check_variances(file, p));
    kn_pca_pack(p);
    return check_components(file, p);
}

static knnlm_status read_projection(const kn_gguf *file, kn_pca *out) {
    double total;
    KN_TRY(read_keys(file, &total));
    KN_TRY(make_room(file, out));
    out->total = total;
    knnlm_status status = fill(file, out);
    if (status != KNNLM_OK) kn_pca_free(out);
    return status;
}

knnlm_status kn_projection_open(const char *path, kn_pca *out) {
    kn_gguf *file;
    *out = (kn_pca){0};
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = read_projection(file, out);
    kn_gguf_close(file);
    return status;
}

// ---------------------------------------------------------------- of a store

knnlm_status kn_projection_of(const kn_store *store, kn_pca *out) {
    const kn_store_info *info = kn_store_describe(store);
    size_t states = (size_t)info->settings.model_dimension, keys = (size_t)info->settings.dimension;
    char *path;
    *out = (kn_pca){0};
    KN_TRY(kn_store_attachment(store, "projection.gguf", &path));
    if (!path && states == keys) return KNNLM_OK;
    if (!path)
        return kn_fail(KNNLM_EDATA, "%s: keys are projected, but the projection is missing", info->path);
    knnlm_status status = kn_projection_open(path, out);
    if (status == KNNLM_OK && (out->in != states || out->out != keys)) {
        status = kn_fail(KNNLM_EDATA, "%s: projects %zu to %zu dimensions, the store %zu to %zu", path,
                         out->in, out->out, states, keys);
        kn_pca_free(out);
    }
    free(path);
    return status;
}
