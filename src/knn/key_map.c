// Projects a sample of a datastore's keys to two dimensions.
#include "knn/key_map.h"

#include "index/projection.h"
#include "knn/datastore_parts.h"

#include <stdlib.h>

struct kn_key_map {
    kn_pca of_keys; // of the store: in 0: keys are the model's states
    kn_pca pca;     // in 0: fewer than two points
    kn_key_map_info info;
    kn_key_map_point *points;
};

size_t kn_key_map_cost(size_t dimension) {
    // The sample and its covariance, with eigenvectors, in f64.
    return KN_KEY_MAP_POINTS * dimension * sizeof(float) + 2 * dimension * dimension * sizeof(double);
}

// ---------------------------------------------------------------- the sample

static bool may_be_found(const kn_datastore *s, uint64_t id) {
    if (s->allowed && !(s->allowed[id / 64] >> id % 64 & 1)) return false;
    return !kn_store_entry_removed(s->store, id);
}

// KNNLM_EDATA: it is damaged.
static knnlm_status read_key(const kn_store *s, uint64_t id, float *key) {
    KN_TRY(kn_store_check_keys(s, id, 1));
    return kn_store_keys(s, id, 1, key);
}

// The first intact entry of those from `id` to `end`, if there is one, and its key.
static knnlm_status take_point(const kn_datastore *s, uint64_t id, uint64_t end, kn_key_map *m, float *keys) {
    size_t d = (size_t)s->info.store->settings.dimension;
    for (; id < end; id++) {
        if (!may_be_found(s, id)) continue;
        knnlm_status status = read_key(s->store, id, keys + m->info.count * d);
        if (status == KNNLM_EDATA) continue;
        if (status == KNNLM_OK) m->points[m->info.count++].entry = id;
        return status;
    }
    return KNNLM_OK;
}

// One of each of `wanted` equal stretches.
static knnlm_status take_sample(const kn_datastore *s, size_t wanted, kn_key_map *m, float *keys) {
    uint64_t entries = s->info.store->entries;
    for (size_t i = 0; i < wanted; i++)
        KN_TRY(take_point(s, i * entries / wanted, (i + 1) * entries / wanted, m, keys));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- two dimensions

static void set_place(const kn_pca *pca, const float *projected, kn_key_map_point *out) {
    out->x = projected[0];
    out->y = pca->out > 1 ? projected[1] : 0;
}

static knnlm_status project(kn_key_map *m, const float *keys, size_t d) {
    size_t count = m->info.count, out = kn_min(d, (size_t)2);
    if (count < 2) return KNNLM_OK;
    KN_TRY(kn_pca_learn(keys, count, d, out, &m->pca));
    float *projected = kn_alloc_aligned(count * out, sizeof *projected);
    if (!projected) return KNNLM_ENOMEM;
    kn_pca_apply(&m->pca, keys, count, projected);
    for (size_t i = 0; i < count; i++) set_place(&m->pca, projected + i * out, &m->points[i]);
    for (size_t c = 0; c < out; c++) m->info.variances[c] = (double)m->pca.variances[c];
    m->info.total = m->pca.total;
    kn_free_aligned(projected);
    return KNNLM_OK;
}

static knnlm_status draw(const kn_datastore *s, kn_key_map *m) {
    size_t d = (size_t)s->info.store->settings.dimension;
    size_t wanted = kn_min((size_t)KN_KEY_MAP_POINTS, (size_t)s->info.store->entries);
    float *keys = kn_alloc_aligned(wanted * d, sizeof *keys);
    m->points = kn_alloc(wanted, sizeof *m->points);
    m->info.points = m->points;
    knnlm_status status = keys && m->points ? take_sample(s, wanted, m, keys) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = project(m, keys, d);
    kn_free_aligned(keys);
    return status;
}

knnlm_status kn_key_map_open(const kn_datastore *s, kn_key_map **out) {
    const kn_store_settings *settings = &s->info.store->settings;
    if (settings->key_type == KNNLM_KEYS_NONE)
        return kn_fail(KNNLM_ENOTSUP, "%s keeps no keys: there is nothing to draw", s->info.store->path);
    if (settings->dimension > KN_KEY_MAP_DIMENSIONS)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: keys of %d dimensions are too wide for a map: build it with --project pca:%d",
                       s->info.store->path, settings->dimension, KN_KEY_MAP_DIMENSIONS);
    kn_key_map *m = kn_alloc(1, sizeof *m);
    if (!m) return KNNLM_ENOMEM;
    knnlm_status status = kn_projection_of(s->store, &m->of_keys);
    if (status == KNNLM_OK) status = draw(s, m);
    if (status == KNNLM_OK)
        *out = m;
    else
        kn_key_map_close(m);
    return status;
}

void kn_key_map_close(kn_key_map *m) {
    if (!m) return;
    if (m->of_keys.in) kn_pca_free(&m->of_keys);
    if (m->pca.in) kn_pca_free(&m->pca);
    free(m->points);
    free(m);
}

const kn_key_map_info *kn_key_map_describe(const kn_key_map *m) {
    return &m->info;
}

knnlm_status kn_key_map_place(const kn_key_map *m, const float *state, kn_key_map_point *out) {
    float places[2] = {0};
    *out = (kn_key_map_point){0};
    if (!m->pca.in) return KNNLM_OK;
    float *key = kn_alloc_aligned(m->pca.in, sizeof *key);
    if (!key) return KNNLM_ENOMEM;
    if (m->of_keys.in) kn_pca_apply(&m->of_keys, state, 1, key);
    kn_pca_apply(&m->pca, m->of_keys.in ? key : state, 1, places);
    set_place(&m->pca, places, out);
    kn_free_aligned(key);
    return KNNLM_OK;
}
