#include "build/known.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void kn_known_hash(const char *text, size_t size, uint64_t hash[2]) {
    XXH128_hash_t digest = XXH3_128bits(text, size);
    hash[0] = digest.low64;
    hash[1] = digest.high64;
}

static int by_hash(const void *a, const void *b) {
    const kn_known_document *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x->hash[i] != y->hash[i]) return x->hash[i] < y->hash[i] ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

knnlm_status kn_known_load(kn_known *k, const kn_store *store) {
    *k = (kn_known){.store = store};
    if (!store) return KNNLM_OK;
    uint64_t total = kn_store_describe(store)->documents;
    k->documents = kn_alloc(total, sizeof *k->documents);
    if (!k->documents) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status != KNNLM_OK && status != KNNLM_EDATA) return status;
        if (kn_store_document_removed(store, i)) continue;
        if (status != KNNLM_OK) {
            k->damaged++;
            continue;
        }
        k->documents[k->count++] =
            (kn_known_document){.hash = {d.hash[0], d.hash[1]}, .number = i, .whole = d.count == d.tokens};
    }
    if (k->count) qsort(k->documents, k->count, sizeof *k->documents, by_hash);
    return KNNLM_OK;
}

void kn_known_free(kn_known *k) {
    free(k->documents);
    kn_vocab_free(&k->given);
    *k = (kn_known){0};
}

static bool is_called(const kn_known *k, uint64_t number, const char *name) {
    kn_store_document d;
    return kn_store_document_at(k->store, number, &d) == KNNLM_OK && strlen(name) == d.name_size &&
           memcmp(name, d.name, d.name_size) == 0;
}

kn_known_document *kn_known_find(const kn_known *k, const uint64_t hash[2], size_t *count) {
    kn_known_document wanted = {.hash = {hash[0], hash[1]}};
    size_t low = 0, high = k->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_hash(&k->documents[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < k->count; ++*count)
        if (memcmp(k->documents[low + *count].hash, hash, sizeof wanted.hash) != 0) break;
    return *count ? k->documents + low : NULL;
}

// Not the name of a thing that could have changed: every content may have it.
static bool is_nameless(const char *name) {
    return strcmp(name, "<stdin>") == 0;
}

kn_known_document *kn_known_match(kn_known *k, const char *name, const uint64_t hash[2]) {
    size_t count;
    kn_known_document *same = kn_known_find(k, hash, &count), *found = NULL;
    for (size_t i = 0; i < count; i++) {
        kn_known_document *d = &same[i];
        if (d->matched) continue;
        bool called = is_called(k, d->number, name);
        if (called || (!found && d->whole && is_nameless(name))) found = d;
        if (called) break;
    }
    if (found) found->matched = true;
    return found;
}

const kn_known_document *kn_known_elsewhere(const kn_known *k, const uint64_t hash[2]) {
    size_t count;
    const kn_known_document *same = kn_known_find(k, hash, &count);
    for (size_t i = 0; i < count; i++) // `same` may be NULL, to which nothing may be added
        if (same[i].whole && kn_store_document_intact(k->store, same[i].number)) return &same[i];
    return NULL;
}

knnlm_status kn_known_give(kn_known *k, const char *name) {
    int32_t number;
    return is_nameless(name) ? KNNLM_OK : kn_vocab_intern(&k->given, name, strlen(name), &number);
}

static bool is_given(const kn_known *k, uint64_t number) {
    kn_store_document d;
    return kn_vocab_count(&k->given) && kn_store_document_at(k->store, number, &d) == KNNLM_OK &&
           kn_vocab_find(&k->given, d.name, d.name_size) >= 0;
}

static int by_number(const void *a, const void *b) {
    const kn_known_document *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

knnlm_status kn_known_retire(const kn_known *k, kn_store_writer *w, uint64_t *replaced) {
    *replaced = 0;
    if (k->count)
        qsort(k->documents, k->count, sizeof *k->documents, by_number); // removal likes it ascending
    for (size_t i = 0; i < k->count; i++) {
        const kn_known_document *d = &k->documents[i];
        if (d->matched || (d->whole && !is_given(k, d->number))) continue;
        KN_TRY(kn_store_writer_remove(w, d->number));
        *replaced += d->whole;
    }
    return KNNLM_OK;
}
