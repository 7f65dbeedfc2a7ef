// Validates, decodes and encodes UTF-8, and escapes bytes that would break a row of a table.
#include "base/utf8.h"

#include <stdio.h>
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

void kn_utf8_escape(const char *text, size_t size, char *out, size_t capacity) {
    size_t n = 0, step;
    for (size_t i = 0; i < size && n + 5 < capacity; i += step) {
        unsigned char c = (unsigned char)text[i];
        uint32_t codepoint;
        size_t whole = kn_utf8_decode(text + i, size - i, &codepoint);
        step = whole ? whole : 1;
        if (c == '\t' || c == '\n' || c == '\r' || c == '\\') {
            out[n++] = '\\';
            out[n++] = c == '\t' ? 't' : c == '\n' ? 'n' : c == '\r' ? 'r' : '\\';
        } else if (!whole || c < 0x20 || c == 0x7f) {
            n += (size_t)snprintf(out + n, capacity - n, "\\x%02x", c);
        } else {
            memcpy(out + n, text + i, whole);
            n += whole;
        }
    }
    out[n] = 0;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte that the escape at `text` stands for; returns the bytes of the escape, 0 when it is none.
static size_t unescape_one(const char *text, size_t size, char *out) {
    static const char letters[] = "tnr\\", bytes[] = "\t\n\r\\";
    if (size < 2) return 0;
    const char *letter = text[1] ? strchr(letters, text[1]) : NULL;
    if (letter) {
        *out = bytes[letter - letters];
        return 2;
    }
    if (text[1] != 'x' || size < 4) return 0;
    int high = hex_digit(text[2]), low = hex_digit(text[3]);
    *out = (char)((unsigned)high << 4 | (unsigned)low);
    return high >= 0 && low >= 0 ? 4 : 0;
}

bool kn_utf8_unescape(const char *text, size_t size, char *out, size_t *out_size) {
    size_t n = 0, step = 1;
    for (size_t i = 0; i < size; i += step) {
        char c = text[i];
        step = c == '\\' ? unescape_one(text + i, size - i, &c) : 1;
        if (!step) return false;
        out[n++] = c;
    }
    *out_size = n;
    return true;
}
