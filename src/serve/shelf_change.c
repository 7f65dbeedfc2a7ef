#include "serve/json.h"
#include "serve/shelf_parts.h"

#include "build/build.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tokens that a document gives the model at a time, before others have it: a fraction of a second.
enum { GATHER = 512 };

typedef struct change {
    kn_shelf *s;
    kn_book *b;
    bool (*go_on)(void *);
    void *context;
} change;

// Called between two batches: whoever waits for the model has it first.
static bool let_others(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const change *x = context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    kn_turn_give(x->s->turn);
    kn_turn_take(x->s->turn);
    return !x->go_on || x->go_on(x->context);
}

// One change at a time; who waits for his turn may leave.
static bool lock_writing(kn_shelf *s, bool (*go_on)(void *), void *context) {
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_mutex_timedlock(&s->writing, &until) == 0) return true;
        if (!go_on(context)) return false;
    }
}

static kn_book *begin(kn_shelf *s, const char *store, bool (*go_on)(void *), void *context, kn_complaint *c) {
    kn_book *b = kn_shelf_find(s, store, c);
    if (b && !s->writable) {
        kn_complain(c, 403, "read_only", NULL, "stores are served read-only");
        return NULL;
    }
    if (!b || lock_writing(s, go_on, context)) return b;
    kn_complain(c, 504, "timeout", NULL, "the store was being changed by others: nothing has changed");
    return NULL;
}

static void end(kn_shelf *s) {
    pthread_mutex_unlock(&s->writing);
}

static void complain(kn_complaint *c, knnlm_status status) {
    const char *message = knnlm_message();
    if (status == KNNLM_EBUSY)
        kn_complain(c, 409, "conflict", NULL, "%s", message);
    else if (status == KNNLM_ESTOPPED)
        kn_complain(c, 504, "timeout", NULL, "the document was not added in time: nothing has changed");
    else
        kn_complain_status(c, status, message);
}

// ---------------------------------------------------------------- adding

static knnlm_status add(change *x, const kn_document *d, kn_build_result *out) {
    static const kn_recipe as_ever = {.seed = 1};
    kn_progress progress = {let_others, x};
    kn_index_result index;
    bool indexed;
    kn_turn_take(x->s->turn);
    knnlm_status status = kn_build_add_one(x->s->lm, x->b->path, d, GATHER, &progress, out);
    kn_turn_give(x->s->turn);
    if (status != KNNLM_OK || out->documents_added == 0) return status;
    // The document is there: what comes now only makes searches faster, and cannot undo it.
    kn_turn_take(x->s->turn);
    x->go_on = NULL;
    kn_build_index(x->b->path, &as_ever, false, x->s->lm, &progress, &indexed, &index);
    kn_turn_give(x->s->turn);
    return kn_book_publish(x->s, x->b);
}

json_t *kn_shelf_add(kn_shelf *s, const char *store, const char *name, const char *text, size_t size,
                     bool (*go_on)(void *), void *context, bool *created, kn_complaint *c) {
    kn_build_result result = {0};
    kn_document d = {name, name, 0, text, size};
    kn_book *b = begin(s, store, go_on, context, c);
    if (!b) return NULL;
    change x = {s, b, go_on, context};
    knnlm_status status = add(&x, &d, &result);
    if (status != KNNLM_OK) complain(c, status);
    end(s);
    if (status != KNNLM_OK) return NULL;
    *created = result.documents_added > 0;
    return json_pack("{s:o, s:I, s:b}", "name", kn_json_text(name, strlen(name)), "tokens",
                     (json_int_t)result.entries_added, "unchanged", !*created);
}

// ---------------------------------------------------------------- removing

static knnlm_status remove_named(kn_store_writer *w, const char *name, size_t size, uint64_t *removed,
                                 bool *found) {
    const kn_store *base = kn_store_writer_base(w);
    uint64_t documents = kn_store_describe(base)->documents;
    *removed = 0;
    *found = false;
    for (uint64_t i = 0; i < documents; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(base, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: its name is not known
        KN_TRY(status);
        if (d.removed || d.name_size != size || memcmp(d.name, name, size) != 0) continue;
        KN_TRY(kn_store_writer_remove(w, i));
        *removed += d.count;
        *found = true;
    }
    return *found ? kn_store_writer_amend(w) : KNNLM_OK;
}

static knnlm_status remove_from(kn_shelf *s, kn_book *b, const char *name, size_t size, uint64_t *removed,
                                bool *found) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(b->path, &w));
    knnlm_status status = remove_named(w, name, size, removed, found);
    kn_store_writer_close(w);
    return status == KNNLM_OK && *found ? kn_book_publish(s, b) : status;
}

json_t *kn_shelf_remove(kn_shelf *s, const char *store, const char *document, size_t size,
                        bool (*go_on)(void *), void *context, kn_complaint *c) {
    uint64_t removed;
    bool found;
    kn_book *b = begin(s, store, go_on, context, c);
    if (!b) return NULL;
    knnlm_status status = remove_from(s, b, document, size, &removed, &found);
    if (status != KNNLM_OK) complain(c, status);
    end(s);
    if (status != KNNLM_OK) return NULL;
    if (!found) {
        kn_complain(c, 404, "not_found", NULL, "the store '%.100s' has no document '%.100s'", store,
                    document);
        return NULL;
    }
    return json_pack("{s:o, s:I}", "name", kn_json_text(document, size), "removed", (json_int_t)removed);
}
