#include "eval/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// What the model says after a context.
typedef struct guess {
    float *distribution, *state; // (vocabulary): logarithms; (width)
    float entropy;
    double *knn; // (vocabulary): of all stores together
} guess;

static knnlm_status guess_init(guess *g, const kn_lm *lm) {
    const kn_lm_info *info = kn_lm_describe(lm);
    g->distribution = kn_alloc((size_t)info->vocabulary, sizeof *g->distribution);
    g->state = kn_alloc((size_t)info->key_width, sizeof *g->state);
    g->knn = kn_alloc((size_t)info->vocabulary, sizeof *g->knn);
    return g->distribution && g->state && g->knn ? KNNLM_OK : KNNLM_ENOMEM;
}

static void guess_free(guess *g) {
    free(g->distribution);
    free(g->state);
    free(g->knn);
}

// ---------------------------------------------------------------- the model

// The start token and the last tokens of the context that the model's own context holds.
static knnlm_status run_window(kn_lm *lm, kn_tap tap, const kn_tokens *tokens, guess *g,
                               kn_explanation *out) {
    size_t room = (size_t)kn_lm_describe(lm)->context, n = kn_least(tokens->count, room - 1);
    int32_t *inputs = kn_alloc(n + 1, sizeof *inputs);
    if (!inputs) return KNNLM_ENOMEM;
    inputs[0] = kn_tokenizer_start(kn_lm_tokenizer(lm));
    if (n) memcpy(inputs + 1, tokens->ids + tokens->count - n, n * sizeof *inputs);
    out->tokens = n;
    out->cut = n < tokens->count;
    kn_window window = {inputs, NULL, (int32_t)(n + 1), (int32_t)n};
    kn_lm_output output = {.distribution = g->distribution, .entropies = &g->entropy, .keys = g->state};
    knnlm_status status = kn_lm_run(lm, &window, 1, tap, &output);
    free(inputs);
    return status;
}

static knnlm_status read_context(kn_lm *lm, kn_tap tap, const char *context, guess *g, kn_explanation *out) {
    kn_tokens tokens = {0};
    knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(lm), context, strlen(context), &tokens);
    if (status == KNNLM_OK) status = run_window(lm, tap, &tokens, g, out);
    kn_tokens_free(&tokens);
    return status;
}

static bool ends_in_space(const char *text) {
    size_t n = strlen(text);
    return n == 0 || strchr(" \t\r\n", text[n - 1]);
}

// Byte-level tokens bring the space before them: a word after a word has one.
static knnlm_status read_target(const kn_lm *lm, const char *context, const char *target,
                                kn_explanation *out) {
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    bool space = kn_tokenizer_kind_of(t) == KN_TOKENIZER_BPE && !ends_in_space(context) && target[0] != ' ';
    kn_tokens tokens = {0};
    char *text = kn_alloc(strlen(target) + 2, 1);
    out->target = -1;
    if (!text) return KNNLM_ENOMEM;
    strcpy(text, space ? " " : "");
    strcat(text, target);
    knnlm_status status = kn_tokenizer_encode(t, text, strlen(text), &tokens);
    if (status == KNNLM_OK && tokens.count == 0) status = kn_fail(KNNLM_EINVAL, "the target has no token");
    if (status == KNNLM_OK) {
        out->target = tokens.ids[0];
        out->target_has_more = tokens.count > 1;
    }
    free(text);
    kn_tokens_free(&tokens);
    return status;
}

// ---------------------------------------------------------------- the neighbours

// p_kNN of every token, and what it is mixed in with.
static knnlm_status weigh(const kn_mixture *m, const kn_found *found, const guess *g, kn_mixed *mixed,
                          kn_explanation *out) {
    kn_mixture_mix(m, found, 0, -1, 0, (double)g->entropy, NAN, mixed);
    for (size_t s = 0; s < m->count; s++) out->lambda += mixed->lambdas[s];
    for (size_t s = 0; s < m->count; s++) {
        kn_neighborhood n = kn_found_at(&found[s], 0);
        double *shares = kn_alloc(n.count, sizeof *shares);
        double part = out->lambda > 0 ? mixed->lambdas[s] / out->lambda : 1 / (double)m->count;
        if (!shares) return KNNLM_ENOMEM;
        kn_neighborhood_shares(&n, m->stores[s].temperature, shares);
        for (size_t i = 0; i < n.count; i++) g->knn[n.values[i]] += part * shares[i];
        free(shares);
    }
    return KNNLM_OK;
}

static knnlm_status show(const kn_mixture *m, const kn_found *found, const kn_mixed *mixed, size_t most,
                         size_t around, kn_explanation *out) {
    out->nearest = kn_mixture_nearest(m, found, 0);
    out->neighbors = kn_alloc(most, sizeof *out->neighbors);
    if (!out->neighbors) return KNNLM_ENOMEM;
    return kn_shown_find(m, found, 0, mixed, most, around, out->neighbors, &out->neighbor_count);
}

static knnlm_status ask_stores(const kn_mixture *m, const guess *g, size_t most, size_t around,
                               kn_explanation *out) {
    kn_found found[KN_STORES_MOST] = {{0}};
    kn_mixed mixed;
    knnlm_status status = KNNLM_OK;
    for (size_t s = 0; s < m->count && status == KNNLM_OK; s++) {
        status = kn_found_init(&found[s], 1, m->stores[s].k);
        if (status == KNNLM_OK)
            status = kn_mixed_store_search(&m->stores[s], g->state, 1, NULL, 0, &found[s]);
    }
    if (status == KNNLM_OK) status = weigh(m, found, g, &mixed, out);
    if (status == KNNLM_OK) status = show(m, found, &mixed, most, around, out);
    for (size_t s = 0; s < m->count; s++) kn_found_free(&found[s]);
    return status;
}

// ---------------------------------------------------------------- the words

static kn_word word_of(const guess *g, const kn_mixture *m, double lambda, int32_t token) {
    double lm = exp((double)g->distribution[token]), knn = g->knn[token];
    return (kn_word){token, lm, m->count ? knn : NAN, lambda * knn + (1 - lambda) * lm};
}

static knnlm_status choose_words(const kn_lm *lm, const kn_mixture *m, const guess *g, size_t most,
                                 kn_explanation *out) {
    int32_t vocabulary = kn_lm_describe(lm)->vocabulary;
    bool target_seen = out->target < 0;
    size_t n = 0;
    out->words = kn_alloc(most + 1, sizeof *out->words);
    if (!out->words) return KNNLM_ENOMEM;
    for (int32_t token = 0; token < vocabulary && most; token++) {
        kn_word w = word_of(g, m, out->lambda, token);
        size_t at = n;
        while (at > 0 && w.p > out->words[at - 1].p) at--;
        if (at == most) continue;
        memmove(out->words + at + 1, out->words + at, (kn_least(n, most - 1) - at) * sizeof w);
        out->words[at] = w;
        n = kn_least(n + 1, most);
    }
    for (size_t i = 0; i < n; i++) target_seen |= out->words[i].token == out->target;
    if (!target_seen) out->words[n++] = word_of(g, m, out->lambda, out->target);
    out->word_count = n;
    return KNNLM_OK;
}

static knnlm_status explain(kn_lm *lm, const kn_mixture *m, const char *context, const char *target,
                            size_t words, size_t neighbors, size_t around, guess *g, kn_explanation *out) {
    KN_TRY(guess_init(g, lm));
    if (target) KN_TRY(read_target(lm, context, target, out));
    KN_TRY(read_context(lm, m->tap, context, g, out));
    out->entropy = (double)g->entropy;
    KN_TRY(ask_stores(m, g, neighbors, around, out));
    return choose_words(lm, m, g, words, out);
}

knnlm_status kn_explain(kn_lm *lm, const kn_mixture *m, const char *context, const char *target, size_t words,
                        size_t neighbors, size_t around, kn_explanation *out) {
    guess g = {0};
    *out = (kn_explanation){.target = -1, .nearest = NAN};
    knnlm_status status = explain(lm, m, context, target, words, neighbors, around, &g, out);
    guess_free(&g);
    if (status != KNNLM_OK) kn_explanation_free(out);
    return status;
}

void kn_explanation_free(kn_explanation *e) {
    kn_shown_free(e->neighbors, e->neighbor_count);
    free(e->neighbors);
    free(e->words);
    *e = (kn_explanation){0};
}
