// Models with a sliding window read texts as streams: the numbers of the plain reference model over the whole
// text, whatever is read beside it, in windows with a past, by sessions without end, and by the reader.
#include "golden_model.h"

#include "base/random.h"
#include "base/threads.h"
#include "eval/score_batch.h"
#include "knn/mixture.h"
#include "lm/shared.h"
#include "read/read.h"

#include <unistd.h>

enum { WORDS = 40, LENGTH = 1300, CONTEXT = 64 };

#define MODERN                                                                                               \
    .vocabulary = WORDS + 2, .width = 32, .layers = 2, .heads = 2, .ffn = 40, .context = CONTEXT,            \
    .rope_base = 1000, .positions = KNNLM_POSITIONS_ROTARY, .epsilon = 1e-5f, .embedding_scale = 4,          \
    .final_norm = true, .norm = KNNLM_NORM_RMS, .no_bias = true, .activation = KNNLM_ACTIVATION_SWIGLU,      \
    .bands = 1, .band_end = {WORDS + 2}, .band_factor = 4

static const kn_config shapes[] = {
    {MODERN, .window = 33},                   // Llama's
    {MODERN, .window = 100, .qk_norm = true}, // Qwen3's
    {MODERN, .window = 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct fixture {
    kn_config config;
    kn_layout layout;
    float *params;
    double *exact;
    char path[64];
    int32_t inputs[LENGTH], targets[LENGTH];
    double *expected; // (LENGTH): log-probabilities of the targets, by the reference
} fixture;

static kn_tokenizer *make_tokenizer(void) {
    char text[WORDS * 8];
    size_t used = 0;
    kn_tokenizer *tokenizer;
    for (int i = 0; i < WORDS; i++) used += (size_t)snprintf(text + used, 8, "w%d ", i);
    OK(kn_tokenizer_train(KNNLM_TOKENIZER_WORD, 0, text, used, NULL, &tokenizer));
    return tokenizer;
}

static void fixture_open(fixture *d, const kn_config *config, uint64_t seed) {
    kn_random random = {seed};
    *d = (fixture){.config = *config};
    OK(kn_config_validate(config, "the test's model"));
    OK(kn_layout_init(config, &d->layout));
    d->params = test_alloc(d->layout.total, sizeof *d->params);
    d->exact = test_alloc(d->layout.total, sizeof *d->exact);
    kn_layout_fill(config, &d->layout, seed, d->params);
    for (size_t i = 0; i < d->layout.total; i++)
        d->exact[i] = d->params[i] += (float)(0.1 * kn_random_normal(&random));
    kn_tokenizer *tokenizer = make_tokenizer();
    assert_int_equal(kn_tokenizer_size(tokenizer), config->vocabulary);
    strcpy(d->path, "/tmp/knnlm-test-stream-XXXXXX");
    close(mkstemp(d->path));
    OK(kn_model_save(d->path, config, tokenizer, 0, d->params, KN_GGUF_F32));
    d->inputs[0] = kn_tokenizer_start(tokenizer);
    for (int i = 0; i < LENGTH; i++) {
        d->targets[i] = (int32_t)kn_random_below(&random, WORDS);
        if (i + 1 < LENGTH) d->inputs[i + 1] = d->targets[i];
    }
    kn_tokenizer_free(tokenizer);
    size_t vocabulary = (size_t)config->vocabulary;
    double *distribution = test_alloc(LENGTH * vocabulary, sizeof *distribution);
    kn_reference r = {&d->config, &d->layout, d->exact};
    OK(kn_reference_run(&r, d->inputs, LENGTH, distribution, NULL));
    d->expected = test_alloc(LENGTH, sizeof *d->expected);
    for (int i = 0; i < LENGTH; i++)
        d->expected[i] = distribution[(size_t)i * vocabulary + (size_t)d->targets[i]];
    free(distribution);
}

static void fixture_close(fixture *d) {
    unlink(d->path);
    kn_layout_free(&d->layout);
    free(d->params);
    free(d->exact);
    free(d->expected);
}

static kn_lm *open_model(const fixture *d, knnlm_precision precision) {
    kn_lm *lm;
    OK(kn_lm_open(d->path, &(kn_lm_options){.precision = precision}, &lm));
    assert_string_equal(kn_lm_describe(lm)->engine, "native");
    assert_true(kn_lm_describe(lm)->stream > 0);
    return lm;
}

// Sums of f32 over two layers of width 32: thousands of roundings of 2^-24 at worst, of numbers of about 10.
static void assert_expected(const fixture *d, const float *logprobs, size_t from, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)logprobs[i] - d->expected[from + i]) < 1e-3))
            fail_msg("position %zu: %.9g, the reference says %.9g", from + i, (double)logprobs[i],
                     d->expected[from + i]);
}

// The whole text in windows with a past, each in a call of its own, or all in one.
static void stream_text(kn_lm *lm, const fixture *d, size_t length, bool together, float *logprobs,
                        float *keys) {
    size_t stream = (size_t)kn_lm_describe(lm)->stream, width = (size_t)kn_lm_describe(lm)->key_width, n = 0;
    kn_window windows[LENGTH / 32 + 1];
    kn_past *past;
    OK(kn_past_open(lm, &past));
    for (size_t done = 0; done < length; done += stream)
        windows[n++] = (kn_window){.inputs = d->inputs + done,
                                   .targets = d->targets + done,
                                   .length = (int32_t)kn_min(stream, length - done),
                                   .past = past};
    for (size_t i = 0; i < n; i += together ? n : 1) {
        size_t at = i * stream;
        kn_lm_output out = {.logprobs = logprobs + at, .keys = keys ? keys + at * width : NULL};
        OK(kn_lm_run(lm, windows + i, together ? n : 1, KN_TAP_DEFAULT, &out));
    }
    kn_past_close(past);
}

static void streams_are_the_whole_text(void **state) {
    (void)state;
    float logprobs[LENGTH], again[LENGTH], shorter[LENGTH];
    for (size_t i = 0; i < SHAPES; i++) {
        fixture d;
        fixture_open(&d, &shapes[i], 7 + i);
        kn_lm *lm = open_model(&d, KNNLM_PRECISION_F32);
        stream_text(lm, &d, LENGTH, false, logprobs, NULL);
        assert_expected(&d, logprobs, 0, LENGTH);
        stream_text(lm, &d, LENGTH, true, again, NULL);
        assert_memory_equal(logprobs, again, sizeof logprobs);
        // What comes later changes nothing before it; few rows are summed another way.
        stream_text(lm, &d, 1100, true, shorter, NULL);
        assert_memory_equal(logprobs, shorter, 1100 * sizeof *logprobs);
        kn_lm_close(lm);
        fixture_close(&d);
    }
}

// Begun in the middle, a stream soon has the numbers of the whole text; before that it cannot.
static void streams_begin_anywhere(void **state) {
    (void)state;
    kn_config long_window = {MODERN, .window = 600};
    long_window.layers = 1;
    float whole[LENGTH], part[LENGTH];
    for (size_t i = 0; i <= SHAPES; i++) {
        fixture d;
        kn_past *past;
        fixture_open(&d, i < SHAPES ? &shapes[i] : &long_window, 29 + i);
        kn_lm *lm = open_model(&d, KNNLM_PRECISION_AUTO);
        size_t stream = (size_t)kn_lm_describe(lm)->stream, reach = (size_t)kn_lm_describe(lm)->reach;
        assert_int_equal(reach, d.config.layers * (d.config.window - 1));
        stream_text(lm, &d, LENGTH, false, whole, NULL);
        assert_int_equal(kn_past_open_at(lm, stream - 1, &past), KNNLM_EINVAL);
        OK(kn_past_open_at(lm, stream, &past));
        for (size_t at = stream; at < LENGTH; at += stream) {
            kn_window w = {.inputs = d.inputs + at,
                           .targets = d.targets + at,
                           .length = (int32_t)kn_min(stream, LENGTH - at),
                           .past = past};
            OK(kn_lm_run(lm, &w, 1, KN_TAP_DEFAULT, &(kn_lm_output){.logprobs = part + at}));
        }
        assert_true(stream + reach < LENGTH);
        assert_memory_equal(part + stream + reach, whole + stream + reach,
                            (LENGTH - stream - reach) * sizeof *whole);
        if (reach) assert_true(memcmp(part + stream, whole + stream, reach * sizeof *whole) != 0);
        kn_past_close(past);
        kn_lm_close(lm);
        fixture_close(&d);
    }
}

// Pieces of texts, as ranks read them: by one rank here, which reads again what is before them.
static void pieces_are_those_of_the_text(void **state) {
    (void)state;
    fixture d;
    fixture_open(&d, &shapes[1], 31);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_AUTO);
    size_t stream = (size_t)kn_lm_describe(lm)->stream, width = (size_t)kn_lm_describe(lm)->key_width;
    float whole[LENGTH], logprobs[2 * LENGTH];
    float *keys = test_alloc(LENGTH * width, sizeof *keys),
          *got = test_alloc(2 * LENGTH * width, sizeof *got);
    stream_text(lm, &d, LENGTH, false, whole, keys);
    const kn_stream_piece pieces[] = {
        {d.inputs, d.targets, stream, LENGTH}, {d.inputs, d.targets, 0, 40}, {d.inputs, d.targets, 0, 600}};
    kn_lm_output out = {.logprobs = logprobs, .keys = got};
    OK(kn_lm_read_pieces(lm, pieces, 3, KN_TAP_DEFAULT, &out, NULL));
    for (size_t i = 0, row = 0; i < 3; row += pieces[i].to - pieces[i].from, i++) {
        size_t from = pieces[i].from, n = pieces[i].to - from;
        assert_memory_equal(logprobs + row, whole + from, n * sizeof *whole);
        assert_memory_equal(got + row * width, keys + from * width, n * width * sizeof *keys);
    }
    kn_stream_piece bad = {d.inputs, d.targets, 1, LENGTH};
    assert_int_equal(kn_lm_read_pieces(lm, &bad, 1, KN_TAP_DEFAULT, &out, NULL), KNNLM_EINVAL);
    free(keys);
    free(got);
    kn_lm_close(lm);
    fixture_close(&d);
}

static void every_kernel_streams(void **state) {
    (void)state;
    fixture d;
    float logprobs[LENGTH], again[LENGTH];
    fixture_open(&d, &shapes[1], 3);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_BF16);
    stream_text(lm, &d, LENGTH, true, logprobs, NULL);
    OK(kn_threads_set(1));
    stream_text(lm, &d, LENGTH, false, again, NULL);
    OK(kn_threads_set(0));
    assert_memory_equal(logprobs, again, sizeof logprobs);
    double off = 0;
    for (size_t i = 0; i < LENGTH; i++) off += fabs((double)logprobs[i] - d.expected[i]) / LENGTH;
    if (!(off < 0.1)) fail_msg("bf16 is off by %g in the mean", off); // 2^-8 of logits of about 10
    kn_lm_close(lm);
    fixture_close(&d);
}

// Beside other texts, of which some go on too.
static void company_changes_nothing(void **state) {
    (void)state;
    fixture d;
    fixture_open(&d, &shapes[0], 5);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_AUTO);
    size_t stream = (size_t)kn_lm_describe(lm)->stream;
    float alone[LENGTH], logprobs[4 * LENGTH];
    stream_text(lm, &d, LENGTH, false, alone, NULL);
    kn_past *pasts[2];
    for (int i = 0; i < 2; i++) OK(kn_past_open(lm, &pasts[i]));
    const kn_window windows[] = {
        {.inputs = d.inputs, .targets = d.targets, .length = (int32_t)stream, .past = pasts[0]},
        {.inputs = d.inputs + 9, .targets = d.targets + 9, .length = 40},
        {.inputs = d.inputs, .targets = d.targets, .length = (int32_t)stream, .past = pasts[1]},
        {.inputs = d.inputs + stream, .targets = d.targets + stream, .length = 100, .past = pasts[0]},
        {.inputs = d.inputs + stream, .targets = d.targets + stream, .length = 50, .past = pasts[1]},
    };
    OK(kn_lm_run(lm, windows, 5, KN_TAP_DEFAULT, &(kn_lm_output){.logprobs = logprobs}));
    assert_memory_equal(logprobs, alone, stream * sizeof(float));
    assert_memory_equal(logprobs + stream + 40, alone, stream * sizeof(float));
    assert_memory_equal(logprobs + 2 * stream + 40, alone + stream, 100 * sizeof(float));
    assert_memory_equal(logprobs + 2 * stream + 140, alone + stream, 50 * sizeof(float));
    for (int i = 0; i < 2; i++) kn_past_close(pasts[i]);
    kn_lm_close(lm);
    fixture_close(&d);
}

// A session goes on beyond any context.
static void sessions_have_no_end(void **state) {
    (void)state;
    fixture d;
    fixture_open(&d, &shapes[0], 11);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_F32);
    size_t vocabulary = (size_t)d.config.vocabulary;
    float *distribution = test_alloc(2 * vocabulary, sizeof *distribution);
    kn_session *sessions[2];
    for (int i = 0; i < 2; i++) OK(kn_session_open(lm, &sessions[i]));
    const size_t pieces[] = {1, 1, 3, 5, 512, 31, 1, 1, 600, 1, 1};
    size_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        kn_lm_output out = {.distribution = distribution};
        OK(kn_session_feed(sessions[0], d.inputs + at, pieces[i], KN_TAP_DEFAULT, &out));
        at += pieces[i];
        assert_expected(&d, &distribution[d.targets[at - 1]], at - 1, 1);
    }
    // Two sessions step together, the second far behind.
    OK(kn_session_feed(sessions[1], d.inputs, 40, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    for (size_t i = 0; i < 60; i++) {
        int32_t tokens[2] = {d.inputs[at], d.inputs[40 + i]};
        kn_lm_output out = {.distribution = distribution};
        OK(kn_sessions_feed(sessions, 2, tokens, KN_TAP_DEFAULT, &out));
        assert_expected(&d, &distribution[d.targets[at]], at, 1);
        assert_expected(&d, &distribution[vocabulary + (size_t)d.targets[40 + i]], 40 + i, 1);
        at++;
    }
    kn_session_cut(sessions[0], 0);
    assert_int_equal(kn_session_length(sessions[0]), 0);
    kn_lm_output out = {.distribution = distribution};
    OK(kn_session_feed(sessions[0], d.inputs, 20, KN_TAP_DEFAULT, &out));
    assert_expected(&d, &distribution[d.targets[19]], 19, 1);
    for (int i = 0; i < 2; i++) kn_session_close(sessions[i]);
    free(distribution);
    kn_lm_close(lm);
    fixture_close(&d);
}

// ---------------------------------------------------------------- the reader

static knnlm_status collect(void *context, const kn_records *r) {
    float *logprobs = context;
    assert_true(r->count > 0);
    memcpy(logprobs + r->position, r->logprobs, r->count * sizeof *logprobs);
    return KNNLM_OK;
}

static void the_reader_streams(void **state) {
    (void)state;
    fixture d;
    float streamed[LENGTH], read[LENGTH];
    fixture_open(&d, &shapes[1], 13);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_AUTO);
    stream_text(lm, &d, LENGTH, false, streamed, NULL);
    kn_read_options o = {.context = -1, .tap = KN_TAP_DEFAULT, .logprobs = true};
    OK(kn_read_tokens(lm, d.targets, LENGTH, &o, collect, read));
    assert_memory_equal(streamed, read, sizeof read);
    o.gather = 100; // whatever is read at a time
    memset(read, 0, sizeof read);
    OK(kn_read_tokens(lm, d.targets, LENGTH, &o, collect, read));
    assert_memory_equal(streamed, read, sizeof read);
    // Longer than the context that it was trained on, shorter than a piece of a stream.
    memset(read, 0, sizeof read);
    OK(kn_read_tokens(lm, d.targets, 5 * CONTEXT, &o, collect, read));
    assert_memory_equal(streamed, read, 5 * CONTEXT * sizeof *read);
    // A window that is asked for is one: it sees nothing before it.
    o = (kn_read_options){.score = 16, .context = 8, .tap = KN_TAP_DEFAULT, .logprobs = true};
    OK(kn_read_tokens(lm, d.targets, LENGTH, &o, collect, read));
    assert_true(memcmp(streamed, read, sizeof read) != 0);
    kn_lm_close(lm);
    fixture_close(&d);
}

static void scoring_together_streams(void **state) {
    (void)state;
    fixture d;
    float streamed[LENGTH];
    fixture_open(&d, &shapes[0], 17);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_AUTO);
    stream_text(lm, &d, LENGTH, false, streamed, NULL);
    kn_mixture *m;
    OK(kn_mixture_open(lm, &(kn_mixture_options){.distance = -1}, &m));
    kn_score_result *results = test_alloc(2 * LENGTH, sizeof *results);
    kn_score_text asked[] = {
        {.tokens = d.targets, .count = LENGTH, .mixture = m, .results = results},
        {.tokens = d.targets, .count = 700, .mixture = m, .results = results + LENGTH},
    };
    OK(kn_score_batch(lm, asked, 2, NULL, NULL));
    for (size_t i = 0; i < LENGTH; i++) assert_true(results[i].lm == (double)streamed[i]);
    for (size_t i = 0; i < 700; i++) assert_true(results[LENGTH + i].lm == (double)streamed[i]);
    free(results);
    kn_mixture_close(m);
    kn_lm_close(lm);
    fixture_close(&d);
}

// ---------------------------------------------------------------- files

// Folded into the file and back: nothing is lost when the scale is a power of two.
static void files_keep_the_parameters(void **state) {
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        fixture d;
        kn_gguf *file;
        kn_config config;
        const char *architecture;
        bool found;
        fixture_open(&d, &shapes[i], 19);
        OK(kn_gguf_open(d.path, &file));
        OK(kn_gguf_get_string(file, "general.architecture", &architecture, &found));
        assert_string_equal(architecture, d.config.qk_norm ? "qwen3" : "llama");
        OK(kn_config_load(file, &config));
        assert_memory_equal(&config, &d.config, sizeof config);
        float *params = test_alloc(d.layout.total, sizeof *params);
        OK(kn_model_load_params(file, &config, &d.layout, params));
        assert_memory_equal(params, d.params, d.layout.total * sizeof *params);
        free(params);
        kn_gguf_close(file);
        fixture_close(&d);
    }
}

static void bad_windows_are_refused(void **state) {
    (void)state;
    fixture d, other;
    fixture_open(&d, &shapes[0], 23);
    fixture_open(&other, &(kn_config){MODERN}, 23);
    kn_lm *lm = open_model(&d, KNNLM_PRECISION_F32), *whole;
    kn_past *past;
    float logprobs[LENGTH];
    OK(kn_lm_open(other.path, NULL, &whole));
    assert_int_equal(kn_lm_describe(whole)->stream, 0);
    assert_int_equal(kn_past_open(whole, &past), KNNLM_ENOTSUP);
    OK(kn_past_open(lm, &past));
    kn_lm_output out = {.logprobs = logprobs};
    kn_window w = {
        .inputs = d.inputs, .targets = d.targets, .length = kn_lm_describe(lm)->stream + 1, .past = past};
    assert_int_equal(kn_lm_run(lm, &w, 1, KN_TAP_DEFAULT, &out), KNNLM_EINVAL);
    w.length = 10;
    assert_int_equal(kn_lm_run(whole, &w, 1, KN_TAP_DEFAULT, &out), KNNLM_EINVAL);
    kn_read_options o = {.stream = true, .tap = KN_TAP_DEFAULT, .logprobs = true};
    assert_int_equal(kn_read_tokens(whole, d.targets, 10, &o, collect, logprobs), KNNLM_EINVAL);
    kn_past_close(past);
    kn_lm_close(lm);
    kn_lm_close(whole);
    fixture_close(&d);
    fixture_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_the_whole_text), cmocka_unit_test(every_kernel_streams),
        cmocka_unit_test(company_changes_nothing),    cmocka_unit_test(sessions_have_no_end),
        cmocka_unit_test(the_reader_streams),         cmocka_unit_test(scoring_together_streams),
        cmocka_unit_test(files_keep_the_parameters),  cmocka_unit_test(bad_windows_are_refused),
        cmocka_unit_test(streams_begin_anywhere),     cmocka_unit_test(pieces_are_those_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
