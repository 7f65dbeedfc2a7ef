// Model files: configuration, tokenizer and weights in one GGUF.
#include "lm/native/config.h"
#include "text/tokenizer.h"

#include <stdlib.h>

// Q8_0 packs rows in blocks of 32; a matrix of other widths stays f16.
static kn_gguf_type type_of(const kn_param *p, kn_gguf_type type) {
    if (p->is_vector) return KN_GGUF_F32;
    return type == KN_GGUF_Q8_0 && p->columns % 32 ? KN_GGUF_F16 : type;
}

static knnlm_status write_model(kn_gguf_writer *w, const kn_config *c, const kn_layout *layout,
                                const kn_tokenizer *tokenizer, const float *params, kn_gguf_type type) {
    KN_TRY(kn_config_save(c, w));
    KN_TRY(kn_tokenizer_save_gguf(tokenizer, w));
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        int64_t dims[2] = {(int64_t)p->columns, (int64_t)p->rows};
        KN_TRY(kn_gguf_put_tensor(w, p->name, type_of(p, type), p->is_vector ? 1 : 2, dims));
    }
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        KN_TRY(kn_gguf_put_data_f32(w, params + p->offset, p->rows * p->columns));
    }
    return KNNLM_OK;
}

knnlm_status kn_model_save(const char *path, const kn_config *c, const kn_tokenizer *tokenizer,
                           const float *params, kn_gguf_type type) {
    kn_layout layout;
    kn_gguf_writer *w;
    KN_TRY(kn_layout_init(c, &layout));
    knnlm_status status = kn_gguf_writer_open(path, &w);
    if (status == KNNLM_OK) {
        status = write_model(w, c, &layout, tokenizer, params, type);
        if (status == KNNLM_OK)
            status = kn_gguf_writer_commit(w);
        else
            kn_gguf_writer_abort(w);
    }
    kn_layout_free(&layout);
    return status;
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

knnlm_status kn_model_load_params(const kn_gguf *file, const kn_layout *layout, float *params) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        const kn_gguf_tensor *t;
        KN_TRY(kn_model_tensor(file, p, &t));
        KN_TRY(kn_gguf_tensor_f32(t, 0, p->rows * p->columns, params + p->offset));
    }
    return KNNLM_OK;
}
