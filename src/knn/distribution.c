// The whole distribution after a context, mixed.
#include "knn/distribution.h"

#include "knn/mixture_parts.h"
#include "math/top.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

knnlm_status kn_distribution_init(kn_distribution *g, const kn_lm *lm) {
    *g = (kn_distribution){.vocabulary = (size_t)kn_lm_describe(lm)->vocabulary};
    g->knn = kn_alloc(g->vocabulary, sizeof *g->knn);
    return g->knn ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_distribution_free(kn_distribution *g) {
    free(g->knn);
    free(g->values);
    free(g->shares);
    *g = (kn_distribution){0};
}

// ---------------------------------------------------------------- mixing

static void forget(kn_distribution *g) {
    for (size_t i = 0; i < g->value_count; i++) g->knn[g->values[i]] = 0;
    g->value_count = 0;
}

static knnlm_status add(kn_distribution *g, const int32_t *values, const double *shares, size_t count,
                        double part) {
    KN_TRY(kn_grow(&g->values, &g->values_capacity, g->value_count + count, sizeof *g->values));
    for (size_t i = 0; i < count; i++) {
        double share = part * shares[i];
        if (share <= 0) continue; // so far that it counts for nothing
        if (g->knn[values[i]] == 0) g->values[g->value_count++] = values[i];
        g->knn[values[i]] += share;
    }
    return KNNLM_OK;
}

// *used: of `shares`.
static knnlm_status spread(kn_distribution *g, const kn_mixture *m, size_t store, const kn_neighborhood *n,
                           size_t *used) {
    g->shares_of[store] = *used;
    if (n->count == 0) return KNNLM_OK;
    KN_TRY(kn_grow(&g->shares, &g->shares_capacity, *used + 2 * n->count, sizeof *g->shares));
    double *shares = g->shares + *used;
    kn_prediction_shares(m, store, &g->prediction, n, shares, shares + n->count);
    *used += n->count;
    return add(g, n->values, shares, n->count, kn_prediction_part(m, &g->prediction, store));
}

const double *kn_distribution_shares(const kn_distribution *g, size_t store) {
    return g->shares + g->shares_of[store];
}

knnlm_status kn_distribution_mix(kn_distribution *g, const kn_mixture *m, const kn_row_neighbors *found,
                                 const float *lm, double entropy, kn_history *history) {
    size_t used = 0;
    forget(g);
    g->lm = lm;
    g->entropy = entropy;
    g->stores = m->info.count;
    kn_predict_one(m, found, -1, 0, entropy, NAN, history, &g->prediction);
    g->mixed = g->stores > 0;
    g->lambda = kn_prediction_lambda(m, &g->prediction);
    g->nearest = kn_nearest(m, found);
    for (size_t s = 0; s < m->info.count; s++) KN_TRY(spread(g, m, s, &found[s].near, &used));
    return KNNLM_OK;
}

// A probability stays above 0 where it was: that tells which tokens `values` has.
static void scale(kn_distribution *g, double by) {
    if (by <= 0) forget(g);
    for (size_t i = 0; i < g->value_count; i++)
        g->knn[g->values[i]] = fmax(g->knn[g->values[i]] * by, DBL_MIN);
}

knnlm_status kn_distribution_join(kn_distribution *g, const kn_distribution_part *p) {
    double kept = p->keep * g->lambda, weight = fmin(p->weight, 1 - kept), lambda = kept + weight;
    g->mixed = true;
    if (weight <= 0) return KNNLM_OK;
    scale(g, kept / lambda);
    g->lambda = lambda;
    return add(g, p->values, p->shares, p->count, weight / lambda);
}

// ---------------------------------------------------------------- asking

double kn_distribution_logprob(const kn_distribution *g, int32_t token) {
    double knn = log(g->knn[token]);
    return kn_mix((double)g->lm[token], &knn, &g->lambda, 1);
}

double kn_distribution_probability(const kn_distribution *g, int32_t token) {
    return g->lambda * g->knn[token] + (1 - g->lambda) * exp((double)g->lm[token]);
}

typedef struct ranked {
    double p;
    int32_t token;
} ranked;

static bool is_better(const ranked *a, const ranked *b) {
    return a->p > b->p || (a->p == b->p && a->token < b->token);
}

// Keeps the best in order.
static void offer(ranked *best, size_t max, size_t *count, ranked one) {
    size_t at = 0;
    for (size_t end = *count; at < end;) {
        size_t middle = (at + end) / 2;
        if (is_better(&one, &best[middle]))
            end = middle;
        else
            at = middle + 1;
    }
    if (at == max) return;
    memmove(best + at + 1, best + at, (kn_min(*count, max - 1) - at) * sizeof *best);
    best[at] = one;
    *count = kn_min(*count + 1, max);
}

// The best tokens of the model so far, in any order, and those that may be among them.
typedef struct candidates {
    kn_item items[2 * KN_DISTRIBUTION_TOP];
    size_t count;
    float min; // less than that is not among them
} candidates;

static void consider(const kn_distribution *g, size_t first, size_t end, size_t max, candidates *c) {
    for (size_t t = first; t < end; t++) {
        if (!(g->lm[t] >= c->min) || g->knn[t] > 0) continue;
        c->items[c->count++] = kn_item_make(-g->lm[t], (uint32_t)t);
        if (c->count < 2 * max) continue;
        kn_items_select(c->items, c->count, max);
        kn_item best, worst;
        kn_math_kernels(KNNLM_PRECISION_F32)->item_range(c->items, max, &best, &worst);
        c->count = max;
        c->min = -kn_item_distance(worst);
    }
}

// Of tokens that no neighbour has, the order is the model's: only the best of those are mixed. Most stand in
// blocks of which none is good enough.
static size_t best_of_model(const kn_distribution *g, size_t max, int32_t *tokens) {
    enum { BLOCK = 64 };
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_F32);
    candidates c; // 16 KB: not to be cleared
    kn_item scratch[KN_DISTRIBUTION_TOP];
    c.count = 0;
    c.min = -INFINITY;
    for (size_t first = 0; first < g->vocabulary; first += BLOCK) {
        size_t end = kn_min(first + BLOCK, g->vocabulary);
        if (k->max(g->lm + first, end - first) >= c.min) consider(g, first, end, max, &c);
    }
    kn_items_select(c.items, c.count, kn_min(c.count, max));
    c.count = kn_min(c.count, max);
    kn_items_sort(c.items, c.count, scratch);
    for (size_t i = 0; i < c.count; i++) tokens[i] = (int32_t)kn_item_id(c.items[i]);
    return c.count;
}

size_t kn_distribution_top(const kn_distribution *g, size_t max, int32_t *tokens) {
    ranked own[KN_DISTRIBUTION_TOP];
    int32_t model[KN_DISTRIBUTION_TOP];
    size_t count = 0;
    max = kn_min(max, KN_DISTRIBUTION_TOP);
    if (max == 0) return 0;
    size_t n = best_of_model(g, max, model);
    for (size_t i = 0; i < n; i++)
        offer(own, max, &count, (ranked){kn_distribution_logprob(g, model[i]), model[i]});
    // Most neighbours are not among the best, which p tells for less than log p costs.
    double min = count == max ? exp(own[max - 1].p) * (1 - 1e-9) : 0;
    for (size_t i = 0; i < g->value_count; i++)
        if (!(kn_distribution_probability(g, g->values[i]) < min))
            offer(own, max, &count, (ranked){kn_distribution_logprob(g, g->values[i]), g->values[i]});
    for (size_t i = 0; i < count; i++) tokens[i] = own[i].token;
    return count;
}
