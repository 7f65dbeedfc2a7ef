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

void kn_predict_part(const kn_mixture *m, size_t store, const kn_row_neighbors *found, int32_t target,
                     double entropy, kn_prediction *out) {
    out->knn[store] = kn_neighborhood_logprob(&found->near, m->info.stores[store].temperature, target);
    out->lambdas[store] = lambda_of(&m->parts[store], found, entropy);
}

void kn_predict_join(const kn_mixture *m, double lm, double cache, kn_prediction *out) {
    size_t count = m->info.count;
    double parts[KN_STORES_MAX + 1];
    for (size_t i = 0; i < count; i++) parts[i] = out->knn[i];
    parts[count] = cache;
    out->lambdas[count] = isnan(cache) ? 0 : m->info.cache.lambda;
    out->p = kn_mix(lm, parts, out->lambdas, count + 1);
}

void kn_predict_one(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double lm,
                    double entropy, double cache, kn_prediction *out) {
    for (size_t i = 0; i < m->info.count; i++) kn_predict_part(m, i, &found[i], target, entropy, out);
    kn_predict_join(m, lm, cache, out);
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
