// Causal self-attention in packed blocks; reference.c has it in plain loops.
#include "lm/native/attention.h"

#include "base/threads.h"

#include <math.h>
#include <string.h>

// Scratch of one worker, in this order.
typedef struct scratch {
    char *keys;    // packed: a panel for each 32 keys
    char *values;  // packed, transposed: a panel for each 32 columns of the head
    char *query;   // packed: one panel
    char *weights; // packed: one panel over all keys
    float *scores; // blocks of 32 keys
    float *rows;   // (32, head width)
} scratch;

static size_t lay_out(const kn_kernels *k, size_t keys, size_t width, char *base, scratch *s) {
    size_t panel = kn_panel_bytes(k, width), wide = kn_panel_bytes(k, keys), used = 0;
    s->keys = kn_take(base, &used, kn_cells(keys) * panel);
    s->values = kn_take(base, &used, kn_cells(width) * wide);
    s->query = kn_take(base, &used, panel);
    s->weights = kn_take(base, &used, wide);
    s->scores = kn_take(base, &used, kn_cells(keys) * KN_CELL_SIZE * sizeof(float));
    s->rows = kn_take(base, &used, KN_CELL * width * sizeof(float));
    return used;
}

size_t kn_attention_scratch(const kn_kernels *k, size_t keys, size_t head_width) {
    static char origin[1]; // only differences matter
    scratch s;
    return lay_out(k->attention, keys, head_width, origin, &s);
}

void kn_attention_drop(const kn_kernels *k, float *weights, size_t blocks, size_t rows, size_t query,
                       float probability, uint64_t head_key) {
    for (size_t b = 0; b < blocks; b++)
        for (size_t r = 0; r < rows; r++)
            k->dropout(weights + b * KN_CELL_SIZE + r * KN_CELL, KN_CELL, probability,
                       head_key + ((query + r) << 40), (uint32_t)(b * KN_CELL));
}

typedef struct job {
    const kn_kernels *k;
    const kn_attention *sequences;
    size_t heads, width;
    const kn_attention_dropout *dropout;
    char *scratch;
    size_t stride;
} job;

static void pack_keys_and_values(const job *j, const kn_attention *a, size_t head, const scratch *s) {
    size_t offset = head * j->width, panel = kn_panel_bytes(j->k, j->width),
           wide = kn_panel_bytes(j->k, a->keys), fresh = a->keys - a->past,
           past_bytes = kn_panel_bytes(j->k, a->past); // of a panel of values
    for (size_t i = 0; i < a->past; i += KN_CELL)
        j->k->pack_rhs(s->keys + i / KN_CELL * panel, a->past_k + i * a->ldpast + offset, a->ldpast, KN_CELL,
                       j->width);
    for (size_t i = 0; i < fresh; i += KN_CELL)
        j->k->pack_rhs(s->keys + (a->past + i) / KN_CELL * panel, a->k + i * a->ldk + offset, a->ldk,
                       kn_min(KN_CELL, fresh - i), j->width);
    for (size_t i = 0; i < j->width; i += KN_CELL) {
        char *values = s->values + i / KN_CELL * wide;
        size_t columns = kn_min(KN_CELL, j->width - i);
        if (a->past) j->k->pack_rhs_t(values, a->past_v + offset + i, a->ldpast, columns, a->past);
        j->k->pack_rhs_t(values + past_bytes, a->v + offset + i, a->ldk, columns, fresh);
    }
}

// Keys before the first that any of some queries sees, in whole blocks, when the first of them sees
// `visible`.
static size_t unseen_blocks(const kn_attention *a, size_t visible) {
    return visible > a->window ? (visible - a->window) / KN_CELL : 0;
}

// Softmax of the scaled scores of `rows` queries from `query` on, packed as the left operand of the values;
// returns the blocks of keys that it is over.
static size_t attend(const job *j, const kn_attention *a, size_t sequence, size_t head, size_t query,
                     size_t rows, const scratch *s) {
    size_t visible = a->keys - a->queries + query + 1, unseen = unseen_blocks(a, visible);
    size_t blocks = kn_cells(visible + rows - 1) - unseen;
    size_t panel = kn_panel_bytes(j->k, j->width), cell = j->k->cell;
    float scale = 1.0f / sqrtf((float)j->width), logs[KN_CELL];
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < j->width; i++)
            s->rows[r * j->width + i] = a->q[(query + r) * a->ldq + head * j->width + i] * scale;
    j->k->pack_lhs(s->query, s->rows, j->width, rows, j->width);
    for (size_t b = 0; b < blocks; b++)
        j->k->multiply(s->scores + b * KN_CELL_SIZE, s->query, s->keys + (unseen + b) * panel,
                       kn_cells(j->width), rows, false);
    j->k->causal_softmax(s->scores, blocks, rows, visible - unseen * KN_CELL, a->window, logs);
    if (a->logs) memcpy(a->logs + head * a->queries + query, logs, rows * sizeof *logs);
    if (j->dropout && j->dropout->probability > 0)
        kn_attention_drop(j->k, s->scores, blocks, rows, query, j->dropout->probability,
                          kn_attention_dropout_key(j->dropout->key, sequence, head));
    for (size_t b = 0; b < blocks; b++)
        j->k->pack_lhs(s->weights + b * cell, s->scores + b * KN_CELL_SIZE, KN_CELL, rows, KN_CELL);
    return blocks;
}

static void gather_values(const job *j, const kn_attention *a, size_t head, size_t query, size_t rows,
                          size_t blocks, const scratch *s) {
    size_t wide = kn_panel_bytes(j->k, a->keys), cell = j->k->cell;
    size_t unseen = unseen_blocks(a, a->keys - a->queries + query + 1);
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    for (size_t i = 0; i < j->width; i += KN_CELL) {
        size_t columns = kn_min(KN_CELL, j->width - i);
        j->k->multiply(block, s->weights, s->values + i / KN_CELL * wide + unseen * cell, blocks, rows,
                       false);
        for (size_t r = 0; r < rows; r++)
            memcpy(a->out + (query + r) * a->ldo + head * j->width + i, block + r * KN_CELL,
                   columns * sizeof *block);
    }
}

// A query or two against many keys: reading keys and values once costs less than packing them. Rows [first,
// first + seen) of past and fresh ones together.
static void attend_one(const job *j, const kn_attention *a, const float *q, size_t offset, size_t first,
                       size_t seen, float *scores, float *out) {
    size_t past = first < a->past ? a->past - first : 0; // of those seen
    size_t old = first * a->ldpast + offset, new = (first + past - a->past) * a->ldk + offset;
    if (past) j->k->dots(scores, q, a->past_k + old, a->ldpast, past, j->width);
    j->k->dots(scores + past, q, a->k + new, a->ldk, seen - past, j->width);
    j->k->scale(scores, 1.0f / sqrtf((float)j->width), seen);
    j->k->scale(scores, 1.0f / j->k->exp_shift(scores, seen, j->k->max(scores, seen)), seen);
    memset(out, 0, j->width * sizeof *out);
    if (past) j->k->add_rows(out, scores, a->past_v + old, a->ldpast, past, j->width);
    j->k->add_rows(out, scores + past, a->v + new, a->ldk, seen - past, j->width);
}

static void attend_few(const job *j, const kn_attention *a, size_t head, const scratch *s) {
    for (size_t query = a->from; query < a->queries; query++) {
        size_t visible = a->keys - a->queries + query + 1, offset = head * j->width;
        size_t first = visible > a->window ? visible - a->window : 0;
        attend_one(j, a, a->q + query * a->ldq + offset, offset, first, visible - first, s->scores,
                   a->out + query * a->ldo + offset);
    }
}

enum { FEW = 4 };

static void attention_task(void *context, size_t task, int worker) {
    const job *j = context;
    size_t sequence = task / j->heads, head = task % j->heads;
    const kn_attention *a = &j->sequences[sequence];
    scratch s;
    lay_out(j->k, a->keys, j->width, j->scratch + (size_t)worker * j->stride, &s);
    if (a->queries <= FEW && !a->logs && !j->dropout) {
        attend_few(j, a, head, &s);
        return;
    }
    pack_keys_and_values(j, a, head, &s);
    for (size_t query = a->from / KN_CELL * KN_CELL; query < a->queries; query += KN_CELL) {
        size_t rows = kn_min(KN_CELL, a->queries - query);
        size_t blocks = attend(j, a, sequence, head, query, rows, &s);
        gather_values(j, a, head, query, rows, blocks, &s);
    }
}

void kn_attention_run(const kn_kernels *k, const kn_attention *sequences, size_t count, size_t heads,
                      size_t head_width, const kn_attention_dropout *dropout, void *scratch_memory,
                      size_t scratch_stride) {
    job j = {k->attention, sequences, heads, head_width, dropout, scratch_memory, scratch_stride};
    kn_parallel(count * heads, attention_task, &j);
}
