// Lists of strings and their hash tables.
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

knnlm_status kn_strings_add(kn_strings *s, const char *data, size_t size) {
    size_t end;
    if (!kn_add(s->used, size, &end) || !kn_add(end, 1, &end))
        return kn_fail(KNNLM_ENOMEM, "out of memory: %zu more bytes asked for", size);
    KN_TRY(kn_grow(&s->bytes, &s->byte_capacity, end, 1));
    KN_TRY(kn_grow(&s->starts, &s->start_capacity, s->count + 2, sizeof *s->starts));
    if (size) memcpy(s->bytes + s->used, data, size);
    s->bytes[end - 1] = 0;
    s->starts[s->count] = s->used;
    s->starts[++s->count] = s->used = end;
    return KNNLM_OK;
}

void kn_strings_free(kn_strings *s) {
    free(s->bytes);
    free(s->starts);
    *s = (kn_strings){0};
}

// The slot of the string, or the free slot where it belongs.
static size_t slot_of(const kn_vocab *v, uint64_t hash, const char *data, size_t size) {
    size_t mask = v->slot_count - 1;
    uint64_t tag = hash & 0xFFFFFFFF00000000u;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint64_t slot = v->slots[i];
        if (!slot) return i;
        size_t number = (uint32_t)slot - 1;
        if ((slot & 0xFFFFFFFF00000000u) == tag && kn_strings_size(&v->strings, number) == size &&
            memcmp(kn_strings_at(&v->strings, number), data, size) == 0)
            return i;
    }
}

static knnlm_status rehash(kn_vocab *v) {
    size_t count = v->slot_count ? v->slot_count * 2 : 1024, mask = count - 1;
    uint64_t *slots = kn_alloc(count, sizeof *slots);
    if (!slots) return KNNLM_ENOMEM;
    for (size_t n = 0; n < v->strings.count; n++) {
        uint64_t hash = XXH3_64bits(kn_strings_at(&v->strings, n), kn_strings_size(&v->strings, n));
        size_t i = hash & mask;
        while (slots[i]) i = (i + 1) & mask;
        slots[i] = (hash & 0xFFFFFFFF00000000u) | (n + 1);
    }
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    return KNNLM_OK;
}

knnlm_status kn_vocab_intern(kn_vocab *v, const char *data, size_t size, int32_t *number) {
    if (v->strings.count >= v->slot_count / 2) KN_TRY(rehash(v));
    uint64_t hash = XXH3_64bits(data, size);
    size_t i = slot_of(v, hash, data, size);
    if (!v->slots[i]) {
        if (v->strings.count >= INT32_MAX) return kn_fail(KNNLM_ENOTSUP, "more than %d strings", INT32_MAX);
        KN_TRY(kn_strings_add(&v->strings, data, size));
        v->slots[i] = (hash & 0xFFFFFFFF00000000u) | v->strings.count;
    }
    *number = (int32_t)((uint32_t)v->slots[i] - 1);
    return KNNLM_OK;
}

knnlm_status kn_vocab_add(kn_vocab *v, const char *data, size_t size) {
    size_t before = v->strings.count;
    int32_t number;
    KN_TRY(kn_vocab_intern(v, data, size, &number));
    if (v->strings.count == before)
        return kn_fail(KNNLM_EDATA, "token \"%.*s\" is in the vocabulary twice (%d and %zu)",
                       (int)(size < 64 ? size : 64), data, number, before);
    return KNNLM_OK;
}

int32_t kn_vocab_find(const kn_vocab *v, const char *data, size_t size) {
    if (!v->slot_count) return -1;
    return (int32_t)((uint32_t)v->slots[slot_of(v, XXH3_64bits(data, size), data, size)] - 1);
}

void kn_vocab_free(kn_vocab *v) {
    kn_strings_free(&v->strings);
    free(v->slots);
    *v = (kn_vocab){0};
}

knnlm_status kn_counts_add(kn_counts *c, const char *word, size_t size, uint64_t times) {
    size_t before = c->words.strings.count;
    int32_t number;
    KN_TRY(kn_vocab_intern(&c->words, word, size, &number));
    if (c->words.strings.count > before) {
        KN_TRY(kn_grow(&c->counts, &c->capacity, c->words.strings.count, sizeof *c->counts));
        c->counts[number] = 0;
    }
    c->counts[number] += times;
    return KNNLM_OK;
}

void kn_counts_free(kn_counts *c) {
    kn_vocab_free(&c->words);
    free(c->counts);
    *c = (kn_counts){0};
}
