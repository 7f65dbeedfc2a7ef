#include "eval/explain.h"

#include "eval/guess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the context

static knnlm_status read_context(kn_lm *lm, const kn_mixture *m, const char *context, kn_guess *g) {
    kn_tokens tokens = {0};
    knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(lm), context, strlen(context), &tokens);
    if (status == KNNLM_OK) status = kn_guess_next(lm, m, tokens.ids, tokens.count, g);
    kn_tokens_free(&tokens);
    return status;
}

static bool ends_in_space(const char *text) {
    size_t n = strlen(text);
    return n == 0 || strchr(" \t\r\n", text[n - 1]);
}

// Tokens mostly bring the space before them: a word after a word has one, unless encoding puts it there.
static knnlm_status read_target(const kn_lm *lm, const char *context, const char *target,
                                kn_explanation *out) {
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    bool brings_space = !kn_tokenizer_joins_with_spaces(t) && !kn_tokenizer_adds_space(t);
    bool space = brings_space && !ends_in_space(context) && target[0] != ' ';
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

// ---------------------------------------------------------------- the words

static kn_word word_of(const kn_guess *g, int32_t token) {
    return (kn_word){token, exp((double)g->lm[token]), g->knn ? g->knn[token] : NAN,
                     kn_guess_probability(g, token)};
}

static knnlm_status choose_words(const kn_lm *lm, const kn_guess *g, size_t most, kn_explanation *out) {
    int32_t vocabulary = kn_lm_describe(lm)->vocabulary;
    bool target_seen = out->target < 0;
    size_t n = 0;
    out->words = kn_alloc(most + 1, sizeof *out->words);
    if (!out->words) return KNNLM_ENOMEM;
    for (int32_t token = 0; token < vocabulary && most; token++) {
        kn_word w = word_of(g, token);
        size_t at = n;
        while (at > 0 && w.p > out->words[at - 1].p) at--;
        if (at == most) continue;
        memmove(out->words + at + 1, out->words + at, (kn_least(n, most - 1) - at) * sizeof w);
        out->words[at] = w;
        n = kn_least(n + 1, most);
    }
    for (size_t i = 0; i < n; i++) target_seen |= out->words[i].token == out->target;
    if (!target_seen) out->words[n++] = word_of(g, out->target);
    out->word_count = n;
    return KNNLM_OK;
}

static knnlm_status tell(const kn_lm *lm, const kn_mixture *m, const kn_guess *g, size_t words,
                         size_t neighbors, size_t around, kn_explanation *out) {
    out->tokens = g->tokens;
    out->cut = g->cut;
    out->lambda = g->lambda;
    out->nearest = g->nearest;
    out->entropy = g->entropy;
    out->neighbors = kn_alloc(neighbors, sizeof *out->neighbors);
    if (!out->neighbors) return KNNLM_ENOMEM;
    KN_TRY(kn_shown_find(m, g->found, 0, &g->mixed, neighbors, around, out->neighbors, &out->neighbor_count));
    return choose_words(lm, g, words, out);
}

knnlm_status kn_explain(kn_lm *lm, const kn_mixture *m, const char *context, const char *target, size_t words,
                        size_t neighbors, size_t around, kn_explanation *out) {
    kn_guess g;
    *out = (kn_explanation){.target = -1};
    if (target) KN_TRY(read_target(lm, context, target, out));
    KN_TRY(read_context(lm, m, context, &g));
    knnlm_status status = tell(lm, m, &g, words, neighbors, around, out);
    kn_guess_free(&g);
    if (status != KNNLM_OK) kn_explanation_free(out);
    return status;
}

void kn_explanation_free(kn_explanation *e) {
    kn_shown_free(e->neighbors, e->neighbor_count);
    free(e->neighbors);
    free(e->words);
    *e = (kn_explanation){0};
}
