// Texts scored together: to the bit what each has alone, what an evaluation gives, and what one context after
// another would; and the ranks are those of the whole distribution.
#include "expect.h"

#include "build/build.h"
#include "eval/pass.h"
#include "eval/score_batch.h"
#include "knn/next.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A context of 48 tokens, so that texts have several windows.
#define MODEL KN_SOURCE_DIR "/tests/golden/shared.model.gguf"

enum { TEXTS = 5, TOP = 4, TEMPERATURES = 3 };
static const double temperatures[TEMPERATURES] = {0.5, 3, 40};

typedef struct fixture {
    char folder[64];
    kn_lm *lm;
    kn_mixture *whole, *views[TEXTS]; // settings of their own for each text
    kn_tokens texts[TEXTS];
} fixture;

static void fill_text(fixture *d, size_t number, size_t length) {
    char text[1200];
    for (size_t i = 0; i < length; i++)
        text[i] = "the nearest of a context, and then "[(i * (number + 3)) % 35];
    OK(kn_tokenizer_encode(kn_lm_tokenizer(d->lm), text, length, &d->texts[number]));
}

enum { DOCUMENTS = 3 };

static void build_store(fixture *d, const char *path) {
    static const char *const documents[DOCUMENTS] = {
        "the nearest contexts are those of a text that the model has read; ", "and then another, ",
        "and then the nearest of them all, of a context and of the text."};
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    char files[DOCUMENTS][100];
    const char *paths[DOCUMENTS];
    for (size_t i = 0; i < DOCUMENTS; i++) {
        snprintf(files[i], sizeof files[i], "%s/text%zu", d->folder, i);
        paths[i] = files[i];
        FILE *f = fopen(files[i], "w");
        assert_non_null(f);
        fputs(documents[i], f);
        fclose(f);
    }
    OK(kn_build(d->lm, path, paths, DOCUMENTS, &o, NULL, &r));
}

static kn_mixture *view(const kn_mixture *of, kn_view_options o) {
    kn_mixture *m;
    OK(kn_mixture_view(&of, 1, &o, &m));
    return m;
}

static int fixture_open(void **state) {
    fixture *d = calloc(1, sizeof *d);
    char path[100];
    test_folder(d->folder, sizeof d->folder);
    snprintf(path, sizeof path, "%s/s.store", d->folder);
    OK(kn_lm_open(MODEL, &(kn_lm_options){.precision = KNNLM_PRECISION_F32}, &d->lm));
    build_store(d, path);
    kn_store_choice choice = {.path = path, .weight = NAN, .temperature = NAN};
    kn_mixture_options o = {.stores = &choice,
                            .store_count = 1,
                            .lambda = 0.4,
                            .temperature = 5,
                            .distance = -1,
                            .cache_lambda = NAN,
                            .cache_temperature = NAN};
    OK(kn_mixture_open(d->lm, &o, &d->whole));
    d->views[0] =
        view(d->whole, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = -1});
    d->views[1] =
        view(d->whole, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 7, .fallback = -1});
    OK(kn_mixture_open(d->lm, &(kn_mixture_options){.distance = -1}, &d->views[2]));
    d->views[3] = view(d->whole, (kn_view_options){.lambda = 0.9, .temperature = 2, .k = 0, .fallback = -1});
    d->views[4] = view(d->whole, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = 1});
    static const size_t lengths[TEXTS] = {1, 30, 200, 400, 1000};
    for (size_t i = 0; i < TEXTS; i++) fill_text(d, i, lengths[i]);
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    char command[100];
    for (size_t i = 0; i < TEXTS; i++) kn_tokens_free(&d->texts[i]);
    for (size_t i = 0; i < TEXTS; i++) kn_mixture_close(d->views[i]);
    kn_mixture_close(d->whole);
    kn_lm_close(d->lm);
    snprintf(command, sizeof command, "rm -rf '%s'", d->folder);
    assert_int_equal(system(command), 0);
    free(d);
    return 0;
}

static kn_score_text ask(const fixture *d, size_t i) {
    size_t n = d->texts[i].count;
    return (kn_score_text){.tokens = d->texts[i].ids,
                           .count = n,
                           .mixture = d->views[i],
                           .results = calloc(n, sizeof(kn_score_result)),
                           .top = TOP,
                           .ranked = calloc((n + 1) * TOP, sizeof(int32_t)),
                           .ranked_p = calloc((n + 1) * TOP, sizeof(double)),
                           .own_p = calloc(n, sizeof(double)),
                           .knn_at = calloc(n * TEMPERATURES, sizeof(double)),
                           .temperatures = temperatures,
                           .temperature_count = TEMPERATURES,
                           .by_document = true,
                           .next_mixture = i % 2 ? d->views[i] : NULL};
}

static void asked_free(kn_score_text *a) {
    free(a->results);
    free(a->ranked);
    free(a->ranked_p);
    free(a->own_p);
    free(a->knn_at);
    free(a->documents);
}

static void assert_same(const kn_score_text *a, const kn_score_text *b) {
    size_t n = a->count;
    assert_memory_equal(a->results, b->results, n * sizeof *a->results);
    assert_memory_equal(a->ranked, b->ranked, n * TOP * sizeof *a->ranked);
    assert_memory_equal(a->ranked_p, b->ranked_p, n * TOP * sizeof *a->ranked_p);
    assert_memory_equal(a->own_p, b->own_p, n * sizeof *a->own_p);
    assert_memory_equal(a->knn_at, b->knn_at, n * TEMPERATURES * sizeof *a->knn_at);
    assert_int_equal(a->next, b->next);
    assert_int_equal(a->document_count, b->document_count);
    for (size_t i = 0; i < a->document_count; i++) {
        assert_int_equal(a->documents[i].document, b->documents[i].document);
        assert_int_equal(a->documents[i].entry, b->documents[i].entry);
        assert_true(a->documents[i].gain == b->documents[i].gain);
    }
    assert_memory_equal(&a->next_verdict, &b->next_verdict, sizeof a->next_verdict);
}

static void together_is_as_alone(void **state) {
    const fixture *d = *state;
    kn_score_text all[TEXTS];
    for (size_t i = 0; i < TEXTS; i++) all[i] = ask(d, i);
    OK(kn_score_batch(d->lm, all, TEXTS, NULL, NULL));
    for (size_t i = 0; i < TEXTS; i++) {
        kn_score_text one = ask(d, i);
        OK(kn_score_batch(d->lm, &one, 1, NULL, NULL));
        assert_same(&all[i], &one);
        asked_free(&one);
        asked_free(&all[i]);
    }
}

typedef struct evaluated {
    const kn_mixture *m;
    const kn_score_text *a;
    size_t seen;
} evaluated;

static knnlm_status compare(void *context, const kn_scored *b) {
    evaluated *e = context;
    for (size_t i = 0; i < b->count; i++) {
        const kn_score_result *v = &e->a->results[b->tokens[i].position];
        assert_true(v->p == b->predictions[i].p);
        assert_true(v->lm == (double)b->lm[i]);
        assert_true(v->lambda == kn_prediction_lambda(e->m, &b->predictions[i]));
        e->seen++;
    }
    return KNNLM_OK;
}

static void as_an_evaluation(void **state) {
    const fixture *d = *state;
    for (size_t i = 0; i < TEXTS; i++) {
        kn_score_text a = ask(d, i);
        kn_pass_options o = {.read = {.context = -1}, .entropies = true};
        evaluated e = {d->views[i], &a, 0};
        OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
        OK(kn_pass_tokens(d->lm, d->views[i], a.tokens, a.count, &o, compare, &e));
        assert_int_equal(e.seen, a.count);
        asked_free(&a);
    }
}

// The whole distribution, sorted by hand.
static void check_ranks(const kn_distribution *g, const int32_t *ranked, const double *p) {
    for (size_t i = 0; i < TOP; i++) {
        assert_true(fabs(p[i] - kn_distribution_logprob(g, ranked[i])) < 2e-5);
        for (size_t j = 0; j < i; j++) assert_int_not_equal(ranked[i], ranked[j]);
        size_t better = 0;
        for (size_t t = 0; t < g->vocabulary; t++)
            better += kn_distribution_logprob(g, (int32_t)t) > p[i] + 2e-5;
        assert_true(better <= i);
    }
}

// In the first window the model sees all that came before, as it does when asked for one context.
static void as_one_context_after_another(void **state) {
    const fixture *d = *state;
    for (size_t i = 0; i < TEXTS; i++) {
        kn_score_text a = ask(d, i);
        OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
        for (size_t at = 0; at < kn_min(a.count, 24); at++) {
            kn_nexts *nexts;
            OK(kn_nexts_open(d->lm, &(kn_context){a.tokens, at, d->views[i]}, 1, &nexts));
            const kn_next *next = kn_nexts_at(nexts, 0);
            double own = kn_distribution_logprob(&next->distribution, a.tokens[at]);
            assert_true(fabs(own - a.own_p[at]) < 2e-5 && fabs(own - a.results[at].p) < 2e-5);
            check_ranks(&next->distribution, a.ranked + at * TOP, a.ranked_p + at * TOP);
            for (size_t j = 0; j < TOP; j++)
                if (a.ranked[at * TOP + j] == a.tokens[at])
                    assert_true(a.ranked_p[at * TOP + j] == a.own_p[at]);
            kn_nexts_close(nexts);
        }
        asked_free(&a);
    }
}

static void what_comes_next(void **state) {
    const fixture *d = *state;
    kn_score_text a = ask(d, 1);
    kn_nexts *nexts;
    int32_t best;
    OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
    OK(kn_nexts_open(d->lm, &(kn_context){a.tokens, a.count, d->views[1]}, 1, &nexts));
    const kn_next *next = kn_nexts_at(nexts, 0);
    assert_int_equal(kn_distribution_top(&next->distribution, 1, &best), 1);
    assert_int_equal(a.next, best);
    assert_true(fabs(a.next_verdict.p - kn_distribution_logprob(&next->distribution, best)) < 2e-5);
    assert_int_equal(a.ranked[a.count * TOP], best);
    check_ranks(&next->distribution, a.ranked + a.count * TOP, a.ranked_p + a.count * TOP);
    kn_nexts_close(nexts);
    asked_free(&a);
}

static void other_temperatures(void **state) {
    const fixture *d = *state;
    kn_score_text a = ask(d, 1);
    OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
    for (size_t t = 0; t < TEMPERATURES; t++) {
        kn_mixture *m =
            view(d->views[1],
                 (kn_view_options){.lambda = NAN, .temperature = temperatures[t], .k = 0, .fallback = -1});
        kn_score_text b = ask(d, 1);
        b.mixture = m;
        OK(kn_score_batch(d->lm, &b, 1, NULL, NULL));
        for (size_t i = 0; i < a.count; i++) assert_true(a.knn_at[i * TEMPERATURES + t] == b.results[i].knn);
        kn_mixture_close(m);
        asked_free(&b);
    }
    asked_free(&a);
}

// What documents gained is all that was gained. p_kNN is a sum of up to 1024 exponentials in f32, of which
// the shares are in double: as many roundings of 2^-24.
static void gains_add_up(void **state) {
    const fixture *d = *state;
    for (size_t i = 0; i < TEXTS; i++) {
        kn_score_text a = ask(d, i);
        double all = 0, sum = 0, size = 0;
        OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
        for (size_t t = 0; t < a.count; t++) all += a.results[t].p - a.results[t].lm;
        for (size_t n = 0; n < a.document_count; n++) {
            kn_store_entry entry;
            sum += a.documents[n].gain;
            size += fabs(a.documents[n].gain);
            if (n) assert_true(fabs(a.documents[n].gain) <= fabs(a.documents[n - 1].gain));
            OK(kn_datastore_entry(kn_mixture_datastore(a.mixture, 0), a.documents[n].entry, &entry));
            assert_int_equal(entry.document, a.documents[n].document);
        }
        assert_true(i == 2 ? a.document_count == 0 : a.document_count == DOCUMENTS);
        assert_true(fabs(all - sum) <= 1024 * 0x1p-24 * (size + 1));
        asked_free(&a);
    }
}

// By the formula, one context after another: p and p_LM of the token, and what each neighbour had of them.
static void gains_are_the_neighbours(void **state) {
    const fixture *d = *state;
    kn_score_text a = ask(d, 1);
    double expected[DOCUMENTS] = {0};
    OK(kn_score_batch(d->lm, &a, 1, NULL, NULL));
    for (size_t at = 0; at < a.count; at++) {
        kn_nexts *nexts;
        OK(kn_nexts_open(d->lm, &(kn_context){a.tokens, at, d->views[1]}, 1, &nexts));
        const kn_next *next = kn_nexts_at(nexts, 0);
        const kn_neighborhood *near = &next->found[0].near;
        double lm = exp((double)next->distribution.lm[a.tokens[at]]);
        double p = exp(kn_distribution_logprob(&next->distribution, a.tokens[at]));
        double mean = p == lm ? p : (p - lm) / (log(p) - log(lm)), all = 0;
        for (size_t n = 0; n < near->count; n++) all += exp(-(double)near->distances[n] / 5);
        for (size_t n = 0; n < near->count; n++) {
            kn_store_entry entry;
            OK(kn_datastore_entry(kn_mixture_datastore(a.mixture, 0), next->found[0].ids[n], &entry));
            double share = exp(-(double)near->distances[n] / 5) / all;
            double had = near->values[n] == a.tokens[at] ? 1 : 0;
            expected[entry.document] += 0.4 * share * (had - lm) / mean;
        }
        kn_nexts_close(nexts);
    }
    for (size_t n = 0; n < a.document_count; n++)
        assert_true(fabs(a.documents[n].gain - expected[a.documents[n].document]) < 1e-3);
    asked_free(&a);
}

static bool never(void *context) {
    ++*(int *)context;
    return false;
}

static void stopped_and_refused(void **state) {
    const fixture *d = *state;
    kn_score_text many[40];
    int times = 0;
    for (size_t i = 0; i < 40; i++) many[i] = ask(d, 4);
    assert_int_equal(kn_score_batch(d->lm, many, 40, never, &times), KNNLM_ESTOPPED);
    assert_int_equal(times, 1);
    for (size_t i = 0; i < 40; i++) asked_free(&many[i]);
    OK(kn_score_batch(d->lm, NULL, 0, never, &times));
    int32_t bad = kn_lm_describe(d->lm)->vocabulary;
    kn_score_text a = ask(d, 0);
    a.tokens = &bad;
    a.count = 1;
    assert_int_equal(kn_score_batch(d->lm, &a, 1, NULL, NULL), KNNLM_EINVAL);
    asked_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_is_as_alone),         cmocka_unit_test(as_an_evaluation),
        cmocka_unit_test(as_one_context_after_another), cmocka_unit_test(what_comes_next),
        cmocka_unit_test(other_temperatures),           cmocka_unit_test(gains_add_up),
        cmocka_unit_test(gains_are_the_neighbours),     cmocka_unit_test(stopped_and_refused),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
