// The inside of the served stores, for the files that are it.
#ifndef KN_SERVE_SERVED_PARTS_H
#define KN_SERVE_SERVED_PARTS_H

#include "serve/served.h"

// A store in one state.
typedef struct kn_served_state {
    kn_store *store;
    kn_mixture *mixture; // of it alone; NULL: it has no entries
} kn_served_state;

typedef struct kn_served_store {
    char *name, *path;
    kn_store_choice choice;
    kn_served_state state;
    char *failure; // of the last attempt to open a newer state, and when to try again
    double retry;
} kn_served_store;

struct kn_served {
    kn_lm *lm;
    kn_ticket_lock *model_lock;
    kn_mixture_options options;
    kn_tap tap;
    kn_mixture *nothing; // without stores: every view begins with it,
    kn_mixture
        *cached; // or with this, which has a cache, where texts are generated; NULL: none was asked for
    kn_served_store stores[KN_STORES_MAX];
    size_t count;
    pthread_rwlock_t lock;   // of the states, against those who read without holding the model's lock
    pthread_mutex_t writing; // one change at a time
    // Held from opening a newer state to its taking the old one's place: who comes later opens later, and no
    // older state takes the place of a newer one.
    pthread_mutex_t publishing;
    kn_warn *warn;
    void *warn_context;
    struct {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool started, ending;
    } refresh;
};

// NULL: none of this name (404 set).
kn_served_store *kn_served_named(kn_served *s, const char *name, kn_http_error *err);
knnlm_status kn_served_store_reopen(const kn_served *s, const kn_served_store *b, kn_served_state *out);
void kn_served_state_close(kn_served_state *state);
// What is on disk takes the place of what is served. KNNLM_EINVAL: its keys have another tap; else as
// kn_served_store_reopen.
knnlm_status kn_served_store_publish(kn_served *s, kn_served_store *b);
void kn_served_refresh_end(kn_served *s);

// Around a change: the store, to which others are kept from writing until the end; NULL: it cannot be had
// (error set).
kn_served_store *kn_served_change_begin(kn_served *s, const kn_served_change *change, kn_http_error *err);
void kn_served_change_end(kn_served *s);
// What the library reported, as an answer; true: nothing.
bool kn_served_change_error(kn_http_error *err, knnlm_status status);

#endif
