// The backward pass of attention: scores are computed again, 32 queries at a time.
//   P = softmax(s Q K^T) (causal), O = drop(P) V
//   dV += drop(P)^T dO;  dP = drop(dO V^T);  dS = P * (dP - rowsum(dO * O));  dQ = s dS K;  dK += dS^T (s Q)
#include "train/pass.h"

#include "base/threads.h"

#include <math.h>
#include <string.h>

typedef struct scratch {
    char *keys, *values;                // packed right operands (keys x head width)
    char *keys_t;                       // packed: depth runs over keys
    char *query, *slope_out;            // packed left: 32 rows of scaled Q, of dO
    char *query_t, *slope_out_t;        // packed right: depth runs over the 32 rows
    char *slopes;                       // packed left: dS over all keys
    char *cell;                         // packed left: a block transposed
    float *weights, *dropped, *dscores; // blocks of 32 keys
    float *dkeys, *dvalues;             // sums: (key block, head panel) blocks
    float *rows;                        // (32, head width)
} scratch;

static size_t lay_out(const kn_kernels *k, size_t keys, size_t width, char *base, scratch *s) {
    size_t panel = kn_panel_bytes(k, width), wide = kn_panel_bytes(k, keys), used = 0;
    size_t cell = k->cell, block = KN_CELL_SIZE * sizeof(float);
    s->keys = kn_take(base, &used, kn_cells(keys) * panel);
    s->values = kn_take(base, &used, kn_cells(keys) * panel);
    s->keys_t = kn_take(base, &used, kn_cells(width) * wide);
    s->query = kn_take(base, &used, panel);
    s->slope_out = kn_take(base, &used, panel);
    s->query_t = kn_take(base, &used, kn_cells(width) * cell);
    s->slope_out_t = kn_take(base, &used, kn_cells(width) * cell);
    s->slopes = kn_take(base, &used, wide);
    s->cell = kn_take(base, &used, cell);
    s->weights = kn_take(base, &used, kn_cells(keys) * block);
    s->dropped = kn_take(base, &used, kn_cells(keys) * block);
    s->dscores = kn_take(base, &used, kn_cells(keys) * block);
    s->dkeys = kn_take(base, &used, kn_cells(keys) * kn_cells(width) * block);
    s->dvalues = kn_take(base, &used, kn_cells(keys) * kn_cells(width) * block);
    s->rows = kn_take(base, &used, KN_CELL * width * sizeof(float));
    return used;
}

size_t kn_backward_attention_scratch(const kn_kernels *k, size_t keys, size_t head_width) {
    static char origin[1]; // only differences matter
    scratch s;
    return lay_out(k->attention, keys, head_width, origin, &s);
}

typedef struct job {
    kn_gradient *g;
    int32_t layer;
    const float *dout;
    float *dqkv;
    size_t width;
} job;

// One head of one sequence.
typedef struct head {
    const kn_kernels *k;
    const scratch *s;
    size_t window;                 // keys that a query sees, its own included
    size_t width, length, ld, ldo; // ld: stride of q, k, v and their gradients; ldo: of the output
    const float *q, *keys, *v, *out, *dout;
    float *dq, *dk, *dv;
    const float *logs;
    float probability;
    uint64_t drop_key;
    float scale;
} head;

static void pack_sequence(const head *h) {
    size_t panel = kn_panel_bytes(h->k, h->width), wide = kn_panel_bytes(h->k, h->length);
    for (size_t i = 0; i < h->length; i += KN_CELL) {
        size_t n = kn_min(KN_CELL, h->length - i);
        h->k->pack_rhs(h->s->keys + i / KN_CELL * panel, h->keys + i * h->ld, h->ld, n, h->width);
        h->k->pack_rhs(h->s->values + i / KN_CELL * panel, h->v + i * h->ld, h->ld, n, h->width);
    }
    for (size_t i = 0; i < h->width; i += KN_CELL)
        h->k->pack_rhs_t(h->s->keys_t + i / KN_CELL * wide, h->keys + i, h->ld, kn_min(KN_CELL, h->width - i),
                         h->length);
}

// The 32 queries from `query` on, and the gradient of their output, packed every way that is needed.
static void pack_queries(const head *h, size_t query, size_t rows) {
    const scratch *s = h->s;
    size_t cell = h->k->cell;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < h->width; i++)
            s->rows[r * h->width + i] = h->q[(query + r) * h->ld + i] * h->scale;
    h->k->pack_lhs(s->query, s->rows, h->width, rows, h->width);
    h->k->pack_lhs(s->slope_out, h->dout + query * h->ldo, h->ldo, rows, h->width);
    for (size_t i = 0; i < h->width; i += KN_CELL) {
        size_t n = kn_min(KN_CELL, h->width - i), at = i / KN_CELL * cell;
        h->k->pack_rhs_t(s->query_t + at, s->rows + i, h->width, n, rows);
        h->k->pack_rhs_t(s->slope_out_t + at, h->dout + query * h->ldo + i, h->ldo, n, rows);
    }
}

// The blocks of 32 keys that some queries see.
typedef struct blocks_seen {
    size_t first, count;
} blocks_seen;

static blocks_seen blocks_of(const head *h, size_t query, size_t rows) {
    size_t first = query + 1 > h->window ? (query + 1 - h->window) / KN_CELL : 0;
    return (blocks_seen){first, kn_cells(query + rows) - first};
}

// weights = P, dropped = drop(P), dscores = dS of the queries at hand.
static void score_slopes(const head *h, size_t query, size_t rows, blocks_seen seen) {
    const scratch *s = h->s;
    size_t panel = kn_panel_bytes(h->k, h->width), blocks = seen.count;
    float dots[KN_CELL];
    for (size_t b = 0; b < blocks; b++) {
        h->k->multiply(s->weights + b * KN_CELL_SIZE, s->query, s->keys + (seen.first + b) * panel,
                       kn_cells(h->width), rows, false);
        h->k->multiply(s->dscores + b * KN_CELL_SIZE, s->slope_out, s->values + (seen.first + b) * panel,
                       kn_cells(h->width), rows, false);
    }
    h->k->causal_exp(s->weights, blocks, rows, query + 1 - seen.first * KN_CELL, h->window, h->logs + query);
    if (h->probability > 0) {
        memcpy(s->dropped, s->weights, blocks * KN_CELL_SIZE * sizeof(float));
        kn_attention_drop(h->k, s->dropped, blocks, rows, query, h->probability, h->drop_key);
        kn_attention_drop(h->k, s->dscores, blocks, rows, query, h->probability, h->drop_key);
    }
    for (size_t r = 0; r < rows; r++)
        dots[r] = h->k->dot(h->dout + (query + r) * h->ldo, h->out + (query + r) * h->ldo, h->width);
    h->k->softmax_backward(s->dscores, s->weights, blocks, rows, dots);
}

static void add_key_slopes(const head *h, size_t query, size_t rows, blocks_seen seen) {
    const scratch *s = h->s;
    const float *used = h->probability > 0 ? s->dropped : s->weights;
    size_t panels = kn_cells(h->width), cell = h->k->cell;
    for (size_t b = 0; b < seen.count; b++) {
        // A block of keys is first met by the queries that stand in it.
        size_t place = (seen.first + b) * panels;
        bool met = (seen.first + b) * KN_CELL < query;
        h->k->pack_lhs_t(s->cell, used + b * KN_CELL_SIZE, KN_CELL, KN_CELL, rows);
        for (size_t p = 0; p < panels; p++)
            h->k->multiply(s->dvalues + (place + p) * KN_CELL_SIZE, s->cell, s->slope_out_t + p * cell, 1,
                           KN_CELL, met);
        h->k->pack_lhs_t(s->cell, s->dscores + b * KN_CELL_SIZE, KN_CELL, KN_CELL, rows);
        for (size_t p = 0; p < panels; p++)
            h->k->multiply(s->dkeys + (place + p) * KN_CELL_SIZE, s->cell, s->query_t + p * cell, 1, KN_CELL,
                           met);
    }
}

static void write_query_slopes(const head *h, size_t query, size_t rows, blocks_seen seen) {
    const scratch *s = h->s;
    size_t cell = h->k->cell, wide = kn_panel_bytes(h->k, h->length);
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    for (size_t b = 0; b < seen.count; b++)
        h->k->pack_lhs(s->slopes + b * cell, s->dscores + b * KN_CELL_SIZE, KN_CELL, rows, KN_CELL);
    for (size_t i = 0; i < h->width; i += KN_CELL) {
        size_t n = kn_min(KN_CELL, h->width - i);
        h->k->multiply(block, s->slopes, s->keys_t + i / KN_CELL * wide + seen.first * cell, seen.count, rows,
                       false);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++)
                h->dq[(query + r) * h->ld + i + c] = h->scale * block[r * KN_CELL + c];
    }
}

static void write_sums(const head *h, const float *sums, float *out) {
    size_t panels = kn_cells(h->width);
    for (size_t row = 0; row < h->length; row++)
        for (size_t i = 0; i < h->width; i += KN_CELL)
            memcpy(out + row * h->ld + i,
                   sums + (row / KN_CELL * panels + i / KN_CELL) * KN_CELL_SIZE + row % KN_CELL * KN_CELL,
                   kn_min(KN_CELL, h->width - i) * sizeof *out);
}

static void head_task(void *context, size_t task, int worker) {
    const job *j = context;
    kn_gradient *g = j->g;
    const kn_layer_state *st = &g->layers[j->layer];
    size_t heads = (size_t)g->config.heads, d = (size_t)g->config.width, sequence = task / heads,
           n = task % heads;
    size_t start = g->batch.start[sequence], at = start * 3 * d + n * j->width;
    scratch s;
    lay_out(g->k->attention, g->length, j->width, g->attention + (size_t)worker * g->attention_stride, &s);
    head h = {.k = g->k->attention,
              .s = &s,
              .window = kn_config_window(&g->config),
              .width = j->width,
              .length = g->length,
              .ld = 3 * d,
              .ldo = d,
              .q = st->qkv + at,
              .keys = st->qkv + at + d,
              .v = st->qkv + at + 2 * d,
              .out = st->attended + start * d + n * j->width,
              .dout = j->dout + start * d + n * j->width,
              .dq = j->dqkv + at,
              .dk = j->dqkv + at + d,
              .dv = j->dqkv + at + 2 * d,
              .logs = st->logs + (sequence * heads + n) * g->length,
              .scale = 1.0f / sqrtf((float)j->width)};
    if (g->dropout && g->dropout->attention > 0) {
        h.probability = g->dropout->attention;
        h.drop_key = kn_attention_dropout_key(kn_drop_key(g, j->layer, KN_DROP_ATTENTION), sequence, n);
    }
    pack_sequence(&h);
    for (size_t query = 0; query < h.length; query += KN_CELL) {
        size_t rows = kn_min(KN_CELL, h.length - query);
        blocks_seen seen = blocks_of(&h, query, rows);
        pack_queries(&h, query, rows);
        score_slopes(&h, query, rows, seen);
        add_key_slopes(&h, query, rows, seen);
        write_query_slopes(&h, query, rows, seen);
    }
    write_sums(&h, s.dkeys, h.dk);
    write_sums(&h, s.dvalues, h.dv);
}

void kn_backward_attention(kn_gradient *g, int32_t layer, const float *dattended, float *dqkv) {
    job j = {g, layer, dattended, dqkv, (size_t)(g->config.width / g->config.heads)};
    kn_parallel(g->batch.count * (size_t)g->config.heads, head_task, &j);
}
