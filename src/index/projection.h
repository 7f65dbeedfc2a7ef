// Projections on disk: a GGUF file of
//   1. keys      general.type       string  "knnlm projection"
//                projection.total   f64     variance of all `in` dimensions
//   2. tensors   projection.mean        f32 (in)
//                projection.components  f32 (out, in): orthonormal rows
//                projection.variances   f32 (out): largest first, in sum at most the total
#ifndef KN_INDEX_PROJECTION_H
#define KN_INDEX_PROJECTION_H

#include "math/pca.h"
#include "store/store.h"

// Replaces `path` whole or not at all.
knnlm_status kn_projection_save(const char *path, const kn_pca *p);

// Everything above is checked; what fails is KNNLM_EDATA naming the file (no such file: KNNLM_EIO, another
// version of GGUF: KNNLM_ENOTSUP). *out is ready for kn_pca_apply, and to be freed only after KNNLM_OK.
knnlm_status kn_projection_open(const char *path, kn_pca *out);

// That of a store; out->in is 0 where keys are the model's states. KNNLM_EDATA: it is missing, or of other
// dimensions than the store's.
knnlm_status kn_projection_of(const kn_store *store, kn_pca *out);

#endif
