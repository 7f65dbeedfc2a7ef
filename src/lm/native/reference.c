// The forward pass in plain loops: read this first, then layers.c, attention.c and head.c, which compute the
// same on packed blocks.
//
// Letters: T tokens, d width, h = d / heads, f width of the feed-forward part, V vocabulary. A matrix (m, n)
// is m rows of n. Products, norms, softmaxes, embeddings and positions are in reference_parts.c.
#include "lm/native/reference_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct room { // one window's
    const kn_reference *r;
    int length;
    double *taps;
    double *x;              // (T, d): the residual stream, to which every part of a layer adds
    double *qkv;            // (T, 3 d): queries, keys, values
    double *weights;        // (T): of attention
    double *state, *change; // (d)
    double *up, *gate;      // (f)
} room;

static void norm(const room *o, int layer, const char *name, const double *x, double *y) {
    const kn_config *c = o->r->config;
    kn_reference_norm(c->norm, y, x, kn_reference_param(o->r, "blk.%d.%s.weight", layer, name),
                      kn_reference_param(o->r, "blk.%d.%s.bias", layer, name), c->width, c->epsilon);
}

static void linear(const room *o, int layer, const char *name, const double *x, double *y, int m, int n) {
    kn_reference_product(y, kn_reference_param(o->r, "blk.%d.%s.weight", layer, name), x,
                         kn_reference_param(o->r, "blk.%d.%s.bias", layer, name), m, n);
}

static void tap(const room *o, int layer, kn_tap_point point, int t, const double *state) {
    size_t d = (size_t)o->r->config->width, at = (size_t)layer * KN_TAP_POINTS + point;
    if (o->taps) memcpy(o->taps + (at * (size_t)o->length + (size_t)t) * d, state, d * sizeof *state);
}

// out (d): each head of position t looks back: the sum over s <= t of softmax_s(q_t . k_s / sqrt(h)) v_s
static void attend(const room *o, int t, double *out) {
    const kn_config *c = o->r->config;
    size_t d = (size_t)c->width, h = d / (size_t)c->heads;
    int first = c->window && t >= c->window ? t - c->window + 1 : 0; // a sliding window, or all
    memset(out, 0, d * sizeof *out);
    for (size_t head = 0; head < d; head += h) {
        const double *q = o->qkv + (size_t)t * 3 * d + head;
        for (int s = first; s <= t; s++) {
            const double *k = o->qkv + (size_t)s * 3 * d + d + head;
            o->weights[s] = 0;
            for (size_t i = 0; i < h; i++) o->weights[s] += q[i] * k[i];
            o->weights[s] /= sqrt((double)h);
        }
        kn_reference_log_softmax(o->weights + first, t + 1 - first);
        for (int s = first; s <= t; s++) {
            const double *v = o->qkv + (size_t)s * 3 * d + 2 * d + head;
            for (size_t i = 0; i < h; i++) out[head + i] += exp(o->weights[s]) * v[i];
        }
    }
}

// qkv (3 d) of one position, from its normed state. Rotary models have three matrices for one.
static void project(const room *o, int layer, int t, double *qkv) {
    int d = o->r->config->width;
    if (o->r->config->positions == KNNLM_POSITIONS_ROTARY) {
        linear(o, layer, "attn_q", o->state, qkv, d, d);
        linear(o, layer, "attn_k", o->state, qkv + d, d, d);
        linear(o, layer, "attn_v", o->state, qkv + 2 * d, d, d);
        kn_reference_place(o->r, layer, t, qkv, qkv + d);
    } else {
        linear(o, layer, "attn_qkv", o->state, qkv, 3 * d, d);
    }
}

// x (T, d) += Wo attention(Wqkv norm(x))
static void attention_part(const room *o, int layer) {
    int d = o->r->config->width;
    for (int t = 0; t < o->length; t++) {
        double *x = o->x + (size_t)t * (size_t)d;
        tap(o, layer, KN_TAP_ATTENTION_RAW, t, x);
        norm(o, layer, "attn_norm", x, o->state);
        tap(o, layer, KN_TAP_ATTENTION, t, o->state);
        project(o, layer, t, o->qkv + (size_t)t * 3 * (size_t)d);
    }
    for (int t = 0; t < o->length; t++) {
        attend(o, t, o->state);
        linear(o, layer, "attn_output", o->state, o->change, d, d);
        for (int i = 0; i < d; i++) o->x[(size_t)t * (size_t)d + (size_t)i] += o->change[i];
    }
}

// x (T, d) += Wdown act(Wup norm(x)); a gated one: Wdown (Wup norm(x) * act(Wgate norm(x)))
static void ffn_part(const room *o, int layer) {
    const kn_config *c = o->r->config;
    int d = c->width, f = c->ffn;
    bool gated = c->activation == KNNLM_ACTIVATION_SWIGLU;
    for (int t = 0; t < o->length; t++) {
        double *x = o->x + (size_t)t * (size_t)d;
        tap(o, layer, KN_TAP_FFN_INPUT_RAW, t, x);
        norm(o, layer, "ffn_norm", x, o->state);
        tap(o, layer, KN_TAP_FFN_INPUT, t, o->state);
        linear(o, layer, "ffn_up", o->state, o->up, f, d);
        if (gated) linear(o, layer, "ffn_gate", o->state, o->gate, f, d);
        for (int i = 0; i < f; i++) {
            double active = kn_reference_activation(c->activation, gated ? o->gate[i] : o->up[i]);
            o->up[i] = gated ? o->up[i] * active : active;
        }
        linear(o, layer, "ffn_down", o->up, o->change, d, f);
        for (int i = 0; i < d; i++) x[i] += o->change[i];
        tap(o, layer, KN_TAP_OUTPUT, t, x);
    }
}

// The norm that follows a layer: the next layer's, or the final one.
static void output_norm(const room *o, int layer, const double *x, double *y) {
    const kn_config *c = o->r->config;
    if (layer + 1 < c->layers)
        norm(o, layer + 1, "attn_norm", x, y);
    else
        kn_reference_norm(c->norm, y, x, kn_reference_param(o->r, "output_norm.weight"),
                          kn_reference_param(o->r, "output_norm.bias"), c->width, c->epsilon);
}

static void forward(const room *o, const int32_t *tokens, double *logprobs) {
    const kn_config *c = o->r->config;
    size_t d = (size_t)c->width, v = (size_t)c->vocabulary;
    for (int t = 0; t < o->length; t++) kn_reference_embed(o->r, tokens[t], t, o->x + (size_t)t * d);
    for (int layer = 0; layer < c->layers; layer++) {
        attention_part(o, layer);
        ffn_part(o, layer);
        for (int t = 0; t < o->length; t++) {
            output_norm(o, layer, o->x + (size_t)t * d, o->state);
            tap(o, layer, KN_TAP_OUTPUT_NORM, t, o->state);
        }
    }
    for (int t = 0; logprobs && t < o->length; t++) {
        const double *x = o->x + (size_t)t * d;
        if (c->final_norm) output_norm(o, c->layers - 1, x, o->state);
        kn_reference_predict(o->r, c->final_norm ? o->state : x, o->change, logprobs + (size_t)t * v);
    }
}

knnlm_status kn_reference_run(const kn_reference *r, const int32_t *tokens, int length, double *logprobs,
                              double *taps) {
    size_t n = (size_t)length, d = (size_t)r->config->width, f = (size_t)r->config->ffn;
    double *memory = kn_alloc(n * (4 * d + 1) + 2 * d + 2 * f, sizeof *memory);
    if (!memory) return KNNLM_ENOMEM;
    room o = {.r = r, .length = length, .taps = taps, .x = memory};
    o.qkv = o.x + n * d;
    o.weights = o.qkv + n * 3 * d;
    o.state = o.weights + n;
    o.change = o.state + d;
    o.up = o.change + d;
    o.gate = o.up + f;
    forward(&o, tokens, logprobs);
    free(memory);
    return KNNLM_OK;
}

knnlm_status kn_reference_loss(const kn_reference *r, const int32_t *inputs, const int32_t *targets,
                               int length, double *loss) {
    size_t v = (size_t)r->config->vocabulary;
    double *logprobs = kn_alloc((size_t)length * v, sizeof *logprobs);
    knnlm_status status = logprobs ? kn_reference_run(r, inputs, length, logprobs, NULL) : KNNLM_ENOMEM;
    *loss = 0;
    for (int t = 0; status == KNNLM_OK && t < length; t++)
        *loss -= logprobs[(size_t)t * v + (size_t)targets[t]];
    free(logprobs);
    return status;
}
