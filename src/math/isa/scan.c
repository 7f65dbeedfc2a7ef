// Sums of 8-bit tables over codes: see math.h for the layout.
#include "math/isa/isa.h"

#include <math.h>
#include <string.h>

void kn_isa(range)(const float *x, size_t n, float *low, float *high) {
    float least = INFINITY, most = -INFINITY;
#pragma omp simd reduction(min : least) reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    *low = least;
    *high = most;
}

float kn_isa(quantize)(uint8_t *out, const float *x, size_t n, float low, float step, float inverse) {
    float worst = 0;
#pragma omp simd reduction(max : worst)
    for (size_t i = 0; i < n; i++) {
        float away = x[i] - low, steps = away * inverse + 0.5f;
        int32_t whole = (int32_t)(steps < 255.0f ? steps : 255.0f);
        float error = fabsf(away - step * (float)whole);
        worst = error > worst ? error : worst;
        out[i] = (uint8_t)whole;
    }
    return worst;
}

void kn_isa(scan_bytes)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                        size_t blocks) {
    for (size_t b = 0; b < blocks; b++, sums += KN_POINTS) {
        uint16_t sum[KN_POINTS] = {0};
        for (size_t j = 0; j < columns; j++, codes += KN_POINTS)
            for (size_t i = 0; i < KN_POINTS; i++) sum[i] = (uint16_t)(sum[i] + tables[j * 256 + codes[i]]);
        memcpy(sums, sum, sizeof sum);
    }
}

void kn_isa(scan_halves)(uint16_t *sums, const uint8_t *codes, const uint8_t *tables, size_t columns,
                         size_t blocks) {
    for (size_t b = 0; b < blocks; b++, sums += KN_POINTS) {
        uint16_t sum[KN_POINTS] = {0};
        for (size_t j = 0; j < columns; j++, codes += KN_POINTS)
            for (size_t i = 0; i < KN_POINTS; i++)
                sum[i] = (uint16_t)(sum[i] + tables[j * 32 + (codes[i] & 15)] +
                                    tables[j * 32 + 16 + (codes[i] >> 4)]);
        memcpy(sums, sum, sizeof sum);
    }
}
