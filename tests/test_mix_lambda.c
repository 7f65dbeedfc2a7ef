// The neighbours' weight, lambda: by bins of distance and entropy, faded, and the one that makes a text most
// probable, of all tokens or bin by bin; against golden sections and the formulas of the headers.
#include "mix_kit.h"

#include "base/random.h"
#include "mix/mix.h"
#include "mix/tune.h"

#include <math.h>
#include <stdlib.h>

// ---------------------------------------------------------------- bins and fading

// Bins as the header says: how many edges are at most x.
static size_t edges_below(const double *edges, size_t bins, double x) {
    size_t count = 0;
    for (size_t e = 0; e + 1 < bins; e++) count += edges[e] <= x;
    return count;
}

static void check_bins(size_t distances, size_t entropies) {
    double *de = test_alloc(distances - 1, sizeof *de), *ee = test_alloc(entropies - 1, sizeof *ee);
    double *lambdas = test_alloc(distances * entropies, sizeof *lambdas), tries[160] = {NAN};
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
    for (size_t i = 0; i < COUNT(all); i++) *all[i] = test_alloc(2 * n, sizeof(float));
    f.tokens = test_alloc(n, sizeof *f.tokens);
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
    kn_bin_room room = {distances, entropies, test_alloc(distances - 1, sizeof(double)),
                        test_alloc(entropies - 1, sizeof(double)),
                        test_alloc(distances * entropies, sizeof(double))};
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
    uint32_t *tokens = test_alloc(f->n, sizeof *tokens);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_have_their_edges),
        cmocka_unit_test(weights_fade),
        cmocka_unit_test(one_weight),
        cmocka_unit_test(one_weight_at_the_ends),
        cmocka_unit_test(planted_weights_are_found),
        cmocka_unit_test(bins_hold_equal_numbers),
        cmocka_unit_test(bins_of_repeated_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
