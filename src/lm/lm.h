// The only door to language models: token windows in, log-probabilities and context vectors f(c) out.
//
// Behind it: native/ (the paper's Transformer and GPT-2's shape) and llama/ (any other GGUF, through
// llama.cpp), recognised by the file. A kn_lm is used by one thread at a time and spreads its own work over
// threads (base/threads.h says how many); several may be open at once.
#ifndef KN_LM_H
#define KN_LM_H

#include "base/progress.h"
#include "base/status.h"
#include "math/math.h"
#include "text/tokenizer.h"

typedef struct kn_lm kn_lm;

// What llama.cpp has to say, a line at a time without its end. `fatal`: its last words, the process ends.
typedef void kn_lm_log(const char *line, bool fatal);

typedef struct kn_lm_options {
    knnlm_precision precision; // llama: f32 keeps keys and values in f32; bf16 and int16 are not for it
    knnlm_engine engine;
    bool vouched;                // the caller says that this is as good as the model that fingerprints name
    kn_lm_log *log;              // NULL: nobody listens. One for the process: that of the model opened last
    const kn_progress *progress; // of opening: large files take their time. NULL: nobody listens
} kn_lm_options;

typedef struct kn_lm_info {
    const char *path, *architecture, *engine, *kernels; // kernels: the instruction set that serves
    int32_t vocabulary, width, layers, heads, ffn, context;
    int32_t window; // tokens read at a time where nobody says otherwise: as the model was trained, where its
                    // file tells; at most `context`
    int32_t stream; // tokens of a window that has a past (kn_past); 0: the model knows none
    int32_t reach;  // of such a model: tokens before a position that its numbers depend on, at most
    int32_t key_width; // of a tapped state
    uint64_t parameters;
    uint64_t file_bytes;
    char fingerprint[KN_FINGERPRINT]; // of the whole file, or of all its parts
    bool vouched;
} kn_lm_info;

// `options` may be NULL. KNNLM_EIO, KNNLM_EDATA: the file; KNNLM_EINVAL: options that do not fit it;
// KNNLM_ENOTSUP: no engine serves such a model; KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_lm_open(const char *path, const kn_lm_options *options, kn_lm **out);
void kn_lm_close(kn_lm *lm);
const kn_lm_info *kn_lm_describe(const kn_lm *lm);
const kn_tokenizer *kn_lm_tokenizer(const kn_lm *lm); // owned by the model
// Whether a token ends a text: the end of a text, or of a turn of a conversation.
bool kn_lm_ends(const kn_lm *lm, int32_t token);

// ---------------------------------------------------------------- conversations

typedef struct kn_chat_message {
    const char *role; // "system", "user" or "assistant"
    const char *content;
} kn_chat_message;

// The template of conversations that the model's file has, in Jinja; NULL: none. Owned by the model.
const char *kn_lm_chat_template(const kn_lm *lm);
// Appends the tokens of a conversation by that template, up to where the assistant is to speak, without a
// start token. Contents are text: what looks like a control token in them is none. KNNLM_ENOTSUP: there is
// no template, or none that is known; KNNLM_ENOMEM.
knnlm_status kn_lm_chat(const kn_lm *lm, const kn_chat_message *messages, size_t count, kn_tokens *out);

// The release of llama.cpp that models would run on; NULL where this was built without it.
const char *kn_llama_release(void);
// The folder that holds its library; NULL where there is none.
const char *kn_llama_folder(void);

// ---------------------------------------------------------------- taps

// Where in a layer the context vector is taken. The paper's six; its choice is the first.
typedef enum kn_tap_point {
    KN_TAP_FFN_INPUT,     // "ffn": input of the feed-forward part, after its LayerNorm
    KN_TAP_FFN_INPUT_RAW, // "ffn-raw": before it
    KN_TAP_ATTENTION,     // "attention": input of self-attention, after its LayerNorm
    KN_TAP_ATTENTION_RAW, // "attention-raw": before it
    KN_TAP_OUTPUT_NORM,   // "output-norm": output of the layer after the LayerNorm that follows it (the next
                          // layer's, the final one, or one without weights where the model has none)
    KN_TAP_OUTPUT,        // "output": output of the layer
} kn_tap_point;

typedef struct kn_tap {
    kn_tap_point point;
    int32_t layer; // 0-based; negative counts from the end (-1: the last)
} kn_tap;

#define KN_TAP_DEFAULT ((kn_tap){KN_TAP_FFN_INPUT, -1})

// "ffn", "output-norm", …, with an optional "@LAYER" ("ffn@3", "output@-2").
knnlm_status kn_tap_parse(const char *text, kn_tap *out);
const char *kn_tap_name(kn_tap_point point);
// The tap of this model with its layer counted from the start: one text for one place. KNNLM_EINVAL: no such
// layer.
enum { KN_TAP_TEXT = 32 };
knnlm_status kn_tap_print(const kn_lm *lm, kn_tap tap, char out[KN_TAP_TEXT]);

// Of `count` tokens or entries that are little work for models of up to 250M parameters, as many as take a
// larger one about as long.
uint64_t kn_lm_afford(const kn_lm *lm, uint64_t count);

// ---------------------------------------------------------------- windows

// What a model whose attention has a sliding window carries from one window of a text to the next: the keys
// and values that later positions still see. A text of any length is then read as a stream, no token twice,
// with the same numbers whatever is read beside it.
typedef struct kn_past kn_past;
// KNNLM_ENOTSUP: the model has no sliding window. To be closed before the model.
knnlm_status kn_past_open(kn_lm *lm, kn_past **out);
// The past of a text of which nothing before `position` (a multiple of `stream`) was read: from `reach`
// tokens after it on, numbers are those of the whole text, to the bit.
knnlm_status kn_past_open_at(kn_lm *lm, size_t position, kn_past **out);
void kn_past_close(kn_past *past);

// A window: position i reads inputs[0..i] and predicts targets[i]. Positions below `first` are context only.
// With a past it goes on where the window before it with the same past ended; all but the last one of a text
// have `stream` tokens, and all are run for the same tap and the same kinds of results. After a failure a
// past can only be closed.
typedef struct kn_window {
    const int32_t *inputs;
    const int32_t *targets; // NULL where no log-probability is wanted
    int32_t length, first;
    kn_past *past; // NULL: the window stands alone
} kn_window;

// Where the results go, a row for every scored position, window after window. NULL: not wanted. Entropies
// cost little more than log-probabilities; of adaptive vocabularies they need every cluster for every row.
typedef struct kn_lm_output {
    float *logprobs;     // (rows): natural logarithm of the target's probability
    float *entropies;    // (rows): of the model's distribution, in nats
    float *distribution; // (rows, vocabulary): log-probabilities
    float *keys;         // (rows, key_width): the tapped states
} kn_lm_output;

// Runs a batch of windows. Work that only unwanted results need is not done: with keys alone the model stops
// at the tap. KNNLM_EINVAL: token out of range, window longer than the context; KNNLM_ENOTSUP: the model has
// no such tap; KNNLM_ENOMEM.
knnlm_status kn_lm_run(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                       const kn_lm_output *out);

// ---------------------------------------------------------------- one token after another

// A sequence with its key/value cache: same numbers as kn_lm_run, to rounding. That of a model with a sliding
// window has no end; others hold a context.
typedef struct kn_session kn_session;
knnlm_status kn_session_open(kn_lm *lm, kn_session **out);
void kn_session_close(kn_session *session);
// Reads `count` tokens after those already read; the results are those of the last of them (rows = 1;
// logprobs and targets do not apply). KNNLM_EINVAL when the context would overflow: nothing is read then.
knnlm_status kn_session_feed(kn_session *session, const int32_t *tokens, size_t count, kn_tap tap,
                             const kn_lm_output *out);
// The same, but the results are those of every token: logprobs are of targets[i] after token i.
knnlm_status kn_session_score(kn_session *session, const int32_t *tokens, const int32_t *targets,
                              size_t count, kn_tap tap, const kn_lm_output *out);
// Reads one more token in each of several sessions of one model, none of them twice: row i of the results is
// that of session i, the same as from kn_session_feed (of models through llama.cpp: to rounding).
// KNNLM_EINVAL as there: nothing is read then; after another failure the sessions can only be closed.
knnlm_status kn_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens, kn_tap tap,
                              const kn_lm_output *out);
size_t kn_session_length(const kn_session *session);
// Tokens that a session of this model may hold.
size_t kn_session_room(const kn_lm *lm);
// Forgets all but the first `length` tokens; those of a session without end can only be forgotten all (0).
void kn_session_cut(kn_session *session, size_t length);

#endif
