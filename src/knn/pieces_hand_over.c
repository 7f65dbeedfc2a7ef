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
    size_t *starts; // (n): place of the first in its letter
    kn_letter letter;
    size_t first; // row of the letter
} handing;

static void count_row(void *context, size_t row, int worker) {
    const handing *h = context;
    const kn_pieces_work *w = h->w;
    const kn_found_row *found = w->found + row * w->q.pieces;
    uint32_t limit = w->limits[row], kept = 0;
    (void)worker;
    for (size_t p = 0; p < w->q.pieces; p++)
        for (size_t i = 0; i < found[p].count; i++) kept += kn_ordered(found[p].distances[i]) <= limit;
    w->kept[row] = kept;
}

static uint64_t number_of(const kn_pieces_work *w, size_t piece, uint32_t id) {
    return kn_numbering_of(&w->pieces[piece].numbering, id);
}

// Whether the nearest of a row in piece p is nearer than that in piece q; ties go to the lower number.
static bool is_nearer(const kn_pieces_work *w, const kn_found_row *found, size_t p, size_t q) {
    uint32_t x = kn_ordered(found[p].distances[0]), y = kn_ordered(found[q].distances[0]);
    return x != y ? x < y : number_of(w, p, found[p].ids[0]) < number_of(w, q, found[q].ids[0]);
}

// The piece that has the row's nearest neighbour, of which there is one.
static size_t nearest_piece(const kn_pieces_work *w, const kn_found_row *found) {
    size_t best = w->q.pieces;
    for (size_t p = 0; p < w->q.pieces; p++)
        if (found[p].count && (best == w->q.pieces || is_nearer(w, found, p, best))) best = p;
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
    size_t row = h->first + number, place = h->starts[row];
    const kn_found_row *found = w->found + row * w->q.pieces;
    uint32_t limit = w->limits[row];
    (void)worker;
    h->letter.counts[number] = w->kept[row];
    h->letter.begins[number] = 0;
    if (!w->kept[row]) return;
    size_t nearest = nearest_piece(w, found);
    uint32_t id = found[nearest].ids[0];
    h->letter.begins[number] = w->pieces[nearest].store->beginnings[id / 64] >> id % 64 & 1;
    write_one(h, place++, nearest, found[nearest].distances[0], id);
    for (size_t p = 0; p < w->q.pieces; p++)
        for (size_t i = p == nearest; i < found[p].count; i++)
            if (kn_ordered(found[p].distances[i]) <= limit)
                write_one(h, place++, p, found[p].distances[i], found[p].ids[i]);
}

// ---------------------------------------------------------------- all of them

static knnlm_status write_letter(handing *h, size_t rank) {
    const kn_pieces_work *w = h->w;
    size_t rows = (size_t)(w->q.owners[rank + 1] - w->q.owners[rank]), all = 0;
    h->first = (size_t)w->q.owners[rank];
    for (size_t i = h->first; i < h->first + rows; i++) {
        h->starts[i] = all;
        all += w->kept[i];
    }
    kn_message_clear(&w->out[rank]);
    KN_TRY(kn_letter_make(&w->out[rank], rows, all, &h->letter));
    kn_parallel(rows, write_row, h);
    return KNNLM_OK;
}

static knnlm_status write_letters(kn_pieces_work *w) {
    handing h = {.w = w};
    h.starts = kn_room_make(&w->room_kept, w->q.n, sizeof *h.starts + sizeof *w->kept);
    if (!h.starts) return KNNLM_ENOMEM;
    w->kept = (uint32_t *)(h.starts + w->q.n);
    kn_parallel(w->q.n, count_row, &h);
    for (size_t r = 0; r < w->q.ranks; r++)
        if (w->owns[r] && r != w->self) KN_TRY(write_letter(&h, r));
    return KNNLM_OK;
}

knnlm_status kn_pieces_hand_over(kn_pieces_work *w, knnlm_status status) {
    if (status == KNNLM_OK && w->q.pieces) status = write_letters(w);
    return kn_pieces_round(w, KN_TO_OWNERS, false, status);
}
