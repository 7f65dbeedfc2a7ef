// The coarse quantizer: which lists is a vector nearest to.
//
// Distances to all centroids come from a matrix product, in bf16 where the CPU multiplies that natively. Its
// rounding is bounded for every vector and every 32 centroids, and the few centroids that the bound leaves in
// doubt are measured again by kn_quantizer_measure. So the answer is that of measuring them all: it depends
// on neither threads, batch nor instruction set. A vector that is not finite, or too large to be squared, is
// infinitely far from all lists.
#ifndef KN_INDEX_QUANTIZER_H
#define KN_INDEX_QUANTIZER_H

#include "base/memory.h"

typedef enum kn_quantizer_distance {
    KN_QUANTIZER_L2, // squared distance, smallest first
    KN_QUANTIZER_IP, // inner product, largest first; "distances" are then inner products
} kn_quantizer_distance;

// Immutable; any number of threads may ask.
typedef struct kn_quantizer kn_quantizer;

// `centroids` (count, d) are copied. KNNLM_EINVAL: no centroids, no dimensions, or more than 2^31 lists;
// KNNLM_EDATA: a centroid that is not finite; KNNLM_ENOMEM.
knnlm_status kn_quantizer_make(const float *centroids, size_t count, size_t d, kn_quantizer_distance distance,
                               kn_quantizer **out);
void kn_quantizer_free(kn_quantizer *q); // NULL is allowed

const float *kn_quantizer_centroids(const kn_quantizer *q); // (count, d)
size_t kn_quantizer_count(const kn_quantizer *q);
size_t kn_quantizer_dimension(const kn_quantizer *q);

// The distance that the others rank by, summed in f32 in 16 lanes in a fixed order: to within (d/16 + 8)
// 2^-24 of itself (L2), or of |x| |c| (inner product).
float kn_quantizer_measure(const kn_quantizer *q, const float *x, size_t list);

// Nearest list of each vector of x (n, d), and its distance (NULL: not wanted, which is quicker). Ties: the
// lower number. Spreads over the threads; memory does not grow with n. KNNLM_ENOMEM.
knnlm_status kn_quantizer_assign(const kn_quantizer *q, const float *x, size_t n, uint32_t *lists,
                                 float *distances);

// The `probes` nearest lists of each vector, nearest first (ties: lower number): lists (n, probes) and
// distances (NULL: not wanted). KNNLM_EINVAL: no probes, or more than there are lists; KNNLM_ENOMEM.
knnlm_status kn_quantizer_probe(const kn_quantizer *q, const float *x, size_t n, size_t probes,
                                uint32_t *lists, float *distances);

// The same for one vector, in the calling thread, without allocating: `scratch` has
// kn_quantizer_scratch_bytes, aligned to 64. Reads the packed centroids once (2 or 4 bytes an element).
size_t kn_quantizer_scratch_bytes(const kn_quantizer *q);
knnlm_status kn_quantizer_probe_one(const kn_quantizer *q, const float *x, size_t probes, uint32_t *lists,
                                    float *distances, void *scratch);

#endif
