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

// Pieces of the store's documents, to be read together.
typedef struct gathering {
    const kn_datastore *store;
    bool echo;
    size_t each;         // tokens of a piece, at most
    int32_t *tokens;     // (pieces, each)
    kn_entry_range *own; // (pieces, COPIES)
    kn_pass_text *texts; // (pieces)
    size_t count;
} gathering;

// All copies of the document, unless it is much of the store: then what is around the piece.
static knnlm_status leave_out(const gathering *g, const kn_store_document *d, uint64_t first, size_t count,
                              kn_entry_range *out, size_t *copies) {
    uint64_t entries = kn_datastore_describe(g->store)->store->entries;
    *copies = 0;
    if (g->echo) return KNNLM_OK;
    if (d->count < entries / MUCH) {
        KN_TRY(kn_datastore_find_content(g->store, d->hash, COPIES, out, copies));
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

static knnlm_status gather_piece(gathering *g, uint64_t entry) {
    int32_t *tokens = g->tokens + g->count * g->each;
    kn_entry_range *own = g->own + g->count * COPIES;
    kn_store_entry e;
    kn_store_document d;
    size_t copies;
    KN_TRY(kn_datastore_entry(g->store, entry, &e));
    if (e.removed) return KNNLM_OK;
    KN_TRY(kn_datastore_document(g->store, e.document, &d));
    // A short document is read whole, a long one from here on.
    uint64_t position = d.count <= g->each ? 0 : kn_min((size_t)e.position, (size_t)(d.count - g->each));
    size_t count = kn_min(g->each, (size_t)(d.count - position));
    KN_TRY(kn_datastore_tokens(g->store, d.first + position, count, tokens));
    KN_TRY(leave_out(g, &d, d.first + position, count, own, &copies));
    g->texts[g->count++] = (kn_pass_text){{tokens, count}, own, copies};
    return KNNLM_OK;
}

static bool tell_tuning(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    (void)phase;
    (void)unit;
    return kn_progress_report(context, "tuning", done, total, "tokens");
}

static knnlm_status read_pieces(kn_lm *lm, const gathering *g, kn_tuning *t) {
    kn_pass_options pass = {.read = {.context = -1}, .entropies = true, .neighbors_alone = true};
    kn_progress progress = {tell_tuning, (void *)(uintptr_t)t->progress};
    knnlm_status status =
        kn_pass_many(lm, t->mixture, g->texts, g->count, &pass, &progress, kn_tuning_take, t);
    return status == KNNLM_ESTOPPED
               ? kn_fail(KNNLM_ESTOPPED,
                         "stopped while tuning: the store is whole; `knnlm_tune` goes on from here")
               : status;
}

knnlm_status kn_tune_pieces(kn_lm *lm, size_t tokens, bool echo, kn_tuning *t) {
    const kn_datastore *store = kn_mixture_datastore(t->mixture, 0);
    uint64_t entries = kn_datastore_describe(store)->store->entries;
    size_t pieces = kn_max(1, kn_min(PIECES_MAX, tokens / PIECE_MIN)), each = (tokens + pieces - 1) / pieces;
    gathering g = {.store = store, .echo = echo, .each = each};
    t->capacity = pieces * each;
    KN_TRY(kn_tuning_room(t));
    g.tokens = kn_alloc(pieces * each, sizeof *g.tokens);
    g.own = kn_alloc(pieces * COPIES, sizeof *g.own);
    g.texts = kn_alloc(pieces, sizeof *g.texts);
    knnlm_status status = g.tokens && g.own && g.texts ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < pieces && status == KNNLM_OK; i++)
        status = gather_piece(&g, (uint64_t)((unsigned __int128)(2 * i + 1) * entries / (2 * pieces)));
    if (status == KNNLM_OK && g.count) status = read_pieces(lm, &g, t);
    free(g.tokens);
    free(g.own);
    free(g.texts);
    return status;
}
