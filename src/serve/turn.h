// The model serves one at a time: who wants it waits in the order of asking. A plain mutex would let the one
// who gives it back take it again at once. Not a door: only this room includes it.
#ifndef KN_SERVE_TURN_H
#define KN_SERVE_TURN_H

#include <pthread.h>

typedef struct kn_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned long next, serving;
} kn_turn;

static inline void kn_turn_init(kn_turn *t) {
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->next = t->serving = 0;
}
static inline void kn_turn_destroy(kn_turn *t) {
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
}
static inline void kn_turn_take(kn_turn *t) {
    pthread_mutex_lock(&t->lock);
    unsigned long mine = t->next++;
    while (t->serving != mine) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
static inline void kn_turn_give(kn_turn *t) {
    pthread_mutex_lock(&t->lock);
    t->serving++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

#endif
