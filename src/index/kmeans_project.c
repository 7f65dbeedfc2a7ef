// Points in fewer dimensions: those in which a sample of them spreads most.
#include "index/kmeans_parts.h"

#include "math/subspace.h"

#include <stdlib.h>

enum { SAMPLE = 8192, BATCH = 4096 };

// Some points, their mean taken away.
static knnlm_status take_sample(const kn_kernels *k, const float *x, size_t n, size_t d, size_t rows,
                                kn_random *random, float *sample) {
    uint32_t *numbers = kn_alloc(rows, sizeof *numbers);
    float *mean = kn_alloc(d, sizeof *mean);
    knnlm_status status = numbers && mean ? kn_kmeans_draw(random, n, rows, numbers) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_kmeans_gather(x, d, numbers, rows, sample);
        kn_column_sums(k, mean, sample, d, rows, d);
        for (size_t r = 0; r < rows; r++) k->axpy(sample + r * d, -1 / (float)rows, mean, d);
    }
    free(numbers);
    free(mean);
    return status;
}

static knnlm_status apply(const kn_kernels *k, const float *basis, size_t p, const float *x, size_t n,
                          size_t d, float *y) {
    void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, BATCH, d));
    kn_rhs rhs = {0};
    knnlm_status status = lhs ? kn_rhs_init(k, &rhs, p, d) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_rhs_pack(k, &rhs, basis, d, false);
    for (size_t done = 0; done < n && status == KNNLM_OK; done += BATCH) {
        size_t rows = kn_min(BATCH, n - done);
        kn_emit_matrix out = {k, y + done * p, p, NULL};
        kn_lhs_pack(k, lhs, x + done * d, d, rows, d, false);
        kn_multiply(k, lhs, rows, &rhs, kn_emit_set, &out);
    }
    kn_rhs_free(&rhs);
    kn_free_aligned(lhs);
    return status;
}

knnlm_status kn_kmeans_project(const float *x, size_t n, size_t d, size_t p, kn_random *random, float *y) {
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_BF16);
    size_t rows = kn_min(SAMPLE, n);
    float *basis = kn_alloc_aligned(p, d * sizeof *basis),
          *sample = kn_alloc_aligned(rows, d * sizeof *sample);
    knnlm_status status = basis && sample ? take_sample(k, x, n, d, rows, random, sample) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = kn_subspace_find(k, sample, rows, d, p, random, basis);
    if (status == KNNLM_OK) status = apply(k, basis, p, x, n, d, y);
    kn_free_aligned(basis);
    kn_free_aligned(sample);
    return status;
}
