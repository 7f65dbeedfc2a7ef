// The pieces of the plain model: what every layer uses, and what some models do another way. Not a door: only
// the two sources of the reference include it.
#ifndef KN_LM_NATIVE_REFERENCE_PARTS_H
#define KN_LM_NATIVE_REFERENCE_PARTS_H

#include "lm/native/reference.h"

// The parameter of that name, as in config.h; NULL where the model has none, such as a bias.
__attribute__((format(printf, 2, 3))) const double *kn_reference_param(const kn_reference *r,
                                                                       const char *format, ...);

void kn_reference_product(double *y, const double *w, const double *x, const double *bias, int m, int n);
void kn_reference_norm(knnlm_norm kind, double *y, const double *x, const double *weight, const double *bias,
                       int n, double epsilon);
void kn_reference_log_softmax(double *x, int n);

double kn_reference_activation(knnlm_activation kind, double x);
// x (d): the vector of a token at a position.
void kn_reference_embed(const kn_reference *r, int token, int position, double *x);
// q and k (d): norms of queries and keys, rotary positions.
void kn_reference_place(const kn_reference *r, int layer, int position, double *q, double *k);
// logprobs (V) from the last state x (d); `scratch` (d).
void kn_reference_predict(const kn_reference *r, const double *x, double *scratch, double *logprobs);

#endif
