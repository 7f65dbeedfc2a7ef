// Explains one context.
#include "eval/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the context

static bool ends_in_space(const char *text) {
    size_t n = strlen(text);
    return n == 0 || strchr(" \t\r\n", text[n - 1]);
}

// Tokens mostly bring the space before them: a word after a word has one, unless encoding puts it there.
knnlm_status kn_explain_target(const kn_lm *lm, const char *context, const char *target, int32_t *first,
                               bool *more) {
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    bool brings_space = !kn_tokenizer_joins_with_spaces(t) && !kn_tokenizer_adds_space(t);
    bool space = brings_space && !ends_in_space(context) && target[0] != ' ';
    kn_tokens tokens = {0};
    char *text = kn_alloc(strlen(target) + 2, 1);
    if (!text) return KNNLM_ENOMEM;
    strcpy(text, space ? " " : "");
    strcat(text, target);
    knnlm_status status = kn_tokenizer_encode(t, text, strlen(text), &tokens);
    if (status == KNNLM_OK && tokens.count == 0) status = kn_fail(KNNLM_EINVAL, "the target has no token");
    if (status == KNNLM_OK) {
        *first = tokens.ids[0];
        *more = tokens.count > 1;
    }
    free(text);
    kn_tokens_free(&tokens);
    return status;
}

// ---------------------------------------------------------------- the words

static knnlm_word word_of(const kn_distribution *g, int32_t token) {
    return (knnlm_word){token, exp((double)g->lm[token]), g->stores ? g->knn[token] : NAN,
                        kn_distribution_probability(g, token)};
}

static knnlm_status choose_words(const kn_distribution *g, size_t max, kn_explanation *out) {
    max = kn_min(max, KN_DISTRIBUTION_TOP);
    int32_t *best = kn_alloc(max, sizeof *best);
    bool target_seen = out->target < 0;
    out->words = kn_alloc(max + 1, sizeof *out->words);
    if (best && out->words) {
        size_t n = kn_distribution_top(g, max, best);
        for (size_t i = 0; i < n; i++) {
            out->words[i] = word_of(g, best[i]);
            target_seen |= best[i] == out->target;
        }
        if (!target_seen) out->words[n++] = word_of(g, out->target);
        out->word_count = n;
    }
    free(best);
    return best && out->words ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status tell(const kn_mixture *m, const kn_next *next, size_t words, size_t neighbors,
                         size_t around, kn_explanation *out) {
    const kn_distribution *g = &next->distribution;
    out->tokens = next->tokens;
    out->cut = next->cut;
    out->lambda = g->lambda;
    out->nearest = g->nearest;
    out->entropy = g->entropy;
    neighbors = kn_min(neighbors, kn_mixture_describe(m)->neighbors);
    out->neighbors = kn_alloc(neighbors, sizeof *out->neighbors);
    if (!out->neighbors) return KNNLM_ENOMEM;
    KN_TRY(kn_neighbor_details_find(m, next->found, &g->prediction, neighbors, around, out->neighbors,
                                    &out->neighbor_count));
    return choose_words(g, words, out);
}

knnlm_status kn_explain_next(const kn_mixture *m, const kn_next *next, int32_t target, size_t words,
                             size_t neighbors, size_t around, kn_explanation *out) {
    *out = (kn_explanation){.target = target};
    knnlm_status status = tell(m, next, words, neighbors, around, out);
    if (status != KNNLM_OK) kn_explanation_free(out);
    return status;
}

static knnlm_status explain_tokens(kn_lm *lm, const kn_mixture *m, const kn_tokens *tokens, int32_t target,
                                   size_t words, size_t neighbors, size_t around, kn_explanation *out) {
    kn_nexts *next;
    KN_TRY(kn_nexts_open(lm, &(kn_context){tokens->ids, tokens->count, m}, 1, &next));
    knnlm_status status = kn_explain_next(m, kn_nexts_at(next, 0), target, words, neighbors, around, out);
    kn_nexts_close(next);
    return status;
}

knnlm_status kn_explain(kn_lm *lm, const kn_mixture *m, const char *context, const char *target, size_t words,
                        size_t neighbors, size_t around, kn_explanation *out) {
    kn_tokens tokens = {0};
    int32_t first = -1;
    bool more = false;
    if (target) KN_TRY(kn_explain_target(lm, context, target, &first, &more));
    knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(lm), context, strlen(context), &tokens);
    if (status == KNNLM_OK) status = explain_tokens(lm, m, &tokens, first, words, neighbors, around, out);
    if (status == KNNLM_OK) out->target_has_more = more;
    kn_tokens_free(&tokens);
    return status;
}

void kn_explanation_free(kn_explanation *e) {
    kn_neighbor_details_free(e->neighbors, e->neighbor_count);
    free(e->neighbors);
    free(e->words);
    *e = (kn_explanation){0};
}
