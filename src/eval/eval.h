// Scoring: model and text to perplexity, per token, per word and in bits per byte.
#ifndef KN_EVAL_H
#define KN_EVAL_H

#include "read/read.h"

typedef struct kn_eval_options {
    kn_read_options read;
    const char *per_token; // file of one row a token (tab-separated), or NULL
} kn_eval_options;

typedef struct kn_eval_result {
    kn_read_totals totals;
    double nll;           // sum over all tokens, in nats
    double ppl, ppl_word; // per token; per run of non-space bytes
    double bits_per_byte;
    double seconds, tokens_per_second;
    int32_t score, context; // as used
} kn_eval_result;

knnlm_status kn_eval_run(kn_lm *lm, const char *const *paths, size_t count, const kn_eval_options *options,
                         const kn_progress *progress, kn_eval_result *out);

#endif
