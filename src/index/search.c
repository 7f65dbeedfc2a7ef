// Many queries at once, as many at a time as memory allows.
#include "index/search_parts.h"

#include "base/threads.h"
#include "index/resident.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

// ---------------------------------------------------------------- stretches

enum {
    STEP = 256,     // stretches between two looks at the progress, at most
    STEPS_HELD = 8, // steps whose rows fit into the memory allowed: two are held, beside all else
};

// Stretches [first, end): run together. Their rows are read ahead while those before them are run.
typedef struct step {
    const kn_search_batch *b;
    const kn_stretch *stretches;
    size_t first, end;
    kn_parallel_task *run;
    void *context;
    _Atomic size_t damaged; // a stretch that is not as it was written; SIZE_MAX: none
} step;

static knnlm_status check(const step *s, size_t i) {
    const kn_stretch *t = &s->stretches[i];
    bool codes = !t->run->rows || (s->b->o->codes && t->run->codes);
    return kn_run_check_places(s->b->x, t->run, t->from, t->to, codes);
}

static size_t bytes_of(const step *s, size_t i) {
    return (s->stretches[i].to - s->stretches[i].from) * s->b->x->row_bytes;
}

static step step_after(const step *s, size_t count) {
    step next = {s->b, s->stretches, 0, 0, s->run, s->context, SIZE_MAX};
    uint64_t bytes = 0, max = s->b->o->memory ? s->b->o->memory / STEPS_HELD : UINT64_MAX;
    next.first = next.end = s->end;
    while (next.end < count && next.end < next.first + STEP && (next.end == next.first || bytes < max))
        bytes += bytes_of(s, next.end++);
    return next;
}

// Rows of these stretches are needed soon. Stores that fit into memory are left to the system.
static void prefetch(const step *s) {
    const kn_index *x = s->b->x;
    for (size_t i = s->first; x->store && s->b->o->memory && i < s->end; i++) {
        const kn_stretch *t = &s->stretches[i];
        if (!t->run->rows) continue;
        if (t->run->ids)
            kn_store_annex_prefetch(x->store, t->run->rows_part, t->from * x->row_bytes, bytes_of(s, i));
        else
            kn_store_segment_prefetch(x->store, t->run->rows_part, t->run->first_id + t->from,
                                      t->to - t->from);
    }
}

// Asking for more than the disk's queue holds takes as long as reading it: a thread of its own waits for
// that.
static void *read_ahead(void *context) {
    prefetch(context);
    return NULL;
}

static void run_one(void *context, size_t number, int worker) {
    step *s = context;
    if (check(s, s->first + number) == KNNLM_OK)
        s->run(s->context, s->first + number, worker);
    else
        s->damaged = s->first + number;
}

static void run_step(step *now, step *next) {
    pthread_t reader;
    bool reading = now->b->o->memory && next->first < next->end;
    bool apart = reading && pthread_create(&reader, NULL, read_ahead, next) == 0;
    if (reading && !apart) prefetch(next);
    kn_parallel(now->end - now->first, run_one, now);
    if (apart) pthread_join(reader, NULL);
}

static uint64_t bytes_of_step(const step *s) {
    uint64_t sum = 0;
    for (size_t i = s->first; i < s->end; i++) sum += bytes_of(s, i);
    return sum;
}

knnlm_status kn_batch_run(const kn_search_batch *b, const kn_stretch *stretches, size_t count,
                          kn_parallel_task *run, void *context) {
    step none = {b, stretches, 0, 0, run, context, SIZE_MAX}, now = step_after(&none, count);
    kn_resident resident = {.store = b->x->store, .max = b->o->memory};
    while (now.first < now.end) {
        step next = step_after(&now, count);
        run_step(&now, &next);
        kn_resident_touch(&resident, bytes_of_step(&now));
        if (now.damaged != SIZE_MAX) return check(&now, now.damaged); // once more: messages are of a thread
        if (!kn_progress_report(b->o->progress, "searching", now.end, count, "parts"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while searching");
        now = step_after(&now, count);
    }
    kn_resident_end(&resident);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- a batch

typedef struct finishing {
    kn_search_batch *b;
    kn_neighbors *out;
    kn_item *scratch; // of each worker
} finishing;

// In the worker's scratch memory, which the sorting is done with.
static void tell(const kn_search_batch *b, size_t q, size_t count, kn_item *scratch, int worker) {
    const kn_item *items = b->tops[q].items;
    uint32_t *ids = (uint32_t *)scratch;
    float *distances = (float *)(ids + b->k);
    for (size_t i = 0; i < count; i++) {
        ids[i] = kn_item_id(items[i]);
        distances[i] = kn_item_distance(items[i]);
    }
    b->o->found(b->o->found_context, b->first + q, ids, distances, count, worker);
}

static void finish_query(void *context, size_t q, int worker) {
    const finishing *f = context;
    kn_search_batch *b = f->b;
    kn_top *t = &b->tops[q];
    kn_item *scratch = f->scratch + (size_t)worker * kn_top_scratch(b->k);
    bool any_order = b->o->found && b->o->any_order;
    size_t count = any_order ? kn_top_finish_unsorted(t) : kn_top_finish(t, scratch);
    size_t row = (b->first + q) * b->k;
    if (b->o->found) {
        tell(b, q, count, scratch, worker);
        return;
    }
    for (size_t i = 0; i < b->k; i++) {
        f->out->ids[row + i] = i < count ? kn_item_id(t->items[i]) : UINT32_MAX;
        f->out->distances[row + i] = i < count ? kn_item_distance(t->items[i]) : INFINITY;
    }
    f->out->counts[b->first + q] = (uint32_t)count;
}

static knnlm_status look(kn_search_batch *b, uint32_t probes) {
    KN_TRY(kn_batch_search_lists(b, probes));
    return b->x->form->norms ? kn_batch_search_flat(b, probes) : KNNLM_OK;
}

static knnlm_status run_batch(kn_search_batch *b, uint32_t probes, kn_item *items, kn_neighbors *out) {
    size_t capacity = kn_top_capacity(b->k);
    b->tops = kn_alloc(b->n, sizeof *b->tops);
    if (!b->tops) return KNNLM_ENOMEM;
    for (size_t q = 0; q < b->n; q++) kn_top_init(&b->tops[q], items + q * capacity, b->k);
    b->guessing = true;
    knnlm_status status = look(b, probes);
    size_t missing = status == KNNLM_OK ? kn_guess_missing(b) : 0;
    if (missing) status = kn_guess_again(b, missing, look, probes);
    kn_item *scratch = kn_alloc((size_t)kn_threads() * kn_top_scratch(b->k), sizeof *scratch);
    if (!scratch) status = KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_parallel(b->n, finish_query, &(finishing){b, out, scratch});
    free(scratch);
    free(b->tops);
    return status;
}

// ---------------------------------------------------------------- the door

typedef struct question {
    const kn_index *x;
    const float *queries;
    size_t d;
    _Atomic size_t bad; // the first that is not finite
    float *measured;
    int16_t *whole;
    kn_integer_query *terms;
} question;

static void check_query(void *context, size_t q, int worker) {
    question *a = context;
    bool finite = true;
    (void)worker;
    for (size_t i = 0; i < a->d; i++) finite &= isfinite(a->queries[q * a->d + i]) != 0;
    for (size_t bad = a->bad; !finite && q < bad;)
        if (atomic_compare_exchange_weak(&a->bad, &bad, q)) break;
}

static knnlm_status check_queries(const kn_index *x, const float *queries, size_t n) {
    question a = {.x = x, .queries = queries, .d = x->d, .bad = n};
    kn_parallel(n, check_query, &a);
    return a.bad == n ? KNNLM_OK : kn_fail(KNNLM_EDATA, "query %zu is not finite", (size_t)a.bad);
}

static void measure_query(void *context, size_t q, int worker) {
    const question *a = context;
    (void)worker;
    kn_index_query(a->x, a->queries + q * a->d, a->measured + q * a->d,
                   a->whole ? a->whole + q * kn_index_stride(a->x) : NULL, a->terms ? a->terms + q : NULL);
}

// As many queries at a time as half of the memory allows; a quarter is for rows, the rest for what a search
// has beside. Every list is read once for each such part. A query has its top, another while limits are
// guessed, its packed vector and its lists.
static size_t part_of(const kn_index *x, const kn_search_options *o, size_t n, size_t k, uint32_t probes) {
    size_t tops = 2 * sizeof(kn_top) + kn_top_capacity(k) * sizeof(kn_item);
    size_t whole = x->integers ? kn_index_stride(x) * sizeof(int16_t) + sizeof(kn_integer_query) : 0;
    size_t each = tops + 2 * x->d * sizeof(float) + whole + 8 * (size_t)probes + 64;
    uint64_t memory = o->memory ? o->memory / 2 : (uint64_t)4 << 30;
    return kn_max(1, kn_min(n, (size_t)(memory / each)));
}

// `room`: for the queries as the index measures them, where they are not as they were given.
static knnlm_status search_part(const kn_index *x, const float *queries, size_t first, size_t n, size_t k,
                                uint32_t probes, const kn_search_options *o, kn_item *items,
                                const question *room, kn_neighbors *out) {
    kn_search_batch b = {.x = x, .o = o, .queries = queries + first * x->d, .n = n, .k = k, .first = first};
    if (room->measured) {
        question a = *room;
        a.queries = b.queries;
        kn_parallel(n, measure_query, &a);
        b.queries = a.measured;
        b.whole = a.whole;
        b.terms = a.terms;
    }
    return run_batch(&b, probes, items, out);
}

static knnlm_status room_make(const kn_index *x, size_t n, question *room) {
    *room = (question){.x = x, .d = x->d};
    if (x->form->unit || x->integers) {
        room->measured = kn_alloc_aligned(n, x->d * sizeof *room->measured);
        if (!room->measured) return KNNLM_ENOMEM;
    }
    if (!x->integers) return KNNLM_OK;
    room->whole = kn_alloc_aligned(n, kn_index_stride(x) * sizeof *room->whole);
    room->terms = kn_alloc(n, sizeof *room->terms);
    return room->whole && room->terms ? KNNLM_OK : KNNLM_ENOMEM;
}

static void room_free(question *room) {
    kn_free_aligned(room->measured);
    kn_free_aligned(room->whole);
    free(room->terms);
}

void kn_search_scratch_free(kn_search_scratch *s) {
    kn_free_aligned(s->items);
    kn_free_aligned(s->lists);
    *s = (kn_search_scratch){0};
}

static knnlm_status make_items(kn_search_scratch *s, size_t part, size_t k) {
    size_t bytes;
    if (!kn_mul(part, kn_top_capacity(k) * sizeof(kn_item), &bytes))
        return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    if (s->items && bytes <= s->bytes) return KNNLM_OK;
    kn_free_aligned(s->items);
    s->items = kn_alloc_aligned(bytes, 1);
    s->bytes = s->items ? bytes : 0;
    return s->items ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_index_search(const kn_index *x, const float *queries, size_t n, const kn_search_options *o,
                             kn_neighbors *out) {
    kn_search_scratch own = {0}, *scratch = o->scratch ? o->scratch : &own;
    question room;
    size_t k;
    uint32_t probes;
    KN_TRY(kn_index_resolve(x, o, &k, &probes));
    KN_TRY(check_queries(x, queries, n));
    size_t part = part_of(x, o, n, k, probes);
    knnlm_status status = room_make(x, part, &room);
    if (status == KNNLM_OK) status = make_items(scratch, part, k);
    for (size_t first = 0; first < n && status == KNNLM_OK; first += part)
        status =
            search_part(x, queries, first, kn_min(part, n - first), k, probes, o, scratch->items, &room, out);
    kn_search_scratch_free(&own);
    room_free(&room);
    return status;
}

knnlm_status kn_index_probe(const kn_index *x, const float *queries, size_t n, const kn_search_options *o,
                            uint32_t **lists, uint32_t *probes) {
    kn_search_batch b = {.x = x, .o = o, .queries = queries, .n = n};
    question room;
    *lists = NULL;
    KN_TRY(kn_index_resolve(x, o, &b.k, probes));
    KN_TRY(check_queries(x, queries, n));
    if (!*probes) return KNNLM_OK;
    *lists = kn_alloc(n * *probes + 1, sizeof **lists);
    knnlm_status status = *lists ? room_make(x, n, &room) : KNNLM_ENOMEM;
    if (!*lists) return status;
    if (status == KNNLM_OK && room.measured) {
        room.queries = queries;
        kn_parallel(n, measure_query, &room);
        b.queries = room.measured;
    }
    if (status == KNNLM_OK) status = kn_batch_probe(&b, *probes, *lists);
    room_free(&room);
    return status;
}
