// Number formats f16, bf16 and Q8_0: every value there and back, rounded to the nearest as computed by hand.
#include "expect.h"

#include "base/convert.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

static float f16_value(unsigned half) {
    int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) magnitude = mantissa ? (double)NAN : HUGE_VAL;
    return (float)(half & 0x8000 ? -magnitude : magnitude);
}

static void f16_round_trips(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float value = kn_f16_to_f32((uint16_t)h), expected = f16_value(h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(value));
            assert_int_equal(kn_f32_to_f16(value), h | 0x200);
        } else {
            assert_int_equal(kn_f32_bits(value), kn_f32_bits(expected));
            assert_int_equal(kn_f32_to_f16(value), h);
        }
    }
}

// Between each two neighbours: the middle goes to the even one, all else to the nearer one.
static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float low = f16_value(h), high = h == 0x7bff ? 65536.0f : f16_value(h + 1), middle = (low + high) / 2;
        assert_int_equal(kn_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(kn_f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
        assert_int_equal(kn_f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
        assert_int_equal(kn_f32_to_f16(-nextafterf(middle, 1e9f)), 0x8000 | (h + 1));
    }
    assert_int_equal(kn_f32_to_f16(65536.0f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(kn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(kn_f32_to_f16(1e-45f), 0);
    assert_int_equal(kn_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(kn_f32_to_f16(kn_bits_f32(0xff800001)), 0xfe00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t bits = h << 16;
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits)), h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x7fff)), h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x8001)), h + 1);
        assert_int_equal(kn_f32_to_bf16(kn_bits_f32(bits | 0x80008001)), 0x8000 | (h + 1));
        assert_int_equal(kn_f32_bits(kn_bf16_to_f32((uint16_t)h)), bits);
    }
    assert_int_equal(kn_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(kn_f32_to_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(kn_f32_to_bf16(kn_bits_f32(0x7f800001)), 0x7fc0);
    assert_int_equal(kn_f32_to_bf16(kn_bits_f32(0xffffffff)), 0xffff);
    assert_int_equal(kn_f32_to_bf16(1.00390625f), 0x3f80); // 1 + 2^-8: the middle, 0x3f80 is even
    assert_int_equal(kn_f32_to_bf16(1.01171875f), 0x3f82); // 1 + 3*2^-8: the middle, 0x3f82 is even
}

static void arrays_convert_as_single_values(void **state) {
    (void)state;
    enum { N = 1003 };
    kn_random random = {7};
    float in[N], back[N];
    uint8_t packed[2 * N + 1], *odd = packed + 1; // the packed side may have any alignment
    for (int i = 0; i < N; i++) in[i] = kn_bits_f32((uint32_t)kn_random_next(&random));
    kn_f16_from_f32(odd, in, N);
    kn_f32_from_f16(back, odd, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(kn_f32_bits(back[i]), kn_f32_bits(kn_f16_to_f32(kn_f32_to_f16(in[i]))));
    kn_bf16_from_f32(odd, in, N);
    kn_f32_from_bf16(back, odd, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(kn_f32_bits(back[i]), kn_f32_bits(kn_bf16_to_f32(kn_f32_to_bf16(in[i]))));
}

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
static void f16_agrees_with_the_compiler(void **state) {
    (void)state;
    kn_random random = {11};
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = (uint32_t)kn_random_next(&random);
        if (i % 2) bits = (bits & 0x8fffffff) | 0x30000000; // where f16 lives
        float value = kn_bits_f32(bits);
        if (isnan(value)) continue;
        _Float16 half = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &half, sizeof expected);
        assert_int_equal(kn_f32_to_f16(value), expected);
    }
}
#endif

static void q8_0_matches_values_computed_by_hand(void **state) {
    (void)state;
    float in[64] = {127, -127, 0.5f, -0.5f, 1.5f, 2.5f, 0.49999997f, -2.5f, 100.4f, -100.6f, -0.0f}, out[64];
    const int8_t expected[] = {127, -127, 1, -1, 2, 3, 0, -3, 100, -101, 0};
    for (int i = 0; i < 32; i++)
        in[32 + i] = (float)(i - 16) * 0.25f; // largest 4: d = 4/127 = 0.0315 = 0x2808 as f16
    uint8_t packed[68];
    assert_true(kn_q8_0_from_f32(packed, in, 2));
    assert_int_equal(packed[0] | packed[1] << 8, 0x3c00);
    for (size_t i = 0; i < sizeof expected; i++) assert_int_equal((int8_t)packed[2 + i], expected[i]);
    for (size_t i = sizeof expected; i < 32; i++) assert_int_equal(packed[2 + i], 0);
    assert_int_equal(packed[34] | packed[35] << 8, 0x2808);
    for (int i = 0; i < 32; i++)
        assert_int_equal((int8_t)packed[36 + i],
                         (int)lround((i - 16) * 0.25 * 127.0 / 4.0)); // no ties among them
    kn_f32_from_q8_0(out, packed, 64);
    for (size_t i = 0; i < sizeof expected; i++) assert_true(out[i] == (float)expected[i]);
    for (int i = 0; i < 32; i++) assert_true(out[32 + i] == 0x1.02p-5f * (float)(int8_t)packed[36 + i]);
}

static void q8_0_rounds_as_roundf(void **state) {
    (void)state;
    kn_random random = {3};
    for (int b = 0; b < 20000; b++) {
        float in[32], largest = 0, scale = (float)exp(40 * kn_random_unit(&random) - 30);
        uint8_t packed[34];
        for (int i = 0; i < 32; i++) in[i] = scale * (float)kn_random_normal(&random);
        for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(in[i]));
        float d = largest / 127, inverse = 1 / d;
        if (d >= 65520) continue;
        assert_true(kn_q8_0_from_f32(packed, in, 1));
        assert_int_equal(packed[0] | packed[1] << 8, kn_f32_to_f16(d));
        for (int i = 0; i < 32; i++) assert_int_equal((int8_t)packed[2 + i], (int)roundf(in[i] * inverse));
    }
}

static void q8_0_survives_extreme_values(void **state) {
    (void)state;
    float in[32] = {0};
    uint8_t packed[34];
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    for (int i = 0; i < 34; i++) assert_int_equal(packed[i], 0);
    in[5] = 1e-45f;
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    in[5] = 1e-37f;
    assert_true(kn_q8_0_from_f32(packed, in, 1));
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, 65520.0f * 127};
    for (int i = 0; i < 5; i++) {
        in[5] = bad[i];
        assert_false(kn_q8_0_from_f32(packed, in, 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trips),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(arrays_convert_as_single_values),
#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
        cmocka_unit_test(f16_agrees_with_the_compiler),
#endif
        cmocka_unit_test(q8_0_matches_values_computed_by_hand),
        cmocka_unit_test(q8_0_rounds_as_roundf),
        cmocka_unit_test(q8_0_survives_extreme_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
