// The parameters by name: where each stands in the flat array, and what it starts from.
#include "lm/native/config.h"

#include "base/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Appends a parameter and returns its offset; failures are left for the end in *status.
static size_t add(kn_layout *l, knnlm_status *status, bool is_vector, size_t rows, size_t columns,
                  const char *format, ...) __attribute__((format(printf, 6, 7)));

static size_t add(kn_layout *l, knnlm_status *status, bool is_vector, size_t rows, size_t columns,
                  const char *format, ...) {
    if (*status == KNNLM_OK) *status = kn_grow(&l->params, &l->capacity, l->count + 1, sizeof *l->params);
    if (*status != KNNLM_OK) return 0;
    kn_param *p = &l->params[l->count++];
    *p = (kn_param){.offset = l->total, .rows = rows, .columns = columns, .is_vector = is_vector};
    va_list args;
    va_start(args, format);
    vsnprintf(p->name, sizeof p->name, format, args);
    va_end(args);
    l->total += rows * columns;
    return p->offset;
}

// The layer being laid out, so that a parameter is a line.
typedef struct adding {
    const kn_config *c;
    kn_layout *l;
    int32_t n;
    knnlm_status *status;
} adding;

static size_t matrix(const adding *a, const char *name, size_t rows, size_t columns) {
    return add(a->l, a->status, false, rows, columns, "blk.%d.%s.weight", a->n, name);
}

static size_t vector(const adding *a, const char *name, size_t n) {
    return add(a->l, a->status, true, 1, n, "blk.%d.%s.weight", a->n, name);
}

static size_t bias(const adding *a, const char *name, size_t n) {
    return a->c->no_bias ? 0 : add(a->l, a->status, true, 1, n, "blk.%d.%s.bias", a->n, name);
}

static size_t norm_bias(const adding *a, const char *name) {
    return kn_config_norm_bias(a->c) ? bias(a, name, (size_t)a->c->width) : 0;
}

// Queries, keys and values are read as one matrix: in three parts they stand one after another.
static void add_qkv(const adding *a, kn_layer_layout *at) {
    size_t d = (size_t)a->c->width, head = kn_config_head_width(a->c);
    if (a->c->positions != KNNLM_POSITIONS_ROTARY) {
        at->qkv_w = matrix(a, "attn_qkv", 3 * d, d);
        at->qkv_b = bias(a, "attn_qkv", 3 * d);
        return;
    }
    at->qkv_w = matrix(a, "attn_q", d, d);
    matrix(a, "attn_k", d, d);
    matrix(a, "attn_v", d, d);
    at->qkv_b = bias(a, "attn_q", d);
    bias(a, "attn_k", d);
    bias(a, "attn_v", d);
    if (!a->c->qk_norm) return;
    at->q_norm = vector(a, "attn_q_norm", head);
    at->k_norm = vector(a, "attn_k_norm", head);
}

static void add_layer(const kn_config *c, kn_layout *l, int32_t n, knnlm_status *status) {
    size_t d = (size_t)c->width, f = (size_t)c->ffn;
    adding a = {c, l, n, status};
    kn_layer_layout *at = &l->layers[n];
    at->attn_norm_w = vector(&a, "attn_norm", d);
    at->attn_norm_b = norm_bias(&a, "attn_norm");
    add_qkv(&a, at);
    at->out_w = matrix(&a, "attn_output", d, d);
    at->out_b = bias(&a, "attn_output", d);
    at->ffn_norm_w = vector(&a, "ffn_norm", d);
    at->ffn_norm_b = norm_bias(&a, "ffn_norm");
    if (kn_config_gated(c)) {
        at->up_w = matrix(&a, "ffn_gate", f, d);
        matrix(&a, "ffn_up", f, d);
        at->up_b = bias(&a, "ffn_gate", f);
        bias(&a, "ffn_up", f);
    } else {
        at->up_w = matrix(&a, "ffn_up", f, d);
        at->up_b = bias(&a, "ffn_up", f);
    }
    at->down_w = matrix(&a, "ffn_down", d, f);
    at->down_b = bias(&a, "ffn_down", d);
}

static void add_embeddings(const kn_config *c, kn_layout *l, knnlm_status *status) {
    size_t d = (size_t)c->width;
    if (c->bands == 1) {
        l->embedding[0] = add(l, status, false, (size_t)c->vocabulary, d, "token_embd.weight");
        return;
    }
    for (int32_t b = 0; b < c->bands; b++) {
        size_t width = (size_t)kn_band_width(c, b);
        l->embedding[b] = add(l, status, false, (size_t)kn_band_size(c, b), width, "token_embd.%d.weight", b);
        l->projection[b] = add(l, status, false, d, width, "token_proj.%d.weight", b);
    }
    l->classes = add(l, status, false, (size_t)c->bands - 1, d, "output_class.weight");
}

knnlm_status kn_layout_init(const kn_config *c, kn_layout *out) {
    knnlm_status status = KNNLM_OK;
    size_t d = (size_t)c->width;
    *out = (kn_layout){0};
    out->layers = kn_alloc((size_t)c->layers, sizeof *out->layers);
    if (!out->layers) return KNNLM_ENOMEM;
    add_embeddings(c, out, &status);
    if (c->positions == KNNLM_POSITIONS_LEARNED)
        out->positions = add(out, &status, false, (size_t)c->context, d, "position_embd.weight");
    for (int32_t n = 0; n < c->layers; n++) add_layer(c, out, n, &status);
    if (c->final_norm) {
        out->norm_w = add(out, &status, true, 1, d, "output_norm.weight");
        if (kn_config_norm_bias(c)) out->norm_b = add(out, &status, true, 1, d, "output_norm.bias");
    }
    if (status != KNNLM_OK) kn_layout_free(out);
    return status;
}

void kn_layout_free(kn_layout *layout) {
    free(layout->params);
    free(layout->layers);
    *layout = (kn_layout){0};
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// Standard deviation of a parameter's starting values; what writes to the residual stream starts smaller the
// more layers add to it.
static double deviation(const kn_config *c, const kn_param *p) {
    bool gpt2 = c->positions == KNNLM_POSITIONS_LEARNED;
    if (strncmp(p->name, "token_embd", 10) == 0) return gpt2 ? 0.02 : 1.0 / sqrt((double)p->columns);
    if (strncmp(p->name, "position_embd", 13) == 0) return 0.02;
    double base = gpt2 ? 0.02 : sqrt(2.0 / (double)(p->rows + p->columns));
    bool to_residual = ends_with(p->name, "attn_output.weight") || ends_with(p->name, "ffn_down.weight");
    return to_residual ? base / sqrt(2.0 * c->layers) : base;
}

void kn_layout_fill(const kn_config *c, const kn_layout *layout, uint64_t seed, float *params) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        size_t n = p->rows * p->columns;
        float *out = params + p->offset;
        kn_random random = {kn_mix64(seed) + i};
        double scale = deviation(c, p);
        if (!p->is_vector)
            for (size_t j = 0; j < n; j++) out[j] = (float)(scale * kn_random_normal(&random));
        else
            for (size_t j = 0; j < n; j++) out[j] = ends_with(p->name, "norm.weight") ? 1.0f : 0.0f;
    }
}
