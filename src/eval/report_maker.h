// From scored tokens to the report. Not a door: only this room includes it.
#ifndef KN_EVAL_REPORT_MAKER_H
#define KN_EVAL_REPORT_MAKER_H

#include "eval/eval.h"

typedef struct kn_report_maker kn_report_maker;
// `max`: tokens shown.
knnlm_status kn_report_maker_open(const char *path, const kn_lm *lm, const kn_mixture *mixture, uint64_t max,
                                  kn_report_maker **out);
knnlm_status kn_report_maker_take(kn_report_maker *r, const kn_scored *scored);
// Writes the page when `status` is KNNLM_OK; releases the maker. Returns the first failure.
knnlm_status kn_report_maker_close(kn_report_maker *r, const kn_eval_result *result, knnlm_status status);

#endif
