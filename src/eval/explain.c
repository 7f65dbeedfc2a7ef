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
knnlm_status kn_explain_target(const kn_lm *lm, const char *context, const char *target, kn_tokens *out) {
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    bool brings_space = !kn_tokenizer_joins_with_spaces(t) && !kn_tokenizer_adds_space(t);
    bool space = brings_space && !ends_in_space(context) && target[0] != ' ';
    size_t before = out->count;
    char *text = kn_alloc(strlen(target) + 2, 1);
    if (!text) return KNNLM_ENOMEM;
    strcpy(text, space ? " " : "");
    strcat(text, target);
    knnlm_status status = kn_tokenizer_encode(t, text, strlen(text), out);
    free(text);
    KN_TRY(status);
    if (out->count == before || !*target) return kn_fail(KNNLM_EINVAL, "the target has no token");
    if (out->count - before > KN_TARGET_TOKENS)
        return kn_fail(KNNLM_EINVAL, "the target has %zu tokens, more than %d", out->count - before,
                       KN_TARGET_TOKENS);
    return KNNLM_OK;
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

knnlm_status kn_explain_targets(const kn_nexts *nexts, size_t first, const int32_t *targets, size_t count,
                                kn_explanation *out) {
    out->targets = kn_alloc(count, sizeof *out->targets);
    if (!out->targets) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++)
        out->targets[i] = word_of(&kn_nexts_at(nexts, first + i)->distribution, targets[i]);
    out->target_count = count;
    return KNNLM_OK;
}

// `tokens`: the first `context` of them, then the target's; the model reads one context for each of these,
// the first of which is explained.
static knnlm_status explain_tokens(kn_lm *lm, const kn_mixture *m, const kn_tokens *tokens, size_t context,
                                   const kn_explain_options *o, kn_explanation *out) {
    kn_context contexts[KN_TARGET_TOKENS];
    size_t count = kn_max(tokens->count - context, 1);
    int32_t target = tokens->count > context ? tokens->ids[context] : -1;
    kn_nexts *nexts;
    for (size_t i = 0; i < count; i++) contexts[i] = (kn_context){tokens->ids, context + i, m};
    KN_TRY(kn_nexts_open(lm, contexts, count, &nexts));
    knnlm_status status =
        kn_explain_next(m, kn_nexts_at(nexts, 0), target, o->words, o->neighbors, o->around, out);
    if (status == KNNLM_OK && target >= 0) {
        status = kn_explain_targets(nexts, 0, tokens->ids + context, count, out);
        if (status != KNNLM_OK) kn_explanation_free(out);
    }
    kn_nexts_close(nexts);
    return status;
}

static knnlm_status explain_text(kn_lm *lm, const kn_mixture *m, const char *context,
                                 const kn_explain_options *o, kn_explanation *out) {
    kn_tokens tokens = {0};
    knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(lm), context, strlen(context), &tokens);
    size_t count = tokens.count;
    if (status == KNNLM_OK && o->target) status = kn_explain_target(lm, context, o->target, &tokens);
    if (status == KNNLM_OK) status = explain_tokens(lm, m, &tokens, count, o, out);
    kn_tokens_free(&tokens);
    return status;
}

// A space at the end belongs to the word that comes: most tokens bring theirs.
knnlm_status kn_explain(kn_lm *lm, const kn_mixture *m, const char *context, const kn_explain_options *o,
                        kn_explanation *out) {
    size_t n = strlen(context);
    char *text = kn_strndup(context, n > 1 && context[n - 1] == ' ' ? n - 1 : n);
    knnlm_status status = text ? explain_text(lm, m, text, o, out) : KNNLM_ENOMEM;
    free(text);
    return status;
}

void kn_explanation_free(kn_explanation *e) {
    kn_neighbor_details_free(e->neighbors, e->neighbor_count);
    free(e->neighbors);
    free(e->words);
    free(e->targets);
    *e = (kn_explanation){0};
}
