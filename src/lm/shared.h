// Models on many ranks: each has the same one open, and rank 0 deals its windows out.
#ifndef KN_LM_SHARED_H
#define KN_LM_SHARED_H

#include "lm/lm.h"
#include "ranks/ranks.h"

// Has every other rank open the model too. KNNLM_EINVAL: it is another one there.
knnlm_status kn_lm_share(kn_lm *lm, const kn_lm_options *options);
void kn_lm_unshare(kn_lm *lm);
// What ranks call a model by, and the model of that name here; NULL: none.
uint64_t kn_lm_key(const kn_lm *lm);
kn_lm *kn_lm_find(uint64_t key);

// Whether the windows are worth dealing out: several, each by itself.
bool kn_lm_is_dealt(const kn_lm *lm, const kn_window *windows, size_t count);
// The same as kn_lm_run, by all ranks. Each window has the numbers that it would have here.
knnlm_status kn_lm_deal(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                        const kn_lm_output *out);
// From now on its windows are run here: other ranks have work of their own.
void kn_lm_set_alone(kn_lm *lm, bool alone);

extern const kn_service kn_service_lm_open, kn_service_lm_close, kn_service_lm_run;

#endif
