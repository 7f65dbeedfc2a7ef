// Rotary positions, and the norms of queries and keys before them.
#include "lm/native/layers.h"

#include "base/threads.h"

#include <string.h>

const float *kn_rotation_at(const kn_weights *w, size_t position, float *scratch) {
    if (position < w->rotation_count) return w->rotations + position * kn_config_head_width(&w->config);
    kn_rotation_fill(w, position, scratch);
    return scratch;
}

typedef struct placing {
    const kn_weights *w;
    const kn_layer_weights *l;
    const kn_batch *b;
    float *qkv;
    kn_heads_state state;
} placing;

// The queries (part 0) or keys (part 1) of one row.
static void place_part(const placing *p, size_t row, size_t part, const float *rotation) {
    const kn_config *c = &p->w->config;
    size_t d = (size_t)c->width, head = kn_config_head_width(c), heads = (size_t)c->heads;
    float *x = p->qkv + row * 3 * d + part * d, inverse;
    const float *norm = part ? p->l->k_norm : p->l->q_norm;
    if (p->state.raw) memcpy(p->state.raw + row * 2 * d + part * d, x, d * sizeof *x);
    for (size_t h = 0; h < heads; h++, x += head) {
        float *kept = p->state.inverse ? p->state.inverse + row * 2 * heads + part * heads + h : &inverse;
        if (norm) p->w->k->rms_norm(x, kept, x, norm, head, c->epsilon);
        p->w->k->rotate(x, rotation, rotation + head / 2, head / 2, kn_config_adjacent(c), 1.0f);
    }
}

// The sequence that a row belongs to: sequences stand one after another.
static size_t sequence_of(const kn_batch *b, size_t row) {
    size_t low = 0, high = b->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(b->start[middle] <= row ? &low : &high) = middle;
    }
    return low;
}

static void place_panel(void *context, size_t task, int worker) {
    const placing *p = context;
    size_t first = task * KN_CELL, end = kn_min(first + KN_CELL, p->b->rows), s = sequence_of(p->b, first);
    float scratch[KN_HEAD_WIDTH_MAX];
    (void)worker;
    for (size_t row = first; row < end; row++) {
        while (row >= p->b->start[s + 1]) s++;
        size_t position = kn_batch_position(p->b, s) + row - p->b->start[s];
        const float *rotation = kn_rotation_at(p->w, position, scratch);
        place_part(p, row, 0, rotation);
        place_part(p, row, 1, rotation);
    }
}

void kn_place_heads(const kn_weights *w, const kn_layer_weights *l, const kn_batch *b, float *qkv,
                    kn_heads_state state) {
    placing p = {w, l, b, qkv, state};
    if (w->config.positions == KNNLM_POSITIONS_ROTARY) kn_parallel(kn_cells(b->rows), place_panel, &p);
}
