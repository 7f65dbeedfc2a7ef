// The forms of keys: f16, f32, int8 with a scale, none.
#include "base/keys.h"

#include "base/convert.h"

#include <math.h>
#include <string.h>

const char *const kn_key_type_names[] = {"f16", "f32", "int8", "none", NULL};

// ---------------------------------------------------------------- f16

// Whether no value has all bits of the exponent: infinities and NaNs have.
static bool finite_f16(const void *data, size_t bytes) {
    const uint16_t *x = data;
    uint16_t bad = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) bad |= (uint16_t)((x[i] & 0x7c00) == 0x7c00);
    return !bad;
}

static void narrow_f16(void *rows, float *scales, const float *keys, size_t count, size_t d) {
    (void)scales;
    kn_f16_from_f32(rows, keys, count * d);
}

static void widen_f16(float *keys, const void *rows, const float *scales, size_t count, size_t d) {
    (void)scales;
    kn_f32_from_f16(keys, rows, count * d);
}

// ---------------------------------------------------------------- f32

static bool finite_f32(const void *data, size_t bytes) {
    const float *x = data;
    uint32_t bad = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) bad |= (kn_f32_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return !bad;
}

static void narrow_f32(void *rows, float *scales, const float *keys, size_t count, size_t d) {
    (void)scales;
    memcpy(rows, keys, count * d * sizeof *keys);
}

static void widen_f32(float *keys, const void *rows, const float *scales, size_t count, size_t d) {
    (void)scales;
    memcpy(keys, rows, count * d * sizeof *keys);
}

// ---------------------------------------------------------------- int8

// Multiples of a 127th of the largest magnitude, to nearest.
static float narrow_one(int8_t *out, const float *key, size_t d) {
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

static void narrow_int8(void *rows, float *scales, const float *keys, size_t count, size_t d) {
    for (size_t i = 0; i < count; i++) scales[i] = narrow_one((int8_t *)rows + i * d, keys + i * d, d);
}

static void widen_int8(float *keys, const void *rows, const float *scales, size_t count, size_t d) {
    const int8_t *numbers = rows;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < d; j++) keys[i * d + j] = scales[i] * (float)numbers[i * d + j];
}

// ---------------------------------------------------------------- the table

static const kn_key_form forms[KN_KEY_TYPES] = {
    [KNNLM_KEYS_F16] = {2, false, finite_f16, narrow_f16, widen_f16},
    [KNNLM_KEYS_F32] = {4, false, finite_f32, narrow_f32, widen_f32},
    [KNNLM_KEYS_INT8] = {1, true, NULL, narrow_int8, widen_int8},
    [KNNLM_KEYS_NONE] = {0},
};

const kn_key_form *kn_key_form_of(knnlm_keys type) {
    return &forms[type];
}

size_t kn_key_row_bytes(knnlm_keys type, size_t d) {
    return forms[type].bytes * d;
}

size_t kn_key_bytes(knnlm_keys type, size_t d) {
    return forms[type].bytes * d + (forms[type].scaled ? sizeof(float) : 0);
}

bool kn_key_values_finite(knnlm_keys type, const void *data, size_t bytes) {
    return !forms[type].finite || forms[type].finite(data, bytes);
}
