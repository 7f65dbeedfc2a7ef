// Weights by Newton's method on a concave function over the simplex, with the mixture's own fixed-point step
// (which never lowers it) where Newton's does not do better.
#include "mix/tune.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096, STRIP = 256, MOST = KN_PARTS_MOST, ROUNDS = 2000, HALVINGS = 30 };
#define GAP 1e-9
#define RIDGE 1e-12 // parts may be the same

// Sums over tokens: of logarithms, of p / mixture, and of its products.
typedef struct sums {
    double logs, slope[MOST], curve[MOST][MOST];
} sums;

typedef struct fitting {
    const float *const *p;
    size_t parts, n;
    const double *weights;
    bool logs_only;
    sums *chunks;
} fitting;

// The mixture of up to STRIP tokens, one loop a part, so that the compiler may take several at a time.
static void mix_strip(const fitting *f, size_t first, size_t n, double *mixture) {
    for (size_t i = 0; i < n; i++) mixture[i] = 0;
    for (size_t c = 0; c < f->parts; c++) {
        const float *p = f->p[c] + first;
        double weight = f->weights[c];
        for (size_t i = 0; i < n; i++) mixture[i] += weight * (double)p[i];
    }
}

// Logarithms are dear: one for four tokens, whose probabilities are at least 1e-38 each.
static double sum_logs(const double *mixture, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i += 4) {
        double product = 1;
        for (size_t j = i; j < kn_least(i + 4, n); j++) product *= mixture[j];
        sum += log(product);
    }
    return sum;
}

static void sum_ratios(const fitting *f, size_t first, size_t n, const double *mixture, sums *s) {
    double inverse[STRIP], ratio[STRIP];
    for (size_t i = 0; i < n; i++) inverse[i] = 1 / mixture[i];
    for (size_t c = 0; c < f->parts; c++) {
        double slope = 0;
        for (size_t i = 0; i < n; i++) slope += ratio[i] = (double)f->p[c][first + i] * inverse[i];
        s->slope[c] += slope;
        for (size_t d = 0; d <= c; d++) {
            double curve = 0;
            for (size_t i = 0; i < n; i++) curve += ratio[i] * (double)f->p[d][first + i] * inverse[i];
            s->curve[c][d] += curve;
        }
    }
}

static void add_chunk(void *context, size_t task, int worker) {
    const fitting *f = context;
    sums *s = &f->chunks[task];
    size_t end = kn_least((task + 1) * CHUNK, f->n);
    double mixture[STRIP];
    (void)worker;
    *s = (sums){0};
    for (size_t first = task * CHUNK; first < end; first += STRIP) {
        size_t n = kn_least(STRIP, end - first);
        mix_strip(f, first, n, mixture);
        s->logs += sum_logs(mixture, n);
        if (!f->logs_only) sum_ratios(f, first, n, mixture, s);
    }
}

// Means over all tokens, joined in order: the same whatever the threads.
static sums means(fitting *f, const double *weights, bool logs_only) {
    size_t chunks = (f->n + CHUNK - 1) / CHUNK;
    sums all = {0};
    f->weights = weights;
    f->logs_only = logs_only;
    kn_parallel(chunks, add_chunk, f);
    for (size_t t = 0; t < chunks; t++) {
        all.logs += f->chunks[t].logs / (double)f->n;
        for (size_t c = 0; c < f->parts; c++) {
            all.slope[c] += f->chunks[t].slope[c] / (double)f->n;
            for (size_t d = 0; d <= c; d++) all.curve[c][d] += f->chunks[t].curve[c][d] / (double)f->n;
        }
    }
    for (size_t c = 0; c < f->parts; c++)
        for (size_t d = c + 1; d < f->parts; d++) all.curve[c][d] = all.curve[d][c];
    return all;
}

// Solves a (n, n) x = b in place by elimination with pivots; false when it is singular.
static bool solve(double a[MOST + 1][MOST + 1], double *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t best = i;
        for (size_t r = i + 1; r < n; r++)
            if (fabs(a[r][i]) > fabs(a[best][i])) best = r;
        if (!(fabs(a[best][i]) > 0)) return false;
        for (size_t c = 0; c < n && best != i; c++) {
            double held = a[i][c];
            a[i][c] = a[best][c];
            a[best][c] = held;
        }
        double held = b[i];
        b[i] = b[best];
        b[best] = held;
        for (size_t r = i + 1; r < n; r++) {
            double factor = a[r][i] / a[i][i];
            for (size_t c = i; c < n; c++) a[r][c] -= factor * a[i][c];
            b[r] -= factor * b[i];
        }
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t c = i + 1; c < n; c++) b[i] -= a[i][c] * b[c];
        b[i] /= a[i][i];
    }
    return true;
}

// Newton's step among the parts that are free: those above 0, and those that want to be.
static bool newton(const sums *s, const double *weights, size_t parts, double *step) {
    double a[MOST + 1][MOST + 1] = {{0}}, b[MOST + 1] = {0};
    size_t free_parts[MOST], n = 0;
    for (size_t c = 0; c < parts; c++)
        if (weights[c] > 0 || s->slope[c] > 1) free_parts[n++] = c;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) a[i][j] = s->curve[free_parts[i]][free_parts[j]];
        a[i][i] += RIDGE;
        a[i][n] = a[n][i] = 1; // weights keep their sum
        b[i] = s->slope[free_parts[i]];
    }
    memset(step, 0, parts * sizeof *step);
    if (!solve(a, b, n + 1)) return false;
    for (size_t i = 0; i < n; i++) step[free_parts[i]] = b[i];
    return true;
}

// As far along the step as no weight falls below 0.
static double longest(const double *weights, const double *step, size_t parts) {
    double length = 1;
    for (size_t c = 0; c < parts; c++)
        if (step[c] < 0) length = fmin(length, -weights[c] / step[c]);
    return length;
}

static bool go_along(fitting *f, const double *weights, const double *step, double before, double *out) {
    double length = longest(weights, step, f->parts);
    for (int i = 0; i < HALVINGS && length > 0; i++, length /= 2) {
        double sum = 0;
        for (size_t c = 0; c < f->parts; c++) sum += out[c] = fmax(0, weights[c] + length * step[c]);
        for (size_t c = 0; c < f->parts; c++) out[c] /= sum;
        if (means(f, out, true).logs > before) return true;
    }
    return false;
}

knnlm_status kn_fit_weights(const float *const *p, size_t parts, size_t n, double *weights, double *mean) {
    fitting f = {.p = p, .parts = parts, .n = n, .chunks = kn_alloc(n / CHUNK + 1, sizeof *f.chunks)};
    if (!f.chunks) return KNNLM_ENOMEM;
    for (size_t c = 0; c < parts; c++) weights[c] = 1 / (double)parts;
    for (int round = 0; round < ROUNDS; round++) {
        double step[MOST], next[MOST], best = 0;
        sums s = means(&f, weights, false);
        *mean = s.logs;
        for (size_t c = 0; c < parts; c++) best = fmax(best, s.slope[c]);
        if (best - 1 <= GAP) break;
        if (!newton(&s, weights, parts, step) || !go_along(&f, weights, step, s.logs, next))
            for (size_t c = 0; c < parts; c++) next[c] = weights[c] * s.slope[c];
        memcpy(weights, next, parts * sizeof *weights);
    }
    free(f.chunks);
    return KNNLM_OK;
}

knnlm_status kn_mean_log(const float *const *p, size_t parts, size_t n, const double *weights, double *mean) {
    fitting f = {.p = p, .parts = parts, .n = n, .chunks = kn_alloc(n / CHUNK + 1, sizeof *f.chunks)};
    if (!f.chunks) return KNNLM_ENOMEM;
    *mean = means(&f, weights, true).logs;
    free(f.chunks);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- one weight

// The derivative by the weight: falls from one end to the other.
static double slope_at(const kn_lambda_fit *f, double w) {
    double share = f->believed / f->most, sum = f->prior * (share / w - (1 - share) / (f->most - w));
    for (size_t j = 0; j < f->n; j++) {
        size_t i = f->tokens[j];
        double lm = (double)f->lm[i], knn = (double)f->knn[i];
        double mixture = (f->fixed ? (double)f->fixed[i] : 0) + (f->most - w) * lm + w * knn;
        if (mixture > 0) sum += (knn - lm) / mixture;
    }
    return sum;
}

double kn_fit_lambda(const kn_lambda_fit *fit) {
    double low = 0, high = fit->most;
    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (slope_at(fit, middle) > 0)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}
