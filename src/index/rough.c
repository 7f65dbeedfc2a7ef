// Bounds distances from below by a product of fewer dimensions in bf16, so that most rows are never measured.
#include "index/rough.h"

#include "base/threads.h"
#include "math/subspace.h"

#include <math.h>
#include <stdlib.h>

// Both factors of a product in bf16 are off by 2^-9 of themselves at most.
#define ROUGHNESS 0.0040f

void kn_rough_doubts(const kn_rough *r, const kn_rough_norms *queries, const kn_rough_norms *rows,
                     float doubts[KN_CELL]) {
    float d = (float)r->x->d, lengths = sqrtf(queries->max_seen) * sqrtf(rows->max_seen);
    // Of the product; of the f32 sums before it, each off by d 2^-24 of the length, in all directions at
    // once; and what is lost where numbers become subnormal.
    float sums = KN_ROUNDING + d * 0x1p-22f * (r->h < r->x->d ? sqrtf((float)r->h) : 1);
    float product = r->k->precision == KNNLM_PRECISION_BF16 ? 2 * ROUGHNESS * lengths : 0,
          lost = d * 0x1p-120f * (1 + lengths);
    for (size_t i = 0; i < KN_CELL; i++)
        doubts[i] = sums * (queries->all[i] + rows->max_all) + product + lost;
}

// ---------------------------------------------------------------- seeing

// seen (n, h) of s->rows (n, d).
static void see(const kn_rough *r, kn_rough_scratch *s, size_t n) {
    const kn_kernels *k = r->x->k;
    size_t d = r->x->d, panel = kn_panel_bytes(k, d);
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    k->pack_lhs(s->lhs, s->rows, d, n, d);
    for (size_t c = 0; c < r->h; c += KN_CELL) {
        k->multiply(block, s->lhs, (const char *)r->basis.data + c / KN_CELL * panel, kn_cells(d), n, false);
        k->store(s->seen + c, r->h, block, NULL, n, KN_CELL, false);
    }
}

// What is seen of s->rows, whose norms are known: (n, h), and its norms.
static const float *look(const kn_rough *r, kn_rough_scratch *s, size_t n, kn_rough_norms *norms) {
    bool whole = r->h == r->x->d;
    if (!whole) see(r, s, n);
    norms->max_seen = norms->max_all = 0;
    for (size_t i = 0; i < n; i++) {
        norms->seen[i] = whole ? norms->all[i] : (float)r->x->k->sum_squares(s->seen + i * r->h, r->h);
        norms->max_seen = fmaxf(norms->max_seen, norms->seen[i]);
        norms->max_all = fmaxf(norms->max_all, norms->all[i]);
    }
    return whole ? s->rows : s->seen;
}

void kn_rough_pack_queries(const kn_rough *r, kn_rough_scratch *s, const float *queries, size_t n,
                           void *panel, kn_rough_norms *norms) {
    const kn_index *x = r->x;
    x->k->widen_rows(s->rows, norms->all, queries, KN_ROWS_F32, NULL, x->flat_centre, n, x->d);
    r->k->pack_lhs(panel, look(r, s, n, norms), r->h, n, r->h);
}

void kn_rough_pack_rows(const kn_rough *r, kn_rough_scratch *s, const kn_run *run, size_t place, size_t n,
                        void *panel, kn_rough_norms *norms) {
    const kn_index *x = r->x;
    x->k->widen_rows(s->rows, norms->all, run->rows + place * x->row_bytes, x->type,
                     run->scales ? run->scales + place : NULL, x->flat_centre, n, x->d);
    r->k->pack_rhs(panel, look(r, s, n, norms), r->h, n, r->h);
}

// ---------------------------------------------------------------- choosing

enum {
    SAMPLE = 2048, // rows tried
    TRIED = 64,    // queries tried
    MAX = 256,     // directions: more are as costly to find as they save
    STEPS = MAX / KN_CELL,
};

typedef struct trial {
    const kn_search_batch *b;
    size_t d, p, rows, queries; // p: directions, at most
    float *sample, *asked;      // (rows, d), (queries, d), less the centre
    float *basis;               // (p, d)
    double survivors[STEPS];    // mean part of the rows that remain after 32, 64, ... directions
} trial;

static knnlm_status take_rows(trial *t) {
    const kn_index *x = t->b->x;
    uint64_t first = x->entries - x->info.flat;
    for (size_t i = 0; i < t->rows; i++) {
        float *row = t->sample + i * t->d;
        KN_TRY(kn_store_keys(x->store, first + i * x->info.flat / t->rows, 1, row));
        for (size_t j = 0; j < t->d; j++) {
            row[j] -= x->flat_centre[j];
            if (!isfinite(row[j])) row[j] = 0; // a damaged key: it is the search that passes it by
        }
    }
    for (size_t i = 0; i < t->queries; i++)
        for (size_t j = 0; j < t->d; j++)
            t->asked[i * t->d + j] = t->b->queries[i * t->b->n / t->queries * t->d + j] - x->flat_centre[j];
    return KNNLM_OK;
}

static float squared_distance(const kn_kernels *k, const float *a, const float *b, size_t width) {
    float sum;
    k->row_distances(&sum, a, b, KN_ROWS_F32, 1, width, false);
    return sum;
}

typedef struct trying {
    const trial *t;
    const float *rows, *asked; // as seen
    double (*survivors)[STEPS];
} trying;

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Which of the sample remain, given the distance that the k-th neighbour is likely to have.
static void try_query(void *context, size_t q, int worker) {
    const trying *y = context;
    const trial *t = y->t;
    const kn_kernels *k = t->b->x->k;
    float distances[SAMPLE];
    double wanted = (double)t->b->k / (double)t->b->x->info.flat * (double)t->rows;
    (void)worker;
    for (size_t i = 0; i < t->rows; i++)
        distances[i] = squared_distance(k, t->asked + q * t->d, t->sample + i * t->d, t->d);
    qsort(distances, t->rows, sizeof *distances, ascending);
    float limit = distances[kn_min((size_t)wanted + 1, t->rows - 1)];
    for (size_t i = 0; i < t->rows; i++) {
        float sum = 0;
        for (size_t h = 0; h < t->p; h += KN_CELL) {
            sum += squared_distance(k, y->asked + q * t->p + h, y->rows + i * t->p + h, KN_CELL);
            y->survivors[q][h / KN_CELL] += sum > limit ? 0 : 1.0 / (double)t->rows;
        }
    }
}

static knnlm_status try_queries(trial *t) {
    const kn_kernels *k = t->b->x->k;
    size_t max = kn_max(t->rows, t->queries);
    float *seen = kn_alloc_aligned(t->rows + t->queries, t->p * sizeof *seen);
    double(*survivors)[STEPS] = kn_alloc(t->queries, sizeof *survivors);
    void *lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, max, t->d));
    kn_rhs rhs = {0};
    knnlm_status status = seen && survivors && lhs ? kn_rhs_init(k, &rhs, t->p, t->d) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_emit_matrix rows = {k, seen, t->p, NULL}, asked = {k, seen + t->rows * t->p, t->p, NULL};
        kn_rhs_pack(k, &rhs, t->basis, t->d, false);
        kn_lhs_pack(k, lhs, t->sample, t->d, t->rows, t->d, false);
        kn_multiply(k, lhs, t->rows, &rhs, kn_emit_set, &rows);
        kn_lhs_pack(k, lhs, t->asked, t->d, t->queries, t->d, false);
        kn_multiply(k, lhs, t->queries, &rhs, kn_emit_set, &asked);
        kn_parallel(t->queries, try_query, &(trying){t, seen, asked.out, survivors});
        for (size_t q = 0; q < t->queries; q++)
            for (size_t i = 0; i < t->p / KN_CELL; i++)
                t->survivors[i] += survivors[q][i] / (double)t->queries;
    }
    kn_rhs_free(&rhs);
    kn_free_aligned(seen);
    kn_free_aligned(lhs);
    free(survivors);
    return status;
}

// Cycles that a query spends on a row, about: products of `h` elements, f32 products that make them, and
// measuring the part that survives.
static double cost(const trial *t, const kn_kernels *k, size_t h, double survivors) {
    double d = (double)t->d, lanes = k->precision == KNNLM_PRECISION_BF16 ? 26 : 13;
    double project = h < t->d ? d * (double)h / 13 / (double)t->b->n : 0;
    return (double)h / lanes + project + survivors * (0.12 * d + 40);
}

static size_t cheapest(const trial *t, const kn_kernels *k) {
    size_t best = t->d;
    double min = cost(t, k, t->d, (double)t->b->k / (double)t->b->x->info.flat);
    for (size_t h = KN_CELL; h <= t->p; h += KN_CELL) {
        double this = cost(t, k, h, t->survivors[h / KN_CELL - 1]);
        if (this < min) {
            min = this;
            best = h;
        }
    }
    return best;
}

static knnlm_status choose(trial *t, kn_rough *r) {
    kn_random random = {1};
    t->sample = kn_alloc_aligned(t->rows, t->d * sizeof *t->sample);
    t->asked = kn_alloc_aligned(t->queries, t->d * sizeof *t->asked);
    t->basis = kn_alloc_aligned(t->p, t->d * sizeof *t->basis);
    if (!t->sample || !t->asked || !t->basis) return KNNLM_ENOMEM;
    KN_TRY(take_rows(t));
    KN_TRY(kn_subspace_find(r->k, t->sample, t->rows, t->d, t->p, &random, t->basis));
    for (size_t i = 0; i < t->p * t->d; i++)
        if (!isfinite(t->basis[i])) return KNNLM_OK; // vectors too large to be squared
    KN_TRY(try_queries(t));
    r->h = cheapest(t, r->k);
    if (r->h == t->d) return KNNLM_OK;
    KN_TRY(kn_rhs_init(r->x->k, &r->basis, r->h, t->d));
    kn_rhs_pack(r->x->k, &r->basis, t->basis, t->d, false);
    return KNNLM_OK;
}

knnlm_status kn_rough_make(const kn_search_batch *b, kn_rough *r) {
    const kn_index *x = b->x;
    *r = (kn_rough){.x = x, .k = kn_math_kernels(KNNLM_PRECISION_BF16), .h = x->d};
    trial t = {.b = b,
               .d = x->d,
               .p = kn_min(MAX, x->d / 2 / KN_CELL * KN_CELL),
               .rows = kn_min(SAMPLE, (size_t)x->info.flat),
               .queries = kn_min(TRIED, b->n)};
    // Choosing costs about as much as this many pairs of a query and a row, and this many bytes.
    double price = (double)t.rows * (double)(6 * t.p + TRIED);
    size_t bytes = t.rows * (4 * t.d + 2 * t.p) * sizeof(float);
    if (!t.p || (double)b->n * (double)x->info.flat < 8 * price) return KNNLM_OK;
    if (b->o->memory && bytes > b->o->memory / 8) return KNNLM_OK;
    knnlm_status status = choose(&t, r);
    kn_free_aligned(t.sample);
    kn_free_aligned(t.asked);
    kn_free_aligned(t.basis);
    return status;
}

void kn_rough_free(kn_rough *r) {
    kn_rhs_free(&r->basis);
}

knnlm_status kn_rough_scratch_make(const kn_rough *r, kn_rough_scratch *s) {
    size_t d = r->x->d;
    s->rows = kn_alloc_aligned(KN_CELL, d * sizeof *s->rows);
    s->lhs = kn_alloc_aligned(1, kn_panel_bytes(r->x->k, d));
    s->seen = kn_alloc_aligned(KN_CELL, r->h * sizeof *s->seen);
    return s->rows && s->lhs && s->seen ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_rough_scratch_free(kn_rough_scratch *s) {
    kn_free_aligned(s->rows);
    kn_free_aligned(s->lhs);
    kn_free_aligned(s->seen);
}
