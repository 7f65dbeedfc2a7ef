// Opens the model or the checkpoint that a run begins from.
#include "train/start.h"

#include "lm/lm.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

// The engine opens it once, so that whatever it would refuse is refused here, and in its words.
static knnlm_status check_runs(const char *path, const kn_progress *progress, kn_start *s) {
    kn_lm_options options = {.engine = KNNLM_ENGINE_NATIVE, .progress = progress};
    kn_lm *lm;
    knnlm_status status = kn_lm_open(path, &options, &lm);
    if (status == KNNLM_ENOTSUP)
        return kn_fail(status, "%s: only models of the native engine can be trained, not llama.cpp's",
                       knnlm_message());
    if (status != KNNLM_OK) return status;
    memcpy(s->fingerprint, kn_lm_describe(lm)->fingerprint, sizeof s->fingerprint);
    kn_lm_close(lm);
    return KNNLM_OK;
}

static knnlm_status read_file(const char *path, kn_start *s) {
    KN_TRY(kn_gguf_open(path, &s->file));
    KN_TRY(kn_config_load(s->file, &s->config));
    KN_TRY(kn_model_length(s->file, &s->config, &s->length));
    return kn_tokenizer_load_gguf(s->file, &s->tokenizer);
}

knnlm_status kn_start_open(const char *path, const kn_progress *progress, kn_start *out) {
    *out = (kn_start){0};
    knnlm_status status = check_runs(path, progress, out);
    if (status == KNNLM_OK) status = read_file(path, out);
    if (status != KNNLM_OK) kn_start_free(out);
    return status;
}

static knnlm_status check_same(const char *checkpoint, const char *from, const kn_progress *progress,
                               const char *fingerprint) {
    kn_start given;
    if (!*fingerprint)
        return kn_fail(KNNLM_EINVAL, "%s: the run began from no model: resume it without `from`", checkpoint);
    KN_TRY(kn_start_open(from, progress, &given));
    bool same = strcmp(given.fingerprint, fingerprint) == 0;
    kn_start_free(&given);
    if (same) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL,
                   "%s: the run began from another model than %s: resume it with that one, or without `from`",
                   checkpoint, from);
}

knnlm_status kn_start_resume(const char *checkpoint, const char *from, const kn_progress *progress,
                             kn_start *out) {
    *out = (kn_start){0};
    knnlm_status status = read_file(checkpoint, out);
    if (status == KNNLM_OK) status = kn_checkpoint_from(out->file, out->fingerprint);
    if (status == KNNLM_OK && from) status = check_same(checkpoint, from, progress, out->fingerprint);
    kn_gguf_close(out->file);
    out->file = NULL;
    if (status != KNNLM_OK) kn_start_free(out);
    return status;
}

void kn_start_free(kn_start *s) {
    kn_tokenizer_free(s->tokenizer);
    kn_gguf_close(s->file);
    *s = (kn_start){0};
}
