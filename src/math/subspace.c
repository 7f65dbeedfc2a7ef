// Subspace iteration: its products may be rough (bf16) and its steps few.
#include "math/subspace.h"

#include <math.h>

enum { STEPS = 3 };

typedef struct iteration {
    const kn_kernels *k;
    size_t d, p, rows;
    float *basis;      // (p, d), orthonormal
    float *seen;       // (rows, p): sample . basis
    void *lhs;         // the sample packed by rows
    void *lhs_t;       // `seen` packed by columns
    kn_rhs rhs, rhs_t; // basis (d deep), sample (rows deep)
} iteration;

static knnlm_status open(iteration *s) {
    s->seen = kn_alloc_aligned(s->rows, s->p * sizeof *s->seen);
    s->lhs = kn_alloc_aligned(1, kn_lhs_bytes(s->k, s->rows, s->d));
    s->lhs_t = kn_alloc_aligned(1, kn_lhs_bytes(s->k, s->p, s->rows));
    KN_TRY(kn_rhs_init(s->k, &s->rhs, s->p, s->d));
    KN_TRY(kn_rhs_init(s->k, &s->rhs_t, s->d, s->rows));
    return s->seen && s->lhs && s->lhs_t ? KNNLM_OK : KNNLM_ENOMEM;
}

static void close(iteration *s) {
    kn_free_aligned(s->seen);
    kn_free_aligned(s->lhs);
    kn_free_aligned(s->lhs_t);
    kn_rhs_free(&s->rhs);
    kn_rhs_free(&s->rhs_t);
}

// Gram and Schmidt. A direction that the earlier ones span already (points that fill fewer than p dimensions)
// is replaced by zero: it sees nothing.
static void make_orthonormal(iteration *s) {
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
static void step(iteration *s) {
    kn_emit_matrix seen = {s->k, s->seen, s->p, NULL}, basis = {s->k, s->basis, s->d, NULL};
    kn_rhs_pack(s->k, &s->rhs, s->basis, s->d, false);
    kn_multiply(s->k, s->lhs, s->rows, &s->rhs, kn_emit_set, &seen);
    kn_lhs_pack(s->k, s->lhs_t, s->seen, s->p, s->p, s->rows, true);
    kn_multiply(s->k, s->lhs_t, s->p, &s->rhs_t, kn_emit_set, &basis);
    make_orthonormal(s);
}

knnlm_status kn_subspace_find(const kn_kernels *k, const float *sample, size_t rows, size_t d, size_t p,
                              kn_random *random, float *basis) {
    iteration s = {.k = k, .d = d, .p = p, .rows = rows, .basis = basis};
    knnlm_status status = open(&s);
    if (status == KNNLM_OK) {
        for (size_t i = 0; i < p * d; i++) basis[i] = (float)kn_random_normal(random);
        make_orthonormal(&s);
        kn_lhs_pack(k, s.lhs, sample, d, rows, d, false);
        kn_rhs_pack(k, &s.rhs_t, sample, d, true);
        for (int i = 0; i < STEPS; i++) step(&s);
    }
    close(&s);
    return status;
}
