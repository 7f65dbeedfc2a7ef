// Number formats of model files: f16, bf16 and Q8_0 to and from f32.
//
// Rounding is to nearest, ties to even; infinities stay, NaNs stay NaNs (made quiet when narrowed, as the
// hardware does), subnormals are exact. Portable integer code, written without branches so that compilers
// vectorise the loops.
#ifndef KN_BASE_CONVERT_H
#define KN_BASE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// A Q8_0 block: an f16 scale and 32 int8 multiples of it.
enum { KN_Q8_0_VALUES = 32, KN_Q8_0_BYTES = 34 };

static inline uint32_t kn_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float kn_bits_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The exponent of f32 is biased by 127, that of f16 by 15; the mantissas have 23 and 10 bits.
#define KN_F16_REBIAS ((uint32_t)(127 - 15) << 23)

static inline float kn_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + KN_F16_REBIAS;
    uint32_t special = normal + KN_F16_REBIAS;                              // exponent 31 becomes 255
    uint32_t subnormal = kn_f32_bits((float)(int32_t)magnitude * 0x1p-24f); // exact
    uint32_t bits = magnitude < 0x400 ? subnormal : magnitude < 0x7c00 ? normal : special;
    return kn_bits_f32(sign | bits);
}

static inline uint16_t kn_f32_to_f16(float value) {
    uint32_t bits = kn_f32_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t rebiased = magnitude - KN_F16_REBIAS;
    uint32_t normal =
        (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13; // a carry past the largest gives infinity
    // The last bit of 0.5 is worth 2^-24, the smallest f16: the addition itself rounds to a multiple of it.
    uint32_t subnormal = kn_f32_bits(kn_bits_f32(magnitude) + 0.5f) - kn_f32_bits(0.5f);
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    uint32_t half = magnitude < 0x38800000   ? subnormal
                    : magnitude < 0x47800000 ? normal
                    : magnitude > 0x7f800000 ? nan
                                             : 0x7c00;
    return (uint16_t)(sign | half);
}

static inline float kn_bf16_to_f32(uint16_t half) {
    return kn_bits_f32((uint32_t)half << 16);
}

static inline uint16_t kn_f32_to_bf16(float value) {
    uint32_t bits = kn_f32_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

// Arrays of `count` values. The packed side may have any alignment.
void kn_f32_from_f16(float *out, const void *in, size_t count);
void kn_f32_from_bf16(float *out, const void *in, size_t count);
void kn_f32_from_q8_0(float *out, const void *in,
                      size_t count); // a last partial block gives its first values
void kn_f16_from_f32(void *out, const float *in, size_t count);
void kn_bf16_from_f32(void *out, const float *in, size_t count);
// `blocks` blocks of KN_Q8_0_VALUES. False when a block holds a value that is not finite, or so large that
// the scale overflows f16: what was written of that block is then meaningless.
bool kn_q8_0_from_f32(void *out, const float *in, size_t blocks);

#endif
