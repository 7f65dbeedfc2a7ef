// The native model a second time, as plainly as it can be put: f64, loops, one position at a time. It judges
// the library, so it takes from it nothing but the configuration and the names of the parameters.
#ifndef REFERENCE_MODEL_H
#define REFERENCE_MODEL_H

#include "lm/lm.h"
#include "lm/native/config.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFERENCE_TAPS = 6 };

typedef struct reference {
    const kn_config *config;
    const kn_layout *layout;
    const double *params; // as the layout places them
} reference;

// What a run leaves. Any pointer may be NULL.
typedef struct reference_output {
    double *distribution; // (length, vocabulary): log-probabilities
    double *taps;         // (layers, REFERENCE_TAPS, length, width), by kn_tap_point
} reference_output;

static inline double *reference_alloc(size_t count) {
    double *memory = calloc(count ? count : 1, sizeof *memory);
    assert(memory);
    return memory;
}

__attribute__((format(printf, 2, 3))) static inline const double *reference_param(const reference *r,
                                                                                  const char *format, ...) {
    char name[KN_GGUF_NAME_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (size_t i = 0; i < r->layout->count; i++)
        if (strcmp(r->layout->params[i].name, name) == 0) return r->params + r->layout->params[i].offset;
    fprintf(stderr, "reference model: no parameter %s\n", name);
    abort();
}

// ---------------------------------------------------------------- pieces

// y (rows) = w (rows, columns) x [+ bias]
static inline void reference_product(double *y, const double *w, const double *x, const double *bias,
                                     int rows, int columns) {
    for (int i = 0; i < rows; i++) {
        double sum = bias ? bias[i] : 0;
        for (int j = 0; j < columns; j++) sum += w[(size_t)i * (size_t)columns + (size_t)j] * x[j];
        y[i] = sum;
    }
}

// LayerNorm, or RMSNorm, which takes no mean off.
static inline void reference_norm(knnlm_norm kind, double *y, const double *x, const double *weight,
                                  const double *bias, int n, double epsilon) {
    double mean = 0, variance = 0;
    for (int i = 0; i < n && kind == KNNLM_NORM_LAYER; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(variance + epsilon);
        if (weight) y[i] *= weight[i];
        if (bias) y[i] += bias[i];
    }
}

// Turns n logits into log-probabilities, in place.
static inline void reference_log_softmax(double *x, int n) {
    double top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = fmax(top, x[i]);
    for (int i = 0; i < n; i++) sum += exp(x[i] - top);
    for (int i = 0; i < n; i++) x[i] -= top + log(sum);
}

// Of a gated one, that of the gate.
static inline double reference_activation(knnlm_activation kind, double x) {
    if (kind == KNNLM_ACTIVATION_RELU) return x > 0 ? x : 0;
    if (kind == KNNLM_ACTIVATION_RELU2) return x > 0 ? x * x : 0;
    if (kind == KNNLM_ACTIVATION_SWIGLU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static inline int reference_band(const kn_config *c, int token) {
    int band = 0;
    while (token >= c->band_end[band]) band++;
    return band;
}

static inline int reference_band_start(const kn_config *c, int band) {
    return band > 0 ? c->band_end[band - 1] : 0;
}

static inline int reference_band_width(const kn_config *c, int band) {
    return c->width / (int)lround(pow(c->band_factor, band));
}

// ---------------------------------------------------------------- input

static inline double reference_sinusoid(const kn_config *c, int position, int i) {
    int half = c->width / 2;
    double angle = position * pow(10000.0, -(double)(i % half) / (half - 1));
    return i < half ? sin(angle) : cos(angle);
}

static inline void reference_embed(const reference *r, int token, int position, double *x) {
    const kn_config *c = r->config;
    int d = c->width;
    bool learned = c->positions == KNNLM_POSITIONS_LEARNED, rotary = c->positions == KNNLM_POSITIONS_ROTARY;
    const double *positions =
        learned ? reference_param(r, "position_embd.weight") + (size_t)position * (size_t)d : NULL;
    if (c->bands == 1) {
        memcpy(x, reference_param(r, "token_embd.weight") + (size_t)token * (size_t)d, (size_t)d * sizeof *x);
    } else {
        int band = reference_band(c, token), width = reference_band_width(c, band);
        size_t row = (size_t)(token - reference_band_start(c, band));
        const double *vector = reference_param(r, "token_embd.%d.weight", band) + row * (size_t)width;
        reference_product(x, reference_param(r, "token_proj.%d.weight", band), vector, NULL, d, width);
    }
    for (int i = 0; i < d; i++)
        x[i] = x[i] * c->embedding_scale + (learned  ? positions[i]
                                            : rotary ? 0
                                                     : reference_sinusoid(c, position, i));
}

// ---------------------------------------------------------------- layers

// Position `at` looks back over qkv (positions, 3 width); out (width).
static inline void reference_attend(const kn_config *c, const double *qkv, int at, double *weights,
                                    double *out) {
    size_t d = (size_t)c->width, h = d / (size_t)c->heads;
    int first = c->window && at >= c->window ? at - c->window + 1 : 0;
    for (size_t head = 0; head < (size_t)c->heads; head++) {
        const double *q = qkv + (size_t)at * 3 * d + head * h;
        for (int t = first; t <= at; t++) {
            const double *k = qkv + (size_t)t * 3 * d + d + head * h;
            weights[t] = 0;
            for (size_t i = 0; i < h; i++) weights[t] += q[i] * k[i];
            weights[t] /= sqrt((double)h);
        }
        reference_log_softmax(weights + first, at + 1 - first);
        for (size_t i = 0; i < h; i++) out[head * h + i] = 0;
        for (int t = first; t <= at; t++) {
            const double *value = qkv + (size_t)t * 3 * d + 2 * d + head * h;
            double weight = exp(weights[t]);
            for (size_t i = 0; i < h; i++) out[head * h + i] += weight * value[i];
        }
    }
}

static inline void reference_keep(const reference *r, double *taps, int layer, kn_tap_point point, int length,
                                  int position, const double *state) {
    size_t d = (size_t)r->config->width;
    if (!taps) return;
    size_t row = ((size_t)layer * REFERENCE_TAPS + point) * (size_t)length + (size_t)position;
    memcpy(taps + row * d, state, d * sizeof *state);
}

static inline void reference_layer_norm(const reference *r, int layer, const char *name, const double *x,
                                        double *y) {
    reference_norm(r->config->norm, y, x, reference_param(r, "blk.%d.%s.weight", layer, name),
                   r->config->no_bias || r->config->norm == KNNLM_NORM_RMS
                       ? NULL
                       : reference_param(r, "blk.%d.%s.bias", layer, name),
                   r->config->width, r->config->epsilon);
}

static inline void reference_linear(const reference *r, int layer, const char *name, const double *x,
                                    double *y, int rows, int columns) {
    reference_product(y, reference_param(r, "blk.%d.%s.weight", layer, name), x,
                      r->config->no_bias ? NULL : reference_param(r, "blk.%d.%s.bias", layer, name), rows,
                      columns);
}

// One head of a query or a key: its norm, then its pairs turned by the position.
static inline void reference_place(const reference *r, int layer, const char *norm, double *x, int position) {
    const kn_config *c = r->config;
    int h = c->width / c->heads, half = h / 2;
    if (c->qk_norm)
        reference_norm(KNNLM_NORM_RMS, x, x, reference_param(r, "blk.%d.%s.weight", layer, norm), NULL, h,
                       c->epsilon);
    for (int i = 0; i < half; i++) {
        int a = c->qk_norm ? i : 2 * i, b = c->qk_norm ? i + half : 2 * i + 1; // Qwen3's pairs, Llama's
        double angle = position * pow((double)c->rope_base, -2.0 * i / h), x1 = x[a], x2 = x[b];
        x[a] = x1 * cos(angle) - x2 * sin(angle);
        x[b] = x1 * sin(angle) + x2 * cos(angle);
    }
}

// qkv (3 width) of one position.
static inline void reference_qkv(const reference *r, int layer, const double *x, int position, double *qkv) {
    int d = r->config->width, h = d / r->config->heads;
    if (r->config->positions != KNNLM_POSITIONS_ROTARY) {
        reference_linear(r, layer, "attn_qkv", x, qkv, 3 * d, d);
        return;
    }
    reference_linear(r, layer, "attn_q", x, qkv, d, d);
    reference_linear(r, layer, "attn_k", x, qkv + d, d, d);
    reference_linear(r, layer, "attn_v", x, qkv + 2 * d, d, d);
    for (int head = 0; head < r->config->heads; head++) {
        reference_place(r, layer, "attn_q_norm", qkv + head * h, position);
        reference_place(r, layer, "attn_k_norm", qkv + d + head * h, position);
    }
}

static inline void reference_attention_part(const reference *r, int layer, double *x, int length,
                                            double *taps) {
    int d = r->config->width;
    size_t step = (size_t)d;
    double *qkv = reference_alloc((size_t)length * 3 * step), *weights = reference_alloc((size_t)length);
    double *state = reference_alloc(step), *change = reference_alloc(step);
    for (int t = 0; t < length; t++) {
        reference_keep(r, taps, layer, KN_TAP_ATTENTION_RAW, length, t, x + (size_t)t * step);
        reference_layer_norm(r, layer, "attn_norm", x + (size_t)t * step, state);
        reference_keep(r, taps, layer, KN_TAP_ATTENTION, length, t, state);
        reference_qkv(r, layer, state, t, qkv + (size_t)t * 3 * step);
    }
    for (int t = 0; t < length; t++) {
        reference_attend(r->config, qkv, t, weights, state);
        reference_linear(r, layer, "attn_output", state, change, d, d);
        for (size_t i = 0; i < step; i++) x[(size_t)t * step + i] += change[i];
    }
    free(qkv);
    free(weights);
    free(state);
    free(change);
}

static inline void reference_ffn_part(const reference *r, int layer, double *x, int length, double *taps) {
    int d = r->config->width, f = r->config->ffn;
    size_t step = (size_t)d;
    double *state = reference_alloc(step), *inner = reference_alloc((size_t)f),
           *gate = reference_alloc((size_t)f), *change = reference_alloc(step);
    bool gated = r->config->activation == KNNLM_ACTIVATION_SWIGLU;
    for (int t = 0; t < length; t++) {
        double *row = x + (size_t)t * step;
        reference_keep(r, taps, layer, KN_TAP_FFN_INPUT_RAW, length, t, row);
        reference_layer_norm(r, layer, "ffn_norm", row, state);
        reference_keep(r, taps, layer, KN_TAP_FFN_INPUT, length, t, state);
        reference_linear(r, layer, "ffn_up", state, inner, f, d);
        if (gated) reference_linear(r, layer, "ffn_gate", state, gate, f, d);
        for (int i = 0; i < f; i++)
            inner[i] = gated ? inner[i] * reference_activation(r->config->activation, gate[i])
                             : reference_activation(r->config->activation, inner[i]);
        reference_linear(r, layer, "ffn_down", inner, change, d, f);
        for (size_t i = 0; i < step; i++) row[i] += change[i];
        reference_keep(r, taps, layer, KN_TAP_OUTPUT, length, t, row);
    }
    free(state);
    free(inner);
    free(gate);
    free(change);
}

// The norm that follows a layer; one without weights where the model has none.
static inline void reference_output_norm(const reference *r, int layer, const double *x, double *y) {
    const kn_config *c = r->config;
    if (layer + 1 < c->layers)
        reference_layer_norm(r, layer + 1, "attn_norm", x, y);
    else if (c->final_norm)
        reference_norm(c->norm, y, x, reference_param(r, "output_norm.weight"),
                       c->no_bias || c->norm == KNNLM_NORM_RMS ? NULL
                                                               : reference_param(r, "output_norm.bias"),
                       c->width, c->epsilon);
    else
        reference_norm(c->norm, y, x, NULL, NULL, c->width, c->epsilon);
}

// ---------------------------------------------------------------- output

// The log-probabilities of band `band` > 0 given its class; h is (width).
static inline void reference_tail(const reference *r, int band, const double *h, double *out) {
    const kn_config *c = r->config;
    int width = reference_band_width(c, band), start = reference_band_start(c, band),
        n = c->band_end[band] - start;
    const double *projection = reference_param(r, "token_proj.%d.weight", band);
    double *reduced = reference_alloc((size_t)width);
    for (int i = 0; i < c->width; i++)
        for (int j = 0; j < width; j++)
            reduced[j] += h[i] * projection[(size_t)i * (size_t)width + (size_t)j];
    reference_product(out + start, reference_param(r, "token_embd.%d.weight", band), reduced, NULL, n, width);
    reference_log_softmax(out + start, n);
    free(reduced);
}

static inline void reference_predict(const reference *r, const double *h, double *out) {
    const kn_config *c = r->config;
    if (c->bands == 1) {
        reference_product(out, reference_param(r, "token_embd.weight"), h, NULL, c->vocabulary, c->width);
        reference_log_softmax(out, c->vocabulary);
        return;
    }
    int words = c->band_end[0], classes = c->bands - 1;
    double *head = reference_alloc((size_t)(words + classes));
    reference_product(head, reference_param(r, "token_embd.0.weight"), h, NULL, words, c->width);
    reference_product(head + words, reference_param(r, "output_class.weight"), h, NULL, classes, c->width);
    reference_log_softmax(head, words + classes);
    memcpy(out, head, (size_t)words * sizeof *out);
    for (int band = 1; band < c->bands; band++) {
        reference_tail(r, band, h, out);
        for (int w = c->band_end[band - 1]; w < c->band_end[band]; w++) out[w] += head[words + band - 1];
    }
    free(head);
}

static inline void reference_run(const reference *r, const int32_t *tokens, int length,
                                 const reference_output *out) {
    const kn_config *c = r->config;
    size_t d = (size_t)c->width;
    double *x = reference_alloc((size_t)length * d), *state = reference_alloc(d);
    for (int t = 0; t < length; t++) reference_embed(r, tokens[t], t, x + (size_t)t * d);
    for (int layer = 0; layer < c->layers; layer++) {
        reference_attention_part(r, layer, x, length, out->taps);
        reference_ffn_part(r, layer, x, length, out->taps);
        for (int t = 0; t < length; t++) {
            reference_output_norm(r, layer, x + (size_t)t * d, state);
            reference_keep(r, out->taps, layer, KN_TAP_OUTPUT_NORM, length, t, state);
        }
    }
    for (int t = 0; out->distribution && t < length; t++) {
        memcpy(state, x + (size_t)t * d, d * sizeof *state);
        if (c->final_norm) reference_output_norm(r, c->layers - 1, x + (size_t)t * d, state);
        reference_predict(r, state, out->distribution + (size_t)t * (size_t)c->vocabulary);
    }
    free(x);
    free(state);
}

// Summed negative log-probability of the targets.
static inline double reference_loss(const reference *r, const int32_t *inputs, const int32_t *targets,
                                    int length) {
    size_t vocabulary = (size_t)r->config->vocabulary;
    double *distribution = reference_alloc((size_t)length * vocabulary), loss = 0;
    reference_run(r, inputs, length, &(reference_output){.distribution = distribution});
    for (int t = 0; t < length; t++) loss -= distribution[(size_t)t * vocabulary + (size_t)targets[t]];
    free(distribution);
    return loss;
}

#endif
