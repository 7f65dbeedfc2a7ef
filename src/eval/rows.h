// One tab-separated row a token. Not a door: only this room includes it.
#ifndef KN_EVAL_ROWS_H
#define KN_EVAL_ROWS_H

#include "eval/pass.h"

typedef struct kn_rows kn_rows;
knnlm_status kn_rows_open(const char *path, const kn_lm *lm, const kn_mixture *mixture, kn_rows **out);
knnlm_status kn_rows_put(kn_rows *rows, const kn_scored *scored);
// Replaces the file when `status` is KNNLM_OK, else leaves it as it was; releases the rows. Returns the first
// failure.
knnlm_status kn_rows_close(kn_rows *rows, knnlm_status status);

#endif
