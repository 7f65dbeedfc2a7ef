// Selects and sorts the k smallest of many, with few comparisons whose outcome a CPU would have to guess.
#include "math/top.h"

#include "math/math.h"

#include <math.h>
#include <string.h>

enum {
    SMALL = 16,
    NEAR = 64,   // ranks around the k-th that are sorted out one by one
    ROUNDS = 12, // countings until then, at most
    CROWD = 512, // of them, kept on the stack
};

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
static void select_by_pivots(kn_item *a, size_t n, size_t k) {
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

// The k-th item is somewhere in [low, high): so many are below either.
typedef struct bracket {
    kn_item low, high;
    size_t below_low, below_high;
} bracket;

// Where the item of a rank would be if those between lay evenly.
static kn_item interpolate(const bracket *b, size_t rank) {
    double part = (double)(rank - b->below_low) / (double)(b->below_high - b->below_low);
    kn_item pivot = b->low + (kn_item)(part * (double)(b->high - b->low));
    return kn_max(b->low + 1, kn_min(pivot, b->high - 1));
}

// Draws the bracket together around the k-th: from each side to a few ranks away from it.
static void narrow(const kn_kernels *kernels, const kn_item *a, size_t n, size_t k, bracket *b) {
    for (int round = 0; round < ROUNDS && b->below_high - b->below_low > NEAR && b->high - b->low > 1;
         round++) {
        bool from_above = b->below_high - k > k - b->below_low;
        size_t rank =
            from_above ? kn_min(k + NEAR / 4, b->below_high) : k - kn_min(NEAR / 4, k - b->below_low);
        kn_item pivot = interpolate(b, rank);
        size_t below = kernels->count_below(a, n, pivot);
        if (below > k) {
            b->high = pivot;
            b->below_high = below;
        } else {
            b->low = pivot;
            b->below_low = below;
        }
    }
}

// Of more than a few items; false: they lie too unevenly, or too near the largest number that there is.
static bool find_bracket(const kn_kernels *kernels, const kn_item *a, size_t n, size_t k, bracket *out) {
    kn_item min, max;
    if (n <= 4 * SMALL) return false;
    kernels->item_range(a, n, &min, &max);
    if (max == UINT64_MAX) return false;
    *out = (bracket){min, max + 1, 0, n};
    narrow(kernels, a, n, k, out);
    return out->below_high - out->below_low <= CROWD;
}

// All below the bracket stay; of what it holds, as many as are missing.
void kn_items_select(kn_item *a, size_t n, size_t k) {
    const kn_kernels *kernels = kn_math_kernels(KNNLM_PRECISION_F32);
    kn_item crowd[CROWD + 8];
    bracket b;
    if (k == 0 || k >= n) return;
    if (!find_bracket(kernels, a, n, k, &b)) {
        select_by_pivots(a, n, k);
        return;
    }
    size_t kept = kernels->cut_items(a, n, b.low, b.high, crowd);
    select_by_pivots(crowd, b.below_high - kept, k - kept);
    memcpy(a + kept, crowd, (k - kept) * sizeof *a);
}

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

static void scatter(const kn_item *from, kn_item *to, size_t n, kn_item min, int shift, uint32_t *places) {
    for (uint32_t d = 0, sum = 0; d < DIGITS; d++) {
        uint32_t count = places[d];
        places[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) to[places[(from[i] - min) >> shift & (DIGITS - 1)]++] = from[i];
}

// Whether more than SMALL of the sorted digits are the same.
static bool is_crowded(const kn_item *a, size_t n, kn_item min, int shift) {
    size_t crowds = 0;
    for (size_t i = 0; i + SMALL < n; i++) crowds += (a[i] - min) >> shift == (a[i + SMALL] - min) >> shift;
    return crowds;
}

// By two digits between the least item and the largest: what is equal in both is nearly nothing, or else many
// items next to each other, which are sorted by digits of their own. (One digit, tried for a thousand items,
// leaves more to the insertion sort than it saves.)
void kn_items_sort(kn_item *a, size_t n, kn_item *scratch) {
    if (n > 4 * SMALL) {
        uint32_t low[DIGITS] = {0}, high[DIGITS] = {0};
        kn_item min, max;
        kn_math_kernels(KNNLM_PRECISION_F32)->item_range(a, n, &min, &max);
        int shift = 0;
        while ((max - min) >> shift >= (kn_item)DIGITS * DIGITS) shift++;
        for (size_t i = 0; i < n; i++) {
            kn_item digits = (a[i] - min) >> shift;
            low[digits & (DIGITS - 1)]++;
            high[digits >> DIGIT]++;
        }
        scatter(a, scratch, n, min, shift, low);
        scatter(scratch, a, n, min, shift + DIGIT, high);
        bool crowded = shift && is_crowded(a, n, min, shift);
        for (size_t from = 0, to = 1; crowded && to <= n; to++) {
            if (to < n && (a[to] - min) >> shift == (a[from] - min) >> shift) continue;
            if (to - from > SMALL) kn_items_sort(a + from, to - from, scratch);
            from = to;
        }
    }
    insertion_sort(a, n);
}

void kn_top_init(kn_top *t, kn_item *items, size_t k) {
    *t = (kn_top){.items = items,
                  .k = (uint32_t)k,
                  .capacity = (uint32_t)kn_top_capacity(k),
                  .limit = INFINITY,
                  .guess = INFINITY,
                  .lock = ATOMIC_FLAG_INIT};
}

static void shrink(kn_top *t) {
    kn_item nearest, farthest;
    if (t->count <= t->k) return;
    kn_items_select(t->items, t->count, t->k);
    kn_math_kernels(KNNLM_PRECISION_F32)->item_range(t->items, t->k, &nearest, &farthest);
    t->count = t->k;
    atomic_store_explicit(&t->limit, kn_item_distance(farthest), memory_order_relaxed);
}

void kn_top_put(kn_top *t, const kn_item *items, size_t n) {
    if (t->count + n > t->capacity) shrink(t);
    memcpy(t->items + t->count, items, n * sizeof *items);
    t->count += (uint32_t)n;
}

static void lock(kn_top *t) {
    while (atomic_flag_test_and_set_explicit(&t->lock, memory_order_acquire)) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

void kn_top_put_shared(kn_top *t, const kn_item *items, size_t n) {
    lock(t);
    kn_top_put(t, items, n);
    atomic_flag_clear_explicit(&t->lock, memory_order_release);
}

bool kn_top_has(const kn_top *t, float limit) {
    kn_item last = kn_item_make(limit, UINT32_MAX);
    uint32_t within = 0;
    for (uint32_t i = 0; i < t->count; i++) within += t->items[i] <= last;
    return within >= t->k;
}

float kn_top_limit(kn_top *t) {
    shrink(t);
    return t->count < t->k ? INFINITY : t->limit;
}

// A few too many are sooner sorted than sorted out.
size_t kn_top_finish(kn_top *t, kn_item *scratch) {
    if (t->count > t->k + t->k / 2) shrink(t);
    kn_items_sort(t->items, t->count, scratch);
    t->count = (uint32_t)kn_min(t->count, t->k);
    return t->count;
}

size_t kn_top_finish_unsorted(kn_top *t) {
    kn_item nearest, farthest;
    size_t best = 0;
    if (t->count > t->k) {
        kn_items_select(t->items, t->count, t->k);
        t->count = t->k;
    }
    if (!t->count) return 0;
    kn_math_kernels(KNNLM_PRECISION_F32)->item_range(t->items, t->count, &nearest, &farthest);
    while (t->items[best] != nearest) best++;
    t->items[best] = t->items[0];
    t->items[0] = nearest;
    return t->count;
}
