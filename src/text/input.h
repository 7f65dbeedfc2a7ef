// The bytes of a file as it is on disk, or of standard input.
#ifndef KN_TEXT_INPUT_H
#define KN_TEXT_INPUT_H

#include "base/progress.h"
#include "text/stream.h"

// "-" is stdin, named <stdin> in messages. `progress` (NULL: nobody listens; it outlives the result) is told
// before every read, and now and then while a pipe has nothing to give: KNNLM_ESTOPPED when it wants to stop.
// A regular file can seek. *trouble is set when it cannot be opened.
knnlm_status kn_input_open(const char *path, const kn_progress *progress, const char **trouble,
                           kn_stream **out);
// Bytes taken from the file so far.
uint64_t kn_input_done(const kn_stream *input);

#endif
