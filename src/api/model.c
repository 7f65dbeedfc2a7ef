// The public functions about models.
#include "api/api.h"
#include "read/read.h"

#include <stdlib.h>
#include <string.h>

// A public model is a kn_lm under another name.
static kn_lm *lm_of(knnlm_model *model) {
    return (kn_lm *)model;
}
static const kn_lm *const_lm_of(const knnlm_model *model) {
    return (const kn_lm *)model;
}

API_DEFAULTS(knnlm_model_options)

API_DEFAULTS(knnlm_score_options, .context = -1)

knnlm_status knnlm_model_open(const char *path, const knnlm_model_options *options, knnlm_model **out) {
    knnlm_model_options given;
    *out = NULL;
    KN_TRY(API_TAKE(knnlm_model_options, options, &given));
    kn_lm_options o = {.precision = given.precision,
                       .engine = given.engine,
                       .vouched = given.accept,
                       .log = given.log,
                       .progress = &given.progress};
    kn_lm *lm;
    KN_TRY(kn_lm_open(path, &o, &lm));
    *out = (knnlm_model *)lm;
    return KNNLM_OK;
}

void knnlm_model_close(knnlm_model *model) {
    kn_lm_close(lm_of(model));
}

void knnlm_model_describe(const knnlm_model *model, knnlm_model_info *out) {
    const kn_lm_info *i = kn_lm_describe(const_lm_of(model));
    *out = (knnlm_model_info){
        .path = i->path,
        .architecture = i->architecture,
        .engine = i->engine,
        .kernels = i->kernels,
        .tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(kn_lm_tokenizer(const_lm_of(model)))),
        .vocabulary = i->vocabulary,
        .width = i->width,
        .layers = i->layers,
        .heads = i->heads,
        .ffn = i->ffn,
        .context = i->context,
        .window = i->window,
        .key_width = i->key_width,
        .parameters = i->parameters,
        .file_bytes = i->file_bytes};
    memcpy(out->fingerprint, i->fingerprint, sizeof out->fingerprint);
}

knnlm_status api_encode(const kn_tokenizer *t, const char *text, size_t size, int32_t **tokens,
                        size_t *count) {
    kn_tokens list = {0};
    knnlm_status status = kn_tokenizer_encode(t, text, size, &list);
    if (status != KNNLM_OK) {
        kn_tokens_free(&list);
        return status;
    }
    *tokens = list.ids;
    *count = list.count;
    return KNNLM_OK;
}

knnlm_status knnlm_model_encode(const knnlm_model *model, const char *text, size_t size, int32_t **tokens,
                                size_t *count) {
    return api_encode(kn_lm_tokenizer(const_lm_of(model)), text, size, tokens, count);
}

// A prompt of a space alone stays what it is: there is nothing for the word to follow.
knnlm_status knnlm_model_encode_prompt(const knnlm_model *model, const char *text, size_t size,
                                       int32_t **tokens, size_t *count, bool *space) {
    *space = size > 1 && text[size - 1] == ' ';
    return knnlm_model_encode(model, text, *space ? size - 1 : size, tokens, count);
}

knnlm_status knnlm_model_decode(const knnlm_model *model, const int32_t *tokens, size_t count, char **text,
                                size_t *size) {
    return kn_tokenizer_decode(kn_lm_tokenizer(const_lm_of(model)), tokens, count, text, size);
}

static knnlm_status copy_logprobs(void *context, const kn_records *r) {
    memcpy((float *)context + r->position, r->logprobs, r->count * sizeof(float));
    return KNNLM_OK;
}

knnlm_status knnlm_model_score(knnlm_model *model, const int32_t *tokens, size_t count,
                               const knnlm_score_options *options, float *logprobs) {
    knnlm_score_options given;
    KN_TRY(API_TAKE(knnlm_score_options, options, &given));
    kn_read_options o = {
        .score = given.score, .context = given.context, .tap = KN_TAP_DEFAULT, .logprobs = true};
    return kn_read_tokens(lm_of(model), tokens, count, &o, copy_logprobs, logprobs);
}

typedef struct states {
    float *out;
    size_t d;
} states;

static knnlm_status copy_states(void *context, const kn_records *r) {
    const states *s = context;
    memcpy(s->out + r->position * s->d, r->keys, r->count * s->d * sizeof(float));
    return KNNLM_OK;
}

knnlm_status knnlm_model_states(knnlm_model *model, const int32_t *tokens, size_t count, const char *tap,
                                const knnlm_score_options *options, float *out) {
    knnlm_score_options given;
    KN_TRY(API_TAKE(knnlm_score_options, options, &given));
    states s = {out, (size_t)kn_lm_describe(lm_of(model))->key_width};
    kn_read_options o = {.score = given.score, .context = given.context, .tap = KN_TAP_DEFAULT, .keys = true};
    if (tap) KN_TRY(kn_tap_parse(tap, &o.tap));
    return kn_read_tokens(lm_of(model), tokens, count, &o, copy_states, &s);
}
