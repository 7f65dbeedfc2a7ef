// Many queries at once: list by list, each list's rows against all queries that look at it as one product.
#include "index/view.h"

#include "base/threads.h"
#include "index/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUPS = 4, // of 32 queries, packed and kept in the L2 cache while rows pass by
    TASK_QUERIES = GROUPS * KN_CELL,
    TASK_ROWS = 2048,
    LOCAL = 64, // survivors of a query that gather before they are handed over
    STEP = 256, // tasks between two looks at the progress, and at what to read ahead
};
// Below this part of the norms their rounding would show: the distance is taken straight from the row. Which
// rows are looked at must not depend on what was found before: products are off by less than ROUNDING of the
// norms, and what is near enough but for that is looked at too.
#define CANCELLED 0.25f
#define ROUNDING 4e-6f
// Of products in bf16, as a part of the lengths: both factors are off by 2^-9 of themselves at most.
#define ROUGHNESS 0.0040f

// A list, or what lies outside lists, against some of its queries.
typedef struct task {
    const kn_run *run;
    uint32_t list;
    uint32_t queries;   // of them
    size_t first_query; // in batch->members
    size_t from, to;    // places in the run
} task;

typedef struct scratch {
    float *lhs;   // GROUPS panels
    float *panel; // of 32 rows
    float *rows;  // 32 of them, decoded
    kn_item (*local)[LOCAL];
} scratch;

typedef struct batch {
    const kn_index *x;
    const kn_search_options *o;
    const float *queries; // (n, d) as the index measures them
    size_t n, k, first;   // first: of all the queries, for o->exclude
    kn_top *tops;
    uint32_t *members; // queries of each list, list after list; then all of them, for what is flat
    task *tasks;
    size_t task_count, task_capacity, step;
    scratch *scratches;
} batch;

// ---------------------------------------------------------------- one task

// Residuals of up to 32 queries in a left panel, and their squared norms.
static void pack_queries(const batch *b, const uint32_t *members, size_t n, const float *centre, float *panel,
                         float *terms) {
    const kn_index *x = b->x;
    for (size_t q = 0; q < n; q++) {
        float norm = x->k->load_row(panel + q * KN_CELL, b->queries + members[q] * x->d, centre, x->d);
        terms[q] = x->distance == KN_DISTANCE_L2 ? norm : x->distance == KN_DISTANCE_COSINE ? 1 : 0;
    }
}

// Outside lists a query meets all rows and few survive: there a product in bf16, twice as fast, tells which
// are worth measuring. In lists a third of the rows survive, and measuring them would cost more than it
// saves.
static bool is_rough(const kn_index *x, const kn_run *r) {
    return x->rough && r->rows && !r->ends && x->distance == KN_DISTANCE_L2;
}

static void pack_roughly(const batch *b, const uint32_t *members, size_t n, const float *centre, scratch *s,
                         void *panel, float *terms) {
    const kn_index *x = b->x;
    for (size_t q = 0; q < n; q++)
        x->k->widen_rows(s->rows + q * x->d, terms + q, b->queries + members[q] * x->d, KN_ROWS_F32, NULL,
                         centre, 1, x->d);
    x->rough->pack_lhs(panel, s->rows, x->d, n, x->d);
}

static void pack_group(const batch *b, const task *t, const float *centre, scratch *s, size_t group,
                       float *terms) {
    const uint32_t *members = b->members + t->first_query + group * KN_CELL;
    size_t n = kn_least(KN_CELL, t->queries - group * KN_CELL);
    if (is_rough(b->x, t->run))
        pack_roughly(b, members, n, centre, s, (char *)s->lhs + group * kn_panel_bytes(b->x->rough, b->x->d),
                     terms);
    else
        pack_queries(b, members, n, centre, s->lhs + group * kn_cells(b->x->d) * KN_CELL_SIZE, terms);
}

static void lock(kn_top *t) {
    while (atomic_flag_test_and_set_explicit(&t->lock, memory_order_acquire)) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void unlock(kn_top *t) {
    atomic_flag_clear_explicit(&t->lock, memory_order_release);
}

// Queries of a task: where their survivors gather, and what is still near enough.
typedef struct gathering {
    float limits[TASK_QUERIES], terms[TASK_QUERIES];
    uint32_t counts[TASK_QUERIES];
} gathering;

static void hand_over(batch *b, uint32_t query, kn_item *items, uint32_t *count, float *limit) {
    kn_top *t = &b->tops[query];
    lock(t);
    kn_top_put(t, items, *count);
    *limit = t->limit;
    unlock(t);
    *count = 0;
}

// The survivors of one query among 32 rows.
static void take(batch *b, const task *t, scratch *s, gathering *g, size_t q, const float *line,
                 uint32_t mask, const float *row_terms, size_t place) {
    const kn_index *x = b->x;
    uint32_t query = b->members[t->first_query + q];
    for (; mask; mask &= mask - 1) {
        unsigned r = (unsigned)__builtin_ctz(mask);
        uint32_t id = kn_run_id(t->run, place + r);
        float distance = line[r];
        if (!kn_index_admits(x, b->o, b->first + query, id)) continue;
        bool doubtful = is_rough(x, t->run) || (t->run->rows && x->distance == KN_DISTANCE_L2 &&
                                                distance < CANCELLED * (row_terms[r] + g->terms[q]));
        if (doubtful)
            x->k->row_distances(&distance, b->queries + query * x->d,
                                t->run->rows + (place + r) * x->row_bytes, x->type,
                                t->run->scales ? t->run->scales + place + r : NULL, 1, x->d, false);
        if (!(distance <= g->limits[q])) continue;
        s->local[q][g->counts[q]++] = kn_item_make(distance, id);
        if (g->counts[q] == LOCAL) hand_over(b, query, s->local[q], &g->counts[q], &g->limits[q]);
    }
}

// For cosine: every column of the panel of length 1.
static void normalise(float *panel, const float *norms, size_t cells) {
    float inverse[KN_CELL];
    for (size_t r = 0; r < KN_CELL; r++) inverse[r] = norms[r] > 0 ? 1 / sqrtf(norms[r]) : 0;
    for (size_t i = 0; i < cells * KN_CELL; i++)
        for (size_t r = 0; r < KN_CELL; r++) panel[i * KN_CELL + r] *= inverse[r];
}

static void load_rows(const kn_index *x, const task *t, scratch *s, const float *centre, size_t place,
                      size_t n, float *norms) {
    const kn_run *r = t->run;
    memset(norms, 0, KN_CELL * sizeof *norms);
    if (is_rough(x, r)) {
        x->k->widen_rows(s->rows, norms, r->rows + place * x->row_bytes, x->type,
                         r->scales ? r->scales + place : NULL, centre, n, x->d);
        x->rough->pack_rhs(s->panel, s->rows, x->d, n, x->d);
        return;
    }
    if (r->rows) {
        x->k->load_columns(s->panel, norms, r->rows + place * x->row_bytes, x->type,
                           r->scales ? r->scales + place : NULL, centre, n, x->d);
        return;
    }
    kn_index_decode(x, r, t->list, centre, place, n, s->rows);
    x->k->load_columns(s->panel, norms, s->rows, KN_ROWS_F32, NULL, x->zero, n, x->d);
}

// Products of some queries with the rows of the panel.
static void multiply(const kn_index *x, const task *t, const scratch *s, size_t group, size_t m,
                     float *block) {
    size_t cells = kn_cells(x->d);
    if (is_rough(x, t->run))
        x->rough->multiply(block, (const char *)s->lhs + group * kn_panel_bytes(x->rough, x->d), s->panel,
                           cells, m, false);
    else
        x->k->multiply(block, s->lhs + group * cells * KN_CELL_SIZE, s->panel, cells, m, false);
}

// How far the distance of a product may be from the true one.
static float doubt(const kn_index *x, const task *t, float term, float largest) {
    if (x->distance != KN_DISTANCE_L2) return 0;
    return ROUNDING * (term + largest) + (is_rough(x, t->run) ? 2 * ROUGHNESS * sqrtf(term * largest) : 0);
}

static void scan_rows(batch *b, const task *t, scratch *s, gathering *g, const float *centre, size_t place,
                      size_t n) {
    static const float nothing[KN_CELL];
    const kn_index *x = b->x;
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), norms[KN_CELL], limits[KN_CELL], largest = 0;
    uint32_t masks[KN_CELL];
    bool l2 = x->distance == KN_DISTANCE_L2;
    load_rows(x, t, s, centre, place, n, norms);
    if (x->distance == KN_DISTANCE_COSINE) normalise(s->panel, norms, kn_cells(x->d));
    for (size_t r = 0; r < n; r++) largest = fmaxf(largest, norms[r]);
    for (size_t q = 0; q < t->queries; q += KN_CELL) {
        size_t m = kn_least(KN_CELL, t->queries - q);
        multiply(x, t, s, q / KN_CELL, m, block);
        for (size_t i = 0; i < m; i++) limits[i] = g->limits[q + i] + doubt(x, t, g->terms[q + i], largest);
        x->k->near(block, l2 ? norms : nothing, g->terms + q, l2 ? -2 : -1, limits, m, n, masks);
        for (size_t i = 0; i < m; i++)
            if (masks[i]) take(b, t, s, g, q + i, block + i * KN_CELL, masks[i], norms, place);
    }
}

static void run_task(batch *b, size_t number, int worker) {
    const task *t = &b->tasks[number];
    const uint32_t *members = b->members + t->first_query;
    scratch *s = &b->scratches[worker];
    const float *centre = kn_index_centre(b->x, t->run, t->list);
    gathering g;
    for (size_t q = 0; q < t->queries; q += KN_CELL) pack_group(b, t, centre, s, q / KN_CELL, g.terms + q);
    for (size_t q = 0; q < t->queries; q++) {
        g.counts[q] = 0;
        hand_over(b, members[q], s->local[q], &g.counts[q], &g.limits[q]);
    }
    for (size_t place = t->from; place < t->to; place += KN_CELL)
        scan_rows(b, t, s, &g, centre, place, kn_least(KN_CELL, t->to - place));
    for (size_t q = 0; q < t->queries; q++) hand_over(b, members[q], s->local[q], &g.counts[q], &g.limits[q]);
}

// ---------------------------------------------------------------- cutting the work

static knnlm_status add_tasks(batch *b, const kn_run *run, uint32_t list, size_t from, size_t to,
                              size_t first_query, size_t queries) {
    for (size_t place = from; place < to; place += TASK_ROWS)
        for (size_t q = 0; q < queries; q += TASK_QUERIES) {
            KN_TRY(kn_grow(&b->tasks, &b->task_capacity, b->task_count + 1, sizeof *b->tasks));
            b->tasks[b->task_count++] = (task){.run = run,
                                               .list = list,
                                               .queries = (uint32_t)kn_least(TASK_QUERIES, queries - q),
                                               .first_query = first_query + q,
                                               .from = place,
                                               .to = kn_least(place + TASK_ROWS, to)};
        }
    return KNNLM_OK;
}

// Turns (query, probes) into the queries of each list, and those into tasks in the order of the lists.
static knnlm_status plan_lists(batch *b, const uint32_t *probed, uint32_t probes) {
    const kn_index *x = b->x;
    size_t lists = x->info.lists, *starts = kn_alloc(lists + 2, sizeof *starts);
    if (!starts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < b->n * probes; i++) starts[probed[i] + 2]++;
    for (size_t l = 0; l < lists; l++) starts[l + 2] += starts[l + 1];
    for (size_t q = 0; q < b->n; q++)
        for (uint32_t p = 0; p < probes; p++) b->members[starts[probed[q * probes + p] + 1]++] = (uint32_t)q;
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < x->listed_count && status == KNNLM_OK; i++)
        for (size_t l = 0; l < lists && status == KNNLM_OK; l++)
            status = add_tasks(b, &x->listed[i], (uint32_t)l, x->listed[i].ends[l], x->listed[i].ends[l + 1],
                               starts[l], starts[l + 1] - starts[l]);
    free(starts);
    return status;
}

static knnlm_status plan_flat(batch *b, uint32_t probes) {
    uint32_t *all = b->members + b->n * probes;
    for (size_t q = 0; q < b->n; q++) all[q] = (uint32_t)q;
    for (size_t i = 0; i < b->x->flat_count; i++)
        KN_TRY(add_tasks(b, &b->x->flat[i], 0, 0, b->x->flat[i].count, b->n * probes, b->n));
    return KNNLM_OK;
}

static knnlm_status plan(batch *b, uint32_t probes) {
    knnlm_status status = KNNLM_OK;
    b->members = kn_alloc(b->n * ((size_t)probes + 1), sizeof *b->members);
    if (!b->members) return KNNLM_ENOMEM;
    if (probes) {
        uint32_t *probed = kn_alloc(b->n * probes, sizeof *probed);
        if (!probed) return KNNLM_ENOMEM;
        status = kn_quantizer_probe(b->x->quantizer, b->queries, b->n, probes, probed, NULL);
        if (status == KNNLM_OK) status = plan_lists(b, probed, probes);
        free(probed);
    }
    return status == KNNLM_OK ? plan_flat(b, probes) : status;
}

// ---------------------------------------------------------------- a batch

static void scratches_free(batch *b) {
    for (int i = 0; b->scratches && i < kn_threads(); i++) {
        kn_free_aligned(b->scratches[i].lhs);
        kn_free_aligned(b->scratches[i].panel);
        kn_free_aligned(b->scratches[i].rows);
        free(b->scratches[i].local);
    }
    free(b->scratches);
}

static knnlm_status scratches_make(batch *b) {
    size_t panel = kn_cells(b->x->d) * KN_CELL_SIZE * sizeof(float);
    b->scratches = kn_alloc((size_t)kn_threads(), sizeof *b->scratches);
    if (!b->scratches) return KNNLM_ENOMEM;
    for (int i = 0; i < kn_threads(); i++) {
        scratch *s = &b->scratches[i];
        s->lhs = kn_alloc_aligned(GROUPS, panel);
        s->panel = kn_alloc_aligned(1, panel);
        s->local = kn_alloc(TASK_QUERIES, sizeof *s->local);
        s->rows = kn_alloc_aligned(KN_CELL, b->x->d * sizeof *s->rows);
        if (!s->lhs || !s->panel || !s->rows || !s->local) return KNNLM_ENOMEM;
        memset(s->lhs, 0, GROUPS * panel); // rows beyond the queries are multiplied too
    }
    return KNNLM_OK;
}

typedef struct finishing {
    batch *b;
    kn_neighbors *out;
} finishing;

static void finish_query(void *context, size_t q, int worker) {
    const finishing *f = context;
    batch *b = f->b;
    kn_top *t = &b->tops[q];
    kn_item *scratch = t->items + b->k; // beyond the best k there is room for as many
    (void)worker;
    size_t count = kn_top_finish(t, scratch), row = (b->first + q) * b->k;
    for (size_t i = 0; i < b->k; i++) {
        f->out->ids[row + i] = i < count ? kn_item_id(t->items[i]) : UINT32_MAX;
        f->out->distances[row + i] = i < count ? kn_item_distance(t->items[i]) : INFINITY;
    }
    f->out->counts[b->first + q] = (uint32_t)count;
}

// Rows of tasks [from, to) are needed soon, or not any more. Stores that fit into memory are left to the
// system.
static void advise(const batch *b, size_t from, size_t to, bool soon) {
    for (size_t i = from; b->o->memory && i < to && i < b->task_count; i++) {
        const task *t = &b->tasks[i];
        if (!t->run->rows) continue;
        if (t->run->ends)
            kn_store_annex_advise(b->x->store, t->run->rows_part, t->from * b->x->row_bytes,
                                  (t->to - t->from) * b->x->row_bytes, soon);
        else
            kn_store_segment_advise(b->x->store, t->run->rows_part, t->run->first_id + t->from,
                                    t->to - t->from, soon);
    }
}

static void run_step(void *context, size_t number, int worker) {
    batch *b = context;
    run_task(b, b->step + number, worker);
}

static knnlm_status run_tasks(batch *b) {
    advise(b, 0, STEP, true);
    for (b->step = 0; b->step < b->task_count; b->step += STEP) {
        advise(b, b->step + STEP, b->step + 2 * STEP, true);
        kn_parallel(kn_least(STEP, b->task_count - b->step), run_step, b);
        advise(b, b->step, b->step + STEP, false);
        if (!kn_progress_report(b->o->progress, "searching", b->step, b->task_count, "parts"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while searching");
    }
    return KNNLM_OK;
}

static knnlm_status run_batch(batch *b, uint32_t probes, kn_item *items, kn_neighbors *out) {
    size_t capacity = kn_top_capacity(b->k);
    b->tops = kn_alloc(b->n, sizeof *b->tops);
    if (!b->tops) return KNNLM_ENOMEM;
    for (size_t q = 0; q < b->n; q++) kn_top_init(&b->tops[q], items + q * capacity, b->k);
    KN_TRY(scratches_make(b));
    KN_TRY(plan(b, probes));
    KN_TRY(run_tasks(b));
    kn_parallel(b->n, finish_query, &(finishing){b, out});
    return KNNLM_OK;
}

static void batch_free(batch *b) {
    scratches_free(b);
    free(b->tops);
    free(b->members);
    free(b->tasks);
}

// ---------------------------------------------------------------- the door

static knnlm_status check_queries(const float *queries, size_t n, size_t d) {
    for (size_t i = 0; i < n * d; i++)
        if (!isfinite(queries[i])) return kn_fail(KNNLM_EDATA, "query %zu is not finite", i / d);
    return KNNLM_OK;
}

// As many queries at a time as memory allows: every list is read once for each such part.
static size_t part_of(const kn_index *x, const kn_search_options *o, size_t n, size_t k, uint32_t probes) {
    size_t each = kn_top_capacity(k) * sizeof(kn_item) + 2 * x->d * sizeof(float) + 8 * (size_t)probes + 64;
    uint64_t memory = o->memory ? o->memory : (uint64_t)4 << 30;
    return kn_most(1, kn_least(n, (size_t)(memory / each)));
}

static knnlm_status search_part(const kn_index *x, const float *queries, size_t first, size_t n, size_t k,
                                uint32_t probes, const kn_search_options *o, kn_item *items, float *measured,
                                kn_neighbors *out) {
    for (size_t q = 0; q < n; q++) kn_index_query(x, queries + (first + q) * x->d, measured + q * x->d);
    batch b = {.x = x, .o = o, .queries = measured, .n = n, .k = k, .first = first};
    knnlm_status status = run_batch(&b, probes, items, out);
    batch_free(&b);
    return status;
}

knnlm_status kn_index_search(const kn_index *x, const float *queries, size_t n, const kn_search_options *o,
                             kn_neighbors *out) {
    size_t k;
    uint32_t probes;
    KN_TRY(kn_index_resolve(x, o, &k, &probes));
    KN_TRY(check_queries(queries, n, x->d));
    size_t part = part_of(x, o, n, k, probes);
    kn_item *items = kn_alloc_aligned(part, kn_top_capacity(k) * sizeof *items);
    float *measured = kn_alloc_aligned(part, x->d * sizeof *measured);
    knnlm_status status = items && measured ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t first = 0; first < n && status == KNNLM_OK; first += part)
        status =
            search_part(x, queries, first, kn_least(part, n - first), k, probes, o, items, measured, out);
    kn_free_aligned(items);
    kn_free_aligned(measured);
    return status;
}
