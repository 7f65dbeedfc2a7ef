// Converts rows of numbers between f32 and the formats of model files: f16, bf16, Q8_0.
#include "base/convert.h"

static uint16_t load16(const uint8_t *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void store16(uint8_t *bytes, uint16_t value) {
    memcpy(bytes, &value, sizeof value);
}

void kn_f32_from_f16(float *restrict out, const void *restrict in, size_t count) {
    const uint8_t *bytes = in;
    for (size_t i = 0; i < count; i++) out[i] = kn_f16_to_f32(load16(bytes + 2 * i));
}

void kn_f32_from_bf16(float *restrict out, const void *restrict in, size_t count) {
    const uint8_t *bytes = in;
    for (size_t i = 0; i < count; i++) out[i] = kn_bf16_to_f32(load16(bytes + 2 * i));
}

void kn_f16_from_f32(void *restrict out, const float *restrict in, size_t count) {
    uint8_t *bytes = out;
    for (size_t i = 0; i < count; i++) store16(bytes + 2 * i, kn_f32_to_f16(in[i]));
}

void kn_bf16_from_f32(void *restrict out, const float *restrict in, size_t count) {
    uint8_t *bytes = out;
    for (size_t i = 0; i < count; i++) store16(bytes + 2 * i, kn_f32_to_bf16(in[i]));
}

void kn_f32_from_q8_0(float *restrict out, const void *restrict in, size_t count) {
    const uint8_t *block = in;
    for (size_t done = 0; done < count; done += KN_Q8_0_VALUES, block += KN_Q8_0_BYTES) {
        float scale = kn_f16_to_f32(load16(block));
        const int8_t *quants = (const int8_t *)block + 2;
        size_t n = count - done < KN_Q8_0_VALUES ? count - done : KN_Q8_0_VALUES;
        for (size_t i = 0; i < n; i++) out[done + i] = scale * (float)quants[i];
    }
}

// The bits of magnitudes order as the magnitudes do, and NaN above infinity: one integer maximum finds both.
static float largest_magnitude(const float *in) {
    uint32_t largest = 0;
    for (size_t i = 0; i < KN_Q8_0_VALUES; i++) {
        uint32_t bits = kn_f32_bits(in[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return kn_bits_f32(largest);
}

// roundf (half away from zero) for |value| below 2^31; unlike the call, it vectorises everywhere.
static int32_t round_half_away(float value) {
    int32_t whole = (int32_t)value;
    float rest = value - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static bool quantize_block(uint8_t *restrict block, const float *restrict in) {
    const float overflow = 65520.0f; // the least f32 that rounds to an infinite f16
    float scale = largest_magnitude(in) / 127.0f;
    if (!(scale < overflow)) return false;
    float inverse = 1.0f / scale;
    if (!(inverse <= 0x1.fffffep127f)) inverse = 0; // scales so small have no inverse, and are 0 as f16
    int8_t *quants = (int8_t *)block + 2;
    store16(block, kn_f32_to_f16(scale));
    for (size_t i = 0; i < KN_Q8_0_VALUES; i++) quants[i] = (int8_t)round_half_away(in[i] * inverse);
    return true;
}

bool kn_q8_0_from_f32(void *restrict out, const float *restrict in, size_t blocks) {
    uint8_t *bytes = out;
    for (size_t b = 0; b < blocks; b++)
        if (!quantize_block(bytes + b * KN_Q8_0_BYTES, in + b * KN_Q8_0_VALUES)) return false;
    return true;
}
