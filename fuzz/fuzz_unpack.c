// Any bytes as a file of text, plain, gzip, zstd, xz or bzip2: however it is read, the same text comes, or
// the same refusal.
//
// An input is a byte, which chooses how much is read at a time, and the file.
#include "memory_file.h"
#include "text/input.h"
#include "text/unpack.h"

#include <stdbool.h>
#include <string.h>

enum { TEXT_MAX = 1 << 16 }; // what a bomb holds is not read to its end

typedef struct unpacked {
    char text[TEXT_MAX];
    size_t size;
    knnlm_status status;
} unpacked;

static void read_all(kn_stream *u, size_t piece, unpacked *out) {
    size_t got = 1;
    out->size = 0;
    out->status = KNNLM_OK;
    while (got && out->status == KNNLM_OK && out->size < TEXT_MAX) {
        size_t room = TEXT_MAX - out->size, max = piece < room ? piece : room;
        out->status = kn_stream_read(u, out->text + out->size, max, &got);
        if (out->status != KNNLM_OK) break;
        if (got > max) abort();
        out->size += got;
    }
}

// False: it cannot be opened.
static bool unpack(const memory_file *file, size_t piece, size_t size, unpacked *out) {
    const kn_foreign_form *foreign;
    const char *trouble, *first;
    kn_stream *input, *u;
    size_t seen;
    if (kn_input_open(file->path, NULL, &trouble, &input) != KNNLM_OK) return false;
    if (kn_stream_peek(input, KN_FORM_PEEK, &first, &seen) != KNNLM_OK) abort();
    kn_form form = kn_form_tell(first, seen, "", &foreign);
    u = input;
    if (kn_form_is_packed(form) && kn_unpack_open(input, form, &u) != KNNLM_OK) return false;
    read_all(u, piece, out);
    if (kn_input_done(input) > size) abort();
    kn_stream_close(u);
    return true;
}

static bool is_prefix(const unpacked *a, const unpacked *b) {
    return a->size <= b->size && memcmp(a->text, b->text, a->size) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unpacked whole, pieces;
    if (!size) return 0;
    memory_file file = memory_file_open(data + 1, size - 1);
    bool opened = unpack(&file, TEXT_MAX, size - 1, &whole);
    if (unpack(&file, (size_t)data[0] + 1, size - 1, &pieces) != opened) abort();
    memory_file_close(&file);
    if (!opened) return 0;
    // Damage is met at one place, but large reads end before it with less than has been unpacked.
    if (!is_prefix(&whole, &pieces) && !is_prefix(&pieces, &whole)) abort();
    bool cut = whole.size == TEXT_MAX || pieces.size == TEXT_MAX;
    if (!cut && whole.status != pieces.status) abort();
    if (!cut && whole.status == KNNLM_OK && whole.size != pieces.size) abort();
    return 0;
}
