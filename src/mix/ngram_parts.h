// The counts of an n-gram model. Not a door: only the files of it include this.
#ifndef KN_MIX_NGRAM_PARTS_H
#define KN_MIX_NGRAM_PARTS_H

#include "mix/ngram.h"

// All n-grams of one length, sorted by their tokens: a trie. What they are followed by, the n-grams that are
// one token longer, are `children` [i] to [i + 1] of the next level; the last level has none.
typedef struct kn_ngram_level {
    size_t count;
    int32_t *tokens;    // the last token of each
    uint32_t *counts;   // c
    uint32_t *children; // (count + 1)
    uint64_t *totals;   // of what follows: the sum of c,
    double *left;       // and the sum of D(c)
} kn_ngram_level;

struct kn_ngram {
    kn_ngram_info info;
    int32_t vocabulary;
    kn_ngram_level levels[KN_NGRAM_ORDER_MAX]; // by length - 1
    uint64_t total;                            // of all single tokens
    double left;
};

// The n-grams [first, end) that follow one of the level before; of none (level 0), all of the first level.
typedef struct kn_ngram_range {
    size_t first, end;
} kn_ngram_range;

// The place of a token in a range of a level; SIZE_MAX: it is not there.
static inline size_t kn_ngram_find(const kn_ngram_level *level, kn_ngram_range range, int32_t token) {
    size_t low = range.first, high = range.end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (level->tokens[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < range.end && level->tokens[low] == token ? low : SIZE_MAX;
}

// Of what follows n-gram `i` of a level.
static inline kn_ngram_range kn_ngram_children(const kn_ngram_level *level, size_t i) {
    return (kn_ngram_range){level->children[i], level->children[i + 1]};
}

// Counts every n-gram as it stands in the text.
knnlm_status kn_ngram_count(kn_ngram *model, const int32_t *tokens, size_t count,
                            const kn_progress *progress);
// Turns these counts into those of the smoothing, with discounts and sums.
knnlm_status kn_ngram_smooth(kn_ngram *model);

#endif
