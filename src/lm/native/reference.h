// The native model in plain loops: f64, one position after the other, nothing packed. Slow, and made to be
// read: newcomers begin here, and tests hold the kernels against it. It takes from the rest of the room only
// the configuration and the names of the parameters.
#ifndef KN_LM_NATIVE_REFERENCE_H
#define KN_LM_NATIVE_REFERENCE_H

#include "lm/lm.h"
#include "lm/native/config.h"

enum { KN_TAP_POINTS = KN_TAP_OUTPUT + 1 };

typedef struct kn_reference {
    const kn_config *config;
    const kn_layout *layout;
    const double *params; // where the layout places them
} kn_reference;

// Log-probabilities (length, vocabulary) after each token of one window, and the states at every tap (layers,
// KN_TAP_POINTS, length, width); each may be NULL. KNNLM_ENOMEM.
knnlm_status kn_reference_run(const kn_reference *r, const int32_t *tokens, int length, double *logprobs,
                              double *taps);
// Summed negative log-probability of the targets.
knnlm_status kn_reference_loss(const kn_reference *r, const int32_t *inputs, const int32_t *targets,
                               int length, double *loss);

#endif
