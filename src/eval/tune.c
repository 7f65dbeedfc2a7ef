// Tunes: keeps the neighbours of a text, sweeps settings, writes the best into the store.
#include "eval/tune_parts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Fewer probes are chosen when they are as good but for this.
#define AS_GOOD 1.001
// More are, as long as a search costs no more than this part of the model's work: a multiplication of a
// search, with all that belongs to it, takes as long as so many of the model's.
#define NEARLY_FREE 0.1
#define SEARCH_WORK 4

// ---------------------------------------------------------------- keeping

// The model's probability of a token is never 0, but may be too small for f32.
static float probability(double log_p) {
    return fmaxf(FLT_MIN, (float)exp(log_p));
}

static void keep_values(kn_tuning *t, size_t store, const kn_neighborhood *n) {
    size_t k = t->kept[store].k;
    if (t->n % t->seen_step) return;
    memcpy(t->values[store] + t->n / t->seen_step * k, n->values, kn_min(n->count, k) * sizeof *n->values);
}

knnlm_status kn_tuning_take(void *context, const kn_scored *b) {
    kn_tuning *t = context;
    if (b->count > t->capacity - t->n) return kn_fail(KNNLM_EDATA, "the text has changed while it was read");
    for (size_t i = 0; i < b->count; i++, t->n++) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(b->neighbors, i, found);
        t->lm[t->n] = probability((double)b->lm[i]);
        t->entropies[t->n] = b->entropies[i];
        t->first[t->n] = b->tokens[i].position == 0;
        for (size_t s = 0; s < t->m->count; s++) {
            KN_TRY(kn_kept_add(&t->kept[s], &found[s].near, b->tokens[i].token));
            keep_values(t, s, &found[s].near);
            t->beginnings[s][t->n] = found[s].begins;
        }
        for (size_t c = 0; c < t->cache_temperature_count; c++) {
            double p = b->cache[c * b->count + i];
            t->cache[c * t->capacity + t->n] = isnan(p) ? t->lm[t->n] : (float)exp(p);
        }
    }
    return KNNLM_OK;
}

// What a text of so many tokens takes.
static uint64_t bytes_kept(const kn_tuning *t, uint64_t tokens) {
    uint64_t bytes = tokens * sizeof(float) * (2 + t->cache_temperature_count + KN_TUNE_GROUP * KN_KEPT_KS);
    for (size_t s = 0; s < t->m->count; s++)
        bytes += kn_kept_bytes((size_t)tokens, t->m->stores[s].k) + tokens * sizeof(float) +
                 kn_min((size_t)tokens, KN_TUNE_SEEN) * t->m->stores[s].k * sizeof(int32_t);
    return bytes;
}

knnlm_status kn_tuning_room(kn_tuning *t) {
    t->lm = kn_alloc(t->capacity, sizeof *t->lm);
    t->entropies = kn_alloc(t->capacity, sizeof *t->entropies);
    t->first = kn_alloc(t->capacity, sizeof *t->first);
    t->swept = kn_alloc(t->capacity * KN_TUNE_GROUP * KN_KEPT_KS, sizeof *t->swept);
    if (!t->lm || !t->entropies || !t->first || !t->swept) return KNNLM_ENOMEM;
    if (t->cache_temperature_count &&
        !(t->cache = kn_alloc(t->capacity * t->cache_temperature_count, sizeof *t->cache)))
        return KNNLM_ENOMEM;
    t->seen_step = (t->capacity + KN_TUNE_SEEN - 1) / KN_TUNE_SEEN;
    for (size_t s = 0; s < t->m->count; s++) {
        t->values[s] = kn_alloc(kn_min(t->capacity, KN_TUNE_SEEN) * t->m->stores[s].k, sizeof **t->values);
        if (!t->values[s]) return KNNLM_ENOMEM;
        KN_TRY(kn_kept_init(&t->kept[s], t->capacity, t->m->stores[s].k));
        t->knn[s] = kn_alloc(t->capacity, sizeof **t->knn);
        t->beginnings[s] = kn_alloc(t->capacity, sizeof **t->beginnings);
        if (!t->knn[s] || !t->beginnings[s]) return KNNLM_ENOMEM;
    }
    return KNNLM_OK;
}

void kn_tuning_free(kn_tuning *t) {
    for (size_t s = 0; s < KN_STORES_MAX; s++) {
        kn_kept_free(&t->kept[s]);
        free(t->values[s]);
        free(t->knn[s]);
        free(t->beginnings[s]);
    }
    free(t->lm);
    free(t->entropies);
    free(t->first);
    free(t->cache);
    free(t->swept);
}

// ---------------------------------------------------------------- the text

static knnlm_status count_records(void *context, const kn_records *r) {
    *(uint64_t *)context += r->count;
    return KNNLM_OK;
}

static knnlm_status plan(kn_tuning *t, kn_lm *lm, const char *const *paths, size_t count,
                         const kn_tune_options *o, const kn_read_options *read) {
    kn_read_options tokens_alone = *read;
    tokens_alone.texts.skipped = NULL; // the search, which comes next, tells it
    kn_read_totals totals;
    uint64_t tokens = 0, memory = kn_memory_total() / 4 * 3;
    if (kn_documents_once(paths, count))
        return kn_fail(KNNLM_EINVAL, "the text is read twice: name files, not - or a pipe");
    KN_TRY(kn_read_texts(lm, paths, count, &tokens_alone, NULL, NULL, count_records, &tokens, &totals));
    if (!tokens) return kn_fail(KNNLM_EDATA, "%s: no text to tune on", paths[0]);
    uint64_t bytes = bytes_kept(t, tokens);
    if (o->planned) o->planned(o->planned_context, tokens, bytes);
    if (bytes > memory)
        return kn_fail(
            KNNLM_ENOMEM,
            "the neighbours of %.3g tokens take %.3g GB, of %.3g that may be used: give less text, or a "
            "smaller -k",
            (double)tokens, (double)bytes / 1e9, (double)memory / 1e9);
    t->capacity = (size_t)tokens;
    return kn_tuning_room(t);
}

// Distances of states, and so temperatures, differ by powers of ten between models.
static void choose_cache_temperatures(kn_tuning *t, const kn_tune_options *o) {
    bool bounded = t->m->count && kn_distance_form_of(t->m->stores[0].distance)->bounded;
    if (!t->m->cache.size) return;
    t->cache_temperature_count = KN_TUNE_TEMPERATURES;
    for (size_t i = 0; i < KN_TUNE_TEMPERATURES; i++)
        t->cache_temperatures[i] = ldexp(1, (int)i - (bounded ? 12 : 3));
    if (isnan(o->mix.cache_temperature)) return;
    t->cache_temperatures[0] = o->mix.cache_temperature;
    t->cache_temperature_count = 1;
}

static knnlm_status search_own(kn_tuning *t, kn_lm *lm) {
    double begun = kn_seconds();
    KN_TRY(kn_tune_pieces(lm, kn_tune_own_tokens(lm, t->m->stores[0].store), false, t));
    t->out->totals.read.tokens = t->n;
    t->out->seconds_search = kn_seconds() - begun;
    return t->n ? KNNLM_OK : kn_fail(KNNLM_EDATA, "%s: no text to tune on", t->m->stores[0].store->path);
}

static knnlm_status search(kn_tuning *t, kn_lm *lm, const char *const *paths, size_t count,
                           const kn_tune_options *o, const kn_progress *progress) {
    kn_pass_options pass = {.read = o->read, .entropies = true, .neighbors_alone = true};
    if (!o->split_said) pass.read.texts.split = t->m->split;
    choose_cache_temperatures(t, o);
    pass.cache_temperatures = t->cache_temperatures;
    pass.cache_temperature_count = t->cache_temperature_count;
    KN_TRY(plan(t, lm, paths, count, o, &pass.read));
    KN_TRY(kn_pass_texts(lm, t->mixture, paths, count, &pass, progress, kn_tuning_take, t, &t->out->totals));
    t->out->seconds_search = t->out->totals.seconds_search;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- choosing

// Multiplications of a search by the way i, by the lists' mean length: no clock, so that the choice can be
// repeated.
static double search_work(const kn_tuning *t, size_t i) {
    const kn_index_info *x = kn_datastore_describe(kn_mixture_datastore(t->mixture, i))->index;
    double d = (double)t->m->stores[i].store->settings.dimension;
    double part = t->m->stores[i].looked ? (double)t->m->stores[i].looked / (double)x->lists : 1;
    return SEARCH_WORK * d * part * (double)(x->listed + x->flat);
}

// Among the ways to search one store: the fewest probes that are as good as any, or the most that are nearly
// free.
static size_t choose_probes(const kn_tuning *t) {
    const kn_tune_store *s = t->out->stores;
    size_t best = 0;
    double ppl = INFINITY;
    for (size_t i = 0; i < t->m->count; i++) ppl = fmin(ppl, s[i].best.ppl);
    for (size_t i = 0; i < t->m->count; i++) {
        bool fewer = s[best].best.ppl > AS_GOOD * ppl || search_work(t, i) < search_work(t, best);
        if (s[i].best.ppl <= AS_GOOD * ppl && fewer) best = i;
    }
    for (size_t i = 0; i < t->m->count; i++)
        if (s[i].best.ppl < s[best].best.ppl && search_work(t, i) <= NEARLY_FREE * t->model_work) best = i;
    return best;
}

// Perplexity by the weight of the one store, its cache's weight kept.
static knnlm_status draw_lambdas(kn_tuning *t, size_t store, double cache_lambda) {
    const float *parts[3] = {t->lm, t->knn[store], kn_tuning_cache(t)};
    for (size_t i = 0; i < KNNLM_TUNE_CURVE; i++) {
        double lambda = (double)i / (KNNLM_TUNE_CURVE - 1), mean;
        double weights[3] = {1 - lambda - cache_lambda, lambda, cache_lambda};
        t->out->lambdas[i] = lambda;
        t->out->by_lambda[i] = NAN;
        if (weights[0] < -1e-12) continue;
        weights[0] = fmax(0, weights[0]);
        KN_TRY(kn_mean_log(parts, parts[2] ? 3 : 2, t->n, weights, &mean));
        t->out->by_lambda[i] = exp(-mean);
    }
    return KNNLM_OK;
}

// Text of other kinds, and an echo of the store's own, a quarter of the text (more where it is short): what
// the text may lack.
static knnlm_status tune_gate(kn_lm *lm, kn_tuning *t, size_t store) {
    kn_tuning *others = kn_alloc(2, sizeof *others);
    if (!others) return KNNLM_ENOMEM;
    kn_tuning *foreign = &others[0], *echo = &others[1];
    size_t tokens = kn_min(kn_tune_own_tokens(lm, t->m->stores[store].store),
                           kn_max(t->n / 4, kn_min(t->n, KN_TUNE_FEW)));
    *echo = (kn_tuning){.mixture = t->mixture, .m = t->m, .progress = t->progress};
    knnlm_status status = kn_tune_foreign(lm, t, foreign);
    if (status == KNNLM_OK) status = kn_tune_pieces(lm, tokens, true, echo);
    if (status == KNNLM_OK)
        status = kn_tune_gate(t, foreign, echo, store, &t->out->tuned.seen, &t->out->tuned.gate);
    kn_tuning_free(foreign);
    kn_tuning_free(echo);
    free(others);
    return status;
}

static knnlm_status remember(kn_lm *lm, kn_tuning *t, size_t store, double lambda, bool adapts, bool quick) {
    const knnlm_tune_point *best = &t->out->stores[store].best;
    kn_store_tuned *tuned = &t->out->tuned;
    *tuned = (kn_store_tuned){.known = true,
                              .lambda = lambda,
                              .temperature = best->temperature,
                              .k = (int64_t)best->k,
                              .probes = (int64_t)t->m->stores[store].probes,
                              .codes = t->m->stores[store].codes,
                              .quick = quick,
                              .entries = (int64_t)t->m->stores[store].store->entries,
                              .tokens = (int64_t)t->n,
                              .text_count = t->out->totals.text_count};
    if (t->cache)
        tuned->cache =
            (kn_store_cache){(int64_t)t->m->cache.size, t->out->cache_lambda, t->out->cache_temperature};
    memcpy(tuned->texts, t->out->totals.texts, sizeof tuned->texts);
    KN_TRY(kn_tune_see(t, store, best->temperature, best->k, &tuned->seen));
    KN_TRY(draw_lambdas(t, store, t->out->cache_lambda));
    if (!adapts) return KNNLM_OK;
    KN_TRY(kn_tune_bins(t, store, lambda, t->out->cache_lambda, &tuned->bins));
    return tune_gate(lm, t, store);
}

// All weights together, of the stores [first, first + count) and the cache.
static knnlm_status weigh(kn_tuning *t, size_t first, size_t count, double *weights) {
    const float *parts[KN_PARTS_MAX] = {t->lm};
    double mean;
    for (size_t i = 0; i < count; i++) parts[1 + i] = t->knn[first + i];
    parts[1 + count] = kn_tuning_cache(t);
    KN_TRY(kn_fit_weights(parts, 1 + count + (t->cache ? 1 : 0), t->n, weights, &mean));
    t->out->ppl = exp(-mean);
    KN_TRY(kn_tune_skips(t, parts, 1 + count + (t->cache ? 1 : 0), t->cache, weights));
    if (t->cache) {
        t->out->cache_lambda = weights[1 + count];
        t->out->cache_temperature = t->cache_temperatures[t->best_cache];
    }
    for (size_t i = 0; i < count; i++) t->out->stores[first + i].lambda = weights[1 + i];
    return KNNLM_OK;
}

static knnlm_status tune_cache(kn_tuning *t, bool one) {
    const float *parts[2] = {t->lm};
    double weights[2], mean;
    if (!t->cache) return KNNLM_OK;
    KN_TRY(kn_tune_cache(t));
    parts[1] = kn_tuning_cache(t);
    KN_TRY(kn_fit_weights(parts, 2, t->n, weights, &mean));
    t->out->ppl_cache = exp(-mean);
    for (size_t s = 0; one && s < t->m->count; s++) KN_TRY(kn_tune_sweep(t, s, true));
    return KNNLM_OK;
}

// A store that finds nothing says nothing about lambda, temperature and k.
static knnlm_status check_found(const kn_tuning *t) {
    for (size_t s = 0; s < t->m->count; s++) {
        size_t i = 0;
        while (i < t->n && !t->kept[s].counts[i]) i++;
        if (i == t->n)
            return kn_fail(KNNLM_EINVAL,
                           "%s: no token has a neighbour beside the text itself: tune on another",
                           t->m->stores[s].store->path);
    }
    return KNNLM_OK;
}

static knnlm_status choose(kn_lm *lm, kn_tuning *t, const kn_tune_options *o) {
    const float *alone[] = {t->lm};
    double weights[KN_PARTS_MAX] = {1}, mean;
    bool one = o->mix.store_count == 1;
    KN_TRY(check_found(t));
    KN_TRY(kn_mean_log(alone, 1, t->n, weights, &mean));
    t->out->ppl_lm = exp(-mean);
    for (size_t s = 0; s < t->m->count; s++) KN_TRY(kn_tune_sweep(t, s, false));
    KN_TRY(tune_cache(t, one));
    size_t best = one ? choose_probes(t) : 0, count = one ? 1 : t->m->count;
    KN_TRY(weigh(t, best, count, weights));
    if (!one) return KNNLM_OK;
    t->out->stores[0] = t->out->stores[best]; // the others were other ways to search it
    t->out->store_count = 1;
    return remember(lm, t, best, weights[1], !o->mix.fixed, o->own);
}

// ---------------------------------------------------------------- the run

static knnlm_status write_tuned(const char *path, const kn_store_tuned *tuned) {
    kn_store_writer *w;
    if (kn_shards_exist(path)) return kn_shards_tune(path, tuned);
    KN_TRY(kn_store_write(path, &w));
    kn_store_writer_tune(w, tuned);
    knnlm_status status = kn_store_writer_amend(w);
    kn_store_writer_close(w);
    return status;
}

static knnlm_status tune(kn_lm *lm, const kn_mixture *m, const char *const *paths, size_t count,
                         const kn_tune_options *o, const kn_progress *progress, kn_tune_result *out) {
    kn_tuning *t = kn_alloc(1, sizeof *t);
    if (!t) return KNNLM_ENOMEM;
    const kn_mixture_info *info = kn_mixture_describe(m);
    *t = (kn_tuning){
        .mixture = m,
        .m = info,
        .progress = progress,
        .out = out,
        .given_temperature = o->mix.temperature,
        .model_work = (double)kn_lm_describe(lm)->parameters,
    };
    out->store_count = info->count;
    for (size_t s = 0; s < info->count; s++)
        snprintf(out->stores[s].path, sizeof out->stores[s].path, "%s", info->stores[s].store->path);
    knnlm_status status = o->own ? search_own(t, lm) : search(t, lm, paths, count, o, progress);
    double begun = kn_seconds();
    for (size_t s = 0; s < info->count; s++) out->stores[s].seconds = out->totals.seconds_stores[s];
    if (status == KNNLM_OK) status = choose(lm, t, o);
    out->seconds_sweep = kn_seconds() - begun;
    kn_tuning_free(t);
    free(t);
    return status;
}

// A store tuned for another distance than its own would mislead who uses it as it is.
static bool to_be_written(const kn_tune_options *o, const kn_tune_result *r) {
    return r->tuned.known && !o->dry && o->mix.distance < 0;
}

// Half, as many as and twice as many lists as the index of the one store says; none: it has no index.
static knnlm_status try_some_probes(const kn_tune_options *o, int64_t probes[KN_TUNE_PROBES], size_t *count) {
    kn_store *store;
    kn_recipe recipe;
    *count = 0;
    KN_TRY(kn_store_open(o->mix.stores[0].path, &store));
    knnlm_status status = kn_recipe_of(store, &recipe);
    kn_store_close(store);
    if (status != KNNLM_OK || recipe.lists < 4 || recipe.probes < 2) return status;
    probes[0] = recipe.probes / 2;
    probes[1] = recipe.probes;
    probes[2] = kn_min(2 * recipe.probes, recipe.lists);
    *count = 3;
    return KNNLM_OK;
}

// The one store once for every number of probes.
static knnlm_status open_mixture(kn_lm *lm, const kn_tune_options *o, kn_mixture **m) {
    kn_mixture_options mix = o->mix;
    kn_store_choice ways[KN_TUNE_PROBES];
    int64_t some[KN_TUNE_PROBES];
    const int64_t *probes = o->probes;
    size_t count = o->probe_count;
    if (!mix.store_count && mix.cache <= 0)
        return kn_fail(KNNLM_EINVAL, "nothing to tune: give a store, or a cache");
    if (count && mix.store_count != 1)
        return kn_fail(KNNLM_EINVAL, "probes are tried with one store at a time");
    if (!count && o->auto_probes && mix.store_count == 1 && !mix.probes) {
        KN_TRY(try_some_probes(o, some, &count));
        probes = some;
    }
    for (size_t i = 0; i < count; i++) {
        ways[i] = mix.stores[0];
        ways[i].probes = probes[i];
    }
    mix.fixed = true; // as if nothing had been tuned before, but for probes
    mix.exact = !mix.codes;
    mix.lambda = mix.cache_lambda = 0;
    mix.cache = mix.cache > 0 ? mix.cache : 0;
    if (!mix.k) mix.k = 1024;
    if (count) {
        mix.stores = ways;
        mix.store_count = count;
    }
    return kn_mixture_open(lm, &mix, m);
}

// Another process that writes to the store is better met before the work than after it.
static knnlm_status try_writing(const kn_tune_options *o) {
    kn_store_writer *w;
    if (o->dry || o->mix.store_count != 1 || o->mix.distance >= 0) return KNNLM_OK;
    if (kn_shards_exist(o->mix.stores[0].path)) return KNNLM_OK; // each has a writer of its own
    KN_TRY(kn_store_write(o->mix.stores[0].path, &w));
    kn_store_writer_close(w);
    return KNNLM_OK;
}

knnlm_status kn_tune_run(kn_lm *lm, const char *const *paths, size_t count, const kn_tune_options *o,
                         const kn_progress *progress, kn_tune_result *out) {
    kn_mixture *m;
    double begun = kn_seconds();
    *out = (kn_tune_result){.ppl_cache = NAN,
                            .ppl_adaptive = NAN,
                            .ppl_adaptive_checked = NAN,
                            .ppl_gate = NAN,
                            .ppl_gate_checked = NAN,
                            .ppl_foreign = NAN,
                            .ppl_foreign_lm = NAN};
    KN_TRY(open_mixture(lm, o, &m));
    knnlm_status status = try_writing(o);
    if (status == KNNLM_OK) status = tune(lm, m, paths, count, o, progress, out);
    kn_mixture_close(m);
    if (status == KNNLM_OK && to_be_written(o, out)) {
        status = write_tuned(o->mix.stores[0].path, &out->tuned);
        out->written = status == KNNLM_OK;
    }
    out->seconds = kn_seconds() - begun;
    return status;
}
