// PDF documents as plain text, where the library was built with poppler.
#ifndef KN_TEXT_PDF_H
#define KN_TEXT_PDF_H

#include "text/stream.h"

// Appends the text of the pages. The source is closed, whatever is returned. KNNLM_EDATA: damaged;
// KNNLM_ENOTSUP: above KN_WHOLE_MAX, encrypted, without any text, or built without poppler; *trouble is set
// with it.
knnlm_status kn_pdf_read(kn_stream *source, const char **trouble, kn_buffer *out);

#endif
