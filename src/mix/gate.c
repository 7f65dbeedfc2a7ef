// Features to weights, and what the neighbours of a text were worth.
#include "mix/gate.h"

#include <math.h>

// What features are usually like, over stores and models (experiments/gate): beyond three times the scale
// nothing more is believed of them.
static const double usual[KN_GATE_FEATURES] = {0, 4, -1, 0.8, 0, 0.2, 0};
static const double scale[KN_GATE_FEATURES] = {0.6, 2, 1, 0.4, 1.2, 0.4, 2};
#define BEYOND 3
#define NEAREST_MIN 1e-6   // of distances whose logarithm counts
#define AGREEMENT_MIN 1e-4 // likewise
#define WORTH_MAX 3        // nats that one token may say
#define PART 0.3           // the weight by which the lasting worth is judged
#define KNN_MIN 1e-9
static const double recent_decay = 0.9, lasting_decay = 0.98;

double kn_gate_temperature(double temperature, size_t expert) {
    return expert ? 2 * temperature : temperature / 2;
}

static double measure(double unit, double distance) {
    return unit > 0 ? scale[0] * distance / unit : log(fmax(distance, NEAREST_MIN));
}

kn_gate kn_gate_make(knnlm_distance distance, double median, double spread) {
    kn_gate g = {.unit = distance == KNNLM_DISTANCE_IP ? fmax(spread, 1e-6) : 0};
    g.centre = measure(g.unit, median);
    for (size_t i = 0; i < KN_GATE_WEIGHTS; i++) g.weights[i] = kn_gate_prior[i];
    return g;
}

static void gather(const kn_gate *g, const kn_gate_features *f, const kn_gate_past *p,
                   double features[KN_GATE_FEATURES]) {
    double nearest = measure(g->unit, f->nearest), farthest = measure(g->unit, f->farthest);
    features[0] = f->begins ? 0 : nearest - g->centre;
    features[1] = f->entropy;
    features[2] = log(fmax(f->agreement, AGREEMENT_MIN));
    features[3] = f->begins ? 1 : farthest - nearest;
    features[4] = p->recent;
    features[5] = p->lasting;
    features[6] = p->last;
    for (size_t i = 0; i < KN_GATE_FEATURES; i++)
        features[i] = fmax(-BEYOND, fmin(BEYOND, (features[i] - usual[i]) / scale[i]));
}

void kn_gate_terms(const kn_gate *g, const kn_gate_features *f, const kn_gate_past *p,
                   double terms[KN_GATE_TERMS]) {
    double features[KN_GATE_FEATURES];
    size_t n = 0;
    gather(g, f, p, features);
    terms[n++] = 1;
    for (size_t i = 0; i < KN_GATE_FEATURES; i++) terms[n++] = features[i];
    for (size_t i = 0; i < KN_GATE_FEATURES; i++)
        for (size_t j = i; j < KN_GATE_FEATURES; j++) terms[n++] = features[i] * features[j];
}

void kn_gate_open(const kn_gate *g, const kn_gate_features *f, const kn_gate_past *p,
                  double z[KN_GATE_EXPERTS]) {
    double terms[KN_GATE_TERMS];
    kn_gate_terms(g, f, p, terms);
    for (size_t o = 0; o < KN_GATE_EXPERTS; o++) {
        z[o] = 0;
        for (size_t i = 0; i < KN_GATE_TERMS; i++) z[o] += g->weights[o * KN_GATE_TERMS + i] * terms[i];
        z[o] = fmax(-KN_GATE_Z_MAX, fmin(KN_GATE_Z_MAX, z[o]));
    }
}

void kn_gate_learn(kn_gate_past *p, const double knn[KN_GATE_EXPERTS], double lm) {
    double both = (knn[0] + knn[1]) / 2, ratio = (both + KNN_MIN) / fmax(lm, 1e-300);
    double worth = fmax(-WORTH_MAX, fmin(WORTH_MAX, log(ratio)));
    double mixed = log(1 - PART + PART * fmin(ratio, 1e9));
    p->recent = recent_decay * p->recent + (1 - recent_decay) * worth;
    p->lasting = lasting_decay * p->lasting + (1 - lasting_decay) * mixed;
    p->last = worth;
}
