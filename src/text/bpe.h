// Byte-level BPE: what its encoder, its maker and its reader of files share.
#ifndef KN_TEXT_BPE_H
#define KN_TEXT_BPE_H

#include "text/split.h"
#include "text/tokenizer_kinds.h"

#include <pthread.h>

typedef struct kn_bpe_merge {
    uint64_t pair; // kn_bpe_pair of the two tokens; NO_PAIR when the slot is free
    uint32_t rank;
    int32_t id; // what they become
} kn_bpe_merge;

#define KN_BPE_NO_PAIR UINT64_MAX
#define KN_BPE_NO_RANK UINT32_MAX

static inline uint64_t kn_bpe_pair(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

// Pairs to merges: open addressing, power of two, at most half full.
typedef struct kn_bpe_table {
    kn_bpe_merge *slots;
    size_t mask;
} kn_bpe_table;

static inline const kn_bpe_merge *kn_bpe_find(const kn_bpe_table *t, uint64_t pair) {
    for (size_t i = (pair * 0x9E3779B97F4A7C15u) >> 32 & t->mask;; i = (i + 1) & t->mask)
        if (t->slots[i].pair == pair || t->slots[i].pair == KN_BPE_NO_PAIR) return &t->slots[i];
}

struct kn_bpe_scratch;

typedef struct kn_bpe {
    kn_tokenizer base;
    kn_strings raw; // the bytes of each token
    int32_t *types;
    int32_t (*merges)[2]; // by rank, for saving
    size_t merge_count;
    int32_t byte_ids[256];
    kn_bpe_table table;
    // Scratch memory and caches of the encoder, lent to one call at a time and kept warm between calls.
    pthread_mutex_t lock;
    struct kn_bpe_scratch *idle;
} kn_bpe;

knnlm_status kn_bpe_encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out);
void kn_bpe_scratch_free(struct kn_bpe_scratch *list);

#endif
