// The k nearest of what all ranks found, for the rows that a rank owns.
#include "knn/pieces_parts.h"

#include "base/threads.h"
#include "math/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Neighbours of the rows come from other ranks' letters, and from the shards here.
typedef struct merging {
    kn_pieces_work *w;
    kn_letter *letters;  // (count)
    size_t **starts;     // (count): of each row's first neighbour there
    size_t count, most;  // most: neighbours of a row, from all
    unsigned place_bits; // of a neighbour's place among those of its row from one of them
    bool sorted;
    // What workers need.
    size_t stride;
    char *scratch;
    // Where it goes: facts, or neighbours with their entropies.
    kn_row_facts *facts;
    kn_letter out;
    size_t *out_starts;
    double *entropies;
} merging;

// What a worker needs for a row.
typedef struct gathered {
    kn_item *items, *scratch; // (most): distance, and which of all neighbours that came
    float *distances;         // (k): those of the nearest
    int32_t *values;
    uint64_t *numbers;
    kn_value_share *shares; // (2 k)
} gathered;

static size_t lay_out(const merging *m, char *base, gathered *g) {
    size_t used = 0, most = m->most, k = m->w->q.o.k;
    g->items = kn_take(base, &used, most * sizeof *g->items);
    g->scratch = kn_take(base, &used, most * sizeof *g->scratch);
    g->distances = kn_take(base, &used, k * sizeof *g->distances);
    g->values = kn_take(base, &used, k * sizeof *g->values);
    g->numbers = kn_take(base, &used, k * sizeof *g->numbers);
    g->shares = kn_take(base, &used, 2 * k * sizeof *g->shares);
    return used;
}

// ---------------------------------------------------------------- the k nearest

static const kn_found_row *found_here(const merging *m, size_t row, size_t piece) {
    return &m->w->found[(m->w->first + row) * m->w->q.pieces + piece];
}

// An item tells the letter, or behind those the shard here, and the place there.
static size_t from_of(const merging *m, kn_item item) {
    return kn_item_id(item) >> m->place_bits;
}
static size_t place_of(const merging *m, kn_item item) {
    return kn_item_id(item) & (((size_t)1 << m->place_bits) - 1);
}

static int32_t value_of(const merging *m, size_t row, kn_item item) {
    size_t from = from_of(m, item), at = place_of(m, item);
    if (from < m->count) return m->letters[from].values[m->starts[from][row] + at];
    return m->w->pieces[from - m->count].store->values[found_here(m, row, from - m->count)->ids[at]];
}

static uint64_t number_of(const merging *m, size_t row, kn_item item) {
    size_t from = from_of(m, item), at = place_of(m, item);
    if (from < m->count) return m->letters[from].numbers[m->starts[from][row] + at];
    return kn_numbering_of(&m->w->pieces[from - m->count].numbering,
                           found_here(m, row, from - m->count)->ids[at]);
}

static kn_item item_of(const merging *m, float distance, size_t from, size_t at) {
    return kn_item_make(distance, (uint32_t)(from << m->place_bits | at));
}

// Those within the bounds, as kn_ordered() of distances.
static size_t gather(const merging *m, size_t row, uint32_t min, uint32_t max, kn_item *items) {
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++) {
        const float *distances = m->letters[i].distances + m->starts[i][row];
        for (size_t j = 0; j < m->letters[i].counts[row]; j++) {
            uint32_t x = kn_ordered(distances[j]);
            items[n] = item_of(m, distances[j], i, j);
            n += x >= min && x <= max;
        }
    }
    for (size_t p = 0; p < m->w->q.pieces; p++) {
        const kn_found_row *found = found_here(m, row, p);
        for (size_t j = 0; j < found->count; j++) {
            uint32_t x = kn_ordered(found->distances[j]);
            items[n] = item_of(m, found->distances[j], m->count + p, j);
            n += x >= min && x <= max;
        }
    }
    return n;
}

typedef struct row_of_merge {
    const merging *m;
    size_t row;
} row_of_merge;

static int by_number(const void *a, const void *b, void *context) {
    const row_of_merge *r = context;
    uint64_t x = number_of(r->m, r->row, *(const kn_item *)a),
             y = number_of(r->m, r->row, *(const kn_item *)b);
    return (x > y) - (x < y);
}

static void sort_by_number(const merging *m, size_t row, kn_item *items, size_t n) {
    row_of_merge r = {m, row};
    if (n > 1) qsort_r(items, n, sizeof *items, by_number, &r);
}

// The items say nothing of numbers: of those as far as the farthest of the k selected, the lowest stay.
static void settle_ties(const merging *m, size_t row, const gathered *g, size_t k) {
    uint32_t farthest = 0;
    size_t inside = 0, kept = 0;
    for (size_t i = 0; i < k; i++)
        farthest = g->items[i] >> 32 > farthest ? (uint32_t)(g->items[i] >> 32) : farthest;
    for (size_t i = 0; i < k; i++) inside += g->items[i] >> 32 == farthest;
    size_t all = gather(m, row, farthest, farthest, g->scratch);
    if (inside == all) return;
    sort_by_number(m, row, g->scratch, all);
    for (size_t i = 0; i < k; i++)
        if (g->items[i] >> 32 != farthest) g->items[kept++] = g->items[i];
    memcpy(g->items + kept, g->scratch, inside * sizeof *g->items);
}

// Equal distances by their numbers.
static void sort_all(const merging *m, size_t row, const gathered *g, size_t n) {
    kn_items_sort(g->items, n, g->scratch);
    for (size_t from = 0, to = 1; to <= n; to++) {
        if (to < n && g->items[to] >> 32 == g->items[from] >> 32) continue;
        sort_by_number(m, row, g->items + from, to - from);
        from = to;
    }
}

static bool is_before(const merging *m, size_t row, kn_item a, kn_item b) {
    return a >> 32 != b >> 32 ? a < b : number_of(m, row, a) < number_of(m, row, b);
}

static void nearest_first(const merging *m, size_t row, const gathered *g, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (g->items[i] >> 32 <= g->items[best] >> 32 && is_before(m, row, g->items[i], g->items[best]))
            best = i;
    kn_item item = g->items[best];
    g->items[best] = g->items[0];
    g->items[0] = item;
}

// Of n items; how many stay.
static size_t select_nearest(const merging *m, size_t row, const gathered *g, size_t n) {
    size_t k = m->w->q.o.k;
    if (n > k) {
        kn_items_select(g->items, n, k);
        settle_ties(m, row, g, k);
        n = k;
    }
    if (m->sorted)
        sort_all(m, row, g, n);
    else if (n)
        nearest_first(m, row, g, n);
    return n;
}

// Whoever measures them does not ask for numbers, but for that of the nearest.
static void take_nearest(const merging *m, size_t row, const gathered *g, size_t n) {
    for (size_t i = 0; i < n; i++) g->distances[i] = kn_item_distance(g->items[i]);
    for (size_t i = 0; i < n; i++) g->values[i] = value_of(m, row, g->items[i]);
    for (size_t i = 0; i < (m->facts ? kn_min(n, 1) : n); i++) g->numbers[i] = number_of(m, row, g->items[i]);
}

// ---------------------------------------------------------------- a row

static bool begins(const merging *m, size_t row, const gathered *g) {
    for (size_t i = 0; i < m->count; i++) {
        const kn_letter *l = &m->letters[i];
        if (l->counts[row] && l->numbers[m->starts[i][row]] == g->numbers[0]) return l->begins[row];
    }
    for (size_t p = 0; p < m->w->q.pieces; p++) {
        const kn_found_row *found = found_here(m, row, p);
        const kn_open_piece *piece = &m->w->pieces[p];
        if (found->count && kn_numbering_of(&piece->numbering, found->ids[0]) == g->numbers[0])
            return piece->store->beginnings[found->ids[0] / 64] >> found->ids[0] % 64 & 1;
    }
    return false;
}

static void write_out(const merging *m, size_t row, const gathered *g, const kn_row_neighbors *found) {
    size_t at = m->out_starts[row], count = found->near.count;
    m->out.counts[row] = (uint32_t)count;
    m->out.begins[row] = found->begins;
    m->entropies[row] = found->entropy;
    memcpy(m->out.distances + at, g->distances, count * sizeof *g->distances);
    memcpy(m->out.values + at, g->values, count * sizeof *g->values);
    memcpy(m->out.numbers + at, g->numbers, count * sizeof *g->numbers);
}

static void merge_row(void *context, size_t row, int worker) {
    const merging *m = context;
    const kn_measuring *what = &m->w->q.what;
    gathered g;
    lay_out(m, m->scratch + (size_t)worker * m->stride, &g);
    size_t count = select_nearest(m, row, &g, gather(m, row, 0, m->w->limits[m->w->first + row], g.items));
    take_nearest(m, row, &g, count);
    kn_row_neighbors found = {.near = {g.distances, g.values, NULL, count, 0}, .entropy = NAN};
    found.begins = count && begins(m, row, &g);
    if (!isnan(m->w->q.o.temperature))
        found.entropy = kn_neighborhood_entropy(&found.near, m->w->q.o.temperature, g.shares);
    if (m->facts)
        kn_measure_take(&what->measures[what->which[row]], &found, what->targets[row], &m->facts[row]);
    else
        write_out(m, row, &g, &found);
}

// ---------------------------------------------------------------- all of them

static knnlm_status take_letters(merging *m) {
    kn_pieces_work *w = m->w;
    for (size_t r = 0; r < w->q.ranks; r++) {
        if (!w->searches[r] || r == w->self) continue;
        kn_letter *l = &m->letters[m->count];
        size_t *starts = m->starts[m->count++] = kn_alloc(w->own + 1, sizeof *starts);
        if (!starts) return KNNLM_ENOMEM;
        KN_TRY(kn_letter_take(&w->in[r], w->own, l));
        for (size_t i = 0; i < w->own; i++) starts[i + 1] = starts[i] + l->counts[i];
    }
    return KNNLM_OK;
}

// Neighbours of a row that are within the limit, from everywhere.
static size_t count_all(const merging *m, size_t row) {
    size_t n = m->w->q.pieces ? m->w->kept[m->w->first + row] : 0;
    for (size_t i = 0; i < m->count; i++) n += m->letters[i].counts[row];
    return n;
}

static knnlm_status measure_rows(merging *m) {
    size_t longest = 1, sources = m->count + m->w->q.pieces;
    for (size_t row = 0; row < m->w->own; row++) {
        for (size_t i = 0; i < m->count; i++) longest = kn_max(longest, m->letters[i].counts[row]);
        for (size_t p = 0; p < m->w->q.pieces; p++) longest = kn_max(longest, found_here(m, row, p)->count);
        m->most = kn_max(m->most, count_all(m, row) + 1); // one is written before it is left out
    }
    while (longest >> m->place_bits) m->place_bits++;
    if (sources << m->place_bits > UINT32_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%zu neighbours of %zu shards at a time", longest, sources);
    return KNNLM_OK;
}

// How many neighbours a row will have is known before: room for all of them, in one piece.
static knnlm_status make_out(merging *m, kn_message *out) {
    const kn_pieces_work *w = m->w;
    size_t all = 0;
    if (w->q.what.count) {
        m->facts = kn_message_room(out, w->own * sizeof *m->facts);
        return kn_message_sent(out);
    }
    m->out_starts = kn_alloc(w->own + 1, sizeof *m->out_starts);
    if (!m->out_starts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < w->own; i++) {
        m->out_starts[i] = all;
        all += kn_min(count_all(m, i), w->q.o.k);
    }
    size_t at = out->size, entropies = w->own * sizeof *m->entropies;
    kn_message_room(out, entropies);
    KN_TRY(kn_letter_make(out, w->own, all, &m->out));
    m->entropies = (double *)(void *)(out->data + at);
    return KNNLM_OK;
}

knnlm_status kn_pieces_merge(kn_pieces_work *w, kn_message *out) {
    merging m = {.w = w, .sorted = !w->q.what.count || !isnan(w->q.o.temperature)};
    m.letters = kn_alloc(w->q.ranks, sizeof *m.letters);
    m.starts = kn_alloc(w->q.ranks, sizeof *m.starts);
    knnlm_status status = m.letters && m.starts ? take_letters(&m) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = measure_rows(&m);
    if (status == KNNLM_OK) status = make_out(&m, out);
    gathered g;
    static char origin[1]; // only differences matter
    m.stride = lay_out(&m, origin, &g);
    m.scratch = kn_room_make(&w->room_scratch, (size_t)kn_threads(), m.stride);
    if (status == KNNLM_OK && !m.scratch) status = KNNLM_ENOMEM;
    if (status == KNNLM_OK) kn_parallel(w->own, merge_row, &m);
    for (size_t i = 0; m.starts && i < m.count; i++) free(m.starts[i]);
    free(m.starts);
    free(m.letters);
    free(m.out_starts);
    return status;
}
