// The softmax: one cluster (plain) or several (adaptive), read without ever holding a row of logits per
// token.
#ifndef KN_LM_NATIVE_HEAD_H
#define KN_LM_NATIVE_HEAD_H

#include "lm/native/layers.h"

// h (rows, width): final states, after the final norm where there is one.
// Each output may be NULL; `targets` is needed for logprobs.
knnlm_status kn_head_run(const kn_weights *w, const float *h, size_t rows, const int32_t *targets,
                         float *logprobs, float *entropies, float *distribution);

#endif
