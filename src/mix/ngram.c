// An n-gram model: what it says of a token, from the shortest context to the longest that was seen.
#include "mix/ngram_parts.h"

#include <math.h>
#include <stdlib.h>

static knnlm_status check(const int32_t *tokens, size_t count, int order, int32_t vocabulary) {
    if (order < 1 || order > KN_NGRAM_ORDER_MAX)
        return kn_fail(KNNLM_EINVAL, "n-grams of order %d: not from 1 to %d", order, KN_NGRAM_ORDER_MAX);
    if (count >= UINT32_MAX) return kn_fail(KNNLM_ENOTSUP, "n-grams of %zu tokens: too many", count);
    size_t starts = 0;
    if (count && tokens[0] != KN_NGRAM_START)
        return kn_fail(KNNLM_EINVAL, "tokens to learn n-grams from begin with no start");
    for (size_t i = 0; i < count; i++) {
        starts += tokens[i] == KN_NGRAM_START;
        if (tokens[i] < KN_NGRAM_START || tokens[i] >= vocabulary)
            return kn_fail(KNNLM_EINVAL, "token %zu is %d: the vocabulary has %d", i, tokens[i], vocabulary);
    }
    return starts < count ? KNNLM_OK : kn_fail(KNNLM_EINVAL, "no tokens to learn n-grams from");
}

knnlm_status kn_ngram_learn(const int32_t *tokens, size_t count, int order, int32_t vocabulary,
                            const kn_progress *progress, kn_ngram **out) {
    *out = NULL;
    KN_TRY(check(tokens, count, order, vocabulary));
    kn_ngram *m = kn_alloc(1, sizeof *m);
    if (!m) return KNNLM_ENOMEM;
    m->info.order = order;
    m->vocabulary = vocabulary;
    for (size_t i = 0; i < count; i++) m->info.tokens += tokens[i] != KN_NGRAM_START;
    knnlm_status status = kn_ngram_count(m, tokens, count, progress);
    if (status == KNNLM_OK) status = kn_ngram_smooth(m);
    if (status == KNNLM_OK)
        *out = m;
    else
        kn_ngram_close(m);
    return status;
}

void kn_ngram_close(kn_ngram *m) {
    for (int n = 0; m && n < KN_NGRAM_ORDER_MAX; n++) {
        free(m->levels[n].tokens);
        free(m->levels[n].counts);
        free(m->levels[n].children);
        free(m->levels[n].totals);
        free(m->levels[n].left);
    }
    free(m);
}

const kn_ngram_info *kn_ngram_describe(const kn_ngram *m) {
    return &m->info;
}

// The n-gram that a context of n tokens is, by its place on level n - 1; SIZE_MAX: never seen.
static size_t find_context(const kn_ngram *m, const int32_t *context, size_t n) {
    kn_ngram_range range = {0, m->levels[0].count};
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        at = kn_ngram_find(&m->levels[i], range, context[i]);
        if (at == SIZE_MAX) return at;
        if (i + 1 < n) range = kn_ngram_children(&m->levels[i], at);
    }
    return at;
}

// p of a token by the n-grams of level n that follow a context, mixed with p by shorter ones.
static double interpolate(const kn_ngram *m, size_t n, kn_ngram_range range, uint64_t total, double left,
                          int32_t token, double shorter) {
    const kn_ngram_level *level = &m->levels[n];
    size_t at = kn_ngram_find(level, range, token);
    double own = 0;
    if (at != SIZE_MAX) {
        uint32_t count = level->counts[at];
        own = count - m->info.discounts[n][kn_min(count, KN_NGRAM_DISCOUNTS) - 1];
    }
    return (own + left * shorter) / (double)total;
}

double kn_ngram_logprob(const kn_ngram *m, const int32_t *context, size_t known, int32_t token) {
    kn_ngram_range all = {0, m->levels[0].count};
    double p = interpolate(m, 0, all, m->total, m->left, token, 1.0 / m->vocabulary);
    for (size_t n = 1; n <= known && n < (size_t)m->info.order; n++) {
        const kn_ngram_level *level = &m->levels[n - 1];
        size_t at = find_context(m, context + known - n, n);
        // What nothing follows ends its documents; longer contexts do likewise.
        if (at == SIZE_MAX || !level->totals[at]) break;
        p = interpolate(m, n, kn_ngram_children(level, at), level->totals[at], level->left[at], token, p);
    }
    return log(p);
}
