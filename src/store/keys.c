// Writes keys in the form that the store keeps.
#include "store/writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256 }; // converted at a time

static knnlm_status refuse(const kn_store_writer *w, const float *keys, size_t count, size_t row) {
    size_t d = (size_t)w->settings.dimension;
    for (size_t i = 0; i < count * d; i++)
        if (!isfinite(keys[i]))
            return kn_fail(KNNLM_EDATA, "%s: the key of entry %" PRIu64 " is not finite", w->path,
                           w->entries + row + i / d);
    return kn_fail(KNNLM_EDATA, "%s: keys from entry %" PRIu64 " on do not fit f16: use `keys` f32", w->path,
                   w->entries + row);
}

// What does not fit f16 narrows to infinity; the others are as finite as what they are narrowed from.
static knnlm_status put_rows(kn_store_writer *w, const float *keys, size_t count, size_t row) {
    size_t d = (size_t)w->settings.dimension, bytes = count * kn_key_row_bytes(w->settings.key_type, d);
    const kn_key_form *form = kn_key_form_of(w->settings.key_type);
    kn_filling *f = w->filling;
    float *scales = NULL;
    if (!form->narrow) return KNNLM_OK;
    if (form->scaled) {
        KN_TRY(kn_grow(&f->scales, &f->scales_capacity, f->entries + row + count, sizeof *f->scales));
        scales = f->scales + f->entries + row;
        if (!kn_key_values_finite(KNNLM_KEYS_F32, keys, count * d * sizeof *keys))
            return refuse(w, keys, count, row);
    }
    form->narrow(w->scratch, scales, keys, count, d);
    if (!kn_key_values_finite(w->settings.key_type, w->scratch, bytes)) return refuse(w, keys, count, row);
    return kn_part_put(f->keys, w->scratch, bytes);
}

knnlm_status kn_writer_put_keys(kn_store_writer *w, const float *keys, size_t count) {
    size_t d = (size_t)w->settings.dimension;
    KN_TRY(kn_grow(&w->scratch, &w->scratch_capacity, ROWS * d, sizeof(float)));
    for (size_t row = 0; row < count; row += ROWS)
        KN_TRY(put_rows(w, keys + row * d, kn_min(count - row, ROWS), row));
    return KNNLM_OK;
}
