// Projects a sample of a datastore's keys to two dimensions.
#include "knn/key_map.h"

#include "knn/datastore_parts.h"

#include <stdlib.h>

struct kn_key_map {
    kn_pca pca; // in 0: fewer than two points
    kn_key_map_info info;
    kn_key_map_point *points;
};

size_t kn_key_map_cost(size_t dimension) {
    // The sample and its covariance, with eigenvectors, in f64.
    return KN_KEY_MAP_POINTS * dimension * sizeof(float) + 2 * dimension * dimension * sizeof(double);
}

// ---------------------------------------------------------------- the sample

static bool usable(const kn_datastore *s, uint64_t id) {
    if (s->allowed && !(s->allowed[id / 64] >> id % 64 & 1)) return false;
    return !kn_store_entry_removed(s->store, id) && kn_store_check_keys(s->store, id, 1) == KNNLM_OK;
}

// The first usable entry of each of `wanted` equal stretches, and its key.
static knnlm_status take_sample(const kn_datastore *s, size_t wanted, kn_key_map *m, float *keys) {
    uint64_t entries = s->info.store->entries;
    size_t d = (size_t)s->info.store->settings.dimension;
    for (size_t i = 0; i < wanted; i++) {
        uint64_t id = i * entries / wanted, end = (i + 1) * entries / wanted;
        while (id < end && !usable(s, id)) id++;
        if (id == end) continue;
        KN_TRY(kn_store_keys(s->store, id, 1, keys + m->info.count * d));
        m->points[m->info.count++].entry = id;
    }
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
    knnlm_status status = draw(s, m);
    if (status == KNNLM_OK)
        *out = m;
    else
        kn_key_map_close(m);
    return status;
}

void kn_key_map_close(kn_key_map *m) {
    if (!m) return;
    if (m->pca.in) kn_pca_free(&m->pca);
    free(m->points);
    free(m);
}

const kn_key_map_info *kn_key_map_describe(const kn_key_map *m) {
    return &m->info;
}

knnlm_status kn_key_map_place(const kn_key_map *m, const kn_datastore *s, const float *state,
                              kn_key_map_point *out) {
    float places[2] = {0};
    *out = (kn_key_map_point){0};
    if (!m->pca.in) return KNNLM_OK;
    float *key = kn_alloc_aligned(m->pca.in, sizeof *key);
    if (!key) return KNNLM_ENOMEM;
    if (s->pca.in) kn_pca_apply(&s->pca, state, 1, key);
    kn_pca_apply(&m->pca, s->pca.in ? key : state, 1, places);
    set_place(&m->pca, places, out);
    kn_free_aligned(key);
    return KNNLM_OK;
}
