// GPT-2's pre-tokenizer: cuts text into words, numbers, marks and white space; no token crosses a cut.
#ifndef KN_TEXT_SPLIT_H
#define KN_TEXT_SPLIT_H

#include "base/status.h"

// The compiled pattern with scratch memory; for one thread at a time.
typedef struct kn_splitter kn_splitter;
knnlm_status kn_splitter_open(kn_splitter **out);
void kn_splitter_close(kn_splitter *s);

// The end of the pre-token that begins at `at` (below `size`).
// The text is valid UTF-8, `at` the start of a character.
knnlm_status kn_splitter_next(kn_splitter *s, const char *text, size_t size, size_t at, size_t *end);

// The two ways behind it. ASCII by hand gives 0 where a byte beyond ASCII could matter.
size_t kn_split_ascii(const char *text, size_t size, size_t at);
knnlm_status kn_split_pattern(kn_splitter *s, const char *text, size_t size, size_t at, size_t *end);

#endif
