// Mixing by given weights, and the weights of parts that make a text most probable: against the formulas of
// the headers, written here as plain loops in long double.
#include "mix_kit.h"

#include "base/random.h"
#include "base/threads.h"
#include "mix/mix.h"
#include "mix/tune.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool same_bits(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

// ---------------------------------------------------------------- mixing

static void check_mix(double lm, const double *parts, const double *weights, size_t count) {
    long double x[8] = {lm}, w[8] = {1};
    for (size_t i = 0; i < count; i++) {
        x[i + 1] = parts[i];
        w[i + 1] = weights[i];
        w[0] -= w[i + 1];
    }
    if (w[0] < 1e-12L) w[0] = 0; // what sums of weights leave by rounding is nothing
    long double wanted = log_sum(x, w, count + 1);
    double got = kn_mix(lm, parts, weights, count);
    if (isinf(wanted) ? got != -INFINITY : !(fabsl(got - wanted) <= 1e-14L * (1 + fabsl(wanted))))
        fail_msg("mixed %zu with %.17g: %.17g, not %.17Lg", count, lm, got, wanted);
}

static void mixing_at_the_ends(void **state) {
    (void)state;
    static const double logs[] = {0, -1e-300, -0.1, -1, -700, -1e5, -DBL_MAX, -INFINITY};
    for (size_t i = 0; i < COUNT(logs); i++)
        for (size_t j = 0; j < COUNT(logs); j++) {
            assert_true(same_bits(kn_mix(logs[i], &logs[j], (double[]){0}, 1), logs[i]));
            assert_true(same_bits(kn_mix(logs[i], &logs[j], (double[]){1}, 1), logs[j]));
            for (double w = 1e-300; w < 1; w = w < 0.1 ? w * 1e10 : w + 0.125)
                check_mix(logs[i], &logs[j], &w, 1);
        }
    assert_true(same_bits(kn_mix(-3.25, NULL, NULL, 0), -3.25));
    assert_true(same_bits(kn_mix(-3.25, (double[]){NAN}, (double[]){0}, 1), -3.25));
    assert_true(same_bits(kn_mix(NAN, (double[]){-3.25}, (double[]){1}, 1), -3.25));
    assert_true(same_bits(kn_mix(NAN, (double[]){NAN, -2, NAN}, (double[]){0, 1, 0}, 3), -2));
    assert_true(isnan(kn_mix(-1, (double[]){NAN}, (double[]){0.5}, 1)));
}

static void mixing_of_many(void **state) {
    (void)state;
    const double parts[] = {-2, -INFINITY, -40}, nothing[] = {-INFINITY, -INFINITY, -INFINITY};
    const double weights[][3] = {{0.25, 0.25, 0.5}, {0.1, 0.2, 0.3}, {1e-20, 1e-300, 5e-324},
                                 {0, 0.5, 0.25},    {0, 0, 0},       {0, 0, 1},
                                 {0.5, 0, 0.5},     {0.5, 0.5, 0},   {1 - 0x1p-53, 0, 0x1p-54}};
    for (size_t i = 0; i < COUNT(weights); i++)
        for (double lm = 0; lm > -1e4; lm = lm * 5 - 0.01) {
            check_mix(lm, parts, weights[i], 3);
            check_mix(lm, nothing, weights[i], 3);
            check_mix(-INFINITY, parts, weights[i], 3);
        }
    kn_random random = {5};
    for (int i = 0; i < 20000; i++) {
        double lm = -20 * kn_random_unit(&random), p[3], w[3];
        for (size_t j = 0; j < 3; j++) {
            p[j] = log(kn_random_unit(&random)) * (double)(1 + kn_random_below(&random, 50));
            w[j] = kn_random_unit(&random) / 3;
        }
        check_mix(lm, p, w, 3);
    }
}

// ---------------------------------------------------------------- weights

typedef struct parts {
    size_t count, n;
    float *p[KN_PARTS_MAX];
} parts;

static parts parts_of(size_t count, size_t n) {
    parts x = {.count = count, .n = n};
    for (size_t c = 0; c < count; c++) x.p[c] = test_alloc(n, sizeof(float));
    return x;
}

static void parts_free(parts *x) {
    for (size_t c = 0; c < x->count; c++) free(x->p[c]);
}

static long double mixture_at(const parts *x, const double *weights, size_t i) {
    long double mixture = 0;
    for (size_t c = 0; c < x->count; c++) mixture += (long double)weights[c] * (long double)x->p[c][i];
    return mixture;
}

static long double mean_log(const parts *x, const double *weights) {
    long double sum = 0;
    for (size_t i = 0; i < x->n; i++) sum += logl(mixture_at(x, weights, i));
    return sum / (long double)x->n;
}

// How much higher the mean may be elsewhere: the conditions of Karush, Kuhn and Tucker.
static long double gap_at(const parts *x, const double *weights) {
    long double slopes[KN_PARTS_MAX] = {0}, max = 0;
    for (size_t i = 0; i < x->n; i++) {
        long double mixture = mixture_at(x, weights, i);
        for (size_t c = 0; c < x->count; c++) slopes[c] += (long double)x->p[c][i] / mixture;
    }
    for (size_t c = 0; c < x->count; c++) max = fmaxl(max, slopes[c] / (long double)x->n);
    return max - 1;
}

// The weights fitted, which must be weights, and the best of all.
static double fit(const parts *x, double *weights) {
    double mean = NAN;
    long double sum = 0, gap;
    OK(kn_fit_weights((const float *const *)x->p, x->count, x->n, weights, &mean));
    for (size_t c = 0; c < x->count; c++) {
        assert_true(weights[c] >= 0 && weights[c] <= 1);
        sum += weights[c];
    }
    assert_true(fabsl(sum - 1) <= 1e-15L * (long double)x->count);
    if (!(fabsl(mean - mean_log(x, weights)) <= 1e-13L * (1 + fabsl(mean))))
        fail_msg("%zu parts, %zu tokens: mean %.17g, not %.17Lg", x->count, x->n, mean, mean_log(x, weights));
    if (!((gap = gap_at(x, weights)) <= 1.001e-9L))
        fail_msg("%zu parts, %zu tokens: up to %Lg above", x->count, x->n, gap);
    return mean;
}

static long double mean_of_two(const void *context, double w) {
    return mean_log(context, (double[]){1 - w, w});
}

static void two_parts_as_golden_sections(void **state) {
    (void)state;
    kn_random random = {7};
    for (size_t i = 0; i < 40; i++) {
        parts x = parts_of(2, 1 + 13 * i);
        for (size_t j = 0; j < x.n; j++) {
            x.p[0][j] = (float)exp(-6 * kn_random_unit(&random));
            x.p[1][j] = kn_random_unit(&random) < 0.3 ? 0 : (float)exp(-8 * kn_random_unit(&random));
        }
        double weights[2], mean = fit(&x, weights), w = highest(mean_of_two, &x, 0, 1);
        assert_true(fabsl(mean - mean_of_two(&x, w)) <= 1e-9L);
        assert_true(fabs(weights[1] - w) <= 1e-6);
        parts_free(&x);
    }
}

static void three_parts_as_a_grid(void **state) {
    (void)state;
    enum { STEPS = 100 };
    kn_random random = {9};
    for (size_t i = 0; i < 6; i++) {
        parts x = parts_of(3, 40);
        for (size_t c = 0; c < 3; c++)
            for (size_t j = 0; j < x.n; j++) x.p[c][j] = (float)exp(-5 * kn_random_unit(&random));
        double weights[3], mean = fit(&x, weights), best[3] = {0};
        long double max = -INFINITY;
        for (int a = 0; a <= STEPS; a++)
            for (int b = 0; a + b <= STEPS; b++) {
                double w[] = {a / (double)STEPS, b / (double)STEPS, (STEPS - a - b) / (double)STEPS};
                long double here = mean_log(&x, w);
                if (here > max) max = here, memcpy(best, w, sizeof best);
            }
        assert_true(mean >= max - 1e-9L && mean <= max + 1e-3L);
        for (size_t c = 0; c < 3; c++) assert_true(fabs(weights[c] - best[c]) <= 0.03);
        parts_free(&x);
    }
}

static void weights_at_the_border(void **state) {
    (void)state;
    kn_random random = {11};
    double weights[3];
    parts x = parts_of(3, 1000);
    for (size_t i = 0; i < x.n; i++) { // the second is always best
        x.p[0][i] = (float)(0.4 * kn_random_unit(&random));
        x.p[1][i] = (float)(0.5 + 0.5 * kn_random_unit(&random));
        x.p[2][i] = 0;
    }
    fit(&x, weights);
    assert_true(weights[0] == 0 && weights[1] == 1 && weights[2] == 0);
    for (size_t i = 0; i < x.n; i++) // each knows half of them; the third guesses worse than either
        x.p[0][i] = i % 2 ? 0.75f : 0, x.p[1][i] = i % 2 ? 0 : 0.25f, x.p[2][i] = 0.01f;
    assert_true(fabs(fit(&x, weights) - (log(0.375) + log(0.125)) / 2) <= 1e-9);
    assert_true(fabs(weights[0] - 0.5) < 1e-6 && fabs(weights[1] - 0.5) < 1e-6 && weights[2] == 0);
    for (size_t i = 0; i < x.n; i++) // one token of a thousand is known by the third alone
        x.p[0][i] = i ? 0.5f : 0, x.p[1][i] = 0, x.p[2][i] = i ? 0 : 1e-37f;
    fit(&x, weights);
    assert_true(fabs(weights[0] - 0.999) < 1e-6 && weights[1] == 0 && fabs(weights[2] - 0.001) < 1e-6);
    for (size_t i = 0; i < x.n; i++) x.p[0][i] = x.p[1][i] = x.p[2][i] = (float)kn_random_unit(&random);
    fit(&x, weights); // any weights will do
    parts_free(&x);
}

static void few_tokens_and_parts(void **state) {
    (void)state;
    double weights[KN_PARTS_MAX];
    for (size_t count = 1; count <= KN_PARTS_MAX; count++) {
        parts x = parts_of(count, 1);
        for (size_t c = 0; c < count; c++) x.p[c][0] = c == count / 2 ? 0.5f : 0.25f;
        assert_true(fabs(fit(&x, weights) - log(0.5)) <= 1e-9);
        assert_true(weights[count / 2] == 1);
        for (size_t c = 0; c < count; c++) x.p[c][0] = 1e-37f;
        assert_true(fabs(fit(&x, weights) - log((double)1e-37f)) <= 1e-9);
        parts_free(&x);
    }
    parts none = parts_of(4, 0);
    double mean = NAN;
    OK(kn_fit_weights((const float *const *)none.p, none.count, 0, weights, &mean));
    for (size_t c = 0; c < none.count; c++) assert_true(weights[c] == 0.25);
    assert_true(mean == 0);
    parts_free(&none);
    parts one = parts_of(1, 3);
    one.p[0][0] = 1, one.p[0][1] = 0.5f, one.p[0][2] = 0x1p-149f;
    assert_true(fabs(fit(&one, weights) + 50 * log(2)) <= 1e-12 && weights[0] == 1);
    parts_free(&one);
}

// Parts like each other, parts that know little, parts that are 0 for most tokens, probabilities of all
// orders.
static parts random_parts(kn_random *random) {
    parts x = parts_of(1 + kn_random_below(random, KN_PARTS_MAX),
                       1 + kn_random_below(random, kn_random_below(random, 2) ? 40 : 1500));
    uint64_t how = kn_random_below(random, 8);
    for (size_t c = 0; c < x.count; c++) {
        size_t like = how & 1 && c && kn_random_below(random, 2) ? kn_random_below(random, c) : c;
        double empty = how & 2 && c ? kn_random_unit(random) : 0,
               sharp = pow(10, -3 * kn_random_unit(random));
        double differs = how & 4 ? 1e-6 : 0;
        for (size_t i = 0; i < x.n; i++)
            if (like < c)
                x.p[c][i] = x.p[like][i] * (float)(1 + differs * kn_random_unit(random));
            else if (kn_random_unit(random) >= empty)
                x.p[c][i] = (float)exp((how & 4 ? -85 : -8) * kn_random_unit(random) * sharp);
    }
    return x;
}

static void weights_of_all_kinds(void **state) {
    (void)state;
    double weights[KN_PARTS_MAX];
    for (uint64_t seed = 0; seed < 600; seed++) {
        kn_random random = {seed};
        parts x = random_parts(&random);
        fit(&x, weights);
        parts_free(&x);
    }
}

// More tokens than a task has, and not a whole number of tasks.
static void weights_repeat(void **state) {
    (void)state;
    enum { PARTS = 5 };
    double weights[3][PARTS], means[3][2];
    kn_random random = {13};
    parts x = parts_of(PARTS, 5 * 4096 + 301);
    for (size_t c = 0; c < PARTS; c++)
        for (size_t i = 0; i < x.n; i++) x.p[c][i] = (float)exp(-9 * kn_random_unit(&random));
    for (int i = 0; i < 3; i++) {
        OK(kn_threads_set(1 << i));
        means[i][0] = fit(&x, weights[i]);
        OK(kn_mean_log((const float *const *)x.p, PARTS, x.n, weights[i], &means[i][1]));
    }
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(weights[i], weights[0], sizeof *weights);
        assert_memory_equal(means[i], means[0], sizeof *means);
    }
    OK(kn_threads_set(2));
    parts_free(&x);
}

static void check_mean_log(const parts *x, const double *weights) {
    double got = NAN;
    long double wanted = mean_log(x, weights);
    OK(kn_mean_log((const float *const *)x->p, x->count, x->n, weights, &got));
    if (isinf(wanted) ? got != -INFINITY : !(fabsl(got - wanted) <= 1e-13L * (1 + fabsl(wanted))))
        fail_msg("mean of %zu is %.17g, not %.17Lg", x->n, got, wanted);
}

static void means_of_logarithms(void **state) {
    (void)state;
    static const size_t counts[] = {1, 2, 3, 4, 5, 255, 256, 257, 4096, 4097, 9001};
    static const double seconds[] = {0, 1e-250, 1e-90, 1e-9, 0.1, 0.5, 1};
    kn_random random = {15};
    for (size_t i = 0; i < COUNT(counts); i++) {
        parts x = parts_of(2, counts[i]);
        for (size_t j = 0; j < x.n; j++) {
            x.p[0][j] = j % 9 < 5 ? 0 : (float)exp(-103 * kn_random_unit(&random)); // down to subnormals
            x.p[1][j] = (float)exp(-103 * kn_random_unit(&random));
        }
        for (size_t s = 0; s < COUNT(seconds); s++)
            check_mean_log(&x, (double[]){1 - seconds[s], seconds[s]});
        parts_free(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixing_at_the_ends),           cmocka_unit_test(mixing_of_many),
        cmocka_unit_test(two_parts_as_golden_sections), cmocka_unit_test(three_parts_as_a_grid),
        cmocka_unit_test(weights_at_the_border),        cmocka_unit_test(few_tokens_and_parts),
        cmocka_unit_test(weights_of_all_kinds),         cmocka_unit_test(weights_repeat),
        cmocka_unit_test(means_of_logarithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
