// Work along rows, written as plain loops that the compiler turns into the vectors of each instruction set.
#include "math/isa/isa.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

// e^x to 2 ulp for x in [-87, 88], and that of the nearer end outside: 2^n times a polynomial on [-ln2/2,
// ln2/2]. Written without branches and calls, so that loops over it vectorise.
static inline float exp_fast(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = x * 1.44269504f + 12582912.0f; // rounds to an integer in the low bits
    int32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= 12582912.0f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t scale = (int32_t)((uint32_t)(bits + 127) << 23);
    float power;
    memcpy(&power, &scale, sizeof power);
    return p * power;
}

// One row of a block; n is a constant where this is inlined with one.
static inline void store_row(float *out, const float *in, const float *bias, size_t n, bool add) {
    if (add && bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] += in[i] + bias[i];
    } else if (add) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] += in[i];
    } else if (bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = in[i] + bias[i];
    } else {
        memcpy(out, in, n * sizeof *out);
    }
}

void kn_isa(store)(float *out, size_t ld, const float *block, const float *bias, size_t rows, size_t columns,
                   bool add) {
    if (columns == KN_CELL)
        for (size_t r = 0; r < rows; r++) store_row(out + r * ld, block + r * KN_CELL, bias, KN_CELL, add);
    else
        for (size_t r = 0; r < rows; r++) store_row(out + r * ld, block + r * KN_CELL, bias, columns, add);
}

float kn_isa(dot)(const float *a, const float *b, size_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void kn_isa(axpy)(float *y, float a, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

void kn_isa(scale)(float *x, float a, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] *= a;
}

double kn_isa(sum_squares)(const float *x, size_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

float kn_isa(max)(const float *x, size_t n) {
    float best = -INFINITY;
#pragma omp simd reduction(max : best)
    for (size_t i = 0; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

float kn_isa(exp_shift)(float *x, size_t n, float shift) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        x[i] = exp_fast(x[i] - shift);
        sum += x[i];
    }
    return sum;
}

// In f32 the exponent alone would cost |exponent| / 2 ulp: it is taken in double, and what f32 rounds off is
// made good by e^rest = 1 + rest.
static inline double exp_scaled(float x, float scale, float shift) {
    double exponent = (double)scale * ((double)x - (double)shift);
    float rounded = (float)exponent, rest = (float)(exponent - (double)rounded);
    float power = exp_fast(rounded);
    power += power * rest;
    return rounded < -87.0f ? 0.0 : (double)power;
}

float kn_isa(exp_scale_sum)(const float *x, size_t n, float scale, float shift) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += exp_scaled(x[i], scale, shift);
    return (float)sum;
}

// e^x for x <= 0, to 4 ulp, and 0 below -708: as exp_fast, in double, by a Taylor polynomial whose next term
// is 0.35^14 / 14! = 4e-18.
static inline double exp_double(double x) {
    double within = x < -708.0 ? -708.0 : x;
    double n = within * 1.4426950408889634 + 0x1.8p52;
    int64_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= 0x1.8p52;
    double r = within - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45, p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    int64_t scale = (int64_t)((uint64_t)(bits + 1023) << 52);
    double power;
    memcpy(&power, &scale, sizeof power);
    return x < -708.0 ? 0.0 : p * power;
}

void kn_isa(exp_scale)(double *out, const float *x, size_t n, double scale, float min) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = exp_double(scale * ((double)x[i] - (double)min));
}

// Beside 1.5 * 2^52 the last bit of a double counts 1: the bits of a sum with it are those of a whole number,
// and whole numbers add up to the same in any order. Always 16 terms side by side, so that each is computed
// alike wherever it stands; what is missing at the end is made up by terms of 1.
double kn_isa(exp_fixed_sum)(const float *x, size_t n, float scale, float min) {
    enum { WIDTH = 16, BITS = 40 };
    const double whole = 0x1.8p52, one = (double)((uint64_t)1 << BITS);
    uint64_t sums[WIDTH] = {0}, bits[WIDTH], sum = 0, bias;
    size_t blocks = (n + WIDTH - 1) / WIDTH;
    for (size_t i = 0; i < blocks; i++, x += WIDTH) {
        float rest[WIDTH];
        double terms[WIDTH];
        const float *these = x;
        if (i == n / WIDTH) {
            for (size_t l = 0; l < WIDTH; l++) rest[l] = min;
            memcpy(rest, x, n % WIDTH * sizeof *x);
            these = rest;
        }
#pragma omp simd
        for (size_t l = 0; l < WIDTH; l++) terms[l] = exp_scaled(these[l], scale, min) * one + whole;
        memcpy(bits, terms, sizeof bits);
        for (size_t l = 0; l < WIDTH; l++) sums[l] += bits[l];
    }
    memcpy(&bias, &whole, sizeof bias);
    for (size_t l = 0; l < WIDTH; l++) sum += sums[l];
    sum -= blocks * WIDTH * bias;
    return (double)sum / one - (double)(blocks * WIDTH - n);
}

// By halves: a reduction of `omp simd` adds its lanes one after another, which took a row of 32 as long as
// its powers.
static inline float add_lanes(kn_vec v) {
    float lanes[KN_LANES];
    memcpy(lanes, &v, sizeof lanes);
    for (size_t n = KN_LANES / 2; n; n /= 2)
        for (size_t i = 0; i < n; i++) lanes[i] += lanes[i + n];
    return lanes[0];
}

// `columns` is a constant where this is inlined with one; where it is inlined with NULL, nothing is left of
// the moment.
static inline __attribute__((always_inline)) void softmax_rows(const float *block, size_t rows,
                                                               size_t columns, float *largest, float *sum,
                                                               float *moment, size_t stride) {
    float below[KN_CELL] = {0}, powers[KN_CELL] = {0}; // zeros stay after `columns`
    for (size_t r = 0; r < rows; r++, block += KN_CELL) {
        float best = -INFINITY;
        kn_vec sums = {0}, moments = {0};
#pragma omp simd reduction(max : best)
        for (size_t i = 0; i < columns; i++) best = block[i] > best ? block[i] : best;
#pragma omp simd
        for (size_t i = 0; i < columns; i++) {
            float gap = block[i] - best;
            below[i] = gap > -100.0f ? gap : -100.0f; // exp_fast is never 0: a huge gap would count
            powers[i] = exp_fast(below[i]);
        }
        for (size_t i = 0; i < KN_CELL; i += KN_LANES) {
            kn_vec power = *(const kn_vec *)(powers + i);
            sums += power;
            moments += *(const kn_vec *)(below + i) * power;
        }
        largest[r * stride] = best;
        sum[r * stride] = add_lanes(sums);
        if (moment) moment[r * stride] = add_lanes(moments);
    }
}

void kn_isa(block_softmax)(const float *block, size_t rows, size_t columns, float *largest, float *sum,
                           float *moment, size_t stride) {
    if (columns < KN_CELL)
        softmax_rows(block, rows, columns, largest, sum, moment, stride);
    else if (moment)
        softmax_rows(block, rows, KN_CELL, largest, sum, moment, stride);
    else
        softmax_rows(block, rows, KN_CELL, largest, sum, NULL, stride);
}

// Row r of the blocks sees keys [from, seen).
static inline float row_max(const float *scores, size_t r, size_t blocks, size_t from, size_t seen) {
    float best = -INFINITY;
    for (size_t b = from / KN_CELL; b < blocks; b++) {
        const float *x = scores + b * KN_CELL_SIZE + r * KN_CELL;
        int32_t first = (int32_t)from - (int32_t)(b * KN_CELL), left = (int32_t)seen - (int32_t)(b * KN_CELL);
#pragma omp simd reduction(max : best)
        for (int32_t i = 0; i < KN_CELL; i++) {
            float value = i >= first && i < left ? x[i] : -INFINITY;
            best = value > best ? value : best;
        }
    }
    return best;
}

static inline float row_exp(float *scores, size_t r, size_t blocks, size_t from, size_t seen, float shift) {
    float total = 0;
    for (size_t b = 0; b < blocks; b++) {
        float *x = scores + b * KN_CELL_SIZE + r * KN_CELL;
        int32_t first = (int32_t)from - (int32_t)(b * KN_CELL), left = (int32_t)seen - (int32_t)(b * KN_CELL);
#pragma omp simd reduction(+ : total)
        for (int32_t i = 0; i < KN_CELL; i++) {
            x[i] = i >= first && i < left ? exp_fast(x[i] - shift) : 0.0f;
            total += x[i];
        }
    }
    return total;
}

static inline size_t window_from(size_t seen, size_t window) {
    return seen > window ? seen - window : 0;
}

void kn_isa(causal_softmax)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                            float *logs) {
    for (size_t r = 0; r < rows; r++) {
        size_t seen = visible + r, from = window_from(seen, window);
        float best = row_max(scores, r, blocks, from, seen),
              total = row_exp(scores, r, blocks, from, seen, best);
        float scale = 1.0f / total;
        for (size_t b = 0; b < blocks; b++) {
            float *x = scores + b * KN_CELL_SIZE + r * KN_CELL;
#pragma omp simd
            for (size_t i = 0; i < KN_CELL; i++) x[i] *= scale;
        }
        logs[r] = best + logf(total);
    }
}

void kn_isa(causal_exp)(float *scores, size_t blocks, size_t rows, size_t visible, size_t window,
                        const float *logs) {
    for (size_t r = 0; r < rows; r++)
        row_exp(scores, r, blocks, window_from(visible + r, window), visible + r, logs[r]);
}

void kn_isa(softmax_backward)(float *slopes, const float *weights, size_t blocks, size_t rows,
                              const float *dots) {
    for (size_t b = 0; b < blocks; b++)
        for (size_t r = 0; r < rows; r++) {
            float *s = slopes + b * KN_CELL_SIZE + r * KN_CELL;
            const float *w = weights + b * KN_CELL_SIZE + r * KN_CELL;
#pragma omp simd
            for (size_t i = 0; i < KN_CELL; i++) s[i] = w[i] * (s[i] - dots[r]);
        }
}

void kn_isa(relu)(float *y, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

void kn_isa(relu_backward)(float *dx, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) dx[i] = x[i] > 0.0f ? dx[i] : 0.0f;
}

void kn_isa(norm)(float *y, float *mean, float *inverse, const float *x, const float *weight,
                  const float *bias, size_t n, float epsilon) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += x[i];
    float mu = sum / (float)n;
#pragma omp simd reduction(+ : squares)
    for (size_t i = 0; i < n; i++) squares += (x[i] - mu) * (x[i] - mu);
    float scale = 1.0f / sqrtf(squares / (float)n + epsilon);
    *mean = mu;
    *inverse = scale;
    if (!bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) y[i] = (x[i] - mu) * scale * weight[i];
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - mu) * scale * weight[i] + bias[i];
}

void kn_isa(norm_backward)(float *dx, const float *dy, const float *x, const float *weight, float mean,
                           float inverse, size_t n) {
    float sum = 0, projection = 0;
#pragma omp simd reduction(+ : sum, projection)
    for (size_t i = 0; i < n; i++) {
        float g = dy[i] * weight[i];
        sum += g;
        projection += g * (x[i] - mean) * inverse;
    }
    sum /= (float)n;
    projection /= (float)n;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dx[i] += inverse * (dy[i] * weight[i] - sum - (x[i] - mean) * inverse * projection);
}

void kn_isa(norm_sums)(float *dweight, float *dbias, const float *dy, const float *x, float mean,
                       float inverse, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) dweight[i] += dy[i] * (x[i] - mean) * inverse;
    if (!dbias) return;
#pragma omp simd
    for (size_t i = 0; i < n; i++) dbias[i] += dy[i];
}

void kn_isa(rms_norm)(float *y, float *inverse, const float *x, const float *weight, size_t n,
                      float epsilon) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (size_t i = 0; i < n; i++) squares += x[i] * x[i];
    float scale = 1.0f / sqrtf(squares / (float)n + epsilon);
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
    *inverse = scale;
}

void kn_isa(rms_backward)(float *dx, const float *dy, const float *x, const float *weight, float inverse,
                          size_t n) {
    float projection = 0;
#pragma omp simd reduction(+ : projection)
    for (size_t i = 0; i < n; i++) projection += dy[i] * weight[i] * x[i];
    projection *= inverse * inverse / (float)n;
#pragma omp simd
    for (size_t i = 0; i < n; i++) dx[i] += inverse * (dy[i] * weight[i] - x[i] * projection);
}

// gelu(x) = x s(2u), u = sqrt(2/pi)(x + 0.044715 x^3), s the logistic function: the tanh form, rearranged.
static inline float gelu_gate(float x) {
    return 1.0f / (1.0f + exp_fast(-1.5957691216f * (x + 0.044715f * x * x * x)));
}

void kn_isa(gelu)(float *y, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = x[i] * gelu_gate(x[i]);
}

void kn_isa(gelu_backward)(float *dx, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float gate = gelu_gate(x[i]), slope = 1.5957691216f * (1.0f + 0.134145f * x[i] * x[i]);
        dx[i] *= gate + x[i] * gate * (1.0f - gate) * slope;
    }
}

void kn_isa(relu2)(float *y, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] * x[i] : 0.0f;
}

void kn_isa(relu2_backward)(float *dx, const float *x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) dx[i] = x[i] > 0.0f ? 2.0f * dx[i] * x[i] : 0.0f;
}

static inline float logistic(float x) {
    return 1.0f / (1.0f + exp_fast(-x));
}

void kn_isa(swiglu)(float *y, const float *gate, const float *up, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = gate[i] * logistic(gate[i]) * up[i];
}

void kn_isa(swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                             size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float s = logistic(gate[i]), slope = dy[i];
        dgate[i] = slope * up[i] * s * (1.0f + gate[i] * (1.0f - s));
        dup[i] = slope * gate[i] * s;
    }
}

void kn_isa(rotate)(float *x, const float *cosines, const float *sines, size_t half, bool adjacent,
                    float sign) {
    if (adjacent) {
#pragma omp simd
        for (size_t i = 0; i < half; i++) {
            float a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = sign * sines[i];
            x[2 * i] = a * c - b * s;
            x[2 * i + 1] = a * s + b * c;
        }
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i], c = cosines[i], s = sign * sines[i];
        x[i] = a * c - b * s;
        x[half + i] = a * s + b * c;
    }
}

// A 32-bit mix is enough here: neighbours in one row must not be related, no more.
static inline uint32_t mix32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

void kn_isa(dropout)(float *x, size_t n, float p, uint64_t key, uint32_t first) {
    uint32_t seed = (uint32_t)kn_mix64(key), low = (uint32_t)(kn_mix64(key) >> 32);
    uint32_t threshold = (uint32_t)(p * 16777216.0f);
    float scale = 1.0f / (1.0f - p);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        uint32_t draw = mix32((first + (uint32_t)i) * 0x9e3779b9u + seed) ^ low;
        x[i] = (draw >> 8) < threshold ? 0.0f : x[i] * scale;
    }
}

void kn_isa(adam)(float *w, float *m, float *v, const float *g, size_t n, const kn_adam *p) {
    const float b1 = p->beta1, b2 = p->beta2, scale = p->scale, decay = 1.0f - p->rate * p->decay;
    const float c1 = p->rate / p->correction1, c2 = 1.0f / p->correction2, epsilon = p->epsilon;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float gradient = g[i] * scale;
        m[i] = b1 * m[i] + (1.0f - b1) * gradient;
        v[i] = b2 * v[i] + (1.0f - b2) * gradient * gradient;
        w[i] = w[i] * decay - c1 * m[i] / (sqrtf(v[i] * c2) + epsilon);
    }
}

void kn_isa(nesterov)(float *w, float *m, const float *g, size_t n, const kn_nesterov *p) {
    const float momentum = p->momentum, rate = p->rate, scale = p->scale, carry = p->momentum * p->rate_ratio;
    const float keep = 1.0f - p->rate * p->decay;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float step = -rate * scale * g[i];
        w[i] *= keep;
        m[i] = carry * m[i] + step;
        w[i] += momentum * m[i] + step;
    }
}
