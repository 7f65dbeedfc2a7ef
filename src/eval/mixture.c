#include "eval/mixture.h"

#include "base/threads.h"
#include "build/build.h"
#include "build/projection.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- opening a store

static const kn_store_tuned *tuned_of(const kn_mixed_store *s) {
    return &kn_store_describe(s->store)->tuned;
}

// All lists at full precision are all entries: those are searched faster without lists.
static knnlm_status open_index(kn_mixed_store *s, const kn_mixture_options *o) {
    const kn_store_settings *set = &kn_store_describe(s->store)->settings;
    s->metric = o->metric < 0 ? set->distance : (kn_distance)o->metric;
    KN_TRY(kn_index_open_as(s->store, s->metric, true, &s->index));
    const kn_index_info *info = kn_index_describe(s->index);
    if (!info->lists || s->probes < info->lists || s->codes || !info->has_keys) return KNNLM_OK;
    kn_index_close(s->index);
    s->index = NULL;
    return kn_index_open_as(s->store, s->metric, false, &s->index);
}

// Imported stores may not know their vocabulary: no token may be beyond the model's.
static knnlm_status read_values(kn_mixed_store *s, const kn_lm *lm) {
    uint64_t entries = kn_store_describe(s->store)->entries;
    int32_t vocabulary = kn_lm_describe(lm)->vocabulary;
    s->values = kn_alloc((size_t)entries, sizeof *s->values);
    if (!s->values) return KNNLM_ENOMEM;
    KN_TRY(kn_store_tokens(s->store, 0, (size_t)entries, s->values));
    for (uint64_t i = 0; i < entries; i++)
        if (s->values[i] < 0 || s->values[i] >= vocabulary)
            return kn_fail(KNNLM_EINVAL, "%s: its entry %llu is token %d, but the model has %d",
                           kn_store_describe(s->store)->path, (unsigned long long)i, s->values[i],
                           vocabulary);
    return KNNLM_OK;
}

static knnlm_status find_beginnings(kn_mixed_store *s) {
    const kn_store_info *info = kn_store_describe(s->store);
    s->beginnings = kn_alloc((size_t)(info->entries / 64 + 1), sizeof *s->beginnings);
    if (!s->beginnings) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < info->documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(s->store, i, &d) == KNNLM_OK && d.count) // one that is damaged is not found
            s->beginnings[d.first / 64] |= (uint64_t)1 << d.first % 64;
    }
    return KNNLM_OK;
}

// Another metric has another temperature: what was tuned is not of it.
static bool is_tuned(const kn_mixed_store *s, const kn_mixture_options *o) {
    kn_distance own = kn_store_describe(s->store)->settings.distance;
    return tuned_of(s)->known && (o->metric < 0 || (kn_distance)o->metric == own);
}

static void choose_settings(kn_mixed_store *s, const kn_mixture_options *o, const kn_store_choice *choice) {
    const kn_store_tuned *t = tuned_of(s);
    bool tuned = s->tuned = is_tuned(s, o);
    bool said = !isnan(o->lambda) || !isnan(choice->weight);
    s->k = (size_t)(choice->k ? choice->k : o->k ? o->k : tuned && t->k ? t->k : 1024);
    s->k = kn_least(s->k, (size_t)kn_store_describe(s->store)->entries); // room for more would be in vain
    s->probes = (uint32_t)kn_least(UINT32_MAX, (size_t)(choice->probes ? choice->probes
                                                        : o->probes    ? o->probes
                                                        : tuned        ? t->probes
                                                                       : 0));
    s->temperature = tuned ? t->temperature : 1;
    if (!isnan(o->temperature)) s->temperature = o->temperature;
    if (!isnan(choice->temperature)) s->temperature = choice->temperature;
    s->lambda = !isnan(o->lambda) ? o->lambda : tuned ? t->lambda : 0.25;
    s->lambda /= (double)o->store_count; // what is not said of one store is of all together
    if (!isnan(choice->weight)) s->lambda = choice->weight;
    s->fallback = o->fallback;
    s->codes = o->codes || (tuned && t->codes && !o->exact);
    if (tuned && t->bins.distances && !said && !o->fixed && o->store_count == 1)
        s->bins = (kn_bins){t->bins.distances, t->bins.entropies, t->bins.distance_edges,
                            t->bins.entropy_edges, t->bins.lambdas};
}

// Of nothing, so that what cannot be searched is refused before the model has read thousands of tokens.
static knnlm_status try_search(const kn_mixed_store *s) {
    kn_search_options o = {.k = s->k, .probes = s->probes, .codes = s->codes};
    return kn_index_search(s->index, NULL, 0, &o, &(kn_neighbors){0});
}

typedef struct text_check {
    const kn_store *store;
    _Atomic size_t damaged; // a segment; SIZE_MAX: none
} text_check;

static void check_text(void *context, size_t segment, int worker) {
    text_check *c = context;
    (void)worker;
    if (kn_store_check_text(c->store, segment) != KNNLM_OK) c->damaged = segment;
}

// Neighbours are worth having although a few documents of a store are lost, but nobody may take the figures
// for those of the whole.
static void warn_damaged(const kn_mixed_store *s, const kn_mixture_options *o) {
    text_check c = {.store = s->store, .damaged = SIZE_MAX};
    const kn_store_info *info = kn_store_describe(s->store);
    char text[1024];
    if (!o->warn) return;
    kn_parallel(info->segments, check_text, &c);
    if (c.damaged != SIZE_MAX && kn_store_check_text(s->store, c.damaged) != KNNLM_OK)
        o->warn(knnlm_message());
    if (!s->known.damaged) return;
    snprintf(text, sizeof text,
             "%s: %" PRIu64 " of %" PRIu64 " documents %s damaged and left out (knnlm verify --repair)",
             info->path, s->known.damaged, info->documents, s->known.damaged == 1 ? "is" : "are");
    o->warn(text);
}

static knnlm_status open_store(kn_mixed_store *s, const kn_lm *lm, const kn_mixture_options *o,
                               const kn_store_choice *choice) {
    KN_TRY(kn_store_open(choice->path, &s->store));
    KN_TRY(kn_build_check_model(s->store, lm));
    const kn_store_info *info = kn_store_describe(s->store);
    if (info->entries == info->removed_entries)
        return kn_fail(KNNLM_EINVAL, "%s: the store is empty", choice->path);
    choose_settings(s, o, choice);
    KN_TRY(open_index(s, o));
    KN_TRY(try_search(s));
    KN_TRY(kn_projection_of(s->store, &s->pca));
    KN_TRY(read_values(s, lm));
    KN_TRY(find_beginnings(s));
    if (info->has_tokenizer) KN_TRY(kn_build_open_tokenizer(s->store, &s->tokenizer));
    KN_TRY(kn_known_load(&s->known, s->store));
    warn_damaged(s, o);
    return KNNLM_OK;
}

void kn_mixed_store_close(kn_mixed_store *s) {
    kn_known_free(&s->known);
    kn_tokenizer_free(s->tokenizer);
    kn_pca_free(&s->pca);
    kn_index_close(s->index);
    if (s->store) kn_store_close(s->store);
    free(s->values);
    free(s->beginnings);
    *s = (kn_mixed_store){0};
}

knnlm_status kn_mixed_store_open(const kn_lm *lm, const kn_mixture_options *o, const kn_store_choice *choice,
                                 kn_mixed_store *out) {
    *out = (kn_mixed_store){0};
    knnlm_status status = open_store(out, lm, o, choice);
    if (status != KNNLM_OK) kn_mixed_store_close(out);
    return status;
}

// ---------------------------------------------------------------- all of them

static kn_split split_of(const kn_store *store) {
    const char *name = kn_store_describe(store)->settings.split;
    return strcmp(name, kn_split_names[KN_SPLIT_WIKI]) == 0 ? KN_SPLIT_WIKI : KN_SPLIT_FILE;
}

// One pass of the model has one tap.
static knnlm_status share_tap(kn_mixture *m, size_t number) {
    const kn_store_info *first = kn_store_describe(m->stores[0].store),
                        *other = kn_store_describe(m->stores[number].store);
    if (number == 0) {
        m->split = split_of(m->stores[0].store);
        return *first->settings.tap ? kn_tap_parse(first->settings.tap, &m->tap) : KNNLM_OK;
    }
    if (strcmp(first->settings.tap, other->settings.tap) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL,
                   "%s has keys of %s, %s of %s: only stores of one tap can be searched together",
                   first->path, first->settings.tap, other->path, other->settings.tap);
}

static void choose_cache(kn_mixture *m, const kn_mixture_options *o) {
    bool tuned = m->count == 1 && is_tuned(&m->stores[0], o);
    const kn_store_cache *t = tuned ? &tuned_of(&m->stores[0])->cache : &(kn_store_cache){0};
    m->cache.size = (size_t)(o->cache >= 0 ? o->cache : t->size);
    m->cache.lambda = !isnan(o->cache_lambda) ? o->cache_lambda : t->size ? t->lambda : 0.1;
    m->cache.temperature = !isnan(o->cache_temperature) ? o->cache_temperature : t->size ? t->temperature : 1;
    if (!m->cache.size) m->cache.lambda = 0;
}

static knnlm_status check_weights(const kn_mixture *m) {
    double sum = m->cache.lambda;
    for (size_t i = 0; i < m->count; i++) sum += m->stores[i].lambda;
    if (sum <= 1 + 1e-12) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "the weights of stores and cache are in sum %g, above 1%s", sum,
                   m->cache.size ? " (--cache 0 leaves the cache out)" : "");
}

static knnlm_status open_all(kn_mixture *m, const kn_lm *lm, const kn_mixture_options *o) {
    if (o->store_count > KN_STORES_MOST)
        return kn_fail(KNNLM_EINVAL, "%zu stores: at most %d at a time", o->store_count, KN_STORES_MOST);
    for (size_t i = 0; i < o->store_count; i++) {
        m->count = i + 1;
        KN_TRY(open_store(&m->stores[i], lm, o, &o->stores[i]));
        KN_TRY(share_tap(m, i));
    }
    choose_cache(m, o);
    return check_weights(m);
}

knnlm_status kn_mixture_open(const kn_lm *lm, const kn_mixture_options *o, kn_mixture *out) {
    *out = (kn_mixture){.tap = KN_TAP_DEFAULT,
                        .include_self = o->include_self,
                        .width = (size_t)kn_lm_describe(lm)->key_width};
    knnlm_status status = open_all(out, lm, o);
    if (status != KNNLM_OK) kn_mixture_close(out);
    return status;
}

void kn_mixture_close(kn_mixture *m) {
    for (size_t i = 0; i < m->count; i++) kn_mixed_store_close(&m->stores[i]);
    *m = (kn_mixture){0};
}

uint32_t kn_mixed_store_probes(const kn_mixed_store *s) {
    const kn_index_info *info = kn_index_describe(s->index);
    uint32_t probes = s->probes ? s->probes : info->probes;
    return probes < info->lists ? probes : 0;
}

bool kn_mixture_any(const kn_mixture *m) {
    return m->count || m->cache.size;
}

bool kn_mixture_adapts(const kn_mixture *m) {
    return m->count == 1 && m->stores[0].bins.distances;
}

// ---------------------------------------------------------------- neighbours

knnlm_status kn_found_init(kn_found *f, size_t queries, size_t k) {
    size_t cells;
    *f = (kn_found){.k = k};
    if (!kn_mul(queries, k, &cells)) return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    f->ids = kn_alloc_aligned(cells, sizeof *f->ids);
    f->distances = kn_alloc_aligned(cells, sizeof *f->distances);
    f->values = kn_alloc_aligned(cells, sizeof *f->values);
    f->counts = kn_alloc(queries, sizeof *f->counts);
    f->entropies = kn_alloc(queries, sizeof *f->entropies);
    if (f->ids && f->distances && f->values && f->counts && f->entropies) return KNNLM_OK;
    kn_found_free(f);
    return KNNLM_ENOMEM;
}

void kn_found_free(kn_found *f) {
    kn_free_aligned(f->ids);
    kn_free_aligned(f->distances);
    kn_free_aligned(f->values);
    free(f->counts);
    free(f->entropies);
    *f = (kn_found){0};
}

typedef struct looking_up {
    const kn_mixed_store *s;
    kn_found *found;
    kn_value_share *scratch; // (threads, 2 k); NULL: entropies are not wanted
} looking_up;

static void look_up(void *context, size_t query, int worker) {
    const looking_up *l = context;
    kn_found *f = l->found;
    size_t row = query * f->k;
    for (size_t i = 0; i < f->counts[query]; i++) f->values[row + i] = l->s->values[f->ids[row + i]];
    if (!l->scratch) return;
    kn_neighborhood n = kn_found_at(f, query);
    f->entropies[query] =
        kn_neighborhood_entropy(&n, l->s->temperature, l->scratch + (size_t)worker * 2 * f->k);
}

static knnlm_status look_up_all(const kn_mixed_store *s, size_t n, kn_found *out) {
    looking_up l = {.s = s, .found = out};
    if (s->fallback && !(l.scratch = kn_alloc((size_t)kn_threads() * 2 * out->k, sizeof *l.scratch)))
        return KNNLM_ENOMEM;
    kn_parallel(n, look_up, &l);
    free(l.scratch);
    return KNNLM_OK;
}

knnlm_status kn_mixed_store_search(const kn_mixed_store *s, const float *states, size_t n,
                                   const kn_entry_range *exclude, size_t excludes, kn_found *out) {
    kn_search_options o = {
        .k = s->k, .probes = s->probes, .codes = s->codes, .exclude = exclude, .excludes = excludes};
    kn_neighbors neighbors = {out->ids, out->distances, out->counts};
    float *projected = s->pca.in ? kn_alloc_aligned(n * s->pca.out, sizeof *projected) : NULL;
    if (s->pca.in && !projected) return KNNLM_ENOMEM;
    if (projected) kn_pca_apply(&s->pca, states, n, projected);
    knnlm_status status = kn_index_search(s->index, projected ? projected : states, n, &o, &neighbors);
    kn_free_aligned(projected);
    return status == KNNLM_OK ? look_up_all(s, n, out) : status;
}

bool kn_mixed_store_same_search(const kn_mixed_store *a, const kn_mixed_store *b) {
    bool same_entropy = a->fallback == b->fallback && (!a->fallback || a->temperature == b->temperature);
    return a->store == b->store && a->index == b->index && a->k == b->k && a->probes == b->probes &&
           a->codes == b->codes && same_entropy;
}

// ---------------------------------------------------------------- probabilities

// Beyond what 95 tokens in 100 of the tuning text had; nothing is left as far beyond that as that is beyond
// the median.
static kn_fade beyond(const kn_store_range *r) {
    return (kn_fade){r->high, r->high + (r->high - r->median)};
}

// Distances are held against what tuning saw where they are the same ones; entropies where temperature and k
// are too, else against the most that so many neighbours can have.
static double trust(const kn_mixed_store *s, const kn_neighborhood *n, double knn_entropy) {
    const kn_store_tuned *t = tuned_of(s);
    bool seen = s->tuned && t->seen.known && s->codes == t->codes;
    bool alike = seen && s->temperature == t->temperature && (int64_t)s->k == t->k;
    double most = log((double)n->count);
    kn_fade far = seen ? beyond(&t->seen.distance) : (kn_fade){NAN, NAN};
    kn_fade uncertain = alike ? beyond(&t->seen.entropy) : (kn_fade){most / 2, most};
    return kn_fade_weight(&far, (double)n->distances[0]) * kn_fade_weight(&uncertain, knn_entropy);
}

// A beginning is as near as can be without being alike: it is not trusted more than the store as a whole.
static double lambda_by_bins(const kn_mixture *m, const kn_mixed_store *s, double nearest, double entropy,
                             bool beginning) {
    double lambda = fmin(kn_bins_lambda(&s->bins, nearest, entropy), 1 - m->cache.lambda);
    return beginning ? fmin(lambda, s->lambda) : lambda;
}

static double lambda_of(const kn_mixture *m, size_t store, const kn_found *f, size_t query, double entropy) {
    const kn_mixed_store *s = &m->stores[store];
    kn_neighborhood n = kn_found_at(f, query);
    if (n.count == 0) return 0; // nothing is known: what the model says
    double lambda = s->lambda;
    if (s->bins.distances)
        lambda = lambda_by_bins(m, s, (double)n.distances[0], entropy, kn_found_beginning(s, f, query));
    return s->fallback ? lambda * trust(s, &n, f->entropies[query]) : lambda;
}

void kn_mixture_mix(const kn_mixture *m, const kn_found *found, size_t query, int32_t target, double lm,
                    double entropy, double cache, kn_mixed *out) {
    double parts[KN_STORES_MOST + 1];
    for (size_t i = 0; i < m->count; i++) {
        kn_neighborhood n = kn_found_at(&found[i], query);
        parts[i] = out->knn[i] = kn_neighborhood_logprob(&n, m->stores[i].temperature, target);
        out->lambdas[i] = lambda_of(m, i, &found[i], query, entropy);
    }
    parts[m->count] = cache;
    out->lambdas[m->count] = isnan(cache) ? 0 : m->cache.lambda;
    out->p = kn_mix(lm, parts, out->lambdas, m->count + 1);
}

double kn_mixture_lambda(const kn_mixture *m, const kn_mixed *x) {
    double sum = 0;
    for (size_t i = 0; i < m->count; i++) sum += x->lambdas[i];
    return sum;
}

double kn_mixture_part(const kn_mixture *m, const kn_mixed *x, size_t store) {
    double sum = kn_mixture_lambda(m, x);
    return sum > 0 ? x->lambdas[store] / sum : 1 / (double)m->count;
}

double kn_mixture_knn(const kn_mixture *m, const kn_mixed *x) {
    double parts[KN_STORES_MOST];
    for (size_t i = 0; i < m->count; i++) parts[i] = kn_mixture_part(m, x, i);
    return m->count ? kn_mix(-INFINITY, x->knn, parts, m->count) : NAN;
}

double kn_mixture_nearest(const kn_mixture *m, const kn_found *found, size_t query) {
    double nearest = NAN;
    for (size_t i = 0; i < m->count; i++) {
        const kn_found *f = &found[i];
        if (f->counts[query]) nearest = fmin(nearest, (double)f->distances[query * f->k]);
    }
    return nearest;
}
