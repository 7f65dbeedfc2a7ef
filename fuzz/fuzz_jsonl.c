// Any bytes as a line of JSON: refused, blank, or a text and a name in UTF-8.
#include "base/utf8.h"
#include "text/jsonl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_buffer name = {0};
    kn_json_line line;
    knnlm_status status =
        kn_json_line_read((const char *)data, size, "f", 7, "text", size % 2 ? "id" : NULL, &name, &line);
    if (status == KNNLM_OK && line.object) {
        if (line.text[line.size] || kn_utf8_valid(line.text, line.size) < line.size) abort();
        if (memcmp(name.data, size % 2 ? "f#" : "f#7", 2) != 0) abort();
        if (kn_utf8_valid(name.data, name.size) < name.size) abort();
    }
    if (status != KNNLM_OK && status != KNNLM_EDATA) abort();
    kn_json_line_free(&line);
    free(name.data);
    return 0;
}
