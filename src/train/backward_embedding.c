// Gradients by embeddings, their projections and learned positions; g->dx is the gradient by the first
// layer's input.
#include "train/pass.h"

#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 64 };

typedef struct scatter {
    kn_gradient *g;
    const float *rows;    // (count, width)
    const size_t *places; // row i belongs to token tokens[places[i]] (NULL: i)
    size_t count, width;
    int32_t band;
    float scale;
} scatter;

// A range of columns a task: rows of one token then add up in order, whatever the threads.
static void scatter_columns(void *context, size_t task, int worker) {
    const scatter *s = context;
    size_t first = task * COLUMNS, n = s->width - first < COLUMNS ? s->width - first : COLUMNS;
    int32_t start = kn_band_start(&s->g->config, s->band);
    float *out = s->g->grads + s->g->layout->embedding[s->band];
    (void)worker;
    for (size_t i = 0; i < s->count; i++) {
        size_t token = (size_t)(s->g->batch.tokens[s->places ? s->places[i] : i] - start);
        s->g->k->axpy(out + token * s->width + first, s->scale, s->rows + i * s->width + first, n);
    }
}

static void add_rows(kn_gradient *g, const float *rows, const size_t *places, size_t count, size_t width,
                     int32_t band, float scale) {
    scatter s = {g, rows, places, count, width, band, scale};
    kn_parallel((width + COLUMNS - 1) / COLUMNS, scatter_columns, &s);
}

static void backward_positions(kn_gradient *g) {
    size_t d = (size_t)g->config.width;
    float *out = g->grads + g->layout->positions;
    for (size_t s = 0; s < g->batch.count; s++)
        g->k->axpy(out, 1.0f, g->dx + g->batch.start[s] * d, g->length * d);
}

static knnlm_status backward_band(kn_gradient *g, int32_t band) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, width = (size_t)kn_band_width(c, band), n = 0, rows = g->batch.rows;
    size_t *places = kn_alloc(rows, sizeof *places);
    float *slopes = kn_alloc_aligned(rows * d, sizeof *slopes),
          *vectors = kn_alloc_aligned(rows * width, sizeof *vectors);
    knnlm_status status = places && slopes && vectors ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; status == KNNLM_OK && i < rows; i++) {
        if (kn_band_of(c, g->batch.tokens[i]) != band) continue;
        for (size_t j = 0; j < d; j++) slopes[n * d + j] = c->embedding_scale * g->dx[i * d + j];
        kn_weights_embedding(&g->w, g->batch.tokens[i], vectors + n * width);
        places[n++] = i;
    }
    if (status == KNNLM_OK && n) {
        kn_emit_matrix projection = {g->k, g->grads + g->layout->projection[band], width, NULL};
        kn_weight_gradient(g, slopes, d, vectors, width, n, kn_emit_add, &projection);
        kn_pack_rows(&g->s, slopes, d, n, d);
        kn_apply(&g->s, n, &g->project_t[band], NULL, vectors, false);
        add_rows(g, vectors, places, n, width, band, 1.0f);
    }
    free(places);
    kn_free_aligned(slopes);
    kn_free_aligned(vectors);
    return status;
}

knnlm_status kn_backward_embedding(kn_gradient *g) {
    kn_drop_rows(g, g->dx, NULL, g->dx, -1, KN_DROP_EMBEDDING);
    if (g->config.positions == KNNLM_POSITIONS_LEARNED) backward_positions(g);
    if (g->config.bands == 1) {
        add_rows(g, g->dx, NULL, g->batch.rows, (size_t)g->config.width, 0, g->config.embedding_scale);
        return KNNLM_OK;
    }
    for (int32_t band = 0; band < g->config.bands; band++) KN_TRY(backward_band(g, band));
    return KNNLM_OK;
}
