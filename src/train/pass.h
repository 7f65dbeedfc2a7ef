// Inside the backward pass: its workspace, and the parts that the files here divide among themselves.
#ifndef KN_TRAIN_PASS_H
#define KN_TRAIN_PASS_H

#include "lm/native/layers.h"
#include "train/gradient.h"

// What the forward pass of a layer keeps.
typedef struct kn_layer_state {
    float *x; // (rows, width): its input
    kn_norm_state attn_norm, ffn_norm;
    float *qkv; // (rows, 3 width): as attention reads them
    kn_heads_state heads;
    float *attended; // (rows, width)
    float *logs;     // (sequences, heads, length)
    float *middle;   // (rows, width): after attention
    float *hidden;   // (rows, hidden): before the activation
} kn_layer_state;

// The matrices of a layer packed the other way round: gradients flow through these.
typedef struct kn_layer_transposed {
    kn_rhs qkv, out, up, down;
} kn_layer_transposed;

struct kn_gradient {
    kn_config config;
    const kn_layout *layout;
    const kn_kernels *k;
    const float *params;
    size_t capacity; // rows
    kn_weights w;
    kn_layer_transposed *transposed;
    kn_rhs classes_t[KN_BANDS_MAX], project_t[KN_BANDS_MAX];
    kn_scratch s;
    kn_layer_state *layers;
    float *last; // (rows, width): output of the last layer
    kn_norm_state last_norm;
    float *final;          // (rows, width): what the softmax reads
    float *dx, *dy, *wide; // gradients: (rows, width) twice, (rows, widest)
    float *wide2;          // (rows, widest): activations recomputed
    float *losses;         // (rows)
    float *logits;         // (KN_HEAD_ROWS, largest cluster)
    void *left, *right;    // packed operands of a weight's gradient
    char *attention;       // scratch of the attention's backward pass, a worker
    size_t attention_stride;
    size_t *starts;

    // the batch at hand
    kn_batch batch;
    size_t length;
    const int32_t *targets;
    const kn_dropout *dropout;
    float scale;
    float *grads;
};

// Rows whose logits are held at a time, and bytes of their packed gradients that wait for the embedding's
// gradient.
enum { KN_HEAD_ROWS = 128, KN_HEAD_BYTES = 128 << 20 };
// Rows that those bytes hold for a cluster of `classes`.
size_t kn_head_group(const kn_kernels *k, size_t classes, size_t capacity);

// A store that hands blocks of a transposed product on as blocks of the product.
typedef struct kn_turned {
    const kn_kernels *k;
    kn_emit *store;
    void *context;
} kn_turned;
kn_emit kn_store_turned;

// Keys of the places where units are dropped.
typedef enum kn_drop_site {
    KN_DROP_EMBEDDING,
    KN_DROP_ATTENTION,
    KN_DROP_ATTENDED,
    KN_DROP_HIDDEN,
    KN_DROP_FED
} kn_drop_site;
uint64_t kn_drop_key(const kn_gradient *g, int32_t layer, kn_drop_site site);
bool kn_drops_rows(const kn_gradient *g); // whether any of those in residual branches are dropped at all
// out (rows, width) = [base +] x dropped as the site has it; the backward pass drops the gradient the same
// way.
void kn_drop_rows(const kn_gradient *g, float *out, const float *base, const float *x, int32_t layer,
                  kn_drop_site site);

// grad (columns of dy, columns of x) += dyT . x, over the rows. `add_to` receives the blocks.
void kn_weight_gradient(kn_gradient *g, const float *dy, size_t n, const float *x, size_t k, size_t rows,
                        kn_emit *store, void *context);
// The same into the flat gradient at `offset`.
void kn_weight_gradient_at(kn_gradient *g, const float *dy, size_t n, const float *x, size_t k,
                           size_t offset);

knnlm_status kn_forward_keep(kn_gradient *g);
knnlm_status kn_backward_head(kn_gradient *g); // fills losses; dx = gradient by the states it read
void kn_backward_final_norm(kn_gradient *g);   // dx: from the softmax's input to the last layer's output
knnlm_status kn_backward_layer(kn_gradient *g, int32_t layer);
void kn_backward_attention(kn_gradient *g, int32_t layer, const float *dattended, float *dqkv);
size_t kn_backward_attention_scratch(const kn_kernels *k, size_t keys, size_t head_width);
// dqkv: from queries and keys as attention reads them to what the matrix gave.
knnlm_status kn_backward_heads(kn_gradient *g, int32_t layer, float *dqkv);
knnlm_status kn_backward_embedding(kn_gradient *g);

#endif
