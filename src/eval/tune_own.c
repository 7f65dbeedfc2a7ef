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
    COPIES = 64,   // a document that is there more often is passed over: each token would carry all of them
    AROUND = 1024, // entries left out around a piece, in each copy, where copies are much of the store
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
    kn_pass_text *texts; // (pieces)
    size_t count;
} gathering;

// Copies of the document, itself among them; *copies above COPIES: too many. Released with free().
static knnlm_status find_copies(const gathering *g, const kn_store_document *d, kn_entry_range **out,
                                size_t *copies) {
    kn_entry_range *own = kn_alloc(COPIES, sizeof *own);
    *out = own;
    if (!own) return KNNLM_ENOMEM;
    KN_TRY(kn_datastore_find_content(g->store, d->hash, COPIES, own, copies));
    if (*copies) return KNNLM_OK;
    own[0] = (kn_entry_range){d->first, d->first + d->count};
    *copies = 1;
    return KNNLM_OK;
}

// Of each copy what is around the piece of `count` tokens at `position`.
static void leave_around(kn_entry_range *own, size_t copies, uint64_t position, size_t count) {
    for (size_t i = 0; i < copies; i++) {
        uint64_t size = own[i].end - own[i].first, around = kn_min(AROUND, (size_t)(size / 8));
        uint64_t from = position > around ? position - around : 0, to = position + count + around;
        own[i].end = own[i].first + kn_min((size_t)to, (size_t)size);
        own[i].first += kn_min((size_t)from, (size_t)size);
    }
}

// All copies of the document, unless they are much of the store: then what is around the piece.
static knnlm_status leave_out(const gathering *g, const kn_store_document *d, uint64_t position,
                              kn_pass_text *text) {
    uint64_t entries = kn_datastore_describe(g->store)->store->entries;
    kn_entry_range *own;
    text->own_count = 0;
    if (g->echo) return KNNLM_OK;
    knnlm_status status = find_copies(g, d, &own, &text->own_count);
    text->own = own;
    if (status == KNNLM_OK && text->own_count <= COPIES && text->own_count * d->count >= entries / MUCH)
        leave_around(own, text->own_count, position, text->text.count);
    return status;
}

static knnlm_status gather_piece(gathering *g, uint64_t entry) {
    int32_t *tokens = g->tokens + g->count * g->each;
    kn_pass_text *text = &g->texts[g->count];
    kn_store_entry e;
    kn_store_document d;
    KN_TRY(kn_datastore_entry(g->store, entry, &e));
    if (e.removed) return KNNLM_OK;
    KN_TRY(kn_datastore_document(g->store, e.document, &d));
    // A short document is read whole, a long one from here on.
    uint64_t position = d.count <= g->each ? 0 : kn_min((size_t)e.position, (size_t)(d.count - g->each));
    size_t count = kn_min(g->each, (size_t)(d.count - position));
    KN_TRY(kn_datastore_tokens(g->store, d.first + position, count, tokens));
    *text = (kn_pass_text){.text = {tokens, count}};
    knnlm_status status = leave_out(g, &d, position, text);
    if (status == KNNLM_OK && text->own_count <= COPIES) {
        g->count++;
        return KNNLM_OK;
    }
    free((void *)(uintptr_t)text->own);
    return status;
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
    g.texts = kn_alloc(pieces, sizeof *g.texts);
    knnlm_status status = g.tokens && g.texts ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < pieces && status == KNNLM_OK; i++)
        status = gather_piece(&g, (uint64_t)((unsigned __int128)(2 * i + 1) * entries / (2 * pieces)));
    if (status == KNNLM_OK && g.count) status = read_pieces(lm, &g, t);
    for (size_t i = 0; i < g.count; i++) free((void *)(uintptr_t)g.texts[i].own);
    free(g.tokens);
    free(g.texts);
    return status;
}
