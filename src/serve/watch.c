// A watchdog thread over connections: slow clients (slowloris, slow read) are cut off.
#include "serve/watch.h"

#include "base/memory.h"
#include "base/progress.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { STEP_SECONDS = 30, BODY_SECONDS = 120, TRIM_SECONDS = 10 };

typedef struct watched {
    struct MHD_Connection *connection;
    int fd;
    double until; // 0: it is our turn
    bool rests;   // between two requests
} watched;

struct kn_watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, ending;
    double step; // seconds for a head, or for a block
    watched *list;
    size_t count, capacity;
    size_t crowd; // connections, from which on those that rest too long are closed
};

// Those that rest make way when few connections are left.
static bool is_late(const kn_watch *w, const watched *x, double now) {
    if (x->until == 0) return false;
    bool crowded = x->rests && w->count >= w->crowd;
    return now >= x->until - (crowded ? KN_REST_SECONDS : 0);
}

// The connection's own thread notices, and closes it.
static void cut_late(kn_watch *w) {
    double now = kn_seconds();
    for (size_t i = 0; i < w->count; i++) {
        if (!is_late(w, &w->list[i], now)) continue;
        shutdown(w->list[i].fd, SHUT_RDWR);
        w->list[i].until = 0;
    }
}

// Batches of many sizes leave holes in the heap, which would grow for hours: whole pages go back to the
// system.
static void trim_heap(kn_watch *w) {
    pthread_mutex_unlock(&w->lock);
    malloc_trim(0);
    pthread_mutex_lock(&w->lock);
}

static void *look(void *context) {
    kn_watch *w = context;
    pthread_mutex_lock(&w->lock);
    for (size_t second = 1; !w->ending; second++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&w->changed, &w->lock, &until);
        cut_late(w);
        if (second % TRIM_SECONDS == 0) trim_heap(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

knnlm_status kn_watch_open(double timeout, size_t connections, kn_watch **out) {
    kn_watch *w = kn_alloc(1, sizeof *w);
    if (!w) return KNNLM_ENOMEM;
    w->step = timeout < STEP_SECONDS ? timeout : STEP_SECONDS;
    w->crowd = connections - connections / 4;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    int code = pthread_create(&w->thread, NULL, look, w);
    w->started = code == 0;
    *out = w;
    return code ? kn_fail(KNNLM_ENOMEM, "cannot start a thread: %s", strerror(code)) : KNNLM_OK;
}

void kn_watch_close(kn_watch *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started) pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->list);
    free(w);
}

static watched *find(kn_watch *w, const struct MHD_Connection *connection) {
    for (size_t i = 0; i < w->count; i++)
        if (w->list[i].connection == connection) return &w->list[i];
    return NULL;
}

static void note(kn_watch *w, struct MHD_Connection *connection, double until, bool rests) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&w->lock);
    watched *x = find(w, connection);
    if (!x && kn_grow(&w->list, &w->capacity, w->count + 1, sizeof *w->list) == KNNLM_OK)
        x = &w->list[w->count++];
    if (x) *x = (watched){connection, info ? info->connect_fd : -1, until, rests};
    pthread_mutex_unlock(&w->lock);
}

void kn_watch_enter(kn_watch *w, struct MHD_Connection *connection) {
    note(w, connection, kn_seconds() + w->step, false);
}

void kn_watch_rest(kn_watch *w, struct MHD_Connection *connection) {
    note(w, connection, kn_seconds() + KN_REST_SECONDS + w->step, true);
}

void kn_watch_asked(kn_watch *w, struct MHD_Connection *connection) {
    note(w, connection, 0, false);
}

void kn_watch_sending(kn_watch *w, struct MHD_Connection *connection) {
    note(w, connection, kn_seconds() + w->step, false);
}

void kn_watch_leave(kn_watch *w, struct MHD_Connection *connection) {
    pthread_mutex_lock(&w->lock);
    watched *x = find(w, connection);
    if (x) *x = w->list[--w->count];
    pthread_mutex_unlock(&w->lock);
}

bool kn_watch_is_late(double begun) {
    return kn_seconds() - begun > BODY_SECONDS;
}
