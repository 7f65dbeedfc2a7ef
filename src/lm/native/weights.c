// Packs the weights of a native model, from parameters in memory or from a file.
#include "lm/native/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static knnlm_status init_layer(const kn_config *c, const kn_kernels *k, kn_layer_weights *l) {
    size_t d = (size_t)c->width, f = (size_t)c->ffn;
    KN_TRY(kn_rhs_init(k, &l->qkv, 3 * d, d));
    KN_TRY(kn_rhs_init(k, &l->out, d, d));
    KN_TRY(kn_rhs_init(k, &l->up, kn_config_hidden(c), d));
    return kn_rhs_init(k, &l->down, d, f);
}

static knnlm_status init_bands(const kn_config *c, const kn_kernels *k, kn_weights *w) {
    size_t d = (size_t)c->width;
    for (int32_t b = 0; b < c->bands; b++) {
        size_t width = (size_t)kn_band_width(c, b);
        KN_TRY(kn_rhs_init(k, &w->classes[b], kn_cluster_size(c, b), width));
        if (c->bands > 1) KN_TRY(kn_rhs_init(k, &w->project[b], d, width));
        if (b > 0) KN_TRY(kn_rhs_init(k, &w->reduce[b], width, d));
    }
    return KNNLM_OK;
}

// [sin | cos] of position * 10000^(-i/(half-1)), as in fairseq. Each position turns the one before it by its
// frequency: the sines of a long context, one by one, would take seconds.
static knnlm_status fill_sinusoids(kn_weights *w) {
    size_t d = (size_t)w->config.width, half = d / 2, context = (size_t)w->config.context;
    double *turn = kn_alloc(2 * half, sizeof *turn), *at = kn_alloc(2 * half, sizeof *at); // pairs (sin, cos)
    w->positions = w->owned_positions = kn_alloc_aligned(context * d, sizeof(float));
    for (size_t i = 0; turn && at && i < half; i++) {
        double frequency = exp(-log(10000.0) * (double)i / (double)(half > 1 ? half - 1 : 1));
        turn[2 * i] = sin(frequency);
        turn[2 * i + 1] = cos(frequency);
        at[2 * i + 1] = 1;
    }
    for (size_t p = 0; turn && at && w->positions && p < context; p++) {
        float *row = w->owned_positions + p * d;
        for (size_t i = 0; i < half; i++) {
            double sine = at[2 * i], cosine = at[2 * i + 1];
            row[i] = (float)sine;
            row[half + i] = (float)cosine;
            at[2 * i] = sine * turn[2 * i + 1] + cosine * turn[2 * i];
            at[2 * i + 1] = cosine * turn[2 * i + 1] - sine * turn[2 * i];
        }
    }
    knnlm_status status = turn && at && w->positions ? KNNLM_OK : KNNLM_ENOMEM;
    free(turn);
    free(at);
    return status;
}

void kn_rotation_fill(const kn_weights *w, size_t position, float *out) {
    size_t half = kn_config_head_width(&w->config) / 2;
    for (size_t i = 0; i < half; i++) {
        double angle = (double)position * w->frequencies[i];
        out[i] = (float)cos(angle);
        out[half + i] = (float)sin(angle);
    }
}

// Streams go far beyond the context: of a text of Wikipedia nearly all rows are within so many positions, and
// making them anew for every row and layer was 2% of an evaluation.
enum { ROTATIONS_MIN = 4096 };

static knnlm_status fill_rotations(kn_weights *w) {
    size_t head = kn_config_head_width(&w->config);
    w->rotation_count = kn_max(ROTATIONS_MIN, (size_t)w->config.context);
    w->rotations = w->owned_positions = kn_alloc_aligned(w->rotation_count * head, sizeof(float));
    w->frequencies = kn_alloc(head / 2, sizeof *w->frequencies);
    if (!w->rotations || !w->frequencies) return KNNLM_ENOMEM;
    for (size_t i = 0; i < head / 2; i++)
        w->frequencies[i] = pow((double)w->config.rope_base, -2.0 * (double)i / (double)head);
    for (size_t p = 0; p < w->rotation_count; p++) kn_rotation_fill(w, p, w->owned_positions + p * head);
    return KNNLM_OK;
}

static knnlm_status init_all(kn_weights *w) {
    const kn_config *c = &w->config;
    w->layers = kn_alloc((size_t)c->layers, sizeof *w->layers);
    if (!w->layers) return KNNLM_ENOMEM;
    for (int32_t n = 0; n < c->layers; n++) KN_TRY(init_layer(c, w->k, &w->layers[n]));
    KN_TRY(init_bands(c, w->k, w));
    switch (c->positions) {
    case KNNLM_POSITIONS_SINUSOIDAL:
        return fill_sinusoids(w);
    case KNNLM_POSITIONS_ROTARY:
        return fill_rotations(w);
    case KNNLM_POSITIONS_LEARNED:
        break; // with the other values
    }
    return KNNLM_OK;
}

knnlm_status kn_weights_init(const kn_config *c, const kn_kernels *k, kn_weights *out) {
    *out = (kn_weights){.config = *c, .k = k};
    knnlm_status status = init_all(out);
    if (status != KNNLM_OK) kn_weights_free(out);
    return status;
}

void kn_weights_free(kn_weights *w) {
    for (int32_t n = 0; w->layers && n < w->config.layers; n++) {
        kn_rhs_free(&w->layers[n].qkv);
        kn_rhs_free(&w->layers[n].out);
        kn_rhs_free(&w->layers[n].up);
        kn_rhs_free(&w->layers[n].down);
    }
    for (int32_t b = 0; b < KN_BANDS_MAX; b++) {
        kn_rhs_free(&w->classes[b]);
        kn_rhs_free(&w->project[b]);
        kn_rhs_free(&w->reduce[b]);
    }
    free(w->layers);
    kn_free_aligned(w->owned_vectors);
    kn_free_aligned(w->owned_positions);
    free(w->frequencies);
    *w = (kn_weights){0};
}

// Packs the rows of cluster 0 of an adaptive model: its words, then the classes, which stand apart in memory.
static void pack_first_cluster(const kn_weights *w, kn_rhs *out, const float *words, const float *classes) {
    size_t d = (size_t)w->config.width, n = (size_t)kn_band_size(&w->config, 0), extra = out->columns - n;
    size_t bytes = kn_panel_bytes(w->k, d);
    kn_rhs whole = {.data = out->data, .columns = n, .depth = d};
    kn_rhs_pack(w->k, &whole, words, d, false);
    // The panels from the last word on mix both.
    for (size_t panel = n / KN_CELL; extra && panel < kn_cells(out->columns); panel++) {
        size_t first = panel * KN_CELL,
               count = out->columns - first < KN_CELL ? out->columns - first : KN_CELL;
        float *rows = kn_alloc(KN_CELL * d, sizeof *rows);
        if (!rows) return; // unreachable in practice: a panel is small beside what is already held
        for (size_t i = 0; i < count; i++)
            memcpy(rows + i * d, first + i < n ? words + (first + i) * d : classes + (first + i - n) * d,
                   d * sizeof *rows);
        w->k->pack_rhs((char *)out->data + panel * bytes, rows, d, count, d);
        free(rows);
    }
}

// The packed matrices that parameter `p` feeds, given its values.
static void pack_band(kn_weights *w, int32_t b, const float *embedding, const float *projection,
                      const float *classes) {
    size_t width = (size_t)kn_band_width(&w->config, b);
    if (embedding && w->config.bands > 1 && b == 0)
        pack_first_cluster(w, &w->classes[0], embedding, classes);
    else if (embedding)
        kn_rhs_pack(w->k, &w->classes[b], embedding, width, false);
    if (!projection) return;
    kn_rhs_pack(w->k, &w->project[b], projection, width, false);
    if (b > 0) kn_rhs_pack(w->k, &w->reduce[b], projection, width, true);
}

enum { LAYER_VECTORS = 10 };

// The vectors of a layer: where each stands in the layout (0: there is none), and its pointer.
typedef struct vector_place {
    size_t offset;
    const float **pointer;
} vector_place;

static void list_vectors(const kn_layer_layout *at, kn_layer_weights *l, vector_place out[LAYER_VECTORS]) {
    const vector_place places[LAYER_VECTORS] = {{at->attn_norm_w, &l->attn_norm_w},
                                                {at->attn_norm_b, &l->attn_norm_b},
                                                {at->qkv_b, &l->qkv_b},
                                                {at->q_norm, &l->q_norm},
                                                {at->k_norm, &l->k_norm},
                                                {at->out_b, &l->out_b},
                                                {at->ffn_norm_w, &l->ffn_norm_w},
                                                {at->ffn_norm_b, &l->ffn_norm_b},
                                                {at->up_b, &l->up_b},
                                                {at->down_b, &l->down_b}};
    memcpy(out, places, sizeof places);
}

static void set_layer_vectors(kn_layer_weights *l, const kn_layer_layout *at, const float *params) {
    vector_place places[LAYER_VECTORS];
    list_vectors(at, l, places);
    for (size_t i = 0; i < LAYER_VECTORS; i++)
        if (places[i].offset) *places[i].pointer = params + places[i].offset;
}

void kn_weights_set(kn_weights *w, const kn_layout *layout, const float *params) {
    const kn_config *c = &w->config;
    size_t d = (size_t)c->width, f = (size_t)c->ffn;
    for (int32_t n = 0; n < c->layers; n++) {
        const kn_layer_layout *at = &layout->layers[n];
        kn_layer_weights *l = &w->layers[n];
        set_layer_vectors(l, at, params);
        kn_rhs_pack(w->k, &l->qkv, params + at->qkv_w, d, false);
        kn_rhs_pack(w->k, &l->out, params + at->out_w, d, false);
        kn_rhs_pack(w->k, &l->up, params + at->up_w, d, false);
        kn_rhs_pack(w->k, &l->down, params + at->down_w, f, false);
    }
    for (int32_t b = 0; b < c->bands; b++) {
        w->embedding[b] = params + layout->embedding[b];
        pack_band(w, b, w->embedding[b], c->bands > 1 ? params + layout->projection[b] : NULL,
                  c->bands > 1 ? params + layout->classes : NULL);
    }
    if (c->positions == KNNLM_POSITIONS_LEARNED) w->positions = params + layout->positions;
    w->norm_w = c->final_norm ? params + layout->norm_w : NULL;
    w->norm_b = layout->norm_b ? params + layout->norm_b : NULL;
}

// ---------------------------------------------------------------- from a file

typedef struct loading {
    kn_weights *w;
    const kn_layout *layout;
    const kn_gguf *file;
    float *values; // of one matrix at a time
    size_t capacity;
} loading;

static const kn_param *param_at(const kn_layout *layout, size_t offset, bool is_vector) {
    for (size_t i = 0; i < layout->count; i++)
        if (layout->params[i].offset == offset && layout->params[i].is_vector == is_vector)
            return &layout->params[i];
    return NULL;
}

// One number that is none can hide in a softmax and spoil it all the same.
static knnlm_status read_values(const loading *in, const kn_gguf_tensor *t, size_t n, float *out) {
    bool finite = true;
    KN_TRY(kn_gguf_tensor_f32(t, 0, n, out));
    for (size_t i = 0; i < n; i++) finite &= fabsf(out[i]) <= FLT_MAX;
    if (finite) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: tensor \"%.100s\" has a value that is not finite: the model is damaged",
                   kn_gguf_path(in->file), t->name);
}

// Reads the matrix at `offset` of the layout into `values`, which grow as needed.
static knnlm_status fetch(loading *in, size_t offset, const kn_gguf_tensor **tensor) {
    const kn_param *p = param_at(in->layout, offset, false);
    KN_TRY(kn_model_tensor(in->file, p, tensor));
    KN_TRY(kn_grow(&in->values, &in->capacity, p->rows * p->columns, sizeof *in->values));
    KN_TRY(read_values(in, *tensor, p->rows * p->columns, in->values));
    kn_gguf_tensor_release(in->file, *tensor);
    return KNNLM_OK;
}

// The matrix may stand in several tensors of the file, one after another in the layout.
static knnlm_status load_matrix(loading *in, size_t offset, kn_rhs *out) {
    size_t size = out->columns * out->depth;
    KN_TRY(kn_grow(&in->values, &in->capacity, size, sizeof *in->values));
    for (size_t done = 0; done < size;) {
        const kn_param *p = param_at(in->layout, offset + done, false);
        const kn_gguf_tensor *tensor;
        KN_TRY(kn_model_tensor(in->file, p, &tensor));
        KN_TRY(read_values(in, tensor, p->rows * p->columns, in->values + done));
        kn_gguf_tensor_release(in->file, tensor);
        done += p->rows * p->columns;
    }
    kn_rhs_pack(in->w->k, out, in->values, out->depth, false);
    return KNNLM_OK;
}

static knnlm_status load_band(loading *in, int32_t b) {
    const kn_layout *layout = in->layout;
    const kn_gguf_tensor *tensor;
    float *classes = NULL;
    if (in->w->config.bands > 1 && b == 0) {
        KN_TRY(fetch(in, layout->classes, &tensor));
        size_t n = (size_t)(in->w->config.bands - 1) * (size_t)in->w->config.width;
        classes = kn_alloc(n, sizeof *classes);
        if (!classes) return KNNLM_ENOMEM;
        memcpy(classes, in->values, n * sizeof *classes);
    }
    knnlm_status status = fetch(in, layout->embedding[b], &in->w->stored[b]);
    if (status == KNNLM_OK) pack_band(in->w, b, in->values, NULL, classes);
    free(classes);
    if (status != KNNLM_OK || in->w->config.bands == 1) return status;
    KN_TRY(fetch(in, layout->projection[b], &tensor));
    pack_band(in->w, b, NULL, in->values, NULL);
    return KNNLM_OK;
}

// Vectors keep the places of the layout, less the matrices between them: one small array for all.
static knnlm_status load_vectors(loading *in) {
    const kn_layout *layout = in->layout;
    kn_weights *w = in->w;
    size_t total = 0, used = 0;
    for (size_t i = 0; i < layout->count; i++)
        if (layout->params[i].is_vector) total += layout->params[i].columns;
    w->owned_vectors = kn_alloc_aligned(total, sizeof(float));
    if (!w->owned_vectors) return KNNLM_ENOMEM;
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        const kn_gguf_tensor *tensor;
        if (!p->is_vector) continue;
        float *values = w->owned_vectors + used;
        used += p->columns;
        KN_TRY(kn_model_tensor(in->file, p, &tensor));
        KN_TRY(read_values(in, tensor, p->columns, values));
        for (int32_t n = 0; n < w->config.layers; n++) {
            vector_place places[LAYER_VECTORS];
            list_vectors(&layout->layers[n], &w->layers[n], places);
            for (size_t j = 0; j < LAYER_VECTORS; j++)
                if (places[j].offset == p->offset) *places[j].pointer = values;
        }
        if (w->config.final_norm && p->offset == layout->norm_w) w->norm_w = values;
        if (w->config.final_norm && p->offset == layout->norm_b) w->norm_b = values;
    }
    return KNNLM_OK;
}

static knnlm_status load_positions(loading *in) {
    kn_weights *w = in->w;
    const kn_gguf_tensor *tensor;
    if (w->config.positions != KNNLM_POSITIONS_LEARNED) return KNNLM_OK;
    KN_TRY(fetch(in, in->layout->positions, &tensor));
    size_t n = (size_t)w->config.context * (size_t)w->config.width;
    w->positions = w->owned_positions = kn_alloc_aligned(n, sizeof(float));
    if (!w->positions) return KNNLM_ENOMEM;
    memcpy(w->owned_positions, in->values, n * sizeof(float));
    return KNNLM_OK;
}

// Tensors of layers beyond the configuration: it is not of this file, and half a model would still answer.
static knnlm_status check_layers(const loading *in) {
    for (size_t i = 0; i < kn_gguf_tensor_count(in->file); i++) {
        const char *name = kn_gguf_tensor_at(in->file, i)->name;
        if (strncmp(name, "blk.", 4) != 0 || strtoll(name + 4, NULL, 10) < in->w->config.layers) continue;
        return kn_fail(KNNLM_EDATA, "%s: has a tensor \"%.100s\", but its block_count is %d",
                       kn_gguf_path(in->file), name, in->w->config.layers);
    }
    return KNNLM_OK;
}

static knnlm_status load_all(loading *in) {
    kn_weights *w = in->w;
    KN_TRY(check_layers(in));
    KN_TRY(load_vectors(in));
    KN_TRY(load_positions(in));
    for (int32_t n = 0; n < w->config.layers; n++) {
        const kn_layer_layout *at = &in->layout->layers[n];
        KN_TRY(load_matrix(in, at->qkv_w, &w->layers[n].qkv));
        KN_TRY(load_matrix(in, at->out_w, &w->layers[n].out));
        KN_TRY(load_matrix(in, at->up_w, &w->layers[n].up));
        KN_TRY(load_matrix(in, at->down_w, &w->layers[n].down));
    }
    for (int32_t b = 0; b < w->config.bands; b++) KN_TRY(load_band(in, b));
    return KNNLM_OK;
}

knnlm_status kn_weights_load(kn_weights *w, const kn_layout *layout, const kn_gguf *file) {
    loading in = {.w = w, .layout = layout, .file = file};
    knnlm_status status = load_all(&in);
    free(in.values);
    return status;
}

void kn_weights_embedding(const kn_weights *w, int32_t token, float *out) {
    int32_t band = kn_band_of(&w->config, token);
    size_t width = (size_t)kn_band_width(&w->config, band);
    size_t row = (size_t)(token - kn_band_start(&w->config, band));
    if (w->embedding[band])
        memcpy(out, w->embedding[band] + row * width, width * sizeof *out);
    else
        kn_gguf_tensor_f32(w->stored[band], row * width, width, out); // type and bounds were checked at load
}
