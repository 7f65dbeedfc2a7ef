// What is known of each distance, in one table: to add one that products of vectors give, add a row.
//
// All of them come from the inner product of two vectors and their squared lengths:
//   l2      |a|^2 + |b|^2 - 2 a.b
//   ip      - a.b
//   cosine  1 - a.b of vectors of length 1
// Smaller is nearer in all of them.
#ifndef KN_BASE_DISTANCE_H
#define KN_BASE_DISTANCE_H

#include "knnlm.h"

#include <stdbool.h>
#include <stddef.h>

enum { KN_DISTANCES = KNNLM_DISTANCE_COSINE + 1 };

typedef struct kn_distance_form {
    bool norms;   // squared lengths are added: differences count, so rows may be measured from a centre
    bool unit;    // vectors are of length 1 first
    float beside; // added to the products
    bool bounded; // never above 2, so temperatures are far below those of the others
} kn_distance_form;

extern const char *const kn_distance_names[]; // "l2" (squared), "ip", "cosine", NULL
const kn_distance_form *kn_distance_form_of(knnlm_distance distance);

// From a product and the squared lengths of its vectors.
float kn_distance_of_product(const kn_distance_form *form, float product, float a, float b);
// By the definition, in double precision: the ground truth.
double kn_distance_exact(const kn_distance_form *form, const float *a, const float *b, size_t d);

#endif
