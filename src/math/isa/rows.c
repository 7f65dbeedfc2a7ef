// One vector against many rows that lie a stride apart: a query and the keys and values of a session. Rows
// are longer apart than the CPU's own prefetching reaches, and read once: they are asked for ahead.
#include "math/isa/isa.h"

#include <string.h>

enum { AHEAD = 12, LINE = 16 }; // rows; floats of a cache line

static inline void prefetch(const float *row, size_t n) {
    for (size_t i = 0; i < n; i += LINE) __builtin_prefetch(row + i);
}

void kn_isa(dots)(float *out, const float *x, const float *rows, size_t ld, size_t n, size_t d) {
    for (size_t r = 0; r < n; r++, rows += ld) {
        float sum = 0;
        if (r + AHEAD < n) prefetch(rows + AHEAD * ld, d);
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < d; i++) sum += x[i] * rows[i];
        out[r] = sum;
    }
}

// `width` columns, which are as many vectors as stay in registers; a constant where this is inlined.
static inline __attribute__((always_inline)) void
add_strip(float *out, const float *weights, const float *rows, size_t ld, size_t n, size_t width) {
    kn_vec sums[64 / KN_LANES];
    memcpy(sums, out, width * sizeof *out);
    for (size_t r = 0; r < n; r++, rows += ld) {
        if (r + AHEAD < n) prefetch(rows + AHEAD * ld, width);
        for (size_t i = 0; i < width / KN_LANES; i++)
            sums[i] += weights[r] * *(const kn_vec *)(const void *)(rows + i * KN_LANES);
    }
    memcpy(out, sums, width * sizeof *out);
}

void kn_isa(add_rows)(float *out, const float *weights, const float *rows, size_t ld, size_t n, size_t d) {
    size_t i = 0;
    for (; i + 64 <= d; i += 64) add_strip(out + i, weights, rows + i, ld, n, 64);
    for (; i + KN_LANES <= d; i += KN_LANES) add_strip(out + i, weights, rows + i, ld, n, KN_LANES);
    for (; i < d; i++)
        for (size_t r = 0; r < n; r++) out[i] += weights[r] * rows[r * ld + i];
}
