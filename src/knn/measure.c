// Measures the neighbours of a row.
#include "knn/measure.h"

#include <math.h>

static float farthest(const kn_neighborhood *n) {
    float max = n->distances[n->nearest];
    for (size_t i = 0; i < n->count; i++) max = fmaxf(max, n->distances[i]);
    return max;
}

void kn_measure_take(const kn_measure *m, const kn_row_neighbors *found, int32_t target, kn_row_facts *out) {
    const kn_neighborhood *n = &found->near;
    *out = (kn_row_facts){.entropy = found->entropy,
                          .nearest = NAN,
                          .farthest = NAN,
                          .agreement = NAN,
                          .neighbors = (uint32_t)n->count,
                          .begins = found->begins};
    for (size_t i = 0; i < m->count; i++)
        out->logprobs[i] = kn_neighborhood_logprob(n, m->temperatures[i], target);
    if (!n->count) return;
    out->nearest = n->distances[n->nearest];
    if (!m->gated) return;
    out->farthest = farthest(n);
    out->agreement = exp(kn_neighborhood_logprob(n, m->temperatures[0], n->values[n->nearest]));
}
