// One pass over texts with their neighbours: what evaluation, tuning and explanation have in common.
//
// The model reads the texts once (read/read.h); whenever some thousand tokens have gathered, their neighbours
// are searched together, and the batch is handed on. A document whose content is in a store is scored without
// that store's entries of it, unless the mixture says otherwise.
#ifndef KN_EVAL_PASS_H
#define KN_EVAL_PASS_H

#include "knn/predict.h"
#include "read/read.h"

// Tokens of its document before a batch that stay at hand, where there are any, for snippets of context.
enum { KN_CONTEXT_KEPT = 64 };

typedef struct kn_scored_token {
    int32_t token;
    uint32_t document;         // in the order of reading
    uint64_t position, offset; // in its document: token, byte
} kn_scored_token;

// Consecutive tokens, perhaps of several documents; valid during the call.
typedef struct kn_scored {
    size_t count;
    const kn_scored_token *tokens;
    const int32_t *stream;            // the same tokens one after another
    size_t before;                    // tokens before stream[0] that are of the same document
    const float *lm, *entropies;      // log p_LM; entropies NULL: not wanted
    const kn_predictor *neighbors;    // of each, by its place here
    const kn_prediction *predictions; // (count); NULL: not wanted
    const double *cache;              // (temperatures, count): log p_cache; NULL: no cache
    char *const *names;               // of documents, by number
} kn_scored;

// Called in order. Anything but KNNLM_OK ends the pass with it.
typedef knnlm_status kn_scored_sink(void *context, const kn_scored *scored);

typedef struct kn_pass_options {
    kn_read_options read;
    bool entropies;                   // wanted although the mixture does not need them
    bool neighbors_alone;             // no predictions
    bool predictions_alone;           // the sink does not ask for neighbours
    const double *cache_temperatures; // not NULL: instead of the mixture's own, and no predictions
    size_t cache_temperature_count;
} kn_pass_options;

typedef struct kn_pass_totals {
    kn_read_totals read;
    double seconds_search;                // neighbours and cache, and what the sink does with them
    double seconds_stores[KN_STORES_MAX]; // searches of each
    uint64_t skipped;                     // tokens that were not searched for
    uint64_t own_documents;               // that were scored without themselves
    uint64_t texts[KN_TUNED_TEXTS];       // the smallest hashes of documents, ascending
    size_t text_count;
    bool tuned_on[KN_STORES_MAX]; // whether a store was tuned on one of them
} kn_pass_totals;

knnlm_status kn_pass_texts(kn_lm *lm, const kn_mixture *mixture, const char *const *paths, size_t count,
                           const kn_pass_options *options, const kn_progress *progress, kn_scored_sink *sink,
                           void *context, kn_pass_totals *totals);

// The same for documents in memory, which are looked for in no store. Progress is told in tokens.
typedef struct kn_pass_text {
    kn_read_text text;
    const kn_entry_range *own; // entries that the text is itself, left out of every store
    size_t own_count;
} kn_pass_text;
knnlm_status kn_pass_many(kn_lm *lm, const kn_mixture *mixture, const kn_pass_text *texts, size_t count,
                          const kn_pass_options *options, const kn_progress *progress, kn_scored_sink *sink,
                          void *context);
// The same for one of them, which is no entries itself.
knnlm_status kn_pass_tokens(kn_lm *lm, const kn_mixture *mixture, const int32_t *tokens, size_t count,
                            const kn_pass_options *options, kn_scored_sink *sink, void *context);

#endif
