// The model that a run begins from: its shape, tokenizer and parameters, where they are not made anew.
#ifndef KN_TRAIN_START_H
#define KN_TRAIN_START_H

#include "base/fingerprint.h"
#include "base/progress.h"
#include "lm/native/config.h"
#include "text/tokenizer.h"

typedef struct kn_start {
    kn_gguf *file; // has the parameters; NULL: a run that goes on has them in its checkpoint
    kn_config config;
    kn_tokenizer *tokenizer;
    int32_t length;                   // tokens of the windows it was trained on
    char fingerprint[KN_FINGERPRINT]; // of the model's file; "": a run that goes on began from none
} kn_start;

// Any model that the native engine runs; a checkpoint is one, too. KNNLM_ENOTSUP: llama.cpp alone can run it;
// KNNLM_EIO, KNNLM_EDATA, KNNLM_ENOMEM, KNNLM_ESTOPPED as from kn_lm_open.
knnlm_status kn_start_open(const char *path, const kn_progress *progress, kn_start *out);
// What the run of a checkpoint began from. `from` (NULL: whatever it was) must then be that model:
// KNNLM_EINVAL.
knnlm_status kn_start_resume(const char *checkpoint, const char *from, const kn_progress *progress,
                             kn_start *out);
void kn_start_free(kn_start *s); // also one of zeros

#endif
