// A picture of a datastore: a sample of its keys in two dimensions, by PCA.
#ifndef KN_KNN_KEY_MAP_H
#define KN_KNN_KEY_MAP_H

#include "knn/datastore.h"

enum { KN_KEY_MAP_POINTS = 3000 }; // as many as can be told apart

typedef struct kn_key_map_point {
    uint64_t entry;
    float x, y;
} kn_key_map_point;

// Never changes: any number of threads may read it.
typedef struct kn_key_map kn_key_map;

typedef struct kn_key_map_info {
    const kn_key_map_point *points; // by entry
    size_t count;
    double variances[2], total; // along x and y; of all dimensions
} kn_key_map_info;

// Of entries that may be found, evenly spaced: the same store gives the same map. What is damaged is left
// out. KNNLM_ENOTSUP: it has no keys, or keys of more than KN_KEY_MAP_DIMENSIONS; KNNLM_ENOMEM.
enum { KN_KEY_MAP_DIMENSIONS = 1024 }; // seconds of one core: the time of PCA grows with their cube
knnlm_status kn_key_map_open(const kn_datastore *datastore, kn_key_map **out);
void kn_key_map_close(kn_key_map *map); // NULL is allowed
const kn_key_map_info *kn_key_map_describe(const kn_key_map *map);
// Bytes that opening one takes at its height.
size_t kn_key_map_cost(size_t dimension);
// Where a state of the model is among the points. KNNLM_ENOMEM.
knnlm_status kn_key_map_place(const kn_key_map *map, const float *state, kn_key_map_point *out);

#endif
