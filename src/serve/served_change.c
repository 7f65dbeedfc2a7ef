// Changes of served stores: a document is added or removed on disk, and the new state published.
#include "serve/served_parts.h"

#include "base/progress.h"
#include "build/build.h"
#include "store/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tokens that a document gives the model at a time, before others have it: a fraction of a second.
enum { GATHER = 512 };

typedef struct addition {
    kn_served *s;
    kn_served_store *b;
    const kn_served_change *change;
    bool unstoppable;
    size_t before, size, all; // bytes of the documents before, of the one at hand, of all
} addition;

// Called between two batches: whoever waits for the model has it first.
static bool let_others(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const addition *x = context;
    (void)unit;
    uint64_t bytes = total ? (uint64_t)((double)x->size * (double)done / (double)total) : 0;
    kn_ticket_lock_release(x->s->model_lock);
    bool told = kn_progress_report(&x->change->progress, what, x->before + bytes, x->all, "B");
    kn_ticket_lock_acquire(x->s->model_lock);
    return x->unstoppable || (told && x->change->go_on(x->change->context));
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

kn_served_store *kn_served_change_begin(kn_served *s, const kn_served_change *change, kn_http_error *err) {
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

// The shard of a document, and its order among those of all, are chosen for many documents at a time.
bool kn_served_takes_documents(const kn_served *s, const char *name, kn_http_error *err) {
    size_t number;
    if (!kn_served_find(s, name, &number, err)) return false;
    if (!kn_shards_exist(s->stores[number].path)) return true;
    return kn_http_error_set(
        err, 403, "read_only", NULL,
        "the store '%.100s' is made of shards: its documents are changed by the commands "
        "knnlm add, sync and remove",
        name);
}

static kn_served_store *change_documents(kn_served *s, const kn_served_change *change, kn_http_error *err) {
    return kn_served_takes_documents(s, change->store, err) ? kn_served_change_begin(s, change, err) : NULL;
}

void kn_served_change_end(kn_served *s) {
    pthread_mutex_unlock(&s->writing);
}

bool kn_served_change_error(kn_http_error *err, knnlm_status status) {
    const char *message = knnlm_message();
    if (status == KNNLM_OK) return true;
    if (status == KNNLM_EBUSY)
        kn_http_error_set(err, 409, "conflict", NULL, "%s", message);
    else if (status == KNNLM_ESTOPPED)
        kn_http_error_set(err, 504, "timeout", NULL,
                          "the document was not added in time: nothing has changed");
    else
        kn_http_error_status(err, status, message);
    return false;
}

// ---------------------------------------------------------------- adding

// Of many documents, how long some may be on disk before they are served.
static const double PUBLISH_SECONDS = 10;

static knnlm_status add_one(addition *x, const kn_new_document *n, kn_served_added *out) {
    kn_document d = {.name = n->name, .path = "", .text = n->text, .size = n->size};
    kn_build_result result = {0};
    kn_progress progress = {let_others, x};
    x->size = n->size;
    kn_ticket_lock_acquire(x->s->model_lock);
    knnlm_status status = kn_build_add_one(x->s->lm, x->b->path, &d, GATHER, &progress, &result);
    kn_ticket_lock_release(x->s->model_lock);
    x->before += n->size;
    if (status != KNNLM_OK) return status;
    out->entries += result.entries_added;
    out->documents += result.documents_added > 0;
    out->unchanged += result.documents_added == 0;
    return KNNLM_OK;
}

// The documents are there: what comes now only makes searches faster, and cannot undo it.
static knnlm_status publish(addition *x) {
    static const kn_recipe as_ever = {.seed = 1};
    kn_progress progress = {let_others, x};
    kn_index_result index;
    bool indexed;
    x->unstoppable = true;
    kn_ticket_lock_acquire(x->s->model_lock);
    kn_build_index(x->b->path, &as_ever, false, x->s->lm, &progress, &indexed, &index);
    kn_ticket_lock_release(x->s->model_lock);
    x->unstoppable = false;
    return kn_served_store_publish(x->s, x->b);
}

// Opening a state takes as long as it has entries: many documents are published together.
static knnlm_status add_all(addition *x, const kn_new_document *documents, size_t count,
                            kn_served_added *out) {
    knnlm_status status = KNNLM_OK;
    size_t published = 0;
    double last = kn_seconds();
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) {
        status = add_one(x, &documents[i], out);
        if (out->documents == published || (i + 1 < count && kn_seconds() - last < PUBLISH_SECONDS)) continue;
        if (status == KNNLM_OK) status = publish(x);
        published = out->documents;
        last = kn_seconds();
    }
    if (status == KNNLM_OK || out->documents == published) return status;
    char message[400];
    snprintf(message, sizeof message, "%s", knnlm_message());
    publish(x); // those before the one that failed
    return kn_fail(status, "%s", message);
}

bool kn_served_add(kn_served *s, const kn_served_change *change, const kn_new_document *documents,
                   size_t count, kn_served_added *out, kn_http_error *err) {
    *out = (kn_served_added){0};
    kn_served_store *b = change_documents(s, change, err);
    if (!b) return false;
    addition x = {.s = s, .b = b, .change = change};
    for (size_t i = 0; i < count; i++) x.all += documents[i].size;
    knnlm_status status = add_all(&x, documents, count, out);
    bool done = kn_served_change_error(err, status);
    kn_served_change_end(s);
    return done;
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
    bool found = false;
    kn_served_store *b = change_documents(s, change, err);
    if (!b) return false;
    knnlm_status status = remove_from(s, b, document, size, removed, &found);
    bool done = kn_served_change_error(err, status);
    kn_served_change_end(s);
    if (!done || found) return done;
    return kn_http_error_set(err, 404, "not_found", NULL, "the store '%.100s' has no document '%.100s'",
                             change->store, document);
}
