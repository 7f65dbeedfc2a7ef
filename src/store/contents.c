// Finds documents by the hash of their content.
#include "store/contents.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void kn_content_hash(const char *text, size_t size, uint64_t hash[2]) {
    XXH128_hash_t digest = XXH3_128bits(text, size);
    hash[0] = digest.low64;
    hash[1] = digest.high64;
}

static int by_hash(const void *a, const void *b) {
    const kn_content *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x->hash[i] != y->hash[i]) return x->hash[i] < y->hash[i] ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

knnlm_status kn_contents_load(kn_contents *k, const kn_store *store) {
    *k = (kn_contents){.store = store};
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
            (kn_content){.hash = {d.hash[0], d.hash[1]}, .number = i, .whole = d.count == d.tokens};
    }
    if (k->count) qsort(k->documents, k->count, sizeof *k->documents, by_hash);
    return KNNLM_OK;
}

void kn_contents_free(kn_contents *k) {
    free(k->documents);
    *k = (kn_contents){0};
}

kn_content *kn_contents_find(const kn_contents *k, const uint64_t hash[2], size_t *count) {
    kn_content wanted = {.hash = {hash[0], hash[1]}};
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
