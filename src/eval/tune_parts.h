// Tuning under way. Not a door: only this room includes it.
#ifndef KN_EVAL_TUNE_PARTS_H
#define KN_EVAL_TUNE_PARTS_H

#include "eval/tune.h"

enum {
    KN_TUNE_GROUP = 4,         // temperatures at a time
    KN_TUNE_TEMPERATURES = 16, // of the cache
    KN_TUNE_FEW = 1024,        // tokens: of fewer, the echo has as many
    KN_TUNE_SEEN = 8192,       // tokens at most whose neighbours' values are kept
};

typedef struct kn_tuning {
    const kn_mixture *mixture;
    const kn_mixture_info *m; // of it
    const kn_progress *progress;
    kn_tune_result *out;
    size_t n, capacity; // tokens so far; of the text
    kn_kept kept[KN_STORES_MAX];
    size_t seen_step;                // values are kept of every so many-th token
    int32_t *values[KN_STORES_MAX];  // (such tokens, k)
    bool *beginnings[KN_STORES_MAX]; // whether the nearest neighbour of a token begins a document
    bool *first;                     // whether a token does
    // Probabilities and what the bins are of, one per token:
    float *lm, *entropies;
    float *cache; // (cache temperatures, capacity); NULL: no cache
    double cache_temperatures[KN_TUNE_TEMPERATURES];
    size_t cache_temperature_count;
    size_t best_cache;         // which of them
    float *knn[KN_STORES_MAX]; // of each store at its best settings
    float *swept;              // (temperatures at a time, ks, n)
    double near[3];            // weights of the setting before: model, store, cache
    double given_temperature;  // NAN: to be found
    double model_work;         // multiplications that the model makes for a token
} kn_tuning;

// Takes tokens with their neighbours (a kn_scored_sink): `capacity` at most, for which there is room.
knnlm_status kn_tuning_take(void *tuning, const kn_scored *scored);
knnlm_status kn_tuning_room(kn_tuning *t);
void kn_tuning_free(kn_tuning *t);

// What the cache gives at its best temperature; NULL: no cache.
static inline const float *kn_tuning_cache(const kn_tuning *t) {
    return t->cache ? t->cache + t->best_cache * t->capacity : NULL;
}

// The best temperature and k of a store beside the model (and the cache): out->stores[s].best, and knn[s].
knnlm_status kn_tune_sweep(kn_tuning *t, size_t store, bool with_cache);
// The best temperature of the cache beside the model and those stores whose knn is known.
knnlm_status kn_tune_cache(kn_tuning *t);
// Weights by bins for store `s`, which stand in *bins when they are worth it: out->ppl_adaptive*.
knnlm_status kn_tune_bins(kn_tuning *t, size_t store, double lambda, double cache_lambda,
                          kn_store_bins *bins);
// A little text of other kinds, with its neighbours in the same stores. To be freed in any case.
knnlm_status kn_tune_foreign(kn_lm *lm, const kn_tuning *home, kn_tuning *out);
// How many tokens of a store are read to tune on.
size_t kn_tune_own_tokens(const kn_lm *lm, const kn_store_info *store);
// Makes room and takes about so many tokens of the (first) store's own documents: without themselves, or as
// an echo.
knnlm_status kn_tune_pieces(kn_lm *lm, size_t tokens, bool echo, kn_tuning *t);
// The gate of a store at its best settings: out->ppl_gate*.
knnlm_status kn_tune_gate(kn_tuning *t, const kn_tuning *foreign, const kn_tuning *echo, size_t store,
                          const kn_store_seen *seen, kn_store_gate *out);
// What skipping the searches of the least uncertain tokens would cost: out->skips. The parts of a token's
// probability, the model's first and (cached) the cache's last, and their weights. KNNLM_ENOMEM.
knnlm_status kn_tune_skips(const kn_tuning *t, const float *const *parts, size_t count, bool cached,
                           const double *weights);
// What the neighbours of a store look like at a temperature and k. KNNLM_ENOMEM.
knnlm_status kn_tune_see(const kn_tuning *t, size_t store, double temperature, size_t k, kn_store_seen *out);

#endif
