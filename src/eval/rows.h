// One tab-separated row a token. Not a door: only this room includes it.
#ifndef KN_EVAL_ROWS_H
#define KN_EVAL_ROWS_H

#include "eval/ngram.h"

typedef struct kn_rows kn_rows;
// `ngram`: with two columns more, which kn_rows_put is given.
knnlm_status kn_rows_open(const char *path, const kn_lm *lm, const kn_mixture *mixture, bool ngram,
                          kn_rows **out);
knnlm_status kn_rows_put(kn_rows *rows, const kn_scored *scored, const kn_eval_ngram *ngram);
// Replaces the file when `status` is KNNLM_OK, else leaves it as it was; releases the rows. Returns the first
// failure.
knnlm_status kn_rows_close(kn_rows *rows, knnlm_status status);

#endif
