// Any bytes as a page: its text is UTF-8, not much longer than the page, and the same a second time.
#include "base/utf8.h"
#include "text/html.h"

#include <stdlib.h>
#include <string.h>

static kn_buffer text_of(const char *html, size_t size, bool title) {
    kn_buffer out = {0};
    knnlm_status status = kn_html_text(html, size, title, &out);
    if (status != KNNLM_OK && status != KNNLM_EDATA) abort();
    if (status != KNNLM_OK) out.size = 0;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *html = (const char *)data;
    char declared[64];
    kn_html_declares(html, size, declared);
    if (kn_utf8_valid(html, size) < size) return 0;
    kn_buffer a = text_of(html, size, true), b = text_of(html, size, true), bare = text_of(html, size, false);
    if (a.size != b.size || (a.size && memcmp(a.data, b.data, a.size) != 0)) abort();
    if (bare.size > a.size) abort();
    if (a.size && kn_utf8_valid(a.data, a.size) < a.size) abort();
    if (a.size > 40 * size + 64) abort(); // an item has up to 16 levels of two spaces
    free(a.data);
    free(b.data);
    free(bare.data);
    return 0;
}
