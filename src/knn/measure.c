// Measures the neighbours of a row.
#include "knn/measure.h"

#include <math.h>

static float farthest(const kn_neighborhood *n) {
    return kn_math_kernels(KNNLM_PRECISION_F32)->max(n->distances, n->count);
}

static void sum_all(const kn_measure *m, const kn_neighborhood *n, double *sums) {
    for (size_t i = 0; i < m->count; i++) sums[i] = kn_neighborhood_sum(n, m->temperatures[i]);
}

void kn_measure_logprobs(const kn_measure *m, const kn_neighborhood *n, int32_t target, double *out) {
    double sums[KN_GATE_EXPERTS];
    sum_all(m, n, sums);
    kn_neighborhood_logprobs(n, m->temperatures, sums, m->count, target, out);
}

void kn_measure_take(const kn_measure *m, const kn_row_neighbors *found, int32_t target, kn_row_facts *out) {
    const kn_neighborhood *n = &found->near;
    double sums[KN_GATE_EXPERTS], agreement;
    *out = (kn_row_facts){.entropy = found->entropy,
                          .nearest = NAN,
                          .farthest = NAN,
                          .agreement = NAN,
                          .neighbors = (uint32_t)n->count,
                          .begins = found->begins};
    sum_all(m, n, sums);
    kn_neighborhood_logprobs(n, m->temperatures, sums, m->count, target, out->logprobs);
    if (!n->count) return;
    out->nearest = n->distances[n->nearest];
    if (!m->gated) return;
    kn_neighborhood_logprobs(n, m->temperatures, sums, 1, n->values[n->nearest], &agreement);
    out->farthest = farthest(n);
    out->agreement = exp(agreement);
}
