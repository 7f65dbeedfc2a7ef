// The forward pass, part by part, over a batch of sequences laid one after another. Inference and training
// call the same parts; training also keeps what the backward pass reads.
#ifndef KN_LM_NATIVE_LAYERS_H
#define KN_LM_NATIVE_LAYERS_H

#include "lm/native/attention.h"
#include "lm/native/weights.h"

// Sequences one after another: sequence s has rows [start[s], start[s+1]); its first row stands at
// position `positions[s]`.
typedef struct kn_batch {
    const int32_t *tokens;
    const size_t *start; // count + 1
    size_t count, rows;
    const size_t *positions; // count; NULL: all at 0
} kn_batch;
static inline size_t kn_batch_position(const kn_batch *b, size_t sequence) {
    return b->positions ? b->positions[sequence] : 0;
}

// Scratch shared by the parts: sized once for the largest batch.
typedef struct kn_scratch {
    const kn_kernels *k;
    size_t rows, workers;
    void *lhs;    // packed left operand of (rows, widest)
    float *panel; // 32 rows of the widest, a worker
    size_t panel_stride;
    void *attention;
    size_t attention_stride;
    kn_attention *sequences;
    size_t sequence_capacity;
} kn_scratch;
knnlm_status kn_scratch_init(const kn_config *c, const kn_kernels *k, size_t rows, size_t keys,
                             kn_scratch *out);
void kn_scratch_free(kn_scratch *s);
// Before every pass: scratch is kept per worker, and threads may have been added since it was made.
knnlm_status kn_scratch_fit(kn_scratch *s);

// What a norm leaves for the backward pass.
typedef struct kn_norm_state {
    float *mean, *inverse; // (rows)
} kn_norm_state;

// x (rows, width) = scale * embedding + position.
knnlm_status kn_embed(const kn_weights *w, const kn_batch *b, kn_scratch *s, float *x);
// scratch lhs = packed norm(x); `copy` (rows, width) gets it too unless NULL; weight NULL: a norm without
// weights.
void kn_norm_pack(const kn_weights *w, kn_scratch *s, const float *x, size_t rows, const float *weight,
                  const float *bias, kn_norm_state state, float *copy);
// One row, by the model's kind of norm, with weights; mean is 0 of a norm that does not take it off.
void kn_norm_row(const kn_weights *w, float *y, const float *x, const float *weight, const float *bias,
                 float *mean, float *inverse);
// out (rows, columns of m) = [out +] scratch lhs . m + bias
void kn_apply(kn_scratch *s, size_t rows, const kn_rhs *m, const float *bias, float *out, bool add);
// scratch lhs = packed x (rows, depth).
void kn_pack_rows(kn_scratch *s, const float *x, size_t ld, size_t rows, size_t depth);
// What placing leaves for the backward pass. NULL: not wanted.
typedef struct kn_heads_state {
    float *raw;     // (rows, 2 width): queries and keys before their norms
    float *inverse; // (rows, 2 heads): of those norms
} kn_heads_state;
// Queries and keys of qkv (rows, 3 width) as attention compares them: normalised where the model does so,
// turned by their positions. Nothing where positions are not rotary.
void kn_place_heads(const kn_weights *w, const kn_layer_weights *l, const kn_batch *b, float *qkv,
                    kn_heads_state state);
// The rotation of a row of a sequence: in the weights' table, or made in `scratch` (head width).
const float *kn_rotation_at(const kn_weights *w, size_t position, float *scratch);

// out (rows, ffn) = act(u), u (rows, hidden), dropped with the given key when probability > 0; row 0 is row
// `first` of the batch.
void kn_activate(const kn_weights *w, float *out, const float *u, size_t rows, size_t first,
                 float probability, uint64_t key);
// scratch lhs = packed act(u), dropped with the given key when probability > 0.
void kn_activate_pack(const kn_weights *w, kn_scratch *s, const float *u, size_t rows, float probability,
                      uint64_t key);

#endif
