// Requests as clients write them: JSON to what is asked for. Everything is checked but what needs the model
// or the stores. Not a door: only this room includes it.
#ifndef KN_SERVE_REQUEST_H
#define KN_SERVE_REQUEST_H

#include "generate/generate.h"
#include "serve/http_error.h"

#include <jansson.h>

enum {
    KN_PROMPTS_MAX = 1024,
    KN_CHOICES_MAX = 16,
    KN_NEIGHBORS_MAX = 4096, // more make no difference, but to the memory of a batch
    KN_STOPS_MAX = 16,
    KN_LOGPROBS_MAX = 20,
    KN_TEMPERATURES_MAX = 64,
    KN_EXPLAINED_MAX = 100, // words, neighbours
    KN_AROUND_MAX = 1000,
    KN_SPAN_MAX = 16384, // tokens of a passage
    KN_NAMES_MAX = 1024, // stores or documents
    KN_BIASES_MAX = 1024,
    KN_MESSAGES_MAX = 4096,
    KN_INPUTS_MAX = 2048, // texts of /v1/embeddings
};

// The text of a body as JSON; NULL: broken (error set).
json_t *kn_request_load(const char *body, size_t size, kn_http_error *err);

// The knn member.
typedef struct kn_knn_request {
    double lambda, temperature; // NAN: not given
    int64_t k;                  // 0: not given
    const char **stores;        // names; NULL: all
    size_t store_count;
    const char **only, **except; // patterns of documents' names; NULL: not given
    size_t only_count, except_count;
    bool fallback, explain, carry, cache, exclude_self;
    double temperatures[KN_TEMPERATURES_MAX];
    size_t temperature_count;
} kn_knn_request;
// Strings belong to `root`. To be freed whatever it returns.
bool kn_knn_parse(const json_t *root, kn_knn_request *out, kn_http_error *err);
void kn_knn_free(kn_knn_request *knn);

// A text, or tokens. Owned by the JSON, but for tokens.
typedef struct kn_prompt {
    const char *text; // NULL: tokens
    size_t size;
    int32_t *tokens;
    size_t count;
} kn_prompt;
// The member `name`, which is there: one of them, or several. To be freed whatever it returns.
bool kn_prompts_parse(const json_t *root, const char *name, size_t max, kn_prompt **out, size_t *count,
                      kn_http_error *err);
void kn_prompt_free(kn_prompt *p);

typedef struct kn_completion_request {
    kn_prompt *prompts;
    size_t prompt_count;
    kn_sampling sampling;
    kn_logit_bias *biases;
    size_t bias_count;
    const char *stops[KN_STOPS_MAX + 1]; // one more may be added
    size_t stop_count, max_tokens, choices;
    size_t best_of; // choices are the best of so many
    uint64_t seed;
    bool seed_given, stream, include_usage, echo;
    int logprobs; // negative: none
    kn_knn_request knn;
    bool chat; // the prompt is these messages
    kn_chat_message *messages;
    size_t message_count;
} kn_completion_request;

// Strings belong to `root`, which must last as long. To be freed whatever it returns.
bool kn_completion_parse(const json_t *root, kn_completion_request *out, kn_http_error *err);
// The same of a conversation; max_tokens 0: not given.
bool kn_chat_parse(const json_t *root, kn_completion_request *out, kn_http_error *err);
void kn_completion_free(kn_completion_request *r);

enum { KN_DOCUMENT_GAINS_MAX = 10000 };
typedef struct kn_score_request {
    kn_prompt text;
    size_t documents; // whose gain is told, at most
    kn_knn_request knn;
} kn_score_request;
// To be freed whatever it returns.
bool kn_score_parse(const json_t *root, kn_score_request *out, kn_http_error *err);
void kn_score_free(kn_score_request *r);

typedef struct kn_explain_request {
    kn_prompt context;
    const char *target; // NULL: none, or a token
    int64_t target_token;
    size_t words, neighbors, around;
    kn_knn_request knn;
} kn_explain_request;
// To be freed whatever it returns.
bool kn_explain_parse(const json_t *root, kn_explain_request *out, kn_http_error *err);
void kn_explain_free(kn_explain_request *r);

// A text of /tokenize, the ids of /detokenize.
bool kn_tokenize_parse(const json_t *root, kn_prompt *out, bool *special, kn_http_error *err);
bool kn_detokenize_parse(const json_t *root, kn_prompt *out, kn_http_error *err);
// The text to tune on; none: the store's own.
bool kn_tune_parse(const json_t *root, kn_prompt *text, kn_http_error *err);
// A document to be added.
bool kn_document_parse(const json_t *root, const char **name, kn_prompt *text, kn_http_error *err);

typedef struct kn_embedding_request {
    kn_prompt *inputs;
    size_t input_count;
    bool base64, last, keep_length; // last: the state after the last token; else the mean of all
} kn_embedding_request;
// To be freed whatever it returns.
bool kn_embedding_parse(const json_t *root, int64_t width, kn_embedding_request *out, kn_http_error *err);
void kn_embedding_free(kn_embedding_request *r);

#endif
