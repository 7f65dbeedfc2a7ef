// Loss and gradient of the softmax, cluster by cluster. Logits are held for KN_HEAD_ROWS rows at a time,
// which caches can bear; their gradients are packed at once, both ways, and those of a whole group of rows
// meet the embedding's gradient together, which is too large to be added to more often.
#include "train/pass.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Rows of one cluster at hand.
typedef struct cluster {
    kn_gradient *g;
    int32_t band;
    size_t width, classes;
    const float *h;         // (rows, width): what the cluster reads
    float *dh;              // (rows, width): set
    const int32_t *targets; // class of each row
    float *losses;          // (rows): added to
    size_t rows;
} cluster;

// Rows of logits at hand: [first, first + rows) of the cluster, in the group that starts at row `group`.
typedef struct chunk {
    const cluster *c;
    size_t group, group_rows, first, rows;
} chunk;

// x (classes): logits become the gradient of the loss by them.
static void softmax_row(const cluster *c, size_t row, float *x) {
    const kn_kernels *k = c->g->k;
    float target = x[c->targets[row]], best = k->max(x, c->classes), sum = k->exp_shift(x, c->classes, best);
    c->losses[row] += best + logf(sum) - target;
    if (!c->g->grads) return;
    k->scale(x, c->g->scale / sum, c->classes);
    x[c->targets[row]] -= c->g->scale;
}

static void softmax_panel(void *context, size_t task, int worker) {
    const chunk *at = context;
    const cluster *c = at->c;
    const kn_kernels *k = c->g->k;
    size_t first = at->first + task * KN_CELL, rows = kn_min(KN_CELL, at->first + at->rows - first);
    size_t panel = kn_panel_bytes(k, at->group_rows), cell = k->cell;
    float *x = c->g->logits + task * KN_CELL * c->classes;
    (void)worker;
    for (size_t r = 0; r < rows; r++) softmax_row(c, first + r, x + r * c->classes);
    if (!c->g->grads) return;
    k->pack_lhs((char *)c->g->left + task * kn_panel_bytes(k, c->classes), x, c->classes, rows, c->classes);
    char *depth = (char *)c->g->right + (first - at->group) / KN_CELL * cell;
    for (size_t i = 0; i < c->classes; i += KN_CELL)
        k->pack_rhs_t(depth + i / KN_CELL * panel, x + i, c->classes, kn_min(KN_CELL, c->classes - i), rows);
}

// Blocks of a cluster's gradient go to its embeddings; in an adaptive cluster 0 the last rows are the
// classes'.
static void store_classes(void *context, const float *block, size_t row, size_t column, size_t rows,
                          size_t columns) {
    const cluster *c = context;
    const kn_layout *l = c->g->layout;
    size_t words = (size_t)kn_band_size(&c->g->config, c->band);
    float *words_out = c->g->grads + l->embedding[c->band], *classes_out = c->g->grads + l->classes;
    size_t here = row >= words ? 0 : row + rows <= words ? rows : words - row; // rows of words in the block
    c->g->k->store(words_out + row * c->width + column, c->width, block, NULL, here, columns, true);
    if (here < rows)
        c->g->k->store(classes_out + (row + here - words) * c->width + column, c->width,
                       block + here * KN_CELL, NULL, rows - here, columns, true);
}

static void run_chunk(chunk *at) {
    const cluster *c = at->c;
    kn_gradient *g = c->g;
    kn_emit_matrix logits = {g->k, g->logits, c->classes, NULL};
    kn_emit_matrix dh = {g->k, c->dh + at->first * c->width, c->width, NULL};
    kn_lhs_pack(g->k, g->left, c->h + at->first * c->width, c->width, at->rows, c->width, false);
    kn_multiply(g->k, g->left, at->rows, &g->w.classes[c->band], kn_emit_set, &logits);
    kn_parallel(kn_cells(at->rows), softmax_panel, at);
    if (g->grads) kn_multiply(g->k, g->left, at->rows, &g->classes_t[c->band], kn_emit_set, &dh);
}

static void run_group(const cluster *c, size_t group, size_t rows) {
    kn_gradient *g = c->g;
    for (size_t first = group; first < group + rows; first += KN_HEAD_ROWS) {
        chunk at = {c, group, rows, first, kn_min(KN_HEAD_ROWS, group + rows - first)};
        run_chunk(&at);
    }
    if (!g->grads) return;
    kn_turned turned = {g->k, store_classes, (void *)(uintptr_t)c};
    kn_rhs slopes = {.data = g->right, .columns = c->classes, .depth = rows};
    kn_lhs_pack(g->k, g->left, c->h + group * c->width, c->width, c->width, rows, true);
    kn_multiply(g->k, g->left, c->width, &slopes, kn_store_turned, &turned);
}

size_t kn_head_group(const kn_kernels *k, size_t classes, size_t capacity) {
    size_t rows = KN_HEAD_BYTES / (kn_panel_bytes(k, classes) / KN_CELL) / KN_HEAD_ROWS * KN_HEAD_ROWS;
    return kn_min(kn_max(rows, KN_HEAD_ROWS), capacity);
}

static void run_cluster(const cluster *c) {
    size_t group = kn_head_group(c->g->k, c->classes, c->g->capacity);
    for (size_t first = 0; first < c->rows; first += group)
        run_group(c, first, kn_min(group, c->rows - first));
}

static knnlm_status run_first(kn_gradient *g) {
    const kn_config *c = &g->config;
    int32_t *targets = kn_alloc(g->batch.rows, sizeof *targets);
    if (!targets) return KNNLM_ENOMEM;
    for (size_t i = 0; i < g->batch.rows; i++) {
        int32_t band = kn_band_of(c, g->targets[i]);
        targets[i] = band == 0 ? g->targets[i] : c->band_end[0] + band - 1;
    }
    cluster first = {g,     0,       (size_t)c->width, kn_cluster_size(c, 0), g->final,
                     g->dx, targets, g->losses,        g->batch.rows};
    run_cluster(&first);
    free(targets);
    return KNNLM_OK;
}

// A further band: rows whose target is in it, reduced to its width and back.
typedef struct further {
    size_t *places;
    int32_t *targets;
    float *h, *reduced, *dreduced, *dh, *losses;
} further;

static void further_free(further *f) {
    free(f->places);
    free(f->targets);
    kn_free_aligned(f->h);
    kn_free_aligned(f->reduced);
    kn_free_aligned(f->dreduced);
    kn_free_aligned(f->dh);
    free(f->losses);
}

static knnlm_status further_init(further *f, size_t rows, size_t d, size_t width) {
    *f = (further){.places = kn_alloc(rows, sizeof *f->places),
                   .targets = kn_alloc(rows, sizeof *f->targets),
                   .h = kn_alloc_aligned(rows * d, sizeof(float)),
                   .reduced = kn_alloc_aligned(rows * width, sizeof(float)),
                   .dreduced = kn_alloc_aligned(rows * width, sizeof(float)),
                   .dh = kn_alloc_aligned(rows * d, sizeof(float)),
                   .losses = kn_alloc(rows, sizeof(float))};
    bool all = f->places && f->targets && f->h && f->reduced && f->dreduced && f->dh && f->losses;
    return all ? KNNLM_OK : KNNLM_ENOMEM;
}

static void run_further(kn_gradient *g, int32_t band, further *f) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, width = (size_t)kn_band_width(c, band), n = 0;
    for (size_t i = 0; i < g->batch.rows; i++) {
        if (kn_band_of(c, g->targets[i]) != band) continue;
        memcpy(f->h + n * d, g->final + i * d, d * sizeof *f->h);
        f->targets[n] = g->targets[i] - kn_band_start(c, band);
        f->places[n++] = i;
    }
    if (n == 0) return;
    kn_pack_rows(&g->s, f->h, d, n, d);
    kn_apply(&g->s, n, &g->w.reduce[band], NULL, f->reduced, false);
    cluster tail = {g,          band,      width, kn_cluster_size(c, band), f->reduced, f->dreduced,
                    f->targets, f->losses, n};
    run_cluster(&tail);
    for (size_t i = 0; i < n; i++) g->losses[f->places[i]] += f->losses[i];
    if (!g->grads) return;
    kn_emit_matrix projection = {g->k, g->grads + g->layout->projection[band], width, NULL};
    kn_weight_gradient(g, f->h, d, f->dreduced, width, n, kn_emit_add, &projection);
    kn_pack_rows(&g->s, f->dreduced, width, n, width);
    kn_apply(&g->s, n, &g->w.project[band], NULL, f->dh, false);
    for (size_t i = 0; i < n; i++) g->k->axpy(g->dx + f->places[i] * d, 1.0f, f->dh + i * d, d);
}

knnlm_status kn_backward_head(kn_gradient *g) {
    memset(g->losses, 0, g->batch.rows * sizeof *g->losses);
    KN_TRY(run_first(g));
    for (int32_t band = 1; band < g->config.bands; band++) {
        further f;
        knnlm_status status =
            further_init(&f, g->batch.rows, (size_t)g->config.width, (size_t)kn_band_width(&g->config, band));
        if (status == KNNLM_OK) run_further(g, band, &f);
        further_free(&f);
        KN_TRY(status);
    }
    return KNNLM_OK;
}
