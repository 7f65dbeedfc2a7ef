// The public functions that predict.
#include "api/api.h"
#include "eval/eval.h"
#include "knn/next.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

API_DEFAULTS(knnlm_mixture_options, .lambda = -1, .temperature = -1, .distance = -1, .cache = -1,
             .cache_lambda = -1, .cache_temperature = -1)

static double given(double x) {
    return x < 0 ? NAN : x;
}

static bool is_temperature(double x) {
    return isnan(x) || x < 0 || (x >= KN_TEMPERATURE_MIN && x <= KN_TEMPERATURE_MAX); // negative: not given
}

static knnlm_status check_stores(const knnlm_mixture_options *o) {
    if (o->store_count > KN_STORES_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu stores: at most %d at a time", o->store_count, KN_STORES_MAX);
    for (size_t i = 0; i < o->store_count; i++) {
        double weight = o->weights ? o->weights[i] : NAN;
        if (!isnan(weight) && !(weight >= 0 && weight <= 1))
            return kn_fail(KNNLM_EINVAL, "%s: its weight is not from 0 to 1", o->stores[i]);
        if (o->temperatures && !is_temperature(o->temperatures[i]))
            return kn_fail(KNNLM_EINVAL, "%s: a temperature beyond %g to %g", o->stores[i],
                           KN_TEMPERATURE_MIN, KN_TEMPERATURE_MAX);
    }
    return KNNLM_OK;
}

static knnlm_status check(const knnlm_mixture_options *o) {
    KN_TRY(check_stores(o));
    if (o->lambda > 1 || o->cache_lambda > 1) return kn_fail(KNNLM_EINVAL, "a lambda above 1");
    if (!is_temperature(o->temperature) || !is_temperature(o->cache_temperature))
        return kn_fail(KNNLM_EINVAL, "a temperature beyond %g to %g", KN_TEMPERATURE_MIN, KN_TEMPERATURE_MAX);
    for (size_t i = 0; o->ks && i < o->store_count; i++)
        if (o->ks[i] < 0) return kn_fail(KNNLM_EINVAL, "`ks`: %lld neighbours", (long long)o->ks[i]);
    if (!(o->skip_entropy >= 0)) return kn_fail(KNNLM_EINVAL, "skip_entropy is below 0");
    if (!(o->fraction >= 0 && o->fraction <= 1)) return kn_fail(KNNLM_EINVAL, "fraction is not from 0 to 1");
    if (o->distance >= KN_DISTANCES) return kn_fail(KNNLM_EINVAL, "no such distance: %d", o->distance);
    return KNNLM_OK;
}

static_assert((int)KNNLM_STORES_MAX == (int)KN_STORES_MAX, "one number of stores");

static void choose(const knnlm_mixture_options *o, kn_store_choice choices[KN_STORES_MAX]) {
    for (size_t i = 0; i < o->store_count; i++)
        choices[i] = (kn_store_choice){.path = o->stores[i],
                                       .weight = o->weights ? o->weights[i] : NAN,
                                       .temperature = o->temperatures ? given(o->temperatures[i]) : NAN,
                                       .k = o->ks ? o->ks[i] : 0};
}

knnlm_status api_mixture_options(const knnlm_mixture_options *options, kn_store_choice choices[KN_STORES_MAX],
                                 kn_mixture_options *out) {
    knnlm_mixture_options o;
    KN_TRY(API_TAKE(knnlm_mixture_options, options, &o));
    KN_TRY(check(&o));
    choose(&o, choices);
    *out = (kn_mixture_options){.stores = choices,
                                .store_count = o.store_count,
                                .k = (int64_t)o.k,
                                .probes = o.probes,
                                .lambda = given(o.lambda),
                                .temperature = given(o.temperature),
                                .codes = o.codes,
                                .exact = o.exact,
                                .distance = o.distance,
                                .fixed = o.fixed,
                                .bins = o.bins,
                                .fallback = o.fallback,
                                .include_self = o.include_self,
                                .skip_entropy = o.skip_entropy,
                                .memory = o.memory,
                                .filter = {o.only, o.except, o.only_count, o.except_count, o.fraction},
                                .cache = o.cache,
                                .cache_lambda = given(o.cache_lambda),
                                .cache_temperature = given(o.cache_temperature),
                                .warn = o.warn};
    return KNNLM_OK;
}

knnlm_status knnlm_mixture_open(knnlm_model *model, const knnlm_mixture_options *options,
                                knnlm_mixture **out) {
    kn_store_choice choices[KN_STORES_MAX];
    kn_mixture_options mix;
    *out = NULL;
    KN_TRY(api_mixture_options(options, choices, &mix));
    knnlm_mixture *m = kn_alloc(1, sizeof *m);
    if (!m) return KNNLM_ENOMEM;
    m->lm = (kn_lm *)model;
    knnlm_status status = kn_mixture_open(m->lm, &mix, &m->mixture);
    if (status != KNNLM_OK)
        free(m);
    else
        *out = m;
    return status;
}

void knnlm_mixture_close(knnlm_mixture *m) {
    if (m) kn_mixture_close(m->mixture);
    free(m);
}

static knnlm_mixture_store store_of(const kn_mixture_store *s) {
    return (knnlm_mixture_store){.path = s->store->path,
                                 .entries = s->store->entries - s->store->removed_entries,
                                 .lambda = s->lambda,
                                 .temperature = s->temperature,
                                 .k = s->k,
                                 .probes = s->looked,
                                 .codes = s->of_codes,
                                 .adaptive = s->adaptive,
                                 .gated = s->gated,
                                 .fallback = s->fallback && !s->gated, // which needs no such help
                                 .tuned = s->tuned,
                                 .distance = s->distance};
}

void knnlm_mixture_describe(const knnlm_mixture *m, knnlm_mixture_info *out) {
    const kn_mixture_info *i = kn_mixture_describe(m->mixture);
    *out = (knnlm_mixture_info){.store_count = i->count,
                                .cache = i->cache.size,
                                .cache_lambda = i->cache.lambda,
                                .cache_temperature = i->cache.temperature,
                                .split = i->split};
    for (size_t s = 0; s < i->count; s++) out->stores[s] = store_of(&i->stores[s]);
}

typedef struct scores {
    float *p, *lm;
} scores;

static knnlm_status copy_scores(void *context, const kn_scored *b) {
    const scores *s = context;
    for (size_t i = 0; i < b->count; i++) {
        s->p[b->tokens[i].position] = (float)b->predictions[i].p;
        if (s->lm) s->lm[b->tokens[i].position] = b->lm[i];
    }
    return KNNLM_OK;
}

knnlm_status knnlm_mixture_score(knnlm_mixture *m, const int32_t *tokens, size_t count,
                                 const knnlm_score_options *options, float *logprobs, float *lm) {
    knnlm_score_options o;
    KN_TRY(API_TAKE(knnlm_score_options, options, &o));
    kn_pass_options pass = {.read = {.score = o.score, .context = o.context}, .predictions_alone = true};
    scores s = {logprobs, lm};
    return kn_pass_tokens(m->lm, m->mixture, tokens, count, &pass, copy_scores, &s);
}

typedef struct rows {
    const kn_mixture *mixture;
    knnlm_token_row *out;
} rows;

static knnlm_status copy_rows(void *context, const kn_scored *b) {
    const rows *r = context;
    for (size_t i = 0; i < b->count; i++) {
        knnlm_token_row *row = &r->out[b->tokens[i].position];
        *row = kn_eval_row(r->mixture, b, i);
        row->document = "";
    }
    return KNNLM_OK;
}

knnlm_status knnlm_mixture_rows(knnlm_mixture *m, const int32_t *tokens, size_t count,
                                const knnlm_score_options *options, knnlm_token_row *out) {
    knnlm_score_options o;
    KN_TRY(API_TAKE(knnlm_score_options, options, &o));
    kn_pass_options pass = {.read = {.score = o.score, .context = o.context}, .entropies = true};
    rows r = {m->mixture, out};
    return kn_pass_tokens(m->lm, m->mixture, tokens, count, &pass, copy_rows, &r);
}

knnlm_status knnlm_mixture_next(knnlm_mixture *m, const int32_t *tokens, size_t count, double *p, double *lm,
                                double *knn, knnlm_next *out) {
    int32_t vocabulary = kn_lm_describe(m->lm)->vocabulary;
    kn_nexts *next;
    KN_TRY(kn_nexts_open(m->lm, &(kn_context){tokens, count, m->mixture}, 1, &next));
    const kn_distribution *g = &kn_nexts_at(next, 0)->distribution;
    for (int32_t i = 0; i < vocabulary; i++) {
        if (p) p[i] = kn_distribution_probability(g, i);
        if (lm) lm[i] = exp((double)g->lm[i]);
        if (knn) knn[i] = g->knn[i];
    }
    if (out) *out = (knnlm_next){g->lambda, g->entropy, g->nearest};
    kn_nexts_close(next);
    return KNNLM_OK;
}
