// A text that has to begin with a space: the prompt ended with one, which belongs to the word after it.
#include "generate/begin.h"

#include "generate/text.h"

#include <math.h>
#include <stdlib.h>

static knnlm_status begins_with_space(const kn_tokenizer *t, int32_t previous, int32_t token, bool *out) {
    char *piece;
    size_t size;
    KN_TRY(kn_piece_after(t, previous, token, &piece, &size));
    *out = size > 0 && piece[0] == ' ';
    free(piece);
    return KNNLM_OK;
}

knnlm_status kn_begin_with_space(const kn_tokenizer *t, int32_t previous, float *lm, kn_distribution *g) {
    int32_t size = kn_tokenizer_size(t);
    for (int32_t token = 0; (size_t)token < g->vocabulary; token++) {
        bool allowed = false;
        if (token < size) KN_TRY(begins_with_space(t, previous, token, &allowed));
        if (allowed) continue;
        lm[token] = -INFINITY;
        g->knn[token] = 0;
    }
    return KNNLM_OK;
}
