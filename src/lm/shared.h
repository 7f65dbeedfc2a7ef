// Models on many ranks: each has the same one open, and rank 0 deals its windows out.
#ifndef KN_LM_SHARED_H
#define KN_LM_SHARED_H

#include "lm/lm.h"
#include "ranks/ranks.h"

// Has every other rank open the model too. KNNLM_EINVAL: it is another one there.
knnlm_status kn_lm_share(kn_lm *lm, const kn_lm_options *options);
void kn_lm_unshare(kn_lm *lm);
// What ranks call a model by, and the model of that name here; NULL: none.
uint64_t kn_lm_key(const kn_lm *lm);
kn_lm *kn_lm_find(uint64_t key);

// Whether the windows are worth dealing out: several, each by itself.
bool kn_lm_is_dealt(const kn_lm *lm, const kn_window *windows, size_t count);
// The same as kn_lm_run, by all ranks. Each window has the numbers that it would have here.
knnlm_status kn_lm_deal(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                        const kn_lm_output *out);
// Ranks that read texts for this one, itself included; 1: it reads alone.
size_t kn_lm_readers(const kn_lm *lm);
// Positions [from, to) of a text that is read as a stream: `inputs` and `targets` (NULL: no log-probability
// is wanted) are those of the whole text. `from` is a multiple of the model's `stream`.
typedef struct kn_stream_piece {
    const int32_t *inputs, *targets;
    size_t from, to;
} kn_stream_piece;
// Rows of all pieces, one after another, by all ranks: the same numbers as one rank has that reads the texts
// from their beginnings. `progress` is told tokens. As kn_lm_run fails; KNNLM_ESTOPPED.
knnlm_status kn_lm_read_pieces(kn_lm *lm, const kn_stream_piece *pieces, size_t count, kn_tap tap,
                               const kn_lm_output *out, const kn_progress *progress);
// The same without checks.
knnlm_status kn_lm_deal_pieces(kn_lm *lm, const kn_stream_piece *pieces, size_t count, kn_tap tap,
                               const kn_lm_output *out, const kn_progress *progress);
// From now on its windows are run here: other ranks have work of their own.
void kn_lm_set_alone(kn_lm *lm, bool alone);

extern const kn_service kn_service_lm_open, kn_service_lm_close, kn_service_lm_run, kn_service_lm_stream;

// ---------------------------------------------------------------- of this room alone

// The head of a call that runs the model: which, its tap, and which results are wanted (as bits).
void kn_lm_put_run(kn_message *m, const kn_lm *lm, kn_tap tap, const kn_lm_output *out);
knnlm_status kn_lm_take_run(kn_message *m, kn_lm **lm, kn_tap *tap, uint64_t *wanted);
// Room for results where they lie in the answer; and from there to *out, which moves on by `rows`.
knnlm_status kn_lm_make_results(kn_message *m, const kn_lm *lm, uint64_t wanted, size_t rows,
                                kn_lm_output *out);
knnlm_status kn_lm_take_results(kn_message *m, const kn_lm *lm, kn_lm_output *out, size_t rows);

#endif
