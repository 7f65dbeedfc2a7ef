// The tokens of a text at which neighbours helped and hurt most.
#include "eval/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct looking {
    kn_lm *lm;
    const kn_mixture *m;
    kn_token_gains *out;
    size_t best, worst, neighbors, around;
    double nll_lm, nll;
} looking;

static void moment_free(kn_token_gain *x) {
    free(x->document);
    free(x->before);
    kn_neighbor_details_free(x->neighbors, x->neighbor_count);
    free(x->neighbors);
}

void kn_token_gains_free(kn_token_gains *m) {
    for (size_t i = 0; i < m->best_count; i++) moment_free(&m->best[i]);
    for (size_t i = 0; i < m->worst_count; i++) moment_free(&m->worst[i]);
    free(m->best);
    free(m->worst);
    *m = (kn_token_gains){0};
}

// ---------------------------------------------------------------- one token

static knnlm_status read_before(const looking *l, const kn_scored *b, size_t i, kn_token_gain *out) {
    size_t have = kn_min((size_t)b->tokens[i].position, i + b->before), n = kn_min(have, KN_CONTEXT_KEPT);
    return kn_tokenizer_decode(kn_lm_tokenizer(l->lm), b->stream + i - n, n, &out->before, &out->before_size);
}

static knnlm_status make_moment(const looking *l, const kn_scored *b, size_t i, kn_token_gain *out) {
    const kn_scored_token *t = &b->tokens[i];
    const kn_prediction *prediction = &b->predictions[i];
    kn_row_neighbors found[KN_STORES_MAX];
    kn_predictor_neighbors(b->neighbors, i, found);
    *out = (kn_token_gain){.position = t->position,
                           .offset = t->offset,
                           .token = t->token,
                           .lm = (double)b->lm[i],
                           .knn = kn_prediction_knn(l->m, prediction),
                           .cache = b->cache ? b->cache[i] : NAN,
                           .p = prediction->p,
                           .lambda = kn_prediction_lambda(l->m, prediction)};
    out->document = kn_strdup(b->names[t->document]);
    out->neighbors = kn_alloc(l->neighbors, sizeof *out->neighbors);
    knnlm_status status = out->document && out->neighbors ? read_before(l, b, i, out) : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        status = kn_neighbor_details_find(l->m, found, prediction, l->neighbors, l->around, out->neighbors,
                                          &out->neighbor_count);
    if (status != KNNLM_OK) moment_free(out);
    return status;
}

// `sign` 1: the largest gains are kept, -1: the smallest. Earlier tokens stay among equals.
static knnlm_status offer(const looking *l, const kn_scored *b, size_t i, double sign, kn_token_gain *kept,
                          size_t max, size_t *count) {
    double gain = sign * (b->predictions[i].p - (double)b->lm[i]);
    size_t at = *count;
    while (at > 0 && gain > sign * (kept[at - 1].p - kept[at - 1].lm)) at--;
    if (at == max || !(gain > 0)) return KNNLM_OK;
    kn_token_gain one;
    KN_TRY(make_moment(l, b, i, &one));
    if (*count == max) moment_free(&kept[--*count]);
    memmove(kept + at + 1, kept + at, (*count - at) * sizeof *kept);
    kept[at] = one;
    ++*count;
    return KNNLM_OK;
}

static knnlm_status take(void *context, const kn_scored *b) {
    looking *l = context;
    kn_token_gains *out = l->out;
    for (size_t i = 0; i < b->count; i++) {
        l->nll_lm -= (double)b->lm[i];
        l->nll -= b->predictions[i].p;
        KN_TRY(offer(l, b, i, 1, out->best, l->best, &out->best_count));
        KN_TRY(offer(l, b, i, -1, out->worst, l->worst, &out->worst_count));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the text

knnlm_status kn_explain_texts(kn_lm *lm, const kn_mixture *m, const char *const *paths, size_t count,
                              const kn_pass_options *o, size_t best, size_t worst, size_t neighbors,
                              size_t around, const kn_progress *progress, kn_token_gains *out) {
    const kn_mixture_info *info = kn_mixture_describe(m);
    looking l = {lm, m, out, best, worst, kn_min(neighbors, info->neighbors), around, 0, 0};
    *out = (kn_token_gains){0};
    if (!info->any) return kn_fail(KNNLM_EINVAL, "nothing is mixed in: give a store, or a cache");
    if (best > KN_GAINS_MAX || worst > KN_GAINS_MAX)
        return kn_fail(KNNLM_EINVAL, "`best` %zu, `worst` %zu: at most %d each", best, worst, KN_GAINS_MAX);
    out->best = kn_alloc(best + 1, sizeof *out->best);
    out->worst = kn_alloc(worst + 1, sizeof *out->worst);
    knnlm_status status = out->best && out->worst
                              ? kn_pass_texts(lm, m, paths, count, o, progress, take, &l, &out->totals)
                              : KNNLM_ENOMEM;
    if (status == KNNLM_OK && !out->totals.read.tokens)
        status = kn_fail(KNNLM_EDATA, "%s: no text to explain", paths[0]);
    out->ppl_lm = exp(l.nll_lm / (double)out->totals.read.tokens);
    out->ppl = exp(l.nll / (double)out->totals.read.tokens);
    if (status != KNNLM_OK) kn_token_gains_free(out);
    return status;
}
