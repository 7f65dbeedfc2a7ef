// Products of whole matrices: cut into tasks, each a few panels by a few panels, small enough for the L2
// cache.
#include "math/math.h"

#include "base/threads.h"

// Panels of a task, at most: 8 x 32 rows of the left operand stay in the L2 cache while 4 x 32 columns pass
// by. Small products are cut finer, so that threads share them evenly, down to TASK_MIN panels either way.
// What a task holds depends on the shape alone, and no sum on the task.
enum { TASK_ROWS = 8, TASK_COLUMNS = 4, TASK_MIN = 2, TASKS = 16 };

size_t kn_lhs_bytes(const kn_kernels *k, size_t rows, size_t depth) {
    return kn_cells(rows) * kn_panel_bytes(k, depth);
}

knnlm_status kn_rhs_init(const kn_kernels *k, kn_rhs *out, size_t columns, size_t depth) {
    *out = (kn_rhs){.columns = columns, .depth = depth};
    out->data = kn_alloc_aligned(kn_cells(columns), kn_panel_bytes(k, depth));
    return out->data ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_rhs_free(kn_rhs *rhs) {
    kn_free_aligned(rhs->data);
    *rhs = (kn_rhs){0};
}

typedef struct packing {
    void (*pack)(void *panel, const float *src, size_t ld, size_t n, size_t depth);
    char *out;
    const float *src;
    size_t ld, n, depth, panel_bytes, panel_step; // panel_step: floats of src from one panel to the next
} packing;

static void pack_panel(void *context, size_t task, int worker) {
    const packing *p = context;
    size_t first = task * KN_CELL, n = p->n - first < KN_CELL ? p->n - first : KN_CELL;
    (void)worker;
    p->pack(p->out + task * p->panel_bytes, p->src + task * p->panel_step, p->ld, n, p->depth);
}

void kn_rhs_pack(const kn_kernels *k, kn_rhs *out, const float *src, size_t ld, bool transposed) {
    packing p = {transposed ? k->pack_rhs_t : k->pack_rhs,
                 out->data,
                 src,
                 ld,
                 out->columns,
                 out->depth,
                 kn_panel_bytes(k, out->depth),
                 transposed ? KN_CELL : KN_CELL * ld};
    kn_parallel(kn_cells(out->columns), pack_panel, &p);
}

void kn_lhs_pack(const kn_kernels *k, void *out, const float *src, size_t ld, size_t rows, size_t depth,
                 bool transposed) {
    packing p = {
        transposed ? k->pack_lhs_t : k->pack_lhs, out, src, ld, rows, depth, kn_panel_bytes(k, depth),
        transposed ? KN_CELL : KN_CELL * ld};
    kn_parallel(kn_cells(rows), pack_panel, &p);
}

typedef struct product {
    const kn_kernels *k;
    const char *lhs;
    const kn_rhs *rhs;
    size_t rows;
    size_t task_rows, task_columns, row_groups, column_groups; // panels of a task; tasks along either side
    kn_emit *store;
    void *context;
} product;

typedef struct span {
    size_t row0, row1, column0, column1; // panels
} span;

static span span_of(const product *p, size_t task) {
    size_t row = task % p->row_groups * p->task_rows, column = task / p->row_groups * p->task_columns;
    return (span){row, kn_min(row + p->task_rows, kn_cells(p->rows)), column,
                  kn_min(column + p->task_columns, kn_cells(p->rhs->columns))};
}

// Block (r, c) over `cells` cells of depth after `done`. Meanwhile the cache gets what is next and may be
// far: left panels while the first columns pass by, a right panel at the end of the one before.
static void multiply_block(const product *p, const span *s, float *block, size_t r, size_t c, size_t done,
                           size_t cells) {
    size_t panel = kn_panel_bytes(p->k, p->rhs->depth), cell = p->k->cell;
    const char *a = p->lhs + r * panel + done * cell,
               *b = (const char *)p->rhs->data + c * panel + done * cell, *ahead = NULL;
    if (r + 1 < s->row1)
        ahead = c == s->column0 ? a + panel : NULL;
    else if (c + 1 < s->column1)
        ahead = b + panel;
    p->k->multiply_ahead(block, a, b, cells, kn_min(KN_CELL, p->rows - r * KN_CELL), done > 0, ahead);
}

static void emit(const product *p, const float *block, size_t r, size_t c) {
    p->store(p->context, block, r * KN_CELL, c * KN_CELL, kn_min(KN_CELL, p->rows - r * KN_CELL),
             kn_min(KN_CELL, p->rhs->columns - c * KN_CELL));
}

// Cells of depth at a time: as many as the kernel asks for, which suits an L1 cache of 48 KB; fewer for one
// of 32 KB. As equal as can be. Sums are the same however they are cut.
static size_t chunk_of(const kn_kernels *k, size_t cells) {
    size_t max = kn_math_l1() < 48 << 10 ? k->chunk_cells * 3 / 4 : k->chunk_cells;
    size_t chunks = (cells + max - 1) / max;
    return (cells + chunks - 1) / kn_max(1, chunks);
}

// A block is handed on as soon as it is done, while the L1 cache has it; only deep ones wait for one another.
static void multiply_task(void *context, size_t task, int worker) {
    const product *p = context;
    float blocks[TASK_ROWS * TASK_COLUMNS][KN_CELL_SIZE] __attribute__((aligned(64)));
    size_t cells = kn_cells(p->rhs->depth), chunk = chunk_of(p->k, cells);
    span s = span_of(p, task);
    (void)worker;
    for (size_t done = 0; done < cells; done += chunk)
        for (size_t c = s.column0; c < s.column1; c++)
            for (size_t r = s.row0; r < s.row1; r++) {
                float *block = blocks[cells <= chunk ? 0 : (r - s.row0) * TASK_COLUMNS + c - s.column0];
                multiply_block(p, &s, block, r, c, done, kn_min(chunk, cells - done));
                if (done + chunk >= cells) emit(p, block, r, c);
            }
}

static void count_tasks(product *p) {
    p->row_groups = (kn_cells(p->rows) + p->task_rows - 1) / p->task_rows;
    p->column_groups = (kn_cells(p->rhs->columns) + p->task_columns - 1) / p->task_columns;
}

// The longer side of a task is halved first: the more nearly square it is, the less it reads for each block.
static void cut(product *p) {
    p->task_rows = TASK_ROWS;
    p->task_columns = TASK_COLUMNS;
    for (count_tasks(p); p->row_groups * p->column_groups < TASKS && p->task_rows > TASK_MIN; count_tasks(p))
        if (p->task_rows > p->task_columns)
            p->task_rows /= 2;
        else
            p->task_columns /= 2;
}

void kn_multiply(const kn_kernels *k, const void *lhs, size_t rows, const kn_rhs *rhs, kn_emit *store,
                 void *context) {
    product p = {.k = k, .lhs = lhs, .rhs = rhs, .rows = rows, .store = store, .context = context};
    cut(&p);
    kn_parallel(p.row_groups * p.column_groups, multiply_task, &p);
}

// The block that comes next is most often the one below: its lines are fetched to be written while it is
// computed. A shallow product of many columns (the head's) is about 5% faster by it, others no slower. What
// lies beyond the last row is only an address: fetching it does nothing.
static void fetch_below(const kn_emit_matrix *m, size_t row, size_t column) {
    uintptr_t at = (uintptr_t)m->out + ((row + KN_CELL) * m->ld + column) * sizeof *m->out;
    for (size_t r = 0; r < KN_CELL; r++, at += m->ld * sizeof *m->out) {
        __builtin_prefetch((const void *)at, 1);
        __builtin_prefetch((const void *)(at + 64), 1);
    }
}

void kn_emit_set(void *context, const float *block, size_t row, size_t column, size_t rows, size_t columns) {
    const kn_emit_matrix *m = context;
    m->k->store(m->out + row * m->ld + column, m->ld, block, m->bias ? m->bias + column : NULL, rows, columns,
                false);
    fetch_below(m, row, column);
}

void kn_emit_add(void *context, const float *block, size_t row, size_t column, size_t rows, size_t columns) {
    const kn_emit_matrix *m = context;
    m->k->store(m->out + row * m->ld + column, m->ld, block, m->bias ? m->bias + column : NULL, rows, columns,
                true);
    fetch_below(m, row, column);
}

typedef struct sums {
    const kn_kernels *k;
    float *out;
    const float *x;
    size_t ld, rows, columns;
} sums;

enum { SUM_COLUMNS = 128 };

static void sum_columns(void *context, size_t task, int worker) {
    const sums *s = context;
    size_t first = task * SUM_COLUMNS, n = kn_min(SUM_COLUMNS, s->columns - first);
    (void)worker;
    for (size_t r = 0; r < s->rows; r++) s->k->axpy(s->out + first, 1.0f, s->x + r * s->ld + first, n);
}

void kn_column_sums(const kn_kernels *k, float *out, const float *x, size_t ld, size_t rows, size_t columns) {
    sums s = {k, out, x, ld, rows, columns};
    kn_parallel((columns + SUM_COLUMNS - 1) / SUM_COLUMNS, sum_columns, &s);
}
