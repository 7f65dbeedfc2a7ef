// The forward pass of training: that of inference, with dropout, keeping what the backward pass reads.
#include "train/pass.h"

#include "base/random.h"
#include "base/threads.h"

#include <string.h>

uint64_t kn_drop_key(const kn_gradient *g, int32_t layer, kn_drop_site site) {
    return kn_mix64(g->dropout->key + (uint64_t)(layer + 1) * 16 + (uint64_t)site);
}

// Rows that pass a site where units are dropped.
typedef struct dropping {
    const kn_gradient *g;
    float *out;
    const float *base; // out = base + dropped x; NULL: out = dropped x
    const float *x;
    size_t n;
    float probability;
    uint64_t key;
} dropping;

static void drop_panel(void *context, size_t task, int worker) {
    const dropping *d = context;
    const kn_kernels *k = d->g->k;
    size_t rows = d->g->batch.rows, end = (task + 1) * KN_CELL < rows ? (task + 1) * KN_CELL : rows;
    float *branch = d->g->s.panel + (size_t)worker * d->g->s.panel_stride;
    for (size_t r = task * KN_CELL; r < end; r++) {
        float *out = d->out + r * d->n, *dropped = d->base ? branch : out;
        if (dropped != d->x + r * d->n) memcpy(dropped, d->x + r * d->n, d->n * sizeof *out);
        if (d->probability > 0) k->dropout(dropped, d->n, d->probability, d->key + (r << 32), 0);
        if (!d->base) continue;
        memcpy(out, d->base + r * d->n, d->n * sizeof *out);
        k->axpy(out, 1.0f, dropped, d->n);
    }
}

bool kn_drops_rows(const kn_gradient *g) {
    return g->dropout && g->dropout->residual > 0;
}

void kn_drop_rows(const kn_gradient *g, float *out, const float *base, const float *x, int32_t layer,
                  kn_drop_site site) {
    dropping d = {.g = g, .out = out, .base = base, .x = x, .n = (size_t)g->config.width};
    if (kn_drops_rows(g)) {
        d.probability = g->dropout->residual;
        d.key = kn_drop_key(g, layer, site);
    }
    kn_parallel(kn_cells(g->batch.rows), drop_panel, &d);
}

// out (rows, width) = base + the packed rows times m + bias, the latter dropped as the site has it. Where
// nothing is dropped the product is added in place: two passes over the rows instead of five.
static void add_branch(kn_gradient *g, float *out, const float *base, const kn_rhs *m, const float *bias,
                       int32_t layer, kn_drop_site site) {
    bool drops = kn_drops_rows(g);
    if (!drops) kn_drop_rows(g, out, NULL, base, layer, site); // a copy
    kn_apply(&g->s, g->batch.rows, m, bias, drops ? g->dy : out, !drops);
    if (drops) kn_drop_rows(g, out, base, g->dy, layer, site);
}

static void fill_sequences(kn_gradient *g, const kn_layer_state *st) {
    size_t d = (size_t)g->config.width, heads = (size_t)g->config.heads;
    for (size_t s = 0; s < g->batch.count; s++) {
        const float *rows = st->qkv + g->batch.start[s] * 3 * d;
        g->s.sequences[s] = (kn_attention){.q = rows,
                                           .k = rows + d,
                                           .v = rows + 2 * d,
                                           .out = st->attended + g->batch.start[s] * d,
                                           .ldq = 3 * d,
                                           .ldk = 3 * d,
                                           .ldo = d,
                                           .queries = g->length,
                                           .keys = g->length,
                                           .window = kn_config_window(&g->config),
                                           .logs = st->logs + s * heads * g->length};
    }
}

static void forward_layer(kn_gradient *g, int32_t n, float *y) {
    const kn_layer_weights *l = &g->w.layers[n];
    kn_layer_state *st = &g->layers[n];
    size_t rows = g->batch.rows, heads = (size_t)g->config.heads,
           head_width = (size_t)g->config.width / heads;
    kn_attention_dropout drop = {0};
    if (g->dropout)
        drop = (kn_attention_dropout){g->dropout->attention, kn_drop_key(g, n, KN_DROP_ATTENTION)};

    kn_norm_pack(&g->w, &g->s, st->x, rows, l->attn_norm_w, l->attn_norm_b, st->attn_norm, NULL);
    kn_apply(&g->s, rows, &l->qkv, l->qkv_b, st->qkv, false);
    kn_place_heads(&g->w, l, &g->batch, st->qkv, st->heads);
    fill_sequences(g, st);
    kn_attention_run(g->k, g->s.sequences, g->batch.count, heads, head_width, g->dropout ? &drop : NULL,
                     g->s.attention, g->s.attention_stride);
    kn_pack_rows(&g->s, st->attended, heads * head_width, rows, heads * head_width);
    add_branch(g, st->middle, st->x, &l->out, l->out_b, n, KN_DROP_ATTENDED);

    kn_norm_pack(&g->w, &g->s, st->middle, rows, l->ffn_norm_w, l->ffn_norm_b, st->ffn_norm, NULL);
    kn_apply(&g->s, rows, &l->up, l->up_b, st->hidden, false);
    kn_activate_pack(&g->w, &g->s, st->hidden, rows, g->dropout ? g->dropout->activation : 0,
                     g->dropout ? kn_drop_key(g, n, KN_DROP_HIDDEN) : 0);
    add_branch(g, y, st->middle, &l->down, l->down_b, n, KN_DROP_FED);
}

knnlm_status kn_forward_keep(kn_gradient *g) {
    size_t d = (size_t)g->config.width, rows = g->batch.rows;
    KN_TRY(kn_embed(&g->w, &g->batch, &g->s, g->layers[0].x));
    kn_drop_rows(g, g->layers[0].x, NULL, g->layers[0].x, -1, KN_DROP_EMBEDDING);
    for (int32_t n = 0; n < g->config.layers; n++)
        forward_layer(g, n, n + 1 < g->config.layers ? g->layers[n + 1].x : g->last);
    if (g->config.final_norm)
        kn_norm_pack(&g->w, &g->s, g->last, rows, g->w.norm_w, g->w.norm_b, g->last_norm, g->final);
    else
        memcpy(g->final, g->last, rows * d * sizeof *g->final);
    return KNNLM_OK;
}
