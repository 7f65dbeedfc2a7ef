// Tokens to text: pieces, stops, characters that several tokens make up.
#include "generate/text.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- characters

#define REPLACEMENT "\xEF\xBF\xBD"
enum { CHARACTER = 4 }; // bytes of the longest

// Whether more bytes can make a character of these: one of the two extremes that may follow does.
static bool can_be_character(const char *bytes, size_t size) {
    static const char fill[] = {'\x80', '\xBF'};
    for (size_t i = 0; i < sizeof fill; i++) {
        char whole[CHARACTER];
        uint32_t c;
        if (size >= CHARACTER) return false;
        memset(whole, fill[i], CHARACTER);
        memcpy(whole, bytes, size);
        if (kn_utf8_decode(whole, CHARACTER, &c) > size) return true;
    }
    return false;
}

// The longest beginning of a character at the start of these bytes, which begin with none that is whole; at
// least 1.
static size_t broken(const char *bytes, size_t size) {
    size_t n = 1;
    while (n < size && can_be_character(bytes, n + 1)) n++;
    return n;
}

static knnlm_status put(kn_text *t, const char *bytes, size_t size) {
    size_t needed;
    if (!kn_add(t->size, size, &needed) || !kn_add(needed, 1, &needed))
        return kn_fail(KNNLM_ENOMEM, "out of memory: %zu more bytes of text", size);
    KN_TRY(kn_grow(&t->data, &t->capacity, needed, 1));
    if (size) memcpy(t->data + t->size, bytes, size);
    t->size += size;
    t->data[t->size] = 0;
    return KNNLM_OK;
}

// Whole characters of the bytes, and U+FFFD for what is none; the last may be begun only.
static knnlm_status put_characters(kn_text *t, const char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t whole = kn_utf8_valid(bytes + at, size - at);
        KN_TRY(put(t, bytes + at, whole));
        at += whole;
        if (at == size) break;
        if (can_be_character(bytes + at, size - at)) {
            t->begun_size = size - at;
            memcpy(t->begun, bytes + at, t->begun_size);
            break;
        }
        at += broken(bytes + at, size - at);
        KN_TRY(put(t, REPLACEMENT, strlen(REPLACEMENT)));
    }
    return KNNLM_OK;
}

knnlm_status kn_text_append(kn_text *t, const char *bytes, size_t size) {
    size_t begun = t->begun_size;
    KN_TRY(put(t, "", 0)); // a text of nothing is one too
    if (!begun) return put_characters(t, bytes, size);
    char *joined = kn_alloc(begun + size, 1);
    if (!joined) return KNNLM_ENOMEM;
    memcpy(joined, t->begun, begun);
    memcpy(joined + begun, bytes, size);
    t->begun_size = 0;
    knnlm_status status = put_characters(t, joined, begun + size);
    free(joined);
    return status;
}

knnlm_status kn_text_end(kn_text *t) {
    if (!t->begun_size) return KNNLM_OK;
    t->begun_size = 0;
    return put(t, REPLACEMENT, strlen(REPLACEMENT));
}

void kn_text_free(kn_text *t) {
    free(t->data);
    *t = (kn_text){0};
}

// ---------------------------------------------------------------- stops

knnlm_status kn_stops_init(kn_stops *s, const char *const *items, size_t count) {
    *s = (kn_stops){.items = count ? kn_alloc(count, sizeof *s->items) : NULL};
    if (count && !s->items) return KNNLM_ENOMEM;
    for (; s->count < count; s->count++) {
        const char *item = items[s->count];
        if (!*item) return kn_fail(KNNLM_EINVAL, "a stop string is empty");
        if (kn_utf8_valid(item, strlen(item)) < strlen(item))
            return kn_fail(KNNLM_EINVAL, "a stop string is not UTF-8");
        s->items[s->count] = kn_strdup(item);
        if (!s->items[s->count]) return KNNLM_ENOMEM;
    }
    return KNNLM_OK;
}

void kn_stops_free(kn_stops *s) {
    for (size_t i = 0; i < s->count; i++) free(s->items[i]);
    free(s->items);
    *s = (kn_stops){0};
}

size_t kn_stops_find(const kn_stops *s, const kn_text *t, size_t from) {
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < s->count && from < t->size; i++) {
        const char *at = memmem(t->data + from, t->size - from, s->items[i], strlen(s->items[i]));
        if (at) first = kn_min(first, (size_t)(at - t->data));
    }
    return first;
}

size_t kn_stops_begun(const kn_stops *s, const kn_text *t) {
    size_t max = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t n = kn_min(strlen(s->items[i]) - 1, t->size);
        while (n > max && memcmp(t->data + t->size - n, s->items[i], n) != 0) n--;
        max = kn_max(max, n);
    }
    return max;
}

// ---------------------------------------------------------------- tokens

// A token's text depends on the token before it and on no other.
knnlm_status kn_piece_after(const kn_tokenizer *t, int32_t previous, int32_t token, char **piece,
                            size_t *size) {
    int32_t both[2] = {previous, token};
    char *before;
    size_t before_size;
    if (previous < 0) return kn_tokenizer_decode(t, &token, 1, piece, size);
    KN_TRY(kn_tokenizer_decode(t, both, 1, &before, &before_size));
    free(before);
    KN_TRY(kn_tokenizer_decode(t, both, 2, piece, size));
    *size -= before_size;
    memmove(*piece, *piece + before_size, *size + 1);
    return KNNLM_OK;
}
