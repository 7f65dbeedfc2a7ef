// Changes of served stores: a document is added or removed on disk, and the new state published.
#include "serve/served_parts.h"

#include "build/build.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tokens that a document gives the model at a time, before others have it: a fraction of a second.
enum { GATHER = 512 };

typedef struct addition {
    kn_served *s;
    kn_served_store *b;
    bool (*go_on)(void *);
    void *context;
} addition;

// Called between two batches: whoever waits for the model has it first.
static bool let_others(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const addition *x = context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    kn_ticket_lock_release(x->s->model_lock);
    kn_ticket_lock_acquire(x->s->model_lock);
    return !x->go_on || x->go_on(x->context);
}

// One change at a time; who waits may leave.
static bool lock_writing(kn_served *s, bool (*go_on)(void *), void *context) {
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

static kn_served_store *begin(kn_served *s, const kn_served_change *change, kn_http_error *err) {
    kn_served_store *b = kn_served_named(s, change->store, err);
    if (b && !change->allowed) {
        kn_http_error_set(err, 403, "read_only", NULL, "stores are served read-only");
        return NULL;
    }
    if (!b || lock_writing(s, change->go_on, change->context)) return b;
    kn_http_error_set(err, 504, "timeout", NULL,
                      "the store was being changed by others: nothing has changed");
    return NULL;
}

static void end(kn_served *s) {
    pthread_mutex_unlock(&s->writing);
}

static void set_error(kn_http_error *err, knnlm_status status) {
    const char *message = knnlm_message();
    if (status == KNNLM_EBUSY)
        kn_http_error_set(err, 409, "conflict", NULL, "%s", message);
    else if (status == KNNLM_ESTOPPED)
        kn_http_error_set(err, 504, "timeout", NULL,
                          "the document was not added in time: nothing has changed");
    else
        kn_http_error_status(err, status, message);
}

// ---------------------------------------------------------------- adding

static knnlm_status add(addition *x, const kn_document *d, kn_build_result *out) {
    static const kn_recipe as_ever = {.seed = 1};
    kn_progress progress = {let_others, x};
    kn_index_result index;
    bool indexed;
    kn_ticket_lock_acquire(x->s->model_lock);
    knnlm_status status = kn_build_add_one(x->s->lm, x->b->path, d, GATHER, &progress, out);
    kn_ticket_lock_release(x->s->model_lock);
    if (status != KNNLM_OK || out->documents_added == 0) return status;
    // The document is there: what comes now only makes searches faster, and cannot undo it.
    kn_ticket_lock_acquire(x->s->model_lock);
    x->go_on = NULL;
    kn_build_index(x->b->path, &as_ever, false, x->s->lm, &progress, &indexed, &index);
    kn_ticket_lock_release(x->s->model_lock);
    return kn_served_store_publish(x->s, x->b);
}

bool kn_served_add(kn_served *s, const kn_served_change *change, const char *name, const char *text,
                   size_t size, kn_served_added *out, kn_http_error *err) {
    kn_build_result result = {0};
    kn_document d = {.name = name, .path = name, .text = text, .size = size};
    kn_served_store *b = begin(s, change, err);
    if (!b) return false;
    addition x = {s, b, change->go_on, change->context};
    knnlm_status status = add(&x, &d, &result);
    if (status != KNNLM_OK) set_error(err, status);
    end(s);
    *out = (kn_served_added){result.entries_added, result.documents_added > 0};
    return status == KNNLM_OK;
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

static knnlm_status remove_from(kn_served *s, kn_served_store *b, const char *name, size_t size,
                                uint64_t *removed, bool *found) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(b->path, &w));
    knnlm_status status = remove_named(w, name, size, removed, found);
    kn_store_writer_close(w);
    return status == KNNLM_OK && *found ? kn_served_store_publish(s, b) : status;
}

bool kn_served_remove(kn_served *s, const kn_served_change *change, const char *document, size_t size,
                      uint64_t *removed, kn_http_error *err) {
    bool found;
    kn_served_store *b = begin(s, change, err);
    if (!b) return false;
    knnlm_status status = remove_from(s, b, document, size, removed, &found);
    if (status != KNNLM_OK) set_error(err, status);
    end(s);
    if (status != KNNLM_OK || found) return status == KNNLM_OK;
    return kn_http_error_set(err, 404, "not_found", NULL, "the store '%.100s' has no document '%.100s'",
                             change->store, document);
}
