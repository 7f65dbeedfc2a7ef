// The inside of a shelf, for the files that are it.
#ifndef KN_SERVE_SHELF_PARTS_H
#define KN_SERVE_SHELF_PARTS_H

#include "serve/shelf.h"

// A store in one state.
typedef struct kn_book_state {
    kn_store *store;
    kn_mixed_store mixed;
    bool searchable; // it has entries
} kn_book_state;

typedef struct kn_book {
    char *name, *path;
    kn_store_choice choice;
    kn_book_state state;
} kn_book;

struct kn_shelf {
    kn_lm *lm;
    kn_turn *turn;
    kn_mixture_options options;
    bool writable;
    kn_tap tap;
    kn_book books[KN_STORES_MOST];
    size_t count;
    pthread_rwlock_t lock;   // of the states, against those who read without having the turn
    pthread_mutex_t writing; // one change at a time
};

kn_book *kn_shelf_find(kn_shelf *s, const char *name, kn_complaint *c);
knnlm_status kn_book_reopen(const kn_shelf *s, const kn_book *b, kn_book_state *out);
void kn_book_state_close(kn_book_state *state);

#endif
