// Random numbers that depend on nothing but their seed and position: the same whatever the threads.
#ifndef KN_BASE_RANDOM_H
#define KN_BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

// A sequence (splitmix64: one addition and one mix a number; its state is the whole of it).
typedef struct kn_random {
    uint64_t state;
} kn_random;

static inline uint64_t kn_mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t kn_random_next(kn_random *r) {
    return kn_mix64(r->state += 0x9e3779b97f4a7c15u);
}

// Uniform in [0, n), n > 0 (bias below 2^-32 for n < 2^32).
static inline uint64_t kn_random_below(kn_random *r, uint64_t n) {
    return (uint64_t)(((unsigned __int128)kn_random_next(r) * n) >> 64);
}

// Uniform in [0, 1).
static inline double kn_random_unit(kn_random *r) {
    return (double)(kn_random_next(r) >> 11) * 0x1p-53;
}

static inline double kn_random_normal(kn_random *r) {
    double u = 1.0 - kn_random_unit(r), v = kn_random_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

#endif
