// What a synchronisation would do: the texts against the store, by file and content, without the model.
#include "build/build.h"

#include "build/changes.h"

#include <string.h>

typedef struct comparing {
    kn_changes changes;
    size_t known; // identities that the store has
    kn_folders folders;
    knnlm_change_found *found;
    void *context;
    kn_build_result *out;
} comparing;

static knnlm_status compare_one(comparing *c, const kn_document *d) {
    uint64_t hash[2];
    kn_given given;
    kn_content_hash(d->text, d->size, hash);
    KN_TRY(kn_changes_give(&c->changes, d, &given));
    const kn_content *same = given.again ? NULL : kn_changes_match(&c->changes, &given, hash);
    if (given.again || (same && same->whole)) {
        c->out->documents_unchanged++;
        return KNNLM_OK;
    }
    bool replaces = (size_t)given.who < c->known;
    c->out->documents_added++;
    c->out->documents_replaced += replaces;
    c->out->bytes_added += d->size;
    if (c->found) c->found(c->context, replaces ? '~' : '+', given.name, strlen(given.name));
    return KNNLM_OK;
}

static knnlm_status compare_all(comparing *c, kn_documents *source, const kn_progress *progress) {
    for (;;) {
        kn_document d;
        bool more;
        KN_TRY(kn_documents_next(source, &d, &more));
        if (!more) return KNNLM_OK;
        KN_TRY(compare_one(c, &d));
        if (!kn_progress_report(progress, "comparing", kn_documents_done(source), kn_documents_total(source),
                                "B"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while comparing: nothing was changed");
    }
}

static void tell_gone(comparing *c, const kn_store *store) {
    for (size_t i = 0; i < c->changes.contents.count; i++) {
        const kn_content *content = &c->changes.contents.documents[i];
        kn_store_document d;
        if (!kn_changes_is_gone(&c->changes, content, &c->folders)) continue;
        if (kn_store_document_at(store, content->number, &d) != KNNLM_OK) continue;
        c->out->documents_removed++;
        if (c->found) c->found(c->context, '-', d.name, d.name_size);
    }
}

knnlm_status kn_build_compare(const char *path, const char *const *texts, size_t count,
                              const kn_build_options *o, const kn_progress *progress,
                              knnlm_change_found *found, void *context, kn_build_result *out) {
    comparing c = {.found = found, .context = context, .out = out};
    kn_documents *source = NULL;
    kn_store *store;
    *out = (kn_build_result){0};
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_folders_find(&c.folders, texts, count);
    if (status == KNNLM_OK) status = kn_changes_load(&c.changes, store);
    c.known = c.changes.identities.count;
    if (status == KNNLM_OK) status = kn_documents_open(texts, count, &o->texts, &source);
    if (status == KNNLM_OK) status = compare_all(&c, source, progress);
    if (status == KNNLM_OK) tell_gone(&c, store);
    kn_documents_close(source);
    kn_changes_free(&c.changes);
    kn_folders_free(&c.folders);
    kn_store_close(store);
    return status;
}
