// A search of a store's shards under way, on one of the ranks. Not a door: only this room includes it.
//
// Rank 0 asks; then the ranks work together, in rounds of messages from all to all (ranks/ranks.h).
//
// 1. Each gets the states of some rows, finds the lists near them, and sends both to all others. (Few rows
// all come with the question.)
//
// 2. Each searches its shards for all rows, for a little more than a shard's share of the k. Of what it found
// it tells a row's owner some distances, e.g. that 100 are within 3.2 and 200 within 3.9; the owner tells all
// a limit that k of all ranks' are within. A shard that may have more within the limit than were looked for
// is searched again, for k.
//
// 3. What is within the limit goes to the row's owner, who has the k nearest of all. In all, little more than
// k are sent, whatever the number of shards.
//
// 4. The owner measures them (or sends them to rank 0, where they are wanted themselves).
//
// Every rank owns as many rows. Few rows are all owned by rank 0, and limits are left out unless there are
// many ranks: one round is sooner than three.
#ifndef KN_KNN_PIECES_PARTS_H
#define KN_KNN_PIECES_PARTS_H

#include "base/convert.h"
#include "knn/datastore_parts.h"
#include "knn/measure.h"
#include "knn/numbering.h"
#include "ranks/ranks.h"

// What a rank is asked.
typedef struct kn_pieces_question {
    uint64_t meeting;
    size_t ranks, n, width;
    kn_retrieve_options o;         // but for exclude and scratch
    bool shared, limited;          // states come from their owners; limits are told
    bool same_lists;               // of all shards
    size_t share;                  // neighbours that a shard is searched for first; k without limits
    const uint64_t *owners;        // (ranks + 1): rows [owners[r], owners[r + 1]) are rank r's
    const uint64_t *searchers;     // (ranks): whether it has shards
    size_t pieces;                 // shards of this rank
    const uint64_t *handles;       // (pieces)
    const kn_entry_range *exclude; // (pieces, n, excludes)
    kn_measuring what;             // of its own rows; no measures: neighbours are wanted
    const float *states;           // (rows, width): of its own rows where they are shared, else of all
} kn_pieces_question;

// To `rank`: of `what` and `states`, which are of all rows, its own go there.
void kn_pieces_put_question(kn_message *in, const kn_pieces_question *q, size_t rank);
// What it tells of lies in the message.
knnlm_status kn_pieces_take_question(kn_message *in, size_t rank, kn_pieces_question *q);

// Memory that searches use again: the system would have to clear it every time.
typedef struct kn_room {
    void *memory;
    size_t bytes;
} kn_room;
// `count` elements of `size` bytes, of any content; NULL: there is no memory.
void *kn_room_make(kn_room *room, size_t count, size_t size);

// A shard that a rank has open.
typedef struct kn_open_piece {
    kn_datastore *store; // NULL: closed
    kn_numbering numbering;
} kn_open_piece;
// KNNLM_EINVAL: there is none.
knnlm_status kn_open_piece_find(uint64_t handle, kn_open_piece *out);

// Rounds go two ways.
typedef enum kn_pieces_way { KN_TO_SEARCHERS, KN_TO_OWNERS } kn_pieces_way;

// Frees the memory that searches use again.
void kn_pieces_forget(void);

// What a shard has for a row: the nearest first, the others in any order.
typedef struct kn_found_row {
    float *distances;
    uint32_t *ids;
    uint32_t count;
} kn_found_row;

// A search by one rank. It is used again, for the sake of its memory.
typedef struct kn_pieces_work {
    kn_pieces_question q;
    const kn_progress *progress;
    size_t self, own, first;      // rows that this rank owns, and the first of them
    uint64_t sent;                // bytes to other ranks
    bool *owns, *searches, *none; // (ranks): which own rows, which have shards; and no rank at all
    kn_open_piece *pieces;        // (q.pieces)
    kn_found_row *found;          // (n, pieces)
    uint32_t *lists;              // (n, probes): near each row; NULL: each shard finds its own
    uint32_t probes;
    uint32_t *kept;             // (n): how many of what was found here are within the limit
    uint32_t *limits;           // (n): what is sent is within them, as kn_ordered() of distances
    kn_message *out, *in;       // (ranks)
    const kn_message **sent_to; // (ranks)
    size_t room_ranks, room_pieces;
    kn_search_scratch scratch;
    kn_room room_states, room_found, room_first, room_again, room_limits, room_kept, room_scratch;
} kn_pieces_work;

// A number that sorts as distances do.
static inline uint32_t kn_ordered(float distance) {
    uint32_t bits = kn_f32_bits(distance);
    return bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
}

// Neighbours of some rows as they lie in a message: of each row how many (4 bytes), and whether the nearest
// begins a document (1); then of all neighbours, row by row, distances (4), values (4) and numbers among all
// (8). The nearest of a row comes first.
typedef struct kn_letter {
    size_t rows;
    uint32_t *counts;
    uint8_t *begins;
    float *distances;
    int32_t *values;
    uint64_t *numbers;
} kn_letter;
// Room for them at the end of a message: one with `all` neighbours of `rows` rows.
knnlm_status kn_letter_make(kn_message *m, size_t rows, size_t all, kn_letter *out);
knnlm_status kn_letter_take(kn_message *m, size_t rows, kn_letter *out);

// One round: w->out[r] to rank r, or (`same`) w->out[0] to all. `status` as of kn_ranks_exchange.
knnlm_status kn_pieces_round(kn_pieces_work *w, kn_pieces_way way, bool same, knnlm_status status);
// The steps, in this order.
knnlm_status kn_pieces_share(kn_pieces_work *w);
knnlm_status kn_pieces_find(kn_pieces_work *w);
knnlm_status kn_pieces_limit(kn_pieces_work *w, knnlm_status status); // `status` of what was before it
knnlm_status kn_pieces_find_again(kn_pieces_work *w);
knnlm_status kn_pieces_hand_over(kn_pieces_work *w, knnlm_status status);
// Puts facts or neighbours of the rows that are owned.
knnlm_status kn_pieces_merge(kn_pieces_work *w, kn_message *out);

#endif
