// Reads PDF by poppler.
#include "text/pdf.h"

#include "text/html.h"

#include <poppler.h>
#include <stdlib.h>
#include <string.h>

// Pages are apart by an empty line.
static knnlm_status put_page(PopplerDocument *document, int number, kn_buffer *out) {
    PopplerPage *page = poppler_document_get_page(document, number);
    char *text = page ? poppler_page_get_text(page) : NULL;
    knnlm_status status = KNNLM_OK;
    if (text && text[strspn(text, " \t\r\n\f")]) {
        if (out->size) status = kn_buffer_put_text(out, "\n");
        if (status == KNNLM_OK) status = kn_buffer_put_text(out, text);
        if (status == KNNLM_OK && out->data[out->size - 1] != '\n') status = kn_buffer_put_text(out, "\n");
    }
    g_free(text);
    if (page) g_object_unref(page);
    return status;
}

static knnlm_status put_pages(PopplerDocument *document, const char *name, const char **trouble,
                              kn_buffer *out) {
    for (int i = 0; i < poppler_document_get_n_pages(document); i++) KN_TRY(put_page(document, i, out));
    if (out->size) return KNNLM_OK;
    *trouble = "PDF without text";
    return kn_fail(KNNLM_ENOTSUP, "%s: a PDF without text, perhaps scanned: make a text of it by OCR", name);
}

static knnlm_status refuse(const char *name, const GError *error, const char **trouble) {
    if (!g_error_matches(error, POPPLER_ERROR, POPPLER_ERROR_ENCRYPTED))
        return kn_fail(KNNLM_EDATA, "%s: damaged PDF: %s", name,
                       error ? error->message : "it cannot be read");
    *trouble = "encrypted";
    return kn_fail(KNNLM_ENOTSUP, "%s: an encrypted PDF: save it without its password", name);
}

static knnlm_status put_document(const kn_buffer *pdf, const char *name, const char **trouble,
                                 kn_buffer *out) {
    GError *error = NULL;
    GBytes *bytes = g_bytes_new_static(pdf->data, pdf->size);
    PopplerDocument *document = poppler_document_new_from_bytes(bytes, NULL, &error);
    knnlm_status status = document ? put_pages(document, name, trouble, out) : refuse(name, error, trouble);
    if (document) g_object_unref(document);
    g_clear_error(&error);
    g_bytes_unref(bytes);
    return status;
}

knnlm_status kn_pdf_read(kn_stream *source, const char **trouble, kn_buffer *out) {
    kn_buffer pdf = {0};
    knnlm_status status = kn_stream_read_all(source, KN_WHOLE_MAX, &pdf);
    if (status != KNNLM_OK)
        *trouble = source->trouble ? source->trouble : status == KNNLM_ENOTSUP ? "too large" : NULL;
    if (status == KNNLM_OK) status = put_document(&pdf, source->name, trouble, out);
    free(pdf.data);
    kn_stream_close(source);
    return status;
}
