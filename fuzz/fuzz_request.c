// Bodies of requests: whatever they hold, they are read or refused with a complaint that is itself JSON.
#include "serve/request.h"

#include <stdint.h>
#include <stdlib.h>

static void check(bool fine, const kn_complaint *c) {
    if (fine) return;
    json_t *json = kn_complaint_json(c);
    if (!json || c->status < 400 || c->status > 599 || !*c->message) abort();
    json_decref(json);
}

static void parse_all(const json_t *root) {
    kn_complaint c = {0};
    kn_completion_request completion;
    kn_score_request score;
    kn_explain_request explain;
    kn_prompt prompt;
    const char *name;
    bool special;
    check(kn_completion_parse(root, &completion, &c), &c);
    kn_completion_free(&completion);
    check(kn_score_parse(root, &score, &c), &c);
    kn_prompt_free(&score.text);
    check(kn_explain_parse(root, &explain, &c), &c);
    kn_prompt_free(&explain.context);
    check(kn_tokenize_parse(root, &prompt, &special, &c), &c);
    kn_prompt_free(&prompt);
    check(kn_detokenize_parse(root, &prompt, &c), &c);
    kn_prompt_free(&prompt);
    check(kn_document_parse(root, &name, &prompt, &c), &c);
    kn_prompt_free(&prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_complaint c = {0};
    json_t *root = kn_request_load((const char *)data, size, &c);
    check(root != NULL, &c);
    if (root) parse_all(root);
    json_decref(root);
    return 0;
}
