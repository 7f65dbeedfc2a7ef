// Checkpoints: everything a run needs to go on, in one GGUF written atomically:
//   1. the model's configuration and tokenizer, as in a model file
//   2. knnlm.train.*: step, seed, settings, hash of the corpus, best validation loss, optimiser's counters,
//      fingerprint of the model that the run began from
//   3. every parameter in f32 under its name; its moments under "m." and "v." before the name
#ifndef KN_TRAIN_CHECKPOINT_H
#define KN_TRAIN_CHECKPOINT_H

#include "train/train.h"

typedef struct kn_train_state {
    int64_t step;
    double best;   // validation loss; INFINITY: none yet
    float *params; // flat
    kn_optimizer optimizer;
} kn_train_state;

knnlm_status kn_checkpoint_save(const char *path, const kn_train_options *o, const kn_layout *layout,
                                const kn_train_state *state);
// Refuses a checkpoint of another model, another beginning, text, seed, window or batch, naming what differs.
knnlm_status kn_checkpoint_load(const char *path, const kn_train_options *o, const kn_layout *layout,
                                kn_train_state *state);

// The fingerprint of the model that the run began from; "": from none.
knnlm_status kn_checkpoint_from(const kn_gguf *file, char out[KN_FINGERPRINT]);

// How many updates the run was to have, and how many of them warm it up: left as it is where the checkpoint
// does not say.
knnlm_status kn_checkpoint_schedule(const char *path, int64_t *steps, int64_t *warmup);

#endif
