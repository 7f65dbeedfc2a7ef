// The nearest few lists of vectors: scores of some rows are kept, and each row picks from its own.
#include "index/quantizer_parts.h"

#include "base/threads.h"

typedef struct ranked {
    float rank;
    uint32_t list;
} ranked;

// A worker's scratch memory: of some rows, then of the row that picks.
typedef struct room {
    size_t rows, ld; // ld: lists rounded up to whole panels
    char *lhs;
    float *moved, *scores, *best; // scores (rows, ld); best (rows, panels): the largest of each 32 scores
    kn_quantizer_size *sizes;
    float *sorting;  // ld
    ranked *doubted; // ld
    size_t bytes;
} room;

// The next piece of `scratch`, or NULL: only its size counts then.
static void *piece(char *scratch, size_t *used, size_t count, size_t size) {
    char *start = scratch ? scratch + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return start;
}

static room room_in(const kn_quantizer *q, size_t rows, char *scratch) {
    room r = {.rows = rows, .ld = q->panels * KN_CELL};
    r.lhs = piece(scratch, &r.bytes, 1, kn_lhs_bytes(q->k, rows, q->d));
    r.moved = piece(scratch, &r.bytes, kn_min(rows, KN_CELL) * q->d, sizeof *r.moved);
    r.scores = piece(scratch, &r.bytes, rows * r.ld, sizeof *r.scores);
    r.best = piece(scratch, &r.bytes, rows * q->panels, sizeof *r.best);
    r.sizes = piece(scratch, &r.bytes, rows, sizeof *r.sizes);
    r.sorting = piece(scratch, &r.bytes, r.ld, sizeof *r.sorting);
    r.doubted = piece(scratch, &r.bytes, r.ld, sizeof *r.doubted);
    return r;
}

// ---------------------------------------------------------------- picking

// The k-th largest of v, k >= 1; v is reordered.
static float kth_largest(float *v, size_t n, size_t k) {
    size_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i >= j) break;
            float swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        // All up to j are at least the pivot, all from j + 1 on at most.
        if (want <= j)
            high = j;
        else
            low = j + 1;
    }
    return v[want];
}

static float row_error(const kn_quantizer *q, const room *r, size_t row, size_t panel) {
    float error = kn_quantizer_error(q, r->sizes[row], panel);
    return isfinite(error) ? error : INFINITY;
}

// A score that the `probes` best are sure to reach. The best of each panel are enough of them when there are
// at least as many panels, and 32 times fewer to look at.
static float sure_score(const kn_quantizer *q, const room *r, size_t row, size_t probes) {
    const float *best = r->best + row * q->panels, *scores = r->scores + row * r->ld;
    size_t n = 0;
    for (size_t p = 0; p < q->panels; p++) {
        float error = row_error(q, r, row, p);
        size_t columns = kn_min(KN_CELL, q->count - p * KN_CELL);
        if (error == INFINITY) return -INFINITY;
        if (probes <= q->panels)
            r->sorting[n++] = best[p] - error;
        else
            for (size_t i = 0; i < columns; i++) r->sorting[n++] = scores[p * KN_CELL + i] - error;
    }
    return kth_largest(r->sorting, n, probes);
}

// The lists whose scores could be among the best, their largest possible scores as ranks; returns how many.
static size_t doubt(const kn_quantizer *q, const room *r, size_t row, float sure) {
    const float *best = r->best + row * q->panels, *scores = r->scores + row * r->ld;
    size_t n = 0;
    for (size_t p = 0; p < q->panels; p++) {
        float error = row_error(q, r, row, p);
        size_t columns = kn_min(KN_CELL, q->count - p * KN_CELL);
        if (sure > -INFINITY && best[p] + error < sure) continue;
        for (size_t i = 0; i < columns; i++) {
            float max = sure > -INFINITY ? scores[p * KN_CELL + i] + error : INFINITY;
            if (max < sure) continue;
            r->sorting[n] = max - 2 * error;
            r->doubted[n++] = (ranked){max, (uint32_t)(p * KN_CELL + i)};
        }
    }
    return n;
}

static bool before(ranked a, ranked b) {
    return a.rank < b.rank || (a.rank == b.rank && a.list < b.list);
}

// Shell's sort with Tokuda's gaps, up to 4096 (a longer array is only sorted more slowly): qsort may
// allocate.
static void sort(ranked *v, size_t n) {
    static const uint16_t gaps[] = {4182, 1858, 825, 367, 163, 72, 32, 14, 6, 2, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (size_t gap = gaps[g], i = gap; i < n; i++) {
            ranked moving = v[i];
            size_t j = i;
            for (; j >= gap && before(moving, v[j - gap]); j -= gap) v[j] = v[j - gap];
            v[j] = moving;
        }
}

static void pick(const kn_quantizer *q, const room *r, size_t row, const float *x, size_t probes,
                 uint32_t *lists, float *distances) {
    float sure = sure_score(q, r, row, probes);
    size_t n = doubt(q, r, row, sure), kept = 0;
    if (sure > -INFINITY && n > probes) sure = kth_largest(r->sorting, n, probes);
    for (size_t i = 0; i < n; i++)
        if (!(r->doubted[i].rank < sure)) {
            uint32_t list = r->doubted[i].list;
            r->doubted[kept++] = (ranked){kn_quantizer_rank(q, x, list), list};
        }
    sort(r->doubted, kept);
    for (size_t i = 0; i < probes; i++) {
        lists[i] = r->doubted[i].list;
        if (distances) distances[i] = kn_quantizer_measure(q, x, r->doubted[i].list);
    }
}

// ---------------------------------------------------------------- probing

typedef struct keeping {
    const kn_quantizer *q;
    const room *room;
} keeping;

static void keep_block(void *context, const float *block, size_t row, size_t column, size_t rows,
                       size_t columns) {
    const keeping *k = context;
    const room *room = k->room;
    float *scores = room->scores + row * room->ld + column;
    (void)columns; // the padding becomes -infinity
    k->q->k->store(scores, room->ld, block, k->q->bias + column, rows, KN_CELL, false);
    for (size_t r = 0; r < rows; r++)
        room->best[(row + r) * k->q->panels + column / KN_CELL] =
            k->q->k->max(scores + r * room->ld, KN_CELL);
}

static void probe_rows(const kn_quantizer *q, const room *room, const float *x, size_t rows, size_t probes,
                       uint32_t *lists, float *distances) {
    keeping k = {q, room};
    for (size_t r = 0; r < rows; r += KN_CELL)
        kn_quantizer_pack(q, x + r * q->d, kn_min(KN_CELL, rows - r),
                          room->lhs + r / KN_CELL * kn_panel_bytes(q->k, q->d), room->moved, room->sizes + r);
    kn_quantizer_multiply(q, room->lhs, rows, keep_block, &k);
    for (size_t r = 0; r < rows; r++)
        pick(q, room, r, x + r * q->d, probes, lists + r * probes, distances ? distances + r * probes : NULL);
}

typedef struct probing {
    const kn_quantizer *q;
    const float *x;
    size_t n, rows, probes;
    uint32_t *lists;
    float *distances;
    char *scratch;
    size_t bytes;
} probing;

static void probe_task(void *context, size_t task, int worker) {
    const probing *p = context;
    size_t first = task * p->rows;
    room own = room_in(p->q, p->rows, p->scratch + (size_t)worker * p->bytes);
    probe_rows(p->q, &own, p->x + first * p->q->d, kn_min(p->rows, p->n - first), p->probes,
               p->lists + first * p->probes, p->distances ? p->distances + first * p->probes : NULL);
}

static knnlm_status check(const kn_quantizer *q, size_t probes) {
    if (probes && probes <= q->count) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%zu probes into %zu lists: at least one, at most all", probes, q->count);
}

// Rows whose scores are kept at a time: as many as make a product, but a few megabytes.
static size_t rows_of_task(const kn_quantizer *q, size_t n) {
    enum { SCORES = 1 << 20 };
    size_t rows = kn_quantizer_task_rows(n);
    while (rows > KN_CELL && rows * q->count > SCORES) rows -= KN_CELL;
    return rows;
}

knnlm_status kn_quantizer_probe(const kn_quantizer *q, const float *x, size_t n, size_t probes,
                                uint32_t *lists, float *distances) {
    KN_TRY(check(q, probes));
    probing p = {q, x, n, rows_of_task(q, n), probes, lists, distances, NULL, 0};
    p.bytes = room_in(q, p.rows, NULL).bytes;
    p.scratch = kn_alloc_aligned((size_t)kn_threads(), p.bytes);
    if (!p.scratch) return KNNLM_ENOMEM;
    kn_parallel((n + p.rows - 1) / p.rows, probe_task, &p);
    kn_free_aligned(p.scratch);
    return KNNLM_OK;
}

size_t kn_quantizer_scratch_bytes(const kn_quantizer *q) {
    return room_in(q, 1, NULL).bytes;
}

knnlm_status kn_quantizer_probe_one(const kn_quantizer *q, const float *x, size_t probes, uint32_t *lists,
                                    float *distances, void *scratch) {
    KN_TRY(check(q, probes));
    room own = room_in(q, 1, scratch);
    probe_rows(q, &own, x, 1, probes, lists, distances);
    return KNNLM_OK;
}
