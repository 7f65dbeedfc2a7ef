// What a native model is made of: its shape, its parameters by name, and how they stand in a GGUF file.
//
// The paper's decoder-only, pre-norm Transformer, layer by layer (x: residual stream):
//     x += Wo attention(LN(x) Wqkv + b) + bo;   x += Wdown act(LN(x) Wup + bup) + bdown
// Positions are added to scaled embeddings. Tied embeddings, plain (one band) or adaptive: band i of the
// vocabulary (sorted by frequency) has vectors of width / factor^i and a projection (width, band width) that
// serves the input and, transposed, the output of its cluster; band 0 is read by the softmax without its
// projection, and its cluster has one more class for each further band (as in Baevski & Auli 2019).
//
// Or the Transformer as it is built since (Llama's, Qwen3's): rotary positions, RMSNorm, gated feed-forward,
// norms of queries and keys, no biases, attention over a sliding window; each may be chosen by itself.
//
// Tensors (rows, columns), as gpt2's in llama.cpp; N is the layer, B the band:
//     token_embd.weight (vocabulary, width)            one band
//     token_embd.B.weight (band size, band width), token_proj.B.weight (width, band width),
//     output_class.weight (bands-1, width) position_embd.weight (context, width)            learned positions
//     blk.N.{attn_norm,ffn_norm}.{weight,bias}         blk.N.attn_qkv.{weight (3 width, width),bias}
//     blk.N.attn_output.{weight (width, width),bias}   blk.N.ffn_up.{weight (ffn, width),bias}
//     blk.N.ffn_down.{weight (width, ffn),bias}        output_norm.{weight,bias}  final norm
// Of rotary models attn_qkv stands in three, attn_q, attn_k, attn_v; gated ones have blk.N.ffn_gate.weight
// (ffn, width); norms of queries and keys are blk.N.{attn_q_norm,attn_k_norm}.weight (head width).
#ifndef KN_LM_NATIVE_CONFIG_H
#define KN_LM_NATIVE_CONFIG_H

#include "base/gguf.h"
#include "base/memory.h"

enum { KN_BANDS_MAX = 4, KN_LAYERS_MAX = 256, KN_HEAD_WIDTH_MAX = 1024 }; // of rotary heads

typedef struct kn_config {
    int32_t vocabulary, width, layers, heads, ffn, context;
    knnlm_positions positions;
    knnlm_activation activation;
    knnlm_norm norm;
    bool no_bias;   // neither matrices nor norms have biases (RMSNorm never has)
    bool qk_norm;   // queries and keys are RMS-normalised per head, before they are rotated
    int32_t window; // positions that attention sees, its own included; 0: all of the context
    float rope_base;
    bool final_norm;
    float epsilon;         // of the norms
    float embedding_scale; // embeddings are multiplied by it before positions are added
    int32_t bands;         // 1: plain tied embeddings
    int32_t band_end[KN_BANDS_MAX];
    int32_t band_factor;
} kn_config;

// Presets: tiny, small, base (for CPUs), gpt2 (124M), gpt2-tiny, paper-bpe, wiki103. The vocabulary is still
// to be set by kn_config_set_vocabulary, which drops the bands of adaptive presets that it does not reach.
knnlm_status kn_config_preset(const char *name, kn_config *out);
const char *kn_config_preset_names(void); // "tiny, small, …", for messages
void kn_config_set_vocabulary(kn_config *c, int32_t vocabulary);
knnlm_status kn_config_validate(const kn_config *c, const char *where);
// The name of the architecture under which the model is written: that of llama.cpp's where it is the same
// model ("gpt2", "llama", "qwen3"; a sliding window is ours alone: llama.cpp sees all of its context), else
// "knnlm".
const char *kn_config_architecture(const kn_config *c);

static inline bool kn_config_gated(const kn_config *c) {
    return c->activation == KNNLM_ACTIVATION_SWIGLU;
}
// Columns that the feed-forward part's input matrix has: gate and up side by side where it is gated.
static inline size_t kn_config_hidden(const kn_config *c) {
    return (size_t)c->ffn * (kn_config_gated(c) ? 2 : 1);
}
static inline bool kn_config_norm_bias(const kn_config *c) {
    return c->norm == KNNLM_NORM_LAYER && !c->no_bias;
}
static inline size_t kn_config_head_width(const kn_config *c) {
    return (size_t)(c->width / c->heads);
}
// Positions that attention sees, its own included.
static inline size_t kn_config_window(const kn_config *c) {
    return c->window ? (size_t)c->window : SIZE_MAX;
}
// Which pairs of a head turn together: Llama's files have them side by side, Qwen3's half a head apart.
static inline bool kn_config_adjacent(const kn_config *c) {
    return !c->qk_norm;
}

static inline int32_t kn_band_start(const kn_config *c, int32_t band) {
    return band ? c->band_end[band - 1] : 0;
}
static inline int32_t kn_band_size(const kn_config *c, int32_t band) {
    return c->band_end[band] - kn_band_start(c, band);
}
int32_t kn_band_width(const kn_config *c, int32_t band);
int32_t kn_band_of(const kn_config *c, int32_t token);

// Keys of our own in files that llama.cpp reads too; it passes over them. That the scale is there tells a
// file of ours.
//
// Llama's shape knows no scale of embeddings: in its files the embeddings are multiplied by it and the final
// norm's weight divided, which is the same model. A configuration has the scale, parameters in memory are
// those before folding.
#define KN_KEY_WINDOW "knnlm.attention.window"
#define KN_KEY_CONTEXT "knnlm.context"
#define KN_KEY_SCALE "knnlm.folded_scale"
#define KN_KEY_STEP "knnlm.train.step"
knnlm_status kn_config_load(const kn_gguf *file, kn_config *out);
knnlm_status kn_config_save(const kn_config *c, kn_gguf_writer *file);

// ---------------------------------------------------------------- parameters

// Where each parameter stands in one flat array of floats.
typedef struct kn_param {
    char name[KN_GGUF_NAME_MAX];
    size_t offset, rows, columns; // a vector has rows 1
    bool is_vector;
} kn_param;

typedef struct kn_layer_layout {
    size_t attn_norm_w, attn_norm_b, qkv_w, qkv_b, q_norm, k_norm, out_w, out_b, ffn_norm_w, ffn_norm_b, up_w,
        up_b, down_w, down_b; // up_w: gate and up where there is a gate
} kn_layer_layout;

typedef struct kn_layout {
    kn_param *params;
    size_t count, capacity;
    size_t total; // floats
    size_t embedding[KN_BANDS_MAX], projection[KN_BANDS_MAX], classes, positions, norm_w, norm_b;
    kn_layer_layout *layers;
} kn_layout;

knnlm_status kn_layout_init(const kn_config *c, kn_layout *out);
void kn_layout_free(kn_layout *layout);

// Starting values, from a seed: embeddings N(0, 1/sqrt(band width)) (learned positions and GPT-2: N(0, .02)),
// matrices by Glorot or GPT-2's rule, biases 0, norms 1.
void kn_layout_fill(const kn_config *c, const kn_layout *layout, uint64_t seed, float *params);

// The model file: configuration, tokenizer and weights. `length` is that of the windows it was trained on (0:
// not known); `type` is that of matrices (f32, f16, bf16, q8_0); vectors are f32.
struct kn_tokenizer;
knnlm_status kn_model_save(const char *path, const kn_config *c, const struct kn_tokenizer *tokenizer,
                           int32_t length, const float *params, kn_gguf_type type);
// Tokens of the windows that the model was trained on; the whole context where the file does not say.
knnlm_status kn_model_length(const kn_gguf *file, const kn_config *c, int32_t *length);
// Whether the file's tensors have the scale of embeddings folded in. Those of a checkpoint never have: it
// tells the step of its run.
static inline bool kn_model_folded(const kn_gguf *file) {
    return kn_gguf_has(file, KN_KEY_SCALE) && !kn_gguf_has(file, KN_KEY_STEP);
}
// The tensor of a parameter, its shape checked; KNNLM_EDATA naming it otherwise.
knnlm_status kn_model_tensor(const kn_gguf *file, const kn_param *param, const kn_gguf_tensor **out);
// All of the file's parameters into a flat array of layout->total floats.
knnlm_status kn_model_load_params(const kn_gguf *file, const kn_config *c, const kn_layout *layout,
                                  float *params);

#endif
