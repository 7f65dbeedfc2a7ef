// Which documents of a run are new, unchanged or replaced.
#include "build/changes.h"

#include <stdlib.h>
#include <string.h>

knnlm_status kn_changes_load(kn_changes *c, const kn_store *store) {
    *c = (kn_changes){0};
    return kn_contents_load(&c->contents, store);
}

void kn_changes_free(kn_changes *c) {
    kn_contents_free(&c->contents);
    kn_vocab_free(&c->given);
    *c = (kn_changes){0};
}

static bool is_called(const kn_changes *c, uint64_t number, const char *name) {
    kn_store_document d;
    return kn_store_document_at(c->contents.store, number, &d) == KNNLM_OK && strlen(name) == d.name_size &&
           memcmp(name, d.name, d.name_size) == 0;
}

// Not the name of a thing that could have changed: every content may have it.
static bool is_nameless(const char *name) {
    return strcmp(name, "<stdin>") == 0;
}

kn_content *kn_changes_match(kn_changes *c, const char *name, const uint64_t hash[2]) {
    size_t count;
    kn_content *same = kn_contents_find(&c->contents, hash, &count), *found = NULL;
    for (size_t i = 0; i < count; i++) {
        kn_content *d = &same[i];
        if (d->matched) continue;
        bool called = is_called(c, d->number, name);
        if (called || (!found && d->whole && is_nameless(name))) found = d;
        if (called) break;
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

knnlm_status kn_changes_give(kn_changes *c, const char *name) {
    int32_t number;
    return is_nameless(name) ? KNNLM_OK : kn_vocab_intern(&c->given, name, strlen(name), &number);
}

static bool is_given(const kn_changes *c, uint64_t number) {
    kn_store_document d;
    return kn_vocab_count(&c->given) && kn_store_document_at(c->contents.store, number, &d) == KNNLM_OK &&
           kn_vocab_find(&c->given, d.name, d.name_size) >= 0;
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
