// Reads texts as streams by many ranks: each takes a part of them, from one end to the other.
//
// A part that begins within a text reads what its numbers depend on once more (kn_lm_info's reach, in whole
// windows of a stream), so that nothing is handed from one rank to another: a call stands by itself.
#include "lm/shared.h"

#include "lm/engine.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8192 }; // that are run between two looks at the progress

static size_t stream_of(const kn_lm *lm) {
    return (size_t)lm->info.stream;
}

// Tokens before `from` that are read again.
static size_t again(const kn_lm *lm, size_t from) {
    size_t stream = stream_of(lm), reach = ((size_t)lm->info.reach + stream - 1) / stream * stream;
    return kn_min(from, reach);
}

size_t kn_lm_readers(const kn_lm *lm) {
    return kn_rank() == 0 && !lm->alone ? (size_t)kn_rank_count() : 1;
}

// ---------------------------------------------------------------- dealing

// A place in the pieces: position `at` of a piece; behind the last piece: the end.
typedef struct place {
    size_t piece, at;
} place;

static place beginning(const kn_stream_piece *pieces, size_t count, size_t piece) {
    return (place){piece, piece < count ? pieces[piece].from : 0};
}

// Where a rank that begins at `from` ends: it takes windows while they fit into `room` tokens. The rest of a
// text is left to the next rank where reading its beginning again would cost that one more than is gained.
static place take_part(const kn_lm *lm, const kn_stream_piece *pieces, size_t count, place from,
                       size_t room) {
    while (from.piece < count) {
        size_t left = pieces[from.piece].to - from.at, warm = again(lm, from.at);
        size_t fits = room > warm ? room - warm : 0, taken = fits / stream_of(lm) * stream_of(lm);
        if (left > fits) {
            if (taken > again(lm, from.at + taken)) from.at += taken;
            break;
        }
        room -= warm + left;
        from = beginning(pieces, count, from.piece + 1);
    }
    return from;
}

// Whether so much room for each rank is enough; `ends` (ranks).
static bool try_room(const kn_lm *lm, const kn_stream_piece *pieces, size_t count, size_t room, size_t ranks,
                     place *ends) {
    place at = beginning(pieces, count, 0);
    for (size_t r = 0; r < ranks; r++) at = ends[r] = take_part(lm, pieces, count, at, room);
    return at.piece == count;
}

// The parts are such that the longest is as short as can be.
static void deal(const kn_lm *lm, const kn_stream_piece *pieces, size_t count, size_t ranks, place *ends) {
    size_t low = 0, high = 0; // too little, and enough
    for (size_t i = 0; i < count; i++) high += again(lm, pieces[i].from) + pieces[i].to - pieces[i].from;
    while (high - low > 1) {
        size_t room = low + (high - low) / 2;
        if (try_room(lm, pieces, count, room, ranks, ends))
            high = room;
        else
            low = room;
    }
    try_room(lm, pieces, count, high, ranks, ends);
}

// ---------------------------------------------------------------- sending

// Piece i as far as it is in the part of the rank that reads from one place to another.
static kn_stream_piece within(const kn_stream_piece *pieces, size_t i, place from, place to) {
    kn_stream_piece p = pieces[i];
    if (i == from.piece) p.from = from.at;
    if (i == to.piece) p.to = to.at;
    return p;
}

static size_t put_pieces(kn_message *m, const kn_lm *lm, const kn_stream_piece *pieces, size_t count,
                         place from, place to) {
    size_t rows = 0;
    for (size_t i = from.piece; i < count && i <= to.piece; i++) {
        kn_stream_piece p = within(pieces, i, from, to);
        if (p.from >= p.to) continue;
        size_t start = p.from - again(lm, p.from);
        kn_message_put_number(m, start);
        kn_message_put_number(m, p.from);
        kn_message_put_number(m, p.to);
        kn_message_put_number(m, p.targets != NULL);
        kn_message_put_bytes(m, (const char *)(p.inputs + start), (p.to - start) * sizeof *p.inputs);
        if (p.targets)
            kn_message_put_bytes(m, (const char *)(p.targets + start), (p.to - start) * sizeof *p.targets);
        rows += p.to - p.from;
    }
    return rows;
}

static knnlm_status call_all(kn_lm *lm, const kn_stream_piece *pieces, size_t count, const place *ends,
                             kn_tap tap, const kn_lm_output *out, const kn_progress *progress, kn_call *calls,
                             size_t *rows) {
    size_t ranks = kn_lm_readers(lm), made = 0;
    kn_lm_output at = *out;
    for (size_t r = 0; r < ranks; r++) {
        place from = r ? ends[r - 1] : beginning(pieces, count, 0);
        calls[made] = (kn_call){.rank = (int)r, .service = &kn_service_lm_stream};
        kn_lm_put_run(&calls[made].in, lm, tap, out);
        rows[made] = put_pieces(&calls[made].in, lm, pieces, count, from, ends[r]);
        if (rows[made])
            made++;
        else
            kn_calls_free(&calls[made], 1);
    }
    knnlm_status status = kn_ranks_call(calls, made, progress);
    for (size_t i = 0; i < made && status == KNNLM_OK; i++)
        status = kn_lm_take_results(&calls[i].out, lm, &at, rows[i]);
    kn_calls_free(calls, made);
    return status;
}

knnlm_status kn_lm_deal_pieces(kn_lm *lm, const kn_stream_piece *pieces, size_t count, kn_tap tap,
                               const kn_lm_output *out, const kn_progress *progress) {
    size_t ranks = kn_lm_readers(lm), *rows = kn_alloc(ranks, sizeof *rows);
    place *ends = kn_alloc(ranks, sizeof *ends);
    kn_call *calls = kn_alloc(ranks, sizeof *calls);
    knnlm_status status = rows && ends && calls ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        deal(lm, pieces, count, ranks, ends);
        status = call_all(lm, pieces, count, ends, tap, out, progress, calls, rows);
    }
    free(calls);
    free(ends);
    free(rows);
    return status;
}

// ---------------------------------------------------------------- a part

// Windows of the pieces that a rank was told of.
typedef struct reading {
    kn_lm *lm;
    kn_window *windows;
    size_t count, capacity;
    kn_past **pasts;
    size_t past_count, past_capacity;
    size_t rows;
} reading;

static void reading_free(reading *r) {
    for (size_t i = 0; i < r->past_count; i++) kn_past_close(r->pasts[i]);
    free(r->pasts);
    free(r->windows);
}

// A text of one window stands alone, as it does where it is read by one process.
static knnlm_status add_piece(reading *r, const int32_t *inputs, const int32_t *targets, size_t start,
                              size_t from, size_t to) {
    size_t stream = stream_of(r->lm);
    kn_past *past = NULL;
    if (to > stream) {
        KN_TRY(kn_grow(&r->pasts, &r->past_capacity, r->past_count + 1, sizeof *r->pasts));
        KN_TRY(kn_past_open_at(r->lm, start, &past));
        r->pasts[r->past_count++] = past;
    }
    for (size_t at = start; at < to; at += stream) {
        int32_t length = (int32_t)kn_min(stream, to - at);
        KN_TRY(kn_grow(&r->windows, &r->capacity, r->count + 1, sizeof *r->windows));
        r->windows[r->count++] = (kn_window){inputs + (at - start), targets ? targets + (at - start) : NULL,
                                             length, at < from ? length : 0, past};
    }
    r->rows += to - from;
    return KNNLM_OK;
}

static knnlm_status take_pieces(kn_message *in, reading *r) {
    while (in->taken < in->size) {
        size_t start = (size_t)kn_message_take_number(in), from = (size_t)kn_message_take_number(in),
               to = (size_t)kn_message_take_number(in), size;
        bool targeted = kn_message_take_number(in);
        const char *inputs = kn_message_take_bytes(in, &size);
        const char *targets = targeted ? kn_message_take_bytes(in, &size) : NULL;
        KN_TRY(kn_message_read(in));
        KN_TRY(add_piece(r, (const int32_t *)(const void *)inputs, (const int32_t *)(const void *)targets,
                         start, from, to));
    }
    return KNNLM_OK;
}

// Some windows at a time, so that whoever waits hears of it.
static knnlm_status run_windows(const reading *r, kn_tap tap, kn_lm_output out, const kn_progress *progress) {
    size_t tokens = 0, done = 0;
    for (size_t i = 0; i < r->count; i++) tokens += (size_t)r->windows[i].length;
    for (size_t i = 0, n; i < r->count; i += n) {
        size_t now = 0, rows = 0;
        for (n = 0; i + n < r->count && now < TOKENS; n++) {
            now += (size_t)r->windows[i + n].length;
            rows += (size_t)(r->windows[i + n].length - r->windows[i + n].first);
        }
        KN_TRY(r->lm->engine->run(r->lm, r->windows + i, n, tap, &out));
        kn_lm_output_advance(r->lm, &out, rows);
        done += now;
        if (!kn_progress_report(progress, "reading", done, tokens, "tokens"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while reading");
    }
    return KNNLM_OK;
}

static knnlm_status run_stream(kn_message *in, kn_message *out, const kn_progress *progress) {
    reading r = {0};
    kn_tap tap;
    uint64_t wanted;
    kn_lm_output results = {0};
    KN_TRY(kn_lm_take_run(in, &r.lm, &tap, &wanted));
    knnlm_status status = take_pieces(in, &r);
    if (status == KNNLM_OK) status = kn_lm_make_results(out, r.lm, wanted, r.rows, &results);
    if (status == KNNLM_OK) status = run_windows(&r, tap, results, progress);
    reading_free(&r);
    return status;
}
const kn_service kn_service_lm_stream = {"model stream", run_stream};
