// Mixing of served stores as a request asks for it: which stores, which of their documents, with what weight.
#include "serve/served_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- some of their documents

void kn_chosen_entries_free(kn_chosen_entries *c) {
    for (size_t i = 0; i < KN_STORES_MAX; i++) {
        kn_datastore_release(c->of[i]);
        free(c->bits[i]);
    }
    *c = (kn_chosen_entries){0};
}

static bool chooses(const kn_selection *x) {
    return x->names.only_count || x->names.except_count || x->without_content;
}

static const kn_datastore *datastore_of(const kn_served_store *b) {
    return kn_mixture_datastore(b->state.mixture, 0);
}

// Found out anew where the store has another state than the last time.
static knnlm_status choose_entries(const kn_served_store *b, const kn_selection *x, size_t number,
                                   kn_chosen_entries *c) {
    kn_datastore *now = (kn_datastore *)(uintptr_t)datastore_of(b); // to be held
    if (c->of[number] == now) return KNNLM_OK;
    kn_datastore_release(c->of[number]);
    free(c->bits[number]);
    c->of[number] = kn_datastore_hold(now);
    c->bits[number] = NULL;
    knnlm_status status =
        kn_datastore_select(now, &x->names, x->without_content ? x->content : NULL, &c->bits[number]);
    c->none[number] = status == KNNLM_EINVAL;
    return c->none[number] ? KNNLM_OK : status;
}

size_t kn_served_choice_bytes(kn_served *s) {
    size_t bytes = 0;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->count; i++)
        bytes += (size_t)(kn_store_describe(s->stores[i].state.store)->entries / 8 + 8);
    pthread_rwlock_unlock(&s->lock);
    return bytes;
}

size_t kn_served_gain_bytes(kn_served *s) {
    size_t documents = 0;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->count; i++)
        documents += (size_t)kn_store_describe(s->stores[i].state.store)->documents;
    pthread_rwlock_unlock(&s->lock);
    return documents * 2 * sizeof(double[4]); // sums, and their list
}

size_t kn_served_copies(kn_served *s, const uint64_t content[2]) {
    size_t sum = 0, count;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->count; i++)
        if (s->stores[i].state.mixture &&
            kn_datastore_find_content(datastore_of(&s->stores[i]), content, 0, NULL, &count) == KNNLM_OK)
            sum += count;
    pthread_rwlock_unlock(&s->lock);
    return sum;
}

// ---------------------------------------------------------------- selecting

static bool select_named(const kn_served *s, const kn_knn_request *knn, uint32_t *out, kn_http_error *err) {
    *out = 0;
    for (size_t i = 0; i < knn->store_count; i++) {
        size_t n;
        if (!kn_served_find(s, knn->stores[i], &n, err))
            return kn_http_error_set(err, 404, "not_found", "knn.stores", "no store is called '%.100s'",
                                     knn->stores[i]);
        *out |= 1u << n;
    }
    return true;
}

// Names that mean nothing are told at once, rather than answered by the model alone.
static bool check_names(kn_served *s, const kn_selection *x, kn_http_error *err) {
    bool any = !x->names.only_count && !x->names.except_count;
    knnlm_status status = KNNLM_OK;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < s->count && !any && status == KNNLM_OK; i++) {
        uint64_t *bits = NULL;
        if (!(x->stores >> i & 1) || !s->stores[i].state.mixture) continue;
        status = kn_datastore_select(datastore_of(&s->stores[i]), &x->names, NULL, &bits);
        any = status == KNNLM_OK;
        if (status == KNNLM_EINVAL) status = KNNLM_OK;
        free(bits);
    }
    pthread_rwlock_unlock(&s->lock);
    if (status != KNNLM_OK) return kn_http_error_status(err, status, knnlm_message());
    return any || kn_http_error_set(err, 400, NULL, x->names.only_count ? "knn.only" : "knn.not",
                                    "'knn.only' and 'knn.not' leave none of the documents");
}

bool kn_served_has_cache(const kn_served *s) {
    return s->cached;
}

kn_cache_info kn_served_cache(const kn_served *s) {
    if (!s->cached) return (kn_cache_info){0};
    const kn_mixture_info *m = kn_mixture_describe(s->cached);
    return (kn_cache_info){m->cache.size, m->cache.lambda, m->cache.temperature};
}

bool kn_served_select(kn_served *s, const kn_knn_request *knn, bool generates, kn_selection *out,
                      kn_http_error *err) {
    *out = (kn_selection){.stores = (uint32_t)((1ull << s->count) - 1),
                          .lambda = knn->lambda,
                          .temperature = knn->temperature,
                          .k = knn->k,
                          .fallback = generates && knn->fallback,
                          .cache = generates && knn->cache && s->cached,
                          .always = knn->temperature_count > 0,
                          .names = {.only = knn->only,
                                    .except = knn->except,
                                    .only_count = knn->only_count,
                                    .except_count = knn->except_count}};
    return (!knn->stores || select_named(s, knn, &out->stores, err)) && check_names(s, out, err);
}

// ---------------------------------------------------------------- mixing

static bool has_weight(const kn_served_store *b, const kn_selection *x) {
    const kn_mixture_store *m = &kn_mixture_describe(b->state.mixture)->stores[0];
    return isnan(x->lambda) ? m->lambda > 0 || m->gated || m->adaptive : x->lambda > 0;
}

// Those that are to be searched, by number.
static knnlm_status choose_stores(const kn_served *s, const kn_selection *x, kn_chosen_entries *c,
                                  size_t *numbers, size_t *count) {
    bool weighed = x->always;
    *count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const kn_served_store *b = &s->stores[i];
        if (!(x->stores >> i & 1) || !b->state.mixture) continue;
        if (chooses(x)) KN_TRY(choose_entries(b, x, i, c));
        if (chooses(x) && c->none[i]) continue;
        weighed |= has_weight(b, x);
        numbers[(*count)++] = i;
    }
    if (!weighed) *count = 0;
    return KNNLM_OK;
}

knnlm_status kn_served_view(const kn_served *s, const kn_selection *x, kn_chosen_entries *c, kn_mixture **out,
                            size_t *numbers) {
    const kn_mixture *mixtures[KN_STORES_MAX + 1] = {s->nothing};
    const uint64_t *allowed[KN_STORES_MAX];
    size_t count;
    KN_TRY(choose_stores(s, x, c, numbers, &count));
    for (size_t i = 0; i < count; i++) {
        mixtures[i + 1] = s->stores[numbers[i]].state.mixture;
        allowed[i] = c->bits[numbers[i]];
    }
    if (x->cache && (x->stores || !s->count)) mixtures[0] = s->cached; // no stores: the model alone is wanted
    return kn_mixture_view(mixtures, count + 1,
                           &(kn_view_options){.lambda = x->lambda,
                                              .temperature = x->temperature,
                                              .k = x->k,
                                              .fallback = x->fallback,
                                              .allowed = allowed},
                           out);
}
