// Loss and gradient of a batch: forward, backward, summed over windows in a fixed order.
#include "train/gradient.h"

#include "base/threads.h"
#include "train/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t rows, size_t columns, knnlm_status *status) {
    size_t count;
    if (!kn_mul(rows, columns, &count))
        *status = kn_fail(KNNLM_ENOMEM, "a batch of %zu x %zu is too large", rows, columns);
    float *memory = *status == KNNLM_OK ? kn_alloc_aligned(count, sizeof(float)) : NULL;
    if (!memory) *status = KNNLM_ENOMEM;
    return memory;
}

static knnlm_status init_layer_state(const kn_gradient *g, kn_layer_state *st) {
    size_t rows = g->capacity, d = (size_t)g->config.width;
    knnlm_status status = KNNLM_OK;
    *st = (kn_layer_state){
        .x = floats(rows, d, &status),
        .attn_norm = {floats(rows, 1, &status), floats(rows, 1, &status)},
        .ffn_norm = {floats(rows, 1, &status), floats(rows, 1, &status)},
        .qkv = floats(rows, 3 * d, &status),
        .attended = floats(rows, d, &status),
        .logs = floats(rows, (size_t)g->config.heads, &status),
        .middle = floats(rows, d, &status),
        .hidden = floats(rows, kn_config_hidden(&g->config), &status),
    };
    if (g->config.qk_norm)
        st->heads = (kn_heads_state){floats(rows, 2 * d, &status),
                                     floats(rows, 2 * (size_t)g->config.heads, &status)};
    return status;
}

static void free_layer_state(kn_layer_state *st) {
    float *all[] = {st->x,
                    st->attn_norm.mean,
                    st->attn_norm.inverse,
                    st->ffn_norm.mean,
                    st->ffn_norm.inverse,
                    st->qkv,
                    st->attended,
                    st->logs,
                    st->middle,
                    st->hidden,
                    st->heads.raw,
                    st->heads.inverse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) kn_free_aligned(all[i]);
}

static knnlm_status init_transposed(kn_gradient *g) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, f = (size_t)c->ffn;
    g->transposed = kn_alloc((size_t)c->layers, sizeof *g->transposed);
    if (!g->transposed) return KNNLM_ENOMEM;
    for (int32_t n = 0; n < c->layers; n++) {
        KN_TRY(kn_rhs_init(g->k, &g->transposed[n].qkv, d, 3 * d));
        KN_TRY(kn_rhs_init(g->k, &g->transposed[n].out, d, d));
        KN_TRY(kn_rhs_init(g->k, &g->transposed[n].up, d, kn_config_hidden(c)));
        KN_TRY(kn_rhs_init(g->k, &g->transposed[n].down, f, d));
    }
    for (int32_t b = 0; b < c->bands; b++) {
        KN_TRY(kn_rhs_init(g->k, &g->classes_t[b], (size_t)kn_band_width(c, b), kn_cluster_size(c, b)));
        if (c->bands > 1) KN_TRY(kn_rhs_init(g->k, &g->project_t[b], (size_t)kn_band_width(c, b), d));
    }
    return KNNLM_OK;
}

// Room for the two packed operands of any weight's gradient, and for those of the softmax.
static knnlm_status init_operands(kn_gradient *g) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, widest = kn_max(3 * d, kn_config_hidden(c)), classes = 0,
           chunk = KN_HEAD_ROWS;
    size_t right_bytes = kn_cells(widest) * kn_panel_bytes(g->k, g->capacity);
    for (int32_t b = 0; b < c->bands; b++) {
        size_t n = kn_cluster_size(c, b), group = kn_head_group(g->k, n, g->capacity);
        classes = kn_max(classes, n);
        right_bytes = kn_max(right_bytes, kn_cells(n) * kn_panel_bytes(g->k, group));
    }
    size_t left_bytes =
        kn_max(kn_lhs_bytes(g->k, widest, g->capacity), kn_lhs_bytes(g->k, chunk, kn_max(classes, d)));
    knnlm_status status = KNNLM_OK;
    g->logits = floats(chunk, classes, &status);
    g->left = kn_alloc_aligned(1, left_bytes);
    g->right = kn_alloc_aligned(1, right_bytes);
    return g->left && g->right ? status : KNNLM_ENOMEM;
}

static knnlm_status init_buffers(kn_gradient *g) {
    const kn_config *c = &g->config;
    size_t rows = g->capacity, d = (size_t)c->width, widest = kn_max(3 * d, kn_config_hidden(c));
    size_t keys = kn_max(1, rows < (size_t)c->context ? rows : (size_t)c->context),
           head = d / (size_t)c->heads;
    knnlm_status status = KNNLM_OK;
    g->last = floats(rows, d, &status);
    g->last_norm = (kn_norm_state){floats(rows, 1, &status), floats(rows, 1, &status)};
    g->final = floats(rows, d, &status);
    g->dx = floats(rows, d, &status);
    g->dy = floats(rows, d, &status);
    g->wide = floats(rows, widest, &status);
    g->wide2 = floats(rows, widest, &status);
    g->losses = floats(rows, 1, &status);
    g->starts = kn_alloc(rows + 1, sizeof *g->starts);
    g->attention_stride = kn_backward_attention_scratch(g->k, keys, head);
    g->attention = kn_alloc_aligned((size_t)kn_threads(), g->attention_stride);
    if (!g->starts || !g->attention) return KNNLM_ENOMEM;
    KN_TRY(status);
    KN_TRY(kn_scratch_init(c, g->k, rows, keys, &g->s));
    return kn_grow(&g->s.sequences, &g->s.sequence_capacity, rows, sizeof *g->s.sequences);
}

static knnlm_status init_all(kn_gradient *g) {
    KN_TRY(kn_weights_init(&g->config, g->k, &g->w));
    KN_TRY(init_transposed(g));
    KN_TRY(init_operands(g));
    KN_TRY(init_buffers(g));
    g->layers = kn_alloc((size_t)g->config.layers, sizeof *g->layers);
    if (!g->layers) return KNNLM_ENOMEM;
    for (int32_t n = 0; n < g->config.layers; n++) KN_TRY(init_layer_state(g, &g->layers[n]));
    return KNNLM_OK;
}

knnlm_status kn_gradient_open(const kn_config *config, const kn_layout *layout, const kn_kernels *kernels,
                              size_t rows, kn_gradient **out) {
    kn_gradient *g = kn_alloc(1, sizeof *g);
    if (!g) return KNNLM_ENOMEM;
    g->config = *config;
    g->layout = layout;
    g->k = kernels;
    g->capacity = rows;
    knnlm_status status = init_all(g);
    if (status == KNNLM_OK)
        *out = g;
    else
        kn_gradient_close(g);
    return status;
}

void kn_gradient_close(kn_gradient *g) {
    if (!g) return;
    for (int32_t n = 0; g->layers && n < g->config.layers; n++) free_layer_state(&g->layers[n]);
    for (int32_t n = 0; g->transposed && n < g->config.layers; n++) {
        kn_rhs_free(&g->transposed[n].qkv);
        kn_rhs_free(&g->transposed[n].out);
        kn_rhs_free(&g->transposed[n].up);
        kn_rhs_free(&g->transposed[n].down);
    }
    for (int32_t b = 0; b < KN_BANDS_MAX; b++) {
        kn_rhs_free(&g->classes_t[b]);
        kn_rhs_free(&g->project_t[b]);
    }
    void *aligned[] = {g->last,
                       g->last_norm.mean,
                       g->last_norm.inverse,
                       g->final,
                       g->dx,
                       g->dy,
                       g->wide,
                       g->wide2,
                       g->losses,
                       g->logits,
                       g->left,
                       g->right,
                       g->attention};
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++) kn_free_aligned(aligned[i]);
    kn_weights_free(&g->w);
    kn_scratch_free(&g->s);
    free(g->layers);
    free(g->transposed);
    free(g->starts);
    free(g);
}

// Packs the classes of cluster 0 of an adaptive model the other way round: its depth runs over words, then
// classes.
static void pack_first_classes_t(kn_gradient *g) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, words = (size_t)kn_band_size(c, 0);
    size_t bytes = kn_panel_bytes(g->k, g->classes_t[0].depth), cell = g->k->cell;
    const float *embedding = g->params + g->layout->embedding[0], *classes = g->params + g->layout->classes;
    float rows[KN_CELL_SIZE];
    for (size_t column = 0; column < d; column += KN_CELL) {
        size_t n = d - column < KN_CELL ? d - column : KN_CELL, whole = words / KN_CELL * KN_CELL;
        char *panel = (char *)g->classes_t[0].data + column / KN_CELL * bytes;
        g->k->pack_rhs_t(panel, embedding + column, d, n, whole);
        for (size_t first = whole; first < g->classes_t[0].depth;
             first += KN_CELL) { // words end, classes begin
            memset(rows, 0, sizeof rows);
            for (size_t r = 0; r < KN_CELL && first + r < g->classes_t[0].depth; r++) {
                const float *row =
                    first + r < words ? embedding + (first + r) * d : classes + (first + r - words) * d;
                memcpy(rows + r * KN_CELL, row + column, n * sizeof *rows);
            }
            g->k->pack_rhs_t(panel + first / KN_CELL * cell, rows, KN_CELL, n, KN_CELL);
        }
    }
}

void kn_gradient_set(kn_gradient *g, const float *params) {
    const kn_config *c = &g->config;
    size_t d = (size_t)c->width, f = (size_t)c->ffn;
    g->params = params;
    kn_weights_set(&g->w, g->layout, params);
    for (int32_t n = 0; n < c->layers; n++) {
        const kn_layer_layout *at = &g->layout->layers[n];
        kn_rhs_pack(g->k, &g->transposed[n].qkv, params + at->qkv_w, d, true);
        kn_rhs_pack(g->k, &g->transposed[n].out, params + at->out_w, d, true);
        kn_rhs_pack(g->k, &g->transposed[n].up, params + at->up_w, d, true);
        kn_rhs_pack(g->k, &g->transposed[n].down, params + at->down_w, f, true);
    }
    for (int32_t b = 0; b < c->bands; b++) {
        size_t width = (size_t)kn_band_width(c, b);
        if (b == 0 && c->bands > 1)
            pack_first_classes_t(g);
        else
            kn_rhs_pack(g->k, &g->classes_t[b], params + g->layout->embedding[b], width, true);
        if (c->bands > 1) kn_rhs_pack(g->k, &g->project_t[b], params + g->layout->projection[b], width, true);
    }
}

static knnlm_status check_batch(const kn_gradient *g, const int32_t *inputs, const int32_t *targets,
                                size_t windows, size_t length) {
    size_t rows;
    if (!kn_mul(windows, length, &rows) || rows > g->capacity || rows == 0)
        return kn_fail(KNNLM_EINVAL, "a batch of %zu x %zu tokens; the workspace holds 1 to %zu", windows,
                       length, g->capacity);
    if (length > (size_t)g->config.context)
        return kn_fail(KNNLM_EINVAL, "a window of %zu tokens; the model's context is %d", length,
                       g->config.context);
    for (size_t i = 0; i < rows; i++)
        if (inputs[i] < 0 || inputs[i] >= g->config.vocabulary || targets[i] < 0 ||
            targets[i] >= g->config.vocabulary)
            return kn_fail(KNNLM_EINVAL, "token %d at %zu of a batch: the vocabulary has %d",
                           inputs[i] < 0 || inputs[i] >= g->config.vocabulary ? inputs[i] : targets[i], i,
                           g->config.vocabulary);
    return KNNLM_OK;
}

// Threads may have been added since the workspace was made: scratch is kept per worker.
static knnlm_status fit_threads(kn_gradient *g) {
    if ((size_t)kn_threads() <= g->s.workers) return KNNLM_OK;
    char *attention = kn_alloc_aligned((size_t)kn_threads(), g->attention_stride);
    if (!attention) return KNNLM_ENOMEM;
    kn_free_aligned(g->attention);
    g->attention = attention;
    return kn_scratch_fit(&g->s);
}

knnlm_status kn_gradient_add(kn_gradient *g, const int32_t *inputs, const int32_t *targets, size_t windows,
                             size_t length, float scale, const kn_dropout *dropout, float *grads,
                             double *loss) {
    KN_TRY(check_batch(g, inputs, targets, windows, length));
    for (size_t i = 0; i <= windows; i++) g->starts[i] = i * length;
    g->batch = (kn_batch){.tokens = inputs, .start = g->starts, .count = windows, .rows = windows * length};
    g->length = length;
    g->targets = targets;
    g->dropout = dropout;
    g->scale = scale;
    g->grads = grads;
    KN_TRY(fit_threads(g));
    KN_TRY(kn_forward_keep(g));
    KN_TRY(kn_backward_head(g));
    for (size_t i = 0; i < g->batch.rows; i++) *loss += (double)g->losses[i];
    if (!grads) return KNNLM_OK;
    kn_backward_final_norm(g);
    for (int32_t n = g->config.layers - 1; n >= 0; n--) KN_TRY(kn_backward_layer(g, n));
    return kn_backward_embedding(g);
}
