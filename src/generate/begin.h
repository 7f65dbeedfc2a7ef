// A text that has to begin with a space. Only this room includes it.
#ifndef KN_GENERATE_BEGIN_H
#define KN_GENERATE_BEGIN_H

#include "knn/distribution.h"
#include "text/tokenizer.h"

// Takes the probability from every token that would not begin with a space after `previous`. `lm` is what the
// distribution has of the model. KNNLM_ENOMEM.
knnlm_status kn_begin_with_space(const kn_tokenizer *t, int32_t previous, float *lm, kn_distribution *g);

#endif
