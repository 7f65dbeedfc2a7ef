// Limited-memory BFGS with a backtracking line search.
#include "math/lbfgs.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 8, HALVINGS = 40 };
#define ENOUGH 1e-4 // of the decrease that the slope promises (Armijo)

typedef struct search {
    kn_lbfgs_function *f;
    void *context;
    size_t n, pairs, next;
    double *x, *gradient, *direction, *tried, *tried_gradient;
    double *steps, *changes; // (PAIRS, n): of x and of the gradient, a ring
    double scales[PAIRS];    // 1 / (step . change)
    double value;
} search;

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add(double *out, const double *x, double by, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] += by * x[i];
}

static size_t ring(const search *s, size_t back) {
    return (s->next + PAIRS - 1 - back) % PAIRS;
}

// The two loops over the pairs kept, latest first and back.
static void find_direction(search *s) {
    size_t n = s->n;
    double shares[PAIRS];
    for (size_t i = 0; i < n; i++) s->direction[i] = -s->gradient[i];
    for (size_t back = 0; back < s->pairs; back++) {
        size_t p = ring(s, back);
        shares[p] = s->scales[p] * dot(s->steps + p * n, s->direction, n);
        add(s->direction, s->changes + p * n, -shares[p], n);
    }
    if (s->pairs) {
        const double *y = s->changes + ring(s, 0) * n;
        double scale = 1 / (s->scales[ring(s, 0)] * dot(y, y, n));
        for (size_t i = 0; i < n; i++) s->direction[i] *= scale;
    }
    for (size_t back = s->pairs; back-- > 0;) {
        size_t p = ring(s, back);
        add(s->direction, s->steps + p * n,
            shares[p] - s->scales[p] * dot(s->changes + p * n, s->direction, n), n);
    }
}

// Halves the step until the value falls by enough; false: it does not.
static bool step_down(search *s, double *value) {
    double slope = dot(s->gradient, s->direction, s->n), length = 1;
    // The first direction is the gradient alone, whose length says nothing.
    if (!s->pairs) length = fmin(1, 1 / sqrt(dot(s->gradient, s->gradient, s->n) + 1e-300));
    for (int i = 0; slope < 0 && i < HALVINGS; i++, length /= 2) {
        memcpy(s->tried, s->x, s->n * sizeof *s->x);
        add(s->tried, s->direction, length, s->n);
        *value = s->f(s->context, s->tried, s->tried_gradient);
        if (*value <= s->value + ENOUGH * length * slope) return true;
    }
    return false;
}

// Pairs that do not curve upwards would spoil the directions.
static void remember(search *s) {
    double *step = s->steps + s->next * s->n, *change = s->changes + s->next * s->n;
    for (size_t i = 0; i < s->n; i++) {
        step[i] = s->tried[i] - s->x[i];
        change[i] = s->tried_gradient[i] - s->gradient[i];
    }
    double curve = dot(step, change, s->n);
    if (!(curve > 1e-12 * dot(change, change, s->n))) return;
    s->scales[s->next] = 1 / curve;
    s->next = (s->next + 1) % PAIRS;
    s->pairs = kn_min(s->pairs + 1, PAIRS);
}

static void descend(search *s, const kn_lbfgs_options *o) {
    s->value = s->f(s->context, s->x, s->gradient);
    for (size_t i = 0; i < o->iterations; i++) {
        double value, before = s->value;
        find_direction(s);
        if (!step_down(s, &value)) {
            if (!s->pairs) return;
            s->pairs = 0; // once more from the gradient alone
            continue;
        }
        remember(s);
        memcpy(s->x, s->tried, s->n * sizeof *s->x);
        memcpy(s->gradient, s->tried_gradient, s->n * sizeof *s->gradient);
        s->value = value;
        if (before - value < o->tolerance) return;
    }
}

knnlm_status kn_lbfgs(kn_lbfgs_function *f, void *context, size_t n, const kn_lbfgs_options *o, double *x,
                      double *value) {
    double *room = kn_alloc((4 + 2 * PAIRS) * n, sizeof *room);
    if (!room) return KNNLM_ENOMEM;
    search s = {.f = f,
                .context = context,
                .n = n,
                .x = x,
                .gradient = room,
                .direction = room + n,
                .tried = room + 2 * n,
                .tried_gradient = room + 3 * n,
                .steps = room + 4 * n,
                .changes = room + (4 + PAIRS) * n};
    descend(&s, o);
    *value = s.value;
    free(room);
    return KNNLM_OK;
}
