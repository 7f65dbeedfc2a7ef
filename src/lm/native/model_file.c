// Model files: configuration, tokenizer and weights in one GGUF.
#include "lm/native/config.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

// Q8_0 packs rows in blocks of 32; a matrix of other widths stays f16.
static kn_gguf_type type_of(const kn_param *p, kn_gguf_type type) {
    if (p->is_vector) return KN_GGUF_F32;
    return type == KN_GGUF_Q8_0 && p->columns % 32 ? KN_GGUF_F16 : type;
}

#define LENGTH_KEY "knnlm.train.length" // in checkpoints, too

// What a parameter's values are multiplied by in the file.
static float folded_by(const kn_config *c, const kn_param *p) {
    if (strcmp(p->name, "token_embd.weight") == 0) return c->embedding_scale;
    return strcmp(p->name, "output_norm.weight") == 0 ? 1.0f / c->embedding_scale : 1.0f;
}

static bool folds(const kn_config *c) {
    return c->positions == KNNLM_POSITIONS_ROTARY && strcmp(kn_config_architecture(c), "knnlm") != 0;
}

static knnlm_status put_values(kn_gguf_writer *w, const float *values, size_t n, float factor) {
    enum { PIECE = 4096 }; // whole blocks of any type
    float scaled[PIECE];
    if (factor == 1.0f) return kn_gguf_put_data_f32(w, values, n);
    for (size_t done = 0, count; done < n; done += count) {
        count = kn_min(PIECE, n - done);
        for (size_t i = 0; i < count; i++) scaled[i] = factor * values[done + i];
        KN_TRY(kn_gguf_put_data_f32(w, scaled, count));
    }
    return KNNLM_OK;
}

static knnlm_status write_model(kn_gguf_writer *w, const kn_config *c, const kn_layout *layout,
                                const kn_tokenizer *tokenizer, int32_t length, const float *params,
                                kn_gguf_type type) {
    KN_TRY(kn_config_save(c, w));
    if (length) KN_TRY(kn_gguf_put_u32(w, LENGTH_KEY, (uint32_t)length));
    KN_TRY(kn_tokenizer_save_gguf(tokenizer, w));
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        int64_t dims[2] = {(int64_t)p->columns, (int64_t)p->rows};
        KN_TRY(kn_gguf_put_tensor(w, p->name, type_of(p, type), p->is_vector ? 1 : 2, dims));
    }
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        KN_TRY(put_values(w, params + p->offset, p->rows * p->columns, folds(c) ? folded_by(c, p) : 1.0f));
    }
    return KNNLM_OK;
}

knnlm_status kn_model_save(const char *path, const kn_config *c, const kn_tokenizer *tokenizer,
                           int32_t length, const float *params, kn_gguf_type type) {
    kn_layout layout;
    kn_gguf_writer *w;
    KN_TRY(kn_layout_init(c, &layout));
    knnlm_status status = kn_gguf_writer_open(path, &w);
    if (status == KNNLM_OK) {
        status = write_model(w, c, &layout, tokenizer, length, params, type);
        if (status == KNNLM_OK)
            status = kn_gguf_writer_commit(w);
        else
            kn_gguf_writer_abort(w);
    }
    kn_layout_free(&layout);
    return status;
}

knnlm_status kn_model_length(const kn_gguf *file, const kn_config *c, int32_t *length) {
    int64_t value = c->context;
    bool found;
    KN_TRY(kn_gguf_get_i64(file, LENGTH_KEY, &value, &found));
    if (value < 1 || value > c->context)
        return kn_fail(KNNLM_EDATA, "%s: \"" LENGTH_KEY "\" is %lld, of a context of %d", kn_gguf_path(file),
                       (long long)value, c->context);
    *length = (int32_t)value;
    return KNNLM_OK;
}

knnlm_status kn_model_tensor(const kn_gguf *file, const kn_param *param, const kn_gguf_tensor **out) {
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, param->name);
    if (!t) return kn_fail(KNNLM_EDATA, "%s: no tensor \"%s\"", kn_gguf_path(file), param->name);
    if (t->dims[0] != (int64_t)param->columns || t->dims[1] != (int64_t)param->rows || t->dims[2] != 1 ||
        t->dims[3] != 1)
        return kn_fail(KNNLM_EDATA, "%s: tensor \"%s\" is %lld x %lld, the configuration asks for %zu x %zu",
                       kn_gguf_path(file), param->name, (long long)t->dims[1], (long long)t->dims[0],
                       param->rows, param->columns);
    if (t->type != KN_GGUF_F32 && t->type != KN_GGUF_F16 && t->type != KN_GGUF_BF16 &&
        t->type != KN_GGUF_Q8_0)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: tensor \"%s\" is of type %d (f32, f16, bf16 and q8_0 are read natively)",
                       kn_gguf_path(file), param->name, t->type);
    *out = t;
    return KNNLM_OK;
}

knnlm_status kn_model_load_params(const kn_gguf *file, const kn_config *c, const kn_layout *layout,
                                  float *params) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        const kn_gguf_tensor *t;
        size_t n = p->rows * p->columns;
        float factor = kn_model_folded(file) ? 1.0f / folded_by(c, p) : 1.0f, *values = params + p->offset;
        KN_TRY(kn_model_tensor(file, p, &t));
        KN_TRY(kn_gguf_tensor_f32(t, 0, n, values));
        for (size_t j = 0; factor != 1.0f && j < n; j++) values[j] *= factor;
    }
    return KNNLM_OK;
}
