// What lies outside lists, against all queries: a rough product tells which rows are worth measuring.
#include "index/rough.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PANELS_BYTES = 512 << 10, // of packed rows that stay in the L2 cache while the queries pass by
    ROWS_MAX = 2048,
};

typedef struct scratch {
    kn_rough_scratch rough;
    char *panels; // of the rows of a stretch
    kn_rough_norms norms[ROWS_MAX / KN_CELL];
    kn_gathering gathering;
} scratch;

typedef struct sweep {
    kn_search_batch *b;
    const kn_rough *rough;
    size_t panel;          // bytes
    char *queries;         // packed, all of them
    kn_rough_norms *norms; // of each 32 queries
    kn_stretch *stretches;
    size_t count, capacity, rows; // rows: of a stretch, at most
    scratch *scratches;
} sweep;

static void pack_queries(void *context, size_t cell, int worker) {
    const sweep *w = context;
    size_t first = cell * KN_CELL, n = kn_min(KN_CELL, w->b->n - first);
    kn_rough_pack_queries(w->rough, &w->scratches[worker].rough, w->b->queries + first * w->b->x->d, n,
                          w->queries + cell * w->panel, &w->norms[cell]);
}

// 32 queries against 32 rows.
static void meet(const sweep *w, scratch *s, const kn_stretch *t, size_t rows, size_t group, size_t cell) {
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), limits[KN_CELL], doubts[KN_CELL];
    uint32_t masks[KN_CELL], doubted[KN_CELL];
    const kn_rough *r = w->rough;
    const kn_rough_norms *x = &s->norms[rows], *q = &w->norms[cell];
    size_t n = kn_min(KN_CELL, t->to - t->from - rows * KN_CELL);
    size_t m = kn_min(KN_CELL, s->gathering.n - group), place = t->from + rows * KN_CELL;
    r->k->multiply(block, w->queries + cell * w->panel, s->panels + rows * w->panel, kn_cells(r->h), m,
                   false);
    kn_rough_doubts(r, q, x, doubts);
    for (size_t i = 0; i < m; i++) limits[i] = s->gathering.limits[group + i] + doubts[i];
    w->b->x->k->near(block, x->seen, q->seen, -2, limits, 0, m, n, masks, doubted);
    for (size_t i = 0; i < m; i++)
        if (masks[i]) kn_gather(w->b, &s->gathering, group + i, place, block + i * KN_CELL, masks[i], 0);
}

static void run_stretch(void *context, size_t number, int worker) {
    const sweep *w = context;
    const kn_stretch *t = &w->stretches[number];
    scratch *s = &w->scratches[worker];
    size_t panels = kn_cells(t->to - t->from);
    for (size_t i = 0; i < panels; i++) {
        size_t place = t->from + i * KN_CELL;
        memset(&s->norms[i], 0, sizeof s->norms[i]);
        kn_rough_pack_rows(w->rough, &s->rough, t->run, place, kn_min(KN_CELL, t->to - place),
                           s->panels + i * w->panel, &s->norms[i]);
    }
    s->gathering.run = t->run;
    s->gathering.rough = true;
    for (size_t first = 0; first < w->b->n; first += KN_GROUP) {
        s->gathering.first = first;
        s->gathering.n = kn_min(KN_GROUP, w->b->n - first);
        kn_gather_begin(w->b, &s->gathering);
        for (size_t i = 0; i < panels; i++)
            for (size_t q = 0; q < s->gathering.n; q += KN_CELL) meet(w, s, t, i, q, (first + q) / KN_CELL);
        kn_gather_end(w->b, &s->gathering);
    }
}

// ---------------------------------------------------------------- the whole

// Stretches of `rows` rows, `stride` from one to the next, over all that is flat.
static knnlm_status cut(sweep *w, size_t rows, size_t stride) {
    const kn_index *x = w->b->x;
    size_t skip = 0;
    w->count = 0;
    for (size_t i = 0; i < x->flat_count; i++) {
        size_t from = skip;
        for (; from < x->flat[i].count; from += stride) {
            KN_TRY(kn_grow(&w->stretches, &w->capacity, w->count + 1, sizeof *w->stretches));
            w->stretches[w->count++] =
                (kn_stretch){.run = &x->flat[i], .from = from, .to = kn_min(from + rows, x->flat[i].count)};
        }
        skip = stride > rows ? from - x->flat[i].count : 0;
    }
    return KNNLM_OK;
}

static knnlm_status prepare(sweep *w) {
    size_t cells = kn_cells(w->b->n);
    w->panel = kn_panel_bytes(w->rough->k, w->rough->h);
    w->rows = kn_max(1, kn_min(ROWS_MAX / KN_CELL, PANELS_BYTES / w->panel)) * KN_CELL;
    w->queries = kn_alloc_aligned(cells, w->panel);
    w->norms = kn_alloc(cells, sizeof *w->norms);
    w->scratches = kn_alloc((size_t)kn_threads(), sizeof *w->scratches);
    if (!w->queries || !w->norms || !w->scratches) return KNNLM_ENOMEM;
    for (int i = 0; i < kn_threads(); i++) {
        w->scratches[i].panels = kn_alloc_aligned(w->rows / KN_CELL, w->panel);
        if (!w->scratches[i].panels) return KNNLM_ENOMEM;
        KN_TRY(kn_rough_scratch_make(w->rough, &w->scratches[i].rough));
    }
    kn_parallel(cells, pack_queries, w);
    return KNNLM_OK;
}

static void sweep_free(sweep *w) {
    for (int i = 0; w->scratches && i < kn_threads(); i++) {
        kn_free_aligned(w->scratches[i].panels);
        kn_rough_scratch_free(&w->scratches[i].rough);
    }
    free(w->scratches);
    free(w->stretches);
    free(w->norms);
    kn_free_aligned(w->queries);
}

static knnlm_status sweep_run(sweep *w) {
    KN_TRY(cut(w, w->rows, w->rows));
    return kn_batch_run(w->b, w->stretches, w->count, run_stretch, w);
}

// ---------------------------------------------------------------- guessing limits

enum { GUESS_ROWS = 16384, GUESS_PART = 16 }; // at most, of all rows

static size_t guess_panels(const kn_index *x) {
    return kn_min(GUESS_ROWS, (size_t)(x->info.flat / GUESS_PART)) / KN_CELL;
}

// Rows of a cell lie together and are alike: they tell less than as many from all over.
static size_t guess_rank(const kn_search_batch *b) {
    double sample = (double)(guess_panels(b->x) * KN_CELL);
    return kn_guess_rank(b->k, (double)b->x->info.flat / sample, 4);
}

static bool can_guess(const kn_search_batch *b, uint32_t probes) {
    return b->guessing && !probes && guess_panels(b->x) > 0 && 2 * guess_rank(b) <= b->k;
}

static knnlm_status guess(sweep *w) {
    kn_search_batch *b = w->b, sample;
    knnlm_status status = kn_guess_begin(b, guess_rank(b), &sample);
    if (status == KNNLM_OK) status = cut(w, KN_CELL, (size_t)b->x->info.flat / guess_panels(b->x));
    w->b = &sample;
    if (status == KNNLM_OK) status = kn_batch_run(&sample, w->stretches, w->count, run_stretch, w);
    w->b = b;
    if (status == KNNLM_OK) kn_guess_end(b, &sample);
    free(sample.tops);
    return status;
}

// ---------------------------------------------------------------- the door

static knnlm_status search(kn_search_batch *b, const kn_rough *rough, bool guessing) {
    sweep w = {.b = b, .rough = rough};
    knnlm_status status = prepare(&w);
    if (status == KNNLM_OK && guessing) status = guess(&w);
    if (status == KNNLM_OK) status = sweep_run(&w);
    sweep_free(&w);
    return status;
}

knnlm_status kn_batch_search_flat(kn_search_batch *b, uint32_t probes) {
    kn_rough rough;
    if (!b->x->flat_count || !b->n) return KNNLM_OK;
    knnlm_status status = kn_rough_make(b, &rough);
    if (status == KNNLM_OK) status = search(b, &rough, can_guess(b, probes));
    kn_rough_free(&rough);
    return status;
}
