// A search for one query under way. Not a door: only this room includes it.
#ifndef KN_INDEX_SINGLE_PARTS_H
#define KN_INDEX_SINGLE_PARTS_H

#include "index/resident.h"
#include "index/view.h"
#include "math/top.h"

enum { KN_SINGLE_CHUNK = 256 }; // rows measured before they are looked at: some whole blocks of codes

struct kn_searcher {
    const kn_index *x;
    size_t k_max;
    float *query, *residual, *tables, *rows; // rows: CHUNK of them, decoded
    uint8_t *small;                          // the tables in 8 bits
    uint32_t *lists;
    kn_searcher *coarse; // of the lists' own index, where they have one
    float *near;         // distances of lists
    void *probe;         // memory of the quantizer
    int16_t *whole;      // the query, where keys are integers
    kn_integer_query terms;
    kn_item *items, *candidates;
    kn_top top;
    kn_resident resident;
    _Atomic bool damaged; // what was to be looked at is not as it was written: it was not looked at
};

// Places [from, to) of a run, which are a list of it, and what is looked for there.
typedef struct kn_look {
    const kn_search_options *o;
    const kn_run *run;
    size_t list, from, to;
    uint64_t base; // KN_NO_BASE: items name entries; else places, counted from it
    kn_top *top;
} kn_look;
#define KN_NO_BASE UINT64_MAX

// How many items the entry at `place` makes: one or none.
static inline size_t kn_look_admit(const kn_index *x, const kn_look *l, size_t place, float distance,
                                   kn_item *item) {
    if (!(distance <= l->top->limit)) return 0;
    uint32_t id = kn_run_id(l->run, place);
    if (!kn_index_admits(x, l->o, 0, id)) return 0;
    *item = kn_item_make(distance, l->base == KN_NO_BASE ? id : (uint32_t)(l->base + place));
    return 1;
}

// Looks at places by their codes; `roughly`: as well as 8-bit tables can, where that is well enough.
void kn_searcher_scan_codes(kn_searcher *s, const kn_look *l, bool roughly);

#endif
