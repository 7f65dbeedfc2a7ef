// p_kNN from neighbours: the softmax of their negative distances, and its entropy.
#include "mix/mix.h"

#include <float.h>
#include <math.h>

// What f32 cannot hold is as far as f32 goes: the infinitely far are equally far from each other.
static double distance_of(const kn_neighborhood *n, size_t i) {
    double d = (double)n->distances[i];
    return d > FLT_MAX ? FLT_MAX : d < -FLT_MAX ? -FLT_MAX : d;
}

static double weight_of(const kn_neighborhood *n, size_t i) {
    return n->weights ? (double)n->weights[i] : 1;
}

// A neighbour beside the nearest.
static double term(const kn_neighborhood *n, double scale, size_t i) {
    return weight_of(n, i) * exp(scale * (distance_of(n, i) - distance_of(n, n->nearest)));
}

static bool all_finite(const kn_neighborhood *n) {
    bool finite = true;
    for (size_t i = 0; i < n->count; i++) finite &= fabsf(n->distances[i]) <= FLT_MAX;
    return finite;
}

// Neighbours of weight 1, which nearly all are, in the CPU's vectors; the others in double precision.
double kn_neighborhood_sum(const kn_neighborhood *n, double temperature) {
    double scale = -1 / temperature, sum = 0;
    if (n->count == 0) return 0;
    if (!n->weights && all_finite(n))
        return kn_math_kernels(KNNLM_PRECISION_F32)
            ->exp_fixed_sum(n->distances, n->count, (float)scale, n->distances[n->nearest]);
    for (size_t i = 0; i < n->count; i++) sum += term(n, scale, i);
    return sum;
}

enum { CHUNK = 1024 }; // neighbours at a time

// Those of a chunk that have the target.
typedef struct hits {
    uint32_t places[CHUNK + 16];
    size_t first, count;
} hits;

static void find(const kn_neighborhood *n, size_t first, int32_t target, hits *out) {
    out->first = first;
    out->count = kn_math_kernels(KNNLM_PRECISION_F32)
                     ->find_equal(out->places, n->values + first, kn_min(CHUNK, n->count - first), target);
}

static double nearest_of(const kn_neighborhood *n, const hits *h, double nearest) {
    for (size_t i = 0; i < h->count; i++) nearest = fmin(nearest, distance_of(n, h->first + h->places[i]));
    return nearest;
}

// Terms of weight 1 are rounded to 2^-32, so that their sum is exact, and the same in any order: there are
// fewer than 2^20 of them.
static double sum_of(const kn_neighborhood *n, const hits *h, double scale, double nearest) {
    const double whole = 0x1p20; // beside it a double has 32 bits after the point
    double sum = 0;
    for (size_t i = 0; i < h->count; i++) {
        size_t at = h->first + h->places[i];
        double one = exp(scale * (distance_of(n, at) - nearest));
        sum += n->weights ? weight_of(n, at) * one : (one + whole) - whole;
    }
    return sum;
}

// Built on the nearest that has the target: beside the nearest of all, those may be so far that they are 0.
void kn_neighborhood_logprobs(const kn_neighborhood *n, const double *temperatures, const double *sums,
                              size_t count, int32_t target, double *out) {
    double nearest = INFINITY;
    hits h; // 4 KB: not to be cleared for every token
    h.count = 0;
    for (size_t first = 0; first < n->count; first += CHUNK) {
        find(n, first, target, &h);
        nearest = nearest_of(n, &h, nearest);
    }
    for (size_t t = 0; t < count; t++) {
        double scale = -1 / temperatures[t], sum = 0;
        out[t] = -INFINITY;
        if (isinf(nearest)) continue;
        for (size_t first = 0; first < n->count; first += CHUNK) {
            if (n->count > CHUNK) find(n, first, target, &h);
            sum += sum_of(n, &h, scale, nearest);
        }
        out[t] = fmin(0, scale * (nearest - distance_of(n, n->nearest)) + log(sum) - log(sums[t]));
    }
}

double kn_neighborhood_logprob(const kn_neighborhood *n, double temperature, int32_t target) {
    double sum = kn_neighborhood_sum(n, temperature), out;
    kn_neighborhood_logprobs(n, &temperature, &sum, 1, target, &out);
    return out;
}

void kn_neighborhood_shares(const kn_neighborhood *n, double temperature, double *shares) {
    double scale = -1 / temperature, sum = 0;
    if (!n->weights && n->count && all_finite(n))
        kn_math_kernels(KNNLM_PRECISION_F32)
            ->exp_scale(shares, n->distances, n->count, scale, n->distances[n->nearest]);
    else
        for (size_t i = 0; i < n->count; i++) shares[i] = term(n, scale, i);
    for (size_t i = 0; i < n->count; i++) sum += shares[i];
    for (size_t i = 0; i < n->count; i++) shares[i] /= sum;
}

// ---------------------------------------------------------------- its entropy

#define GOLDEN 0x9e3779b9u // spreads the low bits of numbers over the high ones

// Where a value is, or where it may be put: shares of 0 are free.
static kn_value_share *place_of(kn_value_share *table, size_t size, int32_t value) {
    size_t at = (size_t)((uint64_t)((uint32_t)value * GOLDEN) * size >> 32);
    while (table[at].share > 0 && table[at].value != value) at = at + 1 < size ? at + 1 : 0;
    return &table[at];
}

double kn_neighborhood_entropy(const kn_neighborhood *n, double temperature, kn_value_share *table) {
    double scale = -1 / temperature, sum = 0, moment = 0;
    size_t size = 2 * n->count; // half of it stays free, so that places are found at once
    if (n->count == 0) return NAN;
    for (size_t i = 0; i < size; i++) table[i] = (kn_value_share){0};
    for (size_t i = 0; i < n->count; i++) {
        kn_value_share *place = place_of(table, size, n->values[i]);
        place->value = n->values[i];
        place->share += term(n, scale, i);
    }
    for (size_t i = 0; i < size; i++) {
        double share = table[i].share;
        if (share <= 0) continue;
        sum += share;
        moment += share * log(share);
    }
    return fmax(0, log(sum) - moment / sum);
}
