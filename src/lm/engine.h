// What an engine behind lm.h provides.
#ifndef KN_LM_ENGINE_H
#define KN_LM_ENGINE_H

#include "lm/lm.h"

typedef struct kn_engine {
    void (*close)(kn_lm *lm);
    // Windows, tap and outputs were checked by the door.
    knnlm_status (*run)(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                        const kn_lm_output *out);
    // NULL: no windows with a past.
    knnlm_status (*past_open)(kn_lm *lm, size_t position, kn_past **out);
    void (*past_close)(kn_past *past);
    knnlm_status (*session_open)(kn_lm *lm, kn_session **out);
    void (*session_close)(kn_session *s);
    // `targets`: results are of every token; NULL: of the last.
    knnlm_status (*session_feed)(kn_session *s, const int32_t *tokens, const int32_t *targets, size_t count,
                                 kn_tap tap, const kn_lm_output *out);
    // NULL: they are fed one by one.
    knnlm_status (*sessions_feed)(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                  kn_tap tap, const kn_lm_output *out);
    // Whether a token ends a text. NULL: the start token alone does.
    bool (*ends)(const kn_lm *lm, int32_t token);
    // Of conversations. NULL: the engine knows none.
    const char *(*chat_template)(const kn_lm *lm);
    knnlm_status (*chat)(const kn_lm *lm, const kn_chat_message *messages, size_t count, kn_tokens *out);
    size_t (*session_length)(const kn_session *s);
    void (*session_cut)(kn_session *s, size_t length);
} kn_engine;

// The first member of every engine's model and session.
struct kn_lm {
    const kn_engine *engine;
    kn_lm_info info;
    kn_tokenizer *tokenizer;
    uint64_t key; // by which other ranks know it
    bool alone;   // its windows are not dealt to them
};
struct kn_session {
    kn_lm *lm;
};
struct kn_past {
    kn_lm *lm;
};

// To the rows after the next `rows`.
static inline void kn_lm_output_advance(const kn_lm *lm, kn_lm_output *out, size_t rows) {
    if (out->logprobs) out->logprobs += rows;
    if (out->entropies) out->entropies += rows;
    if (out->distribution) out->distribution += rows * (size_t)lm->info.vocabulary;
    if (out->keys) out->keys += rows * (size_t)lm->info.key_width;
}

// Each opens what it can serve: KNNLM_ENOTSUP otherwise.
knnlm_status kn_native_open(const char *path, const kn_lm_options *options, kn_lm **out);
knnlm_status kn_llama_open(const char *path, const kn_lm_options *options, kn_lm **out);

// The identity of a model is its file, or all the files that it is split into, to the last bit: fills
// fingerprint and file_bytes.
knnlm_status kn_lm_identify(const char *path, const kn_progress *progress, kn_lm_info *info);

#endif
