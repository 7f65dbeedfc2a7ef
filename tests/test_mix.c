// From neighbours to probabilities, and the settings that make a text most probable: against the formulas of
// the headers, written here as plain loops in long double.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "mix/cache.h"
#include "mix/mix.h"
#include "mix/tune.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *memory(size_t count, size_t size) {
    void *result = calloc(count ? count : 1, size); // exact sizes, so that sanitizers see any step outside
    assert_non_null(result);
    return result;
}

static bool same_bits(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static long double exponent(long double x, long double w) {
    return w == 1 ? x : w > 0 ? x + logl(w) : -INFINITY;
}

// log of the sum of w[i] e^x[i], but for what is below 1e-43 of the largest.
static long double log_sum(const long double *x, const long double *w, size_t n) {
    long double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = fmaxl(max, exponent(x[i], w[i]));
    if (isinf(max)) return max;
    for (size_t i = 0; i < n; i++)
        if (exponent(x[i], w[i]) - max > -100) sum += expl(exponent(x[i], w[i]) - max);
    return max + logl(sum);
}

// ---------------------------------------------------------------- the kernel

enum { MAX = 2000 };

typedef struct crowd {
    float distances[MAX], weights[MAX];
    int32_t values[MAX];
} crowd;

// -d / T of each, infinities being as far as f32 goes; less the nearest's, which no ratio of sums notices.
static void exponents(const kn_neighborhood *n, double temperature, long double *x) {
    long double nearest = FLT_MAX;
    for (size_t i = 0; i < n->count; i++) {
        x[i] = fmaxl(-FLT_MAX, fminl(FLT_MAX, (long double)n->distances[i]));
        nearest = fminl(nearest, x[i]);
    }
    for (size_t i = 0; i < n->count; i++) x[i] = (nearest - x[i]) / (long double)temperature;
}

// log of the sum over those whose value is `target`; over all, when `any`.
static long double log_weight(const kn_neighborhood *n, const long double *x, int32_t target, bool any) {
    static long double w[MAX];
    for (size_t i = 0; i < n->count; i++)
        w[i] = any || n->values[i] == target ? n->weights ? (long double)n->weights[i] : 1 : 0;
    return log_sum(x, w, n->count);
}

// Logarithms to 1e-6 (sums are of f32's exponentials) and rounding.
static void check_logprob(const kn_neighborhood *n, const long double *x, double temperature, int32_t target,
                          long double all) {
    long double hits = log_weight(n, x, target, false), wanted = isinf(hits) ? hits : hits - all;
    double got = kn_neighborhood_logprob(n, temperature, target);
    assert_true(got <= 0);
    if (isinf(wanted) ? got != -INFINITY : !(fabsl(got - wanted) <= 1e-6L + 1e-14L * fabsl(wanted)))
        fail_msg("%zu neighbours, temperature %g: log p(%d) = %.12g, not %.12Lg", n->count, temperature,
                 target, got, wanted);
}

static void check_shares(const kn_neighborhood *n, const long double *x, double temperature,
                         long double all) {
    double *shares = memory(n->count, sizeof *shares);
    long double sum = 0;
    kn_neighborhood_shares(n, temperature, shares);
    for (size_t i = 0; i < n->count; i++) {
        long double w = n->weights ? (long double)n->weights[i] : 1,
                    wanted = w * expl(fmaxl(-100, x[i] - all));
        if (!(fabsl(shares[i] - wanted) <= 1e-12L))
            fail_msg("share %zu of %zu is %.15g, not %.15Lg", i, n->count, shares[i], wanted);
        sum += shares[i];
    }
    assert_true(n->count == 0 || fabsl(sum - 1) <= 1e-12L);
    free(shares);
}

// Shares are added to that of the first neighbour of the same value.
static long double entropy_of(const kn_neighborhood *n, const long double *x, long double all) {
    static long double p[MAX];
    long double sum = 0;
    for (size_t i = 0; i < n->count; i++) {
        size_t first = 0;
        while (n->values[first] != n->values[i]) first++;
        p[i] = 0;
        p[first] += (n->weights ? (long double)n->weights[i] : 1) * expl(fmaxl(-1000, x[i] - all));
    }
    for (size_t i = 0; i < n->count; i++) sum -= p[i] > 0 ? p[i] * logl(p[i]) : 0;
    return sum;
}

static void check_entropy(const kn_neighborhood *n, const long double *x, double temperature,
                          long double all) {
    kn_value_share *scratch = memory(2 * n->count, sizeof *scratch);
    memset(scratch, 0x55, 2 * n->count * sizeof *scratch); // whatever was there
    double got = kn_neighborhood_entropy(n, temperature, scratch);
    long double wanted = n->count ? entropy_of(n, x, all) : 0;
    if (n->count ? !(got >= 0 && fabsl(got - wanted) <= 1e-12L) : !isnan(got))
        fail_msg("the entropy of %zu neighbours at temperature %g is %.15g, not %.15Lg", n->count,
                 temperature, got, wanted);
    free(scratch);
}

static void check_neighborhood(const kn_neighborhood *n) {
    static const double temperatures[] = {1e-30, 1e-7, 0.01, 0.3, 1, 7, 1000, 1e12, 1e30};
    static long double x[MAX];
    for (size_t t = 0; t < COUNT(temperatures); t++) {
        exponents(n, temperatures[t], x);
        long double all = log_weight(n, x, 0, true);
        for (size_t i = 0; i < n->count; i += n->count / 7 + 1)
            check_logprob(n, x, temperatures[t], n->values[i], all);
        check_logprob(n, x, temperatures[t], -1, all);
        check_shares(n, x, temperatures[t], all);
        check_entropy(n, x, temperatures[t], all);
    }
}

// Neighbours in any order, without and with weights.
static void check_crowd(const crowd *c, size_t count) {
    float *distances = memory(count, sizeof *distances), *weights = memory(count, sizeof *weights);
    kn_neighborhood n = {distances, c->values, NULL, count, 0};
    memcpy(distances, c->distances, count * sizeof *distances);
    memcpy(weights, c->weights, count * sizeof *weights);
    for (size_t i = 1; i < count; i++)
        if (distances[i] < distances[n.nearest]) n.nearest = i;
    check_neighborhood(&n);
    n.weights = weights;
    check_neighborhood(&n);
    free(distances);
    free(weights);
}

typedef enum kind { NEAR, FAR, PRODUCTS, EQUAL, COSINES, HUGE_ONES, LIMITS, INFINITE, KINDS } kind;

static float draw(kind kind, kn_random *random) {
    static const float limits[] = {FLT_MAX, -FLT_MAX, 0, 1e30f, -1e30f, FLT_MIN};
    static const float infinite[] = {INFINITY, -INFINITY, 3, FLT_MAX, INFINITY, 1e30f};
    double x = kn_random_normal(random);
    switch (kind) {
    case NEAR:
        return (float)fmax(0, x); // half of them 0
    case FAR:
        return (float)(1000 + 30 * x);
    case PRODUCTS:
        return (float)(-200 + 50 * x);
    case EQUAL:
        return 12.5f;
    case COSINES:
        return (float)(1 - cos(x));
    case HUGE_ONES:
        return (float)(1e30 * fabs(x));
    case LIMITS:
        return limits[kn_random_below(random, COUNT(limits))];
    default:
        return infinite[kn_random_below(random, COUNT(infinite))];
    }
}

static void neighbours_of_all_kinds(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 16, 17, 100, 619, 1024, MAX};
    static const uint64_t vocabularies[] = {1, 3, 50, 100000};
    static crowd c;
    kn_random random = {1};
    for (kind kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < COUNT(counts); i++) {
            uint64_t vocabulary = vocabularies[kn_random_below(&random, COUNT(vocabularies))];
            for (size_t j = 0; j < counts[i]; j++) {
                c.distances[j] = draw(kind, &random);
                c.values[j] = (int32_t)kn_random_below(&random, vocabulary);
                c.weights[j] = (float)(1 + kn_random_below(&random, 9));
            }
            check_crowd(&c, counts[i]);
        }
}

static double logprob(const float *distances, const int32_t *values, size_t count, double temperature,
                      int32_t target) {
    kn_neighborhood n = {distances, values, NULL, count, 0};
    return kn_neighborhood_logprob(&n, temperature, target);
}

static void neighbours_by_hand(void **state) {
    (void)state;
    const int32_t values[] = {7, 8, 7, 9};
    const float distances[] = {0, 1, 1, 2}, infinite[] = {INFINITY, INFINITY, INFINITY, INFINITY};
    const float apart[] = {-FLT_MAX, FLT_MAX, FLT_MAX, INFINITY};
    double e = exp(-1), all = 1 + 2 * e + e * e;
    assert_true(fabs(logprob(distances, values, 4, 1, 7) - log((1 + e) / all)) < 1e-6);
    assert_true(fabs(logprob(distances, values, 4, 1, 8) - log(e / all)) < 1e-6);
    assert_true(fabs(logprob(distances, values, 4, 1, 9) - log(e * e / all)) < 1e-6);
    assert_true(logprob(distances, values, 4, 1, 6) == -INFINITY);
    assert_true(logprob(distances, values, 1, 1, 7) == 0);
    assert_true(logprob(distances, values, 1, 1, 8) == -INFINITY);
    assert_true(kn_neighborhood_logprob(&(kn_neighborhood){0}, 1, 0) == -INFINITY);
    assert_true(fabs(logprob(infinite, values, 4, 1, 7) - log(0.5)) < 1e-6); // all are equally far
    assert_true(fabs(logprob(apart, values, 4, 1e-30, 9) / (-2e30 * FLT_MAX) - 1) < 1e-12);
    // What is nothing beside the nearest is still something.
    assert_true(fabs(logprob(distances, values, 4, 1e-4, 9) + 2e4) < 1e-6);
    assert_true(fabs(logprob(distances, values, 4, 1e-30, 9) / -2e30 - 1) < 1e-12);
    assert_true(logprob(distances, values, 4, 1e-30, 7) == 0);
    kn_neighborhood_shares(&(kn_neighborhood){0}, 1, NULL);
}

// An entry of weight w is w entries.
static void weights_are_copies(void **state) {
    (void)state;
    static crowd once, copies;
    kn_random random = {3};
    size_t n = 0;
    for (size_t i = 0; i < 200; i++) {
        once.distances[i] = (float)(50 + 10 * kn_random_normal(&random));
        once.values[i] = (int32_t)kn_random_below(&random, 30);
        once.weights[i] = (float)(1 + kn_random_below(&random, 9));
        for (size_t w = 0; w < (size_t)once.weights[i]; w++, n++) {
            copies.distances[n] = once.distances[i];
            copies.values[n] = once.values[i];
        }
    }
    kn_neighborhood a = {once.distances, once.values, once.weights, 200, 0};
    kn_neighborhood b = {copies.distances, copies.values, NULL, n, 0};
    for (size_t i = 0; i < 200; i++)
        if (once.distances[i] < once.distances[a.nearest]) a.nearest = i;
    while (copies.distances[b.nearest] > once.distances[a.nearest]) b.nearest++;
    for (int32_t target = 0; target < 30; target++)
        for (double t = 0.1; t < 1000; t *= 3) {
            double x = kn_neighborhood_logprob(&a, t, target), y = kn_neighborhood_logprob(&b, t, target);
            assert_true(x == y || fabs(x - y) <= 1e-6);
        }
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

// Bins as the header says: how many edges are at most x.
static size_t edges_below(const double *edges, size_t bins, double x) {
    size_t count = 0;
    for (size_t e = 0; e + 1 < bins; e++) count += edges[e] <= x;
    return count;
}

static void check_bins(size_t distances, size_t entropies) {
    double *de = memory(distances - 1, sizeof *de), *ee = memory(entropies - 1, sizeof *ee);
    double *lambdas = memory(distances * entropies, sizeof *lambdas), tries[160] = {NAN};
    size_t count = 1;
    kn_bins bins = {distances, entropies, de, ee, lambdas};
    for (size_t i = 0; i + 1 < distances; i++) de[i] = -3 + 1.7 * (double)i;
    for (size_t i = 0; i + 1 < entropies; i++) ee[i] = 0.1 * (double)(i * i + 1);
    for (size_t i = 0; i < distances * entropies; i++) lambdas[i] = (double)i;
    tries[count++] = INFINITY, tries[count++] = -INFINITY, tries[count++] = 0;
    for (size_t i = 0; i + 1 < distances; i++)
        for (int step = -1; step <= 1; step++) tries[count++] = nextafter(de[i], de[i] + step);
    for (size_t i = 0; i + 1 < entropies; i++)
        for (int step = -1; step <= 1; step++) tries[count++] = nextafter(ee[i], ee[i] + step);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            size_t place =
                edges_below(de, distances, tries[i]) * entropies + edges_below(ee, entropies, tries[j]);
            assert_int_equal(kn_bins_place(&bins, tries[i], tries[j]), place); // NAN: the first
            assert_true(kn_bins_lambda(&bins, tries[i], tries[j]) == (double)place);
        }
    free(de);
    free(ee);
    free(lambdas);
}

static void bins_have_their_edges(void **state) {
    (void)state;
    check_bins(1, 1);
    check_bins(1, 5);
    check_bins(5, 1);
    check_bins(2, 3);
    check_bins(16, 16);
}

static double faded(double from, double to, double x) {
    return kn_fade_weight(&(kn_fade){from, to}, x);
}

static void weights_fade(void **state) {
    (void)state;
    const double below[] = {-INFINITY, -3, 0, 2, NAN}, beyond[] = {6, 6.1, 1e300, INFINITY};
    for (size_t i = 0; i < COUNT(below); i++) assert_true(faded(2, 6, below[i]) == 1);
    for (size_t i = 0; i < COUNT(beyond); i++) assert_true(faded(2, 6, beyond[i]) == 0);
    assert_true(faded(2, 6, 3) == 0.75 && faded(2, 6, 4) == 0.5 && faded(2, 6, 5.5) == 0.125);
    assert_true(faded(-6, -2, -5) == 0.75 && faded(-6, -2, -6) == 1 && faded(-6, -2, -2) == 0);
    assert_true(faded(3, 3, 3) == 1 && faded(3, 3, nextafter(3, 4)) == 0);
    for (size_t i = 0; i < COUNT(beyond); i++) {
        assert_true(faded(NAN, NAN, beyond[i]) == 1 && faded(2, NAN, beyond[i]) == 1);
        assert_true(faded(NAN, 6, beyond[i]) == 1);
    }
}

// ---------------------------------------------------------------- weights

typedef struct parts {
    size_t count, n;
    float *p[KN_PARTS_MAX];
} parts;

static parts parts_of(size_t count, size_t n) {
    parts x = {.count = count, .n = n};
    for (size_t c = 0; c < count; c++) x.p[c] = memory(n, sizeof(float));
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

typedef long double objective(const void *context, double x);

// Where a concave function is highest, by golden sections.
static double highest(objective *f, const void *context, double low, double high) {
    const double cut = (sqrt(5) - 1) / 2;
    double a = high - cut * (high - low), b = low + cut * (high - low);
    long double fa = f(context, a), fb = f(context, b);
    while (high - low > 1e-12) {
        if (fa > fb) {
            high = b, b = a, fb = fa;
            fa = f(context, a = high - cut * (high - low));
        } else {
            low = a, a = b, fa = fb;
            fb = f(context, b = low + cut * (high - low));
        }
    }
    return (low + high) / 2;
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

// ---------------------------------------------------------------- one weight

// The sum, and the belief's part of it: believed / most of so many tokens speak for it, the others against.
static long double lambda_objective(const void *context, double w) {
    const kn_lambda_fit *f = context;
    long double share = (long double)f->believed / (long double)f->max, left = (long double)f->max - w;
    long double sum = f->prior > 0 ? f->prior * (share * logl(w) + (1 - share) * logl(left)) : 0;
    for (size_t j = 0; j < f->n; j++) {
        size_t i = f->tokens[j];
        sum += logl((f->fixed ? (long double)f->fixed[i] : 0) + left * (long double)f->lm[i] +
                    w * (long double)f->knn[i]);
    }
    return sum;
}

static void check_lambda(const kn_lambda_fit *f) {
    double got = kn_fit_lambda(f), wanted = highest(lambda_objective, f, 0, f->max);
    assert_true(got >= 0 && got <= f->max);
    if (!(fabs(got - wanted) <= 3e-7))
        fail_msg("%zu tokens, most %g, prior %g: %.12g, not %.12g", f->n, f->max, f->prior, got, wanted);
}

static void one_weight(void **state) {
    (void)state;
    enum { N = 300 };
    static float lm[N], knn[N], fixed[N];
    static uint32_t tokens[N];
    kn_random random = {17};
    for (size_t i = 0; i < N; i++) {
        lm[i] = (float)exp(-6 * kn_random_unit(&random));
        knn[i] = i % 3 ? (float)exp(-5 * kn_random_unit(&random)) : 0;
        fixed[i] = (float)(0.01 * kn_random_unit(&random));
        tokens[i] = (uint32_t)kn_random_below(&random, N); // some twice, some never
    }
    for (size_t n = 0; n <= N; n = 3 * n + 1)
        for (double prior = 0; prior < 1e4; prior = 30 * prior + 1)
            for (double max = 0.3; max <= 1; max += 0.35) {
                kn_lambda_fit f = {lm, knn, NULL, tokens, n, max, max / 3, prior};
                if (n || prior > 0) check_lambda(&f);
                f.fixed = fixed;
                if (n || prior > 0) check_lambda(&f);
            }
}

static void one_weight_at_the_ends(void **state) {
    (void)state;
    const float half[] = {0.5f, 0.5f}, less[] = {0.25f, 0.125f}, none[] = {0, 0};
    const uint32_t tokens[] = {0, 1};
    kn_lambda_fit f = {half, less, NULL, tokens, 2, 0.75, 0, 0};
    assert_true(fabs(kn_fit_lambda(&f)) < 1e-12);
    f.lm = less, f.knn = half;
    assert_true(fabs(kn_fit_lambda(&f) - 0.75) < 1e-12);
    f.lm = none, f.knn = none, f.believed = 0.3, f.prior = 1; // tokens that say nothing
    assert_true(fabs(kn_fit_lambda(&f) - 0.3) < 1e-12);
    f.n = 0;
    assert_true(fabs(kn_fit_lambda(&f) - 0.3) < 1e-12);
    f.believed = 0;
    assert_true(fabs(kn_fit_lambda(&f)) < 1e-12);
    f.believed = f.max;
    assert_true(fabs(kn_fit_lambda(&f) - 0.75) < 1e-12);
    f.lm = less, f.knn = half, f.n = 2, f.believed = 0.3, f.prior = 1e9; // outvoted
    assert_true(fabs(kn_fit_lambda(&f) - 0.3) < 1e-6);
}

// ---------------------------------------------------------------- weights by bins

typedef struct field {
    size_t n;
    float *lm, *knn, *fixed, *nearest, *entropies;
    uint32_t *tokens;
    double max, believed;
} field;

static field field_of(size_t n) {
    field f = {.n = n, .max = 0.9, .believed = 0.25};
    float **all[] = {&f.lm, &f.knn, &f.fixed, &f.nearest, &f.entropies};
    for (size_t i = 0; i < COUNT(all); i++) *all[i] = memory(2 * n, sizeof(float));
    f.tokens = memory(n, sizeof *f.tokens);
    for (size_t i = 0; i < n; i++) f.tokens[i] = (uint32_t)(2 * i + 1); // the others must not be seen
    for (size_t i = 0; i < n; i++)
        f.lm[2 * i] = f.knn[2 * i] = f.fixed[2 * i] = f.nearest[2 * i] = f.entropies[2 * i] = NAN;
    return f;
}

static void field_free(field *f) {
    free(f->lm);
    free(f->knn);
    free(f->fixed);
    free(f->nearest);
    free(f->entropies);
    free(f->tokens);
}

static kn_bin_room fitted(const field *f, size_t distances, size_t entropies) {
    kn_bin_room room = {distances, entropies, memory(distances - 1, sizeof(double)),
                        memory(entropies - 1, sizeof(double)), memory(distances * entropies, sizeof(double))};
    OK(kn_fit_bins(&(kn_bin_data){f->lm, f->knn, f->fixed, f->nearest, f->entropies, f->tokens, f->n, f->max,
                                  f->believed},
                   &room));
    assert_true(room.distances >= 1 && room.distances <= distances);
    assert_true(room.entropies >= 1 && room.entropies <= entropies);
    for (size_t i = 1; i + 1 < room.distances; i++)
        assert_true(room.distance_edges[i] > room.distance_edges[i - 1]);
    for (size_t i = 1; i + 1 < room.entropies; i++)
        assert_true(room.entropy_edges[i] > room.entropy_edges[i - 1]);
    return room;
}

static void room_free(kn_bin_room *room) {
    free(room->distance_edges);
    free(room->entropy_edges);
    free(room->lambdas);
}

static size_t members(const field *f, const kn_bin_room *room, size_t bin, uint32_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < f->n; i++) {
        uint32_t t = f->tokens[i];
        size_t d = edges_below(room->distance_edges, room->distances, (double)f->nearest[t]);
        size_t e = edges_below(room->entropy_edges, room->entropies, (double)f->entropies[t]);
        if (d * room->entropies + e == bin) out[count++] = t;
    }
    return count;
}

// Every bin's weight is the best for its tokens and the belief.
static void check_lambdas(const field *f, const kn_bin_room *room) {
    uint32_t *tokens = memory(f->n, sizeof *tokens);
    for (size_t b = 0; b < room->distances * room->entropies; b++) {
        size_t n = members(f, room, b, tokens);
        kn_lambda_fit fit = {f->lm, f->knn, f->fixed, tokens, n, f->max, f->believed, KN_BIN_PRIOR};
        double wanted = highest(lambda_objective, &fit, 0, f->max);
        if (!(fabs(room->lambdas[b] - wanted) <= 3e-7))
            fail_msg("bin %zu of %zu tokens: %.12g, not %.12g", b, n, room->lambdas[b], wanted);
    }
    free(tokens);
}

// Two things may happen, of which the neighbours say one and the model the other: in every bin as often as a
// planted weight has it.
static void planted_weights_are_found(void **state) {
    (void)state;
    enum { SIDE = 4, N = 40000 };
    kn_random random = {19};
    field f = field_of(N);
    for (size_t i = 0; i < N; i++) {
        uint32_t t = f.tokens[i];
        double x = kn_random_unit(&random), y = kn_random_unit(&random);
        double planted = 0.05 + 0.05 * floor(SIDE * x) + 0.15 * floor(SIDE * y);
        bool first = kn_random_unit(&random) < (0.9 - planted) * 0.2 + planted * 0.9 + 0.1 * 0.4;
        f.nearest[t] = (float)(100 + 50 * x), f.entropies[t] = (float)(-log(y));
        f.lm[t] = first ? 0.2f : 0.8f, f.knn[t] = first ? 0.9f : 0.1f, f.fixed[t] = first ? 0.04f : 0.06f;
    }
    kn_bin_room room = fitted(&f, SIDE, SIDE);
    assert_true(room.distances == SIDE && room.entropies == SIDE);
    for (size_t i = 1; i < SIDE; i++) {
        assert_true(fabs(room.distance_edges[i - 1] - (100 + 50.0 / SIDE * (double)i)) < 1);
        assert_true(fabs(room.entropy_edges[i - 1] + log(1 - (double)i / SIDE)) < 0.05);
    }
    for (size_t d = 0; d < SIDE; d++)
        for (size_t e = 0; e < SIDE; e++) // entropies fall with y
            assert_true(fabs(room.lambdas[d * SIDE + e] -
                             (0.05 + 0.05 * (double)d + 0.15 * (double)(SIDE - 1 - e))) < 0.06);
    check_lambdas(&f, &room);
    room_free(&room);
    field_free(&f);
}

static field small_field(size_t n) {
    kn_random random = {23};
    field f = field_of(n);
    for (size_t i = 0; i < n; i++) {
        uint32_t t = f.tokens[i];
        f.lm[t] = (float)kn_random_unit(&random), f.knn[t] = (float)kn_random_unit(&random);
        f.fixed[t] = (float)(0.1 * kn_random_unit(&random));
        f.nearest[t] = (float)kn_random_normal(&random), f.entropies[t] = (float)kn_random_normal(&random);
    }
    return f;
}

static void bins_hold_equal_numbers(void **state) {
    (void)state;
    static const size_t counts[] = {2, 7, 16, 100, 101, 999};
    uint32_t tokens[999];
    for (size_t i = 0; i < COUNT(counts); i++)
        for (size_t bins = 1; bins <= 16; bins++) {
            field f = small_field(counts[i]);
            kn_bin_room room = fitted(&f, bins, 1);
            assert_int_equal(room.distances, kn_min(bins, f.n));
            for (size_t b = 0; b < room.distances; b++) {
                size_t n = members(&f, &room, b, tokens);
                assert_true(n == f.n / room.distances || n == f.n / room.distances + 1);
            }
            check_lambdas(&f, &room);
            room_free(&room);
            field_free(&f);
        }
}

static void expect_bins(const field *f, size_t asked, size_t distances, size_t entropies) {
    kn_bin_room room = fitted(f, asked, asked);
    assert_int_equal(room.distances, distances);
    assert_int_equal(room.entropies, entropies);
    check_lambdas(f, &room);
    room_free(&room);
}

static void bins_of_repeated_values(void **state) {
    (void)state;
    field f = small_field(120);
    for (size_t i = 0; i < f.n; i++) f.nearest[f.tokens[i]] = (float)(i % 2), f.entropies[f.tokens[i]] = 3;
    expect_bins(&f, 8, 2, 1);
    for (size_t i = 0; i < f.n; i++) f.nearest[f.tokens[i]] = i < 60 ? 0 : (float)i;
    for (size_t i = 0; i < f.n; i++) f.entropies[f.tokens[i]] = i < 60 ? INFINITY : -(float)i;
    expect_bins(&f, 4, 3, 3);
    expect_bins(&f, 1, 1, 1);
    field_free(&f);
    f = small_field(1);
    expect_bins(&f, 16, 1, 1);
    field_free(&f);
    f = small_field(0);
    kn_bin_room room = fitted(&f, 16, 16);
    assert_true(room.distances == 1 && room.entropies == 1 && fabs(room.lambdas[0] - f.believed) < 1e-12);
    room_free(&room);
    field_free(&f);
}

// ---------------------------------------------------------------- neighbours kept

enum { KEPT = 130, TOKENS = 530, WIDEST = 200 };

typedef struct flock {
    float distances[TOKENS][WIDEST]; // nearest first
    int32_t values[TOKENS][WIDEST], token[TOKENS];
    size_t counts[TOKENS];
} flock;

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static flock *flock_of(uint64_t seed) {
    flock *f = memory(1, sizeof *f);
    kn_random random = {seed};
    for (size_t t = 0; t < TOKENS; t++) {
        kind kind = (enum kind)(t % KINDS);
        f->counts[t] = t % 5 ? kn_random_below(&random, WIDEST + 1) : t % 3; // of one in three: none
        uint64_t vocabulary = t % 4 ? 3 : 100;
        f->token[t] = 1;
        for (size_t i = 0; i < f->counts[t]; i++) {
            f->distances[t][i] = draw(kind, &random);
            f->values[t][i] = (int32_t)kn_random_below(&random, vocabulary);
        }
        qsort(f->distances[t], f->counts[t], sizeof(float), ascending);
    }
    return f;
}

static kn_kept keep(const flock *f) {
    kn_kept kept;
    OK(kn_kept_init(&kept, TOKENS, KEPT));
    for (size_t t = 0; t < TOKENS; t++) {
        kn_neighborhood n = {f->distances[t], f->values[t], NULL, f->counts[t], 0};
        if (!f->counts[t]) n = (kn_neighborhood){0};
        OK(kn_kept_add(&kept, &n, f->token[t]));
        assert_int_equal(kept.n, t + 1);
        assert_int_equal(kept.counts[t], kn_min(KEPT, f->counts[t]));
    }
    return kept;
}

// To 1e-5 of a probability that f32 can hold: the exponents' factor is f32's.
static void check_kept(const flock *f, const float *got, size_t k, double temperature) {
    static long double x[MAX];
    for (size_t t = 0; t < TOKENS; t++) {
        kn_neighborhood n = {f->distances[t], f->values[t], NULL, kn_min(kn_min(k, KEPT), f->counts[t]), 0};
        exponents(&n, temperature, x);
        long double wanted =
            n.count ? expl(log_weight(&n, x, f->token[t], false) - log_weight(&n, x, 0, true)) : 0;
        if (!(fabsl((long double)got[t] - wanted) <= 1e-5L * wanted + 1e-37L))
            fail_msg("token %zu, k %zu of %zu, temperature %g: %.9g, not %.9Lg", t, k, f->counts[t],
                     temperature, (double)got[t], wanted);
    }
}

static void kept_neighbours_give_every_k(void **state) {
    (void)state;
    static const size_t all[] = {1, 2, 4, 8, 16, 32, 64, 128, 130}, odd[] = {3, 63, 65, 127, 129},
                        beyond[] = {0, 1, 1, 64, 128, 131, 100000}, one[] = {77};
    static const struct {
        const size_t *ks;
        size_t count;
    } grids[] = {{all, COUNT(all)}, {odd, COUNT(odd)}, {beyond, COUNT(beyond)}, {one, 1}, {NULL, 0}};
    static const double temperatures[] = {1e-30, 0.37, 1, 25, 1e30};
    flock *f = flock_of(29);
    kn_kept kept = keep(f);
    for (size_t g = 0; g < COUNT(grids); g++)
        for (size_t t = 0; t < COUNT(temperatures); t++) {
            float *p = memory(grids[g].count * TOKENS, sizeof *p);
            OK(kn_kept_probabilities(&kept, &temperatures[t], 1, grids[g].ks, grids[g].count, p));
            for (size_t j = 0; j < grids[g].count; j++)
                check_kept(f, p + j * TOKENS, grids[g].ks[j], temperatures[t]);
            free(p);
        }
    kn_kept_free(&kept);
    free(f);
}

static void kept_neighbours_repeat(void **state) {
    (void)state;
    static const size_t ks[] = {1, 30, 64, 100, KEPT};
    static float p[3][COUNT(ks) * TOKENS];
    flock *f = flock_of(31);
    kn_kept kept = keep(f);
    for (int i = 0; i < 3; i++) {
        OK(kn_threads_set(1 << i));
        OK(kn_kept_probabilities(&kept, &(double){3}, 1, ks, COUNT(ks), p[i]));
    }
    OK(kn_threads_set(2));
    assert_memory_equal(p[1], p[0], sizeof *p);
    assert_memory_equal(p[2], p[0], sizeof *p);
    kn_kept_free(&kept);
    free(f);
}

static void room_for_the_kept(void **state) {
    (void)state;
    const float distances[] = {1, 2, 3};
    const int32_t values[] = {5, 6, 5};
    kn_neighborhood n = {distances, values, NULL, 3, 0};
    kn_kept kept;
    OK(kn_kept_init(&kept, 2, 3));
    OK(kn_kept_probabilities(&kept, &(double){1}, 1, (size_t[]){1}, 1, NULL)); // of no token
    OK(kn_kept_add(&kept, &n, 5));
    OK(kn_kept_add(&kept, &n, 7));
    assert_true(kept.hits[0] == 5 && kept.hits[1] == 0);
    FAILS(KNNLM_EINVAL, "more tokens than room", kn_kept_add(&kept, &n, 5));
    assert_int_equal(kept.n, 2);
    kn_kept_free(&kept);
    kn_kept_free(&kept); // harmless
    OK(kn_kept_init(&kept, 0, 3));
    FAILS(KNNLM_EINVAL, "more tokens than room", kn_kept_add(&kept, &n, 5));
    kn_kept_free(&kept);
    FAILS(KNNLM_ENOMEM, "too many neighbours", kn_kept_init(&kept, SIZE_MAX / 2, 4));
    kn_kept_free(&kept);
    assert_int_equal(kn_kept_bytes(0, 5), 0);
    assert_int_equal(kn_kept_bytes(3, 64), 3 * (64 * 4 + 2 * 8 + 4));
    assert_int_equal(kn_kept_bytes(10, 65), 10 * (65 * 4 + 2 * 16 + 4));
}

// ---------------------------------------------------------------- the cache

enum { ROWS = 620, VOCABULARY = 20 };

static const size_t documents[] = {0, 1, 2, 40, 333, 334, 600};

typedef struct text {
    size_t d;
    float *keys;
    int32_t values[ROWS];
    size_t starts[ROWS];
    long double *distances; // (ROWS, ROWS), of one kind
} text;

static text text_of(size_t d, double scale) {
    text x = {.d = d,
              .keys = memory(ROWS * d, sizeof(float)),
              .distances = memory(ROWS * ROWS, sizeof(long double))};
    kn_random random = {37 + d};
    for (size_t i = 0; i < ROWS * d; i++) x.keys[i] = (float)(scale * (0.3 + kn_random_normal(&random)));
    for (size_t row = 0; row < ROWS; row++) {
        x.values[row] = (int32_t)kn_random_below(&random, VOCABULARY);
        for (size_t i = 0; i < COUNT(documents) && documents[i] <= row; i++) x.starts[row] = documents[i];
    }
    for (size_t j = 0; j < d; j++) x.keys[50 * d + j] = x.keys[45 * d + j]; // the same state
    for (size_t j = 0; j < d; j++) x.keys[60 * d + j] = 0;                  // none at all
    return x;
}

static void text_free(text *x) {
    free(x->keys);
    free(x->distances);
}

static void measure(text *x, knnlm_distance how) {
    for (size_t a = 0; a < ROWS; a++)
        for (size_t b = 0; b < a; b++) {
            long double product = 0, apart = 0, aa = 0, bb = 0;
            for (size_t j = 0; j < x->d; j++) {
                long double u = (long double)x->keys[a * x->d + j], v = (long double)x->keys[b * x->d + j];
                product += u * v, aa += u * u, bb += v * v, apart += (u - v) * (u - v);
            }
            x->distances[a * ROWS + b] = how == KNNLM_DISTANCE_L2   ? apart
                                         : how == KNNLM_DISTANCE_IP ? -product
                                         : aa > 0 && bb > 0         ? 1 - product / sqrtl(aa * bb)
                                                                    : 1;
        }
}

// NAN: the row sees no other.
static long double cached(const text *x, size_t row, size_t size, double temperature) {
    static long double exponents[ROWS], ones[ROWS], hits[ROWS];
    size_t n = 0;
    for (size_t i = x->starts[row]; i < row; i++) {
        if (row - i > size) continue;
        exponents[n] = -x->distances[row * ROWS + i] / (long double)temperature;
        hits[n] = x->values[i] == x->values[row];
        ones[n++] = 1;
    }
    return n ? log_sum(exponents, hits, n) - log_sum(exponents, ones, n) : NAN;
}

enum { TEMPERATURES = 3 };

static double *scored(const text *x, knnlm_distance how, size_t size, size_t first, size_t count,
                      const double *temperatures) {
    kn_cache cache = {x->keys, x->values, x->starts, x->d, size, how};
    double *out = memory(TEMPERATURES * count, sizeof *out);
    OK(kn_cache_score(&cache, first, count, temperatures, TEMPERATURES, out));
    return out;
}

static void check_cache(const text *x, knnlm_distance how, size_t size, size_t first, size_t count,
                        const double *temperatures) {
    double *got = scored(x, how, size, first, count, temperatures);
    for (size_t t = 0; t < TEMPERATURES; t++)
        for (size_t i = 0; i < count; i++) {
            long double wanted = cached(x, first + i, size, temperatures[t]);
            double p = got[t * count + i];
            if (isnan(wanted) ? !isnan(p) : isinf(wanted) ? p != -INFINITY : !(fabsl(p - wanted) <= 1e-4L))
                fail_msg("distance %d, size %zu, row %zu of [%zu, + %zu), temperature %g: %.9g, not %.9Lg",
                         how, size, first + i, first, count, temperatures[t], p, wanted);
        }
    free(got);
}

static void check_text(text *x, const double temperatures[3][TEMPERATURES]) {
    static const size_t sizes[] = {0, 1, 90, 100000};
    for (int how = KNNLM_DISTANCE_L2; how <= KNNLM_DISTANCE_COSINE; how++) {
        measure(x, (knnlm_distance)how);
        for (size_t i = 0; i < COUNT(sizes); i++) {
            check_cache(x, (knnlm_distance)how, sizes[i], 0, ROWS, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 310, 40, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 30, 257, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], ROWS - 1, 1, temperatures[how]);
            check_cache(x, (knnlm_distance)how, sizes[i], 100, 0, temperatures[how]);
        }
    }
}

static void the_cache_sees_its_rows(void **state) {
    (void)state;
    static const double temperatures[][TEMPERATURES] = {{1, 8, 300}, {1, 4, 1e4}, {0.005, 0.3, 5}};
    text x = text_of(24, 1);
    check_text(&x, temperatures);
    text_free(&x);
    x = text_of(67, 0.2);
    check_text(&x, temperatures);
    text_free(&x);
}

// A cosine is of directions: how long the states are does not matter.
static void cosines_of_all_sizes(void **state) {
    (void)state;
    static const double scales[] = {1e-15, 1e-7, 1e7, 1e15}, temperatures[TEMPERATURES] = {0.005, 0.3, 5};
    for (size_t i = 0; i < COUNT(scales); i++) {
        text x = text_of(16, scales[i]);
        measure(&x, KNNLM_DISTANCE_COSINE);
        check_cache(&x, KNNLM_DISTANCE_COSINE, 290, 280, 80, temperatures);
        text_free(&x);
    }
}

static void the_cache_repeats(void **state) {
    (void)state;
    static const double temperatures[TEMPERATURES] = {1, 8, 300};
    text x = text_of(40, 1);
    double *got[3];
    for (int i = 0; i < 3; i++) {
        OK(kn_threads_set(1 << i));
        got[i] = scored(&x, KNNLM_DISTANCE_L2, 200, 10, ROWS - 10, temperatures);
    }
    OK(kn_threads_set(2));
    for (int i = 1; i < 3; i++)
        assert_memory_equal(got[i], got[0], TEMPERATURES * (ROWS - 10) * sizeof *got[0]);
    for (int i = 0; i < 3; i++) free(got[i]);
    text_free(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_of_all_kinds),
        cmocka_unit_test(neighbours_by_hand),
        cmocka_unit_test(weights_are_copies),
        cmocka_unit_test(mixing_at_the_ends),
        cmocka_unit_test(mixing_of_many),
        cmocka_unit_test(bins_have_their_edges),
        cmocka_unit_test(weights_fade),
        cmocka_unit_test(two_parts_as_golden_sections),
        cmocka_unit_test(three_parts_as_a_grid),
        cmocka_unit_test(weights_at_the_border),
        cmocka_unit_test(few_tokens_and_parts),
        cmocka_unit_test(weights_of_all_kinds),
        cmocka_unit_test(weights_repeat),
        cmocka_unit_test(means_of_logarithms),
        cmocka_unit_test(one_weight),
        cmocka_unit_test(one_weight_at_the_ends),
        cmocka_unit_test(planted_weights_are_found),
        cmocka_unit_test(bins_hold_equal_numbers),
        cmocka_unit_test(bins_of_repeated_values),
        cmocka_unit_test(kept_neighbours_give_every_k),
        cmocka_unit_test(kept_neighbours_repeat),
        cmocka_unit_test(room_for_the_kept),
        cmocka_unit_test(the_cache_sees_its_rows),
        cmocka_unit_test(cosines_of_all_sizes),
        cmocka_unit_test(the_cache_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
