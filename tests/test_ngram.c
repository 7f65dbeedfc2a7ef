// n-gram models: distributions that sum to 1 after every context, seen or not; small ones worked out by hand;
// against counts by brute force; whatever the threads.
#include "expect.h"

#include "base/random.h"
#include "base/threads.h"
#include "mix/ngram.h"

#include <math.h>

enum { S = KN_NGRAM_START };

static kn_ngram *learn(const int32_t *tokens, size_t count, int order, int32_t vocabulary) {
    kn_ngram *m;
    OK(kn_ngram_learn(tokens, count, order, vocabulary, NULL, &m));
    return m;
}

// Documents of words that like to follow each other, one of them empty.
static size_t write_text(int32_t *out, size_t max, int32_t vocabulary) {
    kn_random random = {11};
    size_t n = 0;
    int32_t last = 0;
    out[n++] = S;
    out[n++] = S;
    while (n < max) {
        bool ends = kn_random_below(&random, 40) == 0;
        last = (int32_t)((kn_random_below(&random, 3) ? (uint64_t)last * 5 + 1
                                                      : kn_random_below(&random, 1000)) %
                         (uint64_t)(vocabulary - 2)); // two are never seen
        out[n++] = ends ? S : last;
    }
    return n;
}

static double near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want)))) fail_msg("%.17g, not %.17g", got, want);
    return got;
}

// ---------------------------------------------------------------- by hand

// "a b a c", bigrams: a follows the start, b, and nothing else; b and c follow a. Single tokens are counted
// by the tokens before them: a 2, b 1, c 1. So small a text has the fallback discounts: .5, 1, 1.5.
static void test_by_hand(void **state) {
    const int32_t text[] = {S, 0, 1, 0, 2}, after_a[] = {0}, after_start[] = {S}, unseen[] = {3};
    kn_ngram *m = learn(text, COUNT(text), 2, 5);
    (void)state;
    double left = (1 + 0.5 + 0.5) / 4; // of single tokens
    double a = (2 - 1) / 4.0 + left / 5, b = (1 - 0.5) / 4 + left / 5, d = left / 5;
    near(exp(kn_ngram_logprob(m, NULL, 0, 0)), a);
    near(exp(kn_ngram_logprob(m, NULL, 0, 1)), b);
    near(exp(kn_ngram_logprob(m, NULL, 0, 4)), d);
    near(exp(kn_ngram_logprob(m, unseen, 1, 1)), b);
    near(exp(kn_ngram_logprob(m, after_a, 1, 1)), (1 - 0.5) / 2 + (0.5 + 0.5) / 2 * b);
    near(exp(kn_ngram_logprob(m, after_a, 1, 4)), (0.5 + 0.5) / 2 * d);
    near(exp(kn_ngram_logprob(m, after_start, 1, 0)), 0.5 + 0.5 * a);
    const kn_ngram_info *info = kn_ngram_describe(m);
    assert_true(info->tokens == 4 && info->grams[0] == 4 && info->grams[1] == 4 && info->order == 2);
    kn_ngram_close(m);
}

// Single tokens seen 1, 2, 3, 4 times (8, 4, 2 and 1 of them): discounts by their formula.
static void test_discounts(void **state) {
    int32_t text[64] = {S}, word = 0;
    size_t n = 1;
    const int times[] = {8, 4, 2, 1};
    (void)state;
    for (int count = 1; count <= 4; count++)
        for (int i = 0; i < times[count - 1]; i++, word++)
            for (int j = 0; j < count; j++) text[n++] = word;
    kn_ngram *m = learn(text, n, 1, 20);
    const double *d = kn_ngram_describe(m)->discounts[0], y = 8 / (8 + 2 * 4.0);
    near(d[0], 1 - 2 * y * 4 / 8);
    near(d[1], 2 - 3 * y * 2 / 4);
    near(d[2], 3 - 4 * y * 1 / 2);
    near(exp(kn_ngram_logprob(m, NULL, 0, 0)),
         (1 - d[0]) / 26 + (8 * d[0] + 4 * d[1] + 3 * d[2]) / 26 / 20); // 8 + 8 + 6 + 4 = 26
    kn_ngram_close(m);
}

// ---------------------------------------------------------------- sums

enum { TEXT = 6000, VOCABULARY = 60 };

static void test_sums(void **state) {
    int32_t *text = test_alloc(TEXT, sizeof *text);
    size_t n = write_text(text, TEXT, VOCABULARY);
    kn_random random = {5};
    (void)state;
    for (int order = 1; order <= KN_NGRAM_ORDER_MAX; order++) {
        kn_ngram *m = learn(text, n, order, VOCABULARY);
        for (int i = 0; i < 300; i++) {
            int32_t context[KN_NGRAM_ORDER_MAX];
            size_t known = kn_random_below(&random, KN_NGRAM_ORDER_MAX),
                   at = kn_random_below(&random, n - 8) + 2;
            for (size_t j = 0; j < known; j++) context[j] = text[at + j];
            for (size_t j = 1; j < known; j++) // a start stands first alone
                if (context[j] == S) context[j] = 0;
            if (known && i % 3 == 0)
                context[kn_random_below(&random, known)] = (int32_t)kn_random_below(&random, 60);
            double sum = 0;
            for (int32_t w = 0; w < VOCABULARY; w++) sum += exp(kn_ngram_logprob(m, context, known, w));
            near(sum, 1);
        }
        kn_ngram_close(m);
    }
    free(text);
}

// ---------------------------------------------------------------- brute force

// How often an n-gram stands in the text.
static uint32_t occurs(const int32_t *text, size_t count, const int32_t *gram, size_t n) {
    uint32_t found = 0;
    for (size_t i = 0; i + n <= count; i++) {
        bool same = true;
        for (size_t j = 0; j < n && same; j++) same = text[i + j] == gram[j];
        found += same;
    }
    return found;
}

// What the smoothing counts: places of the longest n-grams and of those after a start, else tokens before it.
static uint32_t counted(const int32_t *text, size_t count, const int32_t *gram, size_t n, int order) {
    if (n == (size_t)order || gram[0] == S) return occurs(text, count, gram, n);
    int32_t longer[KN_NGRAM_ORDER_MAX + 1];
    uint32_t kinds = 0;
    memcpy(longer + 1, gram, n * sizeof *gram);
    for (longer[0] = S; longer[0] < 8; longer[0]++) kinds += occurs(text, count, longer, n + 1) > 0;
    return kinds;
}

static double define(const int32_t *text, size_t count, const kn_ngram_info *info, const int32_t *context,
                     size_t known, int32_t token) {
    double p = 1.0 / 8;
    for (size_t n = 1; n <= known + 1 && n <= (size_t)info->order; n++) {
        int32_t gram[KN_NGRAM_ORDER_MAX];
        double total = 0, left = 0, own = 0;
        memcpy(gram, context + known + 1 - n, (n - 1) * sizeof *gram);
        for (gram[n - 1] = 0; gram[n - 1] < 8; gram[n - 1]++) {
            uint32_t c = counted(text, count, gram, n, info->order);
            double d = c ? info->discounts[n - 1][c > 3 ? 2 : c - 1] : 0;
            total += c;
            left += d;
            if (gram[n - 1] == token) own = c - d;
        }
        if (total == 0) break;
        p = own / total + left / total * p;
    }
    return p;
}

static void test_brute_force(void **state) {
    int32_t text[400];
    size_t n = write_text(text, COUNT(text), 8);
    (void)state;
    for (int order = 1; order <= KN_NGRAM_ORDER_MAX; order++) {
        kn_ngram *m = learn(text, n, order, 8);
        const kn_ngram_info *info = kn_ngram_describe(m);
        for (size_t i = 2; i < n; i += 5) {
            size_t known = 0;
            if (text[i] == S) continue;
            while (known < (size_t)order && known < i && text[i - known] != S) known++;
            for (int32_t w = 0; w < 8; w++)
                near(exp(kn_ngram_logprob(m, text + i - known, known, w)),
                     define(text, n, info, text + i - known, known, w));
        }
        kn_ngram_close(m);
    }
}

// ---------------------------------------------------------------- threads, and what is wrong

static void test_threads(void **state) {
    int32_t *text = test_alloc(TEXT, sizeof *text);
    size_t n = write_text(text, TEXT, VOCABULARY);
    kn_ngram *models[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        OK(kn_threads_set(i ? 4 : 1));
        models[i] = learn(text, n, 4, VOCABULARY);
    }
    OK(kn_threads_set(0));
    assert_memory_equal(kn_ngram_describe(models[0]), kn_ngram_describe(models[1]), sizeof(kn_ngram_info));
    for (size_t i = 5; i < n; i++)
        if (text[i] != S)
            assert_true(kn_ngram_logprob(models[0], text + i - 3, 3, text[i]) ==
                        kn_ngram_logprob(models[1], text + i - 3, 3, text[i]));
    for (int i = 0; i < 2; i++) kn_ngram_close(models[i]);
    free(text);
}

static bool stop(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    (void)context, (void)phase, (void)done, (void)total, (void)unit;
    return false;
}

static void test_refused(void **state) {
    const int32_t text[] = {S, 0, 1}, wrong[] = {S, 0, 7}, empty[] = {S, S}, bare[] = {0, 1};
    kn_ngram *m;
    (void)state;
    FAILS(KNNLM_EINVAL, "order 6", kn_ngram_learn(text, 3, 6, 5, NULL, &m));
    FAILS(KNNLM_EINVAL, "order 0", kn_ngram_learn(text, 3, 0, 5, NULL, &m));
    FAILS(KNNLM_EINVAL, "token 2 is 7", kn_ngram_learn(wrong, 3, 3, 5, NULL, &m));
    FAILS(KNNLM_EINVAL, "no tokens", kn_ngram_learn(empty, 2, 3, 5, NULL, &m));
    FAILS(KNNLM_EINVAL, "no tokens", kn_ngram_learn(empty, 0, 3, 5, NULL, &m));
    FAILS(KNNLM_EINVAL, "no start", kn_ngram_learn(bare, 2, 3, 5, NULL, &m));
    FAILS(KNNLM_ESTOPPED, "stopped", kn_ngram_learn(text, 3, 3, 5, &(kn_progress){stop, NULL}, &m));
    assert_null(m);
    kn_ngram_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),     cmocka_unit_test(test_discounts), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_threads),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
