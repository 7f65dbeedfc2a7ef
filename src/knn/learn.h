// What the beginning of a text shows of the stores before its next word is predicted: its tokens are searched
// for as those of a text that is scored.
#ifndef KN_KNN_LEARN_H
#define KN_KNN_LEARN_H

#include "knn/predict.h"

// Memory for one piece of a text after another.
typedef struct kn_learner kn_learner;
knnlm_status kn_learner_open(kn_learner **out);
void kn_learner_close(kn_learner *learner); // NULL is allowed

// Reads `count` tokens in the session, and tells the history what followed each: the next of them, and after
// the last `last`. KNNLM_ENOMEM; else as reading and searching fail.
knnlm_status kn_learner_read(kn_learner *learner, kn_session *session, const kn_mixture *m,
                             const int32_t *tokens, size_t count, int32_t last, kn_tap tap,
                             kn_history *history);
// All of a text (start token first, within the model's context), in a session of its own.
knnlm_status kn_learn_text(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count, kn_tap tap,
                           kn_history *history);

#endif
