// Neighbours and p_LM to p, one token at a time.
#include "knn/predict.h"

#include "knn/mixture_parts.h"

#include <math.h>

kn_measure kn_predict_measure(const kn_mixture *m, size_t store) {
    double temperature = m->info.stores[store].temperature;
    kn_measure out = {{temperature}, 1, m->info.stores[store].gated};
    if (!out.gated) return out;
    out.count = KN_GATE_EXPERTS;
    for (size_t o = 0; o < KN_GATE_EXPERTS; o++) out.temperatures[o] = kn_gate_temperature(temperature, o);
    return out;
}

static double lambda_of(const kn_mixture_part *p, const kn_row_facts *f, double entropy) {
    kn_lambda_facts facts = {.neighbors = f->neighbors,
                             .nearest = (double)f->nearest,
                             .entropy = entropy,
                             .knn_entropy = f->entropy,
                             .begins = f->begins};
    return kn_lambda(&p->rule, &facts);
}

static void tell_gate(size_t store, const kn_row_facts *f, double entropy, kn_prediction *out) {
    for (size_t o = 0; o < KN_GATE_EXPERTS; o++) out->experts[store][o] = f->logprobs[o];
    out->found[store] = f->neighbors > 0;
    if (!f->neighbors) return;
    out->features[store] = (kn_gate_features){.nearest = (double)f->nearest,
                                              .farthest = (double)f->farthest,
                                              .agreement = f->agreement,
                                              .entropy = entropy,
                                              .begins = f->begins};
}

void kn_predict_part(const kn_mixture *m, size_t store, const kn_row_facts *facts, double entropy,
                     kn_prediction *out) {
    if (m->info.stores[store].gated) {
        tell_gate(store, facts, entropy, out);
        return;
    }
    out->knn[store] = facts->logprobs[0];
    out->lambdas[store] = lambda_of(&m->parts[store], facts, entropy);
}

static void predict_from(const kn_mixture *m, size_t store, const kn_row_neighbors *found, int32_t target,
                         double entropy, kn_prediction *out) {
    kn_measure measure = kn_predict_measure(m, store);
    kn_row_facts facts;
    kn_measure_take(&measure, found, target, &facts);
    kn_predict_part(m, store, &facts, entropy, out);
}

void kn_predict_parts(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double entropy,
                      kn_prediction *out) {
    for (size_t i = 0; i < m->info.count; i++) predict_from(m, i, &found[i], target, entropy, out);
}

// ---------------------------------------------------------------- gates

// The part of one side of a switch, by its log odds.
static double trust(double odds) {
    return 1 / (1 + exp(-odds));
}

// What the gates open to: the weights of the stores that have one share what the others and the cache leave.
static void open_gates(const kn_mixture *m, double cache_lambda, const kn_history *history,
                       kn_prediction *out) {
    double shares[KN_STORES_MAX], all = 1, left = 1 - cache_lambda;
    for (size_t s = 0; s < m->info.count; s++) {
        double z[KN_GATE_EXPERTS];
        if (!m->info.stores[s].gated) left -= out->lambdas[s];
        out->opened[s] = shares[s] = 0;
        if (!m->info.stores[s].gated || !out->found[s]) continue;
        kn_gate_open(&m->parts[s].gate, &out->features[s], &history->pasts[s], z);
        out->opened[s] = exp(z[0]) + exp(z[1]);
        out->sharp[s] = exp(z[0]) / out->opened[s];
        shares[s] = out->opened[s] * (m->info.count > 1 ? trust(history->odds_alone[s]) : 1);
        all += shares[s];
    }
    for (size_t s = 0; s < m->info.count; s++) {
        if (!m->info.stores[s].gated) continue;
        if (!out->found[s]) out->sharp[s] = 0.5;
        out->lambdas[s] = fmax(0, left) * shares[s] / all;
        out->knn[s] =
            log(out->sharp[s] * exp(out->experts[s][0]) + (1 - out->sharp[s]) * exp(out->experts[s][1]));
    }
}

static void learn(const kn_mixture *m, double lm, const kn_prediction *x, kn_history *history) {
    for (size_t s = 0; s < m->info.count; s++) {
        if (!m->info.stores[s].gated || !x->found[s]) continue;
        double lambda = x->opened[s] / (1 + x->opened[s]);
        history->odds_alone[s] += kn_mix(lm, &x->knn[s], &lambda, 1) - lm;
        const double knn[KN_GATE_EXPERTS] = {exp(x->experts[s][0]), exp(x->experts[s][1])};
        kn_gate_learn(&history->pasts[s], knn, exp(lm));
    }
}

static double mix(const kn_mixture *m, double lm, double cache, const kn_prediction *x, double part) {
    size_t count = m->info.count;
    double parts[KN_STORES_MAX + 1], weights[KN_STORES_MAX + 1];
    for (size_t i = 0; i < count; i++) parts[i] = x->knn[i];
    for (size_t i = 0; i < count; i++)
        weights[i] = m->info.stores[i].gated ? part * x->lambdas[i] : x->lambdas[i];
    parts[count] = cache;
    weights[count] = x->lambdas[count];
    return kn_mix(lm, parts, weights, count + 1);
}

void kn_predict_join(const kn_mixture *m, int32_t target, double lm, double cache, kn_history *history,
                     kn_prediction *out) {
    static const kn_history nothing = {0};
    size_t count = m->info.count;
    out->lambdas[count] = isnan(cache) ? 0 : m->info.cache.lambda;
    if (!m->info.gated) {
        out->p = mix(m, lm, cache, out, 1);
        return;
    }
    open_gates(m, out->lambdas[count], history ? history : &nothing, out);
    double part = trust(history ? history->odds : 0);
    if (history && target >= 0 && isfinite(lm)) { // what is impossible by the model says nothing
        double with = mix(m, lm, cache, out, 1), without = mix(m, lm, cache, out, 0);
        // Fixed weights may leave model and gates nothing: what is impossible by those says nothing either.
        if (isfinite(with) && isfinite(without)) history->odds += with - without;
        learn(m, lm, out, history);
    }
    for (size_t s = 0; s < count; s++)
        if (m->info.stores[s].gated) out->lambdas[s] *= part;
    out->p = mix(m, lm, cache, out, 1);
}

void kn_history_learn(const kn_mixture *m, const kn_row_neighbors *found, int32_t token, double lm,
                      kn_prediction *x, kn_history *history) {
    if (!m->info.gated) return;
    for (size_t s = 0; s < m->info.count; s++)
        if (m->info.stores[s].gated) {
            kn_measure measure = kn_predict_measure(m, s);
            kn_measure_logprobs(&measure, &found[s].near, token, x->experts[s]);
        }
    kn_predict_join(m, token, lm, NAN, history, x);
}

void kn_predict_one(const kn_mixture *m, const kn_row_neighbors *found, int32_t target, double lm,
                    double entropy, double cache, kn_history *history, kn_prediction *out) {
    kn_predict_parts(m, found, target, entropy, out);
    kn_predict_join(m, target, lm, cache, history, out);
}

void kn_prediction_shares(const kn_mixture *m, size_t store, const kn_prediction *x,
                          const kn_neighborhood *near, double *shares, double *scratch) {
    double temperature = m->info.stores[store].temperature;
    if (!m->info.stores[store].gated) {
        kn_neighborhood_shares(near, temperature, shares);
        return;
    }
    kn_neighborhood_shares(near, kn_gate_temperature(temperature, 0), shares);
    kn_neighborhood_shares(near, kn_gate_temperature(temperature, 1), scratch);
    for (size_t i = 0; i < near->count; i++)
        shares[i] = x->sharp[store] * shares[i] + (1 - x->sharp[store]) * scratch[i];
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
