// From neighbours to probabilities, shares and entropies, also of neighbours that were kept: against the
// formulas of the headers, written here as plain loops in long double.
#include "mix_kit.h"

#include "base/random.h"
#include "base/threads.h"
#include "mix/mix.h"
#include "mix/tune.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    double *shares = test_alloc(n->count, sizeof *shares);
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
    kn_value_share *scratch = test_alloc(2 * n->count, sizeof *scratch);
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
    float *distances = test_alloc(count, sizeof *distances), *weights = test_alloc(count, sizeof *weights);
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
    flock *f = test_alloc(1, sizeof *f);
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
            float *p = test_alloc(grids[g].count * TOKENS, sizeof *p);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_of_all_kinds), cmocka_unit_test(neighbours_by_hand),
        cmocka_unit_test(weights_are_copies),      cmocka_unit_test(kept_neighbours_give_every_k),
        cmocka_unit_test(kept_neighbours_repeat),  cmocka_unit_test(room_for_the_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
