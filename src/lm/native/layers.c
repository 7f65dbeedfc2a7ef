// The parts of a layer on packed panels; reference.c has them in plain loops.
#include "lm/native/layers.h"

#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

knnlm_status kn_scratch_init(const kn_config *c, const kn_kernels *k, size_t rows, size_t keys,
                             kn_scratch *out) {
    size_t widest = kn_max(kn_config_hidden(c), 3 * (size_t)c->width);
    *out = (kn_scratch){.k = k, .rows = rows, .workers = (size_t)kn_threads()};
    out->panel_stride = KN_CELL * widest;
    out->attention_stride = kn_attention_scratch(k, keys, (size_t)(c->width / c->heads));
    out->lhs = kn_alloc_aligned(1, kn_lhs_bytes(k, rows, widest));
    out->panel = kn_alloc_aligned(out->workers * out->panel_stride, sizeof(float));
    out->attention = kn_alloc_aligned(out->workers, out->attention_stride);
    if (out->lhs && out->panel && out->attention) return KNNLM_OK;
    kn_scratch_free(out);
    return KNNLM_ENOMEM;
}

knnlm_status kn_scratch_fit(kn_scratch *s) {
    size_t workers = (size_t)kn_threads();
    if (workers <= s->workers) return KNNLM_OK;
    float *panel = kn_alloc_aligned(workers * s->panel_stride, sizeof(float));
    void *attention = kn_alloc_aligned(workers, s->attention_stride);
    if (!panel || !attention) {
        kn_free_aligned(panel);
        kn_free_aligned(attention);
        return KNNLM_ENOMEM;
    }
    kn_free_aligned(s->panel);
    kn_free_aligned(s->attention);
    s->panel = panel;
    s->attention = attention;
    s->workers = workers;
    return KNNLM_OK;
}

void kn_scratch_free(kn_scratch *s) {
    kn_free_aligned(s->lhs);
    kn_free_aligned(s->panel);
    kn_free_aligned(s->attention);
    free(s->sequences);
    *s = (kn_scratch){0};
}

// ---------------------------------------------------------------- embedding

typedef struct embedding {
    const kn_weights *w;
    const kn_batch *b;
    float *x;
} embedding;

// One sequence: its rows, looked up unless they already are projected bands, scaled, with their positions
// added.
static void embed_sequence(void *context, size_t s, int worker) {
    const embedding *e = context;
    size_t d = (size_t)e->w->config.width;
    (void)worker;
    for (size_t row = e->b->start[s]; row < e->b->start[s + 1]; row++) {
        float *x = e->x + row * d;
        if (e->w->config.bands == 1) kn_weights_embedding(e->w, e->b->tokens[row], x);
        e->w->k->scale(x, e->w->config.embedding_scale, d);
        if (!e->w->positions) continue;
        e->w->k->axpy(x, 1.0f, e->w->positions + (kn_batch_position(e->b, s) + row - e->b->start[s]) * d, d);
    }
}

// Rows of one band: gathered, projected to the full width, and put back in their places.
static knnlm_status embed_band(const kn_weights *w, const kn_batch *b, kn_scratch *s, int32_t band,
                               float *x) {
    size_t d = (size_t)w->config.width, width = (size_t)kn_band_width(&w->config, band), n = 0;
    size_t *places = kn_alloc(b->rows, sizeof *places);
    float *vectors = kn_alloc_aligned(b->rows * width, sizeof *vectors);
    float *projected = kn_alloc_aligned(b->rows * d, sizeof *projected);
    knnlm_status status = places && vectors && projected ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        for (size_t row = 0; row < b->rows; row++) {
            if (kn_band_of(&w->config, b->tokens[row]) != band) continue;
            kn_weights_embedding(w, b->tokens[row], vectors + n * width);
            places[n++] = row;
        }
        kn_pack_rows(s, vectors, width, n, width);
        kn_apply(s, n, &w->project[band], NULL, projected, false);
        for (size_t i = 0; i < n; i++) memcpy(x + places[i] * d, projected + i * d, d * sizeof *x);
    }
    free(places);
    kn_free_aligned(vectors);
    kn_free_aligned(projected);
    return status;
}

knnlm_status kn_embed(const kn_weights *w, const kn_batch *b, kn_scratch *s, float *x) {
    embedding e = {w, b, x};
    for (int32_t band = 0; w->config.bands > 1 && band < w->config.bands; band++)
        KN_TRY(embed_band(w, b, s, band, x));
    kn_parallel(b->count, embed_sequence, &e);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- panels

typedef struct norming {
    const kn_weights *w;
    kn_scratch *s;
    const float *x, *weight, *bias;
    size_t rows;
    kn_norm_state state;
    float *copy;
} norming;

static void plain_norm(knnlm_norm kind, float *y, const float *x, size_t n, float epsilon) {
    double mean = 0, squares = 0;
    for (size_t i = 0; kind == KNNLM_NORM_LAYER && i < n; i++) mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double scale = 1.0 / __builtin_sqrt(squares / (double)n + epsilon);
    for (size_t i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * scale);
}

void kn_norm_row(const kn_weights *w, float *y, const float *x, const float *weight, const float *bias,
                 float *mean, float *inverse) {
    size_t d = (size_t)w->config.width;
    switch (w->config.norm) {
    case KNNLM_NORM_RMS:
        *mean = 0;
        w->k->rms_norm(y, inverse, x, weight, d, w->config.epsilon);
        return;
    case KNNLM_NORM_LAYER:
        w->k->norm(y, mean, inverse, x, weight, bias, d, w->config.epsilon);
        return;
    }
}

static void norm_panel(void *context, size_t task, int worker) {
    const norming *n = context;
    size_t d = (size_t)n->w->config.width, first = task * KN_CELL, rows = kn_min(KN_CELL, n->rows - first);
    float *panel = n->copy ? n->copy + first * d : n->s->panel + (size_t)worker * n->s->panel_stride;
    float mean, inverse;
    for (size_t r = 0; r < rows; r++) {
        size_t row = first + r;
        if (n->weight)
            kn_norm_row(n->w, panel + r * d, n->x + row * d, n->weight, n->bias,
                        n->state.mean ? n->state.mean + row : &mean,
                        n->state.inverse ? n->state.inverse + row : &inverse);
        else
            plain_norm(n->w->config.norm, panel + r * d, n->x + row * d, d, n->w->config.epsilon);
    }
    n->w->k->pack_lhs((char *)n->s->lhs + task * kn_panel_bytes(n->w->k, d), panel, d, rows, d);
}

void kn_norm_pack(const kn_weights *w, kn_scratch *s, const float *x, size_t rows, const float *weight,
                  const float *bias, kn_norm_state state, float *copy) {
    norming n = {w, s, x, weight, bias, rows, state, copy};
    kn_parallel(kn_cells(rows), norm_panel, &n);
}

void kn_apply(kn_scratch *s, size_t rows, const kn_rhs *m, const float *bias, float *out, bool add) {
    kn_emit_matrix store = {s->k, out, m->columns, bias};
    kn_multiply(s->k, s->lhs, rows, m, add ? kn_emit_add : kn_emit_set, &store);
}

void kn_pack_rows(kn_scratch *s, const float *x, size_t ld, size_t rows, size_t depth) {
    kn_lhs_pack(s->k, s->lhs, x, ld, rows, depth, false);
}

typedef struct activating {
    const kn_weights *w;
    kn_scratch *s;
    const float *u;
    size_t rows;
    float probability;
    uint64_t key;
} activating;

void kn_activate(const kn_weights *w, float *out, const float *u, size_t rows, size_t first,
                 float probability, uint64_t key) {
    size_t f = (size_t)w->config.ffn;
    switch (w->config.activation) {
    case KNNLM_ACTIVATION_RELU:
        w->k->relu(out, u, rows * f);
        break;
    case KNNLM_ACTIVATION_GELU:
        w->k->gelu(out, u, rows * f);
        break;
    case KNNLM_ACTIVATION_RELU2:
        w->k->relu2(out, u, rows * f);
        break;
    case KNNLM_ACTIVATION_SWIGLU:
        for (size_t r = 0; r < rows; r++) w->k->swiglu(out + r * f, u + r * 2 * f, u + r * 2 * f + f, f);
        break;
    }
    for (size_t r = 0; probability > 0 && r < rows; r++)
        w->k->dropout(out + r * f, f, probability, key + ((first + r) << 32), 0);
}

static void activate_panel(void *context, size_t task, int worker) {
    const activating *a = context;
    size_t f = (size_t)a->w->config.ffn, first = task * KN_CELL, rows = kn_min(KN_CELL, a->rows - first);
    float *panel = a->s->panel + (size_t)worker * a->s->panel_stride;
    const float *u = a->u + first * kn_config_hidden(&a->w->config);
    kn_activate(a->w, panel, u, rows, first, a->probability, a->key);
    a->w->k->pack_lhs((char *)a->s->lhs + task * kn_panel_bytes(a->w->k, f), panel, f, rows, f);
}

void kn_activate_pack(const kn_weights *w, kn_scratch *s, const float *u, size_t rows, float probability,
                      uint64_t key) {
    activating a = {w, s, u, rows, probability, key};
    kn_parallel(kn_cells(rows), activate_panel, &a);
}
