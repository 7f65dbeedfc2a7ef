// K-means in each part.
#include "base/random.h"
#include "base/threads.h"
#include "index/pq.h"
#include "index/pq_points.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

// What a worker needs for one part.
typedef struct workplace {
    float *x;        // (n, part): the sample's part, less its mean
    uint8_t *near;   // (n): the nearest centroid of each
    float *away;     // (n): squared distance to it; made when a centroid has lost all its points
    double *sums;    // (count, part)
    size_t *members; // (count)
} workplace;

typedef struct learning {
    const kn_kernels *k;
    const float *x;     // (.., d)
    const size_t *rows; // of x: the sample
    size_t n;           // of these
    kn_pq *p;
    uint64_t seed;
    size_t first; // part of task 0
    workplace *places;
    atomic_bool bad; // a value is not finite
} learning;

// ---------------------------------------------------------------- sample

// Each row with the same chance, in order: reading goes forward (Knuth's algorithm S).
static void choose_rows(size_t *rows, size_t wanted, size_t n, uint64_t seed) {
    kn_random random = {seed};
    for (size_t i = 0, chosen = 0; chosen < wanted; i++)
        if (kn_random_below(&random, n - i) < wanted - chosen) rows[chosen++] = i;
}

// The part of the sample, less its mean, which is left in `centre`. False when a value is not finite.
static bool take_part(const learning *l, size_t j, float *x, float *centre) {
    size_t part = l->p->part;
    double sums[KN_PQ_PART_MAX] = {0}, check = 0;
    for (size_t r = 0; r < l->n; r++) {
        const float *from = l->x + l->rows[r] * l->p->d + j * part;
        for (size_t i = 0; i < part; i++) sums[i] += (double)from[i];
        memcpy(x + r * part, from, part * sizeof *x);
    }
    for (size_t i = 0; i < part; i++) {
        centre[i] = (float)(sums[i] / (double)l->n);
        check += sums[i] * 0; // NaN for what is not finite
    }
    for (size_t r = 0; r < l->n; r++)
        for (size_t i = 0; i < part; i++) x[r * part + i] -= centre[i];
    return check == 0;
}

// ---------------------------------------------------------------- nearest

enum { ASSIGN_ROWS = 16 * KN_POINTS };

typedef struct assignment {
    const kn_kernels *k;
    const float *x, *centroids, *halves;
    size_t n, part, count;
    uint8_t *near;
    atomic_bool changed;
} assignment;

static void assign_rows(void *context, size_t task, int worker) {
    assignment *a = context;
    size_t first = task * ASSIGN_ROWS, last = kn_min(first + ASSIGN_ROWS, a->n);
    float points[KN_PQ_PART_MAX * KN_POINTS] __attribute__((aligned(64)));
    uint8_t near[KN_POINTS];
    bool changed = false;
    (void)worker;
    for (size_t r = first; r < last; r += KN_POINTS) {
        size_t rows = kn_min(KN_POINTS, last - r);
        kn_pq_points(points, a->x + r * a->part, a->part, rows, a->part, NULL);
        a->k->nearest(near, points, a->part, a->centroids, a->halves, a->count);
        changed |= memcmp(a->near + r, near, rows) != 0;
        memcpy(a->near + r, near, rows);
    }
    if (changed) atomic_store(&a->changed, true);
}

// False when every point stayed where it was.
static bool assign(const learning *l, const workplace *w, const float *centroids, float *halves) {
    size_t part = l->p->part, count = l->p->count;
    for (size_t c = 0; c < count; c++) halves[c] = (float)(l->k->sum_squares(centroids + c * part, part) / 2);
    assignment a = {l->k, w->x, centroids, halves, l->n, part, count, w->near, false};
    kn_parallel((l->n + ASSIGN_ROWS - 1) / ASSIGN_ROWS, assign_rows, &a);
    return atomic_load(&a.changed);
}

// ---------------------------------------------------------------- means

// Centroids with points become their means; returns how many have none.
static size_t take_means(const learning *l, const workplace *w, float *centroids) {
    size_t part = l->p->part, count = l->p->count, empty = 0;
    memset(w->sums, 0, count * part * sizeof *w->sums);
    memset(w->members, 0, count * sizeof *w->members);
    for (size_t r = 0; r < l->n; r++) {
        double *sum = w->sums + w->near[r] * part;
        w->members[w->near[r]]++;
        for (size_t i = 0; i < part; i++) sum[i] += (double)w->x[r * part + i];
    }
    for (size_t c = 0; c < count; c++) {
        empty += !w->members[c];
        for (size_t i = 0; w->members[c] && i < part; i++)
            centroids[c * part + i] = (float)(w->sums[c * part + i] / (double)w->members[c]);
    }
    return empty;
}

static float squared_distance(const float *a, const float *b, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

// A point with a chance in proportion to its squared distance.
static size_t draw_point(const float *away, size_t n, double total, kn_random *random) {
    double left = kn_random_unit(random) * total;
    size_t pick = 0;
    for (size_t r = 0; r < n; r++) {
        if (away[r] > 0) pick = r;
        if ((left -= (double)away[r]) < 0) break;
    }
    return pick;
}

// Empty centroids move to points far from any, chosen as k-means++ does: the farthest ones would all go to
// the same crowd of equal points. When every point is on a centroid, they stay where they are.
static void fill_empty(const learning *l, const workplace *w, float *centroids, kn_random *random) {
    size_t part = l->p->part, count = l->p->count;
    for (size_t r = 0; r < l->n; r++)
        w->away[r] = squared_distance(w->x + r * part, centroids + w->near[r] * part, part);
    for (size_t c = 0; c < count; c++) {
        if (w->members[c]) continue;
        double total = 0;
        for (size_t r = 0; r < l->n; r++) total += (double)w->away[r];
        if (!(total > 0) || !isfinite(total)) return;
        const float *point = w->x + draw_point(w->away, l->n, total, random) * part;
        memcpy(centroids + c * part, point, part * sizeof *point);
        for (size_t r = 0; r < l->n; r++)
            w->away[r] = fminf(w->away[r], squared_distance(w->x + r * part, point, part));
    }
}

// ---------------------------------------------------------------- k-means

// Different points of the sample, as many as there are centroids (Floyd's algorithm); all of them, again and
// again, when they are too few.
static void start(const learning *l, const float *x, float *centroids, kn_random *random) {
    size_t part = l->p->part, count = l->p->count, picks[256];
    for (size_t c = 0; c < count; c++) {
        size_t pick = c % l->n;
        if (l->n > count) {
            size_t top = l->n - count + c, i = 0;
            pick = kn_random_below(random, top + 1);
            while (i < c && picks[i] != pick) i++;
            if (i < c) pick = top;
            picks[c] = pick;
        }
        memcpy(centroids + c * part, x + pick * part, part * sizeof *x);
    }
}

static void learn_part(void *context, size_t task, int worker) {
    learning *l = context;
    kn_pq *p = l->p;
    const workplace *w = l->places + worker;
    size_t j = l->first + task, part = p->part;
    float *centroids = p->centroids + j * p->count * part, *centre = p->centre + j * part;
    kn_random random = {kn_mix64(l->seed + j)};
    if (!take_part(l, j, w->x, centre)) {
        atomic_store(&l->bad, true);
        return;
    }
    start(l, w->x, centroids, &random);
    memset(w->near, 0, l->n);
    for (int i = 0; i < KN_PQ_LEARN_ITERATIONS; i++) {
        if (!assign(l, w, centroids, p->halves + j * p->count) && i > 0) break;
        if (take_means(l, w, centroids)) fill_empty(l, w, centroids, &random);
    }
    for (size_t c = 0; c < p->count; c++)
        for (size_t i = 0; i < part; i++) centroids[c * part + i] += centre[i];
}

static knnlm_status find_bad(const learning *l) {
    for (size_t r = 0; r < l->n; r++)
        for (size_t i = 0; i < l->p->d; i++)
            if (!isfinite(l->x[l->rows[r] * l->p->d + i]))
                return kn_fail(KNNLM_EDATA, "product quantizer: vector %zu is not finite in dimension %zu",
                               l->rows[r], i);
    return KNNLM_OK; // not reached
}

static knnlm_status learn_parts(learning *l, const kn_progress *progress) {
    size_t batch = 4 * (size_t)kn_threads(); // only how often it reports
    for (l->first = 0; l->first < l->p->m; l->first += batch) {
        if (!kn_progress_report(progress, "learning codes", l->first, l->p->m, "parts"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while learning codes");
        kn_parallel(kn_min(batch, l->p->m - l->first), learn_part, l);
        if (atomic_load(&l->bad)) return find_bad(l);
    }
    kn_progress_report(progress, "learning codes", l->p->m, l->p->m, "parts");
    return KNNLM_OK;
}

// ---------------------------------------------------------------- memory

static bool make_places(learning *l, size_t places) {
    size_t n = l->n, part = l->p->part, count = l->p->count;
    for (size_t i = 0; i < places; i++) {
        workplace *w = l->places + i;
        w->x = kn_alloc_aligned(n * part, sizeof *w->x);
        w->near = kn_alloc_aligned(n, 1);
        w->away = kn_alloc_aligned(n, sizeof *w->away);
        w->sums = kn_alloc_aligned(count * part, sizeof *w->sums);
        w->members = kn_alloc_aligned(count, sizeof *w->members);
        if (!w->x || !w->near || !w->away || !w->sums || !w->members) return false;
    }
    return true;
}

static void free_places(learning *l, size_t places) {
    for (size_t i = 0; l->places && i < places; i++) {
        kn_free_aligned(l->places[i].x);
        kn_free_aligned(l->places[i].near);
        kn_free_aligned(l->places[i].away);
        kn_free_aligned(l->places[i].sums);
        kn_free_aligned(l->places[i].members);
    }
    free(l->places);
}

knnlm_status kn_pq_learn(const float *x, size_t n, size_t d, size_t m, size_t bits, uint64_t seed,
                         const kn_progress *progress, kn_pq *out) {
    KN_TRY(kn_pq_init(out, d, m, bits));
    size_t places = (size_t)kn_threads(), sample = kn_min(n, KN_PQ_LEARN_MAX);
    size_t *rows = kn_alloc(sample, sizeof *rows);
    learning l = {.k = kn_math_kernels(KNNLM_PRECISION_AUTO), .x = x, .rows = rows, .n = sample, .p = out};
    l.seed = kn_mix64(seed);
    l.places = kn_alloc(places, sizeof *l.places);
    knnlm_status status = KNNLM_ENOMEM;
    if (!n) {
        status = kn_fail(KNNLM_EINVAL, "product quantizer: no vectors to learn from");
    } else if (rows && l.places && make_places(&l, places)) {
        choose_rows(rows, sample, n, l.seed);
        status = learn_parts(&l, progress);
    }
    free_places(&l, places);
    free(rows);
    if (status == KNNLM_OK)
        kn_pq_prepare(out);
    else
        kn_pq_free(out);
    return status;
}
