// Training: a corpus becomes a native model. What the run was is in its checkpoint, from which it goes on bit
// for bit.
#ifndef KN_TRAIN_H
#define KN_TRAIN_H

#include "base/progress.h"
#include "train/corpus.h"
#include "train/gradient.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/start.h"

typedef struct kn_train_options {
    kn_config config;      // with its vocabulary
    const kn_start *start; // the model that the run begins from, of that config; NULL: new parameters
    const kn_tokenizer *tokenizer;
    const kn_corpus *corpus, *valid; // valid NULL: none
    const char *output;              // model file; the checkpoint stands beside it: OUTPUT.checkpoint.
                                     // NULL: nothing is written (a trial of the speed)
    kn_gguf_type type;               // of the model file's matrices
    bool resume;
    int64_t steps;
    size_t length; // tokens of a window
    size_t batch;  // tokens of an update
    size_t micro;  // tokens that are in memory at a time
    kn_schedule schedule;
    kn_optimizer_options optimizer;
    kn_dropout dropout; // its key is set by the run
    uint64_t seed;
    knnlm_precision precision;
    int64_t valid_every, save_every, report_every; // steps; 0: only at the end
    double save_seconds;                           // also when so much time has passed; 0: not
    size_t valid_tokens;                           // at most so many tokens of `valid` are scored; 0: all
    void (*report)(void *context, const knnlm_train_report *report);
    // Asked after every update; true: write a checkpoint and stop with KNNLM_ESTOPPED.
    bool (*stop)(void *context);
    void *context;
} kn_train_options;

void kn_train_defaults(kn_train_options *o);
// A run that is resumed with no steps left reports once, and changes nothing.
// KNNLM_ESTOPPED: stopped by `stop`, checkpoint written. KNNLM_EDATA: the loss left the numbers (last
// checkpoint kept), or the checkpoint is of another run. The model file is written at every best validation,
// or at the end without one.
knnlm_status kn_train_run(const kn_train_options *o);

#endif
