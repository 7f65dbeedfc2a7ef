// Any bytes as a file of any form that was named, in archives and books: what is read is UTF-8 with a NUL
// after it and has a name; the same with everything told that was skipped, or nothing at all.
//
// An input is a byte, which chooses how the file is cut and decoded, and the file.
#include "base/utf8.h"
#include "memory_file.h"
#include "text/documents.h"

enum { TEXT_MAX = 1 << 22 }; // what a bomb holds is not read to its end

static size_t skips;

static void on_skip(void *context, const char *path, const char *reason) {
    (void)context;
    if (!*path || !*reason) abort();
    skips++;
}

static void read_all(kn_documents *d) {
    kn_document document;
    bool found = true;
    for (size_t bytes = 0; bytes < TEXT_MAX; bytes += document.size) {
        if (kn_documents_next(d, &document, &found) != KNNLM_OK || !found) return;
        if (!document.size || document.text[document.size]) abort();
        if (kn_utf8_valid(document.text, document.size) < document.size) abort();
        if (!*document.name || !*document.path) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const encodings[] = {NULL, NULL, "UTF-16LE", "SHIFT_JIS"};
    kn_documents *d;
    if (!size) return 0;
    kn_text_options o = {.split = (knnlm_split)(data[0] % 3),
                         .encoding = encodings[data[0] / 4 % 4],
                         .strict = data[0] & 64,
                         .hidden = data[0] & 128,
                         .skipped = on_skip};
    memory_file file = memory_file_open(data + 1, size - 1);
    const char *path = file.path;
    skips = 0;
    if (kn_documents_open(&path, 1, &o, &d) != KNNLM_OK) abort();
    read_all(d);
    kn_documents_close(d);
    if (o.strict && skips) abort();
    memory_file_close(&file);
    return 0;
}
