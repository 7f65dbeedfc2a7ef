// What ranks are asked when shards are searched.
#include "knn/pieces_parts.h"

#include <math.h>

enum { CODES = 1, SINGLY = 2, SHARED = 4, LIMITED = 8, SAME_LISTS = 16 };

static uint64_t flags_of(const kn_pieces_question *q) {
    return (uint64_t)(q->o.codes ? CODES : 0) | (q->o.singly ? SINGLY : 0) | (q->shared ? SHARED : 0) |
           (q->limited ? LIMITED : 0) | (q->same_lists ? SAME_LISTS : 0);
}

static size_t ranges_of(const kn_pieces_question *q) {
    return q->exclude ? q->pieces * q->n * q->o.excludes : 0;
}

// Rows [first, first + own).
static void put_measures(kn_message *in, const kn_measuring *what, size_t first, size_t own) {
    kn_message_put_number(in, what->count);
    if (!what->count) return;
    kn_message_put_padded(in, what->measures, what->count * sizeof *what->measures);
    kn_message_put_padded(in, what->which + first, own * sizeof *what->which);
    kn_message_put_padded(in, what->targets + first, own * sizeof *what->targets);
}

void kn_pieces_put_question(kn_message *in, const kn_pieces_question *q, size_t rank) {
    size_t first = (size_t)q->owners[rank], own = (size_t)q->owners[rank + 1] - first;
    size_t from = q->shared ? first : 0, rows = q->shared ? own : q->n;
    kn_message_put_number(in, q->meeting);
    kn_message_put_number(in, q->ranks);
    kn_message_put_number(in, q->n);
    kn_message_put_number(in, q->width);
    kn_message_put_number(in, q->o.k);
    kn_message_put_number(in, q->share);
    kn_message_put_number(in, q->o.probes);
    kn_message_put_number(in, flags_of(q));
    kn_message_put_number(in, q->o.memory);
    kn_message_put_real(in, q->o.temperature);
    kn_message_put_padded(in, q->owners, (q->ranks + 1) * sizeof *q->owners);
    kn_message_put_padded(in, q->searchers, q->ranks * sizeof *q->searchers);
    kn_message_put_number(in, q->pieces);
    kn_message_put_padded(in, q->handles, q->pieces * sizeof *q->handles);
    kn_message_put_number(in, q->exclude ? q->o.excludes : 0);
    kn_message_put_padded(in, q->exclude, ranges_of(q) * sizeof *q->exclude);
    put_measures(in, &q->what, first, own);
    kn_message_put_padded(in, q->states + from * q->width, rows * q->width * sizeof *q->states);
}

// ---------------------------------------------------------------- there

static void take_options(kn_message *in, kn_pieces_question *q) {
    q->o.k = (size_t)kn_message_take_number(in);
    q->share = (size_t)kn_message_take_number(in);
    q->o.probes = (uint32_t)kn_message_take_number(in);
    uint64_t flags = kn_message_take_number(in);
    q->o.codes = flags & CODES;
    q->o.singly = flags & SINGLY;
    q->shared = flags & SHARED;
    q->limited = flags & LIMITED;
    q->same_lists = flags & SAME_LISTS;
    q->o.memory = kn_message_take_number(in);
    q->o.temperature = kn_message_take_real(in);
}

static const void *view(kn_message *in, size_t count, size_t each, size_t size) {
    size_t cells = 0, bytes = 0;
    if (!kn_mul(count, each, &cells) || !kn_mul(cells, size, &bytes)) in->failed = true;
    return kn_message_view_padded(in, in->failed ? 0 : bytes);
}

static void take_measures(kn_message *in, kn_measuring *what, size_t own) {
    what->count = (size_t)kn_message_take_number(in);
    if (!what->count) return;
    what->measures = view(in, what->count, 1, sizeof *what->measures);
    what->which = view(in, own, 1, sizeof *what->which);
    what->targets = view(in, own, 1, sizeof *what->targets);
}

knnlm_status kn_pieces_take_question(kn_message *in, size_t rank, kn_pieces_question *q) {
    *q = (kn_pieces_question){.meeting = kn_message_take_number(in)};
    q->ranks = (size_t)kn_message_take_number(in);
    q->n = (size_t)kn_message_take_number(in);
    q->width = (size_t)kn_message_take_number(in);
    take_options(in, q);
    q->owners = view(in, q->ranks + 1, 1, sizeof *q->owners);
    q->searchers = view(in, q->ranks, 1, sizeof *q->searchers);
    q->pieces = (size_t)kn_message_take_number(in);
    q->handles = view(in, q->pieces, 1, sizeof *q->handles);
    q->o.excludes = (size_t)kn_message_take_number(in);
    if (q->o.excludes) q->exclude = view(in, q->pieces * q->n, q->o.excludes, sizeof *q->exclude);
    if (rank >= q->ranks) in->failed = true;
    KN_TRY(kn_message_read(in));
    size_t own = (size_t)(q->owners[rank + 1] - q->owners[rank]);
    take_measures(in, &q->what, own);
    q->states = view(in, q->shared ? own : q->n, q->width, sizeof *q->states);
    return kn_message_read(in);
}
