// JSON lines: an object on every line, one member of which is a document's text.
#ifndef KN_TEXT_JSONL_H
#define KN_TEXT_JSONL_H

#include "text/buffer.h"

#include <jansson.h>

typedef struct kn_json_line {
    json_t *object;   // NULL: the line is blank
    const char *text; // UTF-8 with a NUL after it; the object's
    size_t size;
} kn_json_line;

// Reads line `number` (1, 2, ...) of the file `path`: the member `field` is its text. `name` gets
// "path#NAME" by the member `name_field`, "path#NUMBER" where that is NULL, and a NUL. KNNLM_EDATA, naming
// file and line: not an object, or one without these members.
knnlm_status kn_json_line_read(const char *line, size_t size, const char *path, uint64_t number,
                               const char *field, const char *name_field, kn_buffer *name, kn_json_line *out);
void kn_json_line_free(kn_json_line *line);

#endif
