// What it would cost not to search where the model is sure.
#include "eval/tune_parts.h"

#include <math.h>
#include <stdlib.h>

// A token: its entropy, and what log p loses without a search.
typedef struct token {
    float entropy;
    double loss;
} token;

static int by_entropy(const void *a, const void *b) {
    float x = ((const token *)a)->entropy, y = ((const token *)b)->entropy;
    return (x > y) - (x < y);
}

// Without a search the weights of stores are the model's.
static token token_of(const kn_tuning *t, const float *const *parts, size_t count, bool cached,
                      const double *weights, size_t i) {
    size_t stores_end = cached ? count - 1 : count;
    double cache = cached ? weights[count - 1] * (double)parts[count - 1][i] : 0;
    double rest = cached ? 1 - weights[count - 1] : 1, searched = cache;
    for (size_t p = 0; p < stores_end; p++) searched += weights[p] * (double)parts[p][i];
    return (token){t->entropies[i], log(searched) - log(rest * (double)t->lm[i] + cache)};
}

// Tokens below the entropy of the first that is searched for: those of equal entropy share its fate.
static size_t skipped_before(const token *tokens, size_t at) {
    while (at > 0 && tokens[at - 1].entropy == tokens[at].entropy) at--;
    return at;
}

// Between the last that is skipped and the first that is not: digits that are not printed do not matter.
static double entropy_between(const token *tokens, size_t at) {
    return (double)tokens[at].entropy / 2 + (double)tokens[at ? at - 1 : 0].entropy / 2;
}

knnlm_status kn_tune_skips(const kn_tuning *t, const float *const *parts, size_t count, bool cached,
                           const double *weights) {
    token *tokens = kn_alloc(t->n, sizeof *tokens);
    double loss = 0;
    size_t done = 0;
    if (!tokens) return KNNLM_ENOMEM;
    for (size_t i = 0; i < t->n; i++) tokens[i] = token_of(t, parts, count, cached, weights, i);
    qsort(tokens, t->n, sizeof *tokens, by_entropy);
    for (size_t i = 0; i < KNNLM_TUNE_SKIPS; i++) {
        size_t end = skipped_before(tokens, t->n * (i + 1) / (KNNLM_TUNE_SKIPS + 1));
        for (; done < end; done++) loss += tokens[done].loss;
        t->out->skips[i] = (knnlm_tune_skip){.entropy = entropy_between(tokens, end),
                                             .skipped = (double)end / (double)t->n,
                                             .ppl = t->out->ppl * exp(loss / (double)t->n)};
    }
    free(tokens);
    return KNNLM_OK;
}
