// The served stores: opening, and publishing new states.
#include "serve/served.h"

#include "serve/served_parts.h"

#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- opening

// The folder's name, without ".store".
static char *name_of(const char *path) {
    char *copy = kn_strdup(path), *name = copy ? kn_strdup(basename(copy)) : NULL;
    size_t length = name ? strlen(name) : 0;
    if (length > 6 && strcmp(name + length - 6, ".store") == 0) name[length - 6] = 0;
    free(copy);
    return name;
}

knnlm_status kn_served_store_reopen(const kn_served *s, const kn_served_store *b, kn_served_state *out) {
    kn_mixture_options alone = s->options;
    alone.stores = &b->choice;
    alone.store_count = 1; // how several share is decided by each request
    *out = (kn_served_state){0};
    KN_TRY(kn_store_open(b->path, &out->store));
    const kn_store_info *info = kn_store_describe(out->store);
    if (info->entries == info->removed_entries) return KNNLM_OK; // nothing to be searched, but to be added to
    knnlm_status status = kn_mixture_open(s->lm, &alone, &out->mixture);
    if (status != KNNLM_OK) kn_served_state_close(out);
    return status;
}

void kn_served_state_close(kn_served_state *state) {
    kn_mixture_close(state->mixture);
    kn_store_close(state->store);
    *state = (kn_served_state){0};
}

// One pass of the model has one tap: a store that was made anew with another cannot join the others.
static knnlm_status check_tap(const kn_served_store *b, kn_served_state *fresh) {
    const char *old = kn_store_describe(b->state.store)->settings.tap;
    const char *new = kn_store_describe(fresh->store)->settings.tap;
    if (!*old || !*new || strcmp(old, new) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s has keys of %s now, not of %s: start the server anew", b->path, new,
                   old);
}

// Opened before anybody has to wait for it.
static knnlm_status publish(kn_served *s, kn_served_store *b) {
    kn_served_state fresh, old;
    KN_TRY(kn_served_store_reopen(s, b, &fresh));
    knnlm_status status = check_tap(b, &fresh);
    if (status != KNNLM_OK) {
        kn_served_state_close(&fresh);
        return status;
    }
    kn_ticket_lock_acquire(s->model_lock);
    pthread_rwlock_wrlock(&s->lock);
    old = b->state;
    b->state = fresh;
    pthread_rwlock_unlock(&s->lock);
    kn_ticket_lock_release(s->model_lock);
    kn_served_state_close(&old);
    return KNNLM_OK;
}

knnlm_status kn_served_store_publish(kn_served *s, kn_served_store *b) {
    pthread_mutex_lock(&s->publishing);
    knnlm_status status = publish(s, b);
    pthread_mutex_unlock(&s->publishing);
    return status;
}

static knnlm_status open_store(kn_served *s, size_t number, const kn_store_choice *choice) {
    kn_served_store *b = &s->stores[number];
    b->choice = *choice;
    b->path = kn_strdup(choice->path);
    b->name = name_of(choice->path);
    if (!b->path || !b->name) return KNNLM_ENOMEM;
    b->choice.path = b->path;
    for (size_t i = 0; i < number; i++)
        if (strcmp(s->stores[i].name, b->name) == 0)
            return kn_fail(KNNLM_EINVAL, "%s: another store is called \"%s\" too", b->path, b->name);
    return kn_served_store_reopen(s, b, &b->state);
}

// One pass of the model has one tap, be a store empty for now or not.
static knnlm_status share_tap(kn_served *s) {
    const kn_store_info *first = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const kn_store_info *info = kn_store_describe(s->stores[i].state.store);
        if (!*info->settings.tap) continue;
        if (first && strcmp(first->settings.tap, info->settings.tap) != 0)
            return kn_fail(KNNLM_EINVAL,
                           "%s has keys of %s, %s of %s: only stores of one tap can be searched together",
                           first->path, first->settings.tap, info->path, info->settings.tap);
        first = info;
    }
    return first ? kn_tap_parse(first->settings.tap, &s->tap) : KNNLM_OK;
}

// Weights that were given to single stores; the others share what requests give them.
static knnlm_status check_weights(const kn_served *s) {
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        if (!isnan(s->stores[i].choice.weight)) sum += s->stores[i].choice.weight;
    return sum <= 1 + 1e-12 ? KNNLM_OK
                            : kn_fail(KNNLM_EINVAL, "the weights of the stores are in sum %g, above 1", sum);
}

static knnlm_status open_all(kn_served *s, const kn_mixture_options *o) {
    if (o->store_count > KN_STORES_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu stores: at most %d at a time", o->store_count, KN_STORES_MAX);
    for (size_t i = 0; i < o->store_count; i++) {
        s->count = i + 1;
        KN_TRY(open_store(s, i, &o->stores[i]));
    }
    KN_TRY(share_tap(s));
    return check_weights(s);
}

// Who only reads must not hold up who has the model's lock and waits to change something.
static void init_lock(pthread_rwlock_t *lock) {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

// As the one store was tuned, where that was with a cache.
static knnlm_status open_cache(kn_served *s, const kn_mixture_options *o) {
    kn_mixture_options cached = {.distance = -1,
                                 .cache = o->cache,
                                 .cache_lambda = o->cache_lambda,
                                 .cache_temperature = o->cache_temperature};
    const kn_store_cache *t =
        s->count == 1 ? &kn_store_describe(s->stores[0].state.store)->tuned.cache : &(kn_store_cache){0};
    if (isnan(cached.cache_lambda) && t->size) cached.cache_lambda = t->lambda;
    if (isnan(cached.cache_temperature) && t->size) cached.cache_temperature = t->temperature;
    return kn_mixture_open(s->lm, &cached, &s->cached);
}

knnlm_status kn_served_open(kn_lm *lm, kn_ticket_lock *model_lock, const kn_mixture_options *o,
                            kn_served **out) {
    kn_served *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    *s = (kn_served){.lm = lm, .model_lock = model_lock, .options = *o, .tap = KN_TAP_DEFAULT};
    s->options.cache = 0; // of the stores: texts that are generated begin with `cached`
    init_lock(&s->lock);
    pthread_mutex_init(&s->writing, NULL);
    pthread_mutex_init(&s->publishing, NULL);
    kn_mixture_options none = {.distance = -1};
    knnlm_status status = kn_mixture_open(lm, &none, &s->nothing);
    if (status == KNNLM_OK) status = open_all(s, o);
    if (status == KNNLM_OK && o->cache > 0) status = open_cache(s, o);
    s->options.stores = NULL; // the caller's: each has its own
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_served_close(s);
    return status;
}

void kn_served_close(kn_served *s) {
    if (!s) return;
    kn_served_refresh_end(s);
    for (size_t i = 0; i < s->count; i++) {
        kn_served_state_close(&s->stores[i].state);
        free(s->stores[i].name);
        free(s->stores[i].path);
        free(s->stores[i].failure);
    }
    kn_mixture_close(s->nothing);
    kn_mixture_close(s->cached);
    pthread_rwlock_destroy(&s->lock);
    pthread_mutex_destroy(&s->writing);
    pthread_mutex_destroy(&s->publishing);
    free(s);
}

size_t kn_served_count(const kn_served *s) {
    return s->count;
}

const char *kn_served_name(const kn_served *s, size_t number) {
    return s->stores[number].name;
}

const char *kn_served_name_of(const kn_served *s, const char *path) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->stores[i].path, path) == 0) return s->stores[i].name;
    return "";
}

void kn_served_hide_paths(const kn_served *s, kn_http_error *err) {
    for (size_t i = 0; i < s->count; i++) kn_http_error_hide_path(err, s->stores[i].path, s->stores[i].name);
}

kn_tap kn_served_tap(const kn_served *s) {
    return s->tap;
}

uint64_t kn_served_entries(kn_served *s, size_t number) {
    pthread_rwlock_rdlock(&s->lock);
    const kn_store_info *info = kn_store_describe(s->stores[number].state.store);
    uint64_t entries = info->entries - info->removed_entries;
    pthread_rwlock_unlock(&s->lock);
    return entries;
}

bool kn_served_find(const kn_served *s, const char *name, size_t *number, kn_http_error *err) {
    *number = 0;
    while (*number < s->count && strcmp(s->stores[*number].name, name) != 0) ++*number;
    return *number < s->count ||
           kn_http_error_set(err, 404, "not_found", NULL, "no store is called '%.100s'", name);
}

kn_served_store *kn_served_named(kn_served *s, const char *name, kn_http_error *err) {
    size_t number;
    return kn_served_find(s, name, &number, err) ? &s->stores[number] : NULL;
}
