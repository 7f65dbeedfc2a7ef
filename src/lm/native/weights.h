// The weights of a native model as the forward pass reads them: matrices packed, vectors in f32.
#ifndef KN_LM_NATIVE_WEIGHTS_H
#define KN_LM_NATIVE_WEIGHTS_H

#include "lm/native/config.h"
#include "math/math.h"

typedef struct kn_layer_weights {
    // NULL: the model has none
    const float *attn_norm_w, *attn_norm_b, *qkv_b, *q_norm, *k_norm, *out_b, *ffn_norm_w, *ffn_norm_b, *up_b,
        *down_b;
    kn_rhs qkv, out, up, down;
} kn_layer_weights;

typedef struct kn_weights {
    kn_config config;
    const kn_kernels *k;
    kn_layer_weights *layers;
    const float *norm_w, *norm_b; // final norm
    const float *positions;       // (context, width); NULL: they are rotary
    const float *rotations;       // (rotation_count, head width): cosines, then sines; NULL: they are not
    size_t rotation_count;        // positions; beyond them kn_rotation_fill
    double *frequencies;          // (head width / 2): the angle that a pair of a head turns by per position
    kn_rhs project[KN_BANDS_MAX]; // band embedding -> width (adaptive)
    kn_rhs reduce[KN_BANDS_MAX];  // width -> band width (adaptive, bands above 0)
    kn_rhs
        classes[KN_BANDS_MAX]; // the softmax of a cluster: its words, and in cluster 0 a class a further band
    const float *embedding[KN_BANDS_MAX];       // rows of the embedding in memory (training), or else
    const kn_gguf_tensor *stored[KN_BANDS_MAX]; // in the file (inference: rows are few, memory is dear)
    float *owned_vectors, *owned_positions;     // positions or rotations
} kn_weights;

// Makes room for every packed matrix. Values come by one of the two functions below.
knnlm_status kn_weights_init(const kn_config *c, const kn_kernels *k, kn_weights *out);
void kn_weights_free(kn_weights *w);
// From a flat array, which must stay: vectors and embeddings are read in place.
void kn_weights_set(kn_weights *w, const kn_layout *layout, const float *params);
// From a file, which must stay open; one matrix at a time is in memory unpacked.
knnlm_status kn_weights_load(kn_weights *w, const kn_layout *layout, const kn_gguf *file);

// Cosines, then sines, of the angles by which the pairs of a head turn at a position: head width of them.
void kn_rotation_fill(const kn_weights *w, size_t position, float *out);

// Row `token` of its band's embedding, `width of the band` floats.
void kn_weights_embedding(const kn_weights *w, int32_t token, float *out);

// Number of classes in the softmax of a band's cluster.
static inline size_t kn_cluster_size(const kn_config *c, int32_t band) {
    return (size_t)kn_band_size(c, band) + (band == 0 ? (size_t)c->bands - 1 : 0);
}

#endif
