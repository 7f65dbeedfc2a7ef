// The llama engine's model: what its verbs share.
//   open.c     a file to a model and its description
//   vocab.c    its vocabulary as a tokenizer
//   decode.c   a context of llama.cpp's: rows of tokens through the graph
//   observe.c  the taps, by the names of the graph's tensors
//   score.c    logits to log-probabilities, while they last
//   windows.c  windows as sequences of a batch
//   session.c  one token after another
//   slots.c    which context a session lives in, so that several step in one batch
//   chat.c     conversations by the file's template
#ifndef KN_LM_LLAMA_ENGINE_H
#define KN_LM_LLAMA_ENGINE_H

#include "lm/engine.h"
#include "lm/llama/library.h"

// Tokens that go through the graph at a time, at most: more do not make it faster. Every one that is scored
// has a row of logits, and each a row of attention scores per head: so many of each fit, and no more.
enum { KN_LLAMA_ROWS = 1024, KN_LLAMA_LOGITS = 32 << 20, KN_LLAMA_SCORES = 128 << 20 };
// Numbers of rows are multiples of this: kernels of some types have another way, with another rounding, for
// the rows that are left, and what a window gives must not depend on what is beside it.
enum { KN_LLAMA_CELL = 4 };

typedef struct kn_llama {
    kn_lm lm;
    const kn_llama_library *api;
    struct llama_model *model;
    const struct llama_vocab *vocab;
    const kn_kernels *kernels;
    bool full;                       // keys and values in f32
    bool sequential;                 // its state is not made for several sequences in a batch
    char *architecture;              // owned; in lm.info too
    struct kn_llama_context *shared; // for windows; made when the first ones come
    struct kn_llama_slots *slots;    // of sessions: a list
    struct kn_llama_session *open;   // sessions: a list
} kn_llama;

// ---------------------------------------------------------------- taps

enum { KN_TENSOR_NAME = 64 };

// What is taken of a graph while it is computed.
typedef struct kn_observer {
    const kn_llama_library *api;
    char name[KN_TENSOR_NAME]; // of the tensor; "": nothing is taken
    bool input;                // what the tensor, a norm, is taken of is meant
    bool stop;                 // what comes after the tensor is not wanted
    bool keep;                 // the sequence goes on after this batch: its memory must survive the stop
    size_t width;
    const int32_t *rows;            // of the batch, those wanted, ascending
    const int32_t *places;          // of these among the rows that come out
    const int64_t *results;         // row of the results that each of them is
    size_t wanted, outputs, tokens; // how many; how many come out; how many rows the batch has
    float *keys;                    // (rows of the results, width)
    size_t taken;                   // rows that came
    bool aborting, unusual;         // unusual: the tensor is not as expected
    int64_t shape[2];               // of it
    void (*seen)(void *context, const char *name, int64_t width); // of every tensor, instead of taking any
    void *context;
} kn_observer;

bool kn_observe(struct ggml_tensor *tensor, bool ask, void *observer);
bool kn_observe_abort(void *observer);
// Points the observer to a tap.
void kn_observer_aim(kn_observer *o, const kn_llama *m, kn_tap tap);
// The failure of a model without the tap: it tells which there are.
knnlm_status kn_llama_no_tap(kn_llama *m, kn_tap tap);
knnlm_status kn_llama_odd_tap(const kn_llama *m, kn_tap tap, const kn_observer *o);

// ---------------------------------------------------------------- decoding

typedef struct kn_llama_context {
    kn_llama *m;
    struct llama_context *ctx;
    struct llama_batch batch;
    size_t sequences, length, rows; // sequences of `length` tokens; rows of a batch
    bool lasting;                   // what is read may be asked for more later: all of the graph is computed
    kn_observer observer;
    int32_t *wanted;  // rows of the batch whose results are
    int32_t *places;  // of these among the rows that come out: llama.cpp gives some more
    int64_t *results; // rows of the results that these are
    size_t count, outputs;
} kn_llama_context;

knnlm_status kn_llama_context_open(kn_llama *m, size_t sequences, size_t length, bool lasting,
                                   kn_llama_context **out);
void kn_llama_context_close(kn_llama_context *c);

// Fills the batch: begin, push, then run. Rows of one sequence stand together, and all sequences have as
// many; llama.cpp runs those side by side whose numbers follow each other. `result`: the row that has its
// results.
enum { KN_LLAMA_UNWANTED = -1 };
void kn_llama_begin(kn_llama_context *c);
void kn_llama_push(kn_llama_context *c, int32_t token, size_t sequence, size_t position, int64_t result);
// logprobs need `targets`, one for each row of the results. `more`: the sequences go on.
knnlm_status kn_llama_run(kn_llama_context *c, kn_tap tap, const int32_t *targets, bool more,
                          const kn_lm_output *out);
void kn_llama_clear(kn_llama_context *c);

// The batch's logits to what is wanted of them.
void kn_llama_score(const kn_llama_context *c, const float *logits, const int32_t *targets,
                    const kn_lm_output *out);

// ---------------------------------------------------------------- sessions

typedef struct kn_llama_session {
    kn_session session;
    int32_t *tokens; // read so far
    size_t length, capacity;
    size_t held;                  // of them, those that llama.cpp's memory holds
    struct kn_llama_slots *slots; // where that is; NULL: nowhere yet
    size_t slot;                  // the number of its sequence there
    struct kn_llama_session *next;
} kn_llama_session;

// A context with a sequence for each of several sessions, which step in one batch.
typedef struct kn_llama_slots {
    kn_llama_context *c;
    kn_llama_session **sessions; // (c->sequences): the first `count` are taken
    size_t count;
    struct kn_llama_slots *next;
} kn_llama_slots;

// Finds room for `length` tokens of the session. Where it is not the room that it has, nothing is held any
// more. KNNLM_ENOMEM.
knnlm_status kn_llama_slots_enter(kn_llama_session *s, size_t length);
void kn_llama_slots_leave(kn_llama_session *s);
// Forgets all that is held of a session, or of it from a position on where the model can.
void kn_llama_slots_forget(kn_llama_session *s, size_t from);

// ---------------------------------------------------------------- the rest

// A number of the file's under its architecture's name; 0 when there is none.
int32_t kn_llama_number(const kn_llama *m, const char *name);
// The tokens of a text as llama.cpp finds them, *ids released with free(). `control`: names of control tokens
// in it are those tokens. KNNLM_ENOTSUP: too long for it; KNNLM_ENOMEM.
knnlm_status kn_llama_tokenize(const kn_llama_library *api, const struct llama_vocab *vocab, const char *text,
                               size_t size, bool control, int32_t **ids, size_t *count);
const char *kn_llama_chat_template(const kn_lm *lm);
knnlm_status kn_llama_chat(const kn_lm *lm, const kn_chat_message *messages, size_t count, kn_tokens *out);
knnlm_status kn_llama_tokenizer(const kn_llama *m, const char *path, kn_tokenizer **out);
knnlm_status kn_llama_run_windows(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                                  const kn_lm_output *out);
knnlm_status kn_llama_session_open(kn_lm *lm, kn_session **out);
void kn_llama_session_close(kn_session *s);
knnlm_status kn_llama_session_feed(kn_session *s, const int32_t *tokens, const int32_t *targets, size_t count,
                                   kn_tap tap, const kn_lm_output *out);
knnlm_status kn_llama_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                    kn_tap tap, const kn_lm_output *out);
size_t kn_llama_session_length(const kn_session *s);
void kn_llama_session_cut(kn_session *s, size_t length);

#endif
