// Fits a gate to rows: the weights that make them most probable, not too far from those it had.
#include "math/lbfgs.h"
#include "mix/gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS = 200 };

typedef struct fitting {
    size_t n;
    double *terms;  // (n, KN_GATE_TERMS)
    double (*p)[4]; // (n): the model's, then the experts', then the cache's against what it leaves them
    const double *believed;
} fitting;

// Minus the sum of logarithms, and the pull to what is believed, per row.
static double cost(void *context, const double *weights, double *gradient) {
    const fitting *f = context;
    double sum = 0, each = 1 / (double)f->n;
    memset(gradient, 0, KN_GATE_WEIGHTS * sizeof *gradient);
    for (size_t i = 0; i < f->n; i++) {
        const double *terms = f->terms + i * KN_GATE_TERMS, *p = f->p[i];
        double e[KN_GATE_EXPERTS], all = 1, mixed = p[0];
        for (size_t o = 0; o < KN_GATE_EXPERTS; o++) {
            double z = 0;
            for (size_t t = 0; t < KN_GATE_TERMS; t++) z += weights[o * KN_GATE_TERMS + t] * terms[t];
            e[o] = exp(fmax(-KN_GATE_Z_MAX, fmin(KN_GATE_Z_MAX, z)));
            all += e[o];
            mixed += e[o] * p[1 + o];
        }
        mixed /= all;
        sum += log(mixed + p[3]);
        for (size_t o = 0; o < KN_GATE_EXPERTS; o++) {
            double slope = each * e[o] / all * (mixed - p[1 + o]) / (mixed + p[3]);
            for (size_t t = 0; t < KN_GATE_TERMS; t++) gradient[o * KN_GATE_TERMS + t] += slope * terms[t];
        }
    }
    double pull = 0;
    for (size_t w = 0; w < KN_GATE_WEIGHTS; w++) {
        double away = weights[w] - f->believed[w];
        pull += away * away;
        gradient[w] += KN_GATE_PRIOR_ROWS * each * away;
    }
    return each * (KN_GATE_PRIOR_ROWS / 2.0 * pull - sum);
}

// The past grows from row to row, so all are passed, although only some are kept.
static void gather(const kn_gate_row *rows, size_t n, const kn_gate *g, fitting *f) {
    kn_gate_past past = {0};
    size_t room = f->n, seen = 0;
    for (size_t i = 0; i < n; i++) {
        const kn_gate_row *r = &rows[i];
        if (r->first) past = (kn_gate_past){0};
        if (!r->found) continue;
        size_t before = (size_t)((unsigned __int128)i * room / n),
               after = (size_t)((unsigned __int128)(i + 1) * room / n);
        if (after > before) {
            kn_gate_terms(g, &r->features, &past, f->terms + seen * KN_GATE_TERMS);
            f->p[seen][0] = fmax(r->lm, 1e-300);
            for (size_t o = 0; o < KN_GATE_EXPERTS; o++) f->p[seen][1 + o] = r->knn[o];
            f->p[seen][3] = r->cache_lambda * r->cache / (1 - r->cache_lambda);
            seen++;
        }
        kn_gate_learn(&past, r->knn, r->lm);
    }
    f->n = seen;
}

knnlm_status kn_gate_fit(const kn_gate_row *rows, size_t n, kn_gate *g, double mean[2]) {
    double believed[KN_GATE_WEIGHTS], gradient[KN_GATE_WEIGHTS], value;
    fitting f = {.n = kn_min(n, KN_GATE_ROWS), .believed = believed};
    memcpy(believed, g->weights, sizeof believed);
    f.terms = kn_alloc(f.n * KN_GATE_TERMS, sizeof *f.terms);
    f.p = kn_alloc(f.n, sizeof *f.p);
    knnlm_status status = f.terms && f.p ? KNNLM_OK : KNNLM_ENOMEM;
    mean[0] = mean[1] = 0;
    if (status == KNNLM_OK) gather(rows, n, g, &f);
    if (status == KNNLM_OK && f.n) {
        mean[0] = -cost(&f, g->weights, gradient);
        status =
            kn_lbfgs(cost, &f, KN_GATE_WEIGHTS, &(kn_lbfgs_options){ITERATIONS, 1e-8}, g->weights, &value);
        mean[1] = -value;
    }
    free(f.terms);
    free(f.p);
    return status;
}

// With the cache, if there is one.
static double log_of(const kn_gate_row *r, double p) {
    return log(r->cache_lambda * r->cache + (1 - r->cache_lambda) * p);
}

double kn_gate_score(const kn_gate_row *rows, size_t n, const kn_gate *g, bool switched) {
    kn_gate_past past = {0};
    double sum = 0, odds = 0;
    for (size_t i = 0; i < n; i++) {
        const kn_gate_row *r = &rows[i];
        double z[KN_GATE_EXPERTS], lm = fmax(r->lm, 1e-300), gated = lm;
        if (r->first) past = (kn_gate_past){0};
        if (r->first) odds = 0;
        if (r->found) {
            kn_gate_open(g, &r->features, &past, z);
            double sharp = exp(z[0]), flat = exp(z[1]);
            gated = (lm + sharp * r->knn[0] + flat * r->knn[1]) / (1 + sharp + flat);
            kn_gate_learn(&past, r->knn, r->lm);
        }
        double part = switched ? 1 / (1 + exp(-odds)) : 1;
        odds += log_of(r, gated) - log_of(r, lm);
        sum += log_of(r, part * gated + (1 - part) * lm);
    }
    return sum;
}
