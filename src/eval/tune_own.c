// Tokens to tune on from the store itself: pieces of its documents, each searched for without the document it
// is of, or (an echo) with it, as what is asked is often nearly what the store was told.
#include "eval/tune_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    OWN = 8192, // tokens
    OWN_MIN = 512,
    PIECE_MIN = 48,
    PIECES_MAX = 64,
    COPIES = 8,    // of a document that are left out
    AROUND = 1024, // entries left out around a piece of a document that is much of the store
    MUCH = 4,      // a fourth of it or more
};

size_t kn_tune_own_tokens(const kn_lm *lm, const kn_store_info *store) {
    size_t wanted = kn_max((size_t)kn_lm_afford(lm, OWN), OWN_MIN);
    return kn_min(wanted, (size_t)(store->entries - store->removed_entries));
}

// What is read of the store, piece by piece.
typedef struct reading {
    kn_lm *lm;
    kn_tuning *t;
    const kn_datastore *store;
    bool echo;
    int32_t *tokens;
} reading;

// All copies of the document, unless it is much of the store: then what is around the piece.
static knnlm_status leave_out(const reading *r, const kn_store_document *d, uint64_t first, size_t count,
                              kn_entry_range *out, size_t *copies) {
    uint64_t entries = kn_datastore_describe(r->store)->store->entries;
    *copies = 0;
    if (r->echo) return KNNLM_OK;
    if (d->count < entries / MUCH) {
        KN_TRY(kn_datastore_find_content(r->store, d->hash, COPIES, out, copies));
        *copies = kn_min(*copies, COPIES);
        if (*copies) return KNNLM_OK;
    }
    bool much = d->count >= entries / MUCH;
    uint64_t around = much ? kn_min(AROUND, (size_t)(d->count / 8)) : d->count;
    uint64_t end = d->first + d->count;
    *out = (kn_entry_range){first > d->first + around ? first - around : d->first,
                            first + count + around < end ? first + count + around : end};
    *copies = 1;
    return KNNLM_OK;
}

static knnlm_status read_piece(const reading *r, uint64_t entry, size_t max) {
    kn_entry_range out[COPIES];
    kn_store_entry e;
    kn_store_document d;
    size_t copies;
    KN_TRY(kn_datastore_entry(r->store, entry, &e));
    if (e.removed) return KNNLM_OK;
    KN_TRY(kn_datastore_document(r->store, e.document, &d));
    // A short document is read whole, a long one from here on.
    uint64_t position = d.count <= max ? 0 : kn_min((size_t)e.position, (size_t)(d.count - max));
    size_t count = kn_min(max, (size_t)(d.count - position));
    for (size_t i = 0; i < count; i++) {
        KN_TRY(kn_datastore_entry(r->store, d.first + position + i, &e));
        r->tokens[i] = e.token;
    }
    KN_TRY(leave_out(r, &d, d.first + position, count, out, &copies));
    kn_pass_options pass = {
        .read = {.context = -1}, .entropies = true, .neighbors_alone = true, .own = out, .own_count = copies};
    return kn_pass_tokens(r->lm, r->t->mixture, r->tokens, count, &pass, kn_tuning_take, r->t);
}

knnlm_status kn_tune_pieces(kn_lm *lm, size_t tokens, bool echo, kn_tuning *t) {
    const kn_datastore *store = kn_mixture_datastore(t->mixture, 0);
    uint64_t entries = kn_datastore_describe(store)->store->entries;
    size_t pieces = kn_max(1, kn_min(PIECES_MAX, tokens / PIECE_MIN)), each = (tokens + pieces - 1) / pieces;
    t->capacity = pieces * each;
    KN_TRY(kn_tuning_room(t));
    reading r = {lm, t, store, echo, kn_alloc(each, sizeof(int32_t))};
    knnlm_status status = r.tokens ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < pieces && status == KNNLM_OK; i++) {
        if (!kn_progress_report(t->progress, "tuning", i, pieces, "pieces"))
            status = kn_fail(KNNLM_ESTOPPED,
                             "stopped while tuning: the store is whole; `knnlm_tune` goes on from here");
        else
            status =
                read_piece(&r, (uint64_t)((unsigned __int128)(2 * i + 1) * entries / (2 * pieces)), each);
    }
    free(r.tokens);
    return status;
}
