// Points in fewer dimensions: those in which a sample of them spreads most, found by subspace iteration. Its
// products may be rough (bf16) and its steps few: any subspace near the best one serves.
#include "index/kmeans_parts.h"

#include "base/threads.h"
#include "math/math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 8192, STEPS = 3, BATCH = 4096 };

typedef struct subspace {
    const kn_kernels *k;
    size_t d, p, rows; // rows of the sample
    float *basis;      // (p, d), orthonormal
    float *sample;     // (rows, d), its mean taken away
    float *seen;       // (rows, p): sample . basis
    void *lhs;         // the sample packed by rows
    void *lhs_t;       // `seen` packed by columns
    kn_rhs rhs, rhs_t; // basis (d deep), sample (rows deep)
} subspace;

static knnlm_status open(subspace *s) {
    s->basis = kn_alloc_aligned(s->p, s->d * sizeof *s->basis);
    s->sample = kn_alloc_aligned(s->rows, s->d * sizeof *s->sample);
    s->seen = kn_alloc_aligned(s->rows, s->p * sizeof *s->seen);
    s->lhs = kn_alloc_aligned(1, kn_lhs_bytes(s->k, kn_most(s->rows, BATCH), s->d));
    s->lhs_t = kn_alloc_aligned(1, kn_lhs_bytes(s->k, s->p, s->rows));
    KN_TRY(kn_rhs_init(s->k, &s->rhs, s->p, s->d));
    KN_TRY(kn_rhs_init(s->k, &s->rhs_t, s->d, s->rows));
    return s->basis && s->sample && s->seen && s->lhs && s->lhs_t ? KNNLM_OK : KNNLM_ENOMEM;
}

static void close(subspace *s) {
    kn_free_aligned(s->basis);
    kn_free_aligned(s->sample);
    kn_free_aligned(s->seen);
    kn_free_aligned(s->lhs);
    kn_free_aligned(s->lhs_t);
    kn_rhs_free(&s->rhs);
    kn_rhs_free(&s->rhs_t);
}

static knnlm_status take_sample(subspace *s, const float *x, size_t n, kn_random *random) {
    uint32_t *numbers = kn_alloc(s->rows, sizeof *numbers);
    float *mean = kn_alloc(s->d, sizeof *mean);
    knnlm_status status = numbers && mean ? kn_kmeans_draw(random, n, s->rows, numbers) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_kmeans_gather(x, s->d, numbers, s->rows, s->sample);
        kn_column_sums(s->k, mean, s->sample, s->d, s->rows, s->d);
        for (size_t r = 0; r < s->rows; r++)
            s->k->axpy(s->sample + r * s->d, -1 / (float)s->rows, mean, s->d);
    }
    free(numbers);
    free(mean);
    return status;
}

// Gram and Schmidt. A direction that the earlier ones span already (points that fill fewer than p dimensions)
// is replaced by zero: it sees nothing.
static void make_orthonormal(subspace *s) {
    for (size_t i = 0; i < s->p; i++) {
        float *row = s->basis + i * s->d;
        double before = s->k->sum_squares(row, s->d);
        for (int twice = 0; twice < 2; twice++)
            for (size_t j = 0; j < i; j++) {
                const float *other = s->basis + j * s->d;
                s->k->axpy(row, -s->k->dot(row, other, s->d), other, s->d);
            }
        double after = s->k->sum_squares(row, s->d);
        s->k->scale(row, after > before * 1e-10 ? (float)(1 / sqrt(after)) : 0, s->d);
    }
}

// basis = the sample's covariance times the basis, made orthonormal.
static void step(subspace *s) {
    kn_emit_matrix seen = {s->k, s->seen, s->p, NULL}, basis = {s->k, s->basis, s->d, NULL};
    kn_rhs_pack(s->k, &s->rhs, s->basis, s->d, false);
    kn_multiply(s->k, s->lhs, s->rows, &s->rhs, kn_emit_set, &seen);
    kn_lhs_pack(s->k, s->lhs_t, s->seen, s->p, s->p, s->rows, true);
    kn_multiply(s->k, s->lhs_t, s->p, &s->rhs_t, kn_emit_set, &basis);
    make_orthonormal(s);
}

static void find_basis(subspace *s, kn_random *random) {
    for (size_t i = 0; i < s->p * s->d; i++) s->basis[i] = (float)kn_random_normal(random);
    make_orthonormal(s);
    kn_lhs_pack(s->k, s->lhs, s->sample, s->d, s->rows, s->d, false);
    kn_rhs_pack(s->k, &s->rhs_t, s->sample, s->d, true);
    for (int i = 0; i < STEPS; i++) step(s);
}

static void apply_basis(subspace *s, const float *x, size_t n, float *y) {
    kn_rhs_pack(s->k, &s->rhs, s->basis, s->d, false);
    for (size_t done = 0; done < n; done += BATCH) {
        size_t rows = kn_least(BATCH, n - done);
        kn_emit_matrix out = {s->k, y + done * s->p, s->p, NULL};
        kn_lhs_pack(s->k, s->lhs, x + done * s->d, s->d, rows, s->d, false);
        kn_multiply(s->k, s->lhs, rows, &s->rhs, kn_emit_set, &out);
    }
}

knnlm_status kn_kmeans_project(const float *x, size_t n, size_t d, size_t p, kn_random *random, float *y) {
    subspace s = {.k = kn_math_kernels(KN_PRECISION_AUTO), .d = d, .p = p, .rows = kn_least(SAMPLE, n)};
    knnlm_status status = open(&s);
    if (status == KNNLM_OK) status = take_sample(&s, x, n, random);
    if (status == KNNLM_OK) {
        find_basis(&s, random);
        apply_basis(&s, x, n, y);
    }
    close(&s);
    return status;
}
