// A ticket lock, for the model, which serves one at a time: who wants it waits in the order of asking. A
// plain mutex would let the one who gives it back take it again at once. Not a door: only this room includes
// it.
#ifndef KN_SERVE_TICKET_LOCK_H
#define KN_SERVE_TICKET_LOCK_H

#include <pthread.h>

typedef struct kn_ticket_lock {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned long next, serving;
} kn_ticket_lock;

static inline void kn_ticket_lock_init(kn_ticket_lock *t) {
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->next = t->serving = 0;
}
static inline void kn_ticket_lock_destroy(kn_ticket_lock *t) {
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
}
static inline void kn_ticket_lock_acquire(kn_ticket_lock *t) {
    pthread_mutex_lock(&t->lock);
    unsigned long mine = t->next++;
    while (t->serving != mine) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
static inline void kn_ticket_lock_release(kn_ticket_lock *t) {
    pthread_mutex_lock(&t->lock);
    t->serving++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

#endif
