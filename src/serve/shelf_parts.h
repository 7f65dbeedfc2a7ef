// The inside of a shelf, for the files that are it.
#ifndef KN_SERVE_SHELF_PARTS_H
#define KN_SERVE_SHELF_PARTS_H

#include "serve/shelf.h"

// A store in one state.
typedef struct kn_book_state {
    kn_store *store;
    kn_mixture *mixture; // of it alone; NULL: it has no entries
} kn_book_state;

typedef struct kn_book {
    char *name, *path;
    kn_store_choice choice;
    kn_book_state state;
    char *failure; // of the last attempt to open a newer state, and when to try again
    double retry;
} kn_book;

struct kn_shelf {
    kn_lm *lm;
    kn_turn *turn;
    kn_mixture_options options;
    bool writable;
    kn_tap tap;
    kn_mixture *nothing; // without stores: every view begins with it
    kn_book books[KN_STORES_MOST];
    size_t count;
    pthread_rwlock_t lock;   // of the states, against those who read without having the turn
    pthread_mutex_t writing; // one change at a time
    // Held from opening a newer state to its taking the old one's place: who comes later opens later, and no
    // older state takes the place of a newer one.
    pthread_mutex_t publishing;
    kn_warn *warn;
    struct {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool started, ending;
    } refresh;
};

kn_book *kn_shelf_find(kn_shelf *s, const char *name, kn_complaint *c);
knnlm_status kn_book_reopen(const kn_shelf *s, const kn_book *b, kn_book_state *out);
void kn_book_state_close(kn_book_state *state);
// What is on disk takes the place of what is served. KNNLM_EINVAL: its keys have another tap; else as
// kn_book_reopen.
knnlm_status kn_book_publish(kn_shelf *s, kn_book *b);
void kn_shelf_refresh_end(kn_shelf *s);

#endif
