// Modified Kneser-Ney smoothing: counts of different predecessors, discounts, and what they leave.
#include "mix/ngram_parts.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- predecessors

// The same n-gram without its first token, for all of a level, from that of the level before: `shorter` is of
// the n-grams that these continue (NULL: those are single tokens, without which there is nothing). Each has
// one predecessor more.
static void drop_first(const kn_ngram_level *before, const kn_ngram_level *before_two,
                       const kn_ngram_level *level, const uint32_t *shorter, uint32_t *out,
                       uint32_t *predecessors) {
    for (size_t i = 0; i < before->count; i++) {
        kn_ngram_range those = kn_ngram_children(before, i);
        kn_ngram_range among =
            shorter ? kn_ngram_children(before_two, shorter[i]) : (kn_ngram_range){0, before->count};
        for (size_t j = those.first; j < those.end; j++) {
            // It is there: where the longer one stands in the text, the shorter one does.
            out[j] = (uint32_t)kn_ngram_find(before, among, level->tokens[j]);
            predecessors[out[j]]++;
        }
    }
}

// Counts of all but the longest become numbers of predecessors; not of the first `own` n-grams of each level,
// which begin with a start.
static knnlm_status count_predecessors(kn_ngram *m) {
    uint32_t *shorter = NULL;
    size_t own = m->levels[0].count && m->levels[0].tokens[0] == KN_NGRAM_START;
    for (int n = 1; n < m->info.order; n++) {
        kn_ngram_level *before = &m->levels[n - 1], *level = &m->levels[n];
        uint32_t *out = kn_alloc(level->count, sizeof *out);
        uint32_t *predecessors = kn_alloc(before->count, sizeof *predecessors);
        if (out && predecessors) {
            drop_first(before, n > 1 ? before - 1 : NULL, level, shorter, out, predecessors);
            memcpy(before->counts + own, predecessors + own, (before->count - own) * sizeof *predecessors);
            own = before->children[own];
        }
        bool enough = out && predecessors;
        free(predecessors);
        free(shorter);
        shorter = out;
        if (!enough) {
            free(shorter);
            return KNNLM_ENOMEM;
        }
    }
    free(shorter);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- discounts

// Where a text is too small to tell, these are KenLM's too.
static const double fallback[KN_NGRAM_DISCOUNTS] = {0.5, 1, 1.5};

// From the numbers of n-grams that were seen 1, 2, 3 and 4 times.
static void discounts_of(const double seen[KN_NGRAM_DISCOUNTS + 1], double out[KN_NGRAM_DISCOUNTS]) {
    double y = seen[0] / (seen[0] + 2 * seen[1]);
    for (int i = 0; i < KN_NGRAM_DISCOUNTS; i++) {
        out[i] = i + 1 - (i + 2) * y * seen[i + 1] / seen[i];
        if (out[i] > 0 && out[i] <= i + 1) continue; // also not where it is no number
        memcpy(out, fallback, sizeof fallback);
        return;
    }
}

static void find_discounts(kn_ngram *m) {
    for (int n = 0; n < m->info.order; n++) {
        const kn_ngram_level *level = &m->levels[n];
        double seen[KN_NGRAM_DISCOUNTS + 1] = {0};
        for (size_t i = 0; i < level->count; i++)
            if (level->counts[i] <= KN_NGRAM_DISCOUNTS + 1 && (n || level->tokens[i] != KN_NGRAM_START))
                seen[level->counts[i] - 1]++;
        discounts_of(seen, m->info.discounts[n]);
    }
}

// ---------------------------------------------------------------- sums

// Of a range of a level: the sum of counts, and of what is taken from them.
static uint64_t add_up(const kn_ngram *m, int n, kn_ngram_range range, double *left) {
    uint64_t total = 0;
    *left = 0;
    for (size_t i = range.first; i < range.end; i++) {
        uint32_t count = m->levels[n].counts[i];
        total += count;
        *left += m->info.discounts[n][kn_min(count, KN_NGRAM_DISCOUNTS) - 1];
    }
    return total;
}

knnlm_status kn_ngram_smooth(kn_ngram *m) {
    KN_TRY(count_predecessors(m));
    find_discounts(m);
    kn_ngram_level *first = &m->levels[0];
    bool starts = first->count && first->tokens[0] == KN_NGRAM_START;
    m->total = add_up(m, 0, (kn_ngram_range){starts, first->count}, &m->left);
    for (int n = 0; n + 1 < m->info.order; n++)
        for (size_t i = 0; i < m->levels[n].count; i++) {
            double left;
            m->levels[n].totals[i] = add_up(m, n + 1, kn_ngram_children(&m->levels[n], i), &left);
            m->levels[n].left[i] = left;
        }
    return KNNLM_OK;
}
