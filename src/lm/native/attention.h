// Causal self-attention, in blocks of 32 queries: never a (length, length) matrix in memory.
#ifndef KN_LM_NATIVE_ATTENTION_H
#define KN_LM_NATIVE_ATTENTION_H

#include "base/random.h"
#include "math/math.h"

// One sequence: `queries` rows that stand at the end of `keys` positions. Rows have stride ld*, heads stand
// side by side.
typedef struct kn_attention {
    const float *q, *k, *v;
    float *out;
    size_t ldq, ldk, ldo;
    size_t queries, keys;
    size_t window; // keys that a query sees, its own included; SIZE_MAX: all before it
    size_t from;   // queries below it are not wanted
    // Keys and values of positions before those at k and v, counted in `keys` too: a multiple of 32 of them.
    const float *past_k, *past_v;
    size_t past, ldpast;
    float *logs; // (heads, queries): log of the softmax's sum, for the backward pass; NULL: not wanted
} kn_attention;

// Dropout of attention weights: unit (head, query, key) of a sequence by its key; probability 0: none.
typedef struct kn_attention_dropout {
    float probability;
    uint64_t key;
} kn_attention_dropout;

// Per-worker scratch for sequences of up to `keys` positions.
size_t kn_attention_scratch(const kn_kernels *k, size_t keys, size_t head_width);

// All heads of all sequences, spread over the pool; `scratch` has kn_attention_scratch bytes per worker,
// 64-aligned.
void kn_attention_run(const kn_kernels *k, const kn_attention *sequences, size_t count, size_t heads,
                      size_t head_width, const kn_attention_dropout *dropout, void *scratch,
                      size_t scratch_stride);

// The key that decides which attention weights of one head are dropped.
static inline uint64_t kn_attention_dropout_key(uint64_t key, size_t sequence, size_t head) {
    return kn_mix64(key + (uint64_t)sequence * 0x9e3779b97f4a7c15u + head);
}
// Drops weights of `rows` queries from `query` on, laid out in blocks of 32 keys.
void kn_attention_drop(const kn_kernels *k, float *weights, size_t blocks, size_t rows, size_t query,
                       float probability, uint64_t head_key);

#endif
