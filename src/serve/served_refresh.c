// Stores that another process changes (knnlm add, remove, compact, tune): a thread looks at their manifests a
// few times per second, and opens what is new beside the old.
#include "serve/served_parts.h"

#include "base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 250, RETRY_SECONDS = 2 };

static bool is_current(kn_served *s, const kn_served_store *b) {
    pthread_rwlock_rdlock(&s->lock);
    bool current = kn_store_is_current(b->state.store);
    pthread_rwlock_unlock(&s->lock);
    return current;
}

// What cannot be opened is said once, and tried again: the state before goes on being served.
static void tell_failure(kn_served *s, kn_served_store *b) {
    const char *message = knnlm_message();
    b->retry = kn_seconds() + RETRY_SECONDS;
    if (b->failure && strcmp(b->failure, message) == 0) return;
    free(b->failure);
    b->failure = kn_strdup(message);
    if (s->warn) s->warn(s->warn_context, b->path, message);
}

static void refresh(kn_served *s, kn_served_store *b) {
    if (kn_seconds() < b->retry || is_current(s, b)) return;
    if (kn_served_store_publish(s, b) != KNNLM_OK) return tell_failure(s, b);
    free(b->failure);
    b->failure = NULL;
    b->retry = 0;
}

// False: it is being closed.
static bool rest(kn_served *s) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&s->refresh.lock);
    if (!s->refresh.ending) pthread_cond_timedwait(&s->refresh.changed, &s->refresh.lock, &until);
    bool go_on = !s->refresh.ending;
    pthread_mutex_unlock(&s->refresh.lock);
    return go_on;
}

static void *look(void *context) {
    kn_served *s = context;
    while (rest(s))
        for (size_t i = 0; i < s->count; i++) refresh(s, &s->stores[i]);
    return NULL;
}

knnlm_status kn_served_refresh(kn_served *s, kn_warn *warn, void *context) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->refresh.lock, NULL);
    pthread_cond_init(&s->refresh.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->warn = warn;
    s->warn_context = context;
    int code = pthread_create(&s->refresh.thread, NULL, look, s);
    s->refresh.started = code == 0;
    return code ? kn_fail(KNNLM_ENOMEM, "cannot start a thread: %s", strerror(code)) : KNNLM_OK;
}

void kn_served_refresh_end(kn_served *s) {
    if (!s->refresh.started) return;
    pthread_mutex_lock(&s->refresh.lock);
    s->refresh.ending = true;
    pthread_cond_signal(&s->refresh.changed);
    pthread_mutex_unlock(&s->refresh.lock);
    pthread_join(s->refresh.thread, NULL);
    pthread_mutex_destroy(&s->refresh.lock);
    pthread_cond_destroy(&s->refresh.changed);
}
