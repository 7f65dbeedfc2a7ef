// Drawing tokens: frequencies and the sets that settings leave, against the plainest way to reckon them.
#include "expect.h"

#include "generate/sampler.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = 1000, VALUES = 60, DRAWS = 4000 };

// ---------------------------------------------------------------- a distribution

typedef struct fixture {
    kn_distribution guess;
    kn_sampler *sampler;
    float lm[TOKENS];
    double knn[TOKENS];
    int32_t values[VALUES];
} fixture;

// The sharper, the fewer tokens have most of it.
static void fill(fixture *d, double lambda, double sharpness, uint64_t seed) {
    kn_random random = {seed};
    double sum = 0, shares = 0;
    memset(d->knn, 0, sizeof d->knn);
    for (size_t i = 0; i < TOKENS; i++) {
        d->lm[i] = (float)(sharpness * kn_random_normal(&random));
        sum += exp((double)d->lm[i]);
    }
    for (size_t i = 0; i < TOKENS; i++) d->lm[i] -= (float)log(sum);
    for (size_t i = 0; i < VALUES; i++) {
        int32_t value = (int32_t)(i * TOKENS / VALUES);
        d->values[i] = value;
        shares += d->knn[value] = exp(2 * kn_random_normal(&random));
    }
    for (size_t i = 0; i < VALUES; i++) d->knn[d->values[i]] /= shares;
    d->guess = (kn_distribution){.vocabulary = TOKENS,
                                 .lm = d->lm,
                                 .knn = d->knn,
                                 .values = d->values,
                                 .value_count = lambda > 0 ? VALUES : 0,
                                 .lambda = lambda,
                                 .stores = 1};
    if (lambda == 0) memset(d->knn, 0, sizeof d->knn);
}

static int fixture_open(void **state) {
    fixture *d = calloc(1, sizeof *d);
    OK(kn_sampler_open(TOKENS, &d->sampler));
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    kn_sampler_close(d->sampler);
    free(d);
    return 0;
}

// ---------------------------------------------------------------- the plainest way

typedef struct plain {
    double p;
    int32_t token;
} plain;

static int by_p(const void *a, const void *b) {
    const plain *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->token - y->token;
}

static double log_p_of(const fixture *d, const kn_sampling *how, const kn_sampled *before, int32_t token) {
    const kn_distribution *g = &d->guess;
    double log_p = log(g->lambda * g->knn[token] + (1 - g->lambda) * exp((double)g->lm[token]));
    double times = 0;
    bool recent = false;
    for (size_t i = 0; i < before->count; i++) {
        if (before->tokens[i] != token) continue;
        recent |= before->count - i <= how->repeat_last;
        times += i >= before->prompt;
    }
    if (recent) log_p *= how->repeat_penalty;
    for (size_t i = 0; before->rarer && i < before->rarer->count; i++)
        if (before->rarer->tokens[i] == token) log_p += before->rarer->logs[i];
    for (size_t i = 0; i < before->bias_count; i++)
        if (before->biases[i].token == token) log_p += before->biases[i].bias;
    return log_p - how->frequency_penalty * times - how->presence_penalty * (times > 0);
}

// Probabilities of drawing, by token, and how many are above 0.
static size_t expect(const fixture *d, const kn_sampling *how, const kn_sampled *before, double *out) {
    plain all[TOKENS];
    double max = -INFINITY, sum = 0, seen = 0, kept_sum = 0;
    for (int32_t t = 0; t < TOKENS; t++) max = fmax(max, log_p_of(d, how, before, t));
    for (int32_t t = 0; t < TOKENS; t++)
        all[t] = (plain){exp((log_p_of(d, how, before, t) - max) / how->temperature), t};
    qsort(all, TOKENS, sizeof *all, by_p);
    size_t kept = 0, limit = how->top_k ? kn_min((size_t)how->top_k, TOKENS) : TOKENS;
    for (size_t i = 0; i < limit; i++) sum += all[i].p;
    while (kept < limit && (how->top_p >= 1 || seen < how->top_p * sum || kept == 0)) seen += all[kept++].p;
    while (kept > 1 && all[kept - 1].p < how->min_p * all[0].p) kept--;
    while (kept > 1 && all[kept - 1].p <= 0) kept--;
    for (size_t i = 0; i < kept; i++) kept_sum += all[i].p;
    memset(out, 0, TOKENS * sizeof *out);
    for (size_t i = 0; i < kept; i++) out[all[i].token] = all[i].p / kept_sum;
    return kept;
}

// ---------------------------------------------------------------- both

static const int32_t history[] = {1, 17, 500, 500, 33, 999, 17, 0, 16, 33, 33, 50};
enum { HISTORY = sizeof history / sizeof *history, PROMPT = 3 };

static void draw_many(fixture *d, const kn_sampling *how, const kn_sampled *before, size_t *counts) {
    kn_random random = {7};
    memset(counts, 0, TOKENS * sizeof *counts);
    for (size_t i = 0; i < DRAWS; i++) {
        int32_t token = kn_sampler_pick(d->sampler, &d->guess, how, before, &random);
        assert_in_range(token, 0, TOKENS - 1);
        counts[token]++;
    }
}

// Chi-square over the tokens that are expected often enough, the others together; none that must not come.
// The limit is five standard deviations above the mean.
static void check_frequencies(fixture *d, const kn_sampling *how) {
    static double p[TOKENS];
    static size_t counts[TOKENS];
    kn_rarer rarer = {.tokens = {history[0], TOKENS - 1, 3}, .logs = {-2, -0.5, -50}, .count = 3};
    const kn_logit_bias biases[] = {{history[0], 3}, {5, 2.5}, {400, -100}, {5, 0.5}};
    kn_sampled before = {.tokens = history,
                         .prompt = PROMPT,
                         .count = HISTORY,
                         .rarer = how->top_k % 2 ? &rarer : NULL,
                         .biases = biases,
                         .bias_count = how->top_k % 3 ? 4 : 0};
    double chi = 0, cells = 0, rest = 0, rest_seen = 0;
    expect(d, how, &before, p);
    draw_many(d, how, &before, counts);
    for (size_t t = 0; t < TOKENS; t++) {
        double expected = p[t] * DRAWS, seen = (double)counts[t];
        if (p[t] == 0 && counts[t]) fail_msg("token %zu is drawn %zu times, and must not be", t, counts[t]);
        if (expected < 8) {
            rest += expected;
            rest_seen += seen;
            continue;
        }
        chi += (seen - expected) * (seen - expected) / expected;
        cells++;
    }
    if (rest > 8) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        cells++;
    }
    if (chi > cells + 5 * sqrt(2 * cells) + 5) fail_msg("chi-square %g of %g cells", chi, cells);
}

static const kn_sampling everything = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last = 64};

static void frequencies_are_those_of_the_distribution(void **state) {
    fixture *d = *state;
    static const double temperatures[] = {1, 0.5, 0.05, 3}, lambdas[] = {0, 0.25, 0.9, 1};
    for (size_t i = 0; i < 4; i++) {
        kn_sampling how = everything;
        how.temperature = temperatures[i];
        for (size_t j = 0; j < 4; j++) {
            fill(d, lambdas[j], 2, 10 * i + j);
            check_frequencies(d, &how);
        }
    }
}

static void filters_compose(void **state) {
    fixture *d = *state;
    static const int32_t top_ks[] = {0, 1, 5, 100, 5000};
    static const double top_ps[] = {1, 0.9, 0.3, 0}, min_ps[] = {0, 0.05, 0.5, 1};
    for (size_t i = 0; i < 5 * 4 * 4; i++) {
        kn_sampling how = everything;
        how.top_k = top_ks[i % 5];
        how.top_p = top_ps[i / 5 % 4];
        how.min_p = min_ps[i / 20];
        how.temperature = i % 2 ? 1 : 0.7;
        fill(d, i % 3 ? 0.4 : 0, 2.5, i);
        check_frequencies(d, &how);
    }
}

// Of sets that are small enough to be drawn to the last token.
static void sets_are_exact(void **state) {
    fixture *d = *state;
    static const kn_sampling hows[] = {
        {.temperature = 5, .top_k = 7, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 5, .top_p = 0.02, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .min_p = 0.3, .repeat_penalty = 1},
        {.temperature = 2, .top_k = 30, .top_p = 0.4, .min_p = 0.2, .repeat_penalty = 1},
    };
    static double p[TOKENS];
    static size_t counts[TOKENS];
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        kn_sampled before = {0};
        size_t drawn = 0;
        fill(d, 0.3, 2, 100 + i);
        size_t kept = expect(d, &hows[i], &before, p);
        draw_many(d, &hows[i], &before, counts);
        for (size_t t = 0; t < TOKENS; t++) drawn += counts[t] > 0;
        assert_in_range(kept, 2, 40);
        assert_int_equal(drawn, kept);
    }
}

static void penalties_are_on_what_came_before(void **state) {
    fixture *d = *state;
    static const kn_sampling hows[] = {
        {.temperature = 1, .top_p = 1, .repeat_penalty = 1.3, .repeat_last = 64},
        {.temperature = 1, .top_p = 1, .repeat_penalty = 0.7, .repeat_last = 4},
        {.temperature = 0.6, .top_k = 50, .top_p = 1, .repeat_penalty = 1, .presence_penalty = 1.5},
        {.temperature = 1, .top_p = 0.9, .repeat_penalty = 1, .frequency_penalty = -1.5},
        {.temperature = 1, .top_p = 1, .repeat_penalty = 1.1, .repeat_last = 5, .presence_penalty = -2},
    };
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        for (int j = 0; j < 2; j++) {
            fill(d, j ? 0.5 : 0, 1, 200 + i);
            check_frequencies(d, &hows[i]);
        }
}

static void temperature_0_takes_the_most_probable(void **state) {
    fixture *d = *state;
    kn_random random = {1};
    for (uint64_t i = 0; i < 40; i++) {
        kn_sampling how = {.top_k = 3, .top_p = 0.5, .repeat_penalty = 1, .repeat_last = 64};
        const kn_logit_bias biases[] = {{(int32_t)(17 * i), 4}, {33, -3}};
        kn_sampled before = {.tokens = history, .prompt = PROMPT, .count = HISTORY, .biases = biases};
        int32_t best = 0;
        before.bias_count = i % 3;
        if (i % 2) how.presence_penalty = 3;
        if (i % 4 > 1) how.repeat_penalty = 2;
        fill(d, i % 5 ? 0.3 : 0, 0.3, i);
        for (int32_t t = 1; t < TOKENS; t++)
            if (log_p_of(d, &how, &before, t) > log_p_of(d, &how, &before, best)) best = t;
        assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &how, &before, &random), best);
    }
}

// Of two that are equal the lower; a penalty so large that nothing else is left of it counts.
static void ties_and_extremes(void **state) {
    fixture *d = *state;
    kn_random random = {1};
    kn_sampled before = {0};
    kn_sampling how = {.top_p = 1, .repeat_penalty = 1};
    for (size_t i = 0; i < TOKENS; i++) d->lm[i] = -1000;
    d->lm[70] = d->lm[700] = (float)log(0.5);
    d->guess = (kn_distribution){.vocabulary = TOKENS, .lm = d->lm, .knn = d->knn, .values = d->values};
    memset(d->knn, 0, sizeof d->knn);
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &how, &before, &random), 70);
    how.temperature = 1;
    how.top_k = 1;
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &how, &before, &random), 70);
    how.top_k = 0;
    how.presence_penalty = 100;
    before = (kn_sampled){.tokens = (int32_t[]){70}, .count = 1};
    for (int i = 0; i < 100; i++)
        assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &how, &before, &random), 700);
    how.temperature = 1e-300;
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &how, &before, &random), 700);
}

static void numbers_that_are_none_give_no_token(void **state) {
    fixture *d = *state;
    kn_random random = {1};
    kn_sampled before = {0};
    kn_sampling greedy = {.top_p = 1, .repeat_penalty = 1}, drawn = kn_sampling_default();
    for (size_t i = 0; i < TOKENS; i++) d->lm[i] = NAN;
    d->guess = (kn_distribution){.vocabulary = TOKENS, .lm = d->lm, .knn = d->knn, .values = d->values};
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &greedy, &before, &random), -1);
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &drawn, &before, &random), -1);
    drawn = everything;
    assert_int_equal(kn_sampler_pick(d->sampler, &d->guess, &drawn, &before, &random), -1);
}

// The same numbers give the same tokens, whatever was drawn in between; each takes one number.
static void seeds_decide(void **state) {
    fixture *d = *state;
    kn_sampled before = {0};
    kn_random a = {5}, b = {5}, count = {5}, other = {6};
    size_t differ = 0;
    fill(d, 0.3, 1, 5);
    for (int i = 0; i < 200; i++) {
        kn_sampling how = i % 2 ? kn_sampling_default() : everything;
        int32_t first = kn_sampler_pick(d->sampler, &d->guess, &how, &before, &a);
        differ += first != kn_sampler_pick(d->sampler, &d->guess, &how, &before, &other);
        assert_int_equal(first, kn_sampler_pick(d->sampler, &d->guess, &how, &before, &b));
        kn_random_next(&count);
        assert_int_equal(a.state, count.state);
    }
    assert_true(differ > 20);
}

// The longest run that ends here and before another of these tokens, tried from the longest on.
static double plain_dry(const int32_t *tokens, size_t count, int32_t token, const kn_sampling *how) {
    for (size_t run = count; run >= how->dry_allowed_length; run--)
        for (size_t at = run; at < count; at++)
            if (tokens[at] == token &&
                memcmp(tokens + at - run, tokens + count - run, run * sizeof *tokens) == 0)
                return -fmin(100, how->dry_multiplier *
                                      pow(how->dry_base, (double)(run - how->dry_allowed_length)));
    return 0;
}

// Of texts of few words, which say much again.
static void repeats_are_penalised(void **state) {
    (void)state;
    size_t some = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        kn_random random = {seed};
        int32_t tokens[50];
        size_t count = kn_random_below(&random, 51), words = 1 + kn_random_below(&random, 6), found = 0;
        kn_sampling how = {.dry_multiplier = 0.1 + kn_random_unit(&random),
                           .dry_base = 1 + kn_random_unit(&random),
                           .dry_allowed_length = 1 + kn_random_below(&random, 4)};
        kn_rarer rarer;
        for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)kn_random_below(&random, words);
        kn_dry_find(tokens, count, &how, &rarer);
        for (int32_t t = 0; t < (int32_t)words; t++) {
            double expected = plain_dry(tokens, count, t, &how), log = 0;
            for (size_t i = 0; i < rarer.count; i++)
                if (rarer.tokens[i] == t) log = rarer.logs[i];
            assert_true(log == expected);
            found += expected < 0;
        }
        assert_int_equal(rarer.count, found);
        some += found;
        how.dry_multiplier = 0;
        kn_dry_find(tokens, count, &how, &rarer);
        assert_int_equal(rarer.count, 0);
    }
    assert_true(some > 100);
}

static void settings_that_make_no_sense(void **state) {
    (void)state;
    kn_sampling s = kn_sampling_default();
    OK(kn_sampling_check(&s));
#define WRONG(member, value)                                                                                 \
    do {                                                                                                     \
        kn_sampling wrong = s;                                                                               \
        wrong.member = value;                                                                                \
        FAILS(KNNLM_EINVAL, #member, kn_sampling_check(&wrong));                                             \
    } while (0)
    WRONG(temperature, -1);
    WRONG(temperature, NAN);
    WRONG(temperature, INFINITY);
    WRONG(top_k, -1);
    WRONG(top_p, 1.01);
    WRONG(top_p, -0.1);
    WRONG(min_p, NAN);
    WRONG(min_p, 2);
    WRONG(repeat_penalty, 0);
    WRONG(repeat_penalty, INFINITY);
    WRONG(dry_multiplier, -1);
    WRONG(dry_multiplier, NAN);
    s.dry_multiplier = 1;
    WRONG(dry_base, 0.5);
    WRONG(dry_base, NAN);
    WRONG(dry_allowed_length, 0);
    WRONG(presence_penalty, NAN);
    WRONG(frequency_penalty, 1e308);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_those_of_the_distribution),
        cmocka_unit_test(filters_compose),
        cmocka_unit_test(sets_are_exact),
        cmocka_unit_test(penalties_are_on_what_came_before),
        cmocka_unit_test(temperature_0_takes_the_most_probable),
        cmocka_unit_test(ties_and_extremes),
        cmocka_unit_test(numbers_that_are_none_give_no_token),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(repeats_are_penalised),
        cmocka_unit_test(settings_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
