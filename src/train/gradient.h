// The backward pass: loss of a batch of windows and its gradient by every parameter.
#ifndef KN_TRAIN_GRADIENT_H
#define KN_TRAIN_GRADIENT_H

#include "lm/native/config.h"
#include "math/math.h"

// Which units are dropped depends on `key` and on the unit's place alone: the same key drops the same units.
typedef struct kn_dropout {
    float residual;   // embeddings and the outputs of attention and feed-forward
    float attention;  // attention weights
    float activation; // inside the feed-forward part
    uint64_t key;
} kn_dropout;

// Workspace for batches of up to `rows` tokens (windows x length) of one model. Used by one thread at a time.
typedef struct kn_gradient kn_gradient;
knnlm_status kn_gradient_open(const kn_config *config, const kn_layout *layout, const kn_kernels *kernels,
                              size_t rows, kn_gradient **out);
void kn_gradient_close(kn_gradient *g);

// Takes over new parameter values (`params` must stay while the workspace is used; call again after every
// update).
void kn_gradient_set(kn_gradient *g, const float *params);

// For `windows` windows of `length` tokens, one after another in `inputs` and `targets`: adds the sum of the
// targets' negative log-probabilities to *loss and `scale` times its gradient to grads (layout->total
// floats). `grads` NULL: the loss alone. `dropout` NULL: none. KNNLM_EINVAL: token out of range, too many
// rows, length above the context.
knnlm_status kn_gradient_add(kn_gradient *g, const int32_t *inputs, const int32_t *targets, size_t windows,
                             size_t length, float scale, const kn_dropout *dropout, float *grads,
                             double *loss);

#endif
