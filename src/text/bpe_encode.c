// Encodes text by BPE: cached words, short words by scanning pairs, long ones with a heap.
#include "base/utf8.h"
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

// Words met before are answered by a direct-mapped cache of one line per word: no eviction to manage, and the
// frequent words of a language win their slots by being met again. Longer words, and those of more tokens,
// are merged anew.
enum { CACHE_BITS = 16, CACHE_SLOTS = 1 << CACHE_BITS, KEY = 16, KEPT = 11, SHORT = 24 };

typedef struct cached {
    uint64_t key[2]; // the word, zero-padded, its size in the last byte; 0 when free
    int32_t ids[KEPT];
    int32_t count;
} cached;

typedef struct node { // of a long word's list of tokens
    int32_t id, previous, next;
    uint32_t rank; // of the merge with the next one
} node;

typedef struct kn_bpe_scratch {
    struct kn_bpe_scratch *next;
    kn_splitter *splitter;
    cached *cache;
    node *nodes;
    uint64_t *heap; // rank << 32 | node: the lowest rank first, then the leftmost
    size_t node_capacity, heap_capacity, heap_size;
} kn_bpe_scratch;

// ---- lending of scratch memory

void kn_bpe_scratch_free(kn_bpe_scratch *list) {
    while (list) {
        kn_bpe_scratch *next = list->next;
        kn_splitter_close(list->splitter);
        kn_free_aligned(list->cache);
        free(list->nodes);
        free(list->heap);
        free(list);
        list = next;
    }
}

static knnlm_status scratch_make(kn_bpe_scratch **out) {
    kn_bpe_scratch *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    knnlm_status status = kn_splitter_open(&s->splitter);
    if (status == KNNLM_OK && !(s->cache = kn_alloc_aligned(CACHE_SLOTS, sizeof *s->cache)))
        status = KNNLM_ENOMEM;
    if (status != KNNLM_OK) {
        kn_bpe_scratch_free(s);
        return status;
    }
    memset(s->cache, 0, CACHE_SLOTS * sizeof *s->cache);
    *out = s;
    return KNNLM_OK;
}

static knnlm_status scratch_take(kn_bpe *b, kn_bpe_scratch **out) {
    pthread_mutex_lock(&b->lock);
    *out = b->idle;
    if (*out) b->idle = (*out)->next;
    pthread_mutex_unlock(&b->lock);
    return *out ? KNNLM_OK : scratch_make(out);
}

static void scratch_give(kn_bpe *b, kn_bpe_scratch *s) {
    pthread_mutex_lock(&b->lock);
    s->next = b->idle;
    b->idle = s;
    pthread_mutex_unlock(&b->lock);
}

// ---- merging a short word: look at every pair, merge the best, again

static size_t merge_short(const kn_bpe *b, const uint8_t *word, size_t size, int32_t *ids) {
    const kn_bpe_merge *pairs[SHORT];
    size_t n = size;
    for (size_t i = 0; i < n; i++) ids[i] = b->byte_ids[word[i]];
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = kn_bpe_find(&b->table, kn_bpe_pair(ids[i], ids[i + 1]));
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i]->rank < pairs[best]->rank) best = i;
        if (pairs[best]->rank == KN_BPE_NO_RANK) break;
        ids[best] = pairs[best]->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (best + 1 < n) memmove(pairs + best, pairs + best + 1, (n - best - 1) * sizeof *pairs);
        if (best > 0) pairs[best - 1] = kn_bpe_find(&b->table, kn_bpe_pair(ids[best - 1], ids[best]));
        if (best + 1 < n) pairs[best] = kn_bpe_find(&b->table, kn_bpe_pair(ids[best], ids[best + 1]));
    }
    return n;
}

// ---- merging a long word: a list of tokens and a heap of pairs, n log n

static void heap_push(kn_bpe_scratch *s, uint64_t value) {
    size_t i = s->heap_size++;
    for (; i > 0 && s->heap[(i - 1) / 2] > value; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = value;
}

static uint64_t heap_pop(kn_bpe_scratch *s) {
    uint64_t top = s->heap[0], last = s->heap[--s->heap_size];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_size; i = child) {
        if (child + 1 < s->heap_size && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

// Notes the merge of node `i` with the one after it. Entries of the heap that no longer agree are void.
static void rank_pair(const kn_bpe *b, kn_bpe_scratch *s, int32_t i) {
    node *n = &s->nodes[i];
    n->rank =
        n->next < 0 ? KN_BPE_NO_RANK : kn_bpe_find(&b->table, kn_bpe_pair(n->id, s->nodes[n->next].id))->rank;
    if (n->rank != KN_BPE_NO_RANK) heap_push(s, (uint64_t)n->rank << 32 | (uint32_t)i);
}

static void merge_next(const kn_bpe *b, kn_bpe_scratch *s, int32_t i) {
    node *left = &s->nodes[i], *right = &s->nodes[left->next];
    left->id = kn_bpe_find(&b->table, kn_bpe_pair(left->id, right->id))->id;
    right->rank = KN_BPE_NO_RANK;
    left->next = right->next;
    if (left->next >= 0) s->nodes[left->next].previous = i;
    rank_pair(b, s, i);
    if (left->previous >= 0) rank_pair(b, s, left->previous);
}

static knnlm_status merge_long(const kn_bpe *b, kn_bpe_scratch *s, const uint8_t *word, size_t size,
                               int32_t *ids, size_t *count) {
    if (size > INT32_MAX) return kn_fail(KNNLM_ENOTSUP, "a word of %zu bytes is too long", size);
    KN_TRY(kn_grow(&s->nodes, &s->node_capacity, size, sizeof *s->nodes));
    KN_TRY(
        kn_grow(&s->heap, &s->heap_capacity, 3 * size, sizeof *s->heap)); // each merge adds at most two pairs
    s->heap_size = 0;
    int32_t n = (int32_t)size;
    for (int32_t i = 0; i < n; i++)
        s->nodes[i] = (node){.id = b->byte_ids[word[i]], .previous = i - 1, .next = i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i < n; i++) rank_pair(b, s, i);
    while (s->heap_size) {
        uint64_t top = heap_pop(s);
        int32_t i = (int32_t)(uint32_t)top;
        if (s->nodes[i].rank == top >> 32) merge_next(b, s, i);
    }
    *count = 0;
    for (int32_t i = 0; i >= 0; i = s->nodes[i].next) ids[(*count)++] = s->nodes[i].id;
    return KNNLM_OK;
}

// ---- words

// The word as a key; `readable` bytes may be read from `word` on.
static inline void make_key(const char *word, size_t size, size_t readable, uint64_t key[2]) {
    if (readable >= KEY) {
        memcpy(key, word, KEY);
        // shifted in two steps: a shift by 64 has no meaning in C
        key[0] &= size >= 8 ? UINT64_MAX : ~(UINT64_MAX << 8 * size);
        key[1] &= size <= 8 ? 0 : ~(UINT64_MAX << 8 * (size - 8));
    } else {
        key[0] = key[1] = 0;
        memcpy(key, word, size);
    }
    key[1] |= (uint64_t)size << 56;
}

// The top bits of a product are the ones that depend on all of the key.
static inline cached *cache_slot(kn_bpe_scratch *s, const uint64_t key[2]) {
    uint64_t hash = (key[0] ^ (key[1] * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    return &s->cache[hash >> (64 - CACHE_BITS)];
}

// `ids` has room for KEPT tokens whatever the word's size: copying them all beats copying the right number.
static size_t encode_short(const kn_bpe *b, kn_bpe_scratch *s, const char *word, size_t size, size_t readable,
                           int32_t *ids) {
    uint64_t key[2];
    make_key(word, size, readable, key);
    cached *slot = cache_slot(s, key);
    if (slot->key[0] == key[0] && slot->key[1] == key[1]) {
        memcpy(ids, slot->ids, sizeof slot->ids);
        return (size_t)slot->count;
    }
    size_t count = merge_short(b, (const uint8_t *)word, size, ids);
    if (count <= KEPT) {
        memcpy(slot->key, key, sizeof key);
        memcpy(slot->ids, ids, count * sizeof *ids);
        slot->count = (int32_t)count;
    }
    return count;
}

static void fill_offsets(const kn_bpe *b, kn_tokens *out, size_t count, uint64_t offset) {
    for (size_t i = out->count; i < out->count + count; i++) {
        out->offsets[i] = offset;
        offset += kn_strings_size(&b->raw, (size_t)out->ids[i]);
    }
}

// `readable` bytes may be read from `word` on; at least `size`.
static knnlm_status encode_word(const kn_bpe *b, kn_bpe_scratch *s, const char *word, size_t size,
                                size_t readable, uint64_t offset, kn_tokens *out) {
    KN_TRY(kn_tokens_reserve(out, size + KEPT));
    int32_t *ids = out->ids + out->count;
    size_t count = 0;
    if (size < KEY)
        count = encode_short(b, s, word, size, readable, ids);
    else if (size <= SHORT)
        count = merge_short(b, (const uint8_t *)word, size, ids);
    else
        KN_TRY(merge_long(b, s, (const uint8_t *)word, size, ids, &count));
    if (out->with_offsets) fill_offsets(b, out, count, offset);
    out->count += count;
    return KNNLM_OK;
}

// [at, end) is UTF-8.
static knnlm_status encode_utf8(const kn_bpe *b, kn_bpe_scratch *s, const char *text, size_t at, size_t end,
                                kn_tokens *out) {
    const char *part = text + at;
    size_t size = end - at;
    for (size_t from = 0, to; from < size; from = to) {
        KN_TRY(kn_splitter_next(s->splitter, part, size, from, &to));
        KN_TRY(encode_word(b, s, part + from, to - from, size - from, at + from, out));
    }
    return KNNLM_OK;
}

static size_t invalid_run(const char *text, size_t size) {
    uint32_t c;
    size_t n = 0;
    while (n < size && !kn_utf8_decode(text + n, size - n, &c)) n++;
    return n;
}

// Bytes that are not UTF-8 are words of their own between the parts that are.
static knnlm_status encode_bytes(const kn_bpe *b, kn_bpe_scratch *s, const char *text, size_t size,
                                 kn_tokens *out) {
    for (size_t at = 0; at < size;) {
        size_t valid = kn_utf8_valid(text + at, size - at);
        KN_TRY(encode_utf8(b, s, text, at, at + valid, out));
        at += valid;
        size_t invalid = invalid_run(text + at, size - at);
        if (invalid) KN_TRY(encode_word(b, s, text + at, invalid, size - at, at, out));
        at += invalid;
    }
    return KNNLM_OK;
}

knnlm_status kn_bpe_encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out) {
    kn_bpe *b = (kn_bpe *)(uintptr_t)t; // only its idle scratch memory changes, under its lock
    kn_bpe_scratch *s;
    KN_TRY(scratch_take(b, &s));
    knnlm_status status = encode_bytes(b, s, text, size, out);
    scratch_give(b, s);
    return status;
}
