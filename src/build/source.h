// Keys of a store that keeps none: the model reads its tokens again, window by window. Not a door.
#ifndef KN_BUILD_SOURCE_H
#define KN_BUILD_SOURCE_H

#include "build/plan.h"

typedef struct kn_model_source kn_model_source;
// The model must be the one that made the store.
knnlm_status kn_model_source_open(kn_lm *lm, const kn_store *store, kn_model_source **out);
void kn_model_source_close(kn_model_source *source);
// The door to it for an index.
kn_key_source kn_model_source_keys(kn_model_source *source);

#endif
