// The backward pass of what queries and keys go through before they are compared: rotary positions and norms.
#include "train/pass.h"

#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    kn_gradient *g;
    int32_t layer;
    float *dqkv;
    float *sums; // (panels, 2, head width): gradients by the norms' weights; NULL: there are no norms
} job;

// The queries (part 0) or keys (part 1) of one row.
static void unplace_part(const job *j, size_t row, size_t part, const float *rotation, float *sums) {
    kn_gradient *g = j->g;
    const kn_config *c = &g->config;
    const kn_layer_weights *l = &g->w.layers[j->layer];
    const kn_heads_state *st = &g->layers[j->layer].heads;
    size_t d = (size_t)c->width, head = kn_config_head_width(c), heads = (size_t)c->heads;
    float *dx = j->dqkv + row * 3 * d + part * d, dy[KN_HEAD_WIDTH_MAX];
    for (size_t h = 0; h < heads; h++, dx += head) {
        g->k->rotate(dx, rotation, rotation + head / 2, head / 2, kn_config_adjacent(c), -1.0f);
        if (!sums) continue;
        const float *x = st->raw + row * 2 * d + part * d + h * head;
        float inverse = st->inverse[row * 2 * heads + part * heads + h];
        memcpy(dy, dx, head * sizeof *dy);
        memset(dx, 0, head * sizeof *dx);
        g->k->norm_sums(sums + part * head, NULL, dy, x, 0, inverse, head);
        g->k->rms_backward(dx, dy, x, part ? l->k_norm : l->q_norm, inverse, head);
    }
}

static void unplace_panel(void *context, size_t task, int worker) {
    const job *j = context;
    kn_gradient *g = j->g;
    size_t first = task * KN_CELL, end = kn_min(first + KN_CELL, g->batch.rows);
    float scratch[KN_HEAD_WIDTH_MAX];
    float *sums = j->sums ? j->sums + task * 2 * kn_config_head_width(&g->config) : NULL;
    (void)worker;
    for (size_t row = first; row < end; row++) {
        const float *rotation =
            kn_rotation_at(&g->w, row % g->length, scratch); // windows begin at position 0
        unplace_part(j, row, 0, rotation, sums);
        unplace_part(j, row, 1, rotation, sums);
    }
}

// Panel after panel: the same sums whatever the threads.
static void add_sums(const job *j, size_t panels) {
    kn_gradient *g = j->g;
    const kn_layer_layout *at = &g->layout->layers[j->layer];
    size_t head = kn_config_head_width(&g->config);
    for (size_t p = 0; p < panels; p++) {
        g->k->axpy(g->grads + at->q_norm, 1.0f, j->sums + p * 2 * head, head);
        g->k->axpy(g->grads + at->k_norm, 1.0f, j->sums + p * 2 * head + head, head);
    }
}

knnlm_status kn_backward_heads(kn_gradient *g, int32_t layer, float *dqkv) {
    size_t panels = kn_cells(g->batch.rows);
    job j = {.g = g, .layer = layer, .dqkv = dqkv};
    if (g->config.positions != KNNLM_POSITIONS_ROTARY) return KNNLM_OK;
    if (g->config.qk_norm) {
        j.sums = kn_alloc(panels * 2 * kn_config_head_width(&g->config), sizeof *j.sums);
        if (!j.sums) return KNNLM_ENOMEM;
    }
    kn_parallel(panels, unplace_panel, &j);
    if (j.sums) add_sums(&j, panels);
    free(j.sums);
    return KNNLM_OK;
}
