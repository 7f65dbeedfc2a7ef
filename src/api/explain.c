// The public functions that explain: a context, and the tokens of texts at which neighbours mattered most.
#include "eval/explain.h"
#include "api/api.h"

#include <stdlib.h>

// ---------------------------------------------------------------- neighbours

// Takes the texts of `found`, which is released; NULL: no memory, `found` is as it was.
static knnlm_neighbor *take_neighbors(kn_neighbor_detail *found, size_t count) {
    knnlm_neighbor *out = kn_alloc(count, sizeof *out);
    for (size_t i = 0; out && i < count; i++)
        out[i] = (knnlm_neighbor){.store = found[i].store,
                                  .share = found[i].share,
                                  .distance = found[i].distance,
                                  .origin = api_origin(&found[i].origin)};
    if (out) free(found);
    return out;
}

static void neighbors_free(knnlm_neighbor *neighbors, size_t count) {
    for (size_t i = 0; i < count; i++) knnlm_origin_free(&neighbors[i].origin);
    free(neighbors);
}

// ---------------------------------------------------------------- a context

API_DEFAULTS(knnlm_explain_options, .words = 8, .neighbors = 8, .around = 12)

static knnlm_status take_explanation(kn_explanation *e, knnlm_explanation *out) {
    knnlm_neighbor *neighbors = take_neighbors(e->neighbors, e->neighbor_count);
    if (!neighbors) {
        kn_explanation_free(e);
        return KNNLM_ENOMEM;
    }
    *out = (knnlm_explanation){.tokens = e->tokens,
                               .cut = e->cut,
                               .target = e->target,
                               .words = e->words,
                               .word_count = e->word_count,
                               .neighbors = neighbors,
                               .neighbor_count = e->neighbor_count,
                               .lambda = e->lambda,
                               .nearest = e->nearest,
                               .entropy = e->entropy,
                               .targets = e->targets,
                               .target_count = e->target_count};
    return KNNLM_OK;
}

knnlm_status knnlm_explain(knnlm_mixture *m, const char *context, const knnlm_explain_options *options,
                           knnlm_explanation *out) {
    knnlm_explain_options o;
    kn_explanation e;
    *out = (knnlm_explanation){0};
    KN_TRY(API_TAKE(knnlm_explain_options, options, &o));
    kn_explain_options what = {o.target, o.words, o.neighbors, o.around};
    KN_TRY(kn_explain(m->lm, m->mixture, context, &what, &e));
    return take_explanation(&e, out);
}

void knnlm_explanation_free(knnlm_explanation *e) {
    neighbors_free(e->neighbors, e->neighbor_count);
    free(e->words);
    free(e->targets);
    *e = (knnlm_explanation){0};
}

// ---------------------------------------------------------------- texts

API_DEFAULTS(knnlm_explain_texts_options, .context = -1, .best = 5, .worst = 5, .neighbors = 3, .around = 12)

static void gains_free(knnlm_token_gain *gains, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(gains[i].document);
        free(gains[i].before);
        neighbors_free(gains[i].neighbors, gains[i].neighbor_count);
    }
    free(gains);
}

void knnlm_token_gains_free(knnlm_token_gains *g) {
    gains_free(g->best, g->best_count);
    gains_free(g->worst, g->worst_count);
    *g = (knnlm_token_gains){0};
}

// Takes what one holds, and leaves it empty.
static knnlm_status take_gain(kn_token_gain *x, knnlm_token_gain *out) {
    knnlm_neighbor *neighbors = take_neighbors(x->neighbors, x->neighbor_count);
    if (!neighbors) return KNNLM_ENOMEM;
    *out = (knnlm_token_gain){.document = x->document,
                              .before = x->before,
                              .before_size = x->before_size,
                              .position = x->position,
                              .offset = x->offset,
                              .token = x->token,
                              .lm = x->lm,
                              .knn = x->knn,
                              .cache = x->cache,
                              .p = x->p,
                              .lambda = x->lambda,
                              .neighbors = neighbors,
                              .neighbor_count = x->neighbor_count};
    *x = (kn_token_gain){0};
    return KNNLM_OK;
}

static knnlm_status take_list(kn_token_gain *gains, size_t count, knnlm_token_gain **out, size_t *taken) {
    *out = kn_alloc(count, sizeof **out);
    if (!*out) return KNNLM_ENOMEM;
    for (; *taken < count; ++*taken) KN_TRY(take_gain(&gains[*taken], &(*out)[*taken]));
    return KNNLM_OK;
}

static knnlm_status take_gains(kn_token_gains *g, knnlm_token_gains *out) {
    *out = (knnlm_token_gains){.tokens = g->totals.read.tokens, .ppl_lm = g->ppl_lm, .ppl = g->ppl};
    knnlm_status status = take_list(g->best, g->best_count, &out->best, &out->best_count);
    if (status == KNNLM_OK) status = take_list(g->worst, g->worst_count, &out->worst, &out->worst_count);
    if (status != KNNLM_OK) knnlm_token_gains_free(out);
    kn_token_gains_free(g);
    return status;
}

knnlm_status knnlm_explain_texts(knnlm_mixture *m, const char *const *texts, size_t count,
                                 const knnlm_explain_texts_options *options, knnlm_token_gains *out) {
    knnlm_explain_texts_options o;
    kn_token_gains gains;
    *out = (knnlm_token_gains){0};
    KN_TRY(API_TAKE(knnlm_explain_texts_options, options, &o));
    if (!count) return kn_fail(KNNLM_EINVAL, "no text to explain");
    kn_pass_options pass = {.read = {.score = o.score, .context = o.context}};
    KN_TRY(api_take_texts(o.texts, o.split_given ? o.split : kn_mixture_describe(m->mixture)->split,
                          &pass.read.texts));
    KN_TRY(kn_explain_texts(m->lm, m->mixture, texts, count, &pass, o.best, o.worst, o.neighbors, o.around,
                            &o.progress, &gains));
    return take_gains(&gains, out);
}
