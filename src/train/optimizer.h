// Updates of the parameters from their gradient: AdamW, or the paper's Nesterov momentum; clipping by the
// global norm.
#ifndef KN_TRAIN_OPTIMIZER_H
#define KN_TRAIN_OPTIMIZER_H

#include "lm/native/config.h"
#include "math/math.h"

typedef struct kn_optimizer_options {
    knnlm_optimizer kind;
    float beta1, beta2, epsilon; // AdamW
    float momentum;              // Nesterov
    float muon_momentum;
    float decay; // of matrices; vectors are left alone
    float clip;  // largest norm of the gradient; 0: none
} kn_optimizer_options;

typedef struct kn_optimizer {
    kn_optimizer_options options;
    const kn_kernels *k;
    const kn_layout *layout;
    float *first, *second; // moments: flat, as the parameters; second NULL for Nesterov
    int64_t updates;
    double last_rate; // of the update before
} kn_optimizer;

knnlm_status kn_optimizer_init(kn_optimizer *o, const kn_optimizer_options *options, const kn_layout *layout,
                               const kn_kernels *k);
void kn_optimizer_free(kn_optimizer *o);
// Muon's part of an update, and whether it takes a parameter.
knnlm_status kn_muon_update(kn_optimizer *o, float *params, const float *grads, float scale, double rate);
bool kn_muon_takes(const kn_param *p);

// One update. *norm: of the gradient before clipping; when it is not finite nothing is changed. KNNLM_ENOMEM.
knnlm_status kn_optimizer_update(kn_optimizer *o, float *params, const float *grads, double rate,
                                 double *norm);

#endif
