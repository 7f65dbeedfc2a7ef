// The nearest list of many vectors: each task multiplies some rows with all centroids and reduces the blocks
// as they come; the scores are never stored.
#include "index/quantizer_parts.h"

#include "base/threads.h"

// Candidates of a row: more are left in doubt only among centroids that are nearly equal.
enum { CANDIDATES = 24 };

typedef struct candidate {
    float max; // its score is at most this
    uint32_t list;
} candidate;

typedef struct finding {
    kn_quantizer_size size;
    float min; // the best score is at least this
    uint32_t n;
    float rank; // the best among those measured, infinity when none was
    uint32_t list;
    candidate candidates[CANDIDATES];
} finding;

typedef struct assignment { // what all tasks share
    const kn_quantizer *q;
    const float *x;
    size_t n, rows; // of a task
    uint32_t *lists;
    float *distances;
    char *scratch; // `bytes` a worker
    size_t bytes;
} assignment;

typedef struct batch { // a task's own
    const kn_quantizer *q;
    const float *x; // of its rows
    finding *rows;
} batch;

// Measures the candidates that are still in doubt and forgets them all.
static void settle(const kn_quantizer *q, const float *x, finding *f) {
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t list = f->candidates[i].list;
        if (f->candidates[i].max < f->min) continue;
        float rank = kn_quantizer_rank(q, x, list);
        if (rank < f->rank || (rank == f->rank && list < f->list)) {
            f->rank = rank;
            f->list = list;
        }
    }
    f->n = 0;
}

static void add_candidate(const batch *b, size_t row, candidate c) {
    finding *f = b->rows + row;
    if (f->n == CANDIDATES) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < f->n; i++)
            if (!(f->candidates[i].max < f->min)) f->candidates[kept++] = f->candidates[i];
        f->n = kept;
        if (kept == CANDIDATES) settle(b->q, b->x + row * b->q->d, f);
    }
    f->candidates[f->n++] = c;
}

static void reduce_block(void *context, const float *block, size_t row, size_t column, size_t rows,
                         size_t columns) {
    const batch *b = context;
    const kn_quantizer *q = b->q;
    float scores[KN_CELL_SIZE] __attribute__((aligned(64)));
    q->k->store(scores, KN_CELL, block, q->bias + column, rows, KN_CELL, false);
    for (size_t r = 0; r < rows; r++) {
        finding *f = b->rows + row + r;
        const float *s = scores + r * KN_CELL;
        float error = kn_quantizer_error(q, f->size, column / KN_CELL), best = q->k->max(s, KN_CELL);
        bool known = isfinite(error);
        if (known && best + error < f->min) continue;
        if (known && best - error > f->min) f->min = best - error;
        for (size_t i = 0; i < columns; i++)
            if (!known || s[i] + error >= f->min)
                add_candidate(b, row + r,
                              (candidate){known ? s[i] + error : INFINITY, (uint32_t)(column + i)});
    }
}

// A single candidate is the nearest unmeasured: only its distance may be wanted.
static void finish_row(const assignment *a, const batch *b, size_t row, size_t at) {
    finding *f = b->rows + row;
    const float *x = b->x + row * a->q->d;
    uint32_t kept = 0, last = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (!(f->candidates[i].max < f->min)) kept++, last = f->candidates[i].list;
    if (kept == 1 && f->list == UINT32_MAX)
        f->list = last;
    else
        settle(a->q, x, f);
    a->lists[at] = f->list;
    if (a->distances) a->distances[at] = kn_quantizer_measure(a->q, x, f->list);
}

static void begin_row(finding *f, kn_quantizer_size size) {
    f->size = size;
    f->min = -INFINITY;
    f->n = 0;
    f->rank = INFINITY;
    f->list = UINT32_MAX;
}

// A worker's scratch memory; sizes alone when it is NULL.
typedef struct room {
    char *lhs;
    float *moved;
    finding *rows;
    size_t bytes;
} room;

static room room_in(const assignment *a, char *scratch) {
    size_t lhs = kn_lhs_bytes(a->q->k, a->rows, a->q->d), moved = KN_CELL * a->q->d * sizeof(float);
    room r = {.bytes = (lhs + moved + a->rows * sizeof(finding) + 255) / 64 * 64};
    size_t used = 0;
    if (!scratch) return r;
    r.lhs = kn_take(scratch, &used, lhs);
    r.moved = kn_take(scratch, &used, moved);
    r.rows = kn_take(scratch, &used, a->rows * sizeof(finding));
    return r;
}

static void assign_rows(void *context, size_t task, int worker) {
    const assignment *a = context;
    const kn_quantizer *q = a->q;
    size_t first = task * a->rows, rows = kn_min(a->rows, a->n - first);
    room own = room_in(a, a->scratch + (size_t)worker * a->bytes);
    batch b = {q, a->x + first * q->d, own.rows};
    for (size_t r = 0; r < rows; r += KN_CELL) {
        kn_quantizer_size sizes[KN_CELL];
        size_t n = kn_min(KN_CELL, rows - r);
        kn_quantizer_pack(q, b.x + r * q->d, n, own.lhs + r / KN_CELL * kn_panel_bytes(q->k, q->d), own.moved,
                          sizes);
        for (size_t i = 0; i < n; i++) begin_row(b.rows + r + i, sizes[i]);
    }
    kn_quantizer_multiply(q, own.lhs, rows, reduce_block, &b);
    for (size_t r = 0; r < rows; r++) finish_row(a, &b, r, first + r);
}

knnlm_status kn_quantizer_assign(const kn_quantizer *q, const float *x, size_t n, uint32_t *lists,
                                 float *distances) {
    assignment a = {q, x, n, kn_quantizer_task_rows(n), lists, distances, NULL, 0};
    a.bytes = room_in(&a, NULL).bytes;
    a.scratch = kn_alloc_aligned((size_t)kn_threads(), a.bytes);
    if (!a.scratch) return KNNLM_ENOMEM;
    kn_parallel((n + a.rows - 1) / a.rows, assign_rows, &a);
    kn_free_aligned(a.scratch);
    return KNNLM_OK;
}
