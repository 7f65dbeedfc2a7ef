// Neighbours and p_LM to p, one token at a time.
#include "knn/predict.h"

#include "knn/mixture_parts.h"

#include <math.h>

static double lambda_of(const kn_mixture_part *p, const kn_row_neighbors *f, double entropy) {
    const kn_neighborhood *n = &f->near;
    kn_lambda_facts facts = {.neighbors = n->count,
                             .nearest = n->count ? (double)n->distances[0] : NAN,
                             .entropy = entropy,
                             .knn_entropy = f->entropy,
                             .begins = f->begins};
    return kn_lambda(&p->rule, &facts);
}

void kn_predict_one(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double lm,
                    double entropy, double cache, kn_prediction *out) {
    size_t count = m->info.count;
    double parts[KN_STORES_MAX + 1];
    for (size_t i = 0; i < count; i++) {
        parts[i] = out->knn[i] =
            kn_neighborhood_logprob(&found[i].near, m->info.stores[i].temperature, target);
        out->lambdas[i] = lambda_of(&m->parts[i], &found[i], entropy);
    }
    parts[count] = cache;
    out->lambdas[count] = isnan(cache) ? 0 : m->info.cache.lambda;
    out->p = kn_mix(lm, parts, out->lambdas, count + 1);
}

double kn_prediction_lambda(const kn_mixture *m, const kn_prediction *x) {
    double sum = 0;
    for (size_t i = 0; i < m->info.count; i++) sum += x->lambdas[i];
    return sum;
}

double kn_prediction_part(const kn_mixture *m, const kn_prediction *x, size_t store) {
    double sum = kn_prediction_lambda(m, x);
    return sum > 0 ? x->lambdas[store] / sum : 1 / (double)m->info.count;
}

double kn_prediction_knn(const kn_mixture *m, const kn_prediction *x) {
    double parts[KN_STORES_MAX];
    for (size_t i = 0; i < m->info.count; i++) parts[i] = kn_prediction_part(m, x, i);
    return m->info.count ? kn_mix(-INFINITY, x->knn, parts, m->info.count) : NAN;
}

double kn_nearest(const kn_mixture *m, const kn_row_neighbors *found) {
    double nearest = NAN;
    for (size_t i = 0; i < m->info.count; i++)
        if (found[i].near.count) nearest = fmin(nearest, (double)found[i].near.distances[0]);
    return nearest;
}
