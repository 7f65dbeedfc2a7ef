#include "store/writer.h"

#include "base/convert.h"

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
    return kn_fail(KNNLM_EDATA, "%s: keys from entry %" PRIu64 " on do not fit f16: use --keys f32", w->path,
                   w->entries + row);
}

// Whether no value has all bits of the exponent: infinities and NaNs have.
static bool finite_f16(const uint16_t *x, size_t n) {
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (uint16_t)((x[i] & 0x7c00) == 0x7c00);
    return !bad;
}

static bool finite_f32(const float *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (kn_f32_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return !bad;
}

bool kn_key_values_finite(knnlm_keys type, const void *data, size_t bytes) {
    switch (type) {
    case KNNLM_KEYS_F16:
        return finite_f16(data, bytes / sizeof(uint16_t));
    case KNNLM_KEYS_F32:
        return finite_f32(data, bytes / sizeof(float));
    case KNNLM_KEYS_INT8:
    case KNNLM_KEYS_NONE:
        return true;
    }
    return false;
}

// Multiples of a 127th of the largest magnitude, to nearest.
static float narrow_int8(int8_t *out, const float *key, size_t d) {
    float largest = 0;
    for (size_t i = 0; i < d; i++) largest = fmaxf(largest, fabsf(key[i]));
    float scale = largest / 127;
    if (isinf(127 * scale)) scale = nextafterf(scale, 0); // the quotient of the largest f32 was rounded up
    for (size_t i = 0; i < d; i++) {
        float q = scale > 0 ? nearbyintf(key[i] / scale) : 0;
        out[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
    return scale;
}

static knnlm_status put_int8(kn_store_writer *w, const float *keys, size_t count, size_t row) {
    kn_filling *f = w->filling;
    size_t d = (size_t)w->settings.dimension;
    if (!finite_f32(keys, count * d)) return refuse(w, keys, count, row);
    KN_TRY(kn_grow(&f->scales, &f->scales_capacity, f->entries + row + count, sizeof *f->scales));
    for (size_t i = 0; i < count; i++)
        f->scales[f->entries + row + i] = narrow_int8((int8_t *)w->scratch + i * d, keys + i * d, d);
    return kn_part_put(f->keys, w->scratch, count * d);
}

static knnlm_status put_rows(kn_store_writer *w, const float *keys, size_t count, size_t row) {
    size_t values = count * (size_t)w->settings.dimension;
    switch (w->settings.key_type) {
    case KNNLM_KEYS_F32:
        if (!finite_f32(keys, values)) return refuse(w, keys, count, row);
        return kn_part_put(w->filling->keys, keys, values * sizeof *keys);
    case KNNLM_KEYS_F16:
        kn_f16_from_f32(w->scratch, keys, values);
        if (!finite_f16(w->scratch, values)) return refuse(w, keys, count, row);
        return kn_part_put(w->filling->keys, w->scratch, 2 * values);
    case KNNLM_KEYS_INT8:
        return put_int8(w, keys, count, row);
    case KNNLM_KEYS_NONE:
        return KNNLM_OK;
    }
    return kn_fail(KNNLM_EINVAL, "%s: keys of an unknown type", w->path);
}

knnlm_status kn_writer_put_keys(kn_store_writer *w, const float *keys, size_t count) {
    size_t d = (size_t)w->settings.dimension;
    KN_TRY(kn_grow(&w->scratch, &w->scratch_capacity, ROWS * d, sizeof(uint16_t)));
    for (size_t row = 0; row < count; row += ROWS)
        KN_TRY(put_rows(w, keys + row * d, kn_least(count - row, ROWS), row));
    return KNNLM_OK;
}
