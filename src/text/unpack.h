// Compressed streams (zstd, gzip, xz, bzip2) unpacked.
#ifndef KN_TEXT_UNPACK_H
#define KN_TEXT_UNPACK_H

#include "text/form.h"
#include "text/stream.h"

// One layer of compression, KN_FORM_GZIP, _ZSTD, _XZ or _BZIP2, taken off. The source is the result's,
// whatever is returned.
knnlm_status kn_unpack_open(kn_stream *source, kn_form form, kn_stream **out);

#endif
