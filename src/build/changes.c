// Which documents of a run are new, unchanged or replaced.
#include "build/changes.h"

#include <stdlib.h>
#include <string.h>

knnlm_status kn_changes_load(kn_changes *c, const kn_store *store) {
    *c = (kn_changes){0};
    KN_TRY(kn_contents_load(&c->contents, store));
    return kn_identities_load(&c->identities, store);
}

void kn_changes_free(kn_changes *c) {
    kn_contents_free(&c->contents);
    kn_identities_free(&c->identities);
    *c = (kn_changes){0};
}

static bool is_called(const kn_changes *c, uint64_t number, const char *name) {
    int32_t who = c->identities.of_document[number];
    return who >= 0 && strcmp(kn_identities_name(&c->identities, who), name) == 0;
}

// Not the name of a thing that could have changed: every content may have it.
static bool is_nameless(const char *name) {
    return strcmp(name, "<stdin>") == 0;
}

knnlm_status kn_changes_give(kn_changes *c, const kn_document *d, kn_given *out) {
    *out = (kn_given){.who = -1, .name = d->name};
    if (is_nameless(d->name)) return KNNLM_OK;
    KN_TRY(kn_identities_find(&c->identities, d, &out->who, &out->again));
    out->name = kn_identities_name(&c->identities, out->who);
    return KNNLM_OK;
}

kn_content *kn_changes_match(kn_changes *c, const kn_given *given, const uint64_t hash[2]) {
    size_t count;
    kn_content *same = kn_contents_find(&c->contents, hash, &count), *found = NULL;
    for (size_t i = 0; i < count; i++) {
        kn_content *d = &same[i];
        if (d->matched) continue;
        bool itself = given->who >= 0 ? c->identities.of_document[d->number] == given->who
                                      : is_called(c, d->number, given->name);
        if (itself || (!found && d->whole && given->who < 0)) found = d;
        if (itself) break;
    }
    if (found) found->matched = true;
    return found;
}

const kn_content *kn_changes_elsewhere(const kn_changes *c, const uint64_t hash[2]) {
    size_t count;
    const kn_content *same = kn_contents_find(&c->contents, hash, &count);
    for (size_t i = 0; i < count; i++) // `same` may be NULL, to which nothing may be added
        if (same[i].whole && kn_store_document_intact(c->contents.store, same[i].number)) return &same[i];
    return NULL;
}

static bool is_given(const kn_changes *c, uint64_t number) {
    int32_t who = c->identities.of_document[number];
    return who >= 0 && c->identities.all[who].given;
}

static int by_number(const void *a, const void *b) {
    const kn_content *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

knnlm_status kn_changes_retire(const kn_changes *c, kn_store_writer *w, uint64_t *replaced) {
    *replaced = 0;
    if (c->contents.count)
        qsort(c->contents.documents, c->contents.count, sizeof *c->contents.documents,
              by_number); // removal likes it ascending
    for (size_t i = 0; i < c->contents.count; i++) {
        const kn_content *d = &c->contents.documents[i];
        if (d->matched || (d->whole && !is_given(c, d->number))) continue;
        KN_TRY(kn_store_writer_remove(w, d->number));
        *replaced += d->whole;
    }
    return KNNLM_OK;
}
