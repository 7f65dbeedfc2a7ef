// What predictions need to know of a row's neighbours: few numbers, which whoever has the neighbours can take
// of them, and send.
#ifndef KN_KNN_MEASURE_H
#define KN_KNN_MEASURE_H

#include "knn/datastore.h"
#include "mix/gate.h"

// What is measured of the neighbours in one store of a mixture.
struct kn_measure {
    double temperatures[KN_GATE_EXPERTS]; // of p_kNN
    uint32_t count;                       // of them
    uint32_t gated; // as gates need it: the farthest, and the agreement with the nearest
};

struct kn_row_facts {
    double logprobs[KN_GATE_EXPERTS]; // log p_kNN of the target, at each temperature
    double agreement;                 // p_kNN of the nearest's value at the first temperature
    double entropy;                   // of p_kNN, where it was searched for; else NAN
    float nearest, farthest;          // distances
    uint32_t neighbors;
    uint32_t begins; // the nearest begins a document
};

// log p_kNN of the target at each of the measure's temperatures: out (KN_GATE_EXPERTS).
void kn_measure_logprobs(const kn_measure *measure, const kn_neighborhood *near, int32_t target, double *out);
void kn_measure_take(const kn_measure *measure, const kn_row_neighbors *found, int32_t target,
                     kn_row_facts *out);

#endif
