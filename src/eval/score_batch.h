// Several texts in memory, scored together: the model reads their windows in one batch, and their neighbours
// are searched in one. Numbers are those that each has alone, and that an evaluation gives (without a cache).
#ifndef KN_EVAL_TOGETHER_H
#define KN_EVAL_TOGETHER_H

#include "eval/gain.h"

typedef struct kn_score_result {
    double p, lm, knn, lambda; // log p, log p_LM, log p_kNN (NAN: no stores); lambda of all stores together
    double nearest, entropy;   // distance (NAN: no neighbour); of the model's distribution
} kn_score_result;

// A text, and what is wanted of each of its tokens. The caller's, all of it.
typedef struct kn_score_text {
    const int32_t *tokens; // without the start token
    size_t count;
    const kn_mixture *mixture;
    kn_score_result *results; // (count)
    // The most probable tokens at each place, and log p of each; then that of the token itself, which is its
    // result's p as `ranked_p` has it: equal to the bit where it is the same token. NULL: not wanted.
    size_t top;
    int32_t *ranked;  // (count, top); one more row where what comes next is wanted
    double *ranked_p; // likewise
    double *own_p;    // (count)
    double *knn_at;   // (count, temperature_count): log p_kNN at other temperatures; NULL: not wanted
    const double *temperatures;
    size_t temperature_count;
    bool by_document;            // what each document did is wanted:
    kn_document_gain *documents; // (document_count), as of kn_gains_list; the caller releases it with free()
    size_t document_count;
    // The token that is most probable after the last one, by this mixture. NULL: not wanted.
    const kn_mixture *next_mixture;
    int32_t next;
    kn_score_result next_verdict;
} kn_score_text;

// Asked now and then; false: stop.
typedef bool kn_keep_going(void *context);

// All mixtures have one tap, or no stores. KNNLM_EINVAL: a token out of range; KNNLM_ENOMEM; KNNLM_ESTOPPED;
// else as searches fail. After a failure what was asked for is undefined.
knnlm_status kn_score_batch(kn_lm *lm, kn_score_text *texts, size_t count, kn_keep_going *go_on,
                            void *context);

#endif
