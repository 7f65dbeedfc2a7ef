// Any bytes as a model file: one that opens and is small reads a window and a session of a few tokens.
#include "base/threads.h"
#include "lm/lm.h"
#include "memory_file.h"

// Beyond these a model is opened and described only: its numbers are another test's matter.
enum { TOKENS = 6, WIDTH_MAX = 64, LAYERS_MAX = 4, VOCABULARY_MAX = 4096, CONTEXT_MAX = 4096, FFN_MAX = 256 };
enum { STREAM_MAX = 512, NARROW = 8, RARELY = 32 };

static bool is_small(const kn_lm_info *i) {
    return i->width <= WIDTH_MAX && i->layers <= LAYERS_MAX && i->vocabulary <= VOCABULARY_MAX &&
           i->context <= CONTEXT_MAX && i->ffn <= FFN_MAX;
}

// What is checked may fail, but not with bad arguments: these are right.
static void expect_run(knnlm_status status) {
    if (status == KNNLM_EINVAL) abort();
}

static void run_window(kn_lm *lm, const int32_t *tokens, int32_t length) {
    float logprobs[TOKENS], entropies[TOKENS], keys[TOKENS * WIDTH_MAX];
    kn_window window = {.inputs = tokens, .targets = tokens + 1, .length = length, .first = length / 2};
    kn_lm_output out = {.logprobs = logprobs, .entropies = entropies, .keys = keys};
    expect_run(kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &out));
}

// A text as a stream: a full window and what is left. It takes as long as twenty other inputs, so that the
// sum of its bytes decides whether an input has it.
static bool is_streamed(const uint8_t *data, size_t size) {
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) sum += data[i];
    return sum % RARELY == 0;
}

static void run_stream(kn_lm *lm, const kn_lm_info *i) {
    static int32_t tokens[STREAM_MAX + 1];
    static float logprobs[STREAM_MAX];
    kn_lm_output out = {.logprobs = logprobs};
    kn_past *past;
    if (i->stream < 1 || i->stream > STREAM_MAX || i->width > NARROW || kn_past_open(lm, &past) != KNNLM_OK)
        return;
    for (int32_t n = 0; n <= i->stream; n++) tokens[n] = n % i->vocabulary;
    kn_window window = {.inputs = tokens, .targets = tokens + 1, .length = i->stream, .past = past};
    expect_run(kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &out));
    window.length = 1;
    expect_run(kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &out));
    kn_past_close(past);
}

static void run_session(kn_lm *lm, const int32_t *tokens, int32_t length) {
    static float distribution[VOCABULARY_MAX];
    kn_lm_output out = {.distribution = distribution};
    kn_session *session;
    if (kn_session_open(lm, &session) != KNNLM_OK) return;
    for (int32_t i = 0; i < length; i++)
        expect_run(kn_session_feed(session, tokens + i, 1, KN_TAP_DEFAULT, &out));
    kn_session_close(session);
}

static void use(kn_lm *lm, bool streamed) {
    const kn_lm_info *i = kn_lm_describe(lm);
    int32_t tokens[TOKENS + 1], length = i->context < TOKENS ? i->context : TOKENS;
    if (!is_small(i)) return;
    // Both ends of the vocabulary: the first band and the last.
    for (int32_t n = 0; n <= length; n++)
        tokens[n] = n % 2 ? i->vocabulary - 1 - n % i->vocabulary : n % i->vocabulary;
    run_window(lm, tokens, length);
    if (streamed) run_stream(lm, i);
    run_session(lm, tokens, length);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return kn_threads_set(1) == KNNLM_OK ? 0 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_lm *lm;
    memory_file file = memory_file_open(data, size);
    if (kn_lm_open(file.path, NULL, &lm) == KNNLM_OK) {
        use(lm, is_streamed(data, size));
        kn_lm_close(lm);
    }
    memory_file_close(&file);
    return 0;
}
