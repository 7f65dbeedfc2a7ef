// Weights by bins: how many bins, and whether they are worth it, is judged on tokens that they were not
// fitted on.
#include "eval/tune_parts.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 1024 }; // tokens in turn for fitting and for judging
#define WORTH 0.9995   // of the perplexity without bins

static const size_t sizes[] = {4, 8, 12, 16};

// Tokens of one half (0, 1), or all (2), that have neighbours whose distance says something: among those that
// are near because they begin a document, bins would learn to trust what is near because it is alike.
static size_t choose(const kn_tuning *t, size_t store, int half, uint32_t *tokens) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->kept[store].counts[i] && !t->beginnings[store][i] &&
            (half == 2 || (int)(i / BLOCK % 2) == half))
            tokens[n++] = (uint32_t)i;
    return n;
}

typedef struct judging {
    const kn_tuning *t;
    size_t store;
    double lambda, cache_lambda; // lambda: of all tokens together
    float *fixed;                // the cache's part of each token; NULL: no cache
    float *nearest;              // distance of each, as evaluation will see it; anything where there is none
} judging;

static double log_of(const judging *j, const kn_bins *bins, size_t i) {
    const kn_tuning *t = j->t;
    double max = 1 - j->cache_lambda, fixed = j->fixed ? (double)j->fixed[i] : 0;
    double w = t->kept[j->store].counts[i]
                   ? fmin(max, kn_bins_lambda(bins, (double)j->nearest[i], (double)t->entropies[i]))
                   : 0;
    if (t->beginnings[j->store][i]) w = fmin(w, j->lambda); // as evaluation does
    return log(fixed + (max - w) * (double)t->lm[i] + w * (double)t->knn[j->store][i]);
}

static kn_bin_data data_of(const judging *j, const uint32_t *tokens, size_t n, double lambda) {
    return (kn_bin_data){.lm = j->t->lm,
                         .knn = j->t->knn[j->store],
                         .fixed = j->fixed,
                         .nearest = j->nearest,
                         .entropies = j->t->entropies,
                         .tokens = tokens,
                         .n = n,
                         .max = 1 - j->cache_lambda,
                         .believed = lambda};
}

// Sum of logarithms over the other half, of bins fitted on one.
static knnlm_status judge_half(const judging *j, int half, size_t size, double lambda, uint32_t *tokens,
                               double *sum) {
    kn_store_bins *b = kn_alloc(1, sizeof *b);
    if (!b) return KNNLM_ENOMEM;
    kn_bin_room room = {size, size, b->distance_edges, b->entropy_edges, b->lambdas};
    kn_bin_data data = data_of(j, tokens, choose(j->t, j->store, half, tokens), lambda);
    knnlm_status status = kn_fit_bins(&data, &room);
    kn_bins bins = kn_bin_room_view(&room);
    for (size_t i = 0; status == KNNLM_OK && i < j->t->n; i++)
        if ((int)(i / BLOCK % 2) != half) *sum += log_of(j, &bins, i);
    free(b);
    return status;
}

static knnlm_status judge(const judging *j, size_t size, double lambda, uint32_t *tokens, double *ppl) {
    double sum = 0;
    for (int half = 0; half < 2; half++) KN_TRY(judge_half(j, half, size, lambda, tokens, &sum));
    *ppl = exp(-sum / (double)j->t->n);
    return KNNLM_OK;
}

static knnlm_status fit_all(const judging *j, size_t size, double lambda, uint32_t *tokens,
                            kn_store_bins *out, double *ppl) {
    kn_bin_room room = {size, size, out->distance_edges, out->entropy_edges, out->lambdas};
    kn_bin_data data = data_of(j, tokens, choose(j->t, j->store, 2, tokens), lambda);
    double sum = 0;
    KN_TRY(kn_fit_bins(&data, &room));
    out->distances = (uint32_t)room.distances;
    out->entropies = (uint32_t)room.entropies;
    kn_bins bins = kn_bin_room_view(&room);
    for (size_t i = 0; i < j->t->n; i++) sum += log_of(j, &bins, i);
    *ppl = exp(-sum / (double)j->t->n);
    return KNNLM_OK;
}

static knnlm_status find(const judging *j, double lambda, uint32_t *tokens, kn_store_bins *bins) {
    kn_tune_result *out = j->t->out;
    size_t best = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double ppl;
        KN_TRY(judge(j, sizes[i], lambda, tokens, &ppl));
        out->settings++;
        if (isnan(out->ppl_adaptive_checked) || ppl < out->ppl_adaptive_checked) {
            out->ppl_adaptive_checked = ppl;
            best = sizes[i];
        }
    }
    if (!(out->ppl_adaptive_checked < WORTH * out->ppl)) return KNNLM_OK;
    return fit_all(j, best, lambda, tokens, bins, &out->ppl_adaptive);
}

knnlm_status kn_tune_bins(kn_tuning *t, size_t store, double lambda, double cache_lambda,
                          kn_store_bins *bins) {
    const float *cache = kn_tuning_cache(t);
    judging j = {.t = t, .store = store, .lambda = lambda, .cache_lambda = cache_lambda};
    uint32_t *tokens = kn_alloc(t->n, sizeof *tokens);
    const kn_kept *kept = &t->kept[store];
    j.nearest = kn_alloc(t->n, sizeof *j.nearest);
    if (cache) j.fixed = kn_alloc(t->n, sizeof *j.fixed);
    knnlm_status status = tokens && j.nearest && (j.fixed || !cache) ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; status == KNNLM_OK && cache && i < t->n; i++)
        j.fixed[i] = (float)cache_lambda * cache[i];
    for (size_t i = 0; status == KNNLM_OK && i < t->n; i++)
        if (kept->counts[i]) j.nearest[i] = kept->distances[i * kept->k];
    if (status == KNNLM_OK) status = find(&j, lambda, tokens, bins);
    free(j.nearest);
    free(tokens);
    free(j.fixed);
    return status;
}
