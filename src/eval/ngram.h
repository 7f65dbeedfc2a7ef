// An n-gram model beside the mixture: learnt from texts, asked of every token that is scored.
#ifndef KN_EVAL_NGRAM_H
#define KN_EVAL_NGRAM_H

#include "eval/pass.h"

typedef struct kn_eval_ngram_options {
    const char *const *texts; // to learn from
    size_t count;             // 0: no model
    int32_t order;
    double lambda;
} kn_eval_ngram_options;

typedef struct kn_eval_ngram kn_eval_ngram;

// Learns; *out is NULL where no texts are given. KNNLM_EINVAL: order or lambda; else as texts are read and
// n-grams learnt.
knnlm_status kn_eval_ngram_open(const kn_lm *lm, const kn_eval_ngram_options *options,
                                const kn_text_options *texts, const kn_progress *progress,
                                kn_eval_ngram **out);
void kn_eval_ngram_close(kn_eval_ngram *ngram); // NULL is allowed

// What it says of a batch, kept until the next one.
knnlm_status kn_eval_ngram_take(kn_eval_ngram *ngram, const kn_scored *scored);
// Of token `i` of that batch: its log p, and that mixed with what it is without.
double kn_eval_ngram_logprob(const kn_eval_ngram *ngram, size_t i);
double kn_eval_ngram_mix(const kn_eval_ngram *ngram, size_t i, double p);
// What it came to; `score` is left to the caller, and is of *nll.
knnlm_eval_ngram kn_eval_ngram_tell(const kn_eval_ngram *ngram, uint64_t tokens, double *nll);

#endif
