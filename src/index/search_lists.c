// List by list: each list's rows against all queries that look at it as one product, in f32: measuring again
// what survives would cost more than a product in bf16 saves. Keys of int8 are multiplied as they are
// (search_integers.c).
#include "index/search_parts.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2048 }; // of a stretch
// Below this part of the norms their rounding would show: the distance is taken straight from the row.
#define CANCELLED 0.25f

typedef struct scratch {
    float *lhs;   // the queries' panels
    float *panel; // of 32 rows
    float *rows;  // 32 of them, decoded
    float terms[KN_GROUP];
    kn_integer_query integer_terms[KN_GROUP];
    kn_gathering gathering;
} scratch;

typedef struct visit {
    kn_search_batch *b;
    uint32_t *members; // queries of each list, list after list; then all of them, for runs without lists
    kn_stretch *stretches;
    size_t count, capacity;
    scratch *scratches;
    size_t stride; // from row to row: 1, or that of a sample
} visit;

// ---------------------------------------------------------------- one stretch

// Residuals of up to 32 queries in a left panel, and the terms of each.
static void pack_queries(const kn_search_batch *b, const uint32_t *members, size_t n, const float *centre,
                         float *panel, float *terms) {
    const kn_index *x = b->x;
    for (size_t q = 0; q < n; q++) {
        float norm = x->k->load_row(panel + q * KN_CELL, b->queries + members[q] * x->d, centre, x->d);
        terms[q] = x->form->norms ? norm : x->form->beside;
    }
}

// For cosine: every column of the panel of length 1.
static void normalise(float *panel, const float *norms, size_t cells) {
    float inverse[KN_CELL];
    for (size_t r = 0; r < KN_CELL; r++) inverse[r] = norms[r] > 0 ? 1 / sqrtf(norms[r]) : 0;
    for (size_t half = 0; half < 2 * cells; half++, panel += KN_HALF_SIZE)
        for (size_t i = 0; i < KN_HALF_SIZE; i++) panel[i] *= inverse[half % 2 * KN_HALF + i % KN_HALF];
}

// By their keys, or by their codes.
static bool by_keys(const kn_search_batch *b, const kn_run *run) {
    return run->rows && !(b->o->codes && run->codes);
}

// Rows of a sample, less the centre, one after another.
static void widen_sample(const visit *v, const kn_run *r, scratch *s, const float *centre, size_t place,
                         size_t n) {
    const kn_index *x = v->b->x;
    float norm;
    for (size_t i = 0; i < n; i++, place += v->stride)
        x->k->widen_rows(s->rows + i * x->d, &norm, r->rows + place * x->row_bytes, x->type,
                         r->scales ? r->scales + place : NULL, centre, 1, x->d);
}

static void load_rows(const visit *v, const kn_stretch *t, scratch *s, const float *centre, size_t place,
                      size_t n, float *norms) {
    const kn_search_batch *b = v->b;
    const kn_index *x = b->x;
    const kn_run *r = t->run;
    if (v->stride > 1) {
        widen_sample(v, r, s, centre, place, n);
        x->k->load_columns(s->panel, norms, s->rows, KN_ROWS_F32, NULL, x->zero, n, x->d);
    } else if (by_keys(b, r)) {
        x->k->load_columns(s->panel, norms, r->rows + place * x->row_bytes, x->type,
                           r->scales ? r->scales + place : NULL, centre, n, x->d);
    } else {
        kn_index_decode(x, r, t->list, centre, place, n, s->rows);
        x->k->load_columns(s->panel, norms, s->rows, KN_ROWS_F32, NULL, x->zero, n, x->d);
    }
    if (x->form->unit) normalise(s->panel, norms, kn_cells(x->d));
}

static void scan_rows(const visit *v, const kn_stretch *t, scratch *s, const float *centre, size_t place,
                      size_t n) {
    static const float nothing[KN_CELL];
    kn_search_batch *b = v->b;
    const kn_index *x = b->x;
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), norms[KN_CELL], limits[KN_CELL], largest = 0;
    uint32_t masks[KN_CELL], doubted[KN_CELL];
    bool l2 = x->form->norms;
    float small = l2 && by_keys(b, t->run) && v->stride == 1 ? CANCELLED : -INFINITY;
    load_rows(v, t, s, centre, place, n, norms);
    for (size_t r = 0; r < n; r++) largest = fmaxf(largest, norms[r]);
    for (size_t q = 0; q < t->queries; q += KN_CELL) {
        size_t m = kn_min(KN_CELL, t->queries - q), cells = kn_cells(x->d);
        x->k->multiply(block, s->lhs + q / KN_CELL * cells * KN_CELL_SIZE, s->panel, cells, m, false);
        for (size_t i = 0; i < m; i++)
            limits[i] = s->gathering.limits[q + i] + (l2 ? KN_ROUNDING * (s->terms[q + i] + largest) : 0);
        x->k->near(block, l2 ? norms : nothing, s->terms + q, l2 ? -2 : -1, limits, small, m, n, masks,
                   doubted);
        for (size_t i = 0; i < m; i++)
            if (masks[i])
                kn_gather(b, &s->gathering, q + i, place, block + i * KN_CELL, masks[i], doubted[i]);
    }
}

// Panels of integers lie in the memory of those of f32, which are twice as long.
static void run_integers(const visit *v, const kn_stretch *t, scratch *s, size_t first) {
    int16_t *lhs = (int16_t *)s->lhs, *panel = (int16_t *)s->panel;
    size_t cells = kn_integer_cells(v->b->x->d);
    for (size_t q = 0; q < t->queries; q += KN_CELL)
        kn_integer_pack(v->b, v->members + t->first_query + q, kn_min(KN_CELL, t->queries - q),
                        lhs + q / KN_CELL * cells * KN_INTEGER_CELL, s->integer_terms + q);
    for (size_t place = first; place < t->to; place += KN_CELL * v->stride)
        kn_integer_scan(v->b, &s->gathering, lhs, s->integer_terms, panel, place,
                        kn_min(KN_CELL, (t->to - place + v->stride - 1) / v->stride));
}

static void run_floats(const visit *v, const kn_stretch *t, scratch *s, size_t first) {
    const float *centre = kn_index_centre(v->b->x, t->run, t->list);
    for (size_t q = 0; q < t->queries; q += KN_CELL)
        pack_queries(v->b, v->members + t->first_query + q, kn_min(KN_CELL, t->queries - q), centre,
                     s->lhs + q / KN_CELL * kn_cells(v->b->x->d) * KN_CELL_SIZE, s->terms + q);
    for (size_t place = first; place < t->to; place += KN_CELL * v->stride)
        scan_rows(v, t, s, centre, place, kn_min(KN_CELL, (t->to - place + v->stride - 1) / v->stride));
}

static void run_stretch(void *context, size_t number, int worker) {
    const visit *v = context;
    const kn_stretch *t = &v->stretches[number];
    scratch *s = &v->scratches[worker];
    size_t first = (t->from + v->stride - 1) / v->stride * v->stride;
    if (first >= t->to) return; // none of the sample
    s->gathering.queries = v->members + t->first_query;
    s->gathering.run = t->run;
    s->gathering.n = t->queries;
    s->gathering.stride = v->stride;
    kn_gather_begin(v->b, &s->gathering);
    if (v->b->whole && by_keys(v->b, t->run))
        run_integers(v, t, s, first);
    else
        run_floats(v, t, s, first);
    kn_gather_end(v->b, &s->gathering);
}

// ---------------------------------------------------------------- cutting the work

static knnlm_status add_stretches(visit *v, const kn_run *run, uint32_t list, size_t from, size_t to,
                                  size_t first_query, size_t queries) {
    for (size_t place = from; place < to; place += ROWS)
        for (size_t q = 0; q < queries; q += KN_GROUP) {
            KN_TRY(kn_grow(&v->stretches, &v->capacity, v->count + 1, sizeof *v->stretches));
            v->stretches[v->count++] = (kn_stretch){.run = run,
                                                    .list = list,
                                                    .queries = (uint32_t)kn_min(KN_GROUP, queries - q),
                                                    .first_query = first_query + q,
                                                    .from = place,
                                                    .to = kn_min(place + ROWS, to)};
        }
    return KNNLM_OK;
}

// Turns (query, probes; UINT32_MAX: none) into the queries of each list, and those into stretches in the
// order of the lists.
static knnlm_status cut_lists(visit *v, const uint32_t *probed, uint32_t probes) {
    const kn_index *x = v->b->x;
    size_t lists = x->info.lists, n = v->b->n, *starts = kn_alloc(lists + 2, sizeof *starts);
    if (!starts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < n * probes; i++)
        if (probed[i] != UINT32_MAX) starts[probed[i] + 2]++;
    for (size_t l = 0; l < lists; l++) starts[l + 2] += starts[l + 1];
    for (size_t q = 0; q < n; q++)
        for (uint32_t p = 0; p < probes; p++)
            if (probed[q * probes + p] != UINT32_MAX)
                v->members[starts[probed[q * probes + p] + 1]++] = (uint32_t)q;
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < x->listed_count && status == KNNLM_OK; i++)
        for (size_t l = 0; l < lists && status == KNNLM_OK; l++)
            status = add_stretches(v, &x->listed[i], (uint32_t)l, x->listed[i].ends[l],
                                   x->listed[i].ends[l + 1], starts[l], starts[l + 1] - starts[l]);
    free(starts);
    return status;
}

// The lists near each query, by the lists' own index.
static knnlm_status search_coarse(const kn_search_batch *b, uint32_t probes, uint32_t *probed) {
    kn_search_scratch own = {0}, *all = b->o->scratch ? b->o->scratch : &own;
    kn_search_scratch scratch = {.items = all->lists, .bytes = all->lists_bytes};
    kn_search_options o = {.k = probes,
                           .probes = kn_coarse_groups(b->x->coarse, probes),
                           .memory = b->o->memory,
                           .scratch = &scratch};
    kn_neighbors near = {probed, kn_alloc(b->n * probes, sizeof(float)), kn_alloc(b->n, sizeof(uint32_t))};
    knnlm_status status = near.distances && near.counts ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = kn_index_search(b->x->coarse, b->queries, b->n, &o, &near);
    all->lists = scratch.items;
    all->lists_bytes = scratch.bytes;
    kn_search_scratch_free(&own);
    free(near.distances);
    free(near.counts);
    return status;
}

// Lists that are given, of the batch's own queries.
static void take_lists(const kn_search_batch *b, uint32_t probes, uint32_t *probed) {
    for (size_t q = 0; q < b->n; q++)
        memcpy(probed + q * probes, b->o->lists + kn_batch_number(b, (uint32_t)q) * probes,
               probes * sizeof *probed);
}

knnlm_status kn_batch_probe(const kn_search_batch *b, uint32_t probes, uint32_t *probed) {
    if (b->x->coarse) return search_coarse(b, probes, probed);
    return kn_quantizer_probe(b->x->quantizer, b->queries, b->n, probes, probed, NULL);
}

static knnlm_status probe(visit *v, uint32_t probes) {
    const kn_search_batch *b = v->b;
    uint32_t *probed = kn_alloc(b->n * probes, sizeof *probed);
    knnlm_status status = KNNLM_OK;
    if (!probed) return KNNLM_ENOMEM;
    if (b->o->lists)
        take_lists(b, probes, probed);
    else
        status = kn_batch_probe(b, probes, probed);
    if (status == KNNLM_OK) status = cut_lists(v, probed, probes);
    free(probed);
    return status;
}

// Runs without lists, where distances do not allow what search_flat.c does.
static knnlm_status cut_flat(visit *v, uint32_t probes) {
    const kn_index *x = v->b->x;
    uint32_t *all = v->members + v->b->n * probes;
    for (size_t q = 0; q < v->b->n; q++) all[q] = (uint32_t)q;
    for (size_t i = 0; !x->form->norms && i < x->flat_count; i++)
        KN_TRY(add_stretches(v, &x->flat[i], 0, 0, x->flat[i].count, v->b->n * probes, v->b->n));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- guessing limits

enum { SAMPLE = 8 }; // one row in so many, from all over every list

static size_t guess_rank(const kn_search_batch *b) {
    return kn_guess_rank(b->k, SAMPLE, 3);
}

// It pays where most of what a query meets is not among its k, and the limit is not much above them: of 1024
// neighbours it lets 1300 pass, and 900 through the sample's top (counted, 1.2M entries, 32 of 4096 lists);
// of few neighbours several times as many.
static bool can_guess(const kn_search_batch *b, uint32_t probes) {
    const kn_index_info *info = &b->x->info;
    if (!b->guessing || !probes || !info->has_keys || b->o->codes) return false;
    return 2 * SAMPLE * guess_rank(b) <= 3 * b->k && 2 * probes * info->listed / info->lists >= 5 * b->k;
}

static knnlm_status guess(visit *v) {
    kn_search_batch *b = v->b, sample;
    knnlm_status status = kn_guess_begin(b, guess_rank(b), &sample);
    v->b = &sample;
    v->stride = SAMPLE;
    if (status == KNNLM_OK) status = kn_batch_run(&sample, v->stretches, v->count, run_stretch, v);
    v->b = b;
    v->stride = 1;
    if (status == KNNLM_OK) kn_guess_end(b, &sample);
    free(sample.tops);
    return status;
}

// ---------------------------------------------------------------- the whole

static knnlm_status scratches_make(visit *v) {
    size_t panel = kn_cells(v->b->x->d) * KN_CELL_SIZE * sizeof(float);
    v->scratches = kn_alloc((size_t)kn_threads(), sizeof *v->scratches);
    if (!v->scratches) return KNNLM_ENOMEM;
    for (int i = 0; i < kn_threads(); i++) {
        scratch *s = &v->scratches[i];
        s->lhs = kn_alloc_aligned(KN_GROUP / KN_CELL, panel);
        s->panel = kn_alloc_aligned(1, panel);
        s->rows = kn_alloc_aligned(KN_CELL, v->b->x->d * sizeof *s->rows);
        if (!s->lhs || !s->panel || !s->rows) return KNNLM_ENOMEM;
        memset(s->lhs, 0, KN_GROUP / KN_CELL * panel); // rows beyond the queries are multiplied too
    }
    return KNNLM_OK;
}

static void visit_free(visit *v) {
    for (int i = 0; v->scratches && i < kn_threads(); i++) {
        kn_free_aligned(v->scratches[i].lhs);
        kn_free_aligned(v->scratches[i].panel);
        kn_free_aligned(v->scratches[i].rows);
    }
    free(v->scratches);
    free(v->members);
    free(v->stretches);
}

knnlm_status kn_batch_search_lists(kn_search_batch *b, uint32_t probes) {
    if (!probes && (b->x->form->norms || !b->x->flat_count)) return KNNLM_OK;
    visit v = {.b = b, .members = kn_alloc(b->n * ((size_t)probes + 1), sizeof *v.members), .stride = 1};
    knnlm_status status = v.members ? scratches_make(&v) : KNNLM_ENOMEM;
    if (status == KNNLM_OK && probes) status = probe(&v, probes);
    if (status == KNNLM_OK && can_guess(b, probes)) status = guess(&v);
    if (status == KNNLM_OK) status = cut_flat(&v, probes);
    if (status == KNNLM_OK) status = kn_batch_run(b, v.stretches, v.count, run_stretch, &v);
    visit_free(&v);
    return status;
}
