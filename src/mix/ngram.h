// An n-gram model over tokens: interpolated, with modified Kneser-Ney smoothing (Chen and Goodman 1998).
//
//   p(w | h) = (c(h w) - D(c(h w))) / sum over v of c(h v)  +  left(h) p(w | h without its first token)
//
// c are counts of the longest n-grams; of shorter ones, the number of different tokens before them (but those
// that begin a document, which have none before them, keep their counts). D is one of three discounts of each
// length, for counts of 1, 2 and more, from how many n-grams were seen once to four times. left(h) is what
// the discounts took; the shortest context leaves it to all tokens alike. A context that was never seen is
// passed over.
//
// Here to be mixed in where neighbours are, as the paper does to see whether those are more than n-grams.
#ifndef KN_MIX_NGRAM_H
#define KN_MIX_NGRAM_H

#include "base/memory.h"
#include "base/progress.h"

enum { KN_NGRAM_ORDER_MAX = KNNLM_NGRAM_MAX, KN_NGRAM_DISCOUNTS = 3 };
// Stands before every document: a context, never predicted.
enum { KN_NGRAM_START = -1 };

typedef struct kn_ngram kn_ngram;

typedef struct kn_ngram_info {
    int order;
    uint64_t tokens;                                          // learnt from, without starts
    uint64_t grams[KN_NGRAM_ORDER_MAX];                       // different ones of each length
    double discounts[KN_NGRAM_ORDER_MAX][KN_NGRAM_DISCOUNTS]; // likewise, for counts of 1, 2, more
} kn_ngram_info;

// Learns from documents one after another, each after a KN_NGRAM_START; tokens are below `vocabulary`.
// `tokens` is not needed afterwards. KNNLM_EINVAL: no tokens, or an order that is not from 1 to the most;
// KNNLM_ENOTSUP: more tokens than 32 bits number; KNNLM_ENOMEM; KNNLM_ESTOPPED.
knnlm_status kn_ngram_learn(const int32_t *tokens, size_t count, int order, int32_t vocabulary,
                            const kn_progress *progress, kn_ngram **out);
void kn_ngram_close(kn_ngram *model); // NULL is allowed
const kn_ngram_info *kn_ngram_describe(const kn_ngram *model);

// log p of a token after the last `known` tokens of its document, the nearest of them last, the first perhaps
// a start. Any thread.
double kn_ngram_logprob(const kn_ngram *model, const int32_t *context, size_t known, int32_t token);

#endif
