// Scoring: model, stores and text to perplexity, of the model alone and with its neighbours, in one pass.
#ifndef KN_EVAL_H
#define KN_EVAL_H

#include "eval/ngram.h"

typedef struct kn_eval_options {
    kn_read_options read; // texts.split: counts only when split_said
    bool split_said;      // else documents are cut as the first store's were
    kn_mixture_options mix;
    const char *per_token;  // file of one row a token (tab-separated), or NULL
    const char *report;     // a page (report.h), or NULL
    uint64_t report_tokens; // tokens shown there at most
    bool (*row)(void *context, const knnlm_token_row *row); // told of every token; NULL: not wanted
    void *row_context;
    kn_eval_ngram_options ngram;
} kn_eval_options;

typedef struct kn_eval_result {
    kn_pass_totals totals;
    knnlm_score lm, mixed; // mixed is lm where nothing is mixed in
    knnlm_eval_store stores[KN_STORES_MAX];
    size_t store_count;
    size_t cache; // 0: none
    double cache_lambda, cache_temperature;
    double skip_entropy, skipped; // skipped: share of the tokens that were not searched for
    double seconds, seconds_lm, seconds_search, tokens_per_second;
    bool stream;            // read as one; windows otherwise
    int32_t score, context; // as used
    knnlm_split split;
    knnlm_eval_ngram ngram; // order 0: none
} kn_eval_result;

knnlm_status kn_eval_run(kn_lm *lm, const char *const *paths, size_t count, const kn_eval_options *options,
                         const kn_progress *progress, kn_eval_result *out);
// All that is known of token `i` of a batch whose neighbours are at hand; `document` is the batch's.
knnlm_token_row kn_eval_row(const kn_mixture *mixture, const kn_scored *scored, size_t i);
// What to say after the lambda of a store: why it is a mean.
const char *kn_eval_weighed(const knnlm_eval_store *store);

#endif
