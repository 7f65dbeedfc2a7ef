#include "index/top.h"

#include <math.h>
#include <string.h>

enum { SMALL = 16 };

static void insertion_sort(kn_item *a, size_t n) {
    for (size_t i = 1; i < n; i++) {
        kn_item x = a[i];
        size_t j = i;
        for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

static kn_item median3(kn_item a, kn_item b, kn_item c) {
    if (a > b) {
        kn_item t = a;
        a = b;
        b = t;
    }
    return c < a ? a : c > b ? b : c;
}

// Hoare's selection.
void kn_items_select(kn_item *a, size_t n, size_t k) {
    while (n > SMALL && k > 0 && k < n) {
        kn_item pivot = median3(a[n / 4], a[n / 2], a[n - 1 - n / 4]);
        size_t i = 0, j = n - 1;
        for (;;) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i >= j) break;
            kn_item t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        // a[0..i) <= pivot <= a[i..n); a pivot that is the least of all stands alone
        if (i == 0) i = 1;
        if (k <= i) {
            n = i;
        } else {
            a += i;
            n -= i;
            k -= i;
        }
    }
    if (k > 0 && k < n) insertion_sort(a, n);
}

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

// One pass of a radix sort by the bits from `shift` on.
static void scatter(const kn_item *from, kn_item *to, size_t n, int shift) {
    uint32_t starts[DIGITS] = {0};
    for (size_t i = 0; i < n; i++) starts[from[i] >> shift & (DIGITS - 1)]++;
    for (uint32_t d = 0, sum = 0; d < DIGITS; d++) {
        uint32_t count = starts[d];
        starts[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) to[starts[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}

// By the distance in three passes; equal ones, which are few, by insertion.
void kn_items_sort(kn_item *a, size_t n, kn_item *scratch) {
    if (n > 4 * SMALL) {
        scatter(a, scratch, n, 31);
        scatter(scratch, a, n, 42);
        scatter(a, scratch, n, 53);
        memcpy(a, scratch, n * sizeof *a);
    }
    insertion_sort(a, n);
}

void kn_items_sort_places(kn_item *a, size_t n, kn_item *scratch) {
    for (int shift = 0; shift < 33; shift += DIGIT) {
        scatter(a, scratch, n, shift);
        memcpy(a, scratch, n * sizeof *a);
    }
}

void kn_top_init(kn_top *t, kn_item *items, size_t k) {
    *t = (kn_top){.items = items,
                  .k = (uint32_t)k,
                  .capacity = (uint32_t)kn_top_capacity(k),
                  .limit = INFINITY,
                  .lock = ATOMIC_FLAG_INIT};
}

static void shrink(kn_top *t) {
    if (t->count <= t->k) return;
    kn_items_select(t->items, t->count, t->k);
    kn_item farthest = 0;
    for (uint32_t i = 0; i < t->k; i++)
        if (t->items[i] > farthest) farthest = t->items[i];
    t->count = t->k;
    t->limit = kn_item_distance(farthest);
}

void kn_top_put(kn_top *t, const kn_item *items, size_t n) {
    if (t->count + n > t->capacity) shrink(t);
    memcpy(t->items + t->count, items, n * sizeof *items);
    t->count += (uint32_t)n;
}

size_t kn_top_finish(kn_top *t, kn_item *scratch) {
    shrink(t);
    kn_items_sort(t->items, t->count, scratch);
    return t->count;
}
