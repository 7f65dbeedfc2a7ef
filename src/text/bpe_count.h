// Training's first half: how often each pre-token occurs.
#ifndef KN_TEXT_BPE_COUNT_H
#define KN_TEXT_BPE_COUNT_H

#include "base/progress.h"
#include "text/vocab.h"

// Counts the pre-tokens of the text, in parallel; bytes that are not UTF-8 are left out.
knnlm_status kn_bpe_count(const char *text, size_t size, const kn_progress *progress, kn_counts *out);

#endif
