// What a mixture is made of. Not a door: only this room includes it.
#ifndef KN_KNN_MIXTURE_PARTS_H
#define KN_KNN_MIXTURE_PARTS_H

#include "knn/mixture.h"

// One store of it, beside what info.stores tells.
typedef struct kn_mixture_part {
    kn_datastore *store;
    kn_retrieve_options retrieve;
    kn_lambda_rule rule;
    kn_gate gate;      // where the store is gated
    size_t sharers;    // stores that its lambda was divided by
    bool weight_given; // it was not divided
} kn_mixture_part;

struct kn_mixture {
    kn_mixture_info info;
    kn_mixture_part parts[KN_STORES_MAX];
};

// After its settings are set: fills in what follows from them.
void kn_mixture_settle(kn_mixture *m);

// Whether the store's gate is for so many neighbours.
bool kn_mixture_gate_fits(const kn_mixture_store *store);

#endif
