#include "text/utf8.h"

#include <stdbool.h>
#include <string.h>

static size_t ascii_run(const uint8_t *text, size_t size) {
    size_t i = 0;
    for (uint64_t words[4]; i + sizeof words <= size; i += sizeof words) {
        memcpy(words, text + i, sizeof words);
        if ((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) break;
    }
    while (i < size && text[i] < 0x80) i++;
    return i;
}

static bool continues(uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

// Bytes of the multi-byte character at `p`; 0 when it is cut off, overlong, a surrogate or beyond U+10FFFF.
static size_t multibyte(const uint8_t *p, size_t size) {
    if (p[0] >= 0xC2 && p[0] <= 0xDF) return size >= 2 && continues(p[1]) ? 2 : 0;
    if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        if (size < 3 || !continues(p[1]) || !continues(p[2])) return 0;
        bool overlong = p[0] == 0xE0 && p[1] < 0xA0, surrogate = p[0] == 0xED && p[1] >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if (size < 4 || !continues(p[1]) || !continues(p[2]) || !continues(p[3])) return 0;
        bool overlong = p[0] == 0xF0 && p[1] < 0x90, beyond = p[0] == 0xF4 && p[1] >= 0x90;
        return overlong || beyond ? 0 : 4;
    }
    return 0;
}

size_t kn_utf8_valid(const char *text, size_t size) {
    const uint8_t *bytes = (const uint8_t *)text;
    for (size_t i = 0; i < size;) {
        if (bytes[i] < 0x80) {
            i += ascii_run(bytes + i, size - i);
        } else {
            size_t n = multibyte(bytes + i, size - i);
            if (!n) return i;
            i += n;
        }
    }
    return size;
}

size_t kn_utf8_decode(const char *text, size_t size, uint32_t *codepoint) {
    const uint8_t *p = (const uint8_t *)text;
    if (!size) return 0;
    if (p[0] < 0x80) {
        *codepoint = p[0];
        return 1;
    }
    size_t n = multibyte(p, size);
    if (!n) return 0;
    *codepoint = p[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) *codepoint = *codepoint << 6 | (p[i] & 0x3Fu);
    return n;
}

size_t kn_utf8_encode(uint32_t c, char *out) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFF) | c);
    return n;
}
