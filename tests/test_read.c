// Reading: every token once, in order, after the right tokens; and the public scores, which are the same
// numbers.
#include "golden_model.h"

#include "base/file.h"
#include "base/threads.h"
#include "eval/eval.h"
#include "knnlm.h"

#include <unistd.h>

// ---------------------------------------------------------------- a model and some documents

typedef struct fixture {
    kn_lm *lm;
    char model[GOLDEN_PATH], folder[64];
    char paths[3][96];
    const char *names[3];
    kn_tokens tokens[3]; // of each document
} fixture;

// The second document is longer than the model's context, the third than what is gathered before the model
// runs.
static const size_t lengths[3] = {3, 200, 9000};

static void write_document(fixture *d, size_t document) {
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    kn_file_writer *w;
    size_t size;
    char *text;
    snprintf(d->paths[document], sizeof d->paths[document], "%s/%zu.txt", d->folder, document);
    d->names[document] = d->paths[document];
    OK(kn_file_writer_open(d->paths[document], &w));
    for (size_t i = 0; i < lengths[document]; i++) {
        const char *word =
            kn_tokenizer_piece(t, (int32_t)(2 + (i * i + document) % (size_t)(kn_tokenizer_size(t) - 2)));
        OK(kn_file_writer_put(w, word, strlen(word)));
        OK(kn_file_writer_put(w, i % 7 == 6 ? "\n" : " ", 1));
    }
    OK(kn_file_writer_commit(w));
    OK(kn_file_read(d->paths[document], &text, &size));
    d->tokens[document].with_offsets = true;
    OK(kn_tokenizer_encode(t, text, size, &d->tokens[document]));
    free(text);
}

static int fixture_open(void **state) {
    fixture *d = test_alloc(1, sizeof *d);
    snprintf(d->model, sizeof d->model, "%s/tests/golden/adaptive.model.gguf", KN_SOURCE_DIR);
    test_folder(d->folder, sizeof d->folder);
    OK(kn_threads_set(2));
    OK(kn_lm_open(d->model, &(kn_lm_options){.precision = KNNLM_PRECISION_F32}, &d->lm));
    for (size_t i = 0; i < 3; i++) write_document(d, i);
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    for (size_t i = 0; i < 3; i++) {
        unlink(d->paths[i]);
        kn_tokens_free(&d->tokens[i]);
    }
    rmdir(d->folder);
    kn_lm_close(d->lm);
    free(d);
    return 0;
}

// ---------------------------------------------------------------- what came, and what should have

typedef struct listening {
    fixture *d;
    size_t document, position, width;
    float *logprobs[3], *keys[3], *entropies[3];
} listening;

// Checks that the records follow each other without a gap, and keeps their numbers.
static knnlm_status listen(void *context, const kn_records *r) {
    listening *l = context;
    while (l->document < 2 && l->position == l->d->tokens[l->document].count) {
        l->document++;
        l->position = 0;
    }
    const kn_tokens *want = &l->d->tokens[l->document];
    assert_int_equal(r->document, l->document);
    assert_string_equal(r->name, strrchr(l->d->names[l->document], '/') + 1); // below the folder
    assert_int_equal(r->position, l->position);
    assert_in_range(r->count, 1, want->count - l->position);
    assert_memory_equal(r->tokens, want->ids + l->position, r->count * sizeof *r->tokens);
    assert_memory_equal(r->offsets, want->offsets + l->position, r->count * sizeof *r->offsets);
    memcpy(l->logprobs[l->document] + l->position, r->logprobs, r->count * sizeof(float));
    memcpy(l->entropies[l->document] + l->position, r->entropies, r->count * sizeof(float));
    memcpy(l->keys[l->document] + l->position * l->width, r->keys, r->count * l->width * sizeof(float));
    l->position += r->count;
    return KNNLM_OK;
}

static listening read_all(fixture *d, int32_t score, int32_t context) {
    listening l = {.d = d, .width = (size_t)kn_lm_describe(d->lm)->key_width};
    kn_read_options o = {.score = score,
                         .context = context,
                         .tap = KN_TAP_DEFAULT,
                         .logprobs = true,
                         .entropies = true,
                         .keys = true};
    kn_read_totals totals;
    size_t all = 0;
    for (size_t i = 0; i < 3; i++) {
        size_t n = d->tokens[i].count;
        l.logprobs[i] = test_alloc(n, sizeof(float));
        l.entropies[i] = test_alloc(n, sizeof(float));
        l.keys[i] = test_alloc(n * l.width, sizeof(float));
        all += n;
    }
    OK(kn_read_texts(d->lm, d->names, 3, &o, NULL, NULL, listen, &l, &totals));
    assert_int_equal(l.document, 2);
    assert_int_equal(l.position, d->tokens[2].count);
    assert_int_equal(totals.documents, 3);
    assert_int_equal(totals.tokens, all);
    return l;
}

static void listening_free(listening *l) {
    for (size_t i = 0; i < 3; i++) {
        free(l->logprobs[i]);
        free(l->entropies[i]);
        free(l->keys[i]);
    }
}

// Token `at` of a document by itself: the window that the header promises, cut by hand.
static void score_one(fixture *d, size_t document, size_t at, size_t score, size_t context, float *logprob,
                      float *entropy, float *key) {
    const kn_tokens *t = &d->tokens[document];
    size_t first = at / score * score, before = kn_min(first, context), n = before + at - first + 1;
    int32_t *inputs = test_alloc(n, sizeof *inputs), *targets = test_alloc(n, sizeof *targets);
    for (size_t i = 0; i < n; i++) {
        size_t target = first - before + i;
        targets[i] = t->ids[target];
        inputs[i] = target ? t->ids[target - 1] : kn_tokenizer_start(kn_lm_tokenizer(d->lm));
    }
    kn_window w = {.inputs = inputs, .targets = targets, .length = (int32_t)n, .first = (int32_t)n - 1};
    kn_lm_output out = {.logprobs = logprob, .entropies = entropy, .keys = key};
    OK(kn_lm_run(d->lm, &w, 1, KN_TAP_DEFAULT, &out));
    free(inputs);
    free(targets);
}

static void compare(fixture *d, const listening *l, size_t score, size_t context) {
    float logprob, entropy, *key = test_alloc(l->width, sizeof *key);
    for (size_t document = 0; document < 3; document++) {
        size_t n = d->tokens[document].count;
        for (size_t at = 0; at < n; at += at < 90 || at + 20 > n ? 1 : 211) {
            score_one(d, document, at, score, context, &logprob, &entropy, key);
            assert_close("log-probability", &l->logprobs[document][at], &logprob, 1, 1e-4);
            assert_close("entropy", &l->entropies[document][at], &entropy, 1, 1e-4);
            assert_close("key", l->keys[document] + at * l->width, key, l->width, 1e-4);
        }
    }
    free(key);
}

// ---------------------------------------------------------------- tests

static void every_token_once(void **state) {
    static const int32_t cases[][2] = {{0, -1}, {40, 40}, {80, 0}, {1, 9}, {7, 3}, {80, -1}};
    fixture *d = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_read_options o = {.score = cases[i][0], .context = cases[i][1]};
        listening l = read_all(d, cases[i][0], cases[i][1]);
        OK(kn_read_resolve(d->lm, &o));
        compare(d, &l, (size_t)o.score, (size_t)o.context);
        listening_free(&l);
    }
}

static void bad_windows(void **state) {
    static const int32_t cases[][2] = {{81, 0}, {81, -1}, {80, 1}, {-1, -1}, {1, 80}, {40, INT32_MAX}};
    fixture *d = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_read_options o = {.score = cases[i][0], .context = cases[i][1]};
        assert_int_equal(kn_read_resolve(d->lm, &o), KNNLM_EINVAL);
    }
}

static knnlm_status refuse(void *context, const kn_records *r) {
    (void)r;
    ++*(int *)context;
    return kn_fail(KNNLM_EIO, "enough");
}

static void sink_ends_the_reading(void **state) {
    fixture *d = *state;
    kn_read_options o = {.context = -1, .logprobs = true, .tap = KN_TAP_DEFAULT};
    kn_read_totals totals;
    int calls = 0;
    assert_int_equal(kn_read_texts(d->lm, d->names, 3, &o, NULL, NULL, refuse, &calls, &totals), KNNLM_EIO);
    assert_int_equal(calls, 1);
    assert_string_equal(knnlm_message(), "enough");
}

static bool stop_at_once(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)unit;
    assert_in_range(done, 1, total);
    ++*(int *)context;
    return false;
}

static knnlm_status ignore(void *context, const kn_records *r) {
    (void)context;
    (void)r;
    return KNNLM_OK;
}

static void progress_stops_the_reading(void **state) {
    fixture *d = *state;
    int calls = 0;
    kn_read_options o = {.context = -1, .logprobs = true, .tap = KN_TAP_DEFAULT};
    kn_read_totals totals;
    kn_progress progress = {stop_at_once, &calls};
    assert_int_equal(kn_read_texts(d->lm, d->names, 3, &o, &progress, NULL, ignore, NULL, &totals),
                     KNNLM_ESTOPPED);
    assert_int_equal(calls, 1);
}

// The sum over the documents that the public header scores one by one is that of eval over their files.
static void public_scores(void **state) {
    fixture *d = *state;
    knnlm_model_options options = {.size = sizeof options, .precision = KNNLM_PRECISION_F32};
    knnlm_score_options how = {.size = sizeof how, .score = 24, .context = 30};
    kn_eval_options o = {.read = {.score = 24, .context = 30, .tap = KN_TAP_DEFAULT}};
    kn_eval_result result;
    knnlm_model *model;
    double nll = 0;
    OK(knnlm_model_open(d->model, &options, &model));
    for (size_t i = 0; i < 3; i++) {
        size_t n = d->tokens[i].count;
        float *logprobs = test_alloc(n, sizeof *logprobs);
        OK(knnlm_model_score(model, d->tokens[i].ids, n, &how, logprobs));
        for (size_t j = 0; j < n; j++) nll -= (double)logprobs[j];
        free(logprobs);
    }
    OK(kn_eval_run(d->lm, d->names, 3, &o, NULL, &result));
    assert_true(fabs(nll - result.mixed.nll) < 1e-6 * nll);
    assert_true(fabs(result.mixed.ppl - exp(nll / (double)result.totals.read.tokens)) <
                1e-6 * result.mixed.ppl);
    knnlm_model_close(model);
}

static void public_edges(void **state) {
    fixture *d = *state;
    knnlm_model *model;
    int32_t *tokens = NULL, bad = 97, one = 5;
    size_t count = 7;
    float logprob, alone, key[64];
    OK(knnlm_model_open(
        d->model,
        &(knnlm_model_options){.size = sizeof(knnlm_model_options), .precision = KNNLM_PRECISION_F32},
        &model));
    OK(knnlm_model_encode(model, "", 0, &tokens, &count));
    assert_int_equal(count, 0);
    OK(knnlm_model_score(model, tokens, 0, NULL, NULL)); // no text is no mistake
    knnlm_free(tokens);
    assert_int_equal(knnlm_model_score(model, &bad, 1, NULL, &logprob), KNNLM_EINVAL);
    OK(knnlm_model_score(model, &one, 1, NULL, &logprob));
    int32_t start = kn_tokenizer_start(kn_lm_tokenizer(d->lm));
    kn_window w = {.inputs = &start, .targets = &one, .length = 1};
    kn_lm_output out = {.logprobs = &alone, .keys = key};
    OK(kn_lm_run(d->lm, &w, 1, KN_TAP_DEFAULT, &out));
    assert_close("a single token", &logprob, &alone, 1, 1e-6);
    knnlm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_once),      cmocka_unit_test(bad_windows),
        cmocka_unit_test(sink_ends_the_reading), cmocka_unit_test(progress_stops_the_reading),
        cmocka_unit_test(public_scores),         cmocka_unit_test(public_edges),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
