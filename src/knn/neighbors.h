// Neighbours as they are shown: the nearest few of all stores, with their share and their origin.
#ifndef KN_KNN_NEIGHBORS_H
#define KN_KNN_NEIGHBORS_H

#include "knn/predict.h"

typedef struct kn_neighbor_detail {
    size_t store;
    uint64_t id;
    int32_t value;
    double share; // of p_kNN
    double distance;
    kn_origin origin;
} kn_neighbor_detail;

// Up to `max` neighbours of one row, those of the largest share first; *count of them in `out` (most).
// `around` tokens of text on both sides. KNNLM_ENOMEM, or the store is damaged.
knnlm_status kn_neighbor_details_find(const kn_mixture *m, const kn_row_neighbors *found,
                                      const kn_prediction *prediction, size_t max, size_t around,
                                      kn_neighbor_detail *out, size_t *count);
void kn_neighbor_details_free(kn_neighbor_detail *shown, size_t count);

#endif
