// Keeps each token's neighbours for tuning, and computes p_kNN for every k and temperature from them.
#include "mix/tune.h"

#include "base/threads.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static size_t words(size_t k) {
    return (k + 63) / 64;
}

size_t kn_kept_bytes(size_t n, size_t k) {
    return n * (k * sizeof(float) + 2 * words(k) * sizeof(uint64_t) + sizeof(uint32_t));
}

knnlm_status kn_kept_init(kn_kept *kept, size_t tokens, size_t k) {
    size_t distances = 0, hits = 0;
    *kept = (kn_kept){.capacity = tokens, .k = k};
    if (!kn_mul(tokens, k, &distances) || !kn_mul(tokens, words(k), &hits))
        return kn_fail(KNNLM_ENOMEM, "too many neighbours to keep");
    kept->distances = kn_alloc_aligned(distances, sizeof *kept->distances);
    kept->hits = kn_alloc(hits, sizeof *kept->hits);
    kept->agree = kn_alloc(hits, sizeof *kept->agree);
    kept->counts = kn_alloc(tokens, sizeof *kept->counts);
    if (kept->distances && kept->hits && kept->agree && kept->counts) return KNNLM_OK;
    kn_kept_free(kept);
    return KNNLM_ENOMEM;
}

void kn_kept_free(kn_kept *kept) {
    kn_free_aligned(kept->distances);
    free(kept->hits);
    free(kept->agree);
    free(kept->counts);
    *kept = (kn_kept){0};
}

knnlm_status kn_kept_add(kn_kept *kept, const kn_neighborhood *neighbors, int32_t token) {
    if (kept->n == kept->capacity) return kn_fail(KNNLM_EINVAL, "more tokens than room was made for");
    size_t count = kn_min(neighbors->count, kept->k), at = kept->n++;
    uint64_t *hits = kept->hits + at * words(kept->k), *agree = kept->agree + at * words(kept->k);
    for (size_t i = 0; i < count; i++) { // infinities are as far as f32 goes, as in kernel.c
        kept->distances[at * kept->k + i] = fmaxf(-FLT_MAX, fminf(FLT_MAX, neighbors->distances[i]));
        hits[i / 64] |= (uint64_t)(neighbors->values[i] == token) << i % 64;
        agree[i / 64] |= (uint64_t)(neighbors->values[i] == neighbors->values[0]) << i % 64;
    }
    kept->counts[at] = (uint32_t)count;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- probabilities

enum { CHUNK = 256 }; // tokens of a task

typedef struct sweep {
    const kn_kept *kept;
    const uint64_t *bits; // which neighbours count: hits, or agree
    const kn_kernels *k;
    const double *temperatures;
    size_t temperature_count;
    const size_t *ks;
    size_t count;
    float *gathered; // (threads, k)
    float *out;
} sweep;

// The distances of a token's neighbours that hit, and how many of them are among its first ks[j].
static void gather_hits(const sweep *s, size_t token, float *gathered, size_t *among) {
    const float *distances = s->kept->distances + token * s->kept->k;
    const uint64_t *hits = s->bits + token * words(s->kept->k);
    size_t n = 0, j = 0;
    for (size_t w = 0; w < words(s->kept->k); w++)
        for (uint64_t rest = hits[w]; rest; rest &= rest - 1) {
            size_t i = w * 64 + (size_t)__builtin_ctzll(rest);
            for (; j < s->count && i >= s->ks[j]; j++) among[j] = n;
            gathered[n++] = distances[i];
        }
    for (; j < s->count; j++) among[j] = n;
}

// How many of the nearest matter at a temperature: all terms beyond them are in sum below 1e-7 (e^-16.1) of
// the first.
static size_t reach_of(const float *distances, size_t count, double temperature) {
    double limit = count ? (double)distances[0] + (16.2 + log((double)count)) * temperature : 0;
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((double)distances[middle] <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Probabilities at one temperature, for every k: sums over [0, k) grow from k to k.
static void sweep_token(const sweep *s, size_t token, size_t t, const float *gathered, const size_t *among) {
    const float *distances = s->kept->distances + token * s->kept->k;
    size_t have = reach_of(distances, s->kept->counts[token], s->temperatures[t]), from = 0, hit = 0;
    float scale = (float)(-1 / s->temperatures[t]);
    double all = 0, hits = 0;
    for (size_t j = 0; j < s->count; j++) {
        size_t to = kn_min(s->ks[j], have);
        if (to > from) all += (double)s->k->exp_scale_sum(distances + from, to - from, scale, distances[0]);
        if (among[j] > hit)
            hits += (double)s->k->exp_scale_sum(gathered + hit, among[j] - hit, scale, distances[0]);
        from = kn_max(from, to);
        hit = among[j];
        s->out[(t * s->count + j) * s->kept->n + token] = all > 0 ? (float)fmin(1, hits / all) : 0;
    }
}

// A token's distances are read once for all temperatures: they are most of what there is to read.
static void sweep_chunk(void *context, size_t task, int worker) {
    const sweep *s = context;
    size_t end = kn_min((task + 1) * CHUNK, s->kept->n), among[KN_KEPT_KS];
    float *gathered = s->gathered + (size_t)worker * s->kept->k;
    for (size_t token = task * CHUNK; token < end; token++) {
        gather_hits(s, token, gathered, among);
        for (size_t t = 0; t < s->temperature_count; t++) sweep_token(s, token, t, gathered, among);
    }
}

static knnlm_status run(const kn_kept *kept, const uint64_t *bits, const double *temperatures,
                        size_t temperature_count, const size_t *ks, size_t count, float *out) {
    if (count > KN_KEPT_KS) return kn_fail(KNNLM_EINVAL, "%zu numbers of neighbours at a time", count);
    sweep s = {.kept = kept,
               .bits = bits,
               .k = kn_math_kernels(KNNLM_PRECISION_F32),
               .temperatures = temperatures,
               .temperature_count = temperature_count,
               .ks = ks,
               .count = count,
               .gathered = kn_alloc(kept->k * (size_t)kn_threads(), sizeof *s.gathered),
               .out = out};
    if (!s.gathered) return KNNLM_ENOMEM;
    kn_parallel((kept->n + CHUNK - 1) / CHUNK, sweep_chunk, &s);
    free(s.gathered);
    return KNNLM_OK;
}

knnlm_status kn_kept_probabilities(const kn_kept *kept, const double *temperatures, size_t temperature_count,
                                   const size_t *ks, size_t count, float *out) {
    return run(kept, kept->hits, temperatures, temperature_count, ks, count, out);
}

knnlm_status kn_kept_agreement(const kn_kept *kept, double temperature, size_t k, float *out) {
    return run(kept, kept->agree, &temperature, 1, &k, 1, out);
}

size_t kn_kept_ks(size_t max, size_t ks[KN_KEPT_KS]) {
    size_t count = 0;
    for (size_t k = 1; k < max && count + 1 < KN_KEPT_KS; k *= 2) ks[count++] = k;
    ks[count++] = max;
    return count;
}
