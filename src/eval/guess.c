#include "eval/guess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The start token and the last tokens that the model's own context holds.
static knnlm_status ask_model(kn_lm *lm, kn_tap tap, const int32_t *tokens, size_t count, float *state,
                              kn_guess *g) {
    size_t room = (size_t)kn_lm_describe(lm)->context, n = kn_least(count, room - 1);
    int32_t *inputs = kn_alloc(n + 1, sizeof *inputs);
    float entropy;
    if (!inputs) return KNNLM_ENOMEM;
    inputs[0] = kn_tokenizer_start(kn_lm_tokenizer(lm));
    if (n) memcpy(inputs + 1, tokens + count - n, n * sizeof *inputs);
    g->tokens = n;
    g->cut = n < count;
    kn_window window = {inputs, NULL, (int32_t)(n + 1), (int32_t)n};
    kn_lm_output output = {.distribution = g->lm, .entropies = &entropy, .keys = state};
    knnlm_status status = kn_lm_run(lm, &window, 1, tap, &output);
    g->entropy = (double)entropy;
    free(inputs);
    return status;
}

static knnlm_status ask_stores(const kn_mixture *m, const float *state, kn_guess *g) {
    for (size_t s = 0; s < m->count; s++) {
        g->stores = s + 1;
        KN_TRY(kn_found_init(&g->found[s], 1, m->stores[s].k));
        KN_TRY(kn_mixed_store_search(&m->stores[s], state, 1, NULL, 0, &g->found[s]));
    }
    kn_mixture_mix(m, g->found, 0, -1, 0, g->entropy, NAN, &g->mixed);
    g->lambda = kn_mixture_lambda(m, &g->mixed);
    g->nearest = kn_mixture_nearest(m, g->found, 0);
    return KNNLM_OK;
}

static knnlm_status spread(const kn_mixture *m, kn_guess *g) {
    for (size_t s = 0; s < m->count; s++) {
        kn_neighborhood n = kn_found_at(&g->found[s], 0);
        double *shares = kn_alloc(n.count, sizeof *shares), part = kn_mixture_part(m, &g->mixed, s);
        if (!shares) return KNNLM_ENOMEM;
        kn_neighborhood_shares(&n, m->stores[s].temperature, shares);
        for (size_t i = 0; i < n.count; i++) g->knn[n.values[i]] += part * shares[i];
        free(shares);
    }
    return KNNLM_OK;
}

static knnlm_status guess(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count, float *state,
                          kn_guess *g) {
    KN_TRY(ask_model(lm, m->tap, tokens, count, state, g));
    KN_TRY(ask_stores(m, state, g));
    return spread(m, g);
}

knnlm_status kn_guess_next(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count,
                           kn_guess *out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    float *state = kn_alloc((size_t)info->key_width, sizeof *state);
    *out = (kn_guess){.lm = kn_alloc((size_t)info->vocabulary, sizeof *out->lm)};
    if (m->count) out->knn = kn_alloc((size_t)info->vocabulary, sizeof *out->knn);
    knnlm_status status =
        state && out->lm && (out->knn || !m->count) ? guess(lm, m, tokens, count, state, out) : KNNLM_ENOMEM;
    free(state);
    if (status != KNNLM_OK) kn_guess_free(out);
    return status;
}

void kn_guess_free(kn_guess *g) {
    for (size_t s = 0; s < g->stores; s++) kn_found_free(&g->found[s]);
    free(g->lm);
    free(g->knn);
    *g = (kn_guess){0};
}

double kn_guess_probability(const kn_guess *g, int32_t token) {
    double lm = exp((double)g->lm[token]);
    return g->knn ? g->lambda * g->knn[token] + (1 - g->lambda) * lm : lm;
}
