// Any bytes as a model file: one that opens and is small reads a window and a session of a few tokens.
#include "base/threads.h"
#include "lm/lm.h"
#include "memory_file.h"

// Beyond these a model is opened and described only: its numbers are another test's matter.
enum { TOKENS = 6, WIDTH_MAX = 64, LAYERS_MAX = 4, VOCABULARY_MAX = 4096, CONTEXT_MAX = 4096, FFN_MAX = 256 };

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
    kn_window window = {tokens, tokens + 1, length, length / 2};
    kn_lm_output out = {.logprobs = logprobs, .entropies = entropies, .keys = keys};
    expect_run(kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &out));
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

static void use(kn_lm *lm) {
    const kn_lm_info *i = kn_lm_describe(lm);
    int32_t tokens[TOKENS + 1], length = i->context < TOKENS ? i->context : TOKENS;
    if (!is_small(i)) return;
    // Both ends of the vocabulary: the first band and the last.
    for (int32_t n = 0; n <= length; n++)
        tokens[n] = n % 2 ? i->vocabulary - 1 - n % i->vocabulary : n % i->vocabulary;
    run_window(lm, tokens, length);
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
        use(lm);
        kn_lm_close(lm);
    }
    memory_file_close(&file);
    return 0;
}
