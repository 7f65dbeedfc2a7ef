// Opens mixtures: which settings count, and what follows from them.
#include "knn/mixture_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const kn_store_tuned *tuned_of(const kn_mixture_part *p) {
    return &kn_datastore_describe(p->store)->store->tuned;
}

// ---------------------------------------------------------------- one store

// Another metric has another temperature: what was tuned is not of it.
static bool is_tuned(const kn_mixture_part *p, const kn_mixture_options *o) {
    knnlm_distance own = kn_datastore_describe(p->store)->store->settings.distance;
    return tuned_of(p)->known && (o->distance < 0 || (knnlm_distance)o->distance == own);
}

static kn_bins tuned_bins(const kn_store_tuned *t) {
    return (kn_bins){t->bins.distances, t->bins.entropies, t->bins.distance_edges, t->bins.entropy_edges,
                     t->bins.lambdas};
}

static kn_gate tuned_gate(const kn_store_tuned *t) {
    kn_gate g = {.unit = t->gate.unit, .centre = t->gate.centre};
    memcpy(g.weights, t->gate.weights, sizeof g.weights);
    return g;
}

static void choose_search(const kn_mixture_part *p, const kn_mixture_options *o,
                          const kn_store_choice *choice, kn_mixture_store *s) {
    const kn_store_tuned *t = tuned_of(p);
    s->k = (size_t)(choice->k ? choice->k : o->k ? o->k : s->tuned && t->k ? t->k : 1024);
    s->k = kn_min(s->k, (size_t)s->store->entries); // room for more would be in vain
    s->probes = (uint32_t)kn_min(UINT32_MAX, (size_t)(choice->probes ? choice->probes
                                                      : o->probes    ? o->probes
                                                      : s->tuned     ? t->probes
                                                                     : 0));
    s->codes = o->codes || (s->tuned && t->codes && !o->exact);
}

// What a gate knows of the farthest neighbour depends on how many there are: it is better than one lambda up
// to 16 times as many as it was fitted for, and down to a sixteenth, and worse beyond.
bool kn_mixture_gate_fits(const kn_mixture_store *s) {
    size_t fitted = kn_min((size_t)s->store->tuned.k, (size_t)s->store->entries);
    return s->k <= 16 * fitted && fitted <= 16 * s->k;
}

static void choose_weight(kn_mixture_part *p, const kn_mixture_options *o, const kn_store_choice *choice,
                          kn_mixture_store *s) {
    const kn_store_tuned *t = tuned_of(p);
    bool given = !isnan(o->lambda) || !isnan(choice->weight);
    s->temperature = s->tuned ? t->temperature : 1;
    if (!isnan(o->temperature)) s->temperature = o->temperature;
    if (!isnan(choice->temperature)) s->temperature = choice->temperature;
    s->lambda = !isnan(o->lambda) ? o->lambda : s->tuned ? t->lambda : 0.25;
    s->lambda /= (double)o->store_count; // what is not given of one store is of all together
    if (!isnan(choice->weight)) s->lambda = choice->weight;
    s->fallback = o->fallback;
    p->sharers = o->store_count;
    p->weight_given = !isnan(choice->weight);
    if (given || o->fixed || !s->tuned) return;
    s->gated = t->gate.known && !o->bins && s->codes == t->codes && kn_mixture_gate_fits(s);
    if (s->gated) p->gate = tuned_gate(t);
    if (t->bins.distances && o->store_count == 1 && !s->gated) p->rule.bins = tuned_bins(t);
}

// A search of nothing, so that what cannot be searched is refused before the model has read thousands of
// tokens.
static knnlm_status try_search(const kn_mixture_part *p, const kn_mixture_store *s) {
    kn_retrieve_options o = {.k = s->k, .probes = s->probes, .codes = s->codes, .temperature = NAN};
    return kn_datastore_search(p->store, NULL, 0, &o, &(kn_retrieved){.k = s->k});
}

static knnlm_status open_store(kn_mixture *m, size_t number, const kn_lm *lm, const kn_mixture_options *o) {
    kn_mixture_part *p = &m->parts[number];
    kn_mixture_store *s = &m->info.stores[number];
    const kn_store_choice *choice = &o->stores[number];
    kn_datastore_options how = {.distance = o->distance, .warn = o->warn, .filter = o->filter};
    KN_TRY(kn_datastore_open(lm, choice->path, &how, &p->store));
    const kn_datastore_info *info = kn_datastore_describe(p->store);
    s->store = info->store;
    s->distance = info->distance;
    s->tuned = is_tuned(p, o);
    p->retrieve.memory = o->memory;
    choose_search(p, o, choice, s);
    choose_weight(p, o, choice, s);
    return try_search(p, s);
}

// ---------------------------------------------------------------- what follows from settings

// Beyond what 95 tokens in 100 of the tuning text had; nothing is left as far beyond that as that is beyond
// the median.
static kn_fade beyond(const kn_store_range *r) {
    return (kn_fade){r->high, r->high + (r->high - r->median)};
}

// Distances are held against what tuning saw where they are the same ones; entropies where temperature and k
// are too.
static void settle_fades(const kn_mixture_store *s, kn_lambda_rule *rule) {
    const kn_store_tuned *t = &s->store->tuned;
    bool seen = s->tuned && t->seen.known && s->codes == t->codes;
    bool alike = seen && s->temperature == t->temperature && (int64_t)s->k == t->k;
    rule->far = seen ? beyond(&t->seen.distance) : (kn_fade){NAN, NAN};
    rule->uncertain = alike ? beyond(&t->seen.entropy) : (kn_fade){NAN, NAN};
}

static void settle_store(const kn_mixture *m, kn_mixture_part *p, kn_mixture_store *s) {
    const kn_index_info *info = kn_datastore_describe(p->store)->index;
    uint32_t probes = s->probes ? s->probes : info->probes;
    s->looked = probes < info->lists ? probes : 0;
    s->of_codes = s->codes || !info->has_keys;
    s->adaptive = p->rule.bins.distances;
    p->retrieve = (kn_retrieve_options){
        .k = s->k,
        .probes = s->probes,
        .codes = s->codes,
        .temperature = s->fallback && !s->gated ? s->temperature : NAN,
        .memory = p->retrieve.memory,
        .allowed = p->retrieve.allowed,
    };
    p->rule.lambda = s->lambda;
    p->rule.max = 1 - m->info.cache.lambda;
    p->rule.fallback = s->fallback;
    settle_fades(s, &p->rule);
}

void kn_mixture_settle(kn_mixture *m) {
    kn_mixture_info *info = &m->info;
    info->neighbors = 0;
    for (size_t i = 0; i < info->count; i++) {
        settle_store(m, &m->parts[i], &info->stores[i]);
        info->neighbors += info->stores[i].k;
    }
    info->gated = false;
    for (size_t i = 0; i < info->count; i++) info->gated |= info->stores[i].gated;
    info->any = info->count || info->cache.size;
    info->adapts = info->gated || (info->count == 1 && info->stores[0].adaptive) ||
                   (info->count && info->skip_entropy > 0);
}

// ---------------------------------------------------------------- all of them

// A vouched-for model may have fewer layers than the one that made the store.
static knnlm_status find_tap(const kn_lm *lm, const kn_store_info *store, kn_tap *out) {
    char text[KN_TAP_TEXT];
    if (kn_tap_parse(store->settings.tap, out) == KNNLM_OK && kn_tap_print(lm, *out, text) == KNNLM_OK)
        return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: its keys are of tap %s, which %s lacks", store->path,
                   store->settings.tap, kn_lm_describe(lm)->path);
}

// One pass of the model has one tap. *tapped: the first store that tells its own; NULL: none yet.
static knnlm_status share_tap(const kn_lm *lm, kn_mixture_info *m, size_t number,
                              const kn_store_info **tapped) {
    const kn_store_info *first = *tapped, *other = m->stores[number].store;
    if (number == 0) m->split = kn_split_find(other->settings.split);
    if (!*other->settings.tap) return KNNLM_OK; // imported: as the others, or as models are tapped by default
    if (!first) {
        *tapped = other;
        return find_tap(lm, other, &m->tap);
    }
    if (strcmp(first->settings.tap, other->settings.tap) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL,
                   "%s has keys of %s, %s of %s: only stores of one tap can be searched together",
                   first->path, first->settings.tap, other->path, other->settings.tap);
}

static void choose_cache(kn_mixture_info *m, const kn_mixture_options *o) {
    const kn_store_cache *t =
        m->count == 1 && m->stores[0].tuned ? &m->stores[0].store->tuned.cache : &(kn_store_cache){0};
    m->cache.size = (size_t)(o->cache >= 0 ? o->cache : t->size);
    m->cache.lambda = !isnan(o->cache_lambda) ? o->cache_lambda : t->size ? t->lambda : 0.1;
    m->cache.temperature = !isnan(o->cache_temperature) ? o->cache_temperature : t->size ? t->temperature : 1;
    if (!m->cache.size) m->cache.lambda = 0;
}

static knnlm_status check_weights(const kn_mixture_info *m) {
    double sum = m->cache.lambda;
    for (size_t i = 0; i < m->count; i++) sum += m->stores[i].gated ? 0 : m->stores[i].lambda;
    if (sum <= 1 + 1e-12) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "the weights of stores and cache are in sum %g, above 1%s", sum,
                   m->cache.size ? " (`cache` 0 leaves the cache out)" : "");
}

static knnlm_status open_all(kn_mixture *m, const kn_lm *lm, const kn_mixture_options *o) {
    const kn_store_info *tapped = NULL;
    if (o->store_count > KN_STORES_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu stores: at most %d at a time", o->store_count, KN_STORES_MAX);
    for (size_t i = 0; i < o->store_count; i++) {
        m->info.count = i + 1;
        KN_TRY(open_store(m, i, lm, o));
        KN_TRY(share_tap(lm, &m->info, i, &tapped));
    }
    choose_cache(&m->info, o);
    kn_mixture_settle(m);
    return check_weights(&m->info);
}

knnlm_status kn_mixture_open(const kn_lm *lm, const kn_mixture_options *o, kn_mixture **out) {
    kn_mixture *m = kn_alloc(1, sizeof *m);
    *out = NULL;
    if (!m) return KNNLM_ENOMEM;
    m->info.tap = KN_TAP_DEFAULT;
    m->info.include_self = o->include_self;
    m->info.warn = o->warn;
    m->info.skip_entropy = o->skip_entropy;
    m->info.width = (size_t)kn_lm_describe(lm)->key_width;
    knnlm_status status = open_all(m, lm, o);
    if (status == KNNLM_OK)
        *out = m;
    else
        kn_mixture_close(m);
    return status;
}

void kn_mixture_close(kn_mixture *m) {
    if (!m) return;
    for (size_t i = 0; i < m->info.count; i++) kn_datastore_release(m->parts[i].store);
    free(m);
}

const kn_mixture_info *kn_mixture_describe(const kn_mixture *m) {
    return &m->info;
}

const kn_datastore *kn_mixture_datastore(const kn_mixture *m, size_t store) {
    return m->parts[store].store;
}
