// Finds documents by file and by name.
#include "build/identity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void kn_identities_free(kn_identities *k) {
    kn_vocab_free(&k->names);
    kn_vocab_free(&k->places);
    free(k->of_name);
    free(k->of_place);
    free(k->all);
    free(k->of_document);
    free(k->name.data);
    free(k->key.data);
    *k = (kn_identities){0};
}

const char *kn_identities_name(const kn_identities *k, int32_t who) {
    return kn_strings_at(&k->names.strings, (size_t)k->all[who].name);
}

// ---------------------------------------------------------------- places

// Whether the path ends with these parts.
static bool is_tail(const char *path, size_t path_size, const char *part, size_t size) {
    return size && size <= path_size && memcmp(path + path_size - size, part, size) == 0 &&
           (size == path_size || path[path_size - size - 1] == '/');
}

// Bytes of a name that are the file's; the rest is "#Title" or "#17". File names may have a # too.
static size_t file_part(const char *name, size_t size, const char *path, size_t path_size) {
    for (size_t end = size; end > 0; end--)
        if ((end == size || name[end] == '#') && is_tail(path, path_size, name, end)) return end;
    const char *mark = memchr(name, '#', size);
    return mark ? (size_t)(mark - name) : size;
}

static knnlm_status make_key(kn_identities *k, const char *name, size_t size, const char *path,
                             size_t path_size) {
    size_t end = file_part(name, size, path, path_size);
    k->key.size = 0;
    KN_TRY(kn_buffer_put(&k->key, path, path_size));
    KN_TRY(kn_buffer_put(&k->key, "", 1));
    return kn_buffer_put(&k->key, name + end, size - end);
}

static int32_t find_place(const kn_identities *k) {
    int32_t place = kn_vocab_find(&k->places, k->key.data, k->key.size);
    return place < 0 ? -1 : k->of_place[place];
}

// A member of an archive counts as there while the archive is.
static bool is_gone(const kn_identities *k, int32_t place) {
    struct stat st;
    return stat(kn_strings_at(&k->places.strings, (size_t)place), &st) != 0 && errno == ENOENT;
}

// ---------------------------------------------------------------- the register

// The place at hand is `who`'s from now on.
static knnlm_status settle(kn_identities *k, int32_t who) {
    int32_t place;
    KN_TRY(kn_vocab_intern(&k->places, k->key.data, k->key.size, &place));
    KN_TRY(kn_grow(&k->of_place, &k->place_capacity, (size_t)place + 1, sizeof *k->of_place));
    k->of_place[place] = who;
    k->all[who].place = place;
    return KNNLM_OK;
}

// Who has a name first, has it.
static knnlm_status call(kn_identities *k, const char *name, size_t size, int32_t who, int32_t *number) {
    int32_t known = kn_vocab_count(&k->names);
    KN_TRY(kn_vocab_intern(&k->names, name, size, number));
    if (*number < known) return KNNLM_OK;
    KN_TRY(kn_grow(&k->of_name, &k->name_capacity, (size_t)*number + 1, sizeof *k->of_name));
    k->of_name[*number] = who;
    return KNNLM_OK;
}

static int32_t find_name(const kn_identities *k, const char *name, size_t size) {
    int32_t number = kn_vocab_find(&k->names, name, size);
    return number < 0 ? -1 : k->of_name[number];
}

static knnlm_status enter(kn_identities *k, const char *name, size_t size, bool placed, int32_t *who) {
    KN_TRY(kn_grow(&k->all, &k->capacity, k->count + 1, sizeof *k->all));
    *who = (int32_t)k->count;
    k->all[*who] = (kn_identity){.place = -1};
    KN_TRY(call(k, name, size, *who, &k->all[*who].name));
    k->count++;
    return placed ? settle(k, *who) : KNNLM_OK;
}

// ---------------------------------------------------------------- the store's

// Paths that older versions recorded were as typed: they are taken from where we are, if that leads
// somewhere.
static knnlm_status place_of(kn_identities *k, const kn_store_document *d, bool *placed) {
    *placed = d->path_size && d->path[0] == '/';
    if (*placed) return make_key(k, d->name, d->name_size, d->path, d->path_size);
    k->name.size = 0;
    KN_TRY(kn_buffer_put(&k->name, d->path, d->path_size));
    KN_TRY(kn_buffer_put(&k->name, "", 1));
    char *real = d->path_size ? realpath(k->name.data, NULL) : NULL;
    if (!real) return KNNLM_OK;
    // What comes after the file is told by the path as it was.
    size_t end = file_part(d->name, d->name_size, d->path, d->path_size);
    k->key.size = 0;
    knnlm_status status = kn_buffer_put(&k->key, real, strlen(real) + 1);
    if (status == KNNLM_OK) status = kn_buffer_put(&k->key, d->name + end, d->name_size - end);
    *placed = status == KNNLM_OK;
    free(real);
    return status;
}

static knnlm_status load(kn_identities *k, const kn_store_document *d, int32_t *who) {
    bool placed;
    int32_t number;
    KN_TRY(place_of(k, d, &placed));
    *who = placed ? find_place(k) : find_name(k, d->name, d->name_size);
    return *who < 0 ? enter(k, d->name, d->name_size, placed, who)
                    : call(k, d->name, d->name_size, *who, &number);
}

knnlm_status kn_identities_load(kn_identities *k, const kn_store *store) {
    *k = (kn_identities){0};
    if (!store) return KNNLM_OK;
    uint64_t total = kn_store_describe(store)->documents;
    k->of_document = kn_alloc(total, sizeof *k->of_document);
    if (!k->of_document) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        k->of_document[i] = -1;
        if (kn_store_document_removed(store, i)) continue;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue;
        if (status == KNNLM_OK) status = load(k, &d, &k->of_document[i]);
        if (status != KNNLM_OK) return status;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the run's

// One more folder of the path in front of the name at hand; false: there is none left. A name that links lead
// to is no end of the path: all of that then.
static knnlm_status lengthen(kn_identities *k, const char *path, bool *longer) {
    size_t path_size = strlen(path), end = file_part(k->name.data, k->name.size, path, path_size), start = 1;
    bool tail = is_tail(path, path_size, k->name.data, end);
    size_t had = path_size - end; // where it begins in the path
    *longer = !tail || had > 1;
    if (!*longer) return KNNLM_OK;
    if (tail)
        for (start = had - 1; path[start - 1] != '/'; start--) {
        }
    kn_buffer name = {0};
    knnlm_status status = kn_buffer_put(&name, path + start, path_size - start);
    if (status == KNNLM_OK) status = kn_buffer_put(&name, k->name.data + end, k->name.size - end);
    free(k->name.data);
    k->name = name;
    return status;
}

static bool is_free(const kn_identities *k, int32_t who) {
    const kn_identity *i = &k->all[who];
    return !i->given && (i->place < 0 || is_gone(k, i->place));
}

// By the name, or a longer one that is not another file's.
static knnlm_status find_by_name(kn_identities *k, const kn_document *d, bool placed, int32_t *who) {
    bool longer = placed;
    k->name.size = 0;
    KN_TRY(kn_buffer_put_text(&k->name, d->name));
    *who = find_name(k, k->name.data, k->name.size);
    while (longer && *who >= 0 && !is_free(k, *who)) {
        KN_TRY(lengthen(k, d->path, &longer));
        *who = find_name(k, k->name.data, k->name.size);
    }
    if (*who < 0) return enter(k, k->name.data, k->name.size, placed, who);
    return placed ? settle(k, *who) : KNNLM_OK;
}

// The document that an older version named as it was typed, from a file that it did not tell.
static int32_t find_typed(const kn_identities *k, const kn_document *d) {
    int32_t who = d->typed ? find_name(k, d->typed, strlen(d->typed)) : -1;
    return who >= 0 && k->all[who].place < 0 ? who : -1;
}

// One file may have many texts of a name, each further on than the one before.
static void mark_given(kn_identity *i, const kn_document *d, bool placed, bool *again) {
    *again = placed && i->given && d->offset < i->beyond;
    i->given = true;
    if (placed && !*again) i->beyond = d->offset + 1;
}

knnlm_status kn_identities_find(kn_identities *k, const kn_document *d, int32_t *who, bool *again) {
    bool placed = d->path[0] == '/';
    knnlm_status status = KNNLM_OK;
    *who = -1;
    if (placed) {
        KN_TRY(make_key(k, d->name, strlen(d->name), d->path, strlen(d->path)));
        *who = find_place(k);
        if (*who < 0 && (*who = find_typed(k, d)) >= 0) status = settle(k, *who);
    }
    if (status == KNNLM_OK && *who < 0) status = find_by_name(k, d, placed, who);
    if (status == KNNLM_OK) mark_given(&k->all[*who], d, placed, again);
    return status;
}
