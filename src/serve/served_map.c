// The map of a served store: drawn when first asked for, and kept as long as the state it shows.
#include "knn/next.h"
#include "serve/served_parts.h"

// One map is drawn at a time, whoever asks: who comes meanwhile finds it drawn.
static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER;

// The lock of the states is held. *out is NULL where there is nothing to draw.
static knnlm_status map_of(kn_served_state *state, const kn_key_map **out) {
    knnlm_status status = KNNLM_OK;
    *out = NULL;
    if (!state->mixture) return KNNLM_OK;
    pthread_mutex_lock(&drawing);
    if (!state->map) status = kn_key_map_open(kn_mixture_datastore(state->mixture, 0), &state->map);
    *out = state->map;
    pthread_mutex_unlock(&drawing);
    return status;
}

static void describe(const kn_served_state *state, const kn_key_map *map, kn_served_map_info *out) {
    *out = (kn_served_map_info){.generation = kn_store_describe(state->store)->generation};
    if (!map) return;
    const kn_key_map_info *info = kn_key_map_describe(map);
    for (size_t c = 0; c < 2; c++) out->variances[c] = info->variances[c];
    out->total = info->total;
}

// ---------------------------------------------------------------- its points

static knnlm_status visit_points(const kn_served_state *state, const kn_key_map *map,
                                 kn_served_map_visit *visit, void *context) {
    const kn_key_map_info *info = kn_key_map_describe(map);
    for (size_t i = 0; i < info->count; i++) {
        kn_store_entry entry;
        kn_store_document document;
        knnlm_status status = kn_store_entry_at(state->store, info->points[i].entry, &entry);
        if (status == KNNLM_OK) status = kn_store_document_at(state->store, entry.document, &document);
        if (status == KNNLM_EDATA) continue; // damaged: knnlm verify tells of it
        KN_TRY(status);
        visit(context, &info->points[i], &entry, &document);
    }
    return KNNLM_OK;
}

bool kn_served_map(kn_served *s, const char *store, kn_served_map_visit *visit, void *context,
                   kn_served_map_info *out, kn_http_error *err) {
    kn_served_store *b = kn_served_named(s, store, err);
    const kn_key_map *map;
    if (!b) return false;
    pthread_rwlock_rdlock(&s->lock);
    knnlm_status status = map_of(&b->state, &map);
    if (status == KNNLM_OK && map) status = visit_points(&b->state, map, visit, context);
    if (status == KNNLM_OK) describe(&b->state, map, out);
    pthread_rwlock_unlock(&s->lock);
    return status == KNNLM_OK || kn_http_error_status(err, status, knnlm_message());
}

// ---------------------------------------------------------------- a place in it

static knnlm_status find_place(kn_served *s, kn_served_state *state, const kn_context *c,
                               kn_key_map_point *place, kn_served_map_info *out) {
    const kn_key_map *map;
    kn_nexts *next;
    KN_TRY(map_of(state, &map));
    describe(state, map, out);
    *place = (kn_key_map_point){0};
    if (!map) return KNNLM_OK;
    KN_TRY(kn_nexts_open(s->lm, c, 1, &next));
    knnlm_status status = kn_key_map_place(map, kn_nexts_at(next, 0)->state, place);
    kn_nexts_close(next);
    return status;
}

bool kn_served_map_place(kn_served *s, const char *store, const int32_t *tokens, size_t count,
                         kn_key_map_point *place, kn_served_map_info *out, kn_http_error *err) {
    kn_served_store *b = kn_served_named(s, store, err);
    const kn_key_map *map;
    if (!b) return false;
    // Drawn first: nobody is to wait for the model meanwhile.
    pthread_rwlock_rdlock(&s->lock);
    knnlm_status status = map_of(&b->state, &map);
    pthread_rwlock_unlock(&s->lock);
    if (status != KNNLM_OK) return kn_http_error_status(err, status, knnlm_message());
    // No state is replaced while the model's lock is held: that of the states need not be.
    kn_ticket_lock_acquire(s->model_lock);
    kn_context context = {tokens, count, b->state.mixture};
    status = find_place(s, &b->state, &context, place, out);
    kn_ticket_lock_release(s->model_lock);
    return status == KNNLM_OK || kn_http_error_status(err, status, knnlm_message());
}
