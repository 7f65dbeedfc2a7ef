// Scores texts: the sums, and what they mean.
#include "eval/eval.h"

#include "base/file.h"
#include "eval/report_maker.h"
#include "eval/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct scoring {
    const kn_mixture *mixture;
    const kn_mixture_info *m; // of it
    double nll_lm, nll;
    double lambdas[KN_STORES_MAX];
    uint64_t found[KN_STORES_MAX]; // tokens that some neighbour has
    const kn_eval_options *o;
    kn_rows *rows;           // NULL: not wanted
    kn_report_maker *report; // likewise
    kn_eval_ngram *ngram;    // likewise
} scoring;

// ---------------------------------------------------------------- a batch

static double p_of(const scoring *s, const kn_scored *b, size_t i) {
    double p = b->predictions[i].p;
    return s->ngram ? kn_eval_ngram_mix(s->ngram, i, p) : p;
}

static void add_up(scoring *s, const kn_scored *b) {
    for (size_t i = 0; i < b->count; i++) {
        s->nll_lm -= (double)b->lm[i];
        s->nll -= p_of(s, b, i);
        for (size_t j = 0; j < s->m->count; j++) {
            s->lambdas[j] += b->predictions[i].lambdas[j];
            s->found[j] += b->predictions[i].knn[j] > -INFINITY;
        }
    }
}

knnlm_token_row kn_eval_row(const kn_mixture *m, const kn_scored *b, size_t i) {
    const kn_scored_token *t = &b->tokens[i];
    knnlm_token_row row = {.document = b->names[t->document],
                           .position = t->position,
                           .offset = t->offset,
                           .token = t->token,
                           .lm = (double)b->lm[i],
                           .knn = NAN,
                           .cache = NAN,
                           .p = (double)b->lm[i],
                           .nearest = NAN,
                           .ngram = NAN,
                           .entropy = b->entropies ? (double)b->entropies[i] : NAN};
    kn_row_neighbors found[KN_STORES_MAX];
    if (!kn_mixture_describe(m)->any) return row;
    kn_predictor_neighbors(b->neighbors, i, found);
    row.knn = kn_prediction_knn(m, &b->predictions[i]);
    row.cache = b->cache ? b->cache[i] : NAN;
    row.p = b->predictions[i].p;
    row.lambda = kn_prediction_lambda(m, &b->predictions[i]);
    row.nearest = kn_nearest(m, found);
    return row;
}

static knnlm_status tell_rows(const scoring *s, const kn_scored *b) {
    for (size_t i = 0; i < b->count; i++) {
        knnlm_token_row row = kn_eval_row(s->mixture, b, i);
        row.p = p_of(s, b, i);
        if (s->ngram) row.ngram = kn_eval_ngram_logprob(s->ngram, i);
        if (!s->o->row(s->o->row_context, &row)) return kn_fail(KNNLM_ESTOPPED, "stopped while scoring");
    }
    return KNNLM_OK;
}

static knnlm_status take(void *context, const kn_scored *b) {
    scoring *s = context;
    if (s->ngram) KN_TRY(kn_eval_ngram_take(s->ngram, b));
    add_up(s, b);
    if (s->rows) KN_TRY(kn_rows_put(s->rows, b, s->ngram));
    if (s->o->row) KN_TRY(tell_rows(s, b));
    return s->report ? kn_report_maker_take(s->report, b) : KNNLM_OK;
}

// ---------------------------------------------------------------- the result

static knnlm_score score_of(double nll, const kn_read_totals *t) {
    return (knnlm_score){.nll = nll,
                         .ppl = exp(nll / (double)t->tokens),
                         .ppl_word = t->words ? exp(nll / (double)t->words) : NAN,
                         .bits_per_byte = t->bytes ? nll / log(2.0) / (double)t->bytes : NAN};
}

static knnlm_eval_store describe_store(const kn_mixture_store *s, const scoring *by, size_t number,
                                       const kn_pass_totals *totals) {
    const kn_store_info *info = s->store;
    double tokens = (double)totals->read.tokens;
    knnlm_eval_store out = {.entries = info->entries - info->removed_entries,
                            .lambda = by->lambdas[number] / tokens,
                            .temperature = s->temperature,
                            .k = s->k,
                            .probes = s->looked,
                            .codes = s->of_codes,
                            .adaptive = s->adaptive,
                            .gated = s->gated,
                            .fallback = s->fallback && !s->gated,
                            .tuned = s->tuned,
                            .tuned_here = s->tuned && totals->tuned_on[number],
                            .distance = s->distance,
                            .found = (double)by->found[number] / tokens};
    snprintf(out.path, sizeof out.path, "%s", info->path);
    return out;
}

const char *kn_eval_weighed(const knnlm_eval_store *s) {
    if (s->gated) return " in the mean (by its gate)";
    if (s->adaptive) return s->fallback ? " in the mean (by bins, falling back)" : " in the mean (by bins)";
    return s->fallback ? " in the mean (falling back)" : "";
}

static void summarise(const scoring *s, kn_eval_result *out) {
    const kn_mixture_info *m = s->m;
    const kn_read_totals *t = &out->totals.read;
    out->lm = score_of(s->nll_lm, t);
    out->mixed = score_of(s->nll, t);
    out->seconds = t->seconds;
    out->seconds_search = out->totals.seconds_search;
    out->seconds_lm = t->seconds - out->seconds_search;
    out->tokens_per_second = (double)t->tokens / t->seconds;
    out->store_count = m->count;
    for (size_t i = 0; i < m->count; i++) out->stores[i] = describe_store(&m->stores[i], s, i, &out->totals);
    out->cache = m->cache.size;
    out->skip_entropy = m->count ? m->skip_entropy : 0;
    out->skipped = (double)out->totals.skipped / (double)t->tokens;
    out->cache_lambda = m->cache.lambda;
    out->cache_temperature = m->cache.temperature;
    if (!s->ngram) return;
    double nll;
    out->ngram = kn_eval_ngram_tell(s->ngram, t->tokens, &nll);
    out->ngram.score = score_of(nll, t);
}

// ---------------------------------------------------------------- the run

static knnlm_status score(scoring *s, kn_lm *lm, const char *const *paths, size_t count,
                          const kn_eval_options *o, const kn_progress *progress, kn_eval_result *out) {
    bool shown = s->rows || s->report || o->row;
    kn_pass_options pass = {.read = o->read, .entropies = s->m->any && shown, .predictions_alone = !shown};
    KN_TRY(kn_read_resolve(lm, &pass.read));
    if (!o->split_said) pass.read.texts.split = s->m->split;
    out->split = pass.read.texts.split;
    out->stream = pass.read.stream;
    out->score = pass.read.score;
    out->context = pass.read.context;
    KN_TRY(kn_eval_ngram_open(lm, &o->ngram, &pass.read.texts, progress, &s->ngram));
    KN_TRY(kn_pass_texts(lm, s->mixture, paths, count, &pass, progress, take, s, &out->totals));
    if (!out->totals.read.tokens) return kn_fail(KNNLM_EDATA, "%s: no text to score", paths[0]);
    summarise(s, out);
    return KNNLM_OK;
}

static knnlm_status open_outputs(scoring *s, const kn_lm *lm, const kn_eval_options *o) {
    if (o->report && o->ngram.count)
        return kn_fail(KNNLM_EINVAL, "%s: a report tells of neighbours, and not of n-grams", o->report);
    if (o->per_token) KN_TRY(kn_rows_open(o->per_token, lm, s->mixture, o->ngram.count, &s->rows));
    if (o->report) KN_TRY(kn_report_maker_open(o->report, lm, s->mixture, o->report_tokens, &s->report));
    return KNNLM_OK;
}

static knnlm_status close_outputs(scoring *s, const kn_eval_result *result, knnlm_status status) {
    if (s->rows) status = kn_rows_close(s->rows, status);
    if (s->report) status = kn_report_maker_close(s->report, result, status);
    return status;
}

static knnlm_status run(kn_lm *lm, const kn_mixture *m, const char *const *paths, size_t count,
                        const kn_eval_options *o, const kn_progress *progress, kn_eval_result *out) {
    scoring s = {.mixture = m, .m = kn_mixture_describe(m), .o = o};
    knnlm_status status = open_outputs(&s, lm, o);
    if (status == KNNLM_OK) status = score(&s, lm, paths, count, o, progress, out);
    kn_eval_ngram_close(s.ngram);
    return close_outputs(&s, out, status);
}

knnlm_status kn_eval_run(kn_lm *lm, const char *const *paths, size_t count, const kn_eval_options *o,
                         const kn_progress *progress, kn_eval_result *out) {
    kn_mixture *m;
    *out = (kn_eval_result){0};
    KN_TRY(kn_mixture_open(lm, &o->mix, &m));
    knnlm_status status = run(lm, m, paths, count, o, progress, out);
    kn_mixture_close(m);
    return status;
}
