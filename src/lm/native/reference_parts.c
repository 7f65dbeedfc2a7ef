// The pieces of the plain model: product, norm, softmax, activations, positions (sinusoidal, learned,
// rotary), plain and adaptive embeddings. Letters as in reference.c.
#include "lm/native/reference_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const double *kn_reference_param(const kn_reference *r, const char *format, ...) {
    char name[KN_GGUF_NAME_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (size_t i = 0; i < r->layout->count; i++)
        if (strcmp(r->layout->params[i].name, name) == 0) return r->params + r->layout->params[i].offset;
    return NULL;
}

// y (m) = w (m, n) . x (n) [+ bias (m)]
void kn_reference_product(double *y, const double *w, const double *x, const double *bias, int m, int n) {
    for (int i = 0; i < m; i++) {
        double sum = bias ? bias[i] : 0;
        for (int j = 0; j < n; j++) sum += w[(size_t)i * (size_t)n + (size_t)j] * x[j];
        y[i] = sum;
    }
}

// y (n) = (x - mean) / sqrt(variance + epsilon) [* weight + bias]; RMSNorm takes no mean off.
void kn_reference_norm(knnlm_norm kind, double *y, const double *x, const double *weight, const double *bias,
                       int n, double epsilon) {
    double mean = 0, variance = 0;
    for (int i = 0; i < n && kind == KNNLM_NORM_LAYER; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(variance + epsilon);
        if (weight) y[i] *= weight[i];
        if (bias) y[i] += bias[i];
    }
}

// x (n): from logits to log-probabilities.
void kn_reference_log_softmax(double *x, int n) {
    double top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = fmax(top, x[i]);
    for (int i = 0; i < n; i++) sum += exp(x[i] - top);
    for (int i = 0; i < n; i++) x[i] -= top + log(sum);
}

// Of SwiGLU, that of the gate.
double kn_reference_activation(knnlm_activation kind, double x) {
    switch (kind) {
    case KNNLM_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    case KNNLM_ACTIVATION_RELU2:
        return x > 0 ? x * x : 0;
    case KNNLM_ACTIVATION_SWIGLU:
        return x / (1 + exp(-x));
    case KNNLM_ACTIVATION_GELU:
        break;
    }
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// ---------------------------------------------------------------- positions

static double sinusoid(const kn_config *c, int position, int i) {
    int half = c->width / 2;
    double angle = position * pow(10000.0, -(double)(i % half) / (half - 1));
    return i < half ? sin(angle) : cos(angle);
}

// One head x (h) of a query or a key: its norm, then its pairs turned by the position.
static void place_head(const kn_config *c, const double *norm, int position, double *x) {
    int h = c->width / c->heads, half = h / 2;
    if (norm) kn_reference_norm(KNNLM_NORM_RMS, x, x, norm, NULL, h, c->epsilon);
    for (int i = 0; i < half; i++) {
        int a = c->qk_norm ? i : 2 * i, b = c->qk_norm ? i + half : 2 * i + 1; // Qwen3's pairs, Llama's
        double angle = position * pow((double)c->rope_base, -2.0 * i / h), x1 = x[a], x2 = x[b];
        x[a] = x1 * cos(angle) - x2 * sin(angle);
        x[b] = x1 * sin(angle) + x2 * cos(angle);
    }
}

void kn_reference_place(const kn_reference *r, int layer, int position, double *q, double *k) {
    const kn_config *c = r->config;
    const double *q_norm = kn_reference_param(r, "blk.%d.attn_q_norm.weight", layer);
    const double *k_norm = kn_reference_param(r, "blk.%d.attn_k_norm.weight", layer);
    for (int head = 0; head < c->width; head += c->width / c->heads) {
        place_head(c, q_norm, position, q + head);
        place_head(c, k_norm, position, k + head);
    }
}

// ---------------------------------------------------------------- embeddings, plain or in bands

static int band_start(const kn_config *c, int band) {
    return band > 0 ? c->band_end[band - 1] : 0;
}

static int band_width(const kn_config *c, int band) {
    return c->width / (int)lround(pow(c->band_factor, band));
}

// x (d) = the row of the token; of band b: projection (d, d_b) . its row (d_b)
static void look_up(const kn_reference *r, int token, double *x) {
    const kn_config *c = r->config;
    size_t d = (size_t)c->width;
    if (c->bands == 1) {
        memcpy(x, kn_reference_param(r, "token_embd.weight") + (size_t)token * d, d * sizeof *x);
        return;
    }
    int band = 0;
    while (token >= c->band_end[band]) band++;
    int width = band_width(c, band);
    size_t row = (size_t)(token - band_start(c, band));
    const double *vector = kn_reference_param(r, "token_embd.%d.weight", band) + row * (size_t)width;
    kn_reference_product(x, kn_reference_param(r, "token_proj.%d.weight", band), vector, NULL, (int)d, width);
}

void kn_reference_embed(const kn_reference *r, int token, int position, double *x) {
    const kn_config *c = r->config;
    const double *learned = kn_reference_param(r, "position_embd.weight"); // (context, d)
    look_up(r, token, x);
    for (int i = 0; i < c->width; i++) {
        x[i] *= c->embedding_scale;
        if (c->positions == KNNLM_POSITIONS_LEARNED)
            x[i] += learned[(size_t)position * (size_t)c->width + (size_t)i];
        if (c->positions == KNNLM_POSITIONS_SINUSOIDAL) x[i] += sinusoid(c, position, i);
    }
}

// ---------------------------------------------------------------- the softmax, plain or adaptive

// The log-probabilities of the tokens of band b > 0 given the band: embeddings (n, d_b) . projection^T (d_b,
// d) . x
static void predict_band(const kn_reference *r, int band, const double *x, double *scratch, double *out) {
    const kn_config *c = r->config;
    int width = band_width(c, band), n = c->band_end[band] - band_start(c, band);
    const double *projection = kn_reference_param(r, "token_proj.%d.weight", band);
    memset(scratch, 0, (size_t)width * sizeof *scratch);
    for (int i = 0; i < c->width; i++)
        for (int j = 0; j < width; j++)
            scratch[j] += x[i] * projection[(size_t)i * (size_t)width + (size_t)j];
    kn_reference_product(out, kn_reference_param(r, "token_embd.%d.weight", band), scratch, NULL, n, width);
    kn_reference_log_softmax(out, n);
}

// Adaptive: band 0 and one class for each further band share a softmax; a token of band b has
// log p(class b) + log p(token | b).
void kn_reference_predict(const kn_reference *r, const double *x, double *scratch, double *logprobs) {
    const kn_config *c = r->config;
    int d = c->width, words = c->band_end[0], classes = c->bands - 1;
    double of_class[KN_BANDS_MAX];
    if (c->bands == 1) {
        kn_reference_product(logprobs, kn_reference_param(r, "token_embd.weight"), x, NULL, c->vocabulary, d);
        kn_reference_log_softmax(logprobs, c->vocabulary);
        return;
    }
    kn_reference_product(logprobs, kn_reference_param(r, "token_embd.0.weight"), x, NULL, words, d);
    kn_reference_product(logprobs + words, kn_reference_param(r, "output_class.weight"), x, NULL, classes, d);
    kn_reference_log_softmax(logprobs, words + classes); // classes stand where band 1 will: no band is empty
    memcpy(of_class, logprobs + words, (size_t)classes * sizeof *of_class);
    for (int band = 1; band < c->bands; band++) {
        predict_band(r, band, x, scratch, logprobs + band_start(c, band));
        for (int w = band_start(c, band); w < c->band_end[band]; w++) logprobs[w] += of_class[band - 1];
    }
}
