// Texts and settings to a trained model: what a run needs is made, checked and planned here.
#ifndef KN_TRAIN_TEXTS_H
#define KN_TRAIN_TEXTS_H

#include "train/train.h"

// As knnlm_train, with options that were taken: `texts` is not NULL, and has the split.
knnlm_status kn_train_texts(const char *const *texts, size_t count, const char *output,
                            const knnlm_train_options *options, knnlm_train_result *out);

// The settings of a run, from what was given and what the preset, the optimizer or a model before it say.
knnlm_status kn_train_settings_config(const knnlm_train_options *given, int32_t vocabulary, kn_config *out);
void kn_train_settings_run(const knnlm_train_options *given, kn_train_options *o);
void kn_train_settings_optimizer(const knnlm_train_options *given, kn_train_options *o);
// The first field of the shape that was given; NULL: none.
const char *kn_train_settings_shape(const knnlm_train_options *given);

#endif
