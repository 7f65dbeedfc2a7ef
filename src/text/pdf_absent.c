// In place of pdf.c where there is no poppler.
#include "text/pdf.h"

knnlm_status kn_pdf_read(kn_stream *source, const char **trouble, kn_buffer *out) {
    (void)out;
    *trouble = "unsupported: PDF (built without poppler)";
    kn_fail(KNNLM_ENOTSUP, "%s: a PDF, and knnlm was built without poppler: make a text of it (pdftotext)",
            source->name);
    kn_stream_close(source);
    return KNNLM_ENOTSUP;
}
