// Distances: their forms, and their definitions.
#include "base/distance.h"

#include <math.h>

const char *const kn_distance_names[] = {"l2", "ip", "cosine", NULL};

static const kn_distance_form forms[KN_DISTANCES] = {
    [KNNLM_DISTANCE_L2] = {.norms = true},
    [KNNLM_DISTANCE_IP] = {0},
    [KNNLM_DISTANCE_COSINE] = {.unit = true, .beside = 1, .bounded = true},
};

const kn_distance_form *kn_distance_form_of(knnlm_distance distance) {
    return &forms[distance];
}

float kn_distance_of_product(const kn_distance_form *f, float product, float a, float b) {
    if (f->norms) return fmaxf(0, a + b - 2 * product);
    // The root of a * b would overflow for long vectors, and lose its digits for short ones.
    if (f->unit) product = a > 0 && b > 0 ? product / (sqrtf(a) * sqrtf(b)) : 0;
    return f->beside - product;
}

double kn_distance_exact(const kn_distance_form *f, const float *a, const float *b, size_t d) {
    double differences = 0, product = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < d; i++) {
        double difference = (double)a[i] - b[i];
        differences += difference * difference;
        product += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    if (f->norms) return differences;
    if (f->unit) product = aa > 0 && bb > 0 ? product / sqrt(aa * bb) : 0;
    return (double)f->beside - product;
}
