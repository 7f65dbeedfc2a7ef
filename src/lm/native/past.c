// What a model with a sliding window carries from one window of a text to the next.
#include "lm/native/native.h"

#include <stdlib.h>
#include <string.h>

static knnlm_status init(kn_native_past *p, const kn_config *c) {
    p->kept = kn_alloc((size_t)c->layers, sizeof *p->kept);
    if (!p->kept) return KNNLM_ENOMEM;
    for (int32_t n = 0; n < c->layers; n++) {
        p->kept[n] = kn_alloc_aligned(kn_past_max(c) * 2 * (size_t)c->width, sizeof(float));
        if (!p->kept[n]) return KNNLM_ENOMEM;
    }
    return KNNLM_OK;
}

knnlm_status kn_native_past_open(kn_lm *lm, size_t position, kn_past **out) {
    kn_native_past *p = kn_alloc(1, sizeof *p);
    if (!p) return KNNLM_ENOMEM;
    p->past.lm = lm;
    p->begin = p->position = position;
    knnlm_status status = init(p, &((const kn_native *)lm)->w.config);
    if (status == KNNLM_OK)
        *out = &p->past;
    else
        kn_native_past_close(&p->past);
    return status;
}

void kn_native_past_close(kn_past *past) {
    kn_native_past *p = (kn_native_past *)past;
    for (int32_t n = 0; p->kept && n < past->lm->info.layers; n++) kn_free_aligned(p->kept[n]);
    free(p->kept);
    free(p);
}

static size_t first_kept(const kn_native_past *p, const kn_config *c, size_t position) {
    return kn_max(p->begin, kn_past_first(c, position));
}

void kn_native_past_keep(kn_native_past *p, const kn_config *c, int32_t layer, const float *qkv,
                         size_t rows) {
    size_t d = (size_t)c->width, end = p->position + rows, first = first_kept(p, c, end);
    size_t had_from = p->position - p->rows; // position of the first row kept so far
    size_t stay = first < p->position ? p->position - first : 0, fresh = end - first - stay;
    float *kept = p->kept[layer];
    if (stay) memmove(kept, kept + (first - had_from) * 2 * d, stay * 2 * d * sizeof *kept);
    for (size_t r = rows - fresh; r < rows; r++, stay++)
        memcpy(kept + stay * 2 * d, qkv + r * 3 * d + d, 2 * d * sizeof *kept);
}

void kn_native_past_move(kn_native_past *p, const kn_config *c, size_t rows) {
    p->position += rows;
    p->rows = p->position - first_kept(p, c, p->position);
}
