// What the public functions share. Not a door: only this room includes it.
#ifndef KN_API_H
#define KN_API_H

#include "build/build.h"
#include "knn/mixture.h"

#include <pthread.h>

struct knnlm_store {
    kn_store *store;
    pthread_mutex_t mutex; // of the rest, each of which is loaded when first asked for
    kn_tokenizer *tokenizer;
    kn_index *index, *flat; // with the store's lists, and without them
};

struct knnlm_mixture {
    kn_lm *lm;
    kn_mixture *mixture;
};

// The store is const to its readers; what it loads when asked is all that it learns while it is open.
static inline knnlm_store *api_lock(const knnlm_store *constant) {
    knnlm_store *s = (knnlm_store *)(uintptr_t)constant;
    pthread_mutex_lock(&s->mutex);
    return s;
}
static inline void api_unlock(knnlm_store *s) {
    pthread_mutex_unlock(&s->mutex);
}

// Who listens to public progress, which has neither names nor units.
typedef struct api_listener {
    bool (*progress)(void *context, uint64_t done, uint64_t in_all);
    void *context;
} api_listener;

static inline bool api_forward(void *context, const char *what, uint64_t done, uint64_t total,
                               const char *unit) {
    const api_listener *l = context;
    (void)what;
    (void)unit;
    return l->progress(l->context, done, total);
}

// The listener outlives what is given.
static inline kn_progress api_progress(api_listener *l) {
    return (kn_progress){l->progress ? api_forward : NULL, l};
}

#endif
