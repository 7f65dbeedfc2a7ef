// Sums of gain by document.
#include "eval/gain.h"

#include <math.h>
#include <stdlib.h>

// Of a document: sums, and the neighbour that had the largest part.
typedef struct sum {
    double gain, largest;
    uint64_t entry;
    bool met;
} sum;

struct kn_gains {
    const kn_mixture *m;
    sum *sums[KN_STORES_MAX]; // of each store's documents
    double *shares;           // of the neighbours at hand, and room for as many again
    size_t capacity;
};

static size_t documents_of(const kn_gains *g, size_t store) {
    return (size_t)kn_mixture_describe(g->m)->stores[store].store->documents;
}

knnlm_status kn_gains_open(const kn_mixture *m, kn_gains **out) {
    kn_gains *g = kn_alloc(1, sizeof *g);
    if (!g) return KNNLM_ENOMEM;
    g->m = m;
    for (size_t s = 0; s < kn_mixture_describe(m)->count; s++) {
        g->sums[s] = kn_alloc(documents_of(g, s), sizeof *g->sums[s]);
        if (g->sums[s]) continue;
        kn_gains_close(g);
        return KNNLM_ENOMEM;
    }
    *out = g;
    return KNNLM_OK;
}

void kn_gains_close(kn_gains *g) {
    if (!g) return;
    for (size_t s = 0; s < KN_STORES_MAX; s++) free(g->sums[s]);
    free(g->shares);
    free(g);
}

// (x - y) / (log x - log y), which is x where they are the same.
static double logarithmic_mean(double log_x, double log_y) {
    double d = log_x - log_y;
    return exp(log_y) * (d == 0 ? 1 : expm1(d) / d);
}

static void credit(sum *s, double part, uint64_t entry) {
    s->gain += part;
    if (s->met && fabs(part) <= s->largest) return;
    s->met = true;
    s->largest = fabs(part);
    s->entry = entry;
}

static knnlm_status add_store(kn_gains *g, size_t store, const kn_row_neighbors *found,
                              const kn_prediction *x, int32_t token, double lm) {
    const kn_neighborhood *near = &found->near;
    const kn_datastore *d = kn_mixture_datastore(g->m, store);
    double weight = x->lambdas[store] / logarithmic_mean(x->p, lm), model = exp(lm);
    if (!near->count || weight == 0) return KNNLM_OK;
    KN_TRY(kn_grow(&g->shares, &g->capacity, 2 * near->count, sizeof *g->shares));
    kn_prediction_shares(g->m, store, x, near, g->shares, g->shares + near->count);
    for (size_t i = 0; i < near->count; i++) {
        kn_store_entry entry;
        KN_TRY(kn_datastore_entry(d, found->ids[i], &entry));
        double brought = near->values[i] == token ? 1 : 0;
        credit(&g->sums[store][entry.document], weight * g->shares[i] * (brought - model), entry.id);
    }
    return KNNLM_OK;
}

knnlm_status kn_gains_add(kn_gains *g, const kn_row_neighbors *found, const kn_prediction *x, int32_t token,
                          double lm) {
    if (!isfinite(lm) || !isfinite(x->p)) return KNNLM_OK;
    for (size_t s = 0; s < kn_mixture_describe(g->m)->count; s++)
        KN_TRY(add_store(g, s, &found[s], x, token, lm));
    return KNNLM_OK;
}

static int by_gain(const void *a, const void *b) {
    const kn_document_gain *x = a, *y = b;
    if (fabs(x->gain) != fabs(y->gain)) return fabs(x->gain) > fabs(y->gain) ? -1 : 1;
    if (x->store != y->store) return x->store < y->store ? -1 : 1;
    return x->document < y->document ? -1 : x->document > y->document;
}

knnlm_status kn_gains_list(const kn_gains *g, kn_document_gain **out, size_t *count) {
    size_t stores = kn_mixture_describe(g->m)->count, n = 0;
    for (size_t s = 0; s < stores; s++)
        for (size_t i = 0; i < documents_of(g, s); i++) n += g->sums[s][i].met;
    kn_document_gain *list = kn_alloc(n, sizeof *list);
    if (!list) return KNNLM_ENOMEM;
    *count = 0;
    for (size_t s = 0; s < stores; s++)
        for (size_t i = 0; i < documents_of(g, s); i++) {
            const sum *of = &g->sums[s][i];
            if (of->met) list[(*count)++] = (kn_document_gain){s, i, of->gain, of->entry};
        }
    qsort(list, n, sizeof *list, by_gain);
    *out = list;
    return KNNLM_OK;
}
