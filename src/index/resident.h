// Bounds what is resident of a store's keys while they are looked at. Not a door: only this room includes it.
#ifndef KN_INDEX_RESIDENT_H
#define KN_INDEX_RESIDENT_H

#include "store/store.h"

typedef struct kn_resident {
    const kn_store *store; // NULL: keys in memory, which stay
    uint64_t max;          // bytes; 0: any
    uint64_t touched;      // since pages were released
} kn_resident;

// So many bytes of keys were looked at; whether all pages of keys were released after it, as they are before
// a quarter of `max` is touched: the system maps pages beside those touched too.
bool kn_resident_touch(kn_resident *r, uint64_t bytes);
// Nothing more is looked at: releases what is left, where there is a bound.
void kn_resident_end(kn_resident *r);

#endif
