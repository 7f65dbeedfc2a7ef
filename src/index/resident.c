// Counts what was looked at, and releases its pages.
#include "index/resident.h"

void kn_resident_end(kn_resident *r) {
    if (r->touched) kn_store_release_keys(r->store);
    r->touched = 0;
}

bool kn_resident_touch(kn_resident *r, uint64_t bytes) {
    if (!r->max || !r->store) return false;
    r->touched += bytes;
    if (r->touched < r->max / 4) return false;
    kn_resident_end(r);
    return true;
}
