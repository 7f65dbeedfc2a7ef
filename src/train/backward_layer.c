// The backward pass of a layer: g->dx enters as the gradient by its output and leaves as that by its input.
#include "train/pass.h"

#include "base/threads.h"

#include <string.h>

void kn_store_turned(void *context, const float *block, size_t row, size_t column, size_t rows,
                     size_t columns) {
    const kn_turned *t = context;
    float out[KN_CELL_SIZE] __attribute__((aligned(64)));
    t->k->transpose(out, block);
    t->store(t->context, out, column, row, columns, rows);
}

// The left operand has to be transposed element by element, the right one only interleaved: the narrower goes
// left.
void kn_weight_gradient(kn_gradient *g, const float *dy, size_t n, const float *x, size_t k, size_t rows,
                        kn_emit *store, void *context) {
    kn_turned t = {g->k, store, context};
    bool turn = n > k;
    const float *left = turn ? x : dy, *right = turn ? dy : x;
    size_t left_width = turn ? k : n;
    kn_rhs packed = {.data = g->right, .columns = turn ? n : k, .depth = rows};
    kn_lhs_pack(g->k, g->left, left, left_width, left_width, rows, true);
    kn_rhs_pack(g->k, &packed, right, packed.columns, true);
    kn_multiply(g->k, g->left, left_width, &packed, turn ? kn_store_turned : store,
                turn ? (void *)&t : context);
}

void kn_weight_gradient_at(kn_gradient *g, const float *dy, size_t n, const float *x, size_t k,
                           size_t offset) {
    kn_emit_matrix store = {g->k, g->grads + offset, k, NULL};
    kn_weight_gradient(g, dy, n, x, k, g->batch.rows, kn_emit_add, &store);
}

// The gradient by what a branch gave before units were dropped: g->dx itself where none are.
static const float *branch_slope(kn_gradient *g, int32_t layer, kn_drop_site site) {
    if (!kn_drops_rows(g)) return g->dx;
    kn_drop_rows(g, g->dy, NULL, g->dx, layer, site);
    return g->dy;
}

// ---------------------------------------------------------------- norms

typedef struct norm_back {
    kn_gradient *g;
    float *dx, *y; // y: the norm's output recomputed, or NULL
    const float *dy, *x, *weight, *bias;
    kn_norm_state state;
} norm_back;

static void norm_back_panel(void *context, size_t task, int worker) {
    const norm_back *n = context;
    size_t d = (size_t)n->g->config.width, first = task * KN_CELL,
           end = kn_min(first + KN_CELL, n->g->batch.rows);
    (void)worker;
    for (size_t r = first; r < end; r++) switch (n->g->config.norm) {
        case KNNLM_NORM_LAYER:
            n->g->k->norm_backward(n->dx + r * d, n->dy + r * d, n->x + r * d, n->weight, n->state.mean[r],
                                   n->state.inverse[r], d);
            break;
        case KNNLM_NORM_RMS:
            n->g->k->rms_backward(n->dx + r * d, n->dy + r * d, n->x + r * d, n->weight, n->state.inverse[r],
                                  d);
            break;
        }
}

static void norm_again_panel(void *context, size_t task, int worker) {
    const norm_back *n = context;
    size_t d = (size_t)n->g->config.width, first = task * KN_CELL,
           end = kn_min(first + KN_CELL, n->g->batch.rows);
    float mean, inverse;
    (void)worker;
    for (size_t r = first; r < end; r++)
        kn_norm_row(&n->g->w, n->y + r * d, n->x + r * d, n->weight, n->bias, &mean, &inverse);
}

// Gradients by a norm's weight and bias: sums over rows, a range of columns a task.
typedef struct norm_sums {
    const kn_gradient *g;
    const float *dy, *x;
    kn_norm_state state;
    float *dweight, *dbias;
} norm_sums;

enum { SUM_COLUMNS = 64 };

static void norm_sum_columns(void *context, size_t task, int worker) {
    const norm_sums *n = context;
    size_t d = (size_t)n->g->config.width, first = task * SUM_COLUMNS, end = kn_min(first + SUM_COLUMNS, d);
    (void)worker;
    for (size_t r = 0; r < n->g->batch.rows; r++) {
        size_t at = r * d + first;
        n->g->k->norm_sums(n->dweight + first, n->dbias ? n->dbias + first : NULL, n->dy + at, n->x + at,
                           n->state.mean[r], n->state.inverse[r], end - first);
    }
}

// dx += gradient by x of norm(x), given dy. bias_at 0: it has none.
static void backward_norm(kn_gradient *g, float *dx, const float *dy, const float *x, const float *weight,
                          kn_norm_state state, size_t weight_at, size_t bias_at) {
    norm_sums sums = {g, dy, x, state, g->grads + weight_at, bias_at ? g->grads + bias_at : NULL};
    kn_parallel(((size_t)g->config.width + SUM_COLUMNS - 1) / SUM_COLUMNS, norm_sum_columns, &sums);
    norm_back n = {.g = g, .dx = dx, .dy = dy, .x = x, .weight = weight, .state = state};
    kn_parallel(kn_cells(g->batch.rows), norm_back_panel, &n);
}

static void norm_again(kn_gradient *g, float *y, const float *x, const float *weight, const float *bias) {
    norm_back n = {.g = g, .y = y, .x = x, .weight = weight, .bias = bias};
    kn_parallel(kn_cells(g->batch.rows), norm_again_panel, &n);
}

// ---------------------------------------------------------------- feed-forward

typedef struct hidden_back {
    kn_gradient *g;
    int32_t layer;
    float *active;  // (rows, ffn): act(hidden), dropped: what the down matrix read
    float *dactive; // (rows, ffn); where there is no gate it becomes dhidden in its place
    float *dhidden; // (rows, hidden)
} hidden_back;

static void active_panel(void *context, size_t task, int worker) {
    const hidden_back *h = context;
    kn_gradient *g = h->g;
    size_t f = (size_t)g->config.ffn, first = task * KN_CELL, rows = kn_min(KN_CELL, g->batch.rows - first);
    (void)worker;
    const float *hidden = g->layers[h->layer].hidden + first * kn_config_hidden(&g->config);
    kn_activate(&g->w, h->active + first * f, hidden, rows, first, g->dropout ? g->dropout->activation : 0,
                g->dropout ? kn_drop_key(g, h->layer, KN_DROP_HIDDEN) : 0);
}

static void hidden_back_panel(void *context, size_t task, int worker) {
    const hidden_back *h = context;
    kn_gradient *g = h->g;
    size_t f = (size_t)g->config.ffn, first = task * KN_CELL, end = kn_min(first + KN_CELL, g->batch.rows);
    size_t wide = kn_config_hidden(&g->config);
    (void)worker;
    for (size_t r = first; r < end; r++) {
        const float *hidden = g->layers[h->layer].hidden + r * wide;
        float *dactive = h->dactive + r * f, *dhidden = h->dhidden + r * wide;
        if (g->dropout && g->dropout->activation > 0)
            g->k->dropout(dactive, f, g->dropout->activation,
                          kn_drop_key(g, h->layer, KN_DROP_HIDDEN) + (r << 32), 0);
        switch (g->config.activation) {
        case KNNLM_ACTIVATION_RELU:
            g->k->relu_backward(dactive, hidden, f);
            break;
        case KNNLM_ACTIVATION_GELU:
            g->k->gelu_backward(dactive, hidden, f);
            break;
        case KNNLM_ACTIVATION_RELU2:
            g->k->relu2_backward(dactive, hidden, f);
            break;
        case KNNLM_ACTIVATION_SWIGLU:
            g->k->swiglu_backward(dhidden, dhidden + f, dactive, hidden, hidden + f, f);
            break;
        }
    }
}

static void bias_gradient(kn_gradient *g, size_t bias_at, const float *dy, size_t n) {
    if (!g->config.no_bias) kn_column_sums(g->k, g->grads + bias_at, dy, n, g->batch.rows, n);
}

static void backward_ffn(kn_gradient *g, int32_t n) {
    const kn_layer_layout *at = &g->layout->layers[n];
    const kn_layer_weights *l = &g->w.layers[n];
    kn_layer_state *st = &g->layers[n];
    size_t d = (size_t)g->config.width, f = (size_t)g->config.ffn, wide = kn_config_hidden(&g->config),
           rows = g->batch.rows, panels = kn_cells(rows);
    hidden_back h = {.g = g,
                     .layer = n,
                     .active = g->wide2,
                     .dactive = kn_config_gated(&g->config) ? g->wide2 : g->wide,
                     .dhidden = g->wide};

    const float *dfed = branch_slope(g, n, KN_DROP_FED);
    kn_parallel(panels, active_panel, &h);
    kn_weight_gradient_at(g, dfed, d, g->wide2, f, at->down_w);
    bias_gradient(g, at->down_b, dfed, d);
    kn_pack_rows(&g->s, dfed, d, rows, d);
    kn_apply(&g->s, rows, &g->transposed[n].down, NULL, h.dactive, false);
    kn_parallel(panels, hidden_back_panel, &h);

    norm_again(g, g->wide2, st->middle, l->ffn_norm_w, l->ffn_norm_b);
    kn_weight_gradient_at(g, g->wide, wide, g->wide2, d, at->up_w);
    bias_gradient(g, at->up_b, g->wide, wide);
    kn_pack_rows(&g->s, g->wide, wide, rows, wide);
    kn_apply(&g->s, rows, &g->transposed[n].up, NULL, g->dy, false);
    backward_norm(g, g->dx, g->dy, st->middle, l->ffn_norm_w, st->ffn_norm, at->ffn_norm_w, at->ffn_norm_b);
}

static knnlm_status backward_attention_part(kn_gradient *g, int32_t n) {
    const kn_layer_layout *at = &g->layout->layers[n];
    const kn_layer_weights *l = &g->w.layers[n];
    kn_layer_state *st = &g->layers[n];
    size_t d = (size_t)g->config.width, rows = g->batch.rows;

    const float *dattended = branch_slope(g, n, KN_DROP_ATTENDED);
    kn_weight_gradient_at(g, dattended, d, st->attended, d, at->out_w);
    bias_gradient(g, at->out_b, dattended, d);
    kn_pack_rows(&g->s, dattended, d, rows, d);
    kn_apply(&g->s, rows, &g->transposed[n].out, NULL, g->dy, false);
    kn_backward_attention(g, n, g->dy, g->wide);
    KN_TRY(kn_backward_heads(g, n, g->wide));

    norm_again(g, g->wide2, st->x, l->attn_norm_w, l->attn_norm_b);
    kn_weight_gradient_at(g, g->wide, 3 * d, g->wide2, d, at->qkv_w);
    bias_gradient(g, at->qkv_b, g->wide, 3 * d);
    kn_pack_rows(&g->s, g->wide, 3 * d, rows, 3 * d);
    kn_apply(&g->s, rows, &g->transposed[n].qkv, NULL, g->dy, false);
    backward_norm(g, g->dx, g->dy, st->x, l->attn_norm_w, st->attn_norm, at->attn_norm_w, at->attn_norm_b);
    return KNNLM_OK;
}

knnlm_status kn_backward_layer(kn_gradient *g, int32_t n) {
    backward_ffn(g, n);
    return backward_attention_part(g, n);
}

void kn_backward_final_norm(kn_gradient *g) {
    if (!g->config.final_norm) return;
    size_t n = g->batch.rows * (size_t)g->config.width;
    memcpy(g->dy, g->dx, n * sizeof *g->dy);
    memset(g->dx, 0, n * sizeof *g->dx);
    backward_norm(g, g->dx, g->dy, g->last, g->w.norm_w, g->last_norm, g->layout->norm_w, g->layout->norm_b);
}
