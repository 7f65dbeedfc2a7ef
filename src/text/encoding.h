// Encodings of texts: byte-order marks, and what is not UTF-8 made UTF-8 by iconv.
#ifndef KN_TEXT_ENCODING_H
#define KN_TEXT_ENCODING_H

#include "text/stream.h"

// The encoding that a byte-order mark tells, "UTF-8", "UTF-16LE", ... and the mark's size; NULL: no mark.
const char *kn_encoding_mark(const char *data, size_t size, size_t *mark);
// KNNLM_EINVAL: iconv does not know it.
knnlm_status kn_encoding_check(const char *encoding);
bool kn_encoding_known(const char *encoding);
// The source, in `encoding` (NULL: UTF-8, which is as it is), as UTF-8. It is the result's, whatever is
// returned.
knnlm_status kn_encoding_open(kn_stream *source, const char *encoding, kn_stream **out);

#endif
