// UTF-8: validation, and single code points.
#ifndef KN_TEXT_UTF8_H
#define KN_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

// How many bytes at the start of `text` are whole, valid characters: `size` when all of it is UTF-8.
size_t kn_utf8_valid(const char *text, size_t size);

// The code point at the start of `text`, and the bytes it takes (1 to 4); 0 when it is not valid UTF-8.
size_t kn_utf8_decode(const char *text, size_t size, uint32_t *codepoint);
// Writes at most 4 bytes; returns how many.
size_t kn_utf8_encode(uint32_t codepoint, char *out);

#endif
