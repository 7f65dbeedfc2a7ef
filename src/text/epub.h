// EPUB books as plain text.
#ifndef KN_TEXT_EPUB_H
#define KN_TEXT_EPUB_H

#include "text/stream.h"

// Appends the book's title and its chapters in the order of its spine. The source, a zip file, is closed,
// whatever is returned. KNNLM_EDATA: damaged, or no book; KNNLM_ENOTSUP: above KN_WHOLE_MAX, or encrypted;
// *trouble is set where it is known.
knnlm_status kn_epub_read(kn_stream *source, const char **trouble, kn_buffer *out);

#endif
