// Bodies of requests: whatever they hold, they are read or refused with an error that is itself JSON.
#include "serve/json.h"
#include "serve/request.h"

#include <stdint.h>
#include <stdlib.h>

static void check(bool fine, const kn_http_error *err) {
    if (fine) return;
    json_t *json = kn_json_error(err);
    if (!json || err->status < 400 || err->status > 599 || !*err->message) abort();
    json_decref(json);
}

static void parse_all(const json_t *root) {
    kn_http_error err = {0};
    kn_completion_request completion;
    kn_score_request score;
    kn_explain_request explain;
    kn_prompt prompt;
    kn_embedding_request embedding;
    const char *name;
    bool special;
    check(kn_completion_parse(root, &completion, &err), &err);
    kn_completion_free(&completion);
    check(kn_chat_parse(root, &completion, &err), &err);
    kn_completion_free(&completion);
    check(kn_embedding_parse(root, 8, &embedding, &err), &err);
    kn_embedding_free(&embedding);
    check(kn_tune_parse(root, &prompt, &err), &err);
    check(kn_score_parse(root, &score, &err), &err);
    kn_score_free(&score);
    check(kn_explain_parse(root, &explain, &err), &err);
    kn_explain_free(&explain);
    check(kn_tokenize_parse(root, &prompt, &special, &err), &err);
    kn_prompt_free(&prompt);
    check(kn_detokenize_parse(root, &prompt, &err), &err);
    kn_prompt_free(&prompt);
    check(kn_document_parse(root, &name, &prompt, &err), &err);
    kn_prompt_free(&prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_http_error err = {0};
    json_t *root = kn_request_load((const char *)data, size, &err);
    check(root != NULL, &err);
    if (root) parse_all(root);
    json_decref(root);
    return 0;
}
