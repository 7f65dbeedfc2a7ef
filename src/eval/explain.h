// Why a word is probable: what the model says, what the neighbours say, and where they come from.
#ifndef KN_EVAL_EXPLAIN_H
#define KN_EVAL_EXPLAIN_H

#include "eval/pass.h"
#include "knn/neighbors.h"
#include "knn/next.h"

// ---------------------------------------------------------------- a context

typedef struct kn_explanation {
    size_t tokens;     // of the context that the model read
    bool cut;          // there was more of it than the model's context holds
    int32_t target;    // the first of its tokens; -1: none was asked for
    knnlm_word *words; // the most probable, then the target where it is not among them
    size_t word_count;
    kn_neighbor_detail *neighbors;
    size_t neighbor_count;
    double lambda, nearest, entropy; // lambda: of all stores together
    knnlm_word *targets;             // all tokens of the target, each after those before it
    size_t target_count;
} kn_explanation;

enum { KN_TARGET_TOKENS = 64 };

// What is to be told: words, neighbours, tokens around them, and a word that is asked for (NULL: none).
typedef struct kn_explain_options {
    const char *target;
    size_t words, neighbors, around;
} kn_explain_options;

// What comes after `context`? To be freed only after KNNLM_OK. The mixture's cache is
// not used: a context has no document. A space at the end of the context belongs to the word that comes.
// KNNLM_EINVAL: a target without tokens, or of more than KN_TARGET_TOKENS.
knnlm_status kn_explain(kn_lm *lm, const kn_mixture *mixture, const char *context,
                        const kn_explain_options *o, kn_explanation *out);
// The same of what was guessed; `target` -1: none.
knnlm_status kn_explain_next(const kn_mixture *mixture, const kn_next *next, int32_t target, size_t words,
                             size_t neighbors, size_t around, kn_explanation *out);
// Fills in out->targets: contexts from number `first` on are the one explained, and the same with one token
// of the target more each. KNNLM_ENOMEM.
knnlm_status kn_explain_targets(const kn_nexts *nexts, size_t first, const int32_t *targets, size_t count,
                                kn_explanation *out);
// Appends the tokens of a word that comes after the context.
knnlm_status kn_explain_target(const kn_lm *lm, const char *context, const char *target, kn_tokens *out);
void kn_explanation_free(kn_explanation *e);

// ---------------------------------------------------------------- a text

// A token of a text, with what was before it.
typedef struct kn_token_gain {
    char *document, *before; // before: text of up to KN_CONTEXT_KEPT tokens
    size_t before_size;
    uint64_t position, offset;
    int32_t token;
    double lm, knn, cache, p, lambda; // logarithms
    kn_neighbor_detail *neighbors;
    size_t neighbor_count;
} kn_token_gain;

typedef struct kn_token_gains {
    kn_token_gain *best, *worst; // where neighbours helped, and hurt, most: that first
    size_t best_count, worst_count;
    kn_pass_totals totals;
    double ppl_lm, ppl;
} kn_token_gains;

enum { KN_GAINS_MAX = 1 << 20 };

// KNNLM_EINVAL: nothing is mixed in, or `best` or `worst` is above KN_GAINS_MAX.
knnlm_status kn_explain_texts(kn_lm *lm, const kn_mixture *mixture, const char *const *paths, size_t count,
                              const kn_pass_options *options, size_t best, size_t worst, size_t neighbors,
                              size_t around, const kn_progress *progress, kn_token_gains *out);
void kn_token_gains_free(kn_token_gains *moments);

#endif
