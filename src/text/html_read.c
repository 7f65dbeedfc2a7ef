// Reads pages in whatever encoding they declare.
#include "text/html.h"

#include "base/utf8.h"
#include "text/encoding.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DECLARED_WITHIN = 4096 }; // bytes in which an encoding is looked for

static const char *find(const char *text, const char *end, const char *word) {
    size_t length = strlen(word);
    for (; text + length <= end; text++)
        if (strncasecmp(text, word, length) == 0) return text;
    return NULL;
}

// What stands after `word`, "=" and perhaps a quote, in [text, end).
static bool value_after(const char *text, const char *end, const char *word, char out[64]) {
    size_t n = 0;
    const char *at = find(text, end, word);
    if (!at) return false;
    at += strlen(word);
    while (at < end && strchr(" \t\r\n=\"'", *at) && *at) at++;
    while (at < end && *at && !strchr(" \t\r\n\"'/>;?", *at) && n < 63) out[n++] = *at++;
    out[n] = 0;
    return n > 0;
}

static bool declared(const char *html, size_t size, char out[64]) {
    const char *end = html + kn_min(size, DECLARED_WITHIN), *at = html, *close;
    if ((at = find(html, end, "<?xml")) && (close = find(at, end, "?>")) &&
        value_after(at, close, "encoding", out))
        return true;
    for (at = html; (at = find(at, end, "<meta")); at = close) {
        close = find(at, end, ">");
        if (!close) return false;
        if (value_after(at, close, "charset", out)) return true;
    }
    return false;
}

// Pages that say Latin-1 or ASCII mean its superset of Windows, as every browser reads them; and what is
// found by its letters is not UTF-16.
bool kn_html_declares(const char *html, size_t size, char out[64]) {
    static const char *const latin[] = {"iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "ascii"};
    if (!declared(html, size, out)) return false;
    for (size_t i = 0; i < sizeof latin / sizeof *latin; i++)
        if (strcasecmp(out, latin[i]) == 0) strcpy(out, "WINDOWS-1252");
    if (strncasecmp(out, "utf-16", 6) == 0 || strncasecmp(out, "utf-32", 6) == 0) strcpy(out, "UTF-8");
    return kn_encoding_known(out);
}

static knnlm_status check(const kn_stream *source, const kn_buffer *html, const char **trouble) {
    size_t valid = kn_utf8_valid(html->data, html->size);
    if (valid == html->size) return KNNLM_OK;
    *trouble = "not UTF-8";
    return kn_fail(KNNLM_EDATA, "%s: not UTF-8 at byte %zu (`encoding` names another)", source->name, valid);
}

knnlm_status kn_html_read(kn_stream *source, bool title, const char **trouble, kn_buffer *out) {
    kn_buffer html = {0};
    knnlm_status status = kn_stream_read_all(source, KN_WHOLE_MAX, &html);
    if (status == KNNLM_ENOTSUP) *trouble = "too large";
    if (status != KNNLM_OK && source->trouble) *trouble = source->trouble;
    if (status == KNNLM_OK) status = check(source, &html, trouble);
    if (status == KNNLM_OK) {
        status = kn_html_text(html.data, html.size, title, out);
        if (status != KNNLM_OK) kn_fail_in(status, source->name);
    }
    free(html.data);
    kn_stream_close(source);
    return status;
}
