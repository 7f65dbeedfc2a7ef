// HTML and XHTML as plain text.
#ifndef KN_TEXT_HTML_H
#define KN_TEXT_HTML_H

#include "text/stream.h"

#define KN_WHOLE_MAX ((size_t)1 << 30) // bytes of a file whose form is read whole

// The encoding that a page declares (`<meta charset>`, the XML declaration) into `out`, as iconv is to have
// it; false: none, or one that is not known.
bool kn_html_declares(const char *html, size_t size, char out[64]);

// Appends the text of a page in UTF-8: the title first where `title`, paragraphs with an empty line between,
// list items after "- ", preformatted text as it is; without scripts, styles and navigation.
// KNNLM_ENOMEM; KNNLM_EDATA: tags in tags without end.
knnlm_status kn_html_text(const char *html, size_t size, bool title, kn_buffer *out);
// The same of a stream, which is closed, whatever is returned. KNNLM_EDATA: not UTF-8; KNNLM_ENOTSUP: above
// KN_WHOLE_MAX; *trouble is set with both.
knnlm_status kn_html_read(kn_stream *source, bool title, const char **trouble, kn_buffer *out);

#endif
