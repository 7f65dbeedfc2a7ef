// Training that begins from a model file: what it begins with is what the file holds, a run that stops goes
// on as that run and no other, and reading and tokenizing stop when they are asked to.
#include "golden_model.h"

#include "base/file.h"
#include "folder.h"
#include "train/checkpoint.h"

#include <unistd.h>

enum { LENGTH = 8, TOKENS = 200 };

// ---------------------------------------------------------------- runs

typedef struct stage {
    golden g;
    kn_start start;
    int32_t tokens[TOKENS];
    kn_corpus corpus;
    knnlm_train_report first, last;
    int64_t stop_after, asked;
    int reports;
} stage;

static void stage_open(stage *s, const char *name) {
    *s = (stage){0};
    golden_open(&s->g, name);
    OK(kn_start_open(s->g.path, NULL, &s->start));
    for (int i = 0; i < TOKENS; i++) s->tokens[i] = (int32_t)((i * i + 3 * i) % s->g.config.vocabulary);
    s->corpus = (kn_corpus){.tokens = s->tokens, .count = TOKENS, .hash = 5};
}

static void stage_close(stage *s) {
    kn_start_free(&s->start);
    golden_close(&s->g);
}

static void keep_report(void *context, const knnlm_train_report *r) {
    stage *s = context;
    if (s->reports++ == 0) s->first = *r;
    s->last = *r;
}

static bool stop_now(void *context) {
    stage *s = context;
    return ++s->asked == s->stop_after;
}

static kn_train_options run_of(stage *s, const char *output) {
    kn_train_options o;
    kn_train_defaults(&o);
    o.config = s->start.config;
    o.start = &s->start;
    o.tokenizer = s->start.tokenizer;
    o.corpus = &s->corpus;
    o.output = output;
    o.type = KN_GGUF_F32;
    o.precision = KNNLM_PRECISION_F32;
    o.length = LENGTH;
    o.batch = o.micro = 2 * LENGTH;
    o.steps = o.schedule.steps = 5;
    o.schedule.warmup = 0;
    o.report_every = 1;
    o.report = keep_report;
    o.stop = stop_now;
    o.context = s;
    s->reports = 0;
    s->asked = s->stop_after = 0;
    return o;
}

static void assert_same_file(const char *a, const char *b) {
    kn_map left, right;
    OK(kn_map_open(a, &left));
    OK(kn_map_open(b, &right));
    assert_int_equal(left.size, right.size);
    assert_memory_equal(left.data, right.data, left.size);
    kn_map_close(&left);
    kn_map_close(&right);
}

// The model written has the start's parameters, its tokenizer, and the length of the windows.
static void assert_same_model(const stage *s, const char *path) {
    char had[KN_FINGERPRINT], has[KN_FINGERPRINT];
    float *params = test_alloc(s->g.layout.total, sizeof *params);
    kn_start again;
    OK(kn_start_open(path, NULL, &again));
    OK(kn_model_load_params(again.file, &s->g.config, &s->g.layout, params));
    assert_memory_equal(params, s->g.params, s->g.layout.total * sizeof *params);
    kn_tokenizer_fingerprint(s->start.tokenizer, had);
    kn_tokenizer_fingerprint(again.tokenizer, has);
    assert_string_equal(had, has);
    assert_int_equal(again.length, LENGTH);
    assert_int_equal(again.config.context, s->g.config.context);
    kn_start_free(&again);
    free(params);
}

// One window of text, so that the loss of the first update is that window's; at a rate of 0 nothing changes.
static void begins_where_the_file_stands(void **state) {
    static const char *const names[] = GOLDEN_NAMES;
    (void)state;
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        stage s;
        stage_open(&s, names[i]);
        assert_int_equal(s.start.length, s.g.config.context); // these files do not say how they were trained
        kn_train_options o = run_of(&s, at("same.gguf"));
        kn_reference r = golden_reference(&s.g);
        double want = reference_loss(&r, s.tokens, s.tokens + 1, LENGTH) / LENGTH;
        s.corpus.count = LENGTH + 1;
        o.batch = o.micro = LENGTH;
        o.steps = 1;
        o.schedule = (kn_schedule){.kind = KNNLM_SCHEDULE_CONSTANT, .rate = 0};
        OK(kn_train_run(&o));
        if (!(fabs(s.first.loss - want) <= 1e-5 * want)) // sums of f32 over a few hundred terms
            fail_msg("%s: a loss of %.8f, not %.8f", names[i], s.first.loss, want);
        assert_same_model(&s, o.output);
        stage_close(&s);
    }
}

static void learns_on(void **state) {
    stage s;
    (void)state;
    stage_open(&s, "gpt2");
    kn_train_options o = run_of(&s, at("learns.gguf"));
    s.corpus.count = LENGTH + 1; // one window again and again
    o.batch = o.micro = LENGTH;
    o.steps = 20;
    o.schedule.kind = KNNLM_SCHEDULE_CONSTANT;
    OK(kn_train_run(&o));
    assert_true(s.last.loss < s.first.loss);
    stage_close(&s);
}

// ---------------------------------------------------------------- stopping and going on

static const char *checkpoint_of(const char *output) {
    static char path[160];
    snprintf(path, sizeof path, "%s.checkpoint", output);
    return path;
}

static void run_and_stop(stage *s, const char *output) {
    kn_train_options o = run_of(s, output);
    s->stop_after = 2;
    assert_int_equal(kn_train_run(&o), KNNLM_ESTOPPED);
}

static void goes_on_as_the_same_run(void **state) {
    stage s;
    kn_start again;
    (void)state;
    stage_open(&s, "adaptive");
    kn_train_options whole = run_of(&s, at("whole.gguf"));
    OK(kn_train_run(&whole));
    run_and_stop(&s, at("part.gguf"));
    for (int named = 0; named < 2; named++) { // the model may be named again, or left out
        OK(kn_start_resume(checkpoint_of(at("part.gguf")), named ? s.g.path : NULL, NULL, &again));
        assert_string_equal(again.fingerprint, s.start.fingerprint);
        assert_int_equal(again.length, LENGTH);
        assert_null(again.file);
        if (!named) kn_start_free(&again);
    }
    kn_train_options rest = run_of(&s, at("part.gguf"));
    rest.resume = true;
    rest.start = &again;
    rest.config = again.config;
    rest.tokenizer = again.tokenizer;
    OK(kn_train_run(&rest));
    assert_same_file(at("whole.gguf"), at("part.gguf"));
    assert_same_file(at("whole.gguf.checkpoint"), at("part.gguf.checkpoint"));
    kn_start_free(&again);
    stage_close(&s);
}

// "plain" and "cpu" may be of one shape or not: it is the beginning that is refused.
static void another_beginning_is_refused(void **state) {
    stage s, other;
    kn_start again;
    (void)state;
    stage_open(&s, "plain");
    stage_open(&other, "cpu");
    run_and_stop(&s, at("one.gguf"));
    const char *checkpoint = checkpoint_of(at("one.gguf"));
    FAILS(KNNLM_EINVAL, "another model", kn_start_resume(checkpoint, other.g.path, NULL, &again));
    FAILS(KNNLM_EIO, "nowhere.gguf", kn_start_resume(checkpoint, at("nowhere.gguf"), NULL, &again));
    kn_train_options o = run_of(&s, at("one.gguf"));
    o.resume = true;
    o.start = &other.start;
    FAILS(KNNLM_EINVAL, "to begin from", kn_train_run(&o));
    o.start = NULL;
    FAILS(KNNLM_EINVAL, "to begin from", kn_train_run(&o));
    o = run_of(&s, at("scratch.gguf"));
    o.start = NULL;
    OK(kn_train_run(&o));
    checkpoint = checkpoint_of(at("scratch.gguf"));
    FAILS(KNNLM_EINVAL, "without `from`", kn_start_resume(checkpoint, s.g.path, NULL, &again));
    OK(kn_start_resume(checkpoint, NULL, NULL, &again));
    assert_string_equal(again.fingerprint, "");
    kn_start_free(&again);
    o.resume = true;
    o.start = &s.start;
    FAILS(KNNLM_EINVAL, "to begin from", kn_train_run(&o));
    stage_close(&s);
    stage_close(&other);
}

// A checkpoint is a model in f32: a new run may begin from one.
static void a_checkpoint_is_a_model(void **state) {
    stage s;
    kn_start again;
    (void)state;
    stage_open(&s, "gpt2");
    run_and_stop(&s, at("first.gguf"));
    OK(kn_start_open(checkpoint_of(at("first.gguf")), NULL, &again));
    kn_train_options o = run_of(&s, at("second.gguf"));
    o.start = &again;
    OK(kn_train_run(&o));
    kn_start_free(&again);
    stage_close(&s);
}

// ---------------------------------------------------------------- models that cannot be

static void foreign_models_are_refused(void **state) {
    kn_gguf_writer *w;
    kn_start start;
    (void)state;
    OK(kn_gguf_writer_open(at("foreign.gguf"), &w));
    OK(kn_gguf_put_string(w, "general.architecture", "mamba"));
    OK(kn_gguf_writer_commit(w));
    FAILS(KNNLM_ENOTSUP, "\"mamba\"", kn_start_open(at("foreign.gguf"), NULL, &start));
    assert_non_null(strstr(knnlm_message(), "llama.cpp"));
    assert_non_null(strstr(knnlm_message(), "foreign.gguf: "));
    FAILS(KNNLM_EIO, "nowhere.gguf", kn_start_open(at("nowhere.gguf"), NULL, &start));
}

// The length of the windows is told by the file and is how the engine reads; an impossible one is damage.
static void the_length_is_in_the_file(void **state) {
    stage s;
    (void)state;
    stage_open(&s, "gpt2");
    const int32_t context = s.g.config.context, lengths[] = {1, context - 1, context, context + 1};
    for (int i = 0; i < 4; i++) {
        kn_lm *lm;
        OK(kn_model_save(at("length.gguf"), &s.g.config, s.start.tokenizer, lengths[i], s.g.params,
                         KN_GGUF_F32));
        if (lengths[i] > context) {
            FAILS(KNNLM_EDATA, "knnlm.train.length", kn_lm_open(at("length.gguf"), NULL, &lm));
            continue;
        }
        OK(kn_lm_open(at("length.gguf"), NULL, &lm));
        assert_int_equal(kn_lm_describe(lm)->window, lengths[i]);
        assert_int_equal(kn_lm_describe(lm)->context, context);
        kn_lm_close(lm);
    }
    stage_close(&s);
}

// ---------------------------------------------------------------- being stopped before the first update

// Counts the reports of one kind, and asks to stop at the `at`-th of them.
typedef struct listener {
    const char *what; // NULL: any
    int at, heard;
} listener;

static bool listen(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    listener *l = context;
    (void)done, (void)total, (void)unit;
    return (l->what && strcmp(what, l->what) != 0) || ++l->heard != l->at;
}

// One document of 900 thousand words: what is asked between documents alone would not stop within it.
static const char *write_long_text(void) {
    const char *path = at("long.txt");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 900000; i++) fprintf(file, "w%d%c", i * 7 % 90, i % 10 == 9 ? '\n' : ' ');
    assert_int_equal(fclose(file), 0);
    return path;
}

static void reading_stops_within_a_document(void **state) {
    static const char *const stages[] = {"reading", "tokenizing"};
    const char *path = write_long_text();
    kn_tokenizer *t;
    kn_corpus corpus;
    (void)state;
    OK(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, "w1 w2 w3", 8, NULL, &t));
    for (int i = 0; i < 2; i++) {
        listener all = {.what = stages[i]};
        OK(kn_corpus_read(t, &path, 1, &(kn_text_options){0}, &(kn_progress){listen, &all}, &corpus));
        assert_true(corpus.count > 900000);
        kn_corpus_free(&corpus);
        assert_true(all.heard >= 3);
        for (int n = 1; n <= all.heard; n++) {
            listener l = {.what = stages[i], .at = n};
            FAILS(KNNLM_ESTOPPED, "stopped while",
                  kn_corpus_read(t, &path, 1, &(kn_text_options){0}, &(kn_progress){listen, &l}, &corpus));
            assert_int_equal(l.heard, n);
            assert_null(corpus.tokens);
        }
    }
    kn_tokenizer_free(t);
}

static void making_a_tokenizer_stops(void **state) {
    static const knnlm_tokenizer_kind kinds[] = {KNNLM_TOKENIZER_BPE, KNNLM_TOKENIZER_WORD};
    const char *path = at("long.txt");
    char *text;
    size_t size;
    (void)state;
    listener l = {.at = 2};
    FAILS(
        KNNLM_ESTOPPED, "long.txt: stopped while reading",
        kn_corpus_text(&path, 1, &(kn_text_options){0}, SIZE_MAX, &(kn_progress){listen, &l}, &text, &size));
    assert_null(text);
    OK(kn_corpus_text(&path, 1, &(kn_text_options){0}, 1 << 20, NULL, &text, &size));
    for (int k = 0; k < 2; k++) {
        static const char *const stages[] = {"counting words", "merging pairs"};
        for (int i = 0; i < (k == 0 ? 2 : 1); i++) {
            kn_tokenizer *t;
            listener stop = {.what = stages[i], .at = 1};
            FAILS(KNNLM_ESTOPPED, "stopped while",
                  kn_tokenizer_train(kinds[k], 300, text, size, &(kn_progress){listen, &stop}, &t));
        }
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_where_the_file_stands), cmocka_unit_test(learns_on),
        cmocka_unit_test(goes_on_as_the_same_run),      cmocka_unit_test(another_beginning_is_refused),
        cmocka_unit_test(a_checkpoint_is_a_model),      cmocka_unit_test(foreign_models_are_refused),
        cmocka_unit_test(the_length_is_in_the_file),    cmocka_unit_test(reading_stops_within_a_document),
        cmocka_unit_test(making_a_tokenizer_stops),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
