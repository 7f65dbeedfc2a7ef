// The public functions that evaluate and tune.
#include "eval/eval.h"
#include "api/api.h"
#include "eval/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- evaluating

API_DEFAULTS(knnlm_eval_options, .context = -1, .report_tokens = 5000, .ngram_order = 5, .ngram_lambda = 0.1)

static knnlm_eval_result result_of(const kn_eval_result *r) {
    const kn_read_totals *t = &r->totals.read;
    knnlm_eval_result out = {.documents = t->documents,
                             .tokens = t->tokens,
                             .words = t->words,
                             .bytes = t->bytes,
                             .own_documents = r->totals.own_documents,
                             .lm = r->lm,
                             .mixed = r->mixed,
                             .store_count = r->store_count,
                             .cache = r->cache,
                             .cache_lambda = r->cache_lambda,
                             .cache_temperature = r->cache_temperature,
                             .seconds = r->seconds,
                             .seconds_lm = r->seconds_lm,
                             .seconds_search = r->seconds_search,
                             .tokens_per_second = r->tokens_per_second,
                             .stream = r->stream,
                             .score = r->score,
                             .context = r->context,
                             .split = r->split,
                             .skip_entropy = r->skip_entropy,
                             .skipped = r->skipped,
                             .ngram = r->ngram};
    memcpy(out.stores, r->stores, sizeof out.stores);
    return out;
}

knnlm_status knnlm_eval(knnlm_model *model, const char *const *texts, size_t count,
                        const knnlm_mixture_options *mixture, const knnlm_eval_options *options,
                        knnlm_eval_result *result) {
    kn_store_choice choices[KN_STORES_MAX];
    knnlm_eval_options given;
    kn_eval_options o = {0};
    kn_eval_result r;
    KN_TRY(API_TAKE(knnlm_eval_options, options, &given));
    KN_TRY(api_mixture_options(mixture, choices, &o.mix));
    if (!count) return kn_fail(KNNLM_EINVAL, "no text to score");
    o.read = (kn_read_options){.score = given.score, .context = given.context};
    KN_TRY(api_take_texts(given.texts, given.split, &o.read.texts));
    o.split_said = given.split_given;
    o.per_token = given.per_token;
    o.report = given.report;
    o.report_tokens = given.report_tokens;
    o.row = given.row;
    o.row_context = given.row_context;
    o.ngram = (kn_eval_ngram_options){given.ngram, given.ngram_count, given.ngram_order, given.ngram_lambda};
    KN_TRY(kn_eval_run((kn_lm *)model, texts, count, &o, &given.progress, &r));
    if (result) *result = result_of(&r);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- tuning

API_DEFAULTS(knnlm_tune_options, .context = -1)

static void copy_stores(const kn_tune_result *r, knnlm_tune_result *out) {
    for (size_t i = 0; i < r->store_count; i++) {
        out->stores[i] = (knnlm_tune_store){.best = r->stores[i].best, .lambda = r->stores[i].lambda};
        snprintf(out->stores[i].path, sizeof out->stores[i].path, "%s", r->stores[i].path);
    }
    memcpy(out->way_seconds, r->totals.seconds_stores, sizeof out->way_seconds);
    memcpy(out->lambdas, r->lambdas, sizeof out->lambdas);
    memcpy(out->by_lambda, r->by_lambda, sizeof out->by_lambda);
    memcpy(out->skips, r->skips, sizeof out->skips);
}

static knnlm_status tuned_result(const kn_tune_result *r, knnlm_tune_result *out) {
    *out = (knnlm_tune_result){.tokens = r->totals.read.tokens,
                               .ppl_lm = r->ppl_lm,
                               .ppl = r->ppl,
                               .ppl_cache = r->ppl_cache,
                               .cache_lambda = r->cache_lambda,
                               .cache_temperature = r->cache_temperature,
                               .ppl_adaptive = r->ppl_adaptive,
                               .ppl_adaptive_checked = r->ppl_adaptive_checked,
                               .ppl_gate = r->ppl_gate,
                               .ppl_gate_checked = r->ppl_gate_checked,
                               .ppl_foreign = r->ppl_foreign,
                               .ppl_foreign_lm = r->ppl_foreign_lm,
                               .store_count = r->store_count,
                               .point_count = r->point_count,
                               .tuned = api_tuned(&r->tuned),
                               .written = r->written,
                               .seconds_search = r->seconds_search,
                               .seconds_sweep = r->seconds_sweep,
                               .seconds = r->seconds,
                               .settings = r->settings};
    out->points = kn_alloc(r->point_count, sizeof *out->points);
    if (!out->points) return KNNLM_ENOMEM;
    memcpy(out->points, r->points, r->point_count * sizeof *out->points);
    copy_stores(r, out);
    return KNNLM_OK;
}

static knnlm_status tune(knnlm_model *model, const char *const *texts, size_t count,
                         const knnlm_tune_options *given, const kn_mixture_options *mix,
                         knnlm_tune_result *out) {
    kn_tune_options o = {.read = {.score = given->score, .context = given->context},
                         .split_said = given->split_given,
                         .mix = *mix,
                         .probes = given->probes,
                         .probe_count = given->probe_count,
                         .auto_probes = given->auto_probes,
                         .dry = given->dry_run,
                         .own = given->own,
                         .planned = given->planned,
                         .planned_context = given->planned_context};
    KN_TRY(api_take_texts(given->texts, given->split, &o.read.texts));
    kn_tune_result *r = kn_alloc(1, sizeof *r); // too large for a stack
    if (!r) return KNNLM_ENOMEM;
    knnlm_status status = kn_tune_run((kn_lm *)model, texts, count, &o, &given->progress, r);
    if (status == KNNLM_OK) status = tuned_result(r, out);
    free(r);
    return status;
}

knnlm_status knnlm_tune(knnlm_model *model, const char *const *texts, size_t count,
                        const knnlm_mixture_options *mixture, const knnlm_tune_options *options,
                        knnlm_tune_result *result) {
    kn_store_choice choices[KN_STORES_MAX];
    knnlm_tune_options given;
    kn_mixture_options mix;
    KN_TRY(API_TAKE(knnlm_tune_options, options, &given));
    KN_TRY(api_mixture_options(mixture, choices, &mix));
    if (!count && !given.own) return kn_fail(KNNLM_EINVAL, "no text to tune on");
    if (given.own && (count || mix.store_count != 1))
        return kn_fail(KNNLM_EINVAL, "`own` is of one store, and takes no texts");
    if (given.probe_count > KN_TUNE_PROBES)
        return kn_fail(KNNLM_EINVAL, "%zu numbers of `probes`: at most %d", given.probe_count,
                       KN_TUNE_PROBES);
    return tune(model, texts, count, &given, &mix, result);
}

void knnlm_tune_result_free(knnlm_tune_result *result) {
    free(result->points);
    *result = (knnlm_tune_result){0};
}
