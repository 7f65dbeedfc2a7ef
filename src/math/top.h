// The k smallest of a stream of (distance, entry), ties to the lower entry.
#ifndef KN_MATH_TOP_H
#define KN_MATH_TOP_H

#include "base/convert.h"
#include "base/memory.h"

#include <stdatomic.h>

// Distance and entry as one number that sorts as both do: one comparison, one array.
typedef uint64_t kn_item;

static inline kn_item kn_item_make(float distance, uint32_t id) {
    uint32_t bits = kn_f32_bits(distance);
    bits ^= bits >> 31 ? UINT32_MAX : 0x80000000u;
    return (kn_item)bits << 32 | id;
}
static inline float kn_item_distance(kn_item item) {
    uint32_t bits = (uint32_t)(item >> 32);
    return kn_bits_f32(bits >> 31 ? bits ^ 0x80000000u : ~bits);
}
static inline uint32_t kn_item_id(kn_item item) {
    return (uint32_t)item;
}

// Puts the k smallest of n items first, in any order; the others are lost.
void kn_items_select(kn_item *items, size_t n, size_t k);
// Ascending. `scratch` has room for n.
void kn_items_sort(kn_item *items, size_t n, kn_item *scratch);

// Candidates of one query: `capacity` items at the caller's place, shrunk to the best k when full.
typedef struct kn_top {
    kn_item *items;
    uint32_t count, k, capacity;
    _Atomic float limit; // what is farther is not among the k; infinity while there are fewer
    float guess;         // the limit to begin with; infinity: none
    atomic_flag lock;
    bool missing; // fewer than k were within the guess
} kn_top;

enum { KN_TOP_SLACK = 256 };
// Room for k items and what gathers before they are sorted out.
static inline size_t kn_top_capacity(size_t k) {
    return k + kn_max(k / 2, KN_TOP_SLACK);
}
// As many as are sorted at the end: a few more than k.
static inline size_t kn_top_scratch(size_t k) {
    return k + k / 2;
}
void kn_top_init(kn_top *top, kn_item *items, size_t k);
// n <= KN_TOP_SLACK.
void kn_top_put(kn_top *top, const kn_item *items, size_t n);
void kn_top_put_shared(kn_top *top, const kn_item *items, size_t n); // while other threads may do the same
// The distance of the k-th of all that was put; infinity when there are fewer.
float kn_top_limit(kn_top *top);
// Whether k of all that was put are within the limit, which is at least that of the top.
bool kn_top_has(const kn_top *top, float limit);
// Sorts the best k; returns how many there are. `scratch` has room for kn_top_scratch of k.
size_t kn_top_finish(kn_top *top, kn_item *scratch);
// Puts the best first, and of the others the best k - 1 in any order.
size_t kn_top_finish_unsorted(kn_top *top);

#endif
