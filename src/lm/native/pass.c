// The forward pass of inference over a batch of sequences, up to the last thing that is wanted of it.
#include "lm/native/native.h"

#include <stdlib.h>
#include <string.h>

knnlm_status kn_workspace_init(kn_workspace *ws, const kn_config *c, const kn_kernels *k, size_t rows,
                               size_t keys) {
    size_t d = (size_t)c->width, f = kn_config_hidden(c);
    *ws = (kn_workspace){.rows = rows};
    knnlm_status status = kn_scratch_init(c, k, rows, keys, &ws->s);
    ws->x = kn_alloc_aligned(rows * d, sizeof(float));
    ws->qkv = kn_alloc_aligned(rows * 3 * d, sizeof(float));
    ws->attended = kn_alloc_aligned(rows * d, sizeof(float));
    ws->hidden = kn_alloc_aligned(rows * f, sizeof(float));
    ws->copy = kn_alloc_aligned(rows * d, sizeof(float));
    ws->scored = kn_alloc_aligned(rows * d, sizeof(float));
    if (status == KNNLM_OK && ws->x && ws->qkv && ws->attended && ws->hidden && ws->copy && ws->scored)
        return KNNLM_OK;
    kn_workspace_free(ws);
    return KNNLM_ENOMEM;
}

void kn_workspace_free(kn_workspace *ws) {
    kn_scratch_free(&ws->s);
    kn_free_aligned(ws->x);
    kn_free_aligned(ws->qkv);
    kn_free_aligned(ws->attended);
    kn_free_aligned(ws->hidden);
    kn_free_aligned(ws->copy);
    kn_free_aligned(ws->scored);
    *ws = (kn_workspace){0};
}

static bool wants_words(const kn_pass *p) {
    return p->out.logprobs || p->out.entropies || p->out.distribution;
}

static bool tapped(const kn_pass *p, int32_t layer, kn_tap_point point) {
    return p->out.keys && p->tap.layer == layer && p->tap.point == point;
}

// Rows [first[s], end of s) of each sequence, one after another.
static void take_scored(const kn_pass *p, const float *rows, float *out) {
    size_t d = (size_t)p->w->config.width;
    for (size_t s = 0; s < p->batch.count; s++) {
        size_t from = p->batch.start[s] + p->first[s], n = p->batch.start[s + 1] - from;
        memmove(out, rows + from * d, n * d * sizeof *out);
        out += n * d;
    }
}

// ---------------------------------------------------------------- attention

// The row of a session's cache where its new rows begin.
static size_t cache_row(const kn_pass *p, size_t s) {
    return kn_batch_position(&p->batch, s) - (p->cached_from ? p->cached_from[s] : 0);
}

// A sequence that stands alone, one with a past, or a session, whose keys and values are all in its cache.
static kn_attention sequence_of(const kn_pass *p, int32_t layer, size_t s) {
    size_t d = (size_t)p->w->config.width, start = p->batch.start[s], rows = p->batch.start[s + 1] - start;
    const float *qkv = p->ws->qkv + start * 3 * d;
    kn_attention a = {.q = qkv,
                      .k = qkv + d,
                      .v = qkv + 2 * d,
                      .out = p->ws->attended + start * d,
                      .ldq = 3 * d,
                      .ldk = 3 * d,
                      .ldo = d,
                      .queries = rows,
                      .keys = rows,
                      .window = kn_config_window(&p->w->config)};
    if (p->caches) {
        a.k = p->caches[s][layer];
        a.v = a.k + d;
        a.ldk = 2 * d;
        a.keys = cache_row(p, s) + rows;
    } else if (p->pasts && p->pasts[s]) {
        a.past = p->pasts[s]->rows;
        a.past_k = p->pasts[s]->kept[layer];
        a.past_v = a.past_k + d;
        a.ldpast = 2 * d;
        a.keys = a.past + rows;
    }
    return a;
}

static void fill_sequences(kn_pass *p, int32_t layer, bool only_scored) {
    for (size_t s = 0; s < p->batch.count; s++) {
        p->ws->s.sequences[s] = sequence_of(p, layer, s);
        p->ws->s.sequences[s].from = only_scored ? p->first[s] : 0;
    }
}

// Keys and values of the new rows, for those that come later.
static void fill_cache(const kn_pass *p, int32_t layer) {
    size_t d = (size_t)p->w->config.width;
    for (size_t s = 0; s < p->batch.count; s++) {
        float *cache = p->caches[s][layer] + cache_row(p, s) * 2 * d;
        for (size_t r = p->batch.start[s]; r < p->batch.start[s + 1]; r++, cache += 2 * d)
            memcpy(cache, p->ws->qkv + r * 3 * d + d, 2 * d * sizeof(float));
    }
}

static void fill_pasts(const kn_pass *p, int32_t layer) {
    for (size_t s = 0; p->pasts && s < p->batch.count; s++) {
        size_t start = p->batch.start[s], rows = p->batch.start[s + 1] - start;
        if (p->pasts[s])
            kn_native_past_keep(p->pasts[s], &p->w->config, layer,
                                p->ws->qkv + start * 3 * (size_t)p->w->config.width, rows);
    }
}

// x becomes x + attention; in the last layer only the scored rows do, and they move to ws->scored.
static float *attend(kn_pass *p, int32_t n, bool last) {
    const kn_layer_weights *l = &p->w->layers[n];
    kn_workspace *ws = p->ws;
    size_t d = (size_t)p->w->config.width, heads = (size_t)p->w->config.heads,
           rows = last ? p->scored : p->batch.rows;
    kn_apply(&ws->s, p->batch.rows, &l->qkv, l->qkv_b, ws->qkv, false);
    kn_place_heads(p->w, l, &p->batch, ws->qkv, (kn_heads_state){0});
    if (p->caches) fill_cache(p, n);
    fill_sequences(p, n, last);
    kn_attention_run(p->w->k, ws->s.sequences, p->batch.count, heads, d / heads, NULL, ws->s.attention,
                     ws->s.attention_stride);
    fill_pasts(p, n);
    float *x = ws->x;
    if (!rows) return x; // read for what comes after it
    if (last) {
        take_scored(p, ws->attended, ws->attended);
        take_scored(p, ws->x, ws->scored);
        x = ws->scored;
    }
    kn_pack_rows(&ws->s, ws->attended, d, rows, d);
    kn_apply(&ws->s, rows, &l->out, l->out_b, x, true);
    return x;
}

// ---------------------------------------------------------------- layers

static void give_keys(const kn_pass *p, const float *rows, bool already_scored) {
    size_t d = (size_t)p->w->config.width;
    if (already_scored)
        memcpy(p->out.keys, rows, p->scored * d * sizeof *rows);
    else
        take_scored(p, rows, p->out.keys);
}

static void give_output_norm(const kn_pass *p, const float *x, size_t rows, int32_t n, bool scored) {
    const kn_weights *w = p->w;
    bool final = n + 1 == w->config.layers;
    const float *weight = final ? w->norm_w : w->layers[n + 1].attn_norm_w;
    const float *bias = final ? w->norm_b : w->layers[n + 1].attn_norm_b;
    kn_norm_pack(w, &p->ws->s, x, rows, weight, bias, (kn_norm_state){0}, p->ws->copy);
    give_keys(p, p->ws->copy, scored);
}

// Whether nothing after this point of this layer is wanted.
static bool finished(const kn_pass *p, int32_t layer, kn_tap_point point) {
    return !wants_words(p) && !p->caches && tapped(p, layer, point);
}

// Runs layer n; false: the tap was reached and nothing more is wanted. *x: the residual stream, now after the
// layer.
static bool run_layer(kn_pass *p, int32_t n, float **x) {
    const kn_weights *w = p->w;
    const kn_layer_weights *l = &w->layers[n];
    kn_workspace *ws = p->ws;
    // Without a cache to fill, what follows the last attention matters for scored rows alone.
    bool last = n + 1 == w->config.layers;
    size_t rows = last ? p->scored : p->batch.rows;
    bool copy = tapped(p, n, KN_TAP_ATTENTION);
    if (tapped(p, n, KN_TAP_ATTENTION_RAW)) give_keys(p, ws->x, false);
    if (finished(p, n, KN_TAP_ATTENTION_RAW)) return false;
    kn_norm_pack(w, &ws->s, ws->x, p->batch.rows, l->attn_norm_w, l->attn_norm_b, (kn_norm_state){0},
                 copy ? ws->copy : NULL);
    if (copy) give_keys(p, ws->copy, false);
    if (finished(p, n, KN_TAP_ATTENTION)) return false;
    *x = attend(p, n, last);
    if (!rows) return false;
    if (tapped(p, n, KN_TAP_FFN_INPUT_RAW)) give_keys(p, *x, last);
    if (finished(p, n, KN_TAP_FFN_INPUT_RAW)) return false;
    copy = tapped(p, n, KN_TAP_FFN_INPUT);
    kn_norm_pack(w, &ws->s, *x, rows, l->ffn_norm_w, l->ffn_norm_b, (kn_norm_state){0},
                 copy ? ws->copy : NULL);
    if (copy) give_keys(p, ws->copy, last);
    if (finished(p, n, KN_TAP_FFN_INPUT)) return false;
    kn_apply(&ws->s, rows, &l->up, l->up_b, ws->hidden, false);
    kn_activate_pack(w, &ws->s, ws->hidden, rows, 0, 0);
    kn_apply(&ws->s, rows, &l->down, l->down_b, *x, true);
    if (tapped(p, n, KN_TAP_OUTPUT)) give_keys(p, *x, last);
    if (tapped(p, n, KN_TAP_OUTPUT_NORM)) give_output_norm(p, *x, rows, n, last);
    return !finished(p, n, KN_TAP_OUTPUT) && !finished(p, n, KN_TAP_OUTPUT_NORM);
}

knnlm_status kn_pass_run(kn_pass *p) {
    const kn_weights *w = p->w;
    kn_workspace *ws = p->ws;
    float *x = ws->x;
    if (!wants_words(p) && !p->out.keys && !p->caches) return KNNLM_OK;
    KN_TRY(kn_scratch_fit(&ws->s));
    KN_TRY(kn_grow(&ws->s.sequences, &ws->s.sequence_capacity, p->batch.count, sizeof *ws->s.sequences));
    KN_TRY(kn_embed(w, &p->batch, &ws->s, ws->x));
    for (int32_t n = 0; n < w->config.layers; n++)
        if (!run_layer(p, n, &x)) return KNNLM_OK;
    if (!wants_words(p)) return KNNLM_OK;
    if (w->config.final_norm) {
        kn_norm_pack(w, &ws->s, x, p->scored, w->norm_w, w->norm_b, (kn_norm_state){0}, ws->copy);
        x = ws->copy;
    }
    return kn_head_run(w, x, p->scored, p->targets, p->out.logprobs, p->out.entropies, p->out.distribution);
}
