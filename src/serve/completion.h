// A request for completions on its way to an answer. Not a door: only this room includes it.
#ifndef KN_SERVE_COMPLETION_H
#define KN_SERVE_COMPLETION_H

#include "serve/prompt.h"
#include "serve/server.h"

typedef struct kn_choice {
    size_t number, prompt;
    kn_request_task *task;          // NULL: nothing is generated
    bool next_made, echoed, spoken; // spoken: a stream has told whose words they are
    bool space;                     // the prompt ended with one, which the first word brings again
    size_t skipped;                 // characters of the generated text that the prompt has already
    size_t base;                    // characters of the echoed prompt
    const char *finish;             // NULL: not yet
} kn_choice;

typedef struct kn_completion {
    kn_exchange *x; // gone once the answer is
    kn_server *server;
    kn_served_model *model;
    json_t *root; // a reference of its own: a stream outlives the exchange's
    kn_completion_request r;
    kn_read_prompt *prompts;
    kn_request_job job;
    kn_request_task *tasks; // scores of prompts first
    size_t task_count, score_count;
    kn_choice *choices;
    size_t choice_count;
    char id[32];
    int64_t created;
    bool submitted; // by a stream: to be ended with it
    // of a stream: events that wait to be sent
    char *out;
    size_t out_size, out_capacity, out_sent;
    double last_sent; // when something was sent last
    bool ended;
} kn_completion;

void kn_completion_close(void *completion);
// Takes the completion.
enum MHD_Result kn_completion_stream(kn_completion *a);

// What becomes one member of "choices".
typedef struct kn_slice {
    char *text;
    size_t size, capacity;
    json_t *tokens, *logprobs, *tops, *offsets; // of "logprobs"; NULL: not wanted. Of chat: tokens alone
    json_t *knn_tokens, *sources;               // of "knn"; NULL: not wanted
} kn_slice;

kn_slice kn_slice_open(const kn_completion *a);
bool kn_slice_prompt(const kn_completion *a, kn_choice *choice, kn_slice *slice);
bool kn_slice_chunk(const kn_completion *a, kn_choice *choice, const kn_chunk *chunk, kn_slice *slice);
// The choice as JSON, in a stream the chunk's; releases the slice.
json_t *kn_slice_close(const kn_completion *a, kn_choice *choice, kn_slice *slice);
// The next chunk of a choice, the caller's, in *out (NULL: none yet); false: no memory. Takes the job's lock.
bool kn_choice_take(kn_completion *a, kn_choice *choice, kn_chunk **out);
// Around choices, which it takes.
json_t *kn_completion_frame(const kn_completion *a, json_t *choices, bool usage);
json_t *kn_completion_usage(const kn_completion *a);

// ---------------------------------------------------------------- chat (chat.c)

// The messages as a prompt: by the model's own template, else by a plain one, which brings a stop of its own.
bool kn_chat_read(kn_completion *a, kn_read_prompt *out, kn_http_error *err);
// An entry of its "logprobs".
json_t *kn_chat_logprob(const kn_completion *a, const kn_generated *token);
// The choice around its text and "logprobs", both of which it takes.
json_t *kn_chat_choice(const kn_completion *a, kn_choice *choice, json_t *text, json_t *logprobs);

#endif
