// The continuous cache of a text that grows: its own states, each with the token that followed it, as
// neighbours of the next (mix/cache.h has the same for texts that are there already).
#ifndef KN_GENERATE_STATES_H
#define KN_GENERATE_STATES_H

#include "knn/distribution.h"

// Zero-initialise.
typedef struct kn_states {
    bool read;   // the prompt's are there
    float *keys; // (count, width)
    int32_t *values;
    float *norms; // squared lengths
    size_t count, key_capacity, value_capacity, norm_capacity;
    float *distances; // of the state at hand
    double *shares;
    size_t distance_capacity, share_capacity;
} kn_states;

void kn_states_free(kn_states *s);
// The prompt's, as the model reads it after the start token; once. All of these do nothing where the mixture
// has no cache. KNNLM_ENOMEM; else as kn_lm_run.
knnlm_status kn_states_read(kn_states *s, kn_lm *lm, const kn_mixture_info *m, const int32_t *prompt,
                            size_t count, kn_tap tap);
// One more: the state, and the token that followed it. KNNLM_ENOMEM.
knnlm_status kn_states_add(kn_states *s, const kn_mixture_info *m, const float *state, int32_t token);
// What they say of the next token has the cache's weight, which is taken from the model's. KNNLM_ENOMEM.
knnlm_status kn_states_mix(kn_states *s, const kn_mixture_info *m, const float *state, kn_distribution *g);

#endif
