// Sends what a rank found to the owners of the rows.
#include "knn/pieces_parts.h"

#include "base/threads.h"

// ---------------------------------------------------------------- letters

static size_t padded(size_t bytes) {
    return (bytes + 7) / 8 * 8;
}

static kn_letter lay_out(const uint8_t *data, size_t rows, size_t all) {
    kn_letter l = {.rows = rows, .counts = (uint32_t *)(uintptr_t)data};
    l.begins = (uint8_t *)(uintptr_t)(data += padded(rows * sizeof *l.counts));
    l.distances = (float *)(uintptr_t)(data += padded(rows));
    l.values = (int32_t *)(uintptr_t)(data += padded(all * sizeof *l.distances));
    l.numbers = (uint64_t *)(uintptr_t)(data + padded(all * sizeof *l.values));
    return l;
}

static size_t letter_bytes(size_t rows, size_t all) {
    return padded(rows * sizeof(uint32_t)) + padded(rows) + 2 * padded(all * sizeof(float)) +
           all * sizeof(uint64_t);
}

knnlm_status kn_letter_make(kn_message *m, size_t rows, size_t all, kn_letter *out) {
    const uint8_t *room = kn_message_room(m, letter_bytes(rows, all));
    KN_TRY(kn_message_sent(m));
    *out = lay_out(room, rows, all);
    return KNNLM_OK;
}

knnlm_status kn_letter_take(kn_message *m, size_t rows, kn_letter *out) {
    size_t all = 0, left = m->size - m->taken, head = padded(rows * sizeof(uint32_t));
    const uint32_t *counts = head <= left ? (const uint32_t *)(const void *)(m->data + m->taken) : NULL;
    for (size_t i = 0; counts && i < rows && all <= left; i++) all += counts[i];
    if (!counts || all > left) m->failed = true; // before it is multiplied
    const uint8_t *data = kn_message_view(m, m->failed ? 0 : letter_bytes(rows, all));
    KN_TRY(kn_message_read(m));
    *out = lay_out(data, rows, all);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- a row

typedef struct handing {
    kn_pieces_work *w;
    uint32_t *kept; // (n): within the limit
    size_t *starts; // (n): place of the first in its letter
    kn_letter letter;
    size_t first; // row of the letter
} handing;

static void count_row(void *context, size_t row, int worker) {
    const handing *h = context;
    const kn_pieces_work *w = h->w;
    size_t pieces = w->q.pieces, k = w->q.o.k;
    uint32_t limit = w->limits[row], kept = 0;
    (void)worker;
    for (size_t p = row * pieces; p < (row + 1) * pieces; p++) {
        const float *distances = w->distances + p * k;
        for (size_t i = 0; i < w->counts[p]; i++) kept += kn_ordered(distances[i]) <= limit;
    }
    h->kept[row] = kept;
}

static uint64_t number_of(const kn_pieces_work *w, size_t piece, uint32_t id) {
    return kn_numbering_of(&w->pieces[piece].numbering, id);
}

// Whether the nearest of a row in piece p is nearer than that in piece q; ties go to the lower number.
static bool is_nearer(const kn_pieces_work *w, size_t row, size_t p, size_t q) {
    size_t at = (row * w->q.pieces + p) * w->q.o.k, other = (row * w->q.pieces + q) * w->q.o.k;
    uint32_t x = kn_ordered(w->distances[at]), y = kn_ordered(w->distances[other]);
    return x != y ? x < y : number_of(w, p, w->ids[at]) < number_of(w, q, w->ids[other]);
}

// The piece that has the row's nearest neighbour, of which there is one.
static size_t nearest_piece(const kn_pieces_work *w, size_t row) {
    size_t best = w->q.pieces;
    for (size_t p = 0; p < w->q.pieces; p++)
        if (w->counts[row * w->q.pieces + p] && (best == w->q.pieces || is_nearer(w, row, p, best))) best = p;
    return best;
}

static void write_one(const handing *h, size_t place, size_t piece, float distance, uint32_t id) {
    h->letter.distances[place] = distance;
    h->letter.values[place] = h->w->pieces[piece].store->values[id];
    h->letter.numbers[place] = number_of(h->w, piece, id);
}

static void write_row(void *context, size_t number, int worker) {
    const handing *h = context;
    const kn_pieces_work *w = h->w;
    size_t row = h->first + number, pieces = w->q.pieces, k = w->q.o.k, place = h->starts[row];
    uint32_t limit = w->limits[row];
    (void)worker;
    h->letter.counts[number] = h->kept[row];
    h->letter.begins[number] = 0;
    if (!h->kept[row]) return;
    size_t nearest = nearest_piece(w, row), first = (row * pieces + nearest) * k;
    const uint64_t *beginnings = w->pieces[nearest].store->beginnings;
    h->letter.begins[number] = beginnings[w->ids[first] / 64] >> w->ids[first] % 64 & 1;
    write_one(h, place++, nearest, w->distances[first], w->ids[first]);
    for (size_t p = 0; p < pieces; p++) {
        size_t from = (row * pieces + p) * k, to = from + w->counts[row * pieces + p];
        for (size_t i = from + (p == nearest); i < to; i++)
            if (kn_ordered(w->distances[i]) <= limit) write_one(h, place++, p, w->distances[i], w->ids[i]);
    }
}

// ---------------------------------------------------------------- all of them

static knnlm_status write_letter(handing *h, size_t rank) {
    const kn_pieces_work *w = h->w;
    size_t rows = (size_t)(w->q.owners[rank + 1] - w->q.owners[rank]), all = 0;
    h->first = (size_t)w->q.owners[rank];
    for (size_t i = h->first; i < h->first + rows; i++) {
        h->starts[i] = all;
        all += h->kept[i];
    }
    kn_message_clear(&w->out[rank]);
    KN_TRY(kn_letter_make(&w->out[rank], rows, all, &h->letter));
    kn_parallel(rows, write_row, h);
    return KNNLM_OK;
}

static knnlm_status write_letters(kn_pieces_work *w) {
    handing h = {.w = w};
    h.starts = kn_room_make(&w->room_kept, w->q.n, sizeof *h.starts + sizeof *h.kept);
    if (!h.starts) return KNNLM_ENOMEM;
    h.kept = (uint32_t *)(h.starts + w->q.n);
    kn_parallel(w->q.n, count_row, &h);
    for (size_t r = 0; r < w->q.ranks; r++)
        if (w->owns[r]) KN_TRY(write_letter(&h, r));
    return KNNLM_OK;
}

knnlm_status kn_pieces_hand_over(kn_pieces_work *w, knnlm_status status) {
    if (status == KNNLM_OK && w->q.pieces) status = write_letters(w);
    return kn_pieces_round(w, KN_TO_OWNERS, false, status);
}
