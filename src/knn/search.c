// Searches a datastore: picks the index and the way, then looks up what the entries found stand for.
#include "base/threads.h"
#include "knn/datastore_parts.h"
#include "knn/measure.h"

#include <math.h>
#include <stdlib.h>

knnlm_status kn_retrieved_init(kn_retrieved *f, size_t queries, size_t k) {
    size_t cells;
    *f = (kn_retrieved){.k = k};
    if (!kn_mul(queries, k, &cells)) return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    f->ids = kn_alloc_aligned(cells, sizeof *f->ids);
    f->found = kn_alloc_aligned(cells, sizeof *f->found);
    f->distances = kn_alloc_aligned(cells, sizeof *f->distances);
    f->values = kn_alloc_aligned(cells, sizeof *f->values);
    f->counts = kn_alloc(queries, sizeof *f->counts);
    f->begins = kn_alloc(queries, sizeof *f->begins);
    f->entropies = kn_alloc(queries, sizeof *f->entropies);
    if (f->ids && f->found && f->distances && f->values && f->counts && f->begins && f->entropies)
        return KNNLM_OK;
    kn_retrieved_free(f);
    return KNNLM_ENOMEM;
}

void kn_retrieved_free(kn_retrieved *f) {
    kn_free_aligned(f->ids);
    kn_free_aligned(f->found);
    kn_free_aligned(f->distances);
    kn_free_aligned(f->values);
    free(f->counts);
    free(f->begins);
    free(f->entropies);
    *f = (kn_retrieved){0};
}

// ---------------------------------------------------------------- what was found

void kn_datastore_look_up(const kn_datastore *s, const kn_retrieve_options *o, size_t query,
                          kn_value_share *scratch, kn_retrieved *out) {
    size_t row = query * out->k, count = out->counts[query];
    uint32_t nearest = count ? out->found[row] : 0;
    for (size_t i = 0; i < out->k; i++) out->ids[row + i] = out->found[row + i];
    for (size_t i = 0; i < count; i++) out->values[row + i] = s->values[out->found[row + i]];
    out->begins[query] = count && (s->beginnings[nearest / 64] >> nearest % 64 & 1);
    if (isnan(o->temperature)) return;
    kn_neighborhood n = {out->distances + row, out->values + row, NULL, count, 0};
    out->entropies[query] = kn_neighborhood_entropy(&n, o->temperature, scratch);
}

typedef struct looking_up {
    const kn_datastore *s;
    const kn_retrieve_options *o;
    kn_retrieved *out;
    kn_value_share *scratch; // (threads, 2 k); NULL: entropies are not wanted
} looking_up;

static void look_up(void *context, size_t query, int worker) {
    const looking_up *l = context;
    kn_value_share *scratch = l->scratch ? l->scratch + (size_t)worker * 2 * l->out->k : NULL;
    kn_datastore_look_up(l->s, l->o, query, scratch, l->out);
}

static knnlm_status look_up_all(const kn_datastore *s, size_t n, const kn_retrieve_options *o,
                                kn_retrieved *out) {
    looking_up l = {.s = s, .o = o, .out = out};
    if (!isnan(o->temperature) &&
        !(l.scratch = kn_alloc((size_t)kn_threads() * 2 * out->k, sizeof *l.scratch)))
        return KNNLM_ENOMEM;
    kn_parallel(n, look_up, &l);
    free(l.scratch);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the way

// All lists at full precision are all entries: those are searched faster without lists.
static knnlm_status choose_index(const kn_datastore *constant, const kn_retrieve_options *o,
                                 const kn_index **out) {
    kn_datastore *s =
        (kn_datastore *)(uintptr_t)constant; // const to its searchers, but for what it opens late
    const kn_index_info *info = s->info.index;
    knnlm_status status = KNNLM_OK;
    *out = s->index;
    if (!info->lists || o->probes < info->lists || o->codes || !info->has_keys) return KNNLM_OK;
    pthread_mutex_lock(&s->lock);
    if (!s->flat) status = kn_index_open_as(s->store, s->info.distance, false, &s->flat);
    *out = s->flat;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static kn_search_options search_options(const kn_datastore *s, const kn_retrieve_options *o) {
    return (kn_search_options){.k = o->k,
                               .probes = o->probes,
                               .codes = o->codes,
                               .exclude = o->exclude,
                               .excludes = o->excludes,
                               .allowed = o->allowed ? o->allowed : s->allowed,
                               .memory = o->memory,
                               .scratch = o->scratch};
}

static knnlm_status search_many(const kn_datastore *s, const kn_index *index, const float *keys, size_t n,
                                const kn_retrieve_options *o, kn_retrieved *out) {
    kn_search_options options = search_options(s, o);
    kn_neighbors neighbors = {out->found, out->distances, out->counts};
    KN_TRY(kn_index_search(index, keys, n, &options, &neighbors));
    return look_up_all(s, n, o, out);
}

// Without lists every key is looked at, and searches for many know bounds that rule most of them out.
static knnlm_status search_keys(const kn_datastore *s, const float *keys, size_t d, size_t n,
                                const kn_retrieve_options *o, kn_retrieved *out) {
    const kn_index_info *info = s->info.index;
    const kn_index *index;
    KN_TRY(choose_index(s, o, &index));
    bool lists = (o->probes ? o->probes : info->probes) < info->lists;
    if (n && o->singly && lists) return kn_datastore_search_singly(s, keys, d, n, o, out);
    return search_many(s, index, keys, n, o, out);
}

knnlm_status kn_datastore_project(const kn_datastore *s, const float *states, size_t n, float **projected) {
    *projected = NULL;
    if (!s->pca.in) return KNNLM_OK;
    *projected = kn_alloc_aligned(n * s->pca.out, sizeof **projected);
    if (!*projected) return KNNLM_ENOMEM;
    kn_pca_apply(&s->pca, states, n, *projected);
    return KNNLM_OK;
}

knnlm_status kn_datastore_search(const kn_datastore *s, const float *states, size_t n,
                                 const kn_retrieve_options *o, kn_retrieved *out) {
    float *projected;
    if (s->pieces) return kn_pieces_search(s, states, n, o, out);
    KN_TRY(kn_datastore_project(s, states, n, &projected));
    knnlm_status status = projected ? search_keys(s, projected, s->pca.out, n, o, out)
                                    : search_keys(s, states, s->width, n, o, out);
    kn_free_aligned(projected);
    return status;
}

// ---------------------------------------------------------------- measuring

typedef struct telling {
    const kn_datastore *s;
    const kn_retrieve_options *o;
    const kn_measuring *what;
    int32_t *values;         // (threads, k)
    kn_value_share *scratch; // (threads, 2 k); NULL: entropies are not wanted
    kn_row_facts *out;
} telling;

static void tell(void *context, size_t query, const uint32_t *ids, const float *distances, size_t count,
                 int worker) {
    const telling *t = context;
    const kn_datastore *s = t->s;
    int32_t *values = t->values + (size_t)worker * t->o->k;
    kn_row_neighbors found = {{distances, values, NULL, count, 0}, NULL, NAN, false};
    for (size_t i = 0; i < count; i++) values[i] = s->values[ids[i]];
    found.begins = count && (s->beginnings[ids[0] / 64] >> ids[0] % 64 & 1);
    if (t->scratch)
        found.entropy = kn_neighborhood_entropy(&found.near, t->o->temperature,
                                                t->scratch + (size_t)worker * 2 * t->o->k);
    kn_measure_take(&t->what->measures[t->what->which[query]], &found, t->what->targets[query],
                    &t->out[query]);
}

knnlm_status kn_datastore_search_as(const kn_datastore *s, const float *keys, size_t n,
                                    const kn_retrieve_options *o, const kn_search_telling *how) {
    kn_search_options options = search_options(s, o);
    const kn_index *index;
    options.found = how->found;
    options.found_context = how->context;
    options.any_order = how->any_order;
    options.lists = how->lists;
    KN_TRY(choose_index(s, o, &index));
    return kn_index_search(index, keys, n, &options, NULL);
}

knnlm_status kn_datastore_probe(const kn_datastore *s, const float *keys, size_t n,
                                const kn_retrieve_options *o, uint32_t **lists, uint32_t *probes) {
    kn_search_options options = search_options(s, o);
    const kn_index *index;
    KN_TRY(choose_index(s, o, &index));
    return kn_index_probe(index, keys, n, &options, lists, probes);
}

static knnlm_status measure(telling *t, const float *keys, size_t n) {
    size_t cells = (size_t)kn_threads() * t->o->k;
    t->values = kn_alloc(cells, sizeof *t->values);
    if (!t->values) return KNNLM_ENOMEM;
    if (!isnan(t->o->temperature) && !(t->scratch = kn_alloc(2 * cells, sizeof *t->scratch)))
        return KNNLM_ENOMEM;
    // Sums are the same in any order, but for those of entropies.
    return kn_datastore_search_as(t->s, keys, n, t->o, &(kn_search_telling){tell, t, !t->scratch, NULL});
}

knnlm_status kn_datastore_measure(const kn_datastore *s, const float *states, size_t n,
                                  const kn_retrieve_options *o, const kn_measuring *what, kn_row_facts *out) {
    telling t = {.s = s, .o = o, .what = what, .out = out};
    float *projected;
    if (s->pieces) return kn_pieces_measure(s, states, n, o, what, out);
    KN_TRY(kn_datastore_project(s, states, n, &projected));
    knnlm_status status = measure(&t, projected ? projected : states, n);
    kn_free_aligned(projected);
    free(t.values);
    free(t.scratch);
    return status;
}

bool kn_datastore_same_search(const kn_datastore *a, const kn_retrieve_options *by_a, const kn_datastore *b,
                              const kn_retrieve_options *by_b) {
    bool same_entropy =
        by_a->temperature == by_b->temperature || (isnan(by_a->temperature) && isnan(by_b->temperature));
    return a == b && by_a->k == by_b->k && by_a->probes == by_b->probes && by_a->codes == by_b->codes &&
           by_a->allowed == by_b->allowed && same_entropy;
}
