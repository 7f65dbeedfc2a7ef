// Texts that grow, by the public header: greedy words are the most probable ones, numbers those of the whole
// distribution, and passages those of the text that a store remembers.
#include "remembered.h"

#include <math.h>

static knnlm_mixture *open_mixture(fixture *d) {
    knnlm_mixture_options o = knnlm_mixture_options_default();
    const char *stores[] = {d->store};
    knnlm_mixture *m;
    o.stores = stores;
    o.store_count = 1;
    o.lambda = 0.9;
    o.temperature = 1;
    OK(knnlm_mixture_open(d->model, &o, &m));
    return m;
}

static int32_t most_probable(fixture *d, knnlm_mixture *m, const int32_t *tokens, size_t count) {
    double *p = calloc((size_t)d->info.vocabulary, sizeof *p);
    int32_t best = 0;
    OK(knnlm_mixture_next(m, tokens, count, p, NULL, NULL, NULL));
    for (int32_t i = 1; i < d->info.vocabulary; i++)
        if (p[i] > p[best]) best = i;
    free(p);
    return best;
}

// Greedy words are the most probable ones, one after another, and what was remembered tells where it is from.
static void a_text_grows_and_tells_its_sources(void **state) {
    fixture *d = *state;
    knnlm_mixture *m = open_mixture(d);
    knnlm_text_options o = knnlm_text_options_default();
    knnlm_finish finish = KNNLM_FINISH_NOT;
    knnlm_text *text;
    int32_t *all, prompt_size = 0;
    size_t count, size;
    OK(knnlm_model_encode(d->model, remembered, (size_t)(strstr(remembered, " context, and") - remembered),
                          &all, &count));
    prompt_size = (int32_t)count;
    o.temperature = 0;
    o.tokens = 8;
    o.keep_lambda = true;
    o.no_carry = true;
    OK(knnlm_text_open(m, all, count, &o, &text));
    while (finish == KNNLM_FINISH_NOT) OK(knnlm_text_step(text, &finish));
    assert_int_equal(finish, KNNLM_FINISH_LENGTH);
    assert_int_equal(knnlm_text_tokens(text), 8);
    assert_int_equal(knnlm_text_step(text, &finish), KNNLM_EINVAL);
    all = realloc(all, (count + 8) * sizeof *all);
    for (size_t i = 0; i < 8; i++) {
        knnlm_text_token t;
        OK(knnlm_text_token_at(text, i, &t));
        assert_int_equal(t.token, most_probable(d, m, all, (size_t)prompt_size + i));
        all[(size_t)prompt_size + i] = t.token;
    }
    assert_string_equal(knnlm_text_read(text, &size), " context, and the word that followed it");
    assert_int_equal(size, strlen(" context, and the word that followed it"));
    assert_int_equal(knnlm_text_sources(text), 1);
    knnlm_text_source s;
    OK(knnlm_text_source_at(text, 1, &s));
    assert_string_equal(s.text, " context, and the word that followed it");
    assert_true(s.footnote == 1 && s.first == 0 && s.tokens == 8 && s.length == 8 && s.differ == 0);
    assert_int_equal(s.begins, s.before_size == s.offset);
    assert_string_equal(s.document, "text.txt"); // below the folder it was named in
    assert_string_equal(s.store, d->store);
    assert_int_equal(s.document_size, strlen("text.txt"));
    assert_true(strlen(s.text) == s.text_size && strlen(s.before) == s.before_size &&
                strlen(s.after) == s.after_size);
    assert_ptr_equal(strstr(remembered, s.text), remembered + s.offset);
    assert_memory_equal(remembered + s.offset - s.before_size, s.before, s.before_size);
    assert_memory_equal(remembered + s.offset + s.text_size, s.after, s.after_size);
    assert_true(s.share > 0 && s.share <= 1);
    assert_int_equal(knnlm_text_source_at(text, 0, &s), KNNLM_EINVAL);
    assert_int_equal(knnlm_text_token_at(text, 8, &(knnlm_text_token){0}), KNNLM_EINVAL);
    knnlm_text_close(text);
    knnlm_text_close(NULL);
    o.temperature = -1;
    assert_int_equal(knnlm_text_open(m, all, count, &o, &text), KNNLM_EINVAL);
    assert_null(text);
    all[0] = d->info.vocabulary;
    assert_int_equal(knnlm_text_open(m, all, count, NULL, &text), KNNLM_EINVAL);
    free(all);
    knnlm_mixture_close(m);
}

// ---------------------------------------------------------------- numbers, and how it ends

// Steps until it ends.
static knnlm_text *grow(knnlm_mixture *m, const int32_t *prompt, size_t count, const knnlm_text_options *o) {
    knnlm_finish finish = KNNLM_FINISH_NOT;
    knnlm_text *text;
    OK(knnlm_text_open(m, prompt, count, o, &text));
    while (finish == KNNLM_FINISH_NOT) OK(knnlm_text_step(text, &finish));
    return text;
}

// The numbers of a token that comes after others, by the whole distribution there.
static void check_token(const knnlm_model *model, knnlm_mixture *m, const int32_t *before, size_t count,
                        const knnlm_text_token *t) {
    knnlm_model_info info;
    knnlm_next next;
    knnlm_model_describe(model, &info);
    double *p = test_alloc(3 * (size_t)info.vocabulary, sizeof *p), *lm = p + info.vocabulary,
           *knn = lm + info.vocabulary;
    OK(knnlm_mixture_next(m, before, count, p, lm, knn, &next));
    assert_true(fabs(t->p - log(p[t->token])) < 1e-4 && fabs(t->lm - log(lm[t->token])) < 1e-4);
    assert_true(fabs(t->lambda - next.lambda) < 1e-9 && fabs(t->entropy - next.entropy) < 1e-3);
    assert_true(isnan(next.nearest) ? isnan(t->nearest) : fabs(t->nearest - next.nearest) < 1e-2);
    assert_true(isnan(next.nearest) ? isnan(t->knn) : fabs(exp(t->knn) - knn[t->token]) < 1e-4);
    free(p);
}

static void numbers_are_of_what_comes_next(void **state) {
    fixture *d = *state;
    knnlm_mixture *m = open_mixture(d);
    knnlm_text_options o = knnlm_text_options_default();
    knnlm_text_info info;
    size_t before = d->count, size;
    o.tokens = 6;
    o.seed = 5;
    o.ignore_end = true;
    o.keep_lambda = o.no_carry = true; // lambda as of a text that is read
    o.sources = false;
    knnlm_text *text = grow(m, d->tokens, d->count, &o);
    int32_t *all = test_alloc(d->count + 6, sizeof *all);
    memcpy(all, d->tokens, d->count * sizeof *all);
    knnlm_text_read(text, &size);
    for (size_t i = 0, at = 0; i < 6; i++) {
        knnlm_text_token t;
        OK(knnlm_text_token_at(text, i, &t));
        check_token(d->model, m, all, before, &t);
        assert_int_equal(t.offset, at);
        assert_int_equal(t.source, 0); // nobody asked
        at += t.size;
        if (i == 5) assert_int_equal(at, size);
        all[before++] = t.token;
    }
    assert_int_equal(knnlm_text_sources(text), 0);
    knnlm_text_describe(text, &info);
    assert_true(info.finish == KNNLM_FINISH_LENGTH && info.generated == 6 && !info.cut);
    assert_true(info.seconds_lm > 0 && info.seconds_search > 0 && info.seconds_rest > 0);
    knnlm_text_close(text);
    knnlm_mixture_close(m);
    free(all);
}

// log p of the last tokens, times the penalty: the greatest wins.
static void recent_tokens_become_rarer(void **state) {
    enum { LENGTH = 12, LAST = 3 };
    fixture *d = *state;
    size_t v = (size_t)d->info.vocabulary, count = d->count;
    knnlm_text_options o = knnlm_text_options_default();
    double *p = test_alloc(v, sizeof *p);
    int32_t *all = test_alloc(count + LENGTH, sizeof *all);
    knnlm_mixture *m;
    memcpy(all, d->tokens, count * sizeof *all);
    OK(knnlm_mixture_open(d->model, NULL, &m));
    o.tokens = LENGTH;
    o.temperature = 0;
    o.repeat_penalty = 3;
    o.repeat_last = LAST;
    knnlm_text *text = grow(m, all, count, &o);
    for (size_t i = 0; i < LENGTH; i++, count++) {
        knnlm_text_token t;
        int32_t best = 0;
        OK(knnlm_mixture_next(m, all, count, p, NULL, NULL, NULL));
        for (size_t j = 0; j < v; j++) p[j] = log(p[j]);
        for (size_t j = count - LAST; j < count; j++) {
            bool again = false;
            for (size_t k = j + 1; k < count; k++) again |= all[k] == all[j];
            if (!again) p[all[j]] *= 3;
        }
        for (size_t j = 1; j < v; j++)
            if (p[j] > p[best]) best = (int32_t)j;
        OK(knnlm_text_token_at(text, i, &t));
        assert_int_equal(t.token, best);
        all[count] = t.token;
    }
    knnlm_text_close(text);
    knnlm_mixture_close(m);
    free(all);
    free(p);
}

// The text of the model alone; the caller frees it.
static char *text_by(knnlm_mixture *m, const fixture *d, double temperature, double dry) {
    knnlm_text_options o = knnlm_text_options_default();
    size_t size;
    o.tokens = 100;
    o.seed = 1;
    o.ignore_end = true;
    o.temperature = temperature;
    if (dry >= 0) o.dry_multiplier = dry;
    knnlm_text *text = grow(m, d->tokens, d->count, &o);
    char *copy = strdup(knnlm_text_read(text, &size));
    knnlm_text_close(text);
    return copy;
}

// DRY is on by default where words are drawn, and off where the most probable ones are taken.
static void drawn_texts_do_not_repeat_themselves(void **state) {
    fixture *d = *state;
    knnlm_mixture *m;
    OK(knnlm_mixture_open(d->model, NULL, &m));
    for (int drawn = 0; drawn < 2; drawn++) {
        char *texts[] = {text_by(m, d, 0.05 * drawn, -1), text_by(m, d, 0.05 * drawn, 0),
                         text_by(m, d, 0.05 * drawn, 0.8)};
        assert_int_equal(strcmp(texts[0], texts[1]) == 0, !drawn);
        assert_int_equal(strcmp(texts[0], texts[2]) == 0, drawn);
        for (int i = 0; i < 3; i++) free(texts[i]);
    }
    knnlm_mixture_close(m);
}

// A token that ends a text is no part of it, but has its numbers; a context that is too short forgets.
static void the_end_is_a_token(void **state) {
    knnlm_text_options o = knnlm_text_options_default();
    knnlm_model *model;
    knnlm_mixture *m;
    knnlm_text_info info;
    knnlm_text_token end, t;
    int32_t all[301] = {3};
    (void)state;
    knnlm_model_options how = knnlm_model_options_default();
    how.precision = KNNLM_PRECISION_F32;
    OK(knnlm_model_open(KN_SOURCE_DIR "/tests/golden/gpt2.model.gguf", &how, &model));
    OK(knnlm_mixture_open(model, NULL, &m));
    o.tokens = 300;
    o.temperature = 2;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    o.seed = 2;
    knnlm_text *text = grow(m, all, 1, &o);
    knnlm_text_describe(text, &info);
    assert_int_equal(info.finish, KNNLM_FINISH_STOP);
    assert_true(knnlm_text_end(text, &end));
    size_t count = knnlm_text_tokens(text);
    assert_true(count < 40 && info.generated == count && !info.cut);
    for (size_t i = 0; i < count; i++) {
        OK(knnlm_text_token_at(text, i, &t));
        assert_int_not_equal(t.token, end.token);
        all[1 + i] = t.token;
    }
    check_token(model, m, all, 1 + count, &end);
    assert_true(end.size == 0 && end.source == 0);
    knnlm_text_close(text);

    o.ignore_end = true;
    text = grow(m, all, 1, &o);
    knnlm_text_describe(text, &info);
    assert_true(info.finish == KNNLM_FINISH_LENGTH && info.generated == 300 && info.cut);
    assert_false(knnlm_text_end(text, &end));
    knnlm_text_close(text);
    knnlm_mixture_close(m);
    knnlm_model_close(model);
}

static void no_text_is_begun(void **state) {
    fixture *d = *state;
    const char *empty = "";
    knnlm_mixture *m = open_mixture(d);
    knnlm_text_options o = knnlm_text_options_default();
    knnlm_text *text;
    knnlm_text_info info;
    knnlm_finish finish;
    o.stops = &empty;
    o.stop_count = 1;
    FAILS(KNNLM_EINVAL, "empty", knnlm_text_open(m, NULL, 0, &o, &text));
    o = knnlm_text_options_default();
    o.repeat_penalty = NAN;
    FAILS(KNNLM_EINVAL, "repeat_penalty", knnlm_text_open(m, NULL, 0, &o, &text));
    o = knnlm_text_options_default();
    o.dry_multiplier = -2;
    FAILS(KNNLM_EINVAL, "dry_multiplier", knnlm_text_open(m, NULL, 0, &o, &text));
    o = knnlm_text_options_default();
    o.tokens = 0; // nothing is asked for: it has ended
    OK(knnlm_text_open(m, NULL, 0, &o, &text));
    knnlm_text_describe(text, &info);
    assert_true(info.finish == KNNLM_FINISH_LENGTH && info.generated == 0);
    assert_int_equal(knnlm_text_step(text, &finish), KNNLM_EINVAL);
    knnlm_text_close(text);
    knnlm_mixture_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_text_grows_and_tells_its_sources), TEST(numbers_are_of_what_comes_next),
        TEST(recent_tokens_become_rarer),         TEST(drawn_texts_do_not_repeat_themselves),
        cmocka_unit_test(the_end_is_a_token),     TEST(no_text_is_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
