// Weights by Newton's method on a concave function over the simplex, with the mixture's own fixed-point step
// (which never lowers it) where Newton's does not do better.
#include "mix/tune.h"

#include "base/threads.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096, STRIP = 256, MAX = KN_PARTS_MAX, ROUNDS = 2000, HALVINGS = 30 };
#define GAP 1e-9
#define RIDGE 1e-12 // parts may be the same
#define SLACK 1e-13

// Sums over tokens: of logarithms, of p / mixture, and of its products.
typedef struct sums {
    double logs, slope[MAX], curve[MAX][MAX];
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

// Logarithms are dear: one for four tokens, whose probabilities are 1e-38 or more unless weights are tiny.
static double sum_logs(const double *mixture, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i += 4) {
        double product = 1;
        size_t end = kn_min(i + 4, n);
        for (size_t j = i; j < end; j++) product *= mixture[j];
        if (product >= DBL_MIN)
            sum += log(product);
        else
            for (size_t j = i; j < end; j++) sum += log(mixture[j]);
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
    size_t end = kn_min((task + 1) * CHUNK, f->n);
    double mixture[STRIP];
    (void)worker;
    *s = (sums){0};
    for (size_t first = task * CHUNK; first < end; first += STRIP) {
        size_t n = kn_min(STRIP, end - first);
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

// ---------------------------------------------------------------- one round

// Solves a (n, n) x = b in place by elimination with pivots; false when it is singular.
static bool solve(double a[MAX][MAX], double *b, size_t n) {
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

// The mean about some weights, to second order, less the sum of weights (which is 1 where that is highest, so
// that it needs no further care): b . y - y . a y / 2, where y are weights in units that make the diagonal 1.
// Curve times weights is slope, which leaves 2 slope - 1 for b.
typedef struct model {
    size_t parts;
    double units[MAX], a[MAX][MAX], b[MAX];
} model;

static void model_init(model *m, const sums *s, const double *weights, size_t parts) {
    m->parts = parts;
    for (size_t c = 0; c < parts; c++) m->units[c] = sqrt(s->curve[c][c]);
    for (size_t c = 0; c < parts; c++) {
        double unit = m->units[c];
        m->b[c] = unit > 0 ? (2 * s->slope[c] - 1) / unit + RIDGE * weights[c] * unit : -1;
        for (size_t d = 0; d < parts; d++)
            m->a[c][d] = unit > 0 && m->units[d] > 0 ? s->curve[c][d] / unit / m->units[d] : 0;
        m->a[c][c] = 1 + RIDGE;
    }
}

// z: the highest point of the model of which only the parts in `in` are not 0.
static bool highest_among(const model *m, unsigned in, double *z) {
    double a[MAX][MAX], b[MAX];
    size_t at[MAX], n = 0;
    for (size_t c = 0; c < m->parts; c++)
        if (in >> c & 1) at[n++] = c;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) a[i][j] = m->a[at[i]][at[j]];
        b[i] = m->b[at[i]];
    }
    if (!solve(a, b, n)) return false;
    for (size_t i = 0; i < n; i++) z[at[i]] = b[i];
    return true;
}

// Moves y, of the parts in *in, to the model's highest point; parts that would fall below 0 on the way leave.
static bool settle(const model *m, unsigned *in, double *y) {
    double z[MAX];
    while (*in) {
        double length = 1;
        size_t leaves = MAX;
        if (!highest_among(m, *in, z)) return false;
        for (size_t c = 0; c < m->parts; c++)
            if (*in >> c & 1 && z[c] <= 0 && (leaves == MAX || y[c] < length * (y[c] - z[c]))) {
                length = y[c] > 0 ? y[c] / (y[c] - z[c]) : 0;
                leaves = c;
            }
        for (size_t c = 0; c < m->parts; c++)
            if (*in >> c & 1) y[c] = leaves == MAX ? z[c] : fmax(0, y[c] + length * (z[c] - y[c]));
        if (leaves == MAX) break;
        y[leaves] = 0;
        *in &= ~(1u << leaves);
    }
    return true;
}

// The part, but those in `out`, that most wants to be above 0; `parts`: none does.
static size_t keenest(const model *m, const double *y, unsigned out) {
    size_t best = m->parts;
    double max = 0;
    for (size_t c = 0; c < m->parts; c++) {
        double slope = m->b[c];
        for (size_t d = 0; d < m->parts; d++) slope -= m->a[c][d] * y[d];
        if (out >> c & 1 || slope * m->units[c] <= GAP / 100 || slope <= max) continue;
        max = slope;
        best = c;
    }
    return best;
}

// The weights at which the model is highest: a least-squares problem without negative answers, solved by
// Lawson and Hanson's method. Newton's step cut off at 0 was tried: a part at 0 whose slope is above 1, but
// whose step is negative beside the others', stopped it for good.
static void model_highest(const model *m, double *weights) {
    double y[MAX] = {0};
    unsigned in = 0, barred = 0;
    for (int i = 0; i < 4 * MAX; i++) {
        size_t c = keenest(m, y, in | barred);
        if (c == m->parts) break;
        in |= 1u << c;
        if (!settle(m, &in, y)) break;
        barred = in >> c & 1 ? 0 : barred | 1u << c; // rounding: it came and left
    }
    for (size_t c = 0; c < m->parts; c++) weights[c] = m->units[c] > 0 ? y[c] / m->units[c] : 0;
}

// From the weights towards the model's highest point, as far as the mean does not fall; *s is of where that
// is. SLACK: the last steps raise it by less than its rounding.
static bool go_towards(fitting *f, const double *weights, const double *goal, double *out, sums *s) {
    double length = 1, before = s->logs;
    for (int i = 0; i < HALVINGS; i++, length /= 2) {
        double sum = 0;
        for (size_t c = 0; c < f->parts; c++)
            sum += out[c] = i ? weights[c] + length * (goal[c] - weights[c]) : goal[c];
        for (size_t c = 0; c < f->parts; c++) out[c] /= sum;
        *s = means(f, out, false);
        if (s->logs > before - (i ? 0 : SLACK)) return true;
    }
    return false;
}

// From weights (with *s of them) to better ones.
static void improve(fitting *f, double *weights, sums *s) {
    double goal[MAX], next[MAX], slopes[MAX];
    model m;
    memcpy(slopes, s->slope, sizeof slopes);
    model_init(&m, s, weights, f->parts);
    model_highest(&m, goal);
    if (!go_towards(f, weights, goal, next, s)) {
        for (size_t c = 0; c < f->parts; c++) next[c] = weights[c] * slopes[c];
        *s = means(f, next, false);
    }
    memcpy(weights, next, f->parts * sizeof *weights);
}

knnlm_status kn_fit_weights_from(const float *const *p, size_t parts, size_t n, double *weights,
                                 double *mean) {
    fitting f = {.p = p, .parts = parts, .n = n, .chunks = kn_alloc(n / CHUNK + 1, sizeof *f.chunks)};
    if (!f.chunks) return KNNLM_ENOMEM;
    sums s = means(&f, weights, false);
    for (int round = 0; round < ROUNDS; round++) {
        double best = 0;
        for (size_t c = 0; c < parts; c++) best = fmax(best, s.slope[c]);
        if (best - 1 <= GAP) break;
        improve(&f, weights, &s);
    }
    *mean = s.logs;
    free(f.chunks);
    return KNNLM_OK;
}

knnlm_status kn_fit_weights(const float *const *p, size_t parts, size_t n, double *weights, double *mean) {
    for (size_t c = 0; c < parts; c++) weights[c] = 1 / (double)parts;
    return kn_fit_weights_from(p, parts, n, weights, mean);
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
    double share = f->believed / f->max, sum = f->prior * (share / w - (1 - share) / (f->max - w));
    for (size_t j = 0; j < f->n; j++) {
        size_t i = f->tokens[j];
        double lm = (double)f->lm[i], knn = (double)f->knn[i];
        double mixture = (f->fixed ? (double)f->fixed[i] : 0) + (f->max - w) * lm + w * knn;
        if (mixture > 0) sum += (knn - lm) / mixture;
    }
    return sum;
}

double kn_fit_lambda(const kn_lambda_fit *fit) {
    double low = 0, high = fit->max;
    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (slope_at(fit, middle) > 0)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}
