// UTF-8: validation, single code points, and any bytes as a field of a row.
#ifndef KN_BASE_UTF8_H
#define KN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How many bytes at the start of `text` are whole, valid characters: `size` when all of it is UTF-8.
size_t kn_utf8_valid(const char *text, size_t size);

// The code point at the start of `text`, and the bytes it takes (1 to 4); 0 when it is not valid UTF-8.
size_t kn_utf8_decode(const char *text, size_t size, uint32_t *codepoint);
// Writes at most 4 bytes; returns how many.
size_t kn_utf8_encode(uint32_t codepoint, char *out);

// A text with tabs, line ends and backslashes written as \t, \n, \r, \\, and control bytes and parts of
// characters (a token may end inside one) as \xNN: UTF-8 whatever the text. What does not fit is left out,
// and a NUL is added; KN_UTF8_ESCAPED(size) bytes always suffice.
#define KN_UTF8_ESCAPED(size) (4 * (size) + 6)
void kn_utf8_escape(const char *text, size_t size, char *out, size_t capacity);
// The bytes that were escaped, into room for `size`, which may be `text` itself; false when it is no such
// text.
bool kn_utf8_unescape(const char *text, size_t size, char *out, size_t *out_size);

#endif
