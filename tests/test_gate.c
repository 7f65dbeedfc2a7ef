// Gates: what they are fitted to is recovered, the fit is where its slope vanishes, and the least of a
// function is found. How gates weigh tokens is held against NumPy in test_eval_oracle.
#include "expect.h"

#include "base/random.h"
#include "math/lbfgs.h"
#include "mix/gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- L-BFGS

// Rosenbrock's valley in 6 dimensions: least, 0, where all are 1.
static double valley(void *context, const double *x, double *gradient) {
    double sum = 0;
    size_t *calls = context;
    ++*calls;
    memset(gradient, 0, 6 * sizeof *gradient);
    for (size_t i = 0; i < 5; i++) {
        double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
        sum += 100 * a * a + b * b;
        gradient[i] += -400 * a * x[i] - 2 * b;
        gradient[i + 1] += 200 * a;
    }
    return sum;
}

static void finds_the_bottom_of_a_valley(void **state) {
    double x[6] = {-1.2, 1, -0.5, 2, 0, -1}, value;
    size_t calls = 0;
    (void)state;
    OK(kn_lbfgs(valley, &calls, 6, &(kn_lbfgs_options){500, 1e-16}, x, &value));
    assert_true(value < 1e-9);
    for (size_t i = 0; i < 6; i++) assert_true(fabs(x[i] - 1) < 1e-4);
    assert_true(calls < 600);
}

static void never_ends_above_its_beginning(void **state) {
    double x[6] = {1, 1, 1, 1, 1, 1}, value; // there already: no step leads down
    size_t calls = 0;
    (void)state;
    OK(kn_lbfgs(valley, &calls, 6, &(kn_lbfgs_options){50, 1e-16}, x, &value));
    assert_true(value == 0 && x[0] == 1 && x[5] == 1);
}

// ---------------------------------------------------------------- fitting

static double uniform(kn_random *r) {
    return (double)kn_random_below(r, 1 << 20) / (1 << 20);
}

// Where distances are below 10 the sharp expert is right in 9 of 10 tokens, elsewhere the model is.
static kn_gate_row *make_rows(size_t n, uint64_t seed) {
    kn_random random = {seed};
    kn_gate_row *rows = calloc(n, sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < n; i++) {
        bool near = uniform(&random) < 0.5, right = uniform(&random) < 0.9;
        rows[i] = (kn_gate_row){
            .features = {.nearest = near ? 2 + 8 * uniform(&random) : 30 + 60 * uniform(&random),
                         .agreement = 0.2 + 0.7 * uniform(&random),
                         .entropy = 1 + 6 * uniform(&random)},
            .lm = near == right ? 0.01 : 0.3,
            .knn = {near == right ? 0.8 : 1e-4, near == right ? 0.3 : 1e-3},
            .first = i % 50 == 0,
            .found = i % 17 != 3};
        rows[i].features.farthest = 3 * rows[i].features.nearest;
    }
    return rows;
}

// The best that one pair of weights for all tokens can do, over a grid.
static double best_constant(const kn_gate_row *rows, size_t n) {
    double best = -INFINITY;
    for (int a = 0; a <= 20; a++)
        for (int b = 0; a + b <= 20; b++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += log(rows[i].found ? (20 - a - b) / 20.0 * rows[i].lm +
                                               (a * rows[i].knn[0] + b * rows[i].knn[1]) / 20.0 + 1e-12
                                         : rows[i].lm);
            best = fmax(best, sum);
        }
    return best;
}

static void learns_what_tells_right_from_wrong(void **state) {
    enum { N = 4000 };
    kn_gate_row *rows = make_rows(N, 1), *others = make_rows(N, 2);
    kn_gate gate = kn_gate_make(KNNLM_DISTANCE_L2, 20, 20);
    double mean[2];
    (void)state;
    OK(kn_gate_fit(rows, N, &gate, mean));
    assert_true(mean[1] > mean[0]);
    // By far better on rows that it has not seen than weights that do not look at the distance.
    assert_true(kn_gate_score(others, N, &gate, false) > best_constant(others, N) + 0.3 * N);
    free(rows);
    free(others);
}

// What the fit maximises, from the formulas: the score, and the pull to what was believed.
static double objective(const kn_gate_row *rows, size_t n, const kn_gate *g, const kn_gate *believed) {
    double pull = 0, sum = kn_gate_score(rows, n, g, false);
    for (size_t i = 0; i < KN_GATE_WEIGHTS; i++)
        pull += (g->weights[i] - believed->weights[i]) * (g->weights[i] - believed->weights[i]);
    return sum - KN_GATE_PRIOR_ROWS / 2.0 * pull;
}

static void no_weight_could_be_better(void **state) {
    enum { N = 600 };
    kn_gate_row *rows = make_rows(N, 3);
    kn_gate believed = kn_gate_make(KNNLM_DISTANCE_IP, 20, 20), gate = believed;
    double mean[2];
    (void)state;
    OK(kn_gate_fit(rows, N, &gate, mean));
    double best = objective(rows, N, &gate, &believed);
    for (size_t i = 0; i < KN_GATE_WEIGHTS; i++)
        for (int side = -1; side <= 1; side += 2) {
            kn_gate other = gate;
            other.weights[i] += 0.05 * side;
            // Its tolerance ends the fit within N * 1e-8 of what the next step would gain; 100 such steps.
            assert_true(objective(rows, N, &other, &believed) < best + 100 * N * 1e-8);
        }
    free(rows);
}

static void few_rows_hardly_move_it(void **state) {
    kn_gate_row *rows = make_rows(4, 5);
    kn_gate gate = kn_gate_make(KNNLM_DISTANCE_L2, 20, 20);
    double mean[2], away = 0;
    (void)state;
    OK(kn_gate_fit(rows, 4, &gate, mean));
    for (size_t i = 0; i < KN_GATE_WEIGHTS; i++) away += fabs(gate.weights[i] - kn_gate_prior[i]);
    assert_true(away > 0 && away < 72 * 0.5);
    OK(kn_gate_fit(rows, 0, &gate, mean)); // none at all
    free(rows);
}

static void features_beyond_measure_are_bounded(void **state) {
    static const double far[] = {0, 1e-30, 1e30, -5, INFINITY};
    kn_gate gate = kn_gate_make(KNNLM_DISTANCE_L2, 20, 20);
    (void)state;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        kn_gate_features f = {
            .nearest = far[i], .farthest = far[sizeof far / sizeof *far - 1 - i], .entropy = far[i]};
        kn_gate_past past = {0};
        double z[KN_GATE_EXPERTS];
        kn_gate_learn(&past, (const double[]){0, 0}, 1);
        kn_gate_learn(&past, (const double[]){1, 1}, 0);
        kn_gate_open(&gate, &f, &past, z);
        assert_true(isfinite(z[0]) && isfinite(z[1]) && fabs(z[0]) <= 30 && fabs(z[1]) <= 30);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_bottom_of_a_valley),
        cmocka_unit_test(never_ends_above_its_beginning),
        cmocka_unit_test(learns_what_tells_right_from_wrong),
        cmocka_unit_test(no_weight_could_be_better),
        cmocka_unit_test(few_rows_hardly_move_it),
        cmocka_unit_test(features_beyond_measure_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
