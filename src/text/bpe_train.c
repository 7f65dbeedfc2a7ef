// Byte pair encoding's training: merge the most frequent pair of neighbours, again and again. Counts are kept
// up to date by visiting only the words that hold the merged pair; a heap finds the next pair. Between pairs
// of equal count the smaller ids win, so the result depends on the text alone.
#include "text/bpe.h"
#include "text/bpe_alphabet.h"
#include "text/bpe_count.h"

#include <stdlib.h>
#include <string.h>

enum { ALPHABET = 256, MERGES_A_REPORT = 256 };

typedef struct word {
    size_t start; // of its tokens
    uint32_t size;
    uint64_t count;
} word;

typedef struct pair {
    uint64_t key; // kn_bpe_pair
    int64_t count;
    uint32_t *words; // that hold it, or once held it; one may be named twice
    size_t word_count, word_capacity;
} pair;

typedef struct candidate {
    int64_t count; // may be more than the pair's count by now, never less
    uint64_t key;
} candidate;

typedef struct trainer {
    word *words;
    size_t word_count;
    int32_t *tokens;
    pair *pairs;
    size_t pair_count, pair_capacity, queued; // the first `queued` pairs have been in the heap
    uint32_t *slots;                          // pair number + 1
    size_t slot_count;
    candidate *heap;
    size_t heap_size, heap_capacity;
    kn_bpe_parts parts;
} trainer;

// ---- the heap

static bool before(const candidate *a, const candidate *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static knnlm_status heap_push(trainer *t, candidate c) {
    KN_TRY(kn_grow(&t->heap, &t->heap_capacity, t->heap_size + 1, sizeof *t->heap));
    size_t i = t->heap_size++;
    for (; i > 0 && before(&c, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
    return KNNLM_OK;
}

static candidate heap_pop(trainer *t) {
    candidate top = t->heap[0], last = t->heap[--t->heap_size];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap_size; i = child) {
        if (child + 1 < t->heap_size && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

// ---- pairs

static size_t slot_of(const trainer *t, uint64_t key) {
    size_t mask = t->slot_count - 1, i = (key * 0x9E3779B97F4A7C15u) >> 24 & mask;
    while (t->slots[i] && t->pairs[t->slots[i] - 1].key != key) i = (i + 1) & mask;
    return i;
}

static knnlm_status rehash(trainer *t) {
    size_t count = t->slot_count ? t->slot_count * 2 : 1 << 16;
    uint32_t *slots = kn_alloc(count, sizeof *slots);
    if (!slots) return KNNLM_ENOMEM;
    free(t->slots);
    t->slots = slots;
    t->slot_count = count;
    for (size_t i = 0; i < t->pair_count; i++) slots[slot_of(t, t->pairs[i].key)] = (uint32_t)i + 1;
    return KNNLM_OK;
}

static knnlm_status find_pair(trainer *t, uint64_t key, pair **out) {
    if (t->pair_count >= t->slot_count / 2) KN_TRY(rehash(t));
    size_t slot = slot_of(t, key);
    if (!t->slots[slot]) {
        if (t->pair_count >= UINT32_MAX - 1) return kn_fail(KNNLM_ENOTSUP, "too many pairs of tokens");
        KN_TRY(kn_grow(&t->pairs, &t->pair_capacity, t->pair_count + 1, sizeof *t->pairs));
        t->pairs[t->pair_count++] = (pair){.key = key};
        t->slots[slot] = (uint32_t)t->pair_count;
    }
    *out = &t->pairs[t->slots[slot] - 1];
    return KNNLM_OK;
}

// A pair that the heap knows may gain when its token is made a second time, of other parts:
// the heap is told at once.
static knnlm_status pair_gain(trainer *t, int32_t left, int32_t right, size_t w) {
    pair *p = NULL;
    KN_TRY(find_pair(t, kn_bpe_pair(left, right), &p));
    p->count += (int64_t)t->words[w].count;
    if (p < t->pairs + t->queued) KN_TRY(heap_push(t, (candidate){p->count, p->key}));
    if (p->word_count && p->words[p->word_count - 1] == w) return KNNLM_OK;
    KN_TRY(kn_grow(&p->words, &p->word_capacity, p->word_count + 1, sizeof *p->words));
    p->words[p->word_count++] = (uint32_t)w;
    return KNNLM_OK;
}

static void pair_lose(trainer *t, int32_t left, int32_t right, size_t w) {
    t->pairs[t->slots[slot_of(t, kn_bpe_pair(left, right))] - 1].count -= (int64_t)t->words[w].count;
}

// The most frequent pair; NULL when none occurs twice.
static knnlm_status best_pair(trainer *t, pair **out) {
    *out = NULL;
    while (t->heap_size) {
        candidate top = heap_pop(t);
        pair *p = &t->pairs[t->slots[slot_of(t, top.key)] - 1];
        if (p->count < 2) continue;
        if (p->count == top.count) {
            *out = p;
            return KNNLM_OK;
        }
        KN_TRY(heap_push(t, (candidate){p->count, p->key}));
    }
    return KNNLM_OK;
}

// ---- merging

static knnlm_status queue_new(trainer *t) {
    for (; t->queued < t->pair_count; t->queued++) {
        const pair *p = &t->pairs[t->queued];
        if (p->count > 1) KN_TRY(heap_push(t, (candidate){p->count, p->key}));
    }
    return KNNLM_OK;
}

// Replaces left, right by `made` all over the word and moves the counts of the pairs around them.
static knnlm_status merge_word(trainer *t, size_t w, int32_t left, int32_t right, int32_t made) {
    int32_t *tokens = t->tokens + t->words[w].start;
    uint32_t size = t->words[w].size, n = 0;
    for (uint32_t i = 0; i < size; n++) {
        if (i + 1 >= size || tokens[i] != left || tokens[i + 1] != right) {
            tokens[n] = tokens[i++];
            continue;
        }
        pair_lose(t, left, right, w);
        if (n > 0) {
            pair_lose(t, tokens[n - 1], left, w);
            KN_TRY(pair_gain(t, tokens[n - 1], made, w));
        }
        if (i + 2 < size) {
            pair_lose(t, right, tokens[i + 2], w);
            KN_TRY(pair_gain(t, made, tokens[i + 2], w));
        }
        tokens[n] = made;
        i += 2;
    }
    t->words[w].size = n;
    return KNNLM_OK;
}

static knnlm_status merge_pair(trainer *t, const pair *best, int32_t made) {
    int32_t left = (int32_t)(best->key >> 32), right = (int32_t)(uint32_t)best->key;
    uint32_t *words = best->words;
    size_t count = best->word_count;
    for (size_t i = 0; i < count; i++) KN_TRY(merge_word(t, words[i], left, right, made)); // `best` may move
    pair *done = &t->pairs[t->slots[slot_of(t, kn_bpe_pair(left, right))] - 1];
    free(done->words);
    done->words = NULL;
    done->word_count = done->word_capacity = 0;
    return queue_new(t);
}

// The token made of two; it may exist already, made of two others.
static knnlm_status add_token(trainer *t, uint64_t key, int32_t *id) {
    const kn_strings *pieces = &t->parts.vocab.strings;
    kn_buffer joined = {0};
    size_t ids[2] = {(size_t)(key >> 32), (size_t)(uint32_t)key};
    knnlm_status status = KNNLM_OK;
    for (int i = 0; i < 2 && status == KNNLM_OK; i++)
        status = kn_buffer_put(&joined, kn_strings_at(pieces, ids[i]), kn_strings_size(pieces, ids[i]));
    if (status == KNNLM_OK)
        status = kn_bpe_parts_merge(&t->parts, kn_strings_at(pieces, ids[0]), kn_strings_size(pieces, ids[0]),
                                    kn_strings_at(pieces, ids[1]), kn_strings_size(pieces, ids[1]));
    if (status == KNNLM_OK) {
        *id = kn_vocab_find(&t->parts.vocab, joined.data, joined.size);
        if (*id < 0) status = kn_bpe_parts_token(&t->parts, joined.data, joined.size, KN_TOKEN_NORMAL);
        if (*id < 0) *id = kn_vocab_count(&t->parts.vocab) - 1;
    }
    free(joined.data);
    return status;
}

static knnlm_status merge_until(trainer *t, int32_t size, const kn_progress *progress) {
    for (int32_t have; (have = kn_vocab_count(&t->parts.vocab)) < size;) {
        if (have % MERGES_A_REPORT == 0 &&
            !kn_progress_report(progress, "merging pairs", (uint64_t)have, (uint64_t)size, "tokens"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while merging pairs");
        pair *best;
        int32_t made;
        KN_TRY(best_pair(t, &best));
        if (!best) break;
        KN_TRY(add_token(t, best->key, &made));
        KN_TRY(merge_pair(t, best, made));
    }
    kn_progress_report(progress, "merging pairs", (uint64_t)kn_vocab_count(&t->parts.vocab), (uint64_t)size,
                       "tokens");
    return KNNLM_OK;
}

// ---- preparation

static knnlm_status add_alphabet(trainer *t) {
    for (int n = 0; n < ALPHABET; n++) {
        char piece[4];
        size_t size = kn_alphabet_encode(kn_alphabet_byte(n), piece);
        KN_TRY(kn_bpe_parts_token(&t->parts, piece, size, KN_TOKEN_NORMAL));
    }
    return KNNLM_OK;
}

static knnlm_status add_words(trainer *t, const kn_counts *counts) {
    const kn_strings *words = &counts->words.strings;
    int32_t ids[ALPHABET];
    for (int n = 0; n < ALPHABET; n++) ids[kn_alphabet_byte(n)] = n;
    t->words = kn_alloc(words->count, sizeof *t->words);
    t->tokens = kn_alloc(words->used, sizeof *t->tokens);
    if (!t->words || !t->tokens) return KNNLM_ENOMEM;
    for (size_t w = 0, used = 0; w < words->count; w++) {
        size_t size = kn_strings_size(words, w);
        if (size > UINT32_MAX) return kn_fail(KNNLM_ENOTSUP, "a word of %zu bytes is too long", size);
        t->words[w] = (word){.start = used, .size = (uint32_t)size, .count = counts->counts[w]};
        for (size_t i = 0; i < size; i++) t->tokens[used++] = ids[(uint8_t)kn_strings_at(words, w)[i]];
    }
    t->word_count = words->count;
    return KNNLM_OK;
}

static knnlm_status add_pairs(trainer *t) {
    for (size_t w = 0; w < t->word_count; w++) {
        const int32_t *tokens = t->tokens + t->words[w].start;
        for (uint32_t i = 0; i + 1 < t->words[w].size; i++) KN_TRY(pair_gain(t, tokens[i], tokens[i + 1], w));
    }
    return queue_new(t);
}

static knnlm_status prepare(trainer *t, const char *text, size_t bytes, const kn_progress *progress) {
    kn_counts counts = {0};
    knnlm_status status = kn_bpe_count(text, bytes, progress, &counts);
    if (status == KNNLM_OK) status = add_words(t, &counts);
    kn_counts_free(&counts);
    KN_TRY(status);
    KN_TRY(add_alphabet(t));
    return add_pairs(t);
}

static void trainer_free(trainer *t) {
    for (size_t i = 0; i < t->pair_count; i++) free(t->pairs[i].words);
    free(t->words);
    free(t->tokens);
    free(t->pairs);
    free(t->slots);
    free(t->heap);
    kn_bpe_parts_free(&t->parts);
}

static knnlm_status train(trainer *t, int32_t size, const char *text, size_t bytes,
                          const kn_progress *progress, kn_tokenizer **out) {
    KN_TRY(prepare(t, text, bytes, progress));
    KN_TRY(merge_until(t, size - 1, progress));
    KN_TRY(kn_bpe_parts_token(&t->parts, KN_BPE_END, strlen(KN_BPE_END), KN_TOKEN_CONTROL));
    t->parts.start = kn_vocab_count(&t->parts.vocab) - 1;
    return kn_bpe_make(&t->parts, out);
}

knnlm_status kn_bpe_train(int32_t size, const char *text, size_t bytes, const kn_progress *progress,
                          kn_tokenizer **out) {
    if (size <= ALPHABET)
        return kn_fail(KNNLM_EINVAL, "a byte-level vocabulary needs at least %d tokens, not %d", ALPHABET + 1,
                       size);
    if (!bytes) return kn_fail(KNNLM_EINVAL, "no text to train a tokenizer on");
    trainer t = {0};
    knnlm_status status = train(&t, size, text, bytes, progress, out);
    trainer_free(&t);
    return status;
}
