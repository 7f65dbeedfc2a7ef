#include "eval/guess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

knnlm_status kn_guess_init(kn_guess *g, const kn_lm *lm) {
    *g = (kn_guess){.vocabulary = (size_t)kn_lm_describe(lm)->vocabulary};
    g->knn = kn_alloc(g->vocabulary, sizeof *g->knn);
    return g->knn ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_guess_free(kn_guess *g) {
    free(g->knn);
    free(g->values);
    free(g->shares);
    *g = (kn_guess){0};
}

// ---------------------------------------------------------------- mixing

static void forget(kn_guess *g) {
    for (size_t i = 0; i < g->value_count; i++) g->knn[g->values[i]] = 0;
    g->value_count = 0;
}

static knnlm_status spread(kn_guess *g, const kn_mixed_store *s, const kn_neighborhood *n, double part) {
    KN_TRY(kn_grow(&g->shares, &g->shares_capacity, n->count, sizeof *g->shares));
    KN_TRY(kn_grow(&g->values, &g->values_capacity, g->value_count + n->count, sizeof *g->values));
    kn_neighborhood_shares(n, s->temperature, g->shares);
    for (size_t i = 0; i < n->count; i++) {
        int32_t value = n->values[i];
        double share = part * g->shares[i];
        if (share <= 0) continue; // so far that it counts for nothing
        if (g->knn[value] == 0) g->values[g->value_count++] = value;
        g->knn[value] += share;
    }
    return KNNLM_OK;
}

knnlm_status kn_guess_mix(kn_guess *g, const kn_mixture *m, const kn_found *found, size_t query,
                          const float *lm, double entropy) {
    forget(g);
    g->lm = lm;
    g->entropy = entropy;
    g->stores = m->count;
    kn_mixture_mix(m, found, query, -1, 0, entropy, NAN, &g->mixed);
    g->lambda = kn_mixture_lambda(m, &g->mixed);
    g->nearest = kn_mixture_nearest(m, found, query);
    for (size_t s = 0; s < m->count; s++) {
        kn_neighborhood n = kn_found_at(&found[s], query);
        KN_TRY(spread(g, &m->stores[s], &n, kn_mixture_part(m, &g->mixed, s)));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- asking

double kn_guess_logprob(const kn_guess *g, int32_t token) {
    double knn = log(g->knn[token]);
    return kn_mix((double)g->lm[token], &knn, &g->lambda, 1);
}

double kn_guess_probability(const kn_guess *g, int32_t token) {
    return g->lambda * g->knn[token] + (1 - g->lambda) * exp((double)g->lm[token]);
}

typedef struct ranked {
    double p;
    int32_t token;
} ranked;

// Keeps the best in order.
static void offer(ranked *best, size_t most, size_t *count, ranked one) {
    size_t at = *count;
    while (at > 0 && (one.p > best[at - 1].p || (one.p == best[at - 1].p && one.token < best[at - 1].token)))
        at--;
    if (at == most) return;
    memmove(best + at + 1, best + at, (kn_least(*count, most - 1) - at) * sizeof *best);
    best[at] = one;
    *count = kn_least(*count + 1, most);
}

// Of tokens that no neighbour has, the order is the model's: only the best of those are mixed.
static size_t best_of_model(const kn_guess *g, size_t most, ranked *best) {
    size_t count = 0;
    double least = -INFINITY;
    for (size_t t = 0; t < g->vocabulary; t++) {
        if (count == most && !((double)g->lm[t] > least)) continue;
        if (g->knn[t] > 0) continue;
        offer(best, most, &count, (ranked){(double)g->lm[t], (int32_t)t});
        if (count == most) least = best[most - 1].p;
    }
    return count;
}

size_t kn_guess_top(const kn_guess *g, size_t most, int32_t *tokens) {
    ranked own[KN_GUESS_TOP], model[KN_GUESS_TOP];
    size_t count = 0;
    most = kn_least(most, KN_GUESS_TOP);
    if (most == 0) return 0;
    size_t n = best_of_model(g, most, model);
    for (size_t i = 0; i < n; i++)
        offer(own, most, &count, (ranked){kn_guess_logprob(g, model[i].token), model[i].token});
    for (size_t i = 0; i < g->value_count; i++)
        offer(own, most, &count, (ranked){kn_guess_logprob(g, g->values[i]), g->values[i]});
    for (size_t i = 0; i < count; i++) tokens[i] = own[i].token;
    return count;
}

// ---------------------------------------------------------------- one context

typedef struct asking {
    kn_window *windows;
    int32_t **inputs;
    kn_past **pasts;
    float *distributions, *entropies, *states;
} asking;

// All but the last window of a text that is read as a stream: of each the last position alone is scored,
// which is the least that can be asked for.
static knnlm_status read_before(kn_lm *lm, const int32_t *read, size_t count, kn_tap tap, asking *a,
                                size_t number) {
    size_t stream = (size_t)kn_lm_describe(lm)->stream, vocabulary = (size_t)kn_lm_describe(lm)->vocabulary,
           width = (size_t)kn_lm_describe(lm)->key_width;
    // Rows of this context in the results: written over by its own later.
    kn_lm_output out = {.distribution = a->distributions + number * vocabulary,
                        .entropies = a->entropies + number,
                        .keys = a->states + number * width};
    KN_TRY(kn_past_open(lm, &a->pasts[number]));
    for (size_t done = 0; done < count; done += stream)
        KN_TRY(kn_lm_run(lm,
                         &(kn_window){.inputs = read + done,
                                      .length = (int32_t)stream,
                                      .first = (int32_t)stream - 1,
                                      .past = a->pasts[number]},
                         1, tap, &out));
    return KNNLM_OK;
}

// The start token and the last tokens that the model's own context holds; all of them where it reads streams.
static knnlm_status lay_window(kn_lm *lm, const kn_context *c, kn_tap tap, asking *a, size_t number,
                               kn_next *out) {
    size_t room = kn_session_room(lm), n = kn_least(c->count, room - 1);
    size_t stream = (size_t)kn_lm_describe(lm)->stream, before = stream ? n / stream * stream : 0;
    int32_t *read = a->inputs[number] = kn_alloc(n + 1, sizeof *read);
    if (!read) return KNNLM_ENOMEM;
    read[0] = kn_tokenizer_start(kn_lm_tokenizer(lm));
    if (n) memcpy(read + 1, c->tokens + c->count - n, n * sizeof *read);
    out->tokens = n;
    out->cut = n < c->count;
    if (before) KN_TRY(read_before(lm, read, before, tap, a, number));
    a->windows[number] = (kn_window){.inputs = read + before,
                                     .length = (int32_t)(n + 1 - before),
                                     .first = (int32_t)(n - before),
                                     .past = a->pasts[number]};
    return KNNLM_OK;
}

static knnlm_status ask_model(kn_lm *lm, const kn_context *contexts, size_t count, asking *a, kn_next *out) {
    kn_tap tap = KN_TAP_DEFAULT;
    for (size_t i = 0; i < count; i++)
        if (contexts[i].mixture->count) tap = contexts[i].mixture->tap;
    for (size_t i = 0; i < count; i++) KN_TRY(lay_window(lm, &contexts[i], tap, a, i, &out[i]));
    kn_lm_output output = {.distribution = a->distributions, .entropies = a->entropies, .keys = a->states};
    return kn_lm_run(lm, a->windows, count, tap, &output);
}

static knnlm_status ask_stores(const kn_mixture *m, const float *state, kn_next *out) {
    for (size_t s = 0; s < m->count; s++) {
        KN_TRY(kn_found_init(&out->found[s], 1, m->stores[s].k));
        out->stores = s + 1;
        KN_TRY(kn_mixed_store_search(&m->stores[s], state, 1, NULL, 0, &out->found[s]));
    }
    return KNNLM_OK;
}

static knnlm_status guess_one(kn_lm *lm, const kn_mixture *m, const asking *a, size_t i, kn_next *out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    size_t vocabulary = (size_t)info->vocabulary;
    KN_TRY(kn_guess_init(&out->guess, lm));
    out->lm = kn_alloc(vocabulary, sizeof *out->lm);
    if (!out->lm) return KNNLM_ENOMEM;
    memcpy(out->lm, a->distributions + i * vocabulary, vocabulary * sizeof *out->lm);
    KN_TRY(ask_stores(m, a->states + i * (size_t)info->key_width, out));
    return kn_guess_mix(&out->guess, m, out->found, 0, out->lm, (double)a->entropies[i]);
}

static knnlm_status guess_all(kn_lm *lm, const kn_context *contexts, size_t count, asking *a, kn_next *out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    size_t numbers;
    if (!kn_mul(count, (size_t)info->vocabulary, &numbers))
        return kn_fail(KNNLM_ENOMEM, "too many contexts at a time");
    a->windows = kn_alloc(count, sizeof *a->windows);
    a->inputs = kn_alloc(count, sizeof *a->inputs);
    a->pasts = kn_alloc(count, sizeof *a->pasts);
    a->distributions = kn_alloc(numbers, sizeof *a->distributions);
    a->entropies = kn_alloc(count, sizeof *a->entropies);
    a->states = kn_alloc(count * (size_t)info->key_width, sizeof *a->states);
    if (!a->windows || !a->inputs || !a->pasts || !a->distributions || !a->entropies || !a->states)
        return KNNLM_ENOMEM;
    KN_TRY(ask_model(lm, contexts, count, a, out));
    for (size_t i = 0; i < count; i++) KN_TRY(guess_one(lm, contexts[i].mixture, a, i, &out[i]));
    return KNNLM_OK;
}

knnlm_status kn_next_guess_all(kn_lm *lm, const kn_context *contexts, size_t count, kn_next *out) {
    asking a = {0};
    for (size_t i = 0; i < count; i++) out[i] = (kn_next){0};
    knnlm_status status = guess_all(lm, contexts, count, &a, out);
    for (size_t i = 0; i < count && a.inputs; i++) free(a.inputs[i]);
    for (size_t i = 0; i < count && a.pasts; i++) kn_past_close(a.pasts[i]);
    for (size_t i = 0; i < count && status != KNNLM_OK; i++) kn_next_free(&out[i]);
    free(a.windows);
    free(a.inputs);
    free(a.pasts);
    free(a.distributions);
    free(a.entropies);
    free(a.states);
    return status;
}

knnlm_status kn_next_guess(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count,
                           kn_next *out) {
    return kn_next_guess_all(lm, &(kn_context){tokens, count, m}, 1, out);
}

void kn_next_free(kn_next *next) {
    for (size_t s = 0; s < next->stores; s++) kn_found_free(&next->found[s]);
    kn_guess_free(&next->guess);
    free(next->lm);
    *next = (kn_next){0};
}
