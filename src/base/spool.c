// One thread and a bounded queue of jobs: puts wait when it is full, the first failure is kept.
#include "base/spool.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    kn_spool_job *run;
    void *context;
} job;

struct kn_spool {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job *ring;
    size_t depth, first, waiting;
    bool busy, quit;
    knnlm_status status; // of the first job that failed
    char *message;       // its message; NULL when there was no memory for it
};

static void run_one(kn_spool *s, job j) {
    bool failed = s->status != KNNLM_OK;
    pthread_mutex_unlock(&s->mutex);
    knnlm_status status = j.run(j.context, failed);
    char *message = status == KNNLM_OK || failed ? NULL : strdup(knnlm_message());
    pthread_mutex_lock(&s->mutex);
    if (failed) return;
    s->status = status;
    s->message = message;
}

static void *work(void *context) {
    kn_spool *s = context;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->waiting && !s->quit) pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->waiting) break;
        job j = s->ring[s->first];
        s->first = (s->first + 1) % s->depth;
        s->waiting--;
        s->busy = true;
        run_one(s, j);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

knnlm_status kn_spool_open(size_t depth, kn_spool **out) {
    kn_spool *s = kn_alloc(1, sizeof *s);
    job *ring = kn_alloc(depth, sizeof *ring);
    if (!s || !ring) {
        free(s);
        free(ring);
        return KNNLM_ENOMEM;
    }
    s->ring = ring;
    s->depth = depth;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    int error = pthread_create(&s->thread, NULL, work, s);
    if (error) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->mutex);
        free(ring);
        free(s);
        return kn_fail_errno(KNNLM_ENOMEM, error, "cannot start a thread for writing");
    }
    *out = s;
    return KNNLM_OK;
}

// The failure of another thread, told in this one. The mutex is held.
static knnlm_status verdict(const kn_spool *s) {
    if (s->status == KNNLM_OK) return KNNLM_OK;
    return kn_fail(s->status, "%s", s->message ? s->message : knnlm_status_name(s->status));
}

knnlm_status kn_spool_put(kn_spool *s, kn_spool_job *run, void *context) {
    pthread_mutex_lock(&s->mutex);
    while (s->waiting == s->depth) pthread_cond_wait(&s->changed, &s->mutex);
    s->ring[(s->first + s->waiting++) % s->depth] = (job){run, context};
    pthread_cond_broadcast(&s->changed);
    knnlm_status status = verdict(s);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

knnlm_status kn_spool_drain(kn_spool *s) {
    pthread_mutex_lock(&s->mutex);
    while (s->waiting || s->busy) pthread_cond_wait(&s->changed, &s->mutex);
    knnlm_status status = verdict(s);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

void kn_spool_close(kn_spool *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->message);
    free(s->ring);
    free(s);
}
