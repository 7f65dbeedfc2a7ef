// Which documents of a run are new, unchanged or replaced.
#include "build/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

// ---------------------------------------------------------------- folders

static knnlm_status find_folder(const char *typed, char **out) {
    struct stat st;
    *out = realpath(typed, NULL);
    if (!*out || stat(*out, &st) != 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", typed);
    if (S_ISDIR(st.st_mode)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: not a directory (`knnlm_build_add` adds files)", typed);
}

knnlm_status kn_folders_find(kn_folders *f, const char *const *typed, size_t count) {
    *f = (kn_folders){.paths = kn_alloc(count, sizeof *f->paths), .count = count};
    if (!f->paths) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++) KN_TRY(find_folder(typed[i], &f->paths[i]));
    return KNNLM_OK;
}

void kn_folders_free(kn_folders *f) {
    for (size_t i = 0; f->paths && i < f->count; i++) free(f->paths[i]);
    free(f->paths);
    *f = (kn_folders){0};
}

static bool lies_in(const kn_store_document *d, const char *folder) {
    size_t size = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return d->path_size > size && memcmp(d->path, folder, size) == 0 && d->path[size] == '/';
}

// What was recorded without an absolute path may be anywhere, or nowhere: it stays.
bool kn_changes_is_gone(const kn_changes *c, const kn_content *content, const kn_folders *folders) {
    kn_store_document d;
    if (content->matched || !content->whole || is_given(c, content->number)) return false;
    if (kn_store_document_at(c->contents.store, content->number, &d) != KNNLM_OK) return false;
    for (size_t i = 0; i < folders->count; i++)
        if (lies_in(&d, folders->paths[i])) return true;
    return false;
}
